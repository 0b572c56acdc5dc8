"""Prompts with a hint in them: where it stands, what fits, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rejoinder.chat.splicing import KnownTurn, splice
from rejoinder.errors import InvalidRequest
from rejoinder.journal.records import TrainSample
from rejoinder.trainer.hinted import HintFault, HintRenderer, TeacherPrompts, with_hint
from rejoinder.types import Json, Message, VersionRun
from splicing_kit import family, render, token_bytes, tokenizer
from splicing_kit import text_of as bytes_of

HINT = "Answer in one short sentence."
QUESTION = (Message("system", "Be kind."), Message("user", "Why is the sky blue?"))
CHARACTERS = {id_: chr(id_).encode() for id_ in range(128)}
TOOLS: list[Json] = [{"type": "function", "function": {"name": "look"}}]


class Characters:
    """Renders each character as an id; refuses conversations without a user."""

    def render(
        self, messages: Sequence[Message], tools: Sequence[Json] | None = None, options: Any = None
    ) -> Any:
        if not any(message.role == "user" for message in messages):
            raise InvalidRequest("no user message")
        text = "".join(f"<{message.role}>{message.content}" for message in messages)
        return _Prompt([ord(char) for char in json.dumps(tools) + json.dumps(options) + text])


class _Prompt:
    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def ids(self) -> list[int]:
        return self._ids


def sample(messages: Sequence[Message] = QUESTION, hints: tuple[str, ...] = (HINT,)) -> TrainSample:
    return TrainSample(
        sample_id="s",
        turn_id="t",
        session_id="c",
        trajectory=None,
        prompt_ids=Characters().render(messages, TOOLS).ids(),
        answer_ids=[1, 2, 3],
        logprobs=[-0.1] * 3,
        versions=(VersionRun(0, 3),),
        temperature=1.0,
        reward=None,
        hints=hints,
        created_at=0.0,
        messages=tuple(messages),
        tools=json.dumps(TOOLS),
    )


def text_of(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def prompts(one: TrainSample, context: int = 4096) -> TeacherPrompts:
    return HintRenderer(Characters(), context, CHARACTERS).prompts(one)  # type: ignore[arg-type]


def test_the_client_s_arguments_of_the_template_are_in_the_teacher_s_prompt_too() -> None:
    options = {"enable_thinking": False}
    ids = Characters().render(QUESTION, TOOLS, options).ids()
    thoughtless = replace(sample(), prompt_ids=ids, options=json.dumps(options))
    (prompt,) = prompts(thoughtless).prompts
    assert json.dumps(options) in text_of(prompt)
    assert HINT in text_of(prompt)
    assert prompts(replace(thoughtless, options=None)).faults == (HintFault.PROMPT_DIFFERS,)


def test_a_hint_stands_at_the_end_of_what_the_user_wrote() -> None:
    *before, last = with_hint(QUESTION, HINT)
    assert before == [QUESTION[0]]
    assert last.role == "user"
    assert last.content == f"Why is the sky blue?\n\n{HINT}"


def test_a_hint_stands_there_as_often_as_is_asked_for() -> None:
    renderer = HintRenderer(Characters(), 4096, CHARACTERS, times=2)  # type: ignore[arg-type]
    (prompt,) = renderer.prompts(sample()).prompts
    assert f"Why is the sky blue?\n\n{HINT}\n\n{HINT}" in text_of(prompt)


def test_where_room_is_short_it_stands_there_less_often_and_is_not_shortened() -> None:
    one = sample()
    (once,) = prompts(one).prompts
    context = len(once) + len(one.answer_ids)
    renderer = HintRenderer(Characters(), context, CHARACTERS, times=3)  # type: ignore[arg-type]
    found = renderer.prompts(one)
    assert (found.prompts, found.shortened) == ((once,), 0)


def test_after_tool_results_it_stands_in_a_message_of_its_own() -> None:
    talk = (*QUESTION, Message("assistant", ""), Message("tool", "scattering"))
    found = with_hint(talk, HINT)
    assert found[:-1] == talk
    assert found[-1].role == "user"
    assert HINT in found[-1].content


def test_the_teacher_reads_the_student_s_prompt_with_one_message_changed() -> None:
    found = prompts(sample())
    assert found.faults == ()
    (ids,) = found.prompts
    own = text_of(sample().prompt_ids)
    assert text_of(ids).startswith(own)
    assert HINT in text_of(ids)


def test_of_several_hints_the_longest_comes_first() -> None:
    found = prompts(sample(hints=("No lists here.", HINT, "Shorter, please.")))
    assert [len(ids) for ids in found.prompts] == sorted(map(len, found.prompts), reverse=True)
    assert HINT in text_of(found.prompts[0])


def with_sampled_answer(told: str = "ab ab.") -> TrainSample:
    """A sample whose prompt has an earlier answer as it was sampled: letter by letter."""
    ids = [id_ for char in told for id_ in tokenizer("qwen").encode(char)]
    opening = render("qwen", QUESTION[1])
    talk = (QUESTION[1], Message("assistant", told), Message("user", "Say it at once."))
    known = KnownTurn(tuple(opening), (*ids, *tokenizer("qwen").eos_ids))
    made = tokenizer("qwen")
    rendered = render("qwen", *talk)
    text = token_bytes("qwen")
    own = splice(known, rendered, text, made.eos_ids, made.special_ids).ids
    assert own != rendered
    return replace(sample(talk), prompt_ids=own, tools=None)


def test_the_teacher_has_earlier_answers_as_the_student_has_them() -> None:
    one = with_sampled_answer()
    renderer = HintRenderer(family("qwen").renderer, 4096, token_bytes("qwen"))
    found = renderer.prompts(one)
    assert found.faults == ()
    (ids,) = found.prompts
    hinted = render("qwen", *with_hint(one.messages, HINT))
    assert bytes_of("qwen", ids) == bytes_of("qwen", hinted)
    assert ids != hinted
    end = len("at once.<|im_end|>_assistant_")  # more than all that the hint can have changed
    assert ids[: len(one.prompt_ids) - end] == one.prompt_ids[:-end]


def test_with_a_hint_that_adds_nothing_it_is_the_student_s_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "rejoinder.trainer.hinted.with_hint", lambda messages, _hint, _times: messages
    )
    renderer = HintRenderer(family("qwen").renderer, 4096, token_bytes("qwen"))
    for one in (with_sampled_answer(), with_sampled_answer("b\n\nab")):
        assert renderer.prompts(one).prompts == (one.prompt_ids,)


def test_what_the_prompt_has_of_the_answer_stands_behind_the_hint_too() -> None:
    begun = tokenizer("qwen").encode('<tool_call>\n{"name":')
    one = with_sampled_answer()
    hinted = HintRenderer(family("qwen").renderer, 4096, token_bytes("qwen"))
    (without,) = hinted.prompts(one).prompts
    (found,) = hinted.prompts(replace(one, prompt_ids=one.prompt_ids + begun)).prompts
    assert found == without + begun


def test_ids_that_say_something_else_than_the_conversation_give_no_prompt() -> None:
    one = with_sampled_answer()
    other = replace(one, messages=(one.messages[0], Message("assistant", "ab"), one.messages[2]))
    renderer = HintRenderer(family("qwen").renderer, 4096, token_bytes("qwen"))
    assert renderer.prompts(other) == TeacherPrompts(faults=(HintFault.PROMPT_DIFFERS,))


def test_a_conversation_that_renders_otherwise_gives_no_prompt() -> None:
    other = replace(sample(hints=(HINT, "No lists here.")), prompt_ids=[1, 2, 3])
    assert prompts(other) == TeacherPrompts(faults=(HintFault.PROMPT_DIFFERS,) * 2)


def test_a_conversation_that_the_template_refuses_gives_no_prompt() -> None:
    other = replace(sample(), messages=(Message("system", "Be kind."),))
    assert prompts(other).faults == (HintFault.PROMPT_DIFFERS,)


def test_of_a_hint_that_is_too_long_whole_sentences_are_left() -> None:
    long = "Answer in one short sentence. Never say more than that, whatever else I ask of you!"
    room = len(prompts(sample(hints=(long,))).prompts[0]) + 3 - 10
    found = prompts(sample(hints=(long,)), room)
    assert found.shortened == 1
    assert text_of(found.prompts[0]).endswith("Answer in one short sentence.")
    assert len(found.prompts[0]) + 3 <= room


def test_a_sentence_is_never_cut_for_half_of_it_may_ask_for_the_contrary() -> None:
    hint = "Never answer without a source."
    room = len(prompts(sample(hints=(hint,))).prompts[0]) + 3 - 1
    assert prompts(sample(hints=(hint,)), room) == TeacherPrompts(faults=(HintFault.NO_ROOM,))


def test_a_template_that_refuses_the_hinted_conversation_is_told_apart() -> None:
    class AlternatingRoles(Characters):
        def render(self, messages: Sequence[Message], *rest: Any) -> Any:
            if messages[-1].role == "user" and messages[-2].role == "tool":
                raise InvalidRequest("roles must alternate")
            return super().render(messages, *rest)

    talk = (*QUESTION, Message("assistant", ""), Message("tool", "scattering"))
    renderer = HintRenderer(AlternatingRoles(), 4096, CHARACTERS)  # type: ignore[arg-type]
    found = renderer.prompts(sample(talk))
    assert found == TeacherPrompts(faults=(HintFault.TEMPLATE_REFUSES,))


def test_regression_a_template_that_leaves_the_hint_out_makes_no_teacher() -> None:
    class FirstLine(Characters):
        def render(self, messages: Sequence[Message], *rest: Any) -> Any:
            lines = [replace(one, content=one.content.partition("\n")[0]) for one in messages]
            return super().render(lines, *rest)

    renderer = HintRenderer(FirstLine(), 4096, CHARACTERS)  # type: ignore[arg-type]
    assert renderer.prompts(sample()) == TeacherPrompts(faults=(HintFault.TEMPLATE_HIDES,))


@pytest.mark.parametrize("room", [0, 4])
def test_a_hint_for_which_there_is_no_room_is_counted(room: int) -> None:
    found = prompts(sample(), len(sample().prompt_ids) + room)
    assert found == TeacherPrompts(faults=(HintFault.NO_ROOM,))
