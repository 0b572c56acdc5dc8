"""The trainer's part: which samples are ready, and the exactly-once commit of a step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.errors import JournalError
from rejoinder.journal import leasing
from rejoinder.journal.columns import (
    decode_ids,
    decode_logprobs,
    decode_sampling,
    decode_versions,
    encode_json,
)
from rejoinder.journal.lineages import consumed_of, fresh_versions, is_consumed
from rejoinder.journal.payloads import read_prompt_ids, read_request
from rejoinder.journal.policies import insert_version, make_live
from rejoinder.journal.records import Lineage, StepCommit, StepSample, TrainSample
from rejoinder.journal.schema import (
    answers,
    consumption,
    hints,
    lineages,
    policy_versions,
    prompts,
    samples,
    steps,
    turns,
)
from rejoinder.types import Fate, VersionState

_QUEUED = samples.c.queued == sa.literal_column("1")  # a literal: partial indexes need it


def _ready(lineage: Lineage, versions: Sequence[int]) -> sa.ColumnElement[bool]:
    return sa.and_(
        _QUEUED, samples.c.policy == lineage.policy, samples.c.oldest_version.in_(versions)
    )


def ready_count(connection: Connection, lineage: Lineage, max_staleness: int) -> int:
    """Count the samples that could train now."""
    versions = fresh_versions(connection, lineage, max_staleness)
    count = sa.select(sa.func.count()).select_from(samples).where(_ready(lineage, versions))
    return int(connection.execute(count).scalar_one())


def ready_since(
    connection: Connection, lineage: Lineage, max_staleness: int, count: int
) -> float | None:
    """Return when the ``count``-th of the ready samples was made: since then a batch is full."""
    versions = fresh_versions(connection, lineage, max_staleness)
    made = sa.select(samples.c.created_at).where(_ready(lineage, versions))
    return connection.execute(
        made.order_by(samples.c.created_at).limit(1).offset(count - 1)
    ).scalar()


def has_unfit(
    connection: Connection, lineage: Lineage, max_staleness: int, max_tokens: int
) -> bool:
    """Return whether ``drop_unfit`` would drop something; a read, so that it is asked first."""
    found = sa.select(samples.c.sample_id).where(
        _QUEUED,
        samples.c.policy == lineage.policy,
        sa.or_(
            samples.c.oldest_version.not_in(fresh_versions(connection, lineage, max_staleness)),
            samples.c.tokens > max_tokens,
            is_consumed(connection, lineage.lineage_id),
        ),
    )
    return connection.execute(found.limit(1)).first() is not None


def drop_unfit(
    connection: Connection, lineage: Lineage, max_staleness: int, max_tokens: int
) -> None:
    """Drop stale and too long samples; the reason stays with the row.

    Where the version that sampled one was taken back, the reason says by what. One that has trained
    already, as when it was put aside while a rollback went to what it had trained, waits no more.

    Raises:
        JournalError: the lineage was closed by a rollback.
    """
    _must_be_open(connection, lineage.lineage_id)
    waiting = sa.and_(_QUEUED, samples.c.policy == lineage.policy)
    consumed = is_consumed(connection, lineage.lineage_id)
    connection.execute(sa.update(samples).where(waiting, consumed).values(queued=0))
    stale = samples.c.oldest_version.not_in(fresh_versions(connection, lineage, max_staleness))
    for unfit, fate in (
        (sa.and_(stale, _sampled_by(lineage.policy, VersionState.ORPHANED)), Fate.ORPHANED),
        (sa.and_(stale, _sampled_by(lineage.policy, VersionState.REJECTED)), Fate.ROLLED_BACK),
        (stale, Fate.STALE),
        (samples.c.tokens > max_tokens, Fate.LIMIT),
    ):
        connection.execute(
            sa.update(samples)
            .where(waiting, unfit)
            .values(queued=0, fate=fate, ended_at=time.time())
        )


def _sampled_by(policy: str, state: VersionState) -> sa.ColumnElement[bool]:
    """Of a sample: a version in this state is the oldest that sampled it."""
    versions = sa.select(policy_versions.c.version).where(
        policy_versions.c.policy == policy, policy_versions.c.state == state
    )
    return samples.c.oldest_version.in_(versions)


def read_samples(
    connection: Connection, lineage: Lineage, limit: int, max_staleness: int
) -> list[TrainSample]:
    """Read up to ``limit`` ready samples with their arrays, oldest first."""
    versions = fresh_versions(connection, lineage, max_staleness)
    rows = connection.execute(
        sa.select(
            samples.c.sample_id,
            samples.c.turn_id,
            samples.c.session_id,
            samples.c.reward,
            turns.c.created_at,
            turns.c.trajectory,
            answers.c.answer_ids,
            answers.c.logprobs,
            answers.c.versions,
            prompts.c.sampling,
        )
        .join(turns, turns.c.turn_id == samples.c.turn_id)
        .join(answers, answers.c.turn_id == samples.c.turn_id)
        .join(prompts, prompts.c.turn_id == samples.c.turn_id)
        .where(_ready(lineage, versions))
        .order_by(samples.c.created_at, samples.c.sample_id)
        .limit(limit)
    ).all()
    texts = _read_hints(connection, [row.turn_id for row in rows])
    return [_sample(connection, row, texts.get(row.turn_id, ())) for row in rows]


def _read_hints(connection: Connection, turn_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read the hints of turns; those without any are left out."""
    texts: dict[str, tuple[str, ...]] = {}
    for turn_id, text in connection.execute(
        sa.select(hints.c.turn_id, hints.c.text)
        .where(hints.c.turn_id.in_(turn_ids))
        .order_by(hints.c.turn_id, hints.c.position)
    ):
        texts[turn_id] = (*texts.get(turn_id, ()), text)
    return texts


