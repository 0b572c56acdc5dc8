"""A status document as the journal gives it, to be changed by tests."""

from __future__ import annotations

import pytest

from rejoinder.types import Json


def role(name: str, **changes: object) -> Json:
    return {
        "role": name,
        "instance": f"{name}-1",
        "pid": 1,
        "state": "ready",
        "seen_s": 1.0,
        "fresh": True,
        "last_error": None,
        "last_error_s": None,
        "detail": {},
    } | changes


@pytest.fixture
def document() -> Json:
    scores = {"-1": 3, "0": 1, "+1": 5, "none": 2}
    return {
        "policy": "default",
        "learning": {"word": "learning", "reason": "step 4 was 12 s ago; 9 of 16 samples"},
        "live": {"version": 4, "since_s": 12.0, "uri": "file:///somewhere"},
        "turns": {
            "total": 30,
            "states": {"sampled": 20, "waiting": 6, "ended": 4},
            "fates": {"no_next_state": 3, "side": 1},
            "state_fates": {"ended": {"side": 1, "no_next_state": 3}},
            "main": 29,
            "side": 1,
            "newest": {"main": 29, "side": 1, "fates": {"no_next_state": 3, "side": 1}},
        },
        "samples": {
            "ready": 9,
            "needed": 16,
            "missing": 7,
            "full_s": None,
            "made": 73,
            "trained": 64,
            "dropped": {"stale": 2},
        },
        "verdicts": {
            "scores": scores,
            "last_100": scores,
            "by_next_state": {"user": scores},
            "no_verdict": {"judge_failed": 2},
            "hints": 0,
        },
        "judge": {"queued": 1, "oldest_s": 4.0, "coverage": 0.82, "asked": True},
        "training": {
            "lineage": "l1",
            "head_version": 4,
            "next_step": 5,
            "rollback": None,
            "steps": 4,
            "orphaned": 0,
            "last": {
                "step": 4,
                "version": 4,
                "samples": 16,
                "mean_score": 0.5,
                "seconds": 21.0,
                "ago_s": 12.0,
                "metrics": {"loss": 0.125, "grad_norm": 1.5},
                "untrained": {},
            },
            "curve": [],
        },
        "versions": {"live": 1, "retired": 4},
        "evaluations": [],
        "roles": [
            role("engine", detail={"live": {"default": 4}}),
            role("gateway"),
            role("judge", last_error="timeout", last_error_s=90.0),
            role("trainer"),
        ],
        "external": [],
        "counters": {},
        "journal": {"bytes": 2048},
    }
