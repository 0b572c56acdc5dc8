"""What the journal must show after any number of kills: rules 3 and 4, as queries.

Each query returns what must not be there. A consumption counts while its version is not orphaned.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from rejoinder.types import Fate, TurnState

_STATES = ", ".join(f"'{state}'" for state in TurnState)
_FATES = ", ".join(f"'{fate}'" for fate in Fate)

ALWAYS = {
    "a turn in no known state": f"SELECT turn_id FROM turns WHERE state NOT IN ({_STATES})",
    "a turn that ended without a named fate": (
        "SELECT turn_id FROM turns WHERE state IN ('ended', 'aborted', 'no_verdict') "
        f"AND (fate IS NULL OR fate NOT IN ({_FATES}))"
    ),
    "an answered turn without its ids": (
        "SELECT t.turn_id FROM turns t LEFT JOIN answers a USING (turn_id) "
        "WHERE t.state NOT IN ('open', 'aborted') AND a.turn_id IS NULL"
    ),
    "a turn that is sampled without a sample": (
        "SELECT t.turn_id FROM turns t LEFT JOIN samples s USING (turn_id) "
        "WHERE t.state = 'sampled' AND s.sample_id IS NULL"
    ),
    "two samples of one turn": "SELECT turn_id FROM samples GROUP BY turn_id HAVING COUNT(*) > 1",
    "a turn that is being judged without a job": (
        "SELECT t.turn_id FROM turns t LEFT JOIN judge_jobs j USING (turn_id) "
        "WHERE t.state = 'judging' AND j.job_id IS NULL"
    ),
    "a verdict that counts twice": (
        "SELECT turn_id FROM verdicts GROUP BY turn_id, digest, fingerprint HAVING COUNT(*) > 1"
    ),
    "a sample that trained twice in a lineage": (
        "SELECT sample_id FROM consumption GROUP BY lineage_id, sample_id HAVING COUNT(*) > 1"
    ),
    "a consumption without its step": (
        "SELECT c.sample_id FROM consumption c LEFT JOIN steps s "
        "ON s.lineage_id = c.lineage_id AND s.version = c.version AND s.orphaned_at IS NULL "
        "WHERE s.version IS NULL"
    ),
    "a step that consumed another number of samples than it says": (
        "SELECT s.version FROM steps s LEFT JOIN consumption c "
        "ON c.lineage_id = s.lineage_id AND c.version = s.version "
        "WHERE s.orphaned_at IS NULL GROUP BY s.version, s.samples "
        "HAVING COUNT(c.sample_id) <> s.samples"
    ),
    "a sample that both trained and was dropped": (
        "SELECT s.sample_id FROM samples s JOIN consumption c USING (sample_id) "
        "WHERE s.fate IS NOT NULL"
    ),
    "a sample neither queued nor trained nor dropped": (
        "SELECT s.sample_id FROM samples s LEFT JOIN consumption c USING (sample_id) "
        "WHERE s.queued = 0 AND s.fate IS NULL AND c.sample_id IS NULL"
    ),
    "a sample queued although it trained": (
        "SELECT s.sample_id FROM samples s JOIN consumption c USING (sample_id) "
        "JOIN lineages l ON l.lineage_id = c.lineage_id "
        "WHERE s.queued = 1 AND l.closed_at IS NULL"
    ),
    "a step without its version": (
        "SELECT s.version FROM steps s LEFT JOIN policy_versions v "
        "ON v.policy = s.policy AND v.version = s.version WHERE v.version IS NULL"
    ),
    "a version whose parent is no version": (
        "SELECT v.version FROM policy_versions v LEFT JOIN policy_versions p "
        "ON p.policy = v.policy AND p.version = v.parent "
        "WHERE v.version > 0 AND p.version IS NULL"
    ),
    "a version on an orphan": (
        "SELECT v.version FROM policy_versions v JOIN policy_versions p "
        "ON p.policy = v.policy AND p.version = v.parent "
        "WHERE p.state = 'orphaned' AND v.state <> 'orphaned'"
    ),
    "an orphaned version whose step still counts": (
        "SELECT v.version FROM policy_versions v JOIN steps s "
        "ON s.policy = v.policy AND s.version = v.version "
        "WHERE (v.state = 'orphaned') <> (s.orphaned_at IS NOT NULL)"
    ),
    "a policy without exactly one live version": (
        "SELECT policy FROM policy_versions GROUP BY policy HAVING SUM(state = 'live') <> 1"
    ),
    "a gap in the steps of a lineage": (
        "SELECT lineage_id FROM steps WHERE orphaned_at IS NULL GROUP BY lineage_id "
        "HAVING MAX(step) <> COUNT(*) OR MIN(step) <> 1"
    ),
}
SETTLED = {
    "a turn left open": "SELECT turn_id FROM turns WHERE state = 'open'",
    "a turn left to be judged": "SELECT turn_id FROM turns WHERE state = 'judging'",
}
"""Only once nobody talks, every role has been started again and the judge's queue is empty."""


