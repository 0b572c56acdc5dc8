"""Short ways to tell a journal what happened; shared by the journal's contract and unit tests."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rejoinder.algorithms import build_algorithm
from rejoinder.config import TrainerConfig
from rejoinder.journal.records import (
    FinishedTurn,
    HintMaker,
    JudgeTask,
    Lineage,
    NextState,
    OpenTurn,
    PolicyVersion,
    SampleSpec,
    StepCommit,
    StepSample,
    TrainSample,
    judgement_of,
)
from rejoinder.journal.sql import SqlJournal
from rejoinder.judge.voting import NOT_ASKED
from rejoinder.types import (
    Fate,
    FinishReason,
    Judgement,
    Message,
    Sampling,
    Scope,
    TurnType,
    VersionRun,
    VersionState,
    Vote,
    WeightsKind,
    new_id,
)

POLICY = "default"
SCOPE = Scope("local", "local")
LEASE = "trainer/default"
MAKER = HintMaker("hints-llm-0123", "llm", "some model", "4567")
IMPLEMENTATIONS = ["sqlite"]
"""Schemes of the journals that the contract suites run on."""
_numbers = itertools.count()


def unique(name: str) -> bytes:
    """Return a hash no other call returns."""
    return f"{name}-{next(_numbers)}".encode()


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str) -> Message:
    return Message("assistant", text)


def opening(**changes: Any) -> OpenTurn:
    """A first request of a new session."""
    turn_id = new_id()
    fields: dict[str, Any] = {
        "turn_id": turn_id,
        "session_id": new_id(),
        "external_session": None,
        "scope": SCOPE,
        "policy": POLICY,
        "turn_type": TurnType.MAIN,
        "parent_id": None,
        "link_reason": "a new session",
        "completion_id": f"chatcmpl-{turn_id}",
        "choice": 0,
        "created_at": time.time(),
        "owner": "gateway-1",
        "messages": [user("What is the capital of France?")],
        "tools": None,
        "prompt_ids": [1, 2, 3, 4],
        "request_chain": unique("request"),
        "sampling": Sampling(max_tokens=64),
    }
    return OpenTurn(**{**fields, **changes})


def finishing(turn: OpenTurn, **changes: Any) -> FinishedTurn:
    """An answer of three tokens."""
    fields: dict[str, Any] = {
        "turn_id": turn.turn_id,
        "answered_at": time.time(),
        "answer_ids": [7, 8, 9],
        "logprobs": [-0.5, -0.25, -0.125],
        "versions": [VersionRun(0, 3)],
        "finish_reason": FinishReason.STOP,
        "message": assistant("Paris."),
        "answer_chain": unique("answer"),
    }
    return FinishedTurn(**{**fields, **changes})


def judgement(
    score: int | None, why: Fate | None = None, fingerprint: str = "judge-a"
) -> Judgement:
    return Judgement(score, (Vote(score, "because"),), fingerprint, why=why)


def holds(folder: Path, text: str) -> bool:
    """Whether a text is in any file of a journal.

    Another process looks: to close a database's file drops this process's locks on it.
    """
    files = [str(file) for file in folder.glob("journal.db*")]
    found = subprocess.run(["grep", "-aqF", text, *files], check=False)
    assert found.returncode in (0, 1)
    return found.returncode == 0


class Story:
    """One journal and what happens to it."""

    def __init__(self, journal: SqlJournal) -> None:
        self.journal = journal
        journal.ensure_policy(POLICY, "local", "/models/base", "base-hash")

    def answer(self, *, version: int = 0, finish: dict[str, Any] | None = None, **changes: Any):
        """An answered turn."""
        turn = opening(**changes)
        self.journal.open_turn(turn)
        runs = [VersionRun(version, 3)]
        self.journal.finish_turn(finishing(turn, **{"versions": runs, **(finish or {})})).result(9)
        return turn

    def reply(self, turn: OpenTurn, text: str = "Thanks!", *, role: str = "user") -> str:
        """The next request arrives with one message; returns the id of its turn."""
        child = new_id()
        state = NextState(turn.turn_id, child, [Message(role, text)], f"{role}:{text}".encode())
        self.journal.add_next_state(state).result(9)
        return child

    def claim(self, count: int = 1, owner: str = "judge-1") -> list[JudgeTask]:
        return self.journal.claim_judging(owner, count, lease_s=60)

    def judge(
        self, score: int | None, *, hints: Sequence[str] = (), why: Fate | None = None
    ) -> bool:
        """The judge claims the oldest job and commits what the binary algorithm would."""
        (task,) = self.claim()
        if score in (-1, 1):
            spec = SampleSpec(float(score), tuple(hints), MAKER if hints else None)
            return self.journal.commit_judgement(task, judgement(score), spec, None)
        fate = Fate.NEUTRAL if score == 0 else (why or Fate.JUDGE_FAILED)
        verdict = judgement(score, None if score == 0 else fate)
        return self.journal.commit_judgement(task, verdict, None, fate)

    def sample(
        self, score: int = 1, *, version: int = 0, hints: Sequence[str] = (), **changes: Any
    ) -> OpenTurn:
        """A turn that became a sample."""
        turn = self.answer(version=version, **changes)
        self.reply(turn)
        assert self.judge(score, hints=hints)
        return turn

    def lineage(self) -> Lineage:
        return self.journal.current_lineage(POLICY)

    def lease(self, owner: str = "trainer-1") -> int:
        fence = self.journal.acquire_lease(LEASE, owner, 60)
        assert fence is not None
        return fence

    def take(
        self, limit: int = 100, *, staleness: int = 4, tokens: int = 1000
    ) -> list[TrainSample]:
        return self.journal.take_samples(self.lineage(), limit, staleness, tokens)

    def commit(
        self, samples: Sequence[TrainSample], *, fence: int | None = None, **version: Any
    ) -> StepCommit:
        """Commit the next step with these samples."""
        commit = self.step(samples, **version)
        self.journal.commit_step(LEASE, self.lease() if fence is None else fence, commit)
        return commit

    def step(self, samples: Sequence[TrainSample], **changes: Any) -> StepCommit:
        lineage = self.lineage()
        fields: dict[str, Any] = {
            "policy": POLICY,
            "version": lineage.next_version,
            "uri": f"/policies/{lineage.next_version}",
            "kind": WeightsKind.FULL,
            "base_uri": "/models/base",
            "parent": lineage.head_version,
            "lineage_id": lineage.lineage_id,
            "step": lineage.next_step,
            "state": VersionState.CANDIDATE,
            "created_at": time.time(),
        }
        version = PolicyVersion(**{**fields, **changes})
        used = [
            StepSample(sample.sample_id, sample.reward, hints=sample.hints) for sample in samples
        ]
        metrics = {"loss": 0.5}
        return StepCommit(lineage.lineage_id, lineage.next_step, version, used, metrics, 1.0, 3.0)

    def train(self, limit: int = 100, **version: Any) -> StepCommit:
        """Take what is ready and commit a step with it."""
        return self.commit(self.take(limit), **version)

    def train_of(self, untrained: Mapping[str, str]) -> StepCommit:
        """Commit a step with what is ready; those turns change nothing in it, for these reasons."""
        taken = self.take()
        step = self.step(taken)
        used = [
            replace(one, untrained=untrained.get(sample.turn_id))
            for one, sample in zip(step.samples, taken, strict=True)
        ]
        step = replace(step, samples=used)
        self.journal.commit_step(LEASE, self.lease(), step)
        return step

    def ready(self, staleness: int = 4) -> int:
        return self.journal.ready_count(self.lineage(), staleness)

    def fate_of(self, turn: OpenTurn) -> tuple[str, str | None]:
        """State and fate of a turn."""
        rows = self.rows("SELECT state, fate FROM turns WHERE turn_id = ?", turn.turn_id)
        return rows[0]

    def sample_fate(self, turn: OpenTurn) -> str | None:
        return self.rows("SELECT fate FROM samples WHERE turn_id = ?", turn.turn_id)[0][0]

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        reader = self.journal.database.reader()
        return [tuple(row) for row in reader.exec_driver_sql(query, values)]

    def count(self, table: str) -> int:
        return self.rows(f"SELECT COUNT(*) FROM {table}")[0][0]


class Learning(Story):
    """A story of an algorithm: its gateways take feedback for it, and its judge asks it."""

    def __init__(self, url: str, algorithm: str) -> None:
        self.rule = build_algorithm(TrainerConfig(algorithm=algorithm))
        super().__init__(SqlJournal(url, rule=self.rule))

    def score(self, turn: OpenTurn, score: int, text: str | None = None) -> str:
        """A person scores an answer; returns what became of it."""
        given = self.journal.add_feedback(SCOPE, turn.completion_id, 0, score, text)
        return given.result(9).outcome

    def read(self, *hints: str, verdict: int | None = None) -> JudgeTask:
        """The judge claims the oldest job, and finds this verdict and these hints."""
        (task,) = self.claim()
        assert self.settle(task, *hints, verdict=verdict)
        return task

    def settle(self, task: JudgeTask, *hints: str, verdict: int | None = None) -> bool:
        """Commit a claimed job as the judging loop does."""
        said = None
        if self.rule.needs_verdicts and task.feedback is None:
            said = judgement(verdict, Fate.JUDGE_FAILED if verdict is None else None)
        standing = said or NOT_ASKED if task.feedback is None else judgement_of(task.feedback)
        signal = self.rule.sample_spec(standing, hints)
        if isinstance(signal, SampleSpec):
            return self.journal.commit_judgement(task, said, signal, None)
        return self.journal.commit_judgement(task, said, None, signal)

    def taught(self) -> list[tuple[float | None, tuple[str, ...]]]:
        """Reward and hints of each sample that could train now."""
        return [(sample.reward, sample.hints) for sample in self.take()]

    def counters(self, name: str) -> dict[str, int]:
        """What the judge counted under a name, by reason."""
        self.journal.flush()
        query = "SELECT reason, amount FROM counters WHERE role = 'judge' AND name = ?"
        return dict(self.rows(query, name))