def _sample(connection: Connection, row: Any, texts: tuple[str, ...]) -> TrainSample:
    """Read one sample; its conversation only where hints will be put into it."""
    request = read_request(connection, row.turn_id) if texts else None
    return TrainSample(
        sample_id=row.sample_id,
        turn_id=row.turn_id,
        session_id=row.session_id,
        trajectory=row.trajectory,
        prompt_ids=request.prompt_ids if request else read_prompt_ids(connection, row.turn_id),
        answer_ids=decode_ids(row.answer_ids),
        logprobs=decode_logprobs(row.logprobs),
        versions=decode_versions(row.versions),
        temperature=decode_sampling(row.sampling).temperature,
        reward=row.reward,
        hints=texts,
        created_at=row.created_at,
        messages=request.messages if request else (),
        tools=request.tools if request else None,
        options=request.options if request else None,
    )


def commit_step(connection: Connection, lease: str, fence: int, commit: StepCommit) -> None:
    """Insert step, version and consumption and make the version live; all or nothing.

    Raises:
        LeaseLost: the fence is not the lease's.
        JournalError: the lineage is closed, a sample is consumed, cancelled or scored otherwise,
            or the version's number is taken.
    """
    leasing.check(connection, lease, fence)
    _must_be_open(connection, commit.lineage_id)
    _must_be_unchanged(connection, commit.lineage_id, commit.samples)
    version = commit.version
    rewards = [used.reward for used in commit.samples if used.reward is not None]
    untrained = Counter(used.untrained for used in commit.samples if used.untrained is not None)
    insert_version(connection, version, commit.lineage_id, commit.step)
    taken = sa.select(steps.c.version).where(
        steps.c.lineage_id == commit.lineage_id,
        steps.c.step == commit.step,
        steps.c.orphaned_at.is_(None),
    )
    if connection.execute(taken).first() is not None:
        raise JournalError(f"step {commit.step} of this lineage has been committed already")
    connection.execute(
        sa.insert(steps).values(
            policy=version.policy,
            version=version.version,
            lineage_id=commit.lineage_id,
            step=commit.step,
            samples=len(commit.samples),
            mean_score=sum(rewards) / len(rewards) if rewards else None,
            metrics=encode_json(commit.metrics),
            started_at=commit.started_at,
            finished_at=commit.finished_at,
            untrained=encode_json(untrained) if untrained else None,
        )
    )
    if commit.samples:
        connection.execute(
            sa.insert(consumption),
            [
                {
                    "lineage_id": commit.lineage_id,
                    "sample_id": used.sample_id,
                    "version": version.version,
                    "untrained": used.untrained,
                }
                for used in commit.samples
            ],
        )
    used_ids = [used.sample_id for used in commit.samples]
    connection.execute(sa.update(samples).where(samples.c.sample_id.in_(used_ids)).values(queued=0))
    make_live(connection, version.policy, version.version, VersionState.RETIRED)


