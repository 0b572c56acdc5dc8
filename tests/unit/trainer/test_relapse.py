"""When a policy has fallen so far that it goes back, and where to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rejoinder.journal.records import Lineage, PolicyVersion
from rejoinder.trainer import relapse
from rejoinder.trainer.relapse import Relapse, held_versions, judged_steps
from rejoinder.types import VersionState, WeightsKind

LINEAGE = Lineage("l", "default", None, 0, 0, 1)


def versions(pleased: Sequence[int], of: int = 16) -> list[PolicyVersion]:
    """The start weights, and a version for each step, of whose answers so many had pleased."""
    start = PolicyVersion(
        policy="default",
        version=0,
        uri="file:///base",
        kind=WeightsKind.FULL,
        base_uri="file:///base",
        parent=None,
        lineage_id=None,
        step=None,
        state=VersionState.RETIRED,
        created_at=0.0,
    )
    steps = [
        replace(
            start,
            version=number,
            uri=f"file:///{number}",
            parent=number - 1,
            lineage_id="l",
            step=number,
            metrics={"scored": of, "reward_mean": 2 * good / of - 1, "answered_by": number - 1},
        )
        for number, good in enumerate(pleased, 1)
    ]
    return [start, *steps]


def find_relapse(line: Sequence[PolicyVersion]) -> Relapse | None:
    return relapse.find_relapse(judged_steps(line, LINEAGE), held_versions(line))


def worth_keeping(line: Sequence[PolicyVersion]) -> set[int]:
    return relapse.worth_keeping(judged_steps(line, LINEAGE), held_versions(line))


def changed(line: list[PolicyVersion], number: int, **changes: object) -> list[PolicyVersion]:
    return [replace(one, **changes) if one.version == number else one for one in line]  # type: ignore[arg-type]


COLLAPSE = [7, 7, 10, 1, 0]
"""Recorded: a served average lagged behind weights that had unlearnt to answer at all."""


def test_a_collapse_leads_back_to_who_answered_the_good_steps() -> None:
    found = find_relapse(versions(COLLAPSE))
    assert found is not None
    assert found.version == 2  # the third step's answers were those of version 2
    assert str(found) == "3% of 32 judged answers pleased, 50% of 48 did before"


@pytest.mark.parametrize(
    ("pleased", "version"),
    [
        ([13, 14, 15, 14, 13, 11, 12, 11, 12, 5, 2], 4),  # a sudden fall
        ([15, 9, 12, 11, 11, 10, 4, 3], 4),  # a slow one
        ([13, 14, 15, 14, 13, 14, 9, 10], None),  # a bad patch
        ([0, 0, 1, 0, 0, 0, 2, 0], None),  # never pleased anybody
        ([2, 5, 9, 12, 14, 15, 16, 16], None),
        ([16] * 40, None),
    ],
)
def test_falls_are_told_from_bad_patches(pleased: list[int], version: int | None) -> None:
    found = find_relapse(versions(pleased))
    assert (None if found is None else found.version) == version


def test_policies_that_stay_as_they_are_rarely_fall() -> None:
    """Of 200 steps each; one in thirty would be the usual."""
    rng = random.Random(1)
    alarmed = 0
    for share in (0.5, 0.7, 0.85, 0.95) * 10:
        line = versions([sum(rng.random() < share for _ in range(16)) for _ in range(200)])
        ends = range(5, len(line))
        alarmed += any(find_relapse(line[max(0, end - 20) : end]) for end in ends)
    assert alarmed <= 4


def test_large_batches_prove_no_fall_that_nobody_would_notice() -> None:
    assert find_relapse(versions([900, 900, 900, 700, 700], of=1000)) is None
    assert find_relapse(versions([900, 900, 900, 500, 500], of=1000)) is not None


def test_steps_long_ago_do_not_count() -> None:
    """People have come to want something else; going back would not help them."""
    assert find_relapse(versions([*[15] * 6, *[3] * 13])) is not None
    assert find_relapse(versions([*[15] * 6, *[3] * 17])) is None


def test_where_samples_have_piled_up_it_goes_back_to_who_answered_them() -> None:
    """Their steps have led elsewhere meanwhile: what version 7 of such a line says, nobody knew."""
    line = versions([8, 8, 9, 8, 9, 9, 8, 1, 0])
    late = [
        replace(one, metrics=one.metrics | {"answered_by": max(0, one.version - 5)}) for one in line
    ]
    found = find_relapse(late)
    assert found is not None
    assert found.version == 2


def test_nothing_is_gone_back_to_that_displeases_now() -> None:
    """Samples had piled up: one version answered the good steps and the bad ones."""
    line = versions(COLLAPSE)
    late = [replace(one, metrics=one.metrics | {"answered_by": 0}) for one in line]
    assert find_relapse(late) is None
    line = versions([*COLLAPSE[:3], 16, *COLLAPSE[3:]])
    bad = [replace(one, metrics=one.metrics | {"answered_by": 3}) for one in line[-2:]]
    assert find_relapse([*line[:-2], *bad]) is None


def test_answers_of_versions_that_were_left_neither_count_nor_are_gone_back_to() -> None:
    """After a rollback what they had answered before it may still train, all of it after one."""
    line = versions([0, 0, 0, 0, 0, *COLLAPSE])
    before = [replace(one, lineage_id="old") if one.version in range(1, 6) else one for one in line]
    replayed = [
        replace(one, metrics=one.metrics | {"answered_by": one.version - 6})
        if one.version > 5
        else one
        for one in before
    ]
    assert find_relapse(replayed) is not None
    for number in range(1, 6):
        replayed = changed(replayed, number, state=VersionState.REJECTED)
    assert held_versions(replayed) == {0, *range(6, 11)}
    assert find_relapse(replayed) is None
    # Only the bad steps come from there, as where they had piled up when somebody rolled back.
    again = [
        replace(one, state=VersionState.RETIRED) if one.version < 4 else one for one in replayed
    ]
    assert find_relapse(again) is None


def test_what_a_restart_took_back_is_not_gone_back_to() -> None:
    """Its samples train again; it has files where its step had changed no weights."""
    line = versions([15, 15, 16, 15, 14, 1, 0])
    found = find_relapse(changed(line, 4, state=VersionState.ORPHANED))
    assert found is not None
    assert found.version == 2  # by then the fourth step is none, and 4 answered the fifth


def test_steps_without_verdicts_say_nothing() -> None:
    line = versions(COLLAPSE)
    unjudged = [replace(one, metrics={"samples": 16}) for one in line]
    assert find_relapse(unjudged) is None
    assert find_relapse([*unjudged[:3], *line[3:]]) is None


@pytest.mark.parametrize(
    "changes", [{"lineage_id": "other"}, {"state": VersionState.ORPHANED}], ids=str
)
def test_what_was_before_a_rollback_or_was_taken_back_does_not_count(
    changes: dict[str, object],
) -> None:
    line = versions(COLLAPSE)
    for number in (1, 2):
        line = changed(line, number, **changes)
    assert find_relapse(line) is None


def test_only_versions_that_are_still_there_are_gone_back_to() -> None:
    line = versions([15, 15, 16, 15, 14, 1, 0])
    found = find_relapse(line)
    assert found is not None
    assert found.version == 4
    found = find_relapse(changed(line, 4, files=False))
    assert found is not None
    assert found.version == 3
    found = find_relapse(changed(line, 4, state=VersionState.REJECTED))
    assert found is not None
    assert found.version == 3
    gone = [replace(one, files=False) for one in line]
    assert find_relapse(gone) is None
    assert worth_keeping(gone) == set()


SLOW_FALL = [16, 16, 16, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("keep_versions", [1, 2, 4, 8])
def test_a_slow_fall_is_seen_as_soon_with_few_weights_as_with_all(keep_versions: int) -> None:
    kept: set[int] = {0}
    for end in range(2, len(SLOW_FALL) + 2):
        whole = versions(SLOW_FALL)[:end]
        kept.add(whole[-1].version)
        known = [replace(one, files=one.version in kept) for one in whole]
        newest = sorted(kept)[-keep_versions:]
        kept = {0} | worth_keeping(known) | set(newest)
        known = [replace(one, files=one.version in kept) for one in whole]
        found = find_relapse(known)
        assert found == find_relapse(whole)
        if found is not None:
            break
    assert found is not None
    assert found.before.share > 0.9


def test_whoever_is_gone_back_to_was_worth_keeping_at_each_step_before() -> None:
    rng = random.Random(3)
    for _ in range(30):
        good = [rng.randrange(10, 17) for _ in range(rng.randrange(3, 25))]
        line = versions([*good, *[1] * 6])
        kept: set[int] = set()
        for end in range(4, len(line) + 1):
            known = line[:end]
            newest = {one.version for one in known[-2:]}
            known = [replace(one, files=one.version in kept | newest) for one in known]
            found = find_relapse(known)
            if found is not None:
                break
            kept = worth_keeping(known)
        assert found is not None
        assert found.before.share > 0.6
