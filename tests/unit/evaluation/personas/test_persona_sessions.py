"""Sessions of simulated people: until content or out of turns, and only words are sent."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from fake_gateway import Asked, FakeGateway
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.client import ChatClient
from rejoinder.evaluation.personas.persona import Persona, load_persona
from rejoinder.evaluation.personas.sessions import Population
from rejoinder.evaluation.personas.settings import BenchmarkSettings
from rejoinder.evaluation.personas.speakers import Scripted

from .kit import on_topic

PERSONA = replace(load_persona("no-lists"), turns=3)
SETTINGS = BenchmarkSettings(sessions=12, people=3)


async def never_wait() -> None:
    """Let people talk."""


async def talk(
    gateway: FakeGateway,
    settings: BenchmarkSettings = SETTINGS,
    personas: tuple[Persona, ...] = (PERSONA,),
    seed: int = 5,
) -> Population:
    async with ChatClient(gateway.url) as client:
        population = Population(client, personas, Scripted, settings, seed, never_wait)
        await asyncio.wait_for(population.talk(), 30)
        return population


def by_session(gateway: FakeGateway) -> list[list[Asked]]:
    sessions: dict[str, list[Asked]] = defaultdict(list)
    for asked in gateway.asked:
        sessions[asked.headers["X-Session-Id"]].append(asked)
    return list(sessions.values())


def first_of(asked: Asked) -> str:
    text: str = asked.body["messages"][0]["content"]
    return text


def listed(_: Asked) -> str:
    return "1. Eat\n2. Sleep"


async def test_a_content_person_says_so_and_leaves_after_one_answer(gateway: FakeGateway) -> None:
    gateway.answer = lambda asked: on_topic(first_of(asked))
    population = await talk(gateway)
    assert [record.number for record in population.records] == list(range(1, 13))
    content = [record for record in population.records if record.content]
    assert len(content) > 6, "the script suits nearly all questions"
    assert all((record.answers, record.faults) == (1, ()) for record in content)
    assert all(record.passes for record in content)


async def test_a_person_who_is_never_content_leaves_after_the_last_turn(
    gateway: FakeGateway,
) -> None:
    gateway.answer = listed
    population = await talk(gateway)
    for record in population.records:
        assert "list" in record.faults
        assert (record.answers, record.content) == (3, False)
    for *answers, farewell in by_session(gateway):
        assert len(answers) == 3
        assert "X-Session-Done" not in answers[-1].headers
        assert farewell.headers["X-Session-Done"] == "1"
        assert [len(one.body["messages"]) for one in (*answers, farewell)] == [1, 3, 5, 7]


@pytest.mark.parametrize("answers", [1, 2, 5])
async def test_a_run_may_say_after_how_many_answers_people_leave(
    gateway: FakeGateway, answers: int
) -> None:
    gateway.answer = listed
    population = await talk(gateway, replace(SETTINGS, answers=answers))
    assert {record.answers for record in population.records} == {answers}
    assert {len(session) - 1 for session in by_session(gateway)} == {answers}


async def test_an_answer_that_follows_the_reaction_ends_the_session(gateway: FakeGateway) -> None:
    def mend(asked: Asked) -> str:
        if len(asked.body["messages"]) == 1:
            return listed(asked)
        return on_topic(first_of(asked))

    gateway.answer = mend
    population = await talk(gateway)
    mended = [record for record in population.records if record.content]
    assert len(mended) > 6
    assert {record.answers for record in mended} == {2}
    assert not any(record.passes for record in population.records), "the first answer counts"


async def test_a_session_tells_nothing_of_its_persona_but_in_words(gateway: FakeGateway) -> None:
    gateway.answer = listed
    await talk(gateway, personas=(PERSONA, load_persona("greeting")))
    for asked in gateway.asked:
        assert not any("greet" in value or "lists" in value for value in asked.headers.values())
        assert asked.headers["X-Turn-Type"] == "main"
        assert set(asked.body) <= {
            "messages", "max_tokens", "temperature", "stream", "stream_options",
        }  # fmt: skip


async def test_in_a_joint_run_every_persona_comes_equally_often(gateway: FakeGateway) -> None:
    personas = (PERSONA, load_persona("greeting"), load_persona("student"))
    population = await talk(gateway, personas=personas)
    assert set(Counter(record.persona for record in population.records).values()) == {4}


async def test_word_problems_are_checked_for_their_number(gateway: FakeGateway) -> None:
    gateway.answer = lambda _: "The answer is 36."
    personas = (load_persona("student"),)
    population = await talk(gateway, replace(SETTINGS, sessions=100), personas)
    right = {record.task: record.right for record in population.records}
    assert set(right.values()) == {True, False}
    assert right["A ticket for the zoo costs 9 dollars. How much do four tickets cost?"]


async def test_the_same_seed_brings_the_same_people_tasks_and_words(gateway: FakeGateway) -> None:
    gateway.answer = listed
    personas = (PERSONA, load_persona("greeting"))

    async def story(seed: int) -> set[str]:
        gateway.asked.clear()
        await talk(gateway, personas=personas, seed=seed)
        return {session[-1].last for session in by_session(gateway)}

    assert await story(1) == await story(1)
    assert await story(1) != await story(2)


async def test_the_version_that_answered_is_kept(gateway: FakeGateway) -> None:
    gateway.version = 7
    population = await talk(gateway)
    assert {record.version for record in population.records} == {7}


async def test_stopped_people_still_send_their_last_reaction(gateway: FakeGateway) -> None:
    gateway.answer = listed
    async with ChatClient(gateway.url) as client:

        async def stop_in_time() -> None:
            if len(population.attempts) >= 4:
                population.stop()

        population = Population(client, (PERSONA,), Scripted, SETTINGS, 1, stop_in_time)
        await asyncio.wait_for(population.talk(), 30)
    assert population.begun < SETTINGS.sessions
    assert all(session[-1].headers.get("X-Session-Done") for session in by_session(gateway))
    assert len(population.attempts) == sum(len(one) - 1 for one in by_session(gateway))


async def test_a_lost_session_is_begun_again(gateway: FakeGateway) -> None:
    def break_twice(asked: Asked) -> str:
        if len(gateway.asked) <= 2:
            raise ConnectionResetError
        return listed(asked)

    gateway.answer = break_twice
    population = await talk(gateway, replace(SETTINGS, sessions=4, people=2))
    assert population.lost == 2
    assert [record.number for record in population.records] == [1, 2, 3, 4]
    assert population.begun == 4


async def test_nobody_goes_on_for_ever_while_nothing_is_answered(gateway: FakeGateway) -> None:
    gateway.status = 500
    async with ChatClient(gateway.url) as client:
        population = Population(client, (PERSONA,), Scripted, SETTINGS, 1, never_wait, 0.0)
        with pytest.raises(RejoinderError, match=r"no request was answered .*status 500"):
            await asyncio.wait_for(population.talk(), 30)
    assert population.records == []
