"""Prompts begin with the exact ids of the turn they continue, and say what their text says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gateway_kit import KEYS, Json, Running, Script, bot, running, user

from rejoinder.errors import JournalError
from rejoinder.journal.columns import decode_json
from rejoinder.models.embedded import resolve_model
from rejoinder.models.tokenizer import load_tokenizer
from splicing_kit import text_of, tokenizer
from tiny_model import torch_engine

PRAISE = "ab ab."


def letter_by_letter(text: str) -> list[int]:
    """Return the ids of a text as nobody's tokenizer makes them."""
    *rest, end = text.partition("</tool_call>")[:2]
    ids = [id_ for char in "".join(rest) for id_ in tokenizer("qwen").encode(char)]
    return ids + tokenizer("qwen").encode(end)


@pytest.fixture
def qwen(journal_url) -> Callable:
    return lambda **settings: running(tokenizer("qwen"), journal_url, **settings)


def say(g: Running, text: str = PRAISE, **more: object) -> None:
    g.engine.script = lambda _request: Script(ids=letter_by_letter(text), **more)  # type: ignore[arg-type]


def prompts(g: Running) -> list[list[int]]:
    return [request.prompt_ids for request in g.engine.requests]


def told(g: Running) -> list[Json | None]:
    """What each turn says of its prompt."""
    rows = g.rows(
        "SELECT link FROM prompts JOIN turns USING (turn_id) ORDER BY turns.created_at, choice"
    )
    return [decode_json(row["link"]).get("prompt") for row in rows]


def rendered(*messages: Json) -> list[int]:
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return tokenizer("qwen").encode(f"{text}<|im_start|>assistant\n")


EOS = tokenizer("qwen").eos_ids[0]
ANSWER = [*letter_by_letter(PRAISE), EOS]


async def test_a_prompt_has_earlier_answers_as_they_were_sampled(qwen):
    async with qwen() as g:
        say(g)
        history = [user("Hi")]
        for reply in ("on", "and"):
            await g.answer(*history)
            history += [bot(PRAISE), user(reply)]
        await g.answer(*history)
        first, second, third = prompts(g)
        assert second[: len(first) + len(ANSWER)] == first + ANSWER
        assert third[: len(second) + len(ANSWER)] == second + ANSWER
        assert second != rendered(*history[:3])
        assert text_of("qwen", third) == text_of("qwen", rendered(*history))
        turns = g.turns()
        assert [g.journal.read_request(turn["turn_id"]).prompt_ids for turn in turns] == prompts(g)
        none, one, other = told(g)
        assert none is None
        assert (one["rule"], one["turns"]) == ("spliced", [turns[0]["turn_id"]])
        assert other["ids"] == len(second) + len(ANSWER)
        metrics = (await g.client.get("/metrics")).text
        assert 'rejoinder_gateway_splices_total{outcome="spliced"} 2.0' in metrics


async def test_an_answer_that_was_cut_has_no_end_token_of_its_own(qwen):
    async with qwen() as g:
        say(g)
        await g.answer(user("Hi"), max_tokens=4)
        await g.answer(user("Hi"), bot(PRAISE[:4]), user("on"))
        first, second = prompts(g)
        cut = letter_by_letter(PRAISE[:4])
        assert second[: len(first) + 5] == [*first, *cut, EOS]
        assert told(g)[1]["rule"] == "spliced"


async def test_a_call_that_the_prompt_has_begun_is_kept_with_its_beginning(qwen):
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with qwen() as g:
        say(g, ' {"k": "ab a"}}\n</tool_call>')
        first = await g.answer(user("go"), tools=tools, tool_choice="required")
        message = first["choices"][0]["message"]
        result = {"role": "tool", "content": "done", "tool_call_id": "c"}
        await g.answer(user("go"), message, result, tools=tools)
        one, two = prompts(g)
        sampled = g.journal.read_turn_ids(g.turns()[0]["turn_id"])[1]
        assert two[: len(one) + len(sampled)] == one + sampled
        assert told(g)[1]["rule"] == "spliced"


async def test_answers_that_the_tokenizer_would_write_alike_are_told_apart_from_spliced_ones(qwen):
    async with qwen() as g:
        g.engine.say(PRAISE)
        await g.answer(user("Hi"))
        await g.answer(user("Hi"), bot(PRAISE), user("on"))
        assert told(g)[1]["rule"] == "same"
        assert prompts(g)[1] == rendered(user("Hi"), bot(PRAISE), user("on"))


async def test_a_gateway_that_did_not_serve_the_turn_reads_its_ids_from_the_journal(qwen):
    async with qwen() as g:
        say(g)
        await g.answer(user("Hi"))
        (first,) = prompts(g)
    async with qwen() as other:
        await other.answer(user("Hi"), bot(PRAISE), user("on"))
        (second,) = prompts(other)
        assert second[: len(first) + len(ANSWER)] == first + ANSWER


