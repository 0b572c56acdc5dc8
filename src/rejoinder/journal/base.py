"""The journal seam: what each role may ask of the database.

One object implements all protocols (``SqlJournal``); a role is typed against the one it needs.
Calls are synchronous and safe from any thread; those that return a ``Future`` are grouped into one
transaction per flush (group commit) and resolve when durable. Nothing here knows HTTP or torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from rejoinder.journal.records import (
    AbortedTurn,
    EarlierResponse,
    FeedbackResult,
    FinishedTurn,
    JudgeTask,
    Lineage,
    NextState,
    OpenTurn,
    PolicyVersion,
    RoleReport,
    RollbackCause,
    SampleSpec,
    StepCommit,
    TrainSample,
)
from rejoinder.types import (
    ChainMatch,
    Fate,
    Json,
    Judgement,
    Message,
    SameRequest,
    Scope,
)

# --- serving ---------------------------------------------------------------------------------


class TurnJournal(Protocol):
    """The gateway's part."""

    def find_chains(
        self, scope: Scope, chains: Sequence[bytes], external_session: str | None = None
    ) -> list[ChainMatch]:
        """Return answered turns of the scope whose answer chain is in ``chains``.

        Within one session if one is given, by the client's name for it or by its internal id.
        """
        ...

    def find_same_request(
        self, scope: Scope, request_chain: bytes, external_session: str | None
    ) -> list[SameRequest]:
        """Return turns with this request chain; within one external session if one is given."""
        ...

    def read_answers(self, turn_ids: Sequence[str]) -> dict[str, Message]:
        """Return the answers of turns, as their clients saw them; broken ones are left out."""
        ...

    def read_turn_ids(self, turn_id: str) -> tuple[list[int], list[int]] | None:
        """Return the exact prompt ids and sampled ids of a turn; None where it has no answer."""
        ...

    def read_response(self, scope: Scope, response_id: str) -> bytes | None:
        """Return the object of a kept response of the scope's tenant and key, if there is one."""
        ...

    def read_earlier(self, scope: Scope, response_id: str) -> EarlierResponse | None:
        """Return the conversation of a kept response of the scope's tenant and key."""
        ...

    def delete_response(self, scope: Scope, response_id: str) -> Future[bool]:
        """Forget a kept response of the scope's tenant and key; whether there was one.

        Its turn stays: it is a record of what was sampled.
        """
        ...

    def find_session(self, scope: Scope, name: str) -> str | None:
        """Return the internal id of the session a client names, by its own name or by that id."""
        ...

    def open_turn(self, turn: OpenTurn) -> None:
        """Queue the row of an accepted request; opens the session too. Not waited for."""
        ...

    def finish_turn(self, turn: FinishedTurn) -> Future[None]:
        """Store an answer; the future resolves when it is durable."""
        ...

    def abort_turn(self, turn: AbortedTurn) -> Future[None]:
        """End a turn without an answer."""
        ...

    def supersede(self, turn_id: str, by: str) -> Future[None]:
        """Mark a turn as replaced by a retry; cancels its sample unless it was consumed."""
        ...

    def mark_ambiguous(self, turn_ids: Sequence[str]) -> Future[None]:
        """End waiting turns, provisionally, as ``ambiguous_parent``: a reply fits several."""
        ...

    def add_next_state(self, state: NextState) -> Future[None]:
        """Record a next state and queue the judging of its turn.

        With several children the first decisive next state counts, the others are recorded. A
        turn that had ended as ``no_next_state`` is reopened. Side, aborted and not trainable turns
        are recorded and not judged.
        """
        ...

    def add_feedback(
        self, scope: Scope, completion_id: str, choice: int, score: int, text: str | None
    ) -> Future[FeedbackResult]:
        """Store a person's own score; it outranks the judge until the sample is consumed.

        It replaces the verdict alone: hints of the turn stay, and where the algorithm learns from
        hints, replies are still read for them, and so is ``text``. Only for completions of the
        scope's tenant and key, whatever their ``user``.
        """
        ...

    def close_session(self, session_id: str, reason: str) -> Future[None]:
        """Close a session; its waiting turns end provisionally as ``no_next_state``."""
        ...

    def close_idle_sessions(self, idle_s: float) -> Future[int]:
        """Close sessions without a request for ``idle_s`` seconds; returns how many."""
        ...

    def abort_open_turns(self, owner_prefix: str, alive: Sequence[str]) -> Future[int]:
        """At start: abort turns left open by owners of this prefix that are not ``alive``."""
        ...


