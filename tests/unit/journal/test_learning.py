from __future__ import annotations

import copy
from typing import Any

import pytest

from rejoinder.journal.learning import judge_learning
from rejoinder.types import Json

NO_SCORES = {"-1": 0, "0": 0, "+1": 0, "none": 0}


def role(name: str, **changes: Any) -> Json:
    fields = {"role": name, "state": "ready", "fresh": True, "seen_s": 1.0}
    return {**fields, "last_error": None, "last_error_s": None, **changes}


def document(**changes: Any) -> Json:
    """A system that collects its first batch, with some sections changed."""
    base = {
        "turns": {"main": 5, "fates": {}},
        "samples": {"ready": 3, "needed": 16, "full_s": None},
        "judge": {"queued": 2, "oldest_s": 1.0},
        "verdicts": {"last_100": dict(NO_SCORES, **{"+1": 3}), "no_verdict": {}, "hints": 0},
        "training": {"last": None, "next_step": 1, "head_version": 0},
        "roles": [role("judge"), role("trainer")],
    }
    made = {**copy.deepcopy(base), **changes}
    return made | {"judge": {"asked": True} | made["judge"]}


LAST = {"step": 4, "version": 4, "ago_s": 30.0, "seconds": 20.0, "samples": 16, "metrics": {}}
ALIKE = LAST | {"mean_score": -1.0, "metrics": {"skipped": 1.0}, "untrained": {"all_alike": 16}}
BROKEN = ALIKE | {"mean_score": 1.0, "untrained": {"no_signal": 2, "non_finite_loss": 14}}


def after(last: Json, **changes: Any) -> Json:
    """Return the sections of a system whose last step was so."""
    return {"training": {"last": last | changes, "next_step": 5, "head_version": 4}}


FAILED = dict(NO_SCORES, none=12)
HINTLESS = {
    "turns": {"main": 30, "fates": {"hint_failed": 12}},
    "judge": {"queued": 0, "oldest_s": None, "asked": False},
}
"""Hints alone teach, and the hint judge has only failed."""


@pytest.mark.parametrize(
    ("changes", "word", "reason"),
    [
        ({}, "collecting", "3 of 16 samples for the next step"),
        ({"roles": []}, "stopped", "nothing runs: start it with `rejoinder up`"),
        (
            {"roles": [role("judge", state="stopped"), role("trainer", fresh=False)]},
            "stopped",
            "nothing runs",
        ),
        ({"roles": [], "turns": {"main": 0}}, "stopped", "nothing runs"),
        ({"turns": {"main": 0}}, "no traffic", "no main turn"),
        (HINTLESS, "stalled", "the hint judge has failed on 12 replies"),
        (HINTLESS | {"turns": {"main": 30, "fates": {"hint_failed": 9}}}, "collecting", "3 of 16"),
        (
            HINTLESS | {"verdicts": {"last_100": NO_SCORES, "no_verdict": {}, "hints": 1}},
            "collecting",
            "3 of 16",
        ),
        (
            HINTLESS | {"judge": {"queued": 0, "oldest_s": None, "asked": True}},
            "collecting",
            "3 of",
        ),
        (
            HINTLESS | {"training": {"last": LAST, "next_step": 5, "head_version": 4}},
            "learning",
            "step 4 was 30 s ago",
        ),
        ({"roles": [role("trainer")]}, "no judge", "2 turns wait"),
        ({"roles": [role("judge", fresh=False), role("trainer")]}, "no judge", "2 turns wait"),
        ({"roles": [role("judge", state="stopped"), role("trainer")]}, "no judge", "2 turns"),
        ({"roles": [role("judge"), role("trainer", state="stopped")]}, "no trainer", "3 samples"),
        (
            {
                "roles": [
                    role("judge"),
                    role("trainer", state="stopped", last_error="old", last_error_s=3.0),
                    role("trainer"),
                ]
            },
            "collecting",
            "3 of 16",
        ),
        ({"roles": [role("judge")]}, "no trainer", "3 samples wait"),
        (
            {"verdicts": {"last_100": FAILED, "no_verdict": {"judge_failed": 11, "no_quorum": 1}}},
            "stalled",
            "12 judgements gave no verdict, mostly judge_failed",
        ),
        (
            {"roles": [role("judge"), role("trainer", state="training")]},
            "learning",
            "step 1 is being taken",
        ),
        (
            {"training": {"last": LAST, "next_step": 5, "head_version": 4}},
            "learning",
            "step 4 was 30 s ago",
        ),
        (
            after(ALIKE),
            "stalled",
            "step 4 changed nothing: all its verdicts were bad, and they count by how they differ",
        ),
        (
            after(ALIKE, mean_score=1.0),
            "collecting",
            "step 4 changed nothing: all its verdicts were good",
        ),
        (
            after(BROKEN),
            "stalled",
            "step 4 changed nothing: 14 of its samples by non_finite_loss; 3 of 16",
        ),
        (
            after(BROKEN, untrained={"all_alike": 9, "non_finite_loss": 7}),
            "stalled",
            "step 4 changed nothing: 7 of its samples by non_finite_loss",
        ),
        (after(ALIKE, ago_s=7200.0), "collecting", "3 of 16"),
        (
            after(ALIKE, ago_s=7200.0) | {"judge": {"queued": 40, "oldest_s": 8e4}},
            "stalled",
            "40 turns wait for the judge",
        ),
        (
            {"training": {"last": LAST, "next_step": 5, "head_version": 2}},
            "collecting",
            "learning goes on from version 2; 3 of 16",
        ),
        (
            {"training": {"last": dict(LAST, ago_s=7200.0), "next_step": 5, "head_version": 4}},
            "collecting",
            "3 of 16",
        ),
        (
            {"samples": {"ready": 16, "needed": 16, "full_s": 500.0}},
            "stalled",
            "no step since 500 s",
        ),
        ({"samples": {"ready": 16, "needed": 16, "full_s": 5.0}}, "collecting", "16 of 16"),
        ({"judge": {"queued": 2, "oldest_s": 20.0}}, "collecting", "3 of 16"),
        (
            {"judge": {"queued": 759, "oldest_s": 720.0}},
            "stalled",
            "759 turns wait for the judge, the oldest since 720 s: it does not keep up",
        ),
        (
            {
                "roles": [
                    role("judge"),
                    role("trainer", last_error="out of memory", last_error_s=3.0),
                ]
            },
            "stalled",
            "trainer: out of memory",
        ),
        (
            {"roles": [role("judge"), role("trainer", last_error="old", last_error_s=7200.0)]},
            "collecting",
            "3 of 16",
        ),
        (
            {
                "samples": {"ready": 16, "needed": 16, "full_s": 5.0},
                "roles": [role("judge"), role("trainer", last_error="old", last_error_s=7200.0)],
            },
            "stalled",
            "trainer: old",
        ),
        (
            {
                "training": {"last": LAST, "next_step": 5, "head_version": 4},
                "roles": [role("judge"), role("trainer", last_error="old", last_error_s=90.0)],
            },
            "learning",
            "step 4",
        ),
    ],
)
def test_one_word_and_one_reason(changes: Json, word: str, reason: str) -> None:
    found = judge_learning(document(**changes))
    assert found["word"] == word
    assert reason in found["reason"]
