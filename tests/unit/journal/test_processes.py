"""Processes that are killed, and processes that want the same thing."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from journal_story import Story

from rejoinder.journal.sql import SqlJournal

SCRIPT = Path(__file__).with_name("crash_writer.py")


def start(role: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), role, url], stdout=subprocess.PIPE, text=True
    )


def killed_after(process: subprocess.Popen[str], seconds: float) -> list[list[str]]:
    """Let a process work for some time from its first line on, kill it, return its lines."""
    with process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(seconds)
        process.kill()
        # Not communicate(): it reads past what readline() has buffered, and would lose that.
        whole = (first + process.stdout.read()).splitlines(keepends=True)
    return [line.split() for line in whole if line.endswith("\n")]


def test_what_was_reported_durable_survives_kill_9_at_any_moment(url: str) -> None:
    rng = random.Random(time.time_ns())
    said: list[list[str]] = []
    for _ in range(3):
        said += killed_after(start("converse", url), rng.uniform(0.05, 0.6))
    with SqlJournal(url) as journal:
        story = Story(journal)
        assert story.rows("PRAGMA integrity_check") == [("ok",)]
        assert story.rows("PRAGMA foreign_key_check") == []
        journal.abort_open_turns("gateway", []).result(9)
        states = dict(story.rows("SELECT turn_id, state FROM turns"))
        for kind, *ids in said:
            if kind == "turn":
                assert states[ids[0]] not in ("open", "aborted")
            if kind == "verdict":
                assert states[ids[0]] == "sampled"
        steps = [line[1:] for line in said if line[0] == "step"]
        consumed = dict(story.rows("SELECT sample_id, version FROM consumption"))
        for version, *ids in steps:
            assert [consumed[one] for one in ids] == [int(version)] * len(ids)
        versions = story.rows("SELECT version FROM steps ORDER BY version")
        assert versions == story.rows("SELECT version FROM policy_versions WHERE version > 0")
        assert story.count("steps") - len(steps) <= 3, "one unreported step per kill at most"
        made, queued, dropped = story.rows(
            "SELECT COUNT(*), SUM(queued), COUNT(fate) FROM samples"
        )[0]
        assert made == queued + dropped + len(consumed)
        for (turn_id,) in story.rows("SELECT turn_id FROM turns LIMIT 20"):
            assert journal.read_request(turn_id).prompt_ids == list(range(200))


def test_two_judges_never_both_commit_one_job(story: Story, url: str) -> None:
    turns = [story.answer() for _ in range(60)]
    for turn in turns:
        story.reply(turn)
    judges = [start(name, url) for name in ("judge-a", "judge-b")]
    lines = [line for judge in judges for line in judge.communicate(timeout=60)[0].splitlines()]
    committed = Counter(line.split()[1] for line in lines)
    assert committed == {turn.turn_id: 1 for turn in turns}
    assert story.count("verdicts") == story.count("samples") == len(turns)
    assert story.count("judge_jobs") == 0