def audit(home: Path, *, settled: bool, counts: dict[str, int] | None = None) -> list[str]:
    """Return every violation, in words with an example.

    Args:
        home: of the system; ``answers.jsonl`` in it is what the clients heard.
        settled: whether turns must have come to rest.
        counts: filled with the numbers behind the checks.
    """
    heard = _heard(home)  # before the journal is read: what was heard must be in it
    with sqlite3.connect(f"file:{home / 'journal.db'}?mode=ro", uri=True) as connection:
        connection.execute("BEGIN")  # all queries see one state
        queries = ALWAYS | (SETTLED if settled else {})
        violations = [
            f"{name}: {rows[0][0]} ({len(rows)} in all)"
            for name, query in queries.items()
            if (rows := connection.execute(query).fetchall())
        ]
        violations += _lost(connection, heard)
        violations += _missing_files(connection)
        if counts is not None:
            counts.update(_counts(connection), answers_heard=len(heard))
    return violations


def queued(home: Path) -> int:
    """Return how many turns wait for the judge."""
    with sqlite3.connect(f"file:{home / 'journal.db'}?mode=ro", uri=True) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM judge_jobs").fetchone()[0])


def _heard(home: Path) -> dict[str, str]:
    file = home / "answers.jsonl"
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    # The last line may be cut where this program itself was killed.
    parsed = [json.loads(line) for line in lines if line.endswith("}")]
    return {entry["id"]: entry["text"] for entry in parsed}


def _lost(connection: sqlite3.Connection, heard: dict[str, str]) -> list[str]:
    """Return answers that a client got to the end and the journal does not hold as such."""
    held = {
        id_: json.loads(message)[0]["content"]  # short ones are stored in their row
        for id_, message in connection.execute(
            "SELECT t.completion_id, a.message FROM turns t JOIN answers a USING (turn_id) "
            "WHERE t.state <> 'aborted' AND a.message IS NOT NULL"
        )
    }
    lost = [id_ for id_ in heard if id_ not in held]
    changed = [id_ for id_ in heard if id_ in held and held[id_] != heard[id_]]
    found = [f"an answer that a client got is lost: {lost[0]} ({len(lost)} in all)"] if lost else []
    if changed:
        found.append(f"an answer is recorded otherwise than it was sent: {changed[0]}")
    return found


def _missing_files(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(
        "SELECT version, uri, checkpoint_uri FROM policy_versions WHERE files = 1 "
        "AND state <> 'orphaned'"
    )
    return [
        f"version {version} names files that are not there: {uri}"
        for version, *uris in rows
        for uri in uris
        if uri is not None and not Path(uri.removeprefix("file://")).is_dir()
    ]


def _counts(connection: sqlite3.Connection) -> dict[str, int]:
    queries = {
        "turns": "SELECT COUNT(*) FROM turns",
        "verdicts": "SELECT COUNT(*) FROM verdicts",
        "samples": "SELECT COUNT(*) FROM samples",
        "consumed": "SELECT COUNT(*) FROM consumption",
        "steps": "SELECT COUNT(*) FROM steps WHERE orphaned_at IS NULL",
        "orphaned": "SELECT COUNT(*) FROM steps WHERE orphaned_at IS NOT NULL",
    }
    return {name: int(connection.execute(q).fetchone()[0]) for name, q in queries.items()}
