"""Measuring on held-out questions: comparable before and after, and never trained on."""

from __future__ import annotations

from fake_gateway import FakeGateway
from rejoinder.evaluation.client import ChatClient
from rejoinder.evaluation.measure import Measurement, heldout_questions, measure
from rejoinder.evaluation.questions import Split, load_questions
from rejoinder.evaluation.rules import Flaw
from rejoinder.evaluation.settings import DemoSettings

QUESTIONS = heldout_questions(6, seed=1)


async def ask(gateway: FakeGateway, version: int) -> tuple[Measurement, ChatClient]:
    async with ChatClient(gateway.url) as client:
        found = await measure(client, "default", version, QUESTIONS, DemoSettings(), seed=4)
    return found, client


def test_heldout_questions_are_a_seeded_sample_of_the_heldout_set() -> None:
    heldout = load_questions(Split.HELDOUT)
    assert heldout_questions(48, 1) == heldout_questions(48, 1)
    assert heldout_questions(48, 1) != heldout_questions(48, 2)
    assert set(heldout_questions(48, 1)) <= set(heldout)
    assert len(heldout_questions(10_000, 1)) == len(heldout)


async def test_every_question_is_a_side_turn_of_the_pinned_version(gateway: FakeGateway) -> None:
    found, _ = await ask(gateway, version=3)
    assert found.satisfied.of == len(QUESTIONS)
    assert {asked.body["model"] for asked in gateway.asked} == {"default@3"}
    assert {asked.headers["X-Turn-Type"] for asked in gateway.asked} == {"side"}
    roles = {tuple(message["role"] for message in one.body["messages"]) for one in gateway.asked}
    assert roles == {("user",)}, "the same as in a conversation, without a system prompt"


async def test_versions_get_the_same_words_and_seeds(gateway: FakeGateway) -> None:
    await ask(gateway, version=0)
    await ask(gateway, version=9)

    def key(index: int) -> set[tuple[int, str]]:
        part = gateway.asked[index * len(QUESTIONS) : (index + 1) * len(QUESTIONS)]
        return {(asked.body["seed"], asked.last) for asked in part}

    assert key(0) == key(1)
    assert len(key(0)) == len(QUESTIONS)


async def test_the_answers_stay_in_the_order_of_the_questions(gateway: FakeGateway) -> None:
    found, _ = await ask(gateway, version=0)
    assert [exchange.question for exchange in found.exchanges] == QUESTIONS


async def test_flaws_are_counted(gateway: FakeGateway) -> None:
    gateway.answer = lambda _: "**No.**"
    found, _ = await ask(gateway, version=0)
    assert found.satisfied.hits == 0
    assert found.flaws[Flaw.BOLD] == len(QUESTIONS)


async def test_failed_requests_satisfy_nobody_and_are_counted_by_the_client(
    gateway: FakeGateway,
) -> None:
    gateway.status = 500
    found, client = await ask(gateway, version=0)
    assert (found.satisfied.hits, found.satisfied.of) == (0, len(QUESTIONS))
    assert len(client.failures) == len(QUESTIONS)
