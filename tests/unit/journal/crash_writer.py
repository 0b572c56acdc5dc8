"""Run as a process by ``test_processes.py``: does what it is told and prints what is durable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

from journal_story import LEASE, Story, finishing, judgement, opening

from rejoinder.journal.records import SampleSpec
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import VersionRun


def say(*words: object) -> None:
    print(*words, flush=True)


def converse(story: Story) -> None:
    """Answer, judge and train for ever; a line is printed only for what has been committed."""
    fence = story.journal.acquire_lease(LEASE, "the trainer", 60)
    assert fence is not None
    while True:
        turns = [opening(prompt_ids=range(200)) for _ in range(4)]
        for turn in turns:
            story.journal.open_turn(turn)
        runs = [VersionRun(story.lineage().head_version, 3)]
        futures = [story.journal.finish_turn(finishing(turn, versions=runs)) for turn in turns]
        for turn, future in zip(turns, futures, strict=True):
            future.result(30)
            say("turn", turn.turn_id)
        for turn in turns:
            story.reply(turn)
        for task in story.claim(9):
            if story.journal.commit_judgement(task, judgement(1), SampleSpec(1.0), None):
                say("verdict", task.turn_id)
        commit = story.commit(story.take(3), fence=fence)
        say("step", commit.version.version, *(used.sample_id for used in commit.samples))


def judge(story: Story, owner: str) -> None:
    """Judge until the queue is empty, with leases so short that they are often lost."""
    idle = 0
    while idle < 5:
        tasks = story.journal.claim_judging(owner, 3, lease_s=0.02)
        idle = 0 if tasks else idle + 1
        for task in tasks:
            verdict = judgement(1, fingerprint=owner)
            if story.journal.commit_judgement(task, verdict, SampleSpec(1.0), None):
                say("verdict", task.turn_id)


if __name__ == "__main__":
    with SqlJournal(sys.argv[2]) as journal:
        if sys.argv[1] == "converse":
            converse(Story(journal))
        else:
            judge(Story(journal), sys.argv[1])
