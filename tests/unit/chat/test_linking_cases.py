"""What real clients send, as a table: which answer each request is linked to, and by which rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import openclaw_requests as oc
from rejoinder.chat.history import History
from rejoinder.chat.linking import (
    PARENTS,
    REPEATS,
    SESSIONS,
    Facts,
    LinkDecision,
    NamedSession,
    Rule,
    decide,
)
from rejoinder.chat.messages import normalise
from rejoinder.types import ChainMatch, SameRequest

Json = dict
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "http-api.md"


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def bot(text: str) -> Json:
    return {"role": "assistant", "content": text}


@dataclass(frozen=True)
class Turn:
    """An answered request of before."""

    request: tuple[Json, ...]
    answer: Json
    session: str = "s"
    named: str | None = None
    trace: bytes | None = None
    superseded: bool = False
    side: bool = False


@dataclass(frozen=True)
class Case:
    """A request after some turns; turns are called 0, 1, 2… in what is expected."""

    name: str
    before: tuple[Turn, ...]
    request: tuple[Json, ...]
    parent: int | None
    by: str
    """Rule that decided about the parent."""
    session: str | None = "s"
    next_state: tuple[str, ...] = ()
    """Roles and contents, ``role: content``."""
    named: str | None = None
    trace: bytes | None = None
    retried: bool = False
    continues: int | None = None
    repeats: tuple[int, ...] = ()
    repeat_by: str = "not_repeated"
    ambiguous: tuple[int, ...] = field(default=())


ONE, TWO = b"1" * 16, b"2" * 16
ASK, GO, A = (user("a"),), (user("go"),), bot("A")

# OpenClaw: a question, an answer in words, a reply.
CLAW_ASKS = (oc.system(), oc.first_user("What is the capital?", "e187"), oc.context())
CLAW_REPLIES = (
    oc.system("NEXT"),
    oc.first_user("What is the capital?", "e187", clock="12:11"),
    bot("Paris."),
    user("[Sun 2026-11-29 12:11 UTC] In one word more!"),
    oc.context("1 running"),
)
# OpenClaw: a task, a tool call, its result.
CLAW_TASK = (oc.system(), oc.first_user("Run echo hi", "abc"), oc.context())
CLAW_CALL = oc.called("chatcmpl-tool-9f3", '{"command": "echo hi"}', "Let me run it.")
CLAW_RESULT = (
    oc.system(),
    oc.first_user("Run echo hi", "abc"),
    oc.called("call1"),
    oc.result("call1", "hi"),
    oc.context(),
)
# OpenClaw: a heartbeat, which its history later tells in three words.
BEAT = (
    "Follow the heartbeat monitor scratch context when provided. Reply NO_REPLY.\nCurrent time: {}"
)
CLAW_BEATS = (*CLAW_REPLIES[:3], user(BEAT.format("12:40")), oc.context("System: the oven"))
LONG = (user("a"), bot("A"), user("b"), bot("B"), user("c"))

CASES = (
    Case(
        "OpenClaw: the reply to an answer, everything transient changed",
        (Turn(CLAW_ASKS, bot("Paris."), named="e187"),),
        CLAW_REPLIES,
        parent=0, by="last_answer", named="e187",
        next_state=("user: In one word more!",),
    ),
    Case(
        "OpenClaw: the result of a tool call, not the block of context behind it",
        (Turn(CLAW_TASK, CLAW_CALL, named="abc"),),
        CLAW_RESULT,
        parent=0, by="last_answer", named="abc",
        next_state=("tool: hi",),
    ),
    Case(
        "OpenClaw: the same without an id that could be found",
        (Turn(CLAW_TASK, CLAW_CALL),),
        CLAW_RESULT,
        parent=0, by="last_answer",
        next_state=("tool: hi",),
    ),
    Case(
        "OpenClaw: two runs of one task at once, told apart by their sessions",
        (Turn(CLAW_TASK, CLAW_CALL, "s1", "abc"), Turn(CLAW_TASK, CLAW_CALL, "s2", "xyz")),
        CLAW_RESULT,
        parent=1, by="last_answer", session="s2", named="xyz",
        next_state=("tool: hi",),
    ),
    Case(
        "OpenClaw: the words after a heartbeat, whose prompt the history tells in short",
        (Turn(CLAW_ASKS, bot("Paris.")), Turn(CLAW_BEATS, bot("The oven is hot."))),
        (
            *CLAW_BEATS[:3],
            user("[Sun 2026-11-29 12:40 UTC] [OpenClaw heartbeat poll]"),
            bot("The oven is hot."),
            user("Switch it off."),
            oc.context(),
        ),
        parent=1, by="last_answer",
        next_state=("user: Switch it off.",),
    ),
    Case(
        "OpenClaw: a command that ended by itself, told in short with advice",
        (Turn((*GO, A, user("An async command you ran earlier has completed. 0")), bot("B")),),
        (*GO, A, user("[OpenClaw exec completion]\nSwitch it off so."), bot("B"), *ASK),
        parent=0, by="last_answer",
        next_state=("user: a",),
    ),
    Case(
        "a person's own words that only mention a heartbeat are compared whole",
        (Turn((user("Is [OpenClaw heartbeat poll] bad?"),), A),),
        (user("Is [OpenClaw heartbeat poll] good?"), A, user("b")),
        parent=None, by="unknown_history", session=None,
    ),
    Case(
        "two answers with one tool call, told apart by the text beside it",
        (
            Turn(GO, oc.called("x", content="First.")),
            Turn(GO, oc.called("y", content="Second.")),
        ),
        (*GO, oc.called("z", content=" Second."), oc.result("z", "done")),
        parent=1, by="last_answer_in_words",
        next_state=("tool: done",),
    ),
    Case(
        "two equal answers, one of them named by the id of its response",
        (Turn(ASK, A, "s1"), Turn(ASK, A, "s2")),
        (*ASK, A, user("b")),
        parent=1, by="last_answer_by_id", session="s2", continues=1,
        next_state=("user: b",),
    ),
    Case(
        "an id names an answer that the history does not end with",
        (Turn(ASK, A, "s1"), Turn(ASK, A, "s2"), Turn(GO, A, "s3")),
        (*ASK, A, user("b")),
        parent=None, by="several_answers", session=None, continues=2, ambiguous=(0, 1),
    ),
    Case(
        "two answers with one tool call, sent back without the text beside it",
        (
            Turn(GO, oc.called("x", content="First.")),
            Turn(GO, oc.called("y", content="Second.")),
        ),
        (*GO, oc.called("z"), oc.result("z", "done")),
        parent=None, by="several_answers", ambiguous=(0, 1),
    ),
    Case(
        "the history was summarised: its session goes on, nothing is judged",
        (Turn(LONG, bot("C"), named="x"),),
        (user("Summary: a, b and c were talked about."), bot("C"), user("d")),
        parent=None, by="unknown_history", named="x", session="named:x",
    ),
    Case(
        "the history was summarised and no session is named: a new one",
        (Turn(LONG, bot("C")),),
        (user("Summary: a, b and c were talked about."), bot("C"), user("d")),
        parent=None, by="unknown_history", session=None,
    ),
    Case(
        "after a summary the conversation is linked again",
        (Turn((user("Summary"), bot("C"), user("d")), bot("D")),),
        (user("Summary"), bot("C"), user("d"), bot("D"), user("e")),
        parent=0, by="last_answer",
        next_state=("user: e",),
    ),
    Case(
        "old messages were cut off the front",
        (Turn(LONG, bot("C")),),
        (user("b"), bot("B"), user("c"), bot("C"), user("d")),
        parent=None, by="unknown_history", session=None,
    ),
    Case(
        "the person edited an early message and kept what came after",
        (Turn(ASK, A), Turn(LONG[:3], bot("B"))),
        (user("a, edited"), bot("A"), user("b"), bot("B"), user("c")),
        parent=None, by="unknown_history", session=None,
    ),
    Case(
        "the person edited the last message: a branch of the same answer",
        (Turn(ASK, A), Turn(LONG[:3], bot("B"))),
        (user("a"), bot("A"), user("b, edited")),
        parent=0, by="last_answer",
        next_state=("user: b, edited",),
    ),
    Case(
        "the person edited the answer",
        (Turn(ASK, A), Turn(LONG[:3], bot("B"))),
        (user("a"), bot("A"), user("b"), bot("B, edited"), user("c")),
        parent=None, by="earlier_answer",
    ),
    Case(
        "the answer was regenerated, and the person goes on from the second one",
        (Turn((user("a"),), bot("A1"), "s1"), Turn((user("a"),), bot("A2"), "s2")),
        (user("a"), bot("A2"), user("b")),
        parent=1, by="last_answer", session="s2",
        next_state=("user: b",),
    ),
    Case(
        "the answer was regenerated with the same text: which one is meant cannot be known",
        (Turn(ASK, A, "s1"), Turn(ASK, A, "s2")),
        (user("a"), bot("A"), user("b")),
        parent=None, by="several_answers", session=None, ambiguous=(0, 1),
    ),
    Case(
        "regenerated in a named session: the later request replaces the earlier",
        (Turn(ASK, A, "n", "x"),),
        (user("a"),),
        parent=None, by="first_request", named="x", session="n",
        repeats=(0,), repeat_by="asked_again",
    ),
    Case(
        "asked again without a session or a mark: a branch, nothing is replaced",
        (Turn(ASK, A),),
        (user("a"),),
        parent=None, by="first_request", session=None,
    ),
    Case(
        "a sub-agent under the same key with a task of its own",
        (Turn(ASK, A),),
        (user("You are a sub-agent. Count the files."),),
        parent=None, by="first_request", session=None,
    ),
    Case(
        "a sub-agent whose brief quotes the main agent's answer",
        (Turn(ASK, A),),
        (user("Context: a / A. Check it."), bot("A"), user("go on")),
        parent=None, by="unknown_history", session=None,
    ),
    Case(
        "equal sub-agents side by side, told apart by their traces",
        (Turn(GO, A, "s1", trace=ONE), Turn(GO, A, "s2", trace=TWO)),
        (user("go"), bot("A"), oc.result("c", "done")),
        parent=1, by="last_answer_in_trace", session="s2", trace=TWO,
        next_state=("tool: done",),
    ),
    Case(
        "equal sub-agents of one trace: the trace does not tell which",
        (Turn(GO, A, "s1", trace=ONE), Turn(GO, A, "s2", trace=ONE)),
        (user("go"), bot("A"), oc.result("c", "done")),
        parent=None, by="several_answers", session=None, trace=ONE, ambiguous=(0, 1),
    ),
    Case(
        "one trace over two conversations: they do not continue each other, and stay two",
        (Turn(ASK, A, trace=ONE),),
        (user("Something else"),),
        parent=None, by="first_request", session=None, trace=ONE,
    ),
    Case(
        "another trace does not undo a match of the history",
        (Turn(ASK, A, trace=ONE),),
        (user("a"), bot("A"), user("b")),
        parent=0, by="last_answer", trace=TWO,
        next_state=("user: b",),
    ),
    Case(
        "a marked retry that looks like requests of two sessions: the one of its trace",
        (Turn(ASK, A, "s1", trace=ONE), Turn(ASK, A, "s2", trace=TWO)),
        (user("a"),),
        parent=None, by="first_request", session="s1", trace=ONE, retried=True,
        repeats=(0,), repeat_by="retry_in_trace",
    ),
    Case(
        "a marked retry that looks like requests of two sessions and has no trace",
        (Turn(ASK, A, "s1"), Turn(ASK, A, "s2")),
        (user("a"),),
        parent=None, by="first_request", session=None, retried=True,
        repeat_by="retry_of_several",
    ),
    Case(
        "a marked retry of the only request that looks like it",
        (Turn(ASK, A),),
        ASK,
        parent=None, by="first_request", retried=True,
        repeats=(0,), repeat_by="marked_retry",
    ),
    Case(
        "parallel requests in one session continue the same answer in branches",
        (Turn(ASK, A, "n", "x"), Turn(LONG[:3], bot("B"), "n", "x")),
        (user("a"), bot("A"), user("c")),
        parent=0, by="last_answer", named="x", session="n",
        next_state=("user: c",),
    ),
    Case(
        "a call for a title that tells the conversation in one message",
        (Turn(ASK, A),),
        (user("Write a title for this:\nUSER: a\nASSISTANT: A"),),
        parent=None, by="first_request", session=None,
    ),
    Case(
        "a side turn that said the same to the same",
        (Turn(ASK, A), Turn(ASK, A, "t", side=True)),
        (user("a"), bot("A"), user("b")),
        parent=0, by="last_answer",
        next_state=("user: b",),
    ),
    Case(
        "a reply to a side turn alone",
        (Turn(ASK, A, side=True),),
        (user("a"), bot("A"), user("b")),
        parent=0, by="last_answer",
        next_state=("user: b",),
    ),
    Case(
        "two replaced answers and one that counts",
        (Turn(ASK, A, superseded=True), Turn(ASK, A)),
        (user("a"), bot("A"), user("b")),
        parent=1, by="last_answer",
        next_state=("user: b",),
    ),
)  # fmt: skip


def recorded(case: Case) -> tuple[list[ChainMatch], list[SameRequest], History]:
    """What the journal finds for a case's request."""
    request = History(normalise(case.request))
    matches: list[ChainMatch] = []
    same: list[SameRequest] = []
    for number, turn in enumerate(case.before):
        past = History(normalise(turn.request))
        (answer,) = normalise([turn.answer])
        chain = past.answer_chain(answer)
        if chain in request.answer_chains:
            matches.append(
                ChainMatch(
                    str(number),
                    turn.session,
                    turn.named,
                    chain,
                    turn.superseded,
                    turn.trace,
                    turn.side,
                )
            )
        in_session = case.named is not None and turn.named == case.named
        if past.request_chain == request.request_chain and (in_session or case.retried):
            same.append(
                SameRequest(str(number), turn.session, None, 0.0, open=False, trace=turn.trace)
            )
    return matches, same, request


