"""Requests that cannot have an answer are refused before any work."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rejoinder.engine.base import Constraint, Form, ScoreRequest
from rejoinder.engine.limits import check_generate, check_score
from rejoinder.errors import ConstraintRefused, InvalidRequest
from tiny_model import POLICY, request


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e39])
@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty", "logit_bias"])
def test_changes_of_logits_that_leave_no_distribution_are_refused(name: str, bad: float):
    """Guards against a client's number that is blamed on the weights."""
    setting: object = {5: bad} if name == "logit_bias" else bad
    with pytest.raises(InvalidRequest, match="penalties and logit_bias"):
        check_generate(request([1], **{name: setting}), 100, 10)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_temperatures_that_are_none_are_refused(bad: float):
    with pytest.raises(InvalidRequest, match="temperature"):
        check_generate(request([1], temperature=bad), 100, 10)
    with pytest.raises(InvalidRequest, match="temperature"):
        check_score(ScoreRequest("s", [1, 2], POLICY, temperature=bad), 100, 10)


def test_a_ban_by_bias_is_no_fault():
    check_generate(request([1], logit_bias={5: -100.0}), 100, 10)


@pytest.mark.parametrize(
    ("lengths", "said"),
    [([10, 70_000], "schema of t1 has 70000"), ([60_000] * 5, "5 schemas have 300000")],
)
def test_schemas_that_are_too_large_are_refused(lengths: list[int], said: str):
    forms = [Form("x" * length, subject=f"t{at}") for at, length in enumerate(lengths)]
    with pytest.raises(ConstraintRefused, match=said):
        check_generate(replace(request([1]), constraint=Constraint(forms)), 100, 10)
