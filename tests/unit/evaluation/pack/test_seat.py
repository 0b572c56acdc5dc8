"""A seat asks, judges and learns by the rules of the roles that it stands for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from rejoinder.algorithms import build_algorithm
from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.config import Config, GatewayConfig
from rejoinder.engine.base import ScoreRequest, ScoreResult
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.client import Ask, Reply, RequestFailed
from rejoinder.evaluation.pack.decoding import Sampled
from rejoinder.evaluation.pack.seat import Parts, Seat
from rejoinder.evaluation.watch import Progress
from rejoinder.judge.hints.extractive import ExtractiveHintJudge
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Fate, Judgement, Message, TurnType
from splicing_kit import tokenizer as splicing_tokenizer

from .kit import system

MAIN = Ask(max_tokens=8, temperature=0.6, session="s")
FAREWELL = Ask(max_tokens=8, temperature=0.6, session="s", done=True)


class FakeJudge:
    """Says what it is told to, when it is told to."""

    fingerprint = "fake"

    def __init__(self) -> None:
        self.score: int | None = 1
        self.asked: list[tuple[tuple[Message, ...], str, tuple[Message, ...]]] = []
        self.gates: list[asyncio.Event] = []
        self.waits = False

    async def judge(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Judgement:
        self.asked.append((tuple(context), answer.content, tuple(next_state)))
        if self.waits:
            self.gates.append(asyncio.Event())
            await self.gates[-1].wait()
        why = Fate.JUDGE_UNSURE if self.score is None else None
        return Judgement(self.score, (), "fake", why)

    async def check(self) -> None:
        """Nothing to try."""

    async def close(self) -> None:
        """Nothing to release."""


class FakeEngine:
    """Finds every id equally likely."""

    async def score(self, request: ScoreRequest) -> ScoreResult:
        return ScoreResult([-2.0] * (len(request.ids) - request.start), 0)


class Room:
    """A seat with all that it needs."""

    def __init__(self, tokenizer: ModelTokenizer, config: Config, updates: int = 9) -> None:
        self.judge = FakeJudge()
        self.tasks: list[asyncio.Task[None]] = []
        self.tokenizer = tokenizer
        self.renderer = ChatTemplateRenderer(tokenizer)
        algorithm = build_algorithm(config.trainer)
        parts = Parts(
            config=config,
            algorithm=algorithm,
            judge=self.judge if algorithm.needs_verdicts else None,
            hints=ExtractiveHintJudge() if config.trainer.algorithm != "binary" else None,
            hinted=None,
            renderer=self.renderer,
            tokenizer=tokenizer,
            engine=FakeEngine(),  # type: ignore[arg-type]
            context_length=tokenizer.context_length,
            updates=updates,
        )
        self.seat = Seat(parts, self.tasks.append)

    async def ask(self, said: Sequence[str], ask: Ask, answer: str | list[int] = "Yes.") -> Reply:
        """Say something, people and model by turns, and get an answer."""
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(said)]
        asking = asyncio.create_task(self.seat.ask(messages, ask))
        await asyncio.sleep(0)
        for one in self.seat.take_waiting():
            ids = self.tokenizer.encode(answer) if isinstance(answer, str) else answer
            one.future.set_result(Sampled(ids, [-1.0] * len(ids), ended=False))
        return await asking

    async def settle(self) -> None:
        """Let all judgements end that can."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def learn(self, session: str, answer: str = "Yes.") -> None:
        """Hold a session of one answer, and judge it."""
        ask, farewell = (Ask(8, 0.6, session=session, done=done) for done in (False, True))
        await self.ask(["Hm?"], ask, answer)
        await self.ask(["Hm?", answer, "Well."], farewell)
        await self.settle()


@pytest.fixture
def config() -> Config:
    return system(Path("model"), batch_size=2, max_staleness=1)


@pytest.fixture
def room(tiny_tokenizer: ModelTokenizer, config: Config) -> Room:
    return Room(tiny_tokenizer, config)


async def ready(seat: Seat) -> int:
    return (await seat.progress()).ready


async def test_a_turn_is_judged_by_what_comes_after_it_and_becomes_a_sample(room: Room) -> None:
    reply = await room.ask(["Hm?"], MAIN, "Yes.")
    assert not room.judge.asked
    await room.ask(["Hm?", "Yes.", "Right."], FAREWELL)
    await room.settle()
    (judged,) = room.judge.asked
    assert judged == ((Message("user", "Hm?"),), "Yes.", (Message("user", "Right."),))
    assert await room.seat.judged() == {reply.completion_id: 1}
    assert await ready(room.seat) == 1, "nothing came after the answer to the farewell"


async def test_a_farewell_asks_for_no_answer(room: Room) -> None:
    await room.ask(["Hm?"], MAIN, "Yes.")
    said = [{"role": "user", "content": "Hm?"}]
    asking = asyncio.create_task(room.seat.ask(said, FAREWELL))
    await asyncio.sleep(0)
    (waiting,) = room.seat.take_waiting()
    assert waiting.request is None
    waiting.future.set_result(Sampled([], [], ended=True))
    reply = await asking
    assert (reply.text, reply.finish_reason) == ("", "stop")


