"""Which answer a request replies to: the rules, one by one."""

from __future__ import annotations

import pytest

from rejoinder.chat.history import History
from rejoinder.chat.linking import RETRY_WINDOW_S, Facts, NamedSession, session_key
from rejoinder.chat.linking import decide as decide_facts
from rejoinder.types import ChainMatch, Message, SameRequest, Scope, ToolCall

CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnotes\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"


def user(text: str, name: str | None = None) -> Message:
    return Message("user", text, name=name)


def bot(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", text, tool_calls=calls)


def system(text: str) -> Message:
    return Message("system", text)


def tool(text: str, id_: str = "c1") -> Message:
    return Message("tool", text, tool_call_id=id_)


def decide(request, named, matches, same=(), now=0.0):
    return decide_facts(Facts(request, named, matches, same, now=now))


def history(*messages: Message) -> History:
    return History(messages)


def answered(
    request: History,
    answer: Message,
    turn: str = "t1",
    session: str = "s1",
    external: str | None = None,
    superseded: bool = False,
) -> ChainMatch:
    """The journal's entry of an answered turn."""
    return ChainMatch(turn, session, external, request.answer_chain(answer), superseded)


def found(request: History, *turns: ChainMatch) -> list[ChainMatch]:
    """What the journal finds for a request."""
    return [turn for turn in turns if turn.chain in request.answer_chains]


FIRST = history(user("2+2?"))
ANSWER = bot("5")
REPLY = history(user("2+2?"), ANSWER, user("that is wrong"))


def test_a_reply_is_linked_to_the_answer_it_follows():
    decision = decide(REPLY, None, found(REPLY, answered(FIRST, ANSWER)))
    assert decision.parent_id == "t1"
    assert decision.session_id == "s1"
    assert decision.next_state == (user("that is wrong"),)


def test_a_request_continues_the_turn_of_the_newest_answer_that_is_known():
    matches = [answered(FIRST, ANSWER, "t1"), answered(REPLY, bot("4"), "t2")]
    later = history(*REPLY.messages, bot("4"), user("thanks"))
    assert decide(later, None, found(later, *matches)).continues == "t2"
    foreign = history(*REPLY.messages, bot("edited"), user("thanks"))
    decision = decide(foreign, None, found(foreign, *matches))
    assert (decision.parent_id, decision.continues) == (None, "t1")
    unknown = history(user("3+3?"), ANSWER, user("thanks"))
    assert decide(unknown, None, found(unknown, *matches)).continues is None


def test_a_request_whose_answer_several_turns_gave_continues_none_of_them():
    matches = [answered(FIRST, ANSWER, "t1"), answered(FIRST, ANSWER, "t2")]
    foreign = history(*REPLY.messages, bot("edited"), user("thanks"))
    assert decide(REPLY, None, found(REPLY, *matches)).continues is None
    assert decide(foreign, None, found(foreign, *matches)).continues is None


def test_another_persons_message_is_never_a_reply_without_the_history():
    other = history(user("that is wrong"))
    decision = decide(other, None, found(other, answered(FIRST, ANSWER)))
    assert decision.parent_id is None
    assert decision.session_id is None
    assert decision.next_state == ()


def test_two_people_sharing_a_key_with_equal_openings_are_ambiguous_and_not_judged():
    turns = [answered(FIRST, ANSWER, "t1", "s1"), answered(FIRST, ANSWER, "t2", "s2")]
    decision = decide(REPLY, None, found(REPLY, *turns))
    assert decision.parent_id is None
    assert decision.session_id is None, "a new session: whose it is cannot be known"
    assert decision.ambiguous == ("t1", "t2")
    assert decision.next_state == ()


def test_the_session_id_tells_equal_openings_apart():
    turns = [
        answered(FIRST, ANSWER, "t1", "s1", "alice"),
        answered(FIRST, ANSWER, "t2", "s2", "bob"),
    ]
    decision = decide(REPLY, NamedSession("bob", "s2"), found(REPLY, *turns))
    assert decision.parent_id == "t2"
    assert decision.session_id == "s2"


def test_a_session_id_alone_names_no_parent():
    edited = history(user("2+2?"), bot("four"), user("thanks"))
    decision = decide(
        edited, NamedSession("a", "s1"), found(edited, answered(FIRST, ANSWER, external="a"))
    )
    assert decision.parent_id is None
    assert decision.session_id == "s1"


def test_a_named_session_takes_no_parent_from_another_one():
    turn = answered(FIRST, ANSWER, "t1", "s1", "alice")
    decision = decide(REPLY, NamedSession("bob", "s2"), found(REPLY, turn))
    assert decision.parent_id is None
    assert decision.session_id == "s2"


def test_a_client_may_name_a_session_by_the_id_we_gave_it():
    turn = answered(FIRST, ANSWER, "t1", "derived")
    decision = decide(REPLY, NamedSession("derived", "hash"), found(REPLY, turn))
    assert decision.parent_id == "t1"
    assert decision.session_id == "derived"


def test_siblings_with_different_texts_are_told_apart_by_what_the_client_kept():
    turns = [answered(FIRST, bot("5"), "t1"), answered(FIRST, bot("4"), "t2")]
    decision = decide(REPLY, None, found(REPLY, *turns))
    assert decision.parent_id == "t1"


def test_equal_siblings_are_ambiguous_but_stay_in_their_session():
    turns = [answered(FIRST, ANSWER, "t1"), answered(FIRST, ANSWER, "t2")]
    decision = decide(REPLY, None, found(REPLY, *turns))
    assert decision.parent_id is None
    assert decision.session_id == "s1"
    assert decision.ambiguous == ("t1", "t2")


def test_a_replaced_answer_is_the_parent_only_where_there_is_no_other():
    old = answered(FIRST, ANSWER, "t1", superseded=True)
    new = answered(FIRST, ANSWER, "t2")
    assert decide(REPLY, None, found(REPLY, old, new)).parent_id == "t2"
    assert decide(REPLY, None, found(REPLY, old)).parent_id == "t1"


def test_every_message_after_the_answer_is_the_next_state_of_parallel_tool_calls():
    calls = bot("", ToolCall("a", "look", "{}"), ToolCall("b", "look", '{"x": 1}'))
    request = history(user("go"))
    reply = history(user("go"), calls, tool("error", "a"), tool("ok", "b"))
    decision = decide(reply, None, found(reply, answered(request, calls)))
    assert decision.next_state == (tool("error", "a"), tool("ok", "b"))


def test_a_repeated_request_in_a_named_session_replaces_the_earlier_one_and_judges_nothing():
    same = [SameRequest("t1", "s1", None, 0.0, open=False)]
    decision = decide(FIRST, NamedSession("a", "s1"), (), same)
    assert decision.supersedes == ("t1",)
    assert decision.parent_id is None
    assert decision.next_state == ()


def test_a_regenerated_reply_replaces_the_earlier_one_and_keeps_the_parent():
    same = [SameRequest("t2", "s1", "t1", 0.0, open=False)]
    named = NamedSession("a", "s1")
    decision = decide(REPLY, named, found(REPLY, answered(FIRST, ANSWER, external="a")), same)
    assert decision.supersedes == ("t2",)
    assert decision.parent_id == "t1"


@pytest.mark.parametrize(
    ("same", "supersedes"),
    [
        ([SameRequest("t1", "s1", None, 100.0, open=True)], ("t1",)),
        ([SameRequest("t1", "s1", None, 100.0 - RETRY_WINDOW_S - 1, open=False)], ()),
        (
            [
                SameRequest("t1", "s1", None, 99.0, open=False),
                SameRequest("t2", "s2", None, 98.0, open=False),
            ],
            (),
        ),
    ],
    ids=["one recent", "too old", "of two sessions"],
)
def test_a_marked_retry_replaces_only_what_it_can_mean(same, supersedes):
    decision = decide(FIRST, None, (), same, now=100.0)
    assert decision.supersedes == supersedes
    assert decision.session_id == ("s1" if supersedes else None)


def test_changed_system_text_changes_no_link():
    request = history(system("It is 10:00."), user("2+2?"))
    reply = history(system("It is 10:01. Hint: be kind."), user("2+2?"), ANSWER, user("no"))
    decision = decide(reply, None, found(reply, answered(request, ANSWER)))
    assert decision.parent_id == "t1"


def test_what_a_client_adds_to_its_users_words_changes_no_link_and_is_no_next_state():
    request = history(user("Run it\n\nRuntime: agent=main | host=vm | os=Linux"), user(CONTEXT))
    reply = history(user("Run it"), ANSWER, user(f"thanks\n{CONTEXT}"), user(CONTEXT))
    decision = decide(reply, None, found(reply, answered(request, ANSWER)))
    assert decision.parent_id == "t1"
    assert decision.next_state == (user("thanks"),)


def test_a_reply_of_nothing_but_client_context_is_linked_and_not_judged():
    reply = history(user("2+2?"), ANSWER, user(CONTEXT))
    decision = decide(reply, None, found(reply, answered(FIRST, ANSWER)))
    assert decision.parent_id == "t1"
    assert decision.next_state == ()


def test_new_tool_call_ids_and_reformatted_arguments_change_no_link():
    ours = bot("", ToolCall("call_1", "f", '{"a":1,"b":2}'))
    theirs = bot("", ToolCall("call1", "f", '{"b": 2, "a": 1}'))
    request = history(user("go"))
    reply = history(user("go"), theirs, tool("done", "call1"))
    assert decide(reply, None, found(reply, answered(request, ours))).parent_id == "t1"


def test_other_tool_arguments_are_another_answer():
    ours = bot("", ToolCall("c", "f", '{"a": 1}'))
    reply = history(user("go"), bot("", ToolCall("c", "f", '{"a": 2}')), tool("done"))
    assert not found(reply, answered(history(user("go")), ours))


def test_an_edited_earlier_message_breaks_the_link():
    reply = history(user("2+3?"), ANSWER, user("right"))
    assert decide(reply, None, found(reply, answered(FIRST, ANSWER))).parent_id is None


def test_an_unknown_last_answer_keeps_the_session_and_names_no_parent():
    later = history(*REPLY.messages, bot("from elsewhere"), user("and now?"))
    decision = decide(later, None, found(later, answered(FIRST, ANSWER)))
    assert decision.parent_id is None
    assert decision.session_id == "s1"
    assert decision.next_state == ()


def test_branches_of_one_conversation_have_the_same_parent():
    other = history(user("2+2?"), ANSWER, user("are you sure?"))
    turn = answered(FIRST, ANSWER)
    assert decide(REPLY, None, found(REPLY, turn)).parent_id == "t1"
    assert decide(other, None, found(other, turn)).parent_id == "t1"


def test_words_put_into_the_models_mouth_are_no_answer_that_was_replied_to():
    prefilled = history(*REPLY.messages, bot("Sorry,"))
    decision = decide(prefilled, None, found(prefilled, answered(FIRST, ANSWER)))
    assert decision.parent_id == "t1"
    assert prefilled.request_chain != REPLY.request_chain


def test_speakers_are_told_apart_by_name():
    assert history(user("hi", "ann")).request_chain != history(user("hi", "bob")).request_chain


def test_message_borders_matter():
    assert history(user("ab")).request_chain != history(user("a"), user("b")).request_chain
    assert history(user("a"), bot("b")).request_chain != history(user("ab")).request_chain


def test_a_history_of_system_text_alone_is_no_error():
    alone = history(system("x"))
    assert alone.answers == []
    assert decide(alone, None, ()).parent_id is None


def test_the_session_key_depends_on_tenant_key_and_user():
    base = session_key(Scope("t", "k", "u"), "s")
    others = [
        session_key(Scope("T", "k", "u"), "s"),
        session_key(Scope("t", "K", "u"), "s"),
        session_key(Scope("t", "k", "U"), "s"),
        session_key(Scope("t", "k", "u"), "S"),
    ]
    assert base == session_key(Scope("t", "k", "u"), "s")
    assert base not in others
    assert len(base) == 32
