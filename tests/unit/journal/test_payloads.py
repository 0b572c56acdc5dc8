from __future__ import annotations

import random

from journal_story import Story, assistant, finishing, opening, user

from rejoinder.journal.memory import MAX_DEPTH
from rejoinder.types import Message, VersionRun, new_id


def converse(story: Story, count: int, system: bool = False) -> list[tuple[str, list, list]]:
    """A session of ``count`` turns; returns (turn id, prompt ids, messages) of each."""
    rng = random.Random(count)
    session, parent = new_id(), None
    ids: list[int] = [1]
    history: list[Message] = []
    told = []
    for number in range(count):
        history = [*history, user(f"question {number} " + "x" * (600 * (number % 2)))]
        ids = [*ids, *(rng.randrange(50_000) for _ in range(20))]
        leading = [Message("system", f"The time is {number}.")] if system else []
        turn = opening(
            session_id=session,
            parent_id=parent,
            messages=[*leading, *history],
            prompt_ids=list(ids),
        )
        answer = [rng.randrange(50_000) for _ in range(3)]
        story.journal.open_turn(turn)
        reply = assistant(f"answer {number}")
        story.journal.finish_turn(
            finishing(turn, answer_ids=answer, message=reply, versions=[VersionRun(0, 3)])
        )
        told.append((turn.turn_id, list(ids), [*leading, *history]))
        parent = turn.turn_id
        ids = ids + answer
        history = [*history, reply]
    story.journal.flush()
    return told


def test_every_turn_of_a_long_session_reads_back_exactly(story: Story) -> None:
    for turn_id, ids, messages in converse(story, MAX_DEPTH + 10):
        request = story.journal.read_request(turn_id)
        assert request.prompt_ids == ids
        assert list(request.messages) == messages


def test_prompts_of_a_session_are_stored_as_what_is_new(story: Story) -> None:
    converse(story, 40)
    (most,) = story.rows("SELECT MAX(LENGTH(suffix_ids)) FROM prompts WHERE base_id IS NOT NULL")[0]
    assert most == 4 * 20
    (deepest,) = story.rows("SELECT MAX(depth) FROM prompts")[0]
    assert deepest == 39


def test_a_chain_of_prompts_starts_anew_at_the_depth_bound(story: Story) -> None:
    converse(story, MAX_DEPTH + 10)
    assert story.rows("SELECT MAX(depth) FROM prompts") == [(MAX_DEPTH - 1,)]
    assert story.rows("SELECT COUNT(*) FROM prompts WHERE base_id IS NULL") == [(2,)]


def test_a_system_text_that_changes_leaves_the_other_messages_shared(story: Story) -> None:
    told = converse(story, 10, system=True)
    for turn_id, _, messages in told:
        assert list(story.journal.read_request(turn_id).messages) == messages
    (most,) = story.rows("SELECT MAX(shared_messages) FROM prompts")[0]
    assert most == 18


def test_siblings_store_their_long_prompt_once(story: Story) -> None:
    session = new_id()
    for choice in range(4):
        story.answer(session_id=session, choice=choice, prompt_ids=range(5000))
    (size,) = story.rows("SELECT SUM(LENGTH(data)) FROM contents")[0]
    assert size == 4 * 5000


def test_a_process_that_remembers_nothing_stores_prompts_in_full(url: str) -> None:
    from rejoinder.journal.sql import SqlJournal

    with SqlJournal(url) as journal:
        story = Story(journal)
        turn = story.answer(prompt_ids=[1, 2, 3])
    with SqlJournal(url) as journal:
        story = Story(journal)
        child = story.answer(
            session_id=turn.session_id,
            parent_id=turn.turn_id,
            prompt_ids=[1, 2, 3, 7, 8, 9, 4],
        )
        assert journal.read_request(child.turn_id).prompt_ids == [1, 2, 3, 7, 8, 9, 4]
        assert story.rows("SELECT COUNT(*) FROM prompts WHERE base_id IS NOT NULL") == [(0,)]