async def test_samples_have_the_exact_ids_and_logprobs_of_their_turns(room: Room) -> None:
    await room.learn("one", "Yes.")
    await room.learn("two", "No, never.")
    turns = room.seat.take()
    prompt = room.renderer.render([Message("user", "Hm?")]).ids()
    assert [turn.prompt_ids for turn in turns] == [prompt] * 2
    answers = [room.tokenizer.encode(text) for text in ("Yes.", "No, never.")]
    assert [turn.answer_ids for turn in turns] == answers
    assert turns[1].behaviour == [-1.0] * len(answers[1])
    assert {turn.temperature for turn in turns} == {0.6}
    assert all(turn.is_current for turn in turns)
    assert await room.seat.progress() == Progress(0, 2, 0)


async def test_a_prompt_has_the_answer_before_it_as_it_was_sampled(config: Config) -> None:
    room = Room(splicing_tokenizer("qwen"), config)
    letters = [id_ for char in "ab ab" for id_ in room.tokenizer.encode(char)]
    assert letters != room.tokenizer.encode("ab ab")
    await room.ask(["Hm?"], MAIN, letters)
    await room.ask(["Hm?", "ab ab", "Right."], MAIN)
    await room.ask(["Hm?", "ab ab", "Right.", "Yes.", "Well."], FAREWELL)
    await room.settle()
    first, second = room.seat.take()
    known = [*first.prompt_ids, *letters]
    assert second.prompt_ids[: len(known)] == known


@pytest.mark.parametrize("score", [0, None])
async def test_without_a_clear_verdict_there_is_no_sample(room: Room, score: int | None) -> None:
    room.judge.score = score
    await room.learn("one")
    assert await ready(room.seat) == 0
    assert list((await room.seat.judged()).values()) == [score]


async def test_side_turns_and_turns_without_a_session_are_never_judged(room: Room) -> None:
    for ask in (Ask(8, 0.6), Ask(8, 0.6, session="s", turn_type=TurnType.SIDE)):
        await room.ask(["Hm?"], ask)
        await room.ask(["Hm?", "Yes.", "Right."], ask)
    assert not room.tasks


async def test_a_hint_makes_a_sample_of_a_turn_without_a_clear_verdict(
    tiny_tokenizer: ModelTokenizer,
) -> None:
    room = Room(tiny_tokenizer, system(Path("model"), algorithm="combine"))
    room.judge.score = None
    await room.ask(["Hm?"], MAIN)
    await room.ask(["Hm?", "Yes.", "Please answer without lists."], FAREWELL)
    await asyncio.gather(*room.tasks)
    assert await ready(room.seat) == 1


async def test_where_hints_alone_teach_no_verdict_is_asked_for(
    tiny_tokenizer: ModelTokenizer,
) -> None:
    room = Room(tiny_tokenizer, system(Path("model"), algorithm="opd"))
    await room.ask(["Hm?"], MAIN)
    await room.ask(["Hm?", "Yes.", "Please answer without lists."], FAREWELL)
    await asyncio.gather(*room.tasks)
    assert not room.judge.asked
    assert await room.seat.judged() == {}
    assert await ready(room.seat) == 1


async def test_samples_train_in_the_order_of_their_answers(room: Room) -> None:
    """Guards against batches that depend on which judgement happens to end first."""
    room.judge.waits = True
    for answer in ("Yes.", "No."):
        await room.learn(answer, answer)
    for gate in reversed(room.judge.gates):
        gate.set()
        await room.settle()
    first = room.seat.take()[0]
    assert first.answer_ids == room.tokenizer.encode("Yes.")


async def test_a_sample_that_lags_too_far_behind_is_forgotten(room: Room) -> None:
    for session in "abc":
        await room.learn(session)
    room.seat.take()
    room.seat.advance(moved=True)
    assert await room.seat.progress() == Progress(1, 2, 1)
    room.seat.advance(moved=False)
    assert await ready(room.seat) == 1, "nothing has changed"
    room.seat.advance(moved=True)
    assert await ready(room.seat) == 0, "max_staleness is 1"


async def test_a_sample_longer_than_the_trainer_takes_is_none(
    tiny_tokenizer: ModelTokenizer,
) -> None:
    room = Room(tiny_tokenizer, system(Path("model"), max_sample_tokens=60))
    await room.learn("short")
    await room.learn("long", "y" * 60)
    assert await ready(room.seat) == 1


async def test_a_step_is_due_only_while_somebody_learns(
    tiny_tokenizer: ModelTokenizer, config: Config
) -> None:
    room = Room(tiny_tokenizer, config, updates=1)
    seat = room.seat
    await room.learn("a")
    assert not seat.is_due
    await room.learn("b")
    assert seat.is_due
    async with seat.serving(0) as model:
        assert model == "default@0"
        assert not seat.is_due, "the version that is measured stays"
    assert seat.is_due
    seat.take()
    seat.advance(moved=True)
    for session in "cd":
        await room.learn(session)
    assert not seat.is_due, "no more updates than were asked for"
    seat.leave()
    assert not seat.is_due


