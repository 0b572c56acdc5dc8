"""A plan of runs: refused early, never made twice, and told in a table, a figure and JSON."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

from fake_gateway import FakeGateway
from rejoinder.config import (
    Config,
    FeedbackJudgeConfig,
    LikelihoodJudgeConfig,
    LossConfig,
    TrainerConfig,
)
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.evaluation.personas.benchmark import run_benchmark
from rejoinder.evaluation.personas.persona import load_persona
from rejoinder.evaluation.personas.plan import Endpoint, Method, Plan
from rejoinder.evaluation.personas.records import (
    Ended,
    RunRecord,
    cut_path,
    read_runs,
    run_path,
    write_run,
)
from rejoinder.evaluation.personas.report import show_personas, show_runs
from rejoinder.evaluation.personas.run import RunSpec, run_once
from rejoinder.evaluation.personas.settings import BenchmarkSettings, overlay, system_config
from rejoinder.types import Json

from .kit import measured, run

CALM = load_persona("no-lists")
RUN_ONCE = "rejoinder.evaluation.personas.job.run_once"
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

    # One run of the loop: between two of them, a test that ends at once would stop the first only.
    serving = loop.create_task(serve())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    assert started.wait(10), serving
    yield fake
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def run_it(plan: Plan, output: Path, width: int = 200) -> tuple[Json, str]:
    file = io.StringIO()
    found = run_benchmark(plan, output, console=Console(file=file, width=width))
    return found, file.getvalue()


def at(gateway: FakeGateway) -> Plan:
    return Plan(
        groups=((CALM,),),
        methods=(Method("live", "binary", Config()),),
        settings=SETTINGS,
        gateway=Endpoint(f"{gateway.url}/v1"),
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


def test_headings_are_whole_on_a_terminal_of_eighty_columns(
    served: FakeGateway, tmp_path: Path
) -> None:
    _, text = run_it(at(served), tmp_path, width=80)
    assert {"converged", "sessions", "template"} <= set(text.split())


def test_a_name_is_whole_on_eighty_columns_where_nothing_failed_and_no_task_has_a_number(
    tmp_path: Path,
) -> None:
    """It was broken in the middle, for columns in which every row had a dash."""
    name = "short-sentence"
    vain = [
        replace(one, personas={name: one.personas["calm"]})
        for one in (measured(0, 1), measured(1, 2), measured(2, 2))
    ]
    made = run("-" * 320, vain, "combine")
    spoken = tuple(replace(one, persona=name) for one in made.sessions)
    runs = [replace(made, personas=(name,), sessions=spoken)]
    file = io.StringIO()
    show_runs(runs, "combine", Console(file=file, width=80), tmp_path / "c.png")
    words = file.getvalue().split()
    assert {name, "combine"} <= set(words)
    assert not {"right", "failed"} & set(words)


def test_a_finished_run_is_not_made_again(served: FakeGateway, tmp_path: Path) -> None:
    first, told = run_it(at(served), tmp_path)
    assert "its limits: sessions 3, updates 1, minutes of learning 60 (" in told
    asked = len(served.asked)
    second, text = run_it(at(served), tmp_path)
    assert "finished before" in text
    assert "minutes of learning" not in text
    assert second == first
    assert len(served.asked) == asked


def test_a_finished_run_with_other_settings_is_not_taken_for_this_one(
    served: FakeGateway, tmp_path: Path
) -> None:
    run_it(at(served), tmp_path)
    other = replace(at(served), settings=replace(SETTINGS, sessions=4))
    with pytest.raises(
        RejoinderError, match=r"other settings .*\(benchmark\.sessions: \d and \d\)"
    ):
        run_it(other, tmp_path)


def test_runs_of_other_seeds_with_other_settings_stop_a_plan_before_any_run(tmp_path: Path) -> None:
    """Also where the seed at hand has no file yet: means are taken over all of them."""
    start = [measured(0, 0, persona="no-lists")]
    first = replace(
        run("", start, seed=4, persona="no-lists"), settings={"benchmark": {"sessions": 9}}
    )
    write_run(first, run_path(tmp_path, ["no-lists"], "binary", 4))
    with pytest.raises(RejoinderError, match=r"seed-4.*other settings.*benchmark\.sessions"):
        run_it(PLAN, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_run_that_fails_ends_no_plan_and_is_told(
    served: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail_once(spec: RunSpec, *args: Any, **more: Any) -> RunRecord:
        if spec.personas[0].name == "no-lists":
            raise RejoinderError("the engine has gone")
        return await run_once(spec, *args, **more)

    monkeypatch.setattr(RUN_ONCE, fail_once)
    # Two runs at one gateway, which a plan refuses, are all that this needs.
    monkeypatch.setattr(Plan, "check", lambda _: None)
    plan = replace(at(served), groups=((CALM,), (load_persona("greeting"),)))
    found, text = run_it(plan, tmp_path)
    assert [one["personas"] for one in found["failed_runs"]] == [["no-lists"]]
    assert [one["persona"] for one in found["results"]] == ["greeting"]
    assert "no-lists: live, seed 0 has failed: the engine has gone" in text
    assert "1 run" in text
    assert json.loads(text.rstrip().splitlines()[-1]) == found


def test_a_plan_of_which_no_run_comes_to_its_end_is_an_error(
    served: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> RunRecord:
        raise RejoinderError("the engine has gone")

    monkeypatch.setattr(RUN_ONCE, fail)
    with pytest.raises(RejoinderError, match="no run came to its end: the engine has gone"):
        run_it(at(served), tmp_path)


def test_the_file_of_an_unfinished_run_goes_when_it_finishes(
    served: FakeGateway, tmp_path: Path
) -> None:
    run_it(at(served), tmp_path)
    assert not list(tmp_path.glob("*.cut.json"))


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://127.0.0.1:9000/v1/", "http://127.0.0.1:9000"),
        ("https://host.example/api/v1", "https://host.example/api"),
    ],
)
def test_an_endpoint_may_have_a_path(url: str, root: str) -> None:
    assert Endpoint(url).root == root


def test_what_failed_and_who_did_not_converge_is_told(tmp_path: Path) -> None:
    vain = [measured(0, 1), measured(1, 2, failed=2), measured(2, 2)]
    runs = [
        replace(run("-" * 20, vain, method), lost_sessions=3, failed_requests=7)
        for method in ("binary", "opd")
    ]
    late = run("--", vain, "opd", seed=1, ended=Ended.TIME)
    file = io.StringIO()
    console = Console(file=file, width=200)
    show_runs([*runs, late], "binary", console, tmp_path / "c.png")
    text = file.getvalue()
    for told in (
        "neither opd nor binary converged within 20 sessions",
        "none in 20",
        "opd, seed 1 is left out: the time was over after 2 sessions",
        "3 lost sessions",
        "7 requests",
        "1 measurement",
    ):
        assert told in text
    assert "1.00 times" not in text


def test_a_task_file_that_changed_makes_another_run(served: FakeGateway, tmp_path: Path) -> None:
    sums = [f'{{"question": "How many apples are {n}?", "answer": "{n}"}}' for n in range(6)]
    (tmp_path / "sums.jsonl").write_text("\n".join(sums))
    plan = replace(at(served), groups=((replace(CALM, tasks=str(tmp_path / "sums.jsonl")),),))
    run_it(plan, tmp_path / "out")
    (tmp_path / "sums.jsonl").write_text("\n".join([*sums[:-1], sums[-1].replace("5", "7")]))
    with pytest.raises(RejoinderError, match=r"other settings .*\(tasks\.no-lists\)"):
        run_it(plan, tmp_path / "out")


BINARY = Method.of("binary", Config())
PLAN = Plan(groups=((CALM,),), methods=(BINARY,), settings=SETTINGS)


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (replace(PLAN, groups=()), "at least one persona"),
        (replace(PLAN, groups=((CALM, CALM),)), "different names"),
        (replace(PLAN, groups=((replace(CALM, name="x" * 200),),)), "let fewer talk"),
        (replace(PLAN, methods=(BINARY, BINARY)), "2 methods are called 'binary'"),
        (replace(PLAN, methods=(Method("../x", "binary", Config()),)), "names files"),
        (replace(PLAN, seeds=(0, 1), gateway=Endpoint("http://127.0.0.1:1")), "not 2"),
        (replace(PLAN, gateway=Endpoint("127.0.0.1:1")), "not of the form"),
        (replace(PLAN, voice=Endpoint("http://me:secret@127.0.0.1:1", None, "m")), "without a key"),
        (replace(PLAN, voice=Endpoint("http://far.example/v1", None, "m")), "is not this machine"),
        (
            replace(PLAN, methods=(BINARY, Method("gold", "alchemy", Config()))),
            "no algorithm is called 'alchemy'",
        ),
        (replace(PLAN, packed=2, gateway=Endpoint("http://127.0.0.1:1")), "inside this"),
        (replace(PLAN, packed=2, voice=Endpoint("http://127.0.0.1:1", None, "m")), "inside this"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    plan: Plan, told: str, tmp_path: Path
) -> None:
    with pytest.raises(RejoinderError, match=told):
        run_it(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_packed_runs_are_refused_where_they_would_not_follow(tmp_path: Path) -> None:
    plan = replace(PLAN, packed=2)
    with pytest.raises(RejoinderError, match="leave out the folder to keep it in"):
        run_benchmark(plan, tmp_path / "out", keep=tmp_path / "kept")
    other = Method.of("other", Config(judge=FeedbackJudgeConfig()))
    with pytest.raises(ConfigError, match=r"judge\.kind = 'feedback'"):
        run_benchmark(replace(plan, methods=(BINARY, other)), tmp_path / "out")
    assert not list(tmp_path.iterdir())


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


def test_a_run_that_was_cut_counts_nowhere_and_is_told(served: FakeGateway, tmp_path: Path) -> None:
    short = run("-", [measured(0, 1), measured(1, 2), measured(2, 0, failed=1)], "opd")
    write_run(short, cut_path(run_path(tmp_path, ["calm"], "opd", 0)))
    found, text = run_it(at(served), tmp_path)
    told = "calm: opd, seed 0 has not come to its end and counts nowhere: 0.20 of held-out answers"
    assert told in text
    cut = {"personas": ["calm"], "method": "opd", "seed": 0, "updates": 1, "passed": {"calm": 0.2}}
    assert (found["runs"], found["unfinished_runs"]) == (1, [cut])


def test_a_run_whose_very_start_failed_costs_no_other_its_table(
    served: FakeGateway, tmp_path: Path
) -> None:
    write_run(
        run("-", [measured(0, 0, failed=1)], "opd"),
        cut_path(run_path(tmp_path, ["calm"], "opd", 0)),
    )
    found, text = run_it(at(served), tmp_path)
    assert "opd, seed 0 has not come to its end and counts nowhere: nothing was measured" in text
    cut = {"personas": ["calm"], "method": "opd", "seed": 0, "updates": None, "passed": {}}
    assert (found["runs"], found["unfinished_runs"]) == (1, [cut])


def test_a_cut_file_that_cannot_be_read_is_told_before_a_run_is_made(
    served: FakeGateway, tmp_path: Path
) -> None:
    (tmp_path / "calm.opd.seed-0.cut.json").write_bytes(b"{}")
    with pytest.raises(RejoinderError, match=r"cut\.json is no readable run"):
        run_it(at(served), tmp_path)
    assert read_runs(tmp_path) == []


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


def test_it_is_told_how_many_of_how_many_runs_had_not_converged(tmp_path: Path) -> None:
    learnt = [measured(0, 1), measured(1, 9, sessions=2), measured(2, 9, sessions=3)]
    vain = [measured(0, 1), measured(1, 2), measured(2, 2)]
    runs = [run("--+++", learnt, "opd", seed) for seed in (0, 1)]
    runs += [run("-" * 20, vain, "opd", 2), run("-" * 20, vain, "binary", 0)]
    file = io.StringIO()
    found = show_runs(runs, "binary", Console(file=file, width=200), tmp_path / "c.png")
    text = file.getvalue()
    for told in (
        "2 of 3",
        "1 not in 20",
        "0 of 1",
        "none in 20",
        "(1 seed of both; 1 and 0 had converged, the others count as 20)",
    ):
        assert told in text
    assert found["comparisons"][0]["converged"] == 1
    assert found["comparisons"][0]["reference_converged"] == 0


def test_the_list_shows_every_persona_with_its_wish() -> None:
    file = io.StringIO()
    show_personas([CALM], Console(file=file, width=200))
    assert CALM.description in file.getvalue()
