"""What ``rejoinder status`` shows: one document from indexed counts.

Keys:
    policy        name
    learning      ``word`` and ``reason``; see ``learning.py``
    live          ``version``, ``since_s`` (seconds since it became live), ``uri``; or None
    turns         ``total``, ``states`` {state: n}, ``fates`` {fate: n}, ``state_fates``
                  {state: {fate: n}} (the fates of a state's turns), ``main`` n, ``side`` n;
                  ``newest`` (of the last 100): ``main``, ``side``, ``fates``
    samples       ``ready`` n, ``needed`` (batch size the trainer reports, or None), ``missing``,
                  ``full_s`` (how long a full batch has waited, or None), ``made`` n,
                  ``trained`` n, ``dropped`` {reason: n}: fates, and why samples that steps used up
                  changed no weights
    verdicts      ``scores`` and ``last_100`` {"-1", "0", "+1", "none": n}, people's scores among
                  them; ``by_next_state`` {user | tool | other | feedback: scores},
                  ``no_verdict`` {reason: n}, ``hints`` (turns with an accepted hint)
    judge         ``queued`` n, ``oldest_s`` (age of the oldest job or None), ``coverage`` (share of
                  judgements with a verdict, or None), ``asked`` (False: the algorithm needs no
                  verdicts, so replies are read for hints alone; None: no judge reports)
    training      ``lineage``, ``head_version``, ``next_step``, ``rollback`` (what opened the
                  lineage: ``version`` gone back to, ``step`` that made it or None of the start
                  weights, ``ago_s``; or None), ``steps``, ``orphaned``, ``last`` (step, version,
                  samples, mean_score, seconds, ago_s, metrics, untrained: {reason: samples that
                  changed no weights}), ``curve`` (the last 100 steps: step, version, samples,
                  mean_score)
    versions      {state: n}
    evaluations   the last 100: version, name, score, detail, ago_s
    roles         role, instance, pid, state, seen_s, ``fresh`` (it has reported lately, and its
                  process is not known to be gone), last_error, last_error_s, ``alarms``
                  (what is wrong although it goes on), detail
    external      endpoints off this machine that a living role reports in ``detail["external"]``
    counters      {role: {name: {reason: n}}}
    journal       ``bytes`` of the database
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from rejoinder.journal.columns import decode_json
from rejoinder.journal.learning import is_alive, judge_learning
from rejoinder.journal.lineages import describe, open_lineage_row
from rejoinder.journal.records import RoleReport
from rejoinder.journal.schema import (
    counters,
    evaluations,
    hints,
    judge_jobs,
    policy_versions,
    samples,
    steps,
    turns,
    verdicts,
)
from rejoinder.journal.training import ready_count, ready_since
from rejoinder.journal.watching import reports
from rejoinder.processes import process_space, runs
from rejoinder.types import Json, TurnType, VersionState

FRESH_S = 60.0
"""A role that has not reported for so long counts as gone."""
RECENT = 100
"""How many turns, verdicts, steps and evaluations count as recent."""


def status(connection: Connection, policy: str, max_staleness: int, now: float) -> Json:
    """Return the document; the connection should be a snapshot, so that its numbers agree."""
    roles = reports(connection)
    shown = [_role(report, now) for report in roles]
    document: Json = {
        "policy": policy,
        "learning": {},
        "live": _live(connection, policy, now),
        "turns": _turns(connection, policy),
        "samples": _samples(connection, policy, max_staleness, _batch_size(shown), now),
        "verdicts": _verdicts(connection, policy),
        "judge": _queue(connection, policy, now),
        "training": _training(connection, policy, now),
        "versions": _count_by(
            connection, policy_versions.c.state, policy_versions.c.policy == policy
        ),
        "evaluations": _evaluations(connection, policy, now),
        "roles": shown,
        "external": sorted(
            {place for one in shown if is_alive(one) for place in one["detail"].get("external", ())}
        ),
        "counters": _counters(connection),
        "journal": {"bytes": database_bytes(connection)},
    }
    document["judge"]["asked"] = _verdicts_are_asked(shown)
    document["judge"]["coverage"] = _coverage(document["verdicts"]["by_next_state"])
    document["learning"] = judge_learning(document)
    return document


def database_bytes(connection: Connection) -> int:
    """Return the size of the database file, without its log."""
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    return int(pages) * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())


def _count_by(
    connection: Connection, column: sa.Column[Any], where: sa.ColumnElement[bool]
) -> dict[str, int]:
    rows = connection.execute(
        sa.select(column, sa.func.count()).where(where, column.is_not(None)).group_by(column)
    )
    return {str(key): int(count) for key, count in rows}


def _live(connection: Connection, policy: str, now: float) -> Json | None:
    row = connection.execute(
        sa.select(policy_versions).where(
            policy_versions.c.policy == policy, policy_versions.c.state == VersionState.LIVE
        )
    ).first()
    if row is None:
        return None
    return {"version": row.version, "since_s": max(0.0, now - row.live_at), "uri": row.uri}


def _turns(connection: Connection, policy: str) -> Json:
    states: dict[str, int] = {}
    fates: Counter[str] = Counter()
    state_fates: dict[str, dict[str, int]] = {}
    types: dict[str, int] = {}
    for state, fate, turn_type, count in connection.execute(
        sa.select(turns.c.state, turns.c.fate, turns.c.turn_type, sa.func.count())
        .where(turns.c.policy == policy)
        .group_by(turns.c.state, turns.c.fate, turns.c.turn_type)
    ):
        states[state] = states.get(state, 0) + count
        types[turn_type] = types.get(turn_type, 0) + count
        if fate is not None:
            fates[fate] += count
            of_state = state_fates.setdefault(state, {})
            of_state[fate] = of_state.get(fate, 0) + count
    return {
        "total": sum(states.values()),
        "states": states,
        "fates": dict(fates),
        "state_fates": state_fates,
        "main": types.get(TurnType.MAIN, 0),
        "side": types.get(TurnType.SIDE, 0),
        "newest": _newest_turns(connection, policy),
    }


def _newest_turns(connection: Connection, policy: str) -> Json:
    """Count the newest turns alone: advice is about what happens now."""
    rows = connection.execute(
        sa.select(turns.c.turn_type, turns.c.fate)
        .where(turns.c.policy == policy)
        .order_by(turns.c.turn_id.desc())
        .limit(RECENT)
    ).all()
    types = Counter(row.turn_type for row in rows)
    return {
        "main": types[TurnType.MAIN],
        "side": types[TurnType.SIDE],
        "fates": dict(Counter(row.fate for row in rows if row.fate is not None)),
    }


def _samples(
    connection: Connection, policy: str, max_staleness: int, needed: int | None, now: float
) -> Json:
    row = open_lineage_row(connection, policy)
    full_since = None
    if row is None:  # no trainer has started yet: nothing is consumed or stale
        ready = _count(connection, samples, samples.c.policy == policy, samples.c.queued == 1)
    else:
        lineage = describe(connection, row)
        ready = ready_count(connection, lineage, max_staleness)
        if needed and ready >= needed:
            full_since = ready_since(connection, lineage, max_staleness, needed)
    used = connection.execute(
        sa.select(sa.func.sum(steps.c.samples)).where(
            steps.c.policy == policy, steps.c.orphaned_at.is_(None)
        )
    ).scalar()
    untrained = _untrained(connection, policy)
    dropped = Counter(_count_by(connection, samples.c.fate, samples.c.policy == policy))
    return {
        "ready": ready,
        "needed": needed,
        "missing": None if needed is None else max(0, needed - ready),
        "full_s": None if full_since is None else max(0.0, now - full_since),
        "made": _count(connection, samples, samples.c.policy == policy),
        "trained": int(used or 0) - untrained.total(),
        "dropped": dict(dropped + untrained),
    }


def _untrained(connection: Connection, policy: str) -> Counter[str]:
    """Count the samples that steps used up without changing a weight, by reason."""
    found: Counter[str] = Counter()
    for counts in connection.scalars(
        sa.select(steps.c.untrained).where(
            steps.c.policy == policy, steps.c.orphaned_at.is_(None), steps.c.untrained.is_not(None)
        )
    ):
        found.update(decode_json(counts))
    return found


def _count(connection: Connection, table: sa.Table, *where: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(*where)
    return int(connection.execute(query).scalar_one())


def _no_scores() -> dict[str, int]:
    return {"-1": 0, "0": 0, "+1": 0, "none": 0}


def _score_name(score: int | None) -> str:
    return "none" if score is None else f"{score:+d}" if score else "0"


def _verdicts(connection: Connection, policy: str) -> Json:
    total = _no_scores()
    by_kind: dict[str, dict[str, int]] = {}
    missing: dict[str, int] = {}
    for kind, score, why, count in connection.execute(
        sa.select(verdicts.c.kind, verdicts.c.score, verdicts.c.why, sa.func.count())
        .where(verdicts.c.policy == policy)
        .group_by(verdicts.c.kind, verdicts.c.score, verdicts.c.why)
    ):
        total[_score_name(score)] += count
        by_kind.setdefault(kind, _no_scores())[_score_name(score)] += count
        if score is None:
            missing[str(why)] = missing.get(str(why), 0) + count
    recent = _no_scores()
    for score in connection.scalars(
        sa.select(verdicts.c.score)
        .where(verdicts.c.policy == policy)
        .order_by(verdicts.c.created_at.desc())
        .limit(RECENT)
    ):
        recent[_score_name(score)] += 1
    its_policy = sa.select(turns.c.policy).where(turns.c.turn_id == hints.c.turn_id)
    hinted = (
        sa.select(sa.func.count())
        .select_from(hints)
        .where(hints.c.position == 0, its_policy.scalar_subquery() == policy)
    )
    return {
        "scores": total,
        "last_100": recent,
        "by_next_state": by_kind,
        "no_verdict": missing,
        "hints": int(connection.execute(hinted).scalar_one()),
    }


def _coverage(by_kind: dict[str, dict[str, int]]) -> float | None:
    """Return the share of judgements with a verdict; feedback is no judgement."""
    judged = [scores for kind, scores in by_kind.items() if kind != "feedback"]
    total = sum(sum(scores.values()) for scores in judged)
    return 1 - sum(scores["none"] for scores in judged) / total if total else None


def _verdicts_are_asked(roles: list[Json]) -> bool | None:
    """Return whether the newest living judge has a judge to ask; None if none lives."""
    for one in sorted(roles, key=lambda one: float(one["seen_s"])):
        if one["role"] == "judge" and is_alive(one):
            return one["detail"].get("fingerprint", "") is not None
    return None


def _queue(connection: Connection, policy: str, now: float) -> Json:
    count, oldest = connection.execute(
        sa.select(sa.func.count(), sa.func.min(judge_jobs.c.created_at)).where(
            judge_jobs.c.policy == policy
        )
    ).one()
    return {"queued": count, "oldest_s": None if oldest is None else max(0.0, now - oldest)}


def _training(connection: Connection, policy: str, now: float) -> Json:
    row = open_lineage_row(connection, policy)
    lineage = None if row is None else describe(connection, row)
    kept = sa.and_(steps.c.policy == policy, steps.c.orphaned_at.is_(None))
    curve = connection.execute(
        sa.select(steps).where(kept).order_by(steps.c.version.desc()).limit(RECENT)
    ).all()
    last = None
    if curve:
        newest = curve[0]
        last = {
            "step": newest.step,
            "version": newest.version,
            "samples": newest.samples,
            "mean_score": newest.mean_score,
            "seconds": newest.finished_at - newest.started_at,
            "ago_s": max(0.0, now - newest.finished_at),
            "metrics": decode_json(newest.metrics),
            "untrained": {} if newest.untrained is None else decode_json(newest.untrained),
        }
    return {
        "lineage": None if lineage is None else lineage.lineage_id,
        "head_version": None if lineage is None else lineage.head_version,
        "next_step": None if lineage is None else lineage.next_step,
        "rollback": None if row is None else _rollback(connection, row, now),
        "steps": _count(connection, steps, kept),
        "orphaned": _count(
            connection, steps, steps.c.policy == policy, steps.c.orphaned_at.is_not(None)
        ),
        "last": last,
        "curve": [
            {
                "step": step.step,
                "version": step.version,
                "samples": step.samples,
                "mean_score": step.mean_score,
            }
            for step in reversed(curve)
        ],
    }


def _rollback(connection: Connection, lineage: Any, now: float) -> Json | None:
    """Return what opened a lineage, unless it is the first."""
    if lineage.parent_id is None:
        return None
    step = connection.execute(
        sa.select(policy_versions.c.step).where(
            policy_versions.c.policy == lineage.policy,
            policy_versions.c.version == lineage.from_version,
        )
    ).scalar()
    ago_s = max(0.0, now - lineage.created_at)
    return {
        "version": lineage.from_version,
        "step": step,
        "ago_s": ago_s,
        "reason": lineage.reason,
    }


def _evaluations(connection: Connection, policy: str, now: float) -> list[Json]:
    rows = connection.execute(
        sa.select(evaluations)
        .where(evaluations.c.policy == policy)
        .order_by(evaluations.c.version.desc(), evaluations.c.created_at.desc())
        .limit(RECENT)
    ).all()
    return [
        {
            "version": row.version,
            "name": row.name,
            "score": row.score,
            "detail": decode_json(row.detail),
            "ago_s": max(0.0, now - row.created_at),
        }
        for row in reversed(rows)
    ]


def _batch_size(roles: list[Json]) -> int | None:
    """Return what the newest trainer that reports has as ``detail["batch_size"]``."""
    for one in roles:
        if one["role"] == "trainer" and one["fresh"]:
            size = one["detail"].get("batch_size")
            return size if isinstance(size, int) else None
    return None


def _role(report: RoleReport, now: float) -> Json:
    failed = report.last_error_at
    return {
        "role": report.role,
        "instance": report.instance,
        "pid": report.pid,
        "state": report.state,
        "seen_s": max(0.0, now - report.seen_at),
        "fresh": now - report.seen_at < FRESH_S and not _has_ended(report),
        "last_error": report.last_error,
        "last_error_s": None if failed is None else max(0.0, now - failed),
        "alarms": list(report.detail.get("alarms", ())),
        "detail": report.detail,
    }


def _has_ended(report: RoleReport) -> bool:
    """Whether the process is known to be gone; of one on another machine nobody here knows it.

    It had begun when it reported. Its start is no better a measure: it would make it another
    process as soon as the clock is set.
    """
    is_here = report.pid_space == process_space()
    return is_here and not runs(report.pid, report.seen_at)


def _counters(connection: Connection) -> Json:
    document: Json = {}
    for row in connection.execute(sa.select(counters)):
        document.setdefault(row.role, {}).setdefault(row.name, {})[row.reason] = row.amount
    return document