async def test_a_version_that_is_gone_ends_the_run_that_wants_it(room: Room) -> None:
    room.seat.advance(moved=True)
    with pytest.raises(RejoinderError, match="version 0 is gone"):
        async with room.seat.serving(0):
            pass


async def test_an_answer_has_the_room_that_the_context_leaves(room: Room) -> None:
    long = "x" * (room.tokenizer.context_length - 60)
    asking = asyncio.create_task(
        room.seat.ask([{"role": "user", "content": long}], Ask(1000, 0.6, session="s"))
    )
    await asyncio.sleep(0)
    (waiting,) = room.seat.take_waiting()
    whole = len(waiting.request.prompt) + waiting.request.max_tokens
    assert whole == room.tokenizer.context_length
    asking.cancel()


async def test_a_prompt_that_fills_the_context_fails_and_is_counted(room: Room) -> None:
    with pytest.raises(RequestFailed, match="no room"):
        await room.ask(["x" * room.tokenizer.context_length], MAIN)
    assert len(room.seat.failures) == room.seat.requests == 1
    assert not room.seat.waiting


async def test_the_operators_temperature_is_that_of_main_turns_alone(
    tiny_tokenizer: ModelTokenizer, config: Config
) -> None:
    gateway = GatewayConfig(main_temperature=0.9)
    room = Room(tiny_tokenizer, config.model_copy(update={"gateway": gateway}))
    for turn_type, expected in ((TurnType.MAIN, 0.9), (TurnType.SIDE, 0.6)):
        asking = asyncio.create_task(
            room.seat.ask([{"role": "user", "content": "Hm?"}], Ask(8, 0.6, turn_type=turn_type))
        )
        await asyncio.sleep(0)
        assert room.seat.take_waiting()[0].request.temperature == expected
        asking.cancel()


async def test_requests_without_a_seed_get_one_of_the_runs_own(
    tiny_tokenizer: ModelTokenizer,
) -> None:
    async def seeds(of_run: int, asked: int | None) -> list[int]:
        seat = Room(tiny_tokenizer, system(Path("model"), seed=of_run)).seat
        messages = [{"role": "user", "content": "Hm?"}]
        asking = [asyncio.create_task(seat.ask(messages, Ask(8, 0.6, asked))) for _ in range(2)]
        await asyncio.sleep(0)
        found = [one.request.seed for one in seat.take_waiting()]
        for task in asking:
            task.cancel()
        return found

    assert len({*await seeds(0, None), *await seeds(1, None)}) == 4
    assert await seeds(1, None) == await seeds(1, None)
    assert await seeds(1, 7) == [7, 7]


async def test_divergence_is_that_of_the_named_answers_and_forgets_them(room: Room) -> None:
    replies = [await room.ask(["Hm?"], MAIN) for _ in range(3)]
    named = [reply.completion_id for reply in replies]
    assert await room.seat.divergence(named, 0.6) == pytest.approx(1.0)
    with pytest.raises(KeyError):
        await room.seat.divergence(named, 0.6)
    assert await room.seat.divergence([], 0.6) is None


async def fall(room: Room, answers: int = 4) -> None:
    """Three steps whose answers please, and two of which none does."""
    for number in range(5 * answers):
        room.judge.score = 1 if number < 3 * answers else -1
        await room.learn(str(number))
        if number % answers == answers - 1:
            room.seat.take()
            room.seat.advance(moved=True)
    assert room.seat.version == 5


async def test_a_seat_whose_answers_please_far_less_goes_back(
    tiny_tokenizer: ModelTokenizer,
) -> None:
    room = Room(tiny_tokenizer, system(Path("model"), batch_size=4, max_staleness=4))
    await room.ask(["Hm?"], Ask(8, 0.6, session="old"))
    await fall(room)
    await room.ask(["Hm?"], Ask(8, 0.6, session="late"))
    await room.learn("waits")
    found = room.seat.relapse()
    assert found is not None
    assert found.version == 2
    assert {2, 4, 5} <= room.seat.held
    room.seat.go_back(2)
    assert room.seat.version == 6
    assert await room.seat.progress() == Progress(6, 20, 0, rollbacks=1)
    assert room.seat.relapse() is None
    for session in ("late", "old"):
        await room.ask(["Hm?", "Yes.", "Well."], Ask(8, 0.6, session=session, done=True))
    await room.settle()
    assert await ready(room.seat) == 1, "what was answered before the fall may train"
    await room.learn("new")
    assert await ready(room.seat) == 2


@pytest.mark.parametrize(("updates", "wanted"), [(9, False), (5, True)])
async def test_a_seat_stays_where_it_is_told_to_and_after_its_last_update(
    tiny_tokenizer: ModelTokenizer, updates: int, *, wanted: bool
) -> None:
    config = system(Path("model"), batch_size=4, max_staleness=4, auto_rollback=wanted)
    room = Room(tiny_tokenizer, config, updates)
    await fall(room)
    assert room.seat.may_go_back == wanted
    assert (room.seat.relapse() is None) == wanted