# --- judging ---------------------------------------------------------------------------------


class SampleRule(Protocol):
    """The part of an algorithm that judging and explicit feedback ask."""

    @property
    def needs_hints(self) -> bool:
        """Whether a reply can still teach after a person has scored the answer."""
        ...

    def sample_spec(self, judgement: Judgement, hints: Sequence[str] = ()) -> SampleSpec | Fate:
        """Return the learning signal of a judgement and its hints, or why there is none."""
        ...


class JudgeJournal(Protocol):
    """The judge's part."""

    def claim_judging(self, owner: str, limit: int, lease_s: float) -> list[JudgeTask]:
        """Claim queued jobs, oldest first, those of expired leases included."""
        ...

    def commit_judgement(
        self,
        task: JudgeTask,
        judgement: Judgement | None,
        sample: SampleSpec | None,
        fate: Fate | None,
        no_hint: str | None = None,
    ) -> bool:
        """Store verdict and votes, end the job, and make the sample, all in one transaction.

        ``judgement`` is None where no judge was asked: no verdict is stored then. ``fate`` says why
        there is no sample, and ``no_hint`` why a hint judge drew no hint from the next state. Hints
        that come after an earlier next state decided, or after the turn's sample was consumed, are
        dropped and counted as ``dropped_hints``.

        Returns False, changing nothing, if the lease was lost, the turn was superseded, or
        explicit feedback has scored it meanwhile; the job of a scored turn whose reply may still
        hold a hint is then claimed anew, with the score.
        """
        ...

    def retry_judging(
        self, task: JudgeTask, after_s: float, error: str, *, counts: bool = True
    ) -> None:
        """Give a job back for a later attempt.

        ``counts=False`` takes the claim's attempt back as well: nothing was tried (the engine is
        away, the judge shuts down).
        """
        ...

    def count(self, role: str, name: str, reason: str, amount: int = 1) -> None:
        """Add to a named counter (failed calls, rejected requests); queued, not waited for."""
        ...


# --- training --------------------------------------------------------------------------------


class TrainJournal(Protocol):
    """The trainer's part."""

    def acquire_lease(self, name: str, owner: str, ttl_s: float) -> int | None:
        """Take a named lease; returns its fence (a growing number), or None if it is held."""
        ...

    def renew_lease(self, name: str, fence: int, ttl_s: float) -> None:
        """Prolong a lease; raises ``LeaseLost`` if another owner has taken it."""
        ...

    def release_lease(self, name: str, fence: int) -> None:
        """Give a lease back; no error if it is lost already."""
        ...

    def current_lineage(self, policy: str) -> Lineage:
        """Return the policy's open lineage, opening the first one at version 0 if need be."""
        ...

    def fit_samples(self, lease: str, fence: int, policy: str, rule: SampleRule) -> int:
        """Put waiting samples aside that the algorithm would not make, as ``other_algorithm``.

        Those that were put aside before and that it would make wait again. Returns how many were
        put aside.

        Raises:
            LeaseLost: another trainer has taken over.
        """
        ...

    def ready_count(self, lineage: Lineage, max_staleness: int) -> int:
        """Samples that could train now: not consumed in the lineage, not cancelled, not stale."""
        ...

    def take_samples(
        self, lineage: Lineage, limit: int, max_staleness: int, max_tokens: int
    ) -> list[TrainSample]:
        """Return up to ``limit`` samples, oldest first, and drop stale or too long ones.

        Drops are rows with their fate. Nothing is consumed before ``commit_step``; what is not
        taken stays (cases: surplus samples lost).
        """
        ...

    def commit_step(self, lease: str, fence: int, commit: StepCommit) -> None:
        """Insert step, version and consumption, and make the version live, in one transaction.

        Raises:
            LeaseLost: the fence is not the lease's.
            JournalError: a sample is consumed in the lineage already, was cancelled or scored
                otherwise, or the lineage was closed by a rollback; nothing has been written.
        """
        ...

    def record_checkpoint(
        self, lease: str, fence: int, policy: str, version: int, uri: str
    ) -> None:
        """Record a checkpoint that was written after its version was committed.

        Raises:
            LeaseLost: the fence is not the lease's.
        """
        ...

    def rewind(self, lease: str, fence: int, lineage: Lineage, to_version: int) -> int:
        """After a restart: orphan later versions, free their samples, serve ``to_version``.

        Returns how many samples were freed.
        """
        ...

    def add_evaluation(
        self, policy: str, version: int, name: str, score: float, detail: Json
    ) -> None:
        """Keep an evaluation result with its version."""
        ...


