"""People in conversation: what they send, when they go on, and how they stop."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from fake_gateway import Asked, FakeGateway
from rejoinder.evaluation.client import ChatClient
from rejoinder.evaluation.questions import Split, load_questions
from rejoinder.evaluation.sessions import Crowd
from rejoinder.evaluation.settings import DemoSettings

QUESTIONS = load_questions(Split.TRAINING)
SETTINGS = DemoSettings(people=3, questions_per_session=(0.3, 0.3, 0.4))


async def talk_until(gateway: FakeGateway, count: int, settings: DemoSettings = SETTINGS) -> Crowd:
    """Let a crowd talk until it has had ``count`` answers, then stop it."""
    async with ChatClient(gateway.url) as client:

        async def stop_in_time() -> None:
            if len(crowd.exchanges) >= count:
                crowd.stop()

        crowd = Crowd(client, QUESTIONS, settings, seed=5, ready=stop_in_time)
        await asyncio.wait_for(crowd.talk(), 30)
        assert not client.failures
    return crowd


def by_session(gateway: FakeGateway) -> dict[str, list[Asked]]:
    sessions: dict[str, list[Asked]] = defaultdict(list)
    for asked in gateway.asked:
        sessions[asked.headers["X-Session-Id"]].append(asked)
    return sessions


async def test_every_session_grows_message_by_message_and_ends_with_the_last_reaction(
    gateway: FakeGateway,
) -> None:
    await talk_until(gateway, 40)
    for session in by_session(gateway).values():
        for earlier, later in pairwise(session):
            messages = later.body["messages"]
            assert messages[: len(messages) - 2] == earlier.body["messages"]
            assert messages[-2]["role"] == "assistant"
        *questions, farewell = session
        assert {asked.headers["X-Turn-Type"] for asked in questions} == {"main"}
        assert farewell.headers["X-Turn-Type"] == "main", "only a main turn brings a next state"
        assert farewell.headers["X-Session-Done"] == "1"
        assert farewell.body["max_tokens"] < 16


async def test_the_next_question_comes_in_the_same_message_as_the_reaction(
    gateway: FakeGateway,
) -> None:
    crowd = await talk_until(gateway, 40)
    asked = {exchange.question.text for exchange in crowd.exchanges}
    later = [s[1].last for s in by_session(gateway).values() if len(s) > 2]
    assert later
    for message in later:
        assert any(question in message for question in asked)
        assert not any(message.startswith(question) for question in asked)


async def test_a_wish_is_said_with_the_first_question_of_a_conversation(
    gateway: FakeGateway,
) -> None:
    await talk_until(gateway, 40, replace(SETTINGS, wishes=("Be brief.",)))
    for session in by_session(gateway).values():
        first, *later = (asked.last for asked in session)
        assert first.endswith(" Be brief.")
        assert not any("Be brief." in message for message in later)


async def test_sessions_have_one_to_three_questions(gateway: FakeGateway) -> None:
    await talk_until(gateway, 60)
    assert {len(session) - 1 for session in by_session(gateway).values()} == {1, 2, 3}


async def test_every_answer_is_judged_by_the_rule_and_only_words_are_sent(
    gateway: FakeGateway,
) -> None:
    gateway.answer = lambda _: "1. Eat\n2. Sleep"
    crowd = await talk_until(gateway, 20)
    assert not any(exchange.assessment.passes for exchange in crowd.exchanges)
    for asked in gateway.asked:
        assert "list" not in asked.headers.values()
        assert set(asked.body) <= {
            "messages", "max_tokens", "temperature", "stream", "stream_options",
        }  # fmt: skip


async def test_several_people_talk_at_once(gateway: FakeGateway) -> None:
    waiting = 0
    most = 0

    async def count_waiting() -> None:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(0.01)
        waiting -= 1

    async with ChatClient(gateway.url) as client:
        crowd = Crowd(client, QUESTIONS, SETTINGS, seed=5, ready=count_waiting)
        talking = asyncio.create_task(crowd.talk())
        await asyncio.sleep(0.1)
        crowd.stop()
        await talking
    assert most == SETTINGS.people


async def test_a_stopped_crowd_still_reacts_to_the_answer_it_waited_for(
    gateway: FakeGateway,
) -> None:
    crowd = await talk_until(gateway, 1, replace(SETTINGS, people=1))
    sessions = by_session(gateway)
    assert len(crowd.exchanges) == sum(len(session) - 1 for session in sessions.values())


async def test_the_same_seed_asks_the_same_questions(gateway: FakeGateway) -> None:
    one_person = replace(SETTINGS, people=1)
    first = [e.question for e in (await talk_until(gateway, 10, one_person)).exchanges]
    second = [e.question for e in (await talk_until(gateway, 10, one_person)).exchanges]
    shared = min(len(first), len(second))
    assert first[:shared] == second[:shared]
