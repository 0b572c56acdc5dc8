"""Earlier answers stand in prompts as they were sampled, and never change what a prompt says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rejoinder.chat.splicing import (
    KnownTurn,
    SplicedPrompt,
    SpliceOutcome,
    changed_after,
    last_shared_border,
    splice,
    text_end,
)
from rejoinder.chat.token_bytes import TokenBytes
from rejoinder.types import Message
from splicing_kit import CASES, TOOLS, answered, render, sampled, text_of, token_bytes, tokenizer

NAMES = tuple(CASES)
THINKING = tuple(name for name, case in CASES.items() if case.thoughts is not None)
CALLING = tuple(name for name, case in CASES.items() if case.call)
examples = settings(deadline=None, max_examples=50)
WHOLE = (SpliceOutcome.SAME, SpliceOutcome.SPLICED)

words = st.text('ab é\n"<|:', min_size=1, max_size=40).map(str.strip).filter(bool)
noise = st.integers(0, 1 << 32).map(random.Random)


def user(text: str) -> Message:
    return Message("user", text)


def continued(
    name: str, prompt: list[int], answer: list[int], rendered: list[int], **more: object
) -> SplicedPrompt:
    """Splice, and check what holds for every prompt whatever it continues."""
    known = [*prompt, *answer]
    turn = KnownTurn(tuple(prompt), tuple(answer), **more)  # type: ignore[arg-type]
    made = tokenizer(name)
    found = splice(turn, rendered, token_bytes(name), made.eos_ids, made.special_ids)
    assert text_of(name, found.ids) == text_of(name, rendered)
    assert found.ids[: found.kept] == known[: found.kept]
    assert rendered[len(rendered) - (len(found.ids) - found.kept) :] == found.ids[found.kept :]
    return found


@pytest.mark.parametrize("name", NAMES)
@examples
@given(question=words, said=words, reply=words, noise=noise, ended=st.booleans())
def test_the_next_prompt_begins_with_the_prompt_and_the_answer_as_it_was_sampled(
    name, question, said, reply, noise, ended
):
    case = CASES[name]
    prompt = render(name, user(question))
    answer = sampled(name, case.plain.format(said) + case.end * ended, noise)
    message = answered(name, prompt, answer)
    assert message.content == said
    rendered = render(name, user(question), message, user(reply))
    found = continued(name, prompt, answer, rendered)
    assert found.outcome in WHOLE
    assert (found.outcome is SpliceOutcome.SAME) == (found.ids == rendered)
    if name == "gpt-oss" and ended:  # in history another token ends messages than the sampled one
        answer.pop()
    assert found.ids[: len(prompt) + len(answer)] == prompt + answer


@pytest.mark.parametrize("name", NAMES)
@examples
@given(texts=st.lists(words, min_size=6, max_size=6), noise=noise, remembered=st.booleans())
def test_answers_of_several_turns_stand_one_after_the_other(name, texts, noise, remembered):
    case = CASES[name]
    history = [user(texts[0])]
    prompt = rendered = render(name, *history)
    for said, reply in zip(texts[1::2], [*texts[2::2], "b"], strict=True):
        answer = sampled(name, case.plain.format(said) + case.end, noise)
        history += [answered(name, prompt, answer), user(reply)]
        then = tuple(rendered) if remembered else None
        rendered = render(name, *history)
        found = continued(name, prompt, answer, rendered, rendered_ids=then)
        assert found.outcome in WHOLE
        prompt = found.ids


@pytest.mark.parametrize("name", CALLING)
@examples
@given(noise=noise)
def test_calls_that_the_template_writes_as_they_were_sampled_are_kept(name, noise):
    case = CASES[name]
    prompt = render(name, user("go"), tools=TOOLS)
    answer = sampled(name, case.call + case.call_end, noise)
    message = answered(name, prompt, answer, tools=True)
    assert [call.name for call in message.tool_calls] == ["f"]
    rendered = render(name, user("go"), message, Message("tool", "done"), tools=TOOLS)
    found = continued(name, prompt, answer, rendered)
    assert found.outcome in WHOLE
    assert found.ids[: len(prompt) + len(answer)] == prompt + answer


@pytest.mark.parametrize("name", CALLING)
@examples
@given(noise=noise)
def test_calls_that_the_template_writes_anew_leave_the_rendering(name, noise):
    case = CASES[name]
    if name == "glm":
        written = case.call.replace("f\n", "f").replace("</arg_key>\n", "</arg_key>")
    else:
        written = case.call.replace('{"k": "ab a"}', '{"k":"ab a"}')
    prompt = render(name, user("go"), tools=TOOLS)
    answer = sampled(name, written + case.call_end, noise)
    message = answered(name, prompt, answer, tools=True)
    rendered = render(name, user("go"), message, Message("tool", "done"), tools=TOOLS)
    found = continued(name, prompt, answer, rendered)
    assert found.outcome is SpliceOutcome.ANSWER_DIFFERS
    assert len(prompt) <= found.kept < len(prompt) + len(answer)


@pytest.mark.parametrize("name", THINKING)
@examples
@given(thought=words, said=words, noise=noise)
def test_thoughts_that_the_template_leaves_out_leave_the_rendering(name, thought, said, noise):
    case = CASES[name]
    prompt = render(name, user("go"))
    answer = sampled(name, str(case.thoughts).format(thought, said) + case.end, noise)
    message = answered(name, prompt, answer)
    assert (message.reasoning, message.content) == (thought, said)
    rendered = render(name, user("go"), message, user("on"))
    found = continued(name, prompt, answer, rendered)
    assert found.outcome is SpliceOutcome.ANSWER_DIFFERS
    assert found.kept >= len(prompt)


@examples
@given(noise=noise, thought=words)
def test_thoughts_between_calls_are_kept_where_the_template_keeps_them(noise, thought):
    prompt = render("qwen", user("go"), tools=TOOLS)
    case = CASES["qwen"]
    answer = sampled("qwen", f"<think>\n{thought}\n</think>\n\n{case.call}<|im_end|>", noise)
    message = answered("qwen", prompt, answer, tools=True)
    result = Message("tool", "done")
    rendered = render("qwen", user("go"), message, result, tools=TOOLS)
    assert continued("qwen", prompt, answer, rendered).outcome in WHOLE
    later = render("qwen", user("go"), message, result, Message("assistant", "b"), user("on"))
    assert continued("qwen", prompt, answer, later).outcome is SpliceOutcome.ANSWER_DIFFERS


@examples
@given(said=words, other=words, noise=noise)
def test_another_text_in_the_place_of_the_answer_leaves_the_rendering(said, other, noise):
    prompt = render("qwen", user("go"))
    answer = sampled("qwen", f"{said}<|im_end|>", noise)
    rendered = render("qwen", user("go"), Message("assistant", other), user("on"))
    found = continued("qwen", prompt, answer, rendered)
    assert (found.outcome in WHOLE) == (said == other)


@examples
@given(said=words, noise=noise)
def test_a_changed_system_prompt_leaves_the_rendering(said, noise):
    before, after = Message("system", "at 12:10"), Message("system", "at 12:11")
    prompt = render("qwen", before, user("go"))
    answer = sampled("qwen", f"{said}<|im_end|>", noise)
    history = (user("go"), Message("assistant", said), user("on"))
    rendered = render("qwen", after, *history)
    found = continued("qwen", prompt, answer, rendered)
    assert found.outcome is SpliceOutcome.PROMPT_DIFFERS
    assert found.ids == rendered


@examples
@given(texts=st.tuples(words, words), noise=noise)
def test_answers_in_an_earlier_prompt_stay_though_the_last_one_is_written_anew(texts, noise):
    """Else a conversation whose last answer cannot be kept would be computed from its first."""
    opening = render("qwen", user("go"))
    first = sampled("qwen", f"{texts[0]}<|im_end|>", noise)
    history = [user("go"), answered("qwen", opening, first), user("on")]
    prompt = continued("qwen", opening, first, render("qwen", *history)).ids
    second = sampled("qwen", f"<think>\nb\n</think>\n\n{texts[1]}<|im_end|>", noise)
    history += [answered("qwen", prompt, second), user("and")]
    found = continued("qwen", prompt, second, render("qwen", *history))
    assert found.outcome is SpliceOutcome.ANSWER_DIFFERS
    assert found.kept >= len(prompt)


def test_ids_without_bytes_equal_themselves_only():
    """They come from another vocabulary; an engine would refuse a prompt that holds them."""
    unknown = 1 << 20
    text = token_bytes("qwen")
    assert last_shared_border([1, unknown, 2], [1, 2], text) == (1, 1)
    assert last_shared_border([1, 2], [1, unknown, 2], text) == (1, 1)
    assert last_shared_border([1, 2, unknown], [1, 2], text) == (2, 2)


pieces = st.lists(st.sampled_from([b"a", b"b", b"ab", b"aba", b"bb", b"", b"\xc3", b"\xa9"]))


@examples
@given(pieces, pieces)
def test_the_last_shared_border_is_the_last_one_of_all(left, right):
    spelt = dict(enumerate([*left, *right]))
    a, b = list(range(len(left))), list(range(len(left), len(spelt)))
    borders = [
        (i, j)
        for i in range(len(left) + 1)
        for j in range(len(right) + 1)
        if b"" not in [*left[:i], *right[:j]] and b"".join(left[:i]) == b"".join(right[:j])
    ]
    assert last_shared_border(a, b, spelt) == max(borders)


@examples
@given(said=words, question=words, wish=words, noise=noise)
def test_a_changed_conversation_is_spliced_as_the_original_was(said, question, wish, noise):
    prompt = render("qwen", user("go"))
    answer = sampled("qwen", f"{said}<|im_end|>", noise)
    history = (user("go"), answered("qwen", prompt, answer))
    rendered = render("qwen", *history, user(question))
    own = continued("qwen", prompt, answer, rendered).ids
    text = token_bytes("qwen")
    assert text_end(own, rendered, text) == len(own)
    assert changed_after(own, rendered, rendered, text) == own
    hinted = render("qwen", *history, user(f"{question}\n\n{wish}"))
    found = changed_after(own, rendered, hinted, text)
    assert text_of("qwen", found) == text_of("qwen", hinted)
    assert found[: len(prompt) + len(answer)] == prompt + answer
    assert changed_after(rendered, rendered, hinted, text) == hinted


def test_a_prompt_may_go_on_after_the_text_of_its_rendering_and_must_begin_with_it():
    text = token_bytes("qwen")
    ab, a, b = (tokenizer("qwen").encode(word) for word in ("ab", "a", "b"))
    assert text_end(ab, a + b, text) == 1
    assert text_end(a + b, ab, text) == 2
    assert text_end(a + b + a, ab, text) == 2
    assert text_end(ab + b, ab, text) == 1
    assert text_end(a, ab, text) is None
    assert text_end(ab, a, text) is None, "no border where the rendering ends"
    assert text_end(b + a, ab, text) is None


def test_vocabularies_that_write_spaces_into_their_tokens_are_spliced_alike():
    """Their tokenizers put a space before the first word, and leave it out when they decode."""
    pieces = ["<s>", "</s>", "[/INST]", "▁", "a", "b", "▁a", "ab", "▁ab", "\n", "<0x0A>"]
    merges = [("▁", "a"), ("a", "b"), ("▁", "ab")]
    made = Tokenizer(models.BPE({piece: at for at, piece in enumerate(pieces)}, merges))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Metaspace()
    made.add_special_tokens([AddedToken(piece, special=True) for piece in pieces[:3]])

    def encode(text: str) -> list[int]:
        return made.encode(text, add_special_tokens=False).ids

    prompt = encode("ab[/INST]")
    answer = [made.token_to_id(piece) for piece in ("▁", "a", "b", "▁a", "</s>")]
    rendered = encode("ab[/INST] ab a</s>ab[/INST]")
    assert rendered[: len(prompt)] == prompt
    turn = KnownTurn(tuple(prompt), tuple(answer))
    found = splice(turn, rendered, TokenBytes(made), [1], [0, 1, 2])
    assert found.outcome is SpliceOutcome.SPLICED
    assert found.ids[: len(prompt) + len(answer)] == prompt + answer
    assert made.decode(found.ids) == made.decode(rendered)
