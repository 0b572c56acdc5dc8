from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rejoinder.journal.columns import encode_ids
from rejoinder.journal.memory import MAX_DEPTH, NOTHING, Remembered, Shared, TurnMemory
from rejoinder.types import Message

HELLO = Message("user", "hello")
ANSWER = Message("assistant", "hi")
MORE = Message("user", "more")


def remembering(
    prompt: list[int], answer: list[int], depth: int = 0, memory: TurnMemory | None = None
) -> TurnMemory:
    memory = memory or TurnMemory()
    memory.put("parent", Remembered("session", depth, encode_ids(prompt), [HELLO]))
    memory.finish("parent", encode_ids(answer), ANSWER)
    return memory


def shared(memory: TurnMemory, ids: list[int], session: str = "session") -> Shared:
    return memory.shared("parent", session, encode_ids(ids), [HELLO, ANSWER, MORE])


def test_a_child_shares_prompt_and_answer_of_its_parent() -> None:
    found = shared(remembering([1, 2, 3], [4, 5]), [1, 2, 3, 4, 5, 6])
    assert found == Shared("parent", 1, 5, 2)


def test_an_answer_rendered_otherwise_is_shared_up_to_the_difference() -> None:
    assert shared(remembering([1, 2, 3], [4, 5]), [1, 2, 3, 4, 9, 6]).ids == 4
    assert shared(remembering([1, 2, 3], [4, 5]), [1, 2, 300, 4]).ids == 2


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_shared_ids_are_the_longest_common_prefix(
    prompt: list[int], answer: list[int], ids: list[int]
) -> None:
    history = prompt + answer
    expected = 0
    while expected < min(len(history), len(ids)) and history[expected] == ids[expected]:
        expected += 1
    assert shared(remembering(prompt, answer), ids).ids == expected


def test_changed_messages_are_stored_anew() -> None:
    memory = remembering([1], [2])
    edited = [Message("user", "hello!"), ANSWER, MORE]
    assert memory.shared("parent", "session", encode_ids([1, 2]), edited).messages == 0
    other = [HELLO, Message("assistant", "hi!"), MORE]
    assert memory.shared("parent", "session", encode_ids([1, 2]), other).messages == 1


def test_nothing_is_shared_across_sessions_or_with_an_unfinished_parent() -> None:
    memory = remembering([1], [2])
    assert shared(memory, [1, 2], session="other") == NOTHING
    memory.put("parent", Remembered("session", 0, encode_ids([1]), [HELLO]))
    assert shared(memory, [1, 2]) == NOTHING


def test_a_forgotten_parent_shares_nothing() -> None:
    memory = remembering([1], [2])
    memory.forget("parent")
    assert shared(memory, [1, 2]) == NOTHING


def test_a_chain_is_never_deeper_than_the_bound() -> None:
    assert shared(remembering([1], [2], MAX_DEPTH - 2), [1]).depth == MAX_DEPTH - 1
    assert shared(remembering([1], [2], MAX_DEPTH - 1), [1]) == NOTHING


def test_the_oldest_turns_are_forgotten_beyond_the_bounds() -> None:
    few = remembering([1], [2], memory=TurnMemory(max_turns=2))
    few.put("a", Remembered("session", 0, b"", []))
    assert shared(few, [1]) != NOTHING
    few.put("b", Remembered("session", 0, b"", []))
    assert shared(few, [1]) == NOTHING
    small = remembering([1], [2], memory=TurnMemory(max_bytes=5000))
    small.put("a", Remembered("session", 0, bytes(4800), []))
    assert shared(small, [1]) == NOTHING
