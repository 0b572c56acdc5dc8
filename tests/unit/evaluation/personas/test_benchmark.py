"""A plan of runs: refused early, never made twice, and told in a table, a figure and JSON."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from rich.console import Console

from fake_gateway import FakeGateway
from rejoinder.config import Config, LikelihoodJudgeConfig, LossConfig, TrainerConfig
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.evaluation.personas.benchmark import Endpoint, Plan, run_benchmark
from rejoinder.evaluation.personas.persona import load_persona
from rejoinder.evaluation.personas.records import read_runs, run_path, write_run
from rejoinder.evaluation.personas.report import show_personas, show_runs
from rejoinder.evaluation.personas.settings import BenchmarkSettings, overlay, system_config
from rejoinder.types import Json

from .kit import measured, run

CALM = load_persona("no-lists")
SETTINGS = BenchmarkSettings(sessions=3, updates=1, heldout=2, people=2)


@pytest.fixture
def served() -> Iterator[FakeGateway]:
    """A scripted gateway on a loop of its own: the benchmark runs one, too."""
    fake = FakeGateway(answer=lambda _: "1. Eat\n2. Sleep")
    started = threading.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", fake.chat)
        app.router.add_get("/v1/models", fake.models)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()

    thread = threading.Thread(target=lambda: (loop.run_until_complete(serve()), loop.run_forever()))
    thread.start()
    assert started.wait(10)
    yield fake
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def run_it(plan: Plan, output: Path) -> tuple[Json, str]:
    file = io.StringIO()
    found = run_benchmark(Config(), plan, output, console=Console(file=file, width=200))
    return found, file.getvalue()


def at(gateway: FakeGateway) -> Plan:
    return Plan(
        groups=((CALM,),), settings=SETTINGS, gateway=Endpoint(f"{gateway.url}/v1"), label="live"
    )


def test_a_run_ends_with_table_figure_and_one_json_line(
    served: FakeGateway, tmp_path: Path
) -> None:
    found, text = run_it(at(served), tmp_path / "out")
    assert json.loads(text.rstrip().splitlines()[-1]) == found
    assert found["runs"] == 1
    (result,) = found["results"]
    assert (result["persona"], result["method"], result["seeds"]) == ("no-lists", "live", [0])
    assert result["passed_before"] == {"value": 0.0, "interval": [None, None]}
    assert Path(found["figure"]).read_bytes().startswith(b"\x89PNG")
    (record,) = read_runs(tmp_path / "out")
    assert record.settings["benchmark"]["sessions"] == 3


def test_a_finished_run_is_not_made_again(served: FakeGateway, tmp_path: Path) -> None:
    first, _ = run_it(at(served), tmp_path)
    asked = len(served.asked)
    second, text = run_it(at(served), tmp_path)
    assert "finished before" in text
    assert second == first
    assert len(served.asked) == asked


def test_a_finished_run_with_other_settings_is_not_taken_for_this_one(
    served: FakeGateway, tmp_path: Path
) -> None:
    run_it(at(served), tmp_path)
    other = replace(at(served), settings=replace(SETTINGS, sessions=4))
    with pytest.raises(RejoinderError, match=r"other settings .*\(benchmark\.sessions\)"):
        run_it(other, tmp_path)


def test_a_task_file_that_changed_makes_another_run(served: FakeGateway, tmp_path: Path) -> None:
    sums = [f'{{"question": "How many apples are {n}?", "answer": "{n}"}}' for n in range(6)]
    (tmp_path / "sums.jsonl").write_text("\n".join(sums))
    plan = replace(at(served), groups=((replace(CALM, tasks=str(tmp_path / "sums.jsonl")),),))
    run_it(plan, tmp_path / "out")
    (tmp_path / "sums.jsonl").write_text("\n".join([*sums[:-1], sums[-1].replace("5", "7")]))
    with pytest.raises(RejoinderError, match=r"other settings .*\(tasks\.no-lists\)"):
        run_it(plan, tmp_path / "out")


PLAN = Plan(groups=((CALM,),), settings=SETTINGS)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (replace(PLAN, groups=()), "at least one persona"),
        (replace(PLAN, groups=((CALM, CALM),)), "different names"),
        (replace(PLAN, label="x", algorithms=("binary", "opd")), "a label names one method"),
        (replace(PLAN, label="../x"), "names files"),
        (replace(PLAN, seeds=(0, 1), gateway=Endpoint("http://127.0.0.1:1")), "not 2"),
        (replace(PLAN, gateway=Endpoint("127.0.0.1:1")), "not of the form"),
        (replace(PLAN, gateway=Endpoint("http://127.0.0.1:1")), "give a label"),
        (replace(PLAN, voice=Endpoint("http://far.example/v1", None, "m")), "is not this machine"),
        (replace(PLAN, algorithms=("binary", "alchemy")), "no algorithm is called 'alchemy'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    plan: Plan, told: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=told):
        run_it(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_voice_elsewhere_can_be_allowed() -> None:
    voice = Endpoint("http://far.example/v1", None, "m")
    replace(PLAN, voice=voice, external_voice=True).check()


def test_what_the_configuration_sets_stands_and_the_rest_is_the_benchmarks(tmp_path: Path) -> None:
    base = Config(
        home="/elsewhere",
        judge=LikelihoodJudgeConfig(margin=0.5),
        trainer=TrainerConfig(learning_rate=3e-6, loss=LossConfig(tis_cap=3.0)),
    )
    config = system_config(base, SETTINGS, "binary", 7, tmp_path)
    assert (config.home, config.trainer.seed) == (str(tmp_path), 7)
    assert isinstance(config.judge, LikelihoodJudgeConfig)
    assert config.judge.margin == 0.5
    assert config.trainer.learning_rate == 3e-6
    assert config.trainer.baseline == "leave_one_out"
    assert (config.trainer.loss.tis_cap, config.trainer.loss.kl_coefficient) == (3.0, 0.05)
    assert (config.gateway.port, config.journal.url) == (0, None)


def test_tables_are_laid_over_each_other() -> None:
    under = {"a": 1, "loss": {"x": 1, "y": 2}}
    assert overlay(under, {"b": 3, "loss": {"y": 5}}) == {"a": 1, "b": 3, "loss": {"x": 1, "y": 5}}
    assert overlay(under, {"loss": None}) == {"a": 1, "loss": None}


def test_results_of_several_calls_add_up_and_methods_are_compared(tmp_path: Path) -> None:
    learnt = [measured(0, 1), measured(1, 9, sessions=2)]
    learnt = [*learnt, measured(2, 9, sessions=3)]
    for method, passes in (("binary", "-------+++"), ("opd", "--+++")):
        for seed in (0, 1):
            record = run(passes, learnt, method, seed)
            write_run(record, run_path(tmp_path, ["calm"], method, seed))
    file = io.StringIO()
    console = Console(file=file, width=200)
    found = show_runs(read_runs(tmp_path), "binary", console, tmp_path / "c.png")
    assert found["runs"] == 4
    assert found["comparisons"][0]["ratio"] == {"value": 0.5, "interval": [None, None]}
    assert "opd needs 0.50 times the sessions of binary" in file.getvalue()
    assert "2 of 2" in file.getvalue()


def test_the_list_shows_every_persona_with_its_wish() -> None:
    file = io.StringIO()
    show_personas([CALM], Console(file=file, width=200))
    assert CALM.description in file.getvalue()
