"""Whole runs side by side: each goes as it would alone, and one that fails is alone with it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rejoinder.config import (
    Config,
    ExtractiveHintsConfig,
    FeedbackJudgeConfig,
    JudgeHintsConfig,
    LlmHintsConfig,
    ModelConfig,
    TorchEngineConfig,
)
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.evaluation.client import Ask
from rejoinder.evaluation.pack import pack as module
from rejoinder.evaluation.pack.pack import Pack, Work, refuse_unpackable
from rejoinder.evaluation.pack.seat import Seat
from rejoinder.evaluation.personas import job as job_module
from rejoinder.evaluation.personas.benchmark import run_benchmark
from rejoinder.evaluation.personas.persona import load_persona
from rejoinder.evaluation.personas.plan import Method, Plan
from rejoinder.evaluation.personas.records import Ended, RunRecord, read_runs, run_path
from rejoinder.evaluation.personas.run import RunSpec, run_once
from rejoinder.evaluation.personas.settings import BenchmarkSettings
from rejoinder.evaluation.personas.speakers import Scripted
from rejoinder.evaluation.progress import Snapshot
from rejoinder.models.tokenizer import ModelTokenizer

from .kit import save_chat_model, system

PERSONA = replace(load_persona("no-lists"), max_tokens=12)
SETTINGS = BenchmarkSettings(sessions=30, updates=3, heldout=3, people=2)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: ModelTokenizer) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("model"), tiny_tokenizer)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUIET_S", 0.2)
    monkeypatch.setattr(module, "_MOMENT_S", 0.005)


def test_answers_come_from_what_is_served(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = Pack([system(path, average=0.9)], updates=1)
    answering = []
    plain = module.decode

    def decode(model: Any, *rest: Any) -> Any:
        answering.append(model)
        return plain(model, *rest)

    monkeypatch.setattr(module, "decode", decode)

    async def ask(seat: Seat) -> None:
        await seat.ask([{"role": "user", "content": "Hello?"}], Ask(2, temperature=1.0))

    asyncio.run(asyncio.wait_for(pack.run([ask]), 60))
    assert answering == [pack._trainer.served]
    assert pack._trainer.served is not pack._model


class Silent:
    def show(self, snapshot: Snapshot) -> None:
        """Nobody looks."""


def benchmark(seed: int = 0, settings: BenchmarkSettings = SETTINGS) -> Work[RunRecord]:
    async def work(seat: Seat) -> RunRecord:
        spec = RunSpec("binary", (PERSONA,), seed, settings)
        return await run_once(spec, seat, seat, Scripted, Silent(), poll_s=0.01)

    return work


async def run(
    configs: Sequence[Config], works: Sequence[Work[RunRecord]], at_once: int | None = None
) -> list[object]:
    pack = Pack(configs, SETTINGS.updates, at_once)
    return list(await asyncio.wait_for(pack.run(works), 60))


def course(record: object) -> tuple[object, ...]:
    """Return what decides a run's result, figures without their last digits.

    How many are still answered between the last measurement and the farewells, a clock decides.
    """
    assert isinstance(record, RunRecord)
    measured = [
        replace(one, seconds=0, divergence=round(one.divergence or 0, 4))
        for one in record.measurements
    ]
    ended = measured[-1].sessions - SETTINGS.people
    return (record.sessions[:ended], measured, record.samples)


async def test_more_runs_than_seats_take_those_that_others_have_left(path: Path) -> None:
    configs = [system(path, batch_size=size) for size in (4, 3)]
    alone = [(await run([one], [benchmark(seed)]))[0] for seed, one in enumerate(configs)]
    found = await run(configs, [benchmark(seed) for seed in range(2)], at_once=1)
    assert [course(one) for one in found] == [course(one) for one in alone]


async def test_who_fails_leaves_its_seat_to_the_next(path: Path) -> None:
    async def fails(_: Seat) -> RunRecord:
        raise RejoinderError("it could not be")

    found = await run([system(path)] * 3, [fails, fails, benchmark()], at_once=1)
    assert [isinstance(one, RejoinderError) for one in found] == [True, True, False]


async def test_a_run_makes_its_updates_and_measures_each(path: Path) -> None:
    (record,) = await run([system(path)], [benchmark()])
    assert isinstance(record, RunRecord)
    assert record.ended is Ended.UPDATES
    assert record.updates == SETTINGS.updates, "not one more while people take their leave"
    assert record.samples == 4 * SETTINGS.updates
    assert [one.version for one in record.measurements] == [0, 1, 2, 3]
    assert [one.served_by for one in record.measurements] == [(0,), (1,), (2,), (3,)]
    first, *later = (one.divergence for one in record.measurements)
    assert first == pytest.approx(0, abs=1e-4)
    assert all(one is not None and abs(one) > 1e-3 for one in later), "it has learnt"
    assert record.failed_requests == record.no_verdicts == 0
    assert record.agreement.of == sum(one.answers for one in record.sessions)


async def test_the_same_run_goes_the_same_way_in_any_company(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against seats whose steps wait for others, and whose people talk on meanwhile."""
    monkeypatch.setattr(module, "_MOST_PUT_OFF", 2)
    config = system(path)
    (alone,) = await run([config], [benchmark(3)])
    others = [system(path, batch_size=size, seed=size) for size in (50, 60, 70)]
    company = [config, *others]
    short = replace(SETTINGS, sessions=10, heldout=1)
    among, *_ = await run(company, [benchmark(3), *(benchmark(seed, short) for seed in (4, 5, 6))])
    assert course(among) == course(alone)