@pytest.mark.parametrize(
    ("history", "rule"),
    [
        ([user("Hi"), bot("ab, b."), user("on")], "no_turn"),
        ([user("Hello"), bot(PRAISE), user("on")], "no_turn"),
        ([user("It is about Hi."), bot("(summary)"), user("on")], "no_turn"),
        ([{"role": "system", "content": "new"}, user("Hi"), bot(PRAISE), user("on")],
         "prompt_differs"),
        ([user("Hi"), bot(f" {PRAISE}"), user("on")], "answer_differs"),
    ],
    ids=["edited answer", "edited question", "compacted", "new system text", "other white space"],
)  # fmt: skip
async def test_histories_that_say_something_else_stay_as_they_are_rendered(qwen, history, rule):
    async with qwen() as g:
        say(g)
        await g.answer(user("Hi"))
        await g.answer(*history)
        assert prompts(g)[1] == rendered(*history)
        assert told(g)[1]["rule"] == rule


async def test_a_question_asked_anew_keeps_the_answers_before_it(qwen):
    async with qwen() as g:
        say(g)
        await g.answer(user("Hi"))
        await g.answer(user("Hi"), bot(PRAISE), user("on"))
        await g.answer(user("Hi"), bot(PRAISE), user("other"))
        first, _, third = prompts(g)
        assert third[: len(first) + len(ANSWER)] == first + ANSWER


async def test_after_a_foreign_answer_the_prompt_still_begins_with_what_was_sampled_here(qwen):
    async with qwen() as g:
        say(g)
        await g.answer(user("Hi"))
        await g.answer(user("Hi"), bot(PRAISE), user("on"), bot("not ours: ab"), user("and"))
        first, second = prompts(g)
        assert second[: len(first) + len(ANSWER)] == first + ANSWER
        assert g.turns()[1]["parent_id"] is None


async def test_of_several_equal_answers_none_is_taken(qwen):
    async with qwen() as g:
        say(g)
        await g.answer(user("Hi"), n=2)
        await g.answer(user("Hi"), bot(PRAISE), user("on"))
        assert told(g)[2] == {
            "rule": "no_turn",
            "why": "no earlier answer is known to be that of one turn",
        }
        assert prompts(g)[2] == rendered(user("Hi"), bot(PRAISE), user("on"))


@pytest.mark.parametrize(
    ("key", "more"),
    [("sk-bob-22", {}), ("sk-carol", {}), ("sk-alice-1", {"user": "other"})],
    ids=["another key", "another tenant", "another user"],
)
async def test_nobody_s_prompt_has_ids_that_were_sampled_for_somebody_else(qwen, key, more):
    async with qwen(keys=KEYS) as g:
        say(g)
        history = [user("Hi"), bot(PRAISE), user("on")]
        await g.answer(history[0], headers={"authorization": "Bearer sk-alice-1"})
        await g.answer(*history, headers={"authorization": f"Bearer {key}"}, **more)
        assert prompts(g)[1] == rendered(*history)
        await g.answer(*history, headers={"authorization": "Bearer sk-alice-1"})
        assert prompts(g)[2] != rendered(*history)


async def test_a_prompt_that_fits_only_as_it_is_rendered_is_answered(qwen):
    async with qwen() as g:
        say(g, "ab" * 40)
        history = [user("Hi"), bot("ab" * 40), user("on")]
        await g.answer(history[0])
        g.engine.context_length = len(rendered(*history)) + 5
        await g.service.probe_engine()
        await g.answer(*history)
        assert prompts(g)[1] == rendered(*history)
        assert told(g)[1]["rule"] == "no_room"


async def test_ids_that_cannot_be_read_cost_neither_the_answer_nor_the_link(qwen, monkeypatch):
    async with qwen() as g:
        say(g)
        await g.answer(user("Hi"))

    def broken(_self: object, _turn_id: str) -> None:
        raise JournalError("no such page")

    monkeypatch.setattr("rejoinder.journal.sql.SqlJournal.read_turn_ids", broken)
    async with qwen() as g:
        await g.answer(user("Hi"), bot(PRAISE), user("on"))
        first, second = g.turns()
        assert second["parent_id"] == first["turn_id"]
        assert told(g)[1]["rule"] == "unread"


@pytest.mark.model
async def test_the_engine_computes_nothing_of_the_turn_before_again(journal_url):
    model = resolve_model("embedded")
    real = load_tokenizer(model)
    # Letters that the tokenizer joins, and that the model is made to sample one by one.
    letter = real.encode("a")[0]
    assert real.encode("aaaa") != [letter] * 4
    async with (
        torch_engine(model, context_length=512) as engine,
        running(real, journal_url, served_by=engine) as g,
    ):
        for bias, rule in (({}, "same"), ({str(letter): 100}, "spliced")):
            history = [user(f"Name a colour, {rule}.")]
            asked = {"temperature": 0.0, "max_tokens": 8, "logit_bias": bias}
            first = await g.answer(*history, **asked)
            history += [first["choices"][0]["message"], user("And another one.")]
            second = await g.answer(*history, **asked)
            assert told(g)[-1]["rule"] == rule
            before = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
            cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached == before - 1  # all but the last sampled token, which nothing followed
