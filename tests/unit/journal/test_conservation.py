"""Whatever happens in whatever order: nothing is lost and nothing trains twice in a lineage."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from journal_story import LEASE, POLICY, SCOPE, Learning, finishing, opening

from rejoinder.errors import JournalError
from rejoinder.journal.lineages import consumed_of
from rejoinder.journal.records import AbortedTurn, JudgeTask, OpenTurn
from rejoinder.types import Fate, TurnType, new_id

picks = st.integers(0, 10**6)
scores = st.sampled_from([-1, 0, 1])


class Conservation(RuleBasedStateMachine):
    """Random orders of what gateways, judges and trainers do."""

    algorithm = "binary"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.turns: list[OpenTurn] = []
        self.open: list[OpenTurn] = []
        self.taken: list[Any] = []
        self.claimed: list[JudgeTask] = []
        self.trained_with: dict[str, tuple[Any, ...]] = {}

    @initialize()
    def start(self) -> None:
        self.story = Learning(f"sqlite:///{self.folder / 'journal.db'}", self.algorithm)

    def teardown(self) -> None:
        if hasattr(self, "story"):
            self.story.journal.close()
        shutil.rmtree(self.folder)

    def turn(self, pick: int) -> OpenTurn:
        """One of the last few turns, so that much happens to each."""
        return self.turns[-1 - pick % min(3, len(self.turns))]

    # --- serving ------------------------------------------------------------------------------

    @rule(side=st.booleans())
    def open_turn(self, side: bool) -> None:
        turn = opening(turn_type=TurnType.SIDE if side else TurnType.MAIN)
        self.story.journal.open_turn(turn)
        self.turns.append(turn)
        self.open.append(turn)

    @precondition(lambda self: self.open)
    @rule(pick=picks, good=st.booleans(), version=st.integers(0, 3))
    def finish(self, pick: int, good: bool, version: int) -> None:
        turn = self.open.pop(pick % len(self.open))
        logprobs = [-0.5, -0.5, -0.5] if good else [-0.5]
        self.story.journal.finish_turn(finishing(turn, logprobs=logprobs)).result(9)

    @precondition(lambda self: self.open)
    @rule(pick=picks)
    def abort(self, pick: int) -> None:
        turn = self.open.pop(pick % len(self.open))
        self.story.journal.abort_turn(AbortedTurn(turn.turn_id, Fate.CLIENT_GONE)).result(9)

    @precondition(lambda self: self.turns)
    @rule(pick=picks, text=st.sampled_from(["a", "b"]))
    def reply(self, pick: int, text: str) -> None:
        self.story.reply(self.turn(pick), text)

    @precondition(lambda self: self.turns)
    @rule(pick=picks, score=scores, text=st.sampled_from([None, "a", "c"]))
    def feedback(self, pick: int, score: int, text: str | None) -> None:
        turn = self.turn(pick)
        self.story.journal.add_feedback(SCOPE, turn.completion_id, 0, score, text).result(9)

    @precondition(lambda self: self.turns)
    @rule(pick=picks)
    def supersede(self, pick: int) -> None:
        superseded = self.story.journal.supersede(self.turn(pick).turn_id, new_id())
        self.story.journal.flush()  # it waits for what hurries, and this does
        superseded.result(9)

    @precondition(lambda self: self.turns)
    @rule(pick=picks)
    def close_session(self, pick: int) -> None:
        self.story.journal.close_session(self.turn(pick).session_id, "done").result(9)

    # --- judging and training -----------------------------------------------------------------

    @rule(score=scores | st.none(), hints=st.sampled_from([(), ("x",), ("y", "z")]))
    def judge(self, score: int | None, hints: tuple[str, ...]) -> None:
        if self.story.rows("SELECT 1 FROM judge_jobs WHERE owner IS NULL LIMIT 1"):
            self.story.read(*hints, verdict=score)

    @rule()
    def claim(self) -> None:
        self.claimed += self.story.claim()

    @precondition(lambda self: self.claimed)
    @rule(score=scores | st.none(), hints=st.sampled_from([(), ("x",)]))
    def settle(self, score: int | None, hints: tuple[str, ...]) -> None:
        self.story.settle(self.claimed.pop(0), *hints, verdict=score)

    @rule(score=st.sampled_from([-1, 1]))
    def sample(self, score: int) -> None:
        turn = self.story.answer(version=self.story.lineage().head_version)
        self.turns.append(turn)
        self.story.journal.add_feedback(SCOPE, turn.completion_id, 0, score, None).result(9)

    @rule()
    def train(self) -> None:
        self.story.train(3)

    @rule(limit=st.integers(1, 4), staleness=st.integers(0, 3))
    def take(self, limit: int, staleness: int) -> None:
        self.taken = self.story.take(limit, staleness=staleness)

    @rule()
    def commit(self) -> None:
        # They may be consumed, cancelled, scored otherwise or given hints since they were taken.
        with contextlib.suppress(JournalError):
            self.story.commit(self.taken)

    @rule(back=st.integers(0, 2))
    def rewind(self, back: int) -> None:
        lineage = self.story.lineage()
        with contextlib.suppress(JournalError):  # not in the lineage
            to = max(0, lineage.head_version - back)
            self.story.journal.rewind(LEASE, self.story.lease(), lineage, to)

    @rule(to=st.integers(0, 5), replay=st.booleans())
    def roll_back(self, to: int, replay: bool) -> None:
        """Also to a version that another rollback has rejected."""
        with contextlib.suppress(JournalError):  # missing or orphaned
            self.story.journal.rollback(POLICY, to, replay=replay)

    # --- what always holds --------------------------------------------------------------------

    @invariant()
    def every_turn_is_in_one_state_that_fits_its_rows(self) -> None:
        if not hasattr(self, "story"):
            return
        self.story.journal.flush()
        jobs = {turn for (turn,) in self.story.rows("SELECT turn_id FROM judge_jobs")}
        samples = {turn for (turn,) in self.story.rows("SELECT turn_id FROM samples")}
        rows = self.story.rows("SELECT turn_id, state, fate, superseded_by FROM turns")
        assert {turn_id for turn_id, *_ in rows} == {turn.turn_id for turn in self.turns}
        still_open = {turn.turn_id for turn in self.open}
        for turn_id, state, fate, superseded in rows:
            assert (state == "open") == (turn_id in still_open)
            assert (fate is None) == (state in ("open", "waiting", "judging", "sampled"))
            if state == "judging":
                assert turn_id in jobs
            if state == "waiting":
                assert turn_id not in jobs | samples
            if state == "sampled":
                assert turn_id in samples
            if superseded is not None:
                assert turn_id not in jobs

    @invariant()
    def every_sample_is_ready_consumed_or_dropped_with_a_reason(self) -> None:
        if not hasattr(self, "story"):
            return
        lineage = self.story.lineage()
        rows = self.story.rows("SELECT sample_id, queued, fate FROM samples")
        with self.story.journal.database.snapshot() as connection:
            consumed = consumed_of(connection, lineage.lineage_id, [row[0] for row in rows])
        for sample_id, queued, fate in rows:
            if fate is None:
                assert (sample_id in consumed) + queued == 1
            else:  # dropped since a replay freed it, it may be in the weights that were left then
                assert not queued

    @invariant()
    def no_weights_have_learnt_from_a_sample_twice(self) -> None:
        if not hasattr(self, "story"):
            return
        parents = {
            version.version: version.parent for version in self.story.journal.versions(POLICY)
        }
        learnt: list[str] = []
        version: int | None = self.story.lineage().head_version
        while version is not None:
            rows = self.story.rows(f"SELECT sample_id FROM consumption WHERE version = {version}")
            learnt += [sample_id for (sample_id,) in rows]
            version = parents[version]
        assert len(learnt) == len(set(learnt))

    @invariant()
    def what_a_sample_trained_with_is_what_the_journal_shows(self) -> None:
        if not hasattr(self, "story"):
            return
        rows = self.story.rows(
            "SELECT s.sample_id, s.reward, (SELECT COUNT(*) FROM hints h WHERE h.turn_id = "
            "s.turn_id) FROM samples s WHERE s.sample_id IN (SELECT sample_id FROM consumption) "
            "AND s.queued = 0"
        )
        shown = {sample_id: rest for sample_id, *rest in rows}
        for sample_id, rest in shown.items():
            assert self.trained_with.setdefault(sample_id, rest) == rest
        for sample_id in self.trained_with.keys() - shown.keys():  # a rewind has freed it
            del self.trained_with[sample_id]

    @invariant()
    def exactly_one_version_is_live_and_it_is_the_head(self) -> None:
        if not hasattr(self, "story"):
            return
        (live,) = self.story.journal.live_versions()
        assert live.version == self.story.lineage().head_version


def case(examples: int, steps: int, learns_by: str = "binary") -> type:
    """A test of so many random stories of so many steps."""

    class Machine(Conservation):
        algorithm = learns_by

    class Case(Machine.TestCase):
        settings = settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )

    return Case


class TestConservation(case(6, 30)):
    pass


class TestConservationOfHintsAndVerdicts(case(4, 30, "combine")):
    pass


class TestConservationOfHintsAlone(case(4, 30, "opd")):
    pass


@pytest.mark.slow
class TestConservationLong(case(300, 60)):
    pass


@pytest.mark.slow
class TestConservationOfHintsAndVerdictsLong(case(300, 60, "combine")):
    pass


@pytest.mark.slow
class TestConservationOfHintsAloneLong(case(300, 60, "opd")):
    pass