def linked(case: Case) -> LinkDecision:
    """What the rules make of a case."""
    matches, same, request = recorded(case)
    named = None if case.named is None else NamedSession(case.named, f"named:{case.named}")
    continues = None if case.continues is None else str(case.continues)
    facts = Facts(request, named, matches, same, case.trace, continues, now=1.0)
    answers = {id_: normalise([case.before[int(id_)].answer])[0] for id_ in facts.unread}
    return decide(replace(facts, answers=answers))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_request_is_linked_as_the_table_says(case: Case) -> None:
    decision = linked(case)
    why = decision.explanation
    assert why["parent"]["rule"] == case.by, why
    assert decision.parent_id == (None if case.parent is None else str(case.parent))
    assert decision.session_id == case.session
    assert why["repeat"]["rule"] == case.repeat_by, why
    assert decision.supersedes == tuple(map(str, case.repeats))
    assert decision.ambiguous == tuple(map(str, case.ambiguous))
    assert [f"{one.role}: {one.content}" for one in decision.next_state] == list(case.next_state)


def test_every_rule_of_the_tables_is_in_the_table_of_cases() -> None:
    """A new rule needs a case that it decides."""
    assert {rule.name for rule in PARENTS} == {case.by for case in CASES}
    assert {rule.name for rule in REPEATS} == {case.repeat_by for case in CASES}
    decided = {linked(case).explanation["session"]["rule"] for case in CASES}
    assert {rule.name for rule in SESSIONS} == decided