async def test_the_seed_of_training_changes_what_is_sampled(path: Path) -> None:
    found = await run([system(path, seed=seed) for seed in (0, 1)], [benchmark(), benchmark()])
    assert course(found[0]) != course(found[1])


async def test_methods_that_learn_from_hints_run_beside_others(path: Path) -> None:
    hints = {"hints": ExtractiveHintsConfig()}
    configs = [
        system(path),
        *(system(path, algorithm=name).model_copy(update=hints) for name in ("combine", "opd")),
    ]
    records = await run(configs, [benchmark()] * 3)
    assert all(isinstance(one, RunRecord) for one in records)
    binary, combine, _ = map(course, records)
    assert binary != combine


async def test_the_context_is_that_of_the_configured_engine(path: Path) -> None:
    engine = TorchEngineConfig(context_length=64)
    config = system(path).model_copy(update={"engine": engine})
    (found,) = await run([config], [benchmark(settings=replace(SETTINGS, heldout=1))])
    assert "could not be measured" in str(found)
    assert "no room to answer" in str(found)


async def test_one_run_that_fails_leaves_the_others_alone(path: Path) -> None:
    async def failing(seat: Seat) -> RunRecord:
        asking = asyncio.create_task(
            seat.ask([{"role": "user", "content": "Hm?"}], Ask(4, 0.6, session="s"))
        )
        await asyncio.sleep(0)
        asking.cancel()
        raise RejoinderError("it could not be")

    config = system(path)
    failed, record = await run([config, config], [failing, benchmark()])
    assert str(failed) == "it could not be"
    assert isinstance(record, RunRecord)
    assert record.ended is Ended.UPDATES
    assert [one.version for one in record.measured] == [0, 1, 2, 3]
    assert record.failed_requests == 0


async def test_a_fault_of_the_program_ends_all_works_and_leaves_no_task(path: Path) -> None:
    async def broken(seat: Seat) -> RunRecord:
        await seat.ask([{"role": "user", "content": "Hm?"}], Ask(4, 0.6, session="s"))
        raise KeyError("a fault")

    before = asyncio.all_tasks()
    with pytest.raises(KeyError, match="a fault"):
        await run([system(path)] * 2, [broken, benchmark()])
    assert asyncio.all_tasks() == before


async def test_a_pack_that_is_cancelled_leaves_no_task(path: Path) -> None:
    before = asyncio.all_tasks()
    running = asyncio.create_task(Pack([system(path)], 2).run([benchmark()]))
    await asyncio.sleep(0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0.01)  # the run's people end after it
    assert asyncio.all_tasks() == before


async def test_a_step_waits_for_company_but_not_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against runs that starve beside others who never have enough to learn from."""
    monkeypatch.setattr(module, "_MOST_PUT_OFF", 3)
    silent = [system(path, batch_size=1000, seed=seed) for seed in (1, 2, 3)]
    talk = replace(SETTINGS, sessions=200, heldout=1)
    works = [benchmark(), *(benchmark(seed, talk) for seed in (1, 2, 3))]
    pack = Pack([system(path), *silent], SETTINGS.updates)
    running = asyncio.create_task(pack.run(works))
    first = pack._seats[0]
    while not first.left:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.01)
    assert (await first.progress()).version == SETTINGS.updates
    assert not any(seat.left for seat in pack._seats[1:])
    running.cancel()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"judge": FeedbackJudgeConfig()}, "judge.kind"),
        ({"hints": LlmHintsConfig(kind="llm")}, "hints.kind"),
        ({"hints": JudgeHintsConfig()}, "hints.kind"),
        ({"model": ModelConfig(dtype="bfloat16")}, "model.dtype"),
        ({"trainer": system(Path(), lora={"rank": 2}).trainer}, "trainer.lora"),
        (
            {"trainer": system(Path(), teacher={"weights": "engine"}).trainer},
            "trainer.teacher.weights",
        ),
    ],
)
def test_what_a_pack_would_not_follow_is_refused(changed: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        refuse_unpackable(system(Path()).model_copy(update=changed))


def test_a_judge_that_nobody_asks_may_be_of_any_kind() -> None:
    config = system(Path(), algorithm="opd").model_copy(update={"judge": FeedbackJudgeConfig()})
    refuse_unpackable(config)


def test_systems_of_a_pack_share_one_model(path: Path) -> None:
    with pytest.raises(ConfigError, match="one model"):
        Pack([system(path), system(path / "another")], 1)


def test_a_plan_of_packed_runs_writes_each_as_it_ends_and_tells_who_failed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = job_module.run_once
    first = run_path(tmp_path / "out", [PERSONA.name], "binary", 0)

    async def run_or_fail(spec: RunSpec, *args: Any, **more: Any) -> RunRecord:
        if spec.seed == 1:
            while not await asyncio.to_thread(first.exists):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            raise RejoinderError("it could not be")
        return await once(spec, *args, **more)

    monkeypatch.setattr(job_module, "run_once", run_or_fail)
    settings = replace(SETTINGS, updates=1, heldout=1)
    methods = (Method.of("binary", system(path)),)
    plan = Plan(((PERSONA,),), methods, seeds=(0, 1, 2), settings=settings, packed=2)
    shown = io.StringIO()
    found = run_benchmark(plan, tmp_path / "out", console=Console(file=shown, width=200))
    assert "packed runs are made for a GPU, and these have none" in shown.getvalue()
    assert [one["seed"] for one in found["failed_runs"]] == [1]
    assert found["results"][0]["seeds"] == [0, 2]
    records = read_runs(tmp_path / "out")
    assert [one.updates for one in records] == [1, 1]
    assert all(one.settings["packed"] is True for one in records)
    assert not list(tmp_path.glob("out/*.cut.json"))