def rewind(
    connection: Connection, lease: str, fence: int, lineage: Lineage, to_version: int
) -> int:
    """Orphan the lineage's versions after ``to_version`` and free what they consumed.

    Raises:
        LeaseLost: the fence is not the lease's.
        JournalError: the lineage is closed, or ``to_version`` is not in it.
    """
    leasing.check(connection, lease, fence)
    _must_be_open(connection, lineage.lineage_id)
    later = sa.and_(
        policy_versions.c.lineage_id == lineage.lineage_id,
        policy_versions.c.version > to_version,
        policy_versions.c.state != VersionState.ORPHANED,
    )
    known = sa.select(policy_versions.c.version).where(
        policy_versions.c.policy == lineage.policy,
        policy_versions.c.version == to_version,
        sa.or_(
            policy_versions.c.lineage_id == lineage.lineage_id,
            policy_versions.c.version == lineage.from_version,
        ),
        policy_versions.c.state != VersionState.ORPHANED,
    )
    if connection.execute(known).first() is None:
        raise JournalError(
            f"cannot rewind {lineage.policy!r} to version {to_version}: it is not in the lineage"
        )
    freed = free_consumed(connection, lineage.lineage_id, to_version)
    connection.execute(
        sa.update(steps)
        .where(
            steps.c.lineage_id == lineage.lineage_id,
            steps.c.version > to_version,
            steps.c.orphaned_at.is_(None),
        )
        .values(orphaned_at=time.time())
    )
    make_live(connection, lineage.policy, to_version, VersionState.RETIRED)
    connection.execute(sa.update(policy_versions).where(later).values(state=VersionState.ORPHANED))
    return freed


def free_consumed(connection: Connection, lineage_id: str, after_version: int) -> int:
    """Undo the consumption of steps after a version; returns how many samples are free again."""
    undone = sa.and_(consumption.c.lineage_id == lineage_id, consumption.c.version > after_version)
    sample_ids = connection.scalars(sa.select(consumption.c.sample_id).where(undone)).all()
    connection.execute(sa.delete(consumption).where(undone))
    freed = connection.execute(
        sa.update(samples)
        .where(samples.c.sample_id.in_(sample_ids), samples.c.fate.is_(None))
        .values(queued=1)
    )
    return freed.rowcount


def _must_be_open(connection: Connection, lineage_id: str) -> None:
    row = connection.execute(
        sa.select(lineages.c.closed_at).where(lineages.c.lineage_id == lineage_id)
    ).first()
    if row is None or row.closed_at is not None:
        raise JournalError("the lineage was closed by a rollback: ask for the current lineage")


def _must_be_unchanged(connection: Connection, lineage_id: str, used: Sequence[StepSample]) -> None:
    """Refuse a step whose samples are no longer what it was computed from.

    A person's score may come while the step's files are written: it was accepted, so it counts. So
    may a hint.
    """
    trained = {one.sample_id: one for one in used}
    if len(trained) != len(used):
        raise JournalError("a sample is named twice in one step")
    consumed = consumed_of(connection, lineage_id, list(trained))
    if consumed:
        raise JournalError(f"{len(consumed)} samples of the step are consumed in the lineage")
    rows = connection.execute(
        sa.select(samples.c.sample_id, samples.c.turn_id, samples.c.reward).where(
            samples.c.sample_id.in_(list(trained)), samples.c.fate.is_(None)
        )
    ).all()
    if len(rows) != len(trained):
        raise JournalError(f"{len(trained) - len(rows)} samples of the step were cancelled")
    rescored = sum(row.reward != trained[row.sample_id].reward for row in rows)
    if rescored:
        raise JournalError(f"{rescored} samples of the step were scored otherwise meanwhile")
    texts = _read_hints(connection, [row.turn_id for row in rows])
    hinted = sum(texts.get(row.turn_id, ()) != trained[row.sample_id].hints for row in rows)
    if hinted:
        raise JournalError(f"{hinted} samples of the step were given other hints meanwhile")
