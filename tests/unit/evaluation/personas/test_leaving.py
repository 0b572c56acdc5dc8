"""Runs that are broken off: what is left is told, and nothing empty is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from rejoinder.config import Config
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.personas.job import Job
from rejoinder.evaluation.personas.leaving import output_folder
from rejoinder.evaluation.personas.persona import load_persona
from rejoinder.evaluation.personas.plan import Method, Plan
from rejoinder.evaluation.personas.records import write_run
from rejoinder.evaluation.personas.settings import BenchmarkSettings

from .kit import run

PLAN = Plan(
    groups=((load_persona("no-lists"),),),
    methods=(Method("live", "binary", Config()),),
    seeds=(0, 1),
    settings=BenchmarkSettings(),
)


def jobs_in(folder: Path) -> list[Job]:
    return [Job(PLAN, PLAN.groups[0], PLAN.methods[0], seed, folder) for seed in PLAN.seeds]


def broken_off(
    folder: Path, jobs: list[Job], keep: Path | None = None, by: type[BaseException] | None = None
) -> str:
    file = io.StringIO()
    console = Console(file=file, width=80)
    with (
        pytest.raises(by or KeyboardInterrupt),
        output_folder(folder, jobs, keep, "begins anew", console),
    ):
        raise (by or KeyboardInterrupt)("x")
    return file.getvalue()


def test_where_nothing_was_measured_nothing_stays(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    said = broken_off(folder, jobs_in(folder))
    assert said == ("nothing had been measured, so nothing is kept\nthe same command begins anew\n")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_leaves_no_empty_folder_either(tmp_path: Path) -> None:
    assert broken_off(tmp_path / "out", [], by=RejoinderError) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    broken_off(tmp_path, jobs_in(tmp_path))
    assert tmp_path.is_dir()


def test_what_is_there_is_told_with_its_place(tmp_path: Path) -> None:
    folder, keep = tmp_path / "out", tmp_path / "kept"
    keep.mkdir()
    finished, cut = jobs_in(folder)
    folder.mkdir()
    finished.write(run(seed=0))
    write_run(run(seed=1), cut.unfinished_path)
    cut.is_cut = True
    said = broken_off(folder, [finished, cut], keep, by=SystemExit)
    assert f"finished runs: 1 of 2, in {folder}\n" in said
    assert f"{cut.name}: what was measured until now is in {cut.unfinished_path}\n" in said
    assert f"the systems' data is in {keep}\n" in said
    assert "nothing is kept" not in said


def test_what_an_earlier_call_had_measured_is_not_told_as_this_one_s(tmp_path: Path) -> None:
    job = jobs_in(tmp_path)[0]
    write_run(run(seed=0), job.unfinished_path)
    assert "nothing is kept" in broken_off(tmp_path, [job])
