"""Sessions to converge, means up to a horizon and curves, against cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rejoinder.evaluation.personas.outcomes import (
    comparisons,
    outcomes,
    sessions_to_converge,
    sessions_to_streak,
)
from rejoinder.evaluation.personas.records import Ended, RunRecord
from rejoinder.evaluation.personas.sessions import settled
from rejoinder.evaluation.statistics import Duration, Estimate

from .kit import measured, run, session


def converge(record: RunRecord, persona: str) -> Duration:
    return sessions_to_converge(record.sessions, record.measured, persona)


@pytest.mark.parametrize(
    ("passes", "duration"),
    [
        ("+++", Duration(3, True)),
        ("++-+++", Duration(6, True)),
        ("-+-++++", Duration(6, True)),
        ("++-++-", Duration(6, False)),
        ("", Duration(0, False)),
    ],
)
def test_a_streak_is_three_first_answers_in_a_row(passes: str, duration: Duration) -> None:
    sessions = [session(number, mark == "+") for number, mark in enumerate(passes, 1)]
    assert sessions_to_streak(sessions) == duration


def test_a_session_that_goes_on_settles_nothing_behind_it() -> None:
    """It may end badly, and then there was no streak."""
    ended = [session(number, True) for number in (1, 2, 4, 5, 6)]
    assert [one.number for one in settled(ended)] == [1, 2]


def test_three_in_a_row_are_not_enough_while_held_out_answers_fail() -> None:
    luck = run("+++-------", [measured(0, 1), measured(1, 7, sessions=10)])
    assert converge(luck, "calm") == Duration(10, False)


def test_held_out_answers_are_not_enough_without_three_in_a_row() -> None:
    good = run("+-+-", [measured(0, 1), measured(1, 10, sessions=2), measured(2, 10, sessions=2)])
    assert converge(good, "calm") == Duration(4, False)


def test_a_single_good_measurement_is_luck_and_so_are_two_apart() -> None:
    apart = [measured(0, 1), measured(1, 9, 2), measured(2, 7, 4), measured(3, 9, 6)]
    assert converge(run("++++++++", apart), "calm") == Duration(8, False)


def test_answers_from_before_the_first_good_measurement_are_no_part_of_the_streak() -> None:
    good = [measured(0, 1), measured(1, 9, sessions=2), measured(2, 9, sessions=2)]
    assert converge(run("++--", good), "calm") == Duration(4, False)
    assert converge(run("+++-", good), "calm") == Duration(4, False)
    assert converge(run("+++-+++", good), "calm") == Duration(7, True)


def test_converged_is_when_the_later_of_both_has_come() -> None:
    late_measurement = [measured(0, 1), measured(1, 8, sessions=3), measured(2, 8, sessions=8)]
    assert converge(run("---+++--++", late_measurement), "calm") == Duration(8, True)
    late_streak = [*late_measurement[:2], measured(2, 9, sessions=4), measured(3, 3, sessions=8)]
    assert converge(run("--------+++", late_streak), "calm") == Duration(11, True)


def test_a_measurement_that_failed_is_passed_over() -> None:
    between = [measured(0, 1), measured(1, 9, 2), measured(2, 0, 4, failed=3), measured(3, 9, 5)]
    assert converge(run("--+++", between), "calm") == Duration(5, True)
    (found,) = outcomes([run("--+++", [*between, measured(4, 0, 5, failed=1)])])
    assert found.passed_after.value == pytest.approx(0.9)
    assert found.failures.measurements == 2
    assert [point.updates for point in found.curve] == [0, 1, 3]


def test_a_joint_run_counts_each_personas_own_sessions() -> None:
    sessions = [session(n, True, "calm" if n % 2 else "loud") for n in range(1, 9)]
    both = measured(1, 9, sessions=4).personas | measured(1, 2, persona="loud").personas
    first = measured(0, 0).personas | measured(0, 0, persona="loud").personas
    joint = replace(
        run(),
        personas=("calm", "loud"),
        sessions=tuple(sessions),
        measurements=(
            replace(measured(0, 0), personas=first, divergence=None),
            replace(measured(1, 9, sessions=2), personas=both, divergence=None),
            replace(measured(2, 9, sessions=4), personas=both, divergence=None),
        ),
    )
    assert converge(joint, "calm") == Duration(4, True)
    assert converge(joint, "loud") == Duration(4, False)
    calm, loud = outcomes([joint])
    assert (calm.subject.title, loud.subject.title) == ("calm (joint)", "loud (joint)")
    assert calm.divergence is None


LEARNT = [measured(0, 1, right=4), *(measured(n, 8, sessions=0, right=5) for n in (1, 2))]
IN_VAIN = [measured(0, 3, right=6), measured(1, 4, sessions=4, right=5)]


def test_an_outcome_is_a_mean_over_seeds_up_to_the_common_horizon() -> None:
    quick = run("+++--", LEARNT, seed=0)
    never = run("-" * 8, IN_VAIN, seed=1)
    other = run("-" * 6, IN_VAIN, method="opd", seed=0)
    binary, opd = outcomes([quick, never, other])
    assert (binary.method, binary.seeds, binary.converged) == ("binary", (0, 1), (0,))
    assert binary.horizon == opd.horizon == 6, "the shortest wait in vain of any method"
    assert binary.restricted_sessions == (3, 6)
    assert binary.sessions == Estimate(4.5, None, None)
    assert binary.passed_before.value == pytest.approx(0.2)
    assert binary.passed_after.value == binary.passed_best.value == pytest.approx(0.6)
    assert binary.right_before is not None
    assert binary.right_before.value == pytest.approx(0.5)
    assert binary.divergence is not None
    assert binary.divergence.value == pytest.approx(0.015)
    assert opd.sessions == Estimate(6.0, None, None)


def test_a_run_that_the_time_ended_sets_no_horizon_and_is_left_out() -> None:
    slow = run("--", IN_VAIN, seed=1, ended=Ended.TIME)
    lucky = run("+++", LEARNT, seed=2, ended=Ended.TIME)
    whole = run("-" * 20, IN_VAIN, seed=0, ended=Ended.SESSIONS)
    (found,) = outcomes([slow, lucky, whole])
    assert (found.seeds, found.timed, found.horizon) == ((0,), (0,), 20)
    assert found.restricted_sessions == (20,)
    assert [one.seed for one in found.left_out] == [1, 2]
    assert len(found.run_curves) == 1, "of the run that counts"
    assert found.left_out[0].reason == "the time was over after 2 sessions, and 20 are compared"
    assert found.passed_after.value == pytest.approx(0.4), "nor is it an end to average"


def test_runs_cut_short_by_time_alone_have_no_sessions_to_converge() -> None:
    (found,) = outcomes([run("--", IN_VAIN, ended=Ended.TIME)])
    assert (found.timed, found.sessions, found.horizon) == ((), None, 20)
    assert found.passed_before.value == pytest.approx(0.3), "the start is told all the same"


def test_a_personas_horizon_in_a_joint_run_is_its_share_of_the_sessions() -> None:
    first = measured(0, 0).personas | measured(0, 0, persona="loud").personas
    joint = replace(
        run("-" * 4, ended=Ended.TIME),
        personas=("calm", "loud"),
        measurements=(replace(measured(0, 0), personas=first),),
    )
    assert {one.horizon for one in outcomes([joint])} == {10}


def test_where_neither_converged_there_is_no_ratio() -> None:
    vain = [run("-" * 20, IN_VAIN, method=method) for method in ("binary", "opd")]
    (compared,) = comparisons(outcomes(vain), reference="binary")
    assert (compared.ratio, compared.horizon) == (None, 20)


def test_tasks_without_answers_have_no_share_of_right_ones() -> None:
    (found,) = outcomes([run("+++", [measured(0, 1), measured(1, 9)])])
    assert found.right_before is None
    assert found.right_after is None


def test_a_curve_reaches_as_far_as_all_runs_and_bridges_what_was_not_measured() -> None:
    whole = run(measurements=[measured(0, 0), measured(1, 4), measured(2, 6), measured(3, 8)])
    sparse = run(measurements=[measured(0, 2), measured(2, 6)], seed=1)
    (found,) = outcomes([whole, sparse])
    curve = [(point.updates, point.passed.value) for point in found.curve]
    assert curve == [(0, pytest.approx(0.1)), (1, pytest.approx(0.3)), (2, pytest.approx(0.6))]


def test_each_run_has_its_own_curve_to_its_own_end() -> None:
    long = run(measurements=[measured(0, 0), measured(2, 6), measured(3, 8)])
    short = replace(
        run(measurements=[measured(0, 2), measured(2, 9)], seed=1), ended=Ended.CONVERGED
    )
    (found,) = outcomes([long, short])
    assert [one.points for one in found.run_curves] == [
        ((0, 0.0), (2, 0.6), (3, 0.8)),
        ((0, 0.2), (2, 0.9)),
    ]
    assert [one.ended_converged for one in found.run_curves] == [False, True]


def test_a_run_goes_on_from_what_held_where_the_mean_ends() -> None:
    sparse = run(measurements=[measured(0, 0), measured(4, 4), measured(8, 9)])
    (found,) = outcomes([sparse])
    (own,) = found.run_curves
    assert own.after(6) == ((6, 0.4), (8, 0.9))
    assert own.after(8) == ((8, 0.9),)


def test_a_gateway_that_had_learnt_before_starts_its_curve_at_zero() -> None:
    (found,) = outcomes([run(measurements=[measured(5, 2), measured(7, 6)])])
    assert [point.updates for point in found.curve] == [0, 2]


def test_methods_are_compared_over_the_seeds_that_both_have() -> None:
    runs = [
        run("-" * 10 + "+++", LEARNT, seed=0),
        run("-" * 17 + "+++", LEARNT, seed=1),
        run("--+++", LEARNT, method="opd", seed=1),
        run("+++", LEARNT, method="opd", seed=2),
    ]
    (compared,) = comparisons(outcomes(runs), reference="binary")
    assert (compared.method, compared.reference, compared.seeds) == ("opd", "binary", 1)
    assert compared.ratio == Estimate(0.25, None, None)
    assert comparisons(outcomes(runs), reference="combine") == []