# --- policies --------------------------------------------------------------------------------


class PolicyJournal(Protocol):
    """The registry's tables."""

    def ensure_policy(self, policy: str, tenant: str, base_uri: str, fingerprint: str) -> None:
        """Register a policy with its base as version 0, live.

        Raises:
            JournalError: it is registered with another base; the message says what to change.
        """
        ...

    def live_versions(self) -> list[PolicyVersion]:
        """Return the live version of every policy."""
        ...

    def versions(self, policy: str) -> list[PolicyVersion]:
        """Return all versions of a policy, oldest first."""
        ...

    def rollback(
        self,
        policy: str,
        to_version: int,
        *,
        replay: bool,
        cause: RollbackCause | None = None,
    ) -> Lineage:
        """Make an earlier version live and open a new lineage from it.

        Without ``replay`` the new lineage inherits what was consumed before; with it, samples
        consumed after ``to_version`` are free to train again. Either way what the weights of
        ``to_version`` have learnt counts as consumed, also where an earlier replay had freed it.

        The ``cause`` is told by ``status``; without one, a person does it.

        Raises:
            JournalError: the version cannot be served, or the lineage of the ``cause`` is open no
                more: somebody has rolled back meanwhile, and knows better.
            LeaseLost: the trainer of the ``cause`` holds its lease no more.
        """
        ...

    def forget_files(self, policy: str, version: int) -> None:
        """Record that a version's weights and checkpoint go, with those of all that share them.

        Raises:
            JournalError: one of them is live, or the version does not exist.
        """
        ...

    def forget_checkpoint(self, policy: str, version: int) -> None:
        """Record that retention deleted a version's optimizer state."""
        ...


# --- watching --------------------------------------------------------------------------------


class WatchJournal(Protocol):
    """What every role reports and what ``status``, export and retention read."""

    def report(self, report: RoleReport) -> None:
        """Upsert a heartbeat; queued, not waited for."""
        ...

    def check_file(self) -> None:
        """See whether the database's file is still in its place; reads no row.

        Where it is not, writes fail, at the latest half a second after the next one.

        Raises:
            JournalError: it was deleted or replaced; the message says what to do.
        """
        ...

    def reports(self) -> list[RoleReport]:
        """Return the newest heartbeat of each role instance."""
        ...

    def explain_turn(self, any_id: str) -> list[Json]:
        """Return why turns were linked as they are and what became of them.

        By a turn's id or a completion's, then one entry per answer; empty where neither is known.
        See ``journal/explain.py`` for the keys.
        """
        ...

    def similar_ids(self, text: str, limit: int) -> list[str]:
        """Return at most so many ids of turns and completions that begin with this text.

        If there is none, those of the same millisecond: of an id with a mistyped end.
        """
        ...

    def status(self, policy: str, max_staleness: int) -> Json:
        """Return the counts ``rejoinder status`` shows; see ``journal/status.py`` for the keys."""
        ...