@pytest.mark.parametrize("rule", [*PARENTS, *REPEATS, *SESSIONS], ids=lambda rule: rule.name)
def test_every_rule_is_in_the_reference(rule: Rule) -> None:
    assert f"| `{rule.name}` |" in REFERENCE.read_text("utf-8")


def test_the_explanation_says_how_much_of_the_reply_was_client_context() -> None:
    why = linked(next(case for case in CASES if "not the block" in case.name)).explanation
    assert why["next_state"] == {"messages": 1, "left_out": 1}
    assert why["parent"]["turns"] == ["0"]


def test_a_system_prompt_is_no_part_of_what_is_hashed() -> None:
    """Its 40,000 characters come with every request: they must cost nothing."""
    plain = History(normalise(CLAW_RESULT[1:]))
    assert History(normalise(CLAW_RESULT)).request_chain == plain.request_chain


def test_each_message_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from rejoinder.chat import history

    seen: list[object] = []

    def counted(chain: bytes, message: object) -> bytes:
        seen.append(message)
        return b"%d" % len(seen)

    monkeypatch.setattr(history, "_extend", counted)
    request = History(normalise(CLAW_RESULT))
    decide(Facts(request, matches=()))
    assert request.request_chain
    assert len(seen) == len(CLAW_RESULT)
