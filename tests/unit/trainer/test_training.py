"""The training loop with a real journal: what is committed, and what survives what."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from journal_story import POLICY, SCOPE

from rejoinder.algorithms import build_algorithm
from rejoinder.algorithms.base import Algorithm
from rejoinder.algorithms.binary import Binary
from rejoinder.config import Config, TrainerConfig
from rejoinder.errors import JournalError
from rejoinder.journal.records import TrainSample
from rejoinder.journal.sql import SqlJournal
from rejoinder.policy.durable import durable_directory
from rejoinder.policy.files import PolicyFiles
from rejoinder.trainer import lease as lease_module
from rejoinder.trainer import training
from rejoinder.trainer.base import SignalledTurn, StepFigures, TeacherAway, TeacherFailed
from rejoinder.trainer.heartbeat import Heartbeat
from rejoinder.trainer.hinted import TeacherPrompts
from rejoinder.trainer.loop import run_trainer
from rejoinder.trainer.progress import StepProgress
from rejoinder.trainer.relapse import JudgedStep, Relapse, find_relapse
from rejoinder.trainer.trackers import Trackers
from rejoinder.trainer.training import Surroundings, TrainingLoop
from rejoinder.types import VersionRun

from .fake_backend import FakeBackend
from .train_story import TrainStory

PATIENCE_S = 20.0
LEASE = f"trainer:{POLICY}"


class Trainer:
    """One training loop in a thread."""

    def __init__(self, config: Config, story: TrainStory) -> None:
        self.config = config
        self.story = story
        self.backend = FakeBackend()
        self.files = PolicyFiles(config.versions_path, POLICY)
        self.trackers = Trackers({})
        self.algorithm: Algorithm = Binary()
        self.hinted: Any = None
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive()
            self._thread = None
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with (
                SqlJournal(self.config.journal_url) as journal,
                Heartbeat(journal, {"batch_size": self.config.trainer.batch_size}) as heartbeat,
                StepProgress() as progress,
            ):
                TrainingLoop(
                    journal,
                    self.backend,
                    self.algorithm,
                    self.config.trainer,
                    POLICY,
                    self.files,
                    Surroundings(heartbeat, progress, self.trackers, hinted=self.hinted),
                ).run(self._stop)
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
            self.failure = error

    def until(self, condition: Callable[[], bool]) -> None:
        """Run, or go on running, until a condition holds."""
        if self._thread is None:
            self.start()
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "the condition never came true"
            assert self._thread is not None
            assert self._thread.is_alive(), self.failure
            time.sleep(0.01)

    def train(self, steps: int) -> None:
        """Run until so many steps count, then stop cleanly."""
        self.until(lambda: bool(self.backend.loads) and len(self.story.steps()) >= steps)
        self.stop()


@pytest.fixture
def make_trainer(
    make_config: Callable[..., Config], story: TrainStory
) -> Iterator[Callable[..., Trainer]]:
    made: list[Trainer] = []

    def make(**settings: Any) -> Trainer:
        made.append(Trainer(make_config(**settings), story))
        return made[-1]

    yield make
    for trainer in made:
        trainer.stop()


Make = Callable[..., Trainer]


def test_a_step_takes_a_batch_and_leaves_the_rest(make_trainer: Make, story: TrainStory) -> None:
    # B085, B101, B103
    story.add_samples(6)
    trainer = make_trainer()
    trainer.train(1)
    assert story.steps() == [(1, 1, 4)]
    assert story.ready() == 2
    assert len(trainer.backend.learned) == 4


def test_too_few_samples_are_waited_for(make_trainer: Make, story: TrainStory) -> None:
    story.add_samples(3)
    trainer = make_trainer()
    trainer.until(lambda: collecting(story) == "collecting 3/4")
    assert story.steps() == []
    assert story.journal.status(POLICY, 4)["samples"]["missing"] == 1
    story.add_sample(1, seed=9)
    trainer.train(1)
    assert story.steps() == [(1, 1, 4)]


def collecting(story: TrainStory) -> str | None:
    for report in story.journal.reports():
        if report.role == "trainer":
            message: str | None = report.detail.get("message")
            return message
    return None


def test_a_version_is_live_with_its_files_and_figures(
    make_trainer: Make, story: TrainStory
) -> None:
    story.add_samples(4)
    trainer = make_trainer()
    trainer.train(1)
    version = story.versions()[1]
    assert story.live() == 1
    assert (version.parent, version.step) == (0, 1)
    assert (trainer.files.version(1) / "weights.json").is_file()
    assert version.uri == trainer.files.version(1).as_uri()
    for name in ("loss", "reward_mean", "staleness_mean", "advantage_mean", "seconds", "samples"):
        assert name in version.metrics
    assert version.metrics["staleness_mean"] == 0.0
    assert version.metrics["mixed_version_turns"] == 0


def test_a_clean_stop_keeps_the_optimizer(make_trainer: Make, story: TrainStory) -> None:
    story.add_samples(4)
    first = make_trainer(checkpoint_every=100)
    first.train(1)
    assert first.files.checkpoints() == [1]
    assert story.versions()[1].checkpoint_uri == first.files.checkpoint(1).as_uri()
    story.add_samples(4, first_seed=10)
    second = make_trainer(checkpoint_every=100)
    second.train(2)
    assert second.backend.loads == [(4, 1)]
    assert story.steps() == [(1, 1, 4), (2, 2, 4)]


def test_a_lost_optimizer_rewinds_to_the_newest_checkpoint(
    make_trainer: Make, story: TrainStory
) -> None:
    """As after a kill: version 3 has no checkpoint, so its samples train again from version 2."""
    story.add_samples(12)
    first = make_trainer(checkpoint_every=2)
    first.train(3)
    shutil.rmtree(first.files.checkpoint(3))
    second = make_trainer(checkpoint_every=2)
    second.train(3)
    assert second.backend.loads == [(8, 2)]
    assert story.steps() == [(1, 1, 4), (2, 2, 4), (3, 4, 4)]  # numbers are never used twice
    assert story.versions()[3].state == "orphaned"
    assert story.versions()[4].parent == 2
    consumed = story.consumed()
    assert len(consumed) == len(set(consumed)) == 12


def test_without_any_checkpoint_the_lineage_begins_anew(
    make_trainer: Make, story: TrainStory
) -> None:
    story.add_samples(4)
    first = make_trainer()
    first.train(1)
    shutil.rmtree(first.files.checkpoint(1))
    second = make_trainer()
    second.train(1)
    assert second.backend.loads == [(0, 0)]
    assert story.steps() == [(1, 2, 4)]


def test_a_checkpoint_without_its_marker_does_not_count(
    make_trainer: Make, story: TrainStory
) -> None:  # B099
    story.add_samples(8)
    first = make_trainer(checkpoint_every=1)
    first.train(2)
    (first.files.checkpoint(2) / "rejoinder.json").unlink()
    second = make_trainer(checkpoint_every=1)
    second.train(2)
    assert second.backend.loads == [(4, 1)]
    assert story.steps() == [(1, 1, 4), (2, 3, 4)]


def test_a_version_without_weights_is_not_gone_on_from(
    make_trainer: Make, story: TrainStory
) -> None:  # B099
    story.add_samples(8)
    first = make_trainer(checkpoint_every=1)
    first.train(2)
    shutil.rmtree(first.files.version(2))
    second = make_trainer(checkpoint_every=1)
    second.train(2)
    assert second.backend.loads == [(4, 1)]


def test_of_a_home_that_was_moved_nothing_is_taken_back(
    make_trainer: Make, story: TrainStory
) -> None:
    """No weights were where the journal has them, so all versions became orphaned."""
    story.add_samples(8)
    make_trainer().train(2)
    again = make_trainer()
    root = again.config.versions_path
    root.rename(root.with_name("moved"))
    again.files = PolicyFiles(root.with_name("moved"), POLICY)
    with pytest.raises(AssertionError, match=r"weights of version 2 .* are missing"):
        again.until(lambda: False)
    assert isinstance(again.failure, JournalError)
    again.failure = None
    assert story.live() == 2
    assert [step for step, _, _ in story.steps()] == [1, 2]


def test_leftovers_of_a_killed_run_are_removed(make_trainer: Make, story: TrainStory) -> None:
    trainer = make_trainer()
    for leftover in (trainer.files.version(1), trainer.files.checkpoint(1)):
        leftover.mkdir(parents=True)
        (leftover / "rejoinder.json").write_text("{}")
    partial = trainer.files.version(1).with_name(".partial-v000002-7")
    partial.mkdir()
    story.add_samples(3)
    trainer.until(lambda: collecting(story) == "collecting 3/4")
    assert not partial.exists()
    assert not trainer.files.version(1).exists()
    assert not trainer.files.checkpoint(1).exists()


def test_a_rollback_during_a_step_is_noticed_before_the_commit(
    make_trainer: Make, story: TrainStory
) -> None:
    story.add_samples(8)
    trainer = make_trainer(checkpoint_every=1)
    rolled: list[str] = []

    def roll_back() -> None:
        if story.live() == 1 and not rolled:
            rolled.append(story.journal.rollback(POLICY, 0, replay=False).lineage_id)

    trainer.backend.during = roll_back
    trainer.train(2)
    assert story.steps() == [(1, 1, 4), (1, 2, 4)]
    assert story.versions()[2].parent == 0
    assert story.versions()[2].lineage_id == rolled[0]
    assert trainer.backend.loads == [(0, 0), (0, 0)]
    assert len(trainer.backend.learned) == 4


def test_a_rollback_while_collecting_is_noticed(make_trainer: Make, story: TrainStory) -> None:
    story.add_samples(4)
    trainer = make_trainer()
    trainer.until(lambda: len(story.steps()) == 1)
    story.journal.rollback(POLICY, 0, replay=True)
    trainer.train(2)  # what was trained after version 0 trains again
    assert story.versions()[2].parent == 0
    assert story.live() == 2


def test_a_rollback_goes_on_with_the_optimizer_of_its_target(
    make_trainer: Make, story: TrainStory
) -> None:
    story.add_samples(8)
    first = make_trainer(checkpoint_every=1)
    first.train(2)
    story.journal.rollback(POLICY, 1, replay=False)
    story.add_samples(4, first_seed=10)
    second = make_trainer(checkpoint_every=1)
    second.train(3)
    assert second.backend.loads == [(4, 1)]
    assert second.backend.served  # somebody chose the version for how it answers
    assert not first.backend.served or first.backend.loads == [(0, 0)]
    assert story.versions()[3].parent == 1
    story.add_samples(4, first_seed=20)
    third = make_trainer(checkpoint_every=1)
    third.train(4)
    assert not third.backend.served


def fall(trainer: Trainer, story: TrainStory) -> None:
    """Three steps of answers that please, and two of answers of which none does."""
    for version in range(5):
        for seed in range(4):
            story.add_sample(1 if version < 3 else -1, seed=4 * version + seed, version=version)
        trainer.until(lambda made=version + 1: made in story.versions())  # type: ignore[misc]


def test_a_policy_that_pleases_far_less_goes_back_by_itself_and_learns_on(
    make_trainer: Make, story: TrainStory
) -> None:
    trainer = make_trainer(keep_versions=1, checkpoint_every=100)
    fall(trainer, story)
    trainer.until(lambda: story.live() == 2)
    states = {number: one.state for number, one in story.versions().items()}
    assert states == {0: "retired", 1: "retired", 2: "live"} | dict.fromkeys((3, 4, 5), "rejected")
    rollback = story.journal.status(POLICY, 4)["training"]["rollback"]
    reason = "0% of 8 judged answers pleased, 100% of 12 did before"
    assert (rollback["version"], rollback["reason"]) == (2, reason)
    story.add_samples(4, first_seed=50, version=2)
    trainer.until(lambda: 6 in story.versions())
    trainer.stop()
    assert story.versions()[6].parent == 2
    assert story.live() == 6
    assert trainer.backend.loads == [(0, 0), (8, 0)]
    assert story.counters()["auto_rollbacks"] == {"pleases_less": 1}
    consumed = story.consumed()
    assert len(consumed) == len(set(consumed))
    assert len(trainer.backend.learned) == 12  # nothing of the rejected steps trains again


def test_a_policy_goes_back_to_who_answered_and_not_to_what_steps_have_made_since(
    make_trainer: Make, story: TrainStory
) -> None:
    """Samples had piled up, and the version that the good steps began with pleased nobody."""
    for number in range(12):
        story.add_sample(1, seed=number)
    trainer = make_trainer()
    trainer.until(lambda: 3 in story.versions())
    for number in range(8):
        story.add_sample(-1, seed=12 + number, version=3)
    trainer.until(lambda: 5 in story.versions() and story.live() == 0)


def test_a_replay_that_somebody_wanted_is_not_undone(make_trainer: Make, story: TrainStory) -> None:
    """What rejected versions had answered trains again, in the order in which it fell."""
    trainer = make_trainer(auto_rollback=False, keep_versions=9)
    fall(trainer, story)
    trainer.stop()
    story.journal.rollback(POLICY, 0, replay=True)
    again = make_trainer(keep_versions=9, max_staleness=20)
    again.until(lambda: 10 in story.versions())
    again.stop()
    assert story.live() == 10
    assert "auto_rollbacks" not in story.counters()


def test_what_a_fall_leads_back_to_is_not_deleted_just_before(
    make_trainer: Make, story: TrainStory
) -> None:
    """The fourth step was good enough to go back to later, and so the third needed no more."""
    trainer = make_trainer(batch_size=8, keep_versions=1, checkpoint_every=100)
    for version, pleased in enumerate((8, 8, 8, 6, 0)):
        for seed in range(8):
            reward = 1 if seed < pleased else -1
            story.add_sample(reward, seed=8 * version + seed, version=version)
        trainer.until(lambda made=version + 1: made in story.versions())  # type: ignore[misc]
    trainer.until(lambda: story.live() == 2)


def test_a_fall_that_a_kill_left_is_seen_at_the_next_start(
    make_trainer: Make, story: TrainStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_go_back", lambda self, run, found: None)
        killed = make_trainer()
        fall(killed, story)
        killed.stop()
    assert story.live() == 5
    make_trainer().until(lambda: story.live() == 2)


def test_a_policy_does_not_go_back_to_weights_that_are_missing_on_disk(
    make_trainer: Make, story: TrainStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_go_back", lambda self, run, found: None)
        before = make_trainer()
        fall(before, story)
        before.stop()
    shutil.rmtree(before.files.version(2))
    trainer = make_trainer()
    trainer.until(lambda: collecting(story) == "collecting 0/4" and bool(trainer.backend.loads))
    trainer.stop()
    assert story.live() == 5


def test_a_person_who_rolls_back_meanwhile_knows_better(
    make_trainer: Make, story: TrainStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(steps: Sequence[JudgedStep], held: Collection[int]) -> Relapse | None:
        found = find_relapse(steps, held)
        if found is not None:
            story.journal.rollback(POLICY, 3, replay=False)
        return found

    monkeypatch.setattr(training, "find_relapse", find)
    trainer = make_trainer()
    fall(trainer, story)
    trainer.until(lambda: len(trainer.backend.loads) == 2)
    trainer.stop()
    assert story.live() == 3
    assert story.journal.status(POLICY, 4)["training"]["rollback"]["reason"] is None
    assert "auto_rollbacks" not in story.counters()


def test_who_wants_it_stays_where_the_newest_step_led(
    make_trainer: Make, story: TrainStory
) -> None:
    trainer = make_trainer(auto_rollback=False, keep_versions=1, checkpoint_every=100)
    fall(trainer, story)
    trainer.stop()
    assert story.live() == 5
    assert [number for number, one in story.versions().items() if one.files] == [0, 5]


def test_a_sample_withdrawn_during_its_step_does_not_train(
    make_trainer: Make, story: TrainStory
) -> None:
    turns = story.add_samples(5)
    trainer = make_trainer()
    withdrawn: list[str] = []

    def withdraw() -> None:
        if not withdrawn:
            withdrawn.append(turns[0].turn_id)
            story.journal.supersede(turns[0].turn_id, "another").result(9)

    trainer.backend.during = withdraw
    trainer.train(1)
    trained = {row[0] for row in story.rows("SELECT turn_id FROM consumption NATURAL JOIN samples")}
    assert trained == {turn.turn_id for turn in turns[1:]}
    assert story.counters()["abandoned_steps"] == {"samples_changed": 1}
    assert len(trainer.backend.learned) == 4


def test_a_person_s_score_during_a_step_counts_for_it(
    make_trainer: Make, story: TrainStory
) -> None:
    turns = story.add_samples(4)  # rewards -1, 1, -1, 1
    trainer = make_trainer()
    scored: list[str] = []

    def score() -> None:
        if not scored:
            scored.append(turns[0].turn_id)
            story.journal.add_feedback(SCOPE, turns[0].completion_id, 0, 1, None).result(9)

    trainer.backend.during = score
    trainer.train(1)
    assert story.versions()[1].metrics["reward_mean"] == pytest.approx(0.5)


def test_a_step_that_the_journal_refuses_is_as_if_it_had_crashed(
    make_trainer: Make, story: TrainStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample is withdrawn in the last moment, after the optimizer's step."""
    turns = story.add_samples(5)
    trainer = make_trainer()
    apply = trainer.backend.apply
    withdrawn: list[str] = []

    def withdraw_and_apply(step: int) -> StepFigures:
        if not withdrawn:
            withdrawn.append(turns[0].turn_id)
            story.journal.supersede(turns[0].turn_id, "another").result(9)
        return apply(step)

    monkeypatch.setattr(trainer.backend, "apply", withdraw_and_apply)
    trainer.train(1)
    assert story.counters()["abandoned_steps"] == {"refused": 1}
    assert trainer.backend.loads == [(0, 0), (0, 0)]
    assert len(trainer.backend.learned) == 4
    assert story.steps() == [(1, 1, 4)]


def test_a_person_s_score_while_the_files_are_written_counts(
    make_trainer: Make, story: TrainStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = story.add_samples(4)  # rewards -1, 1, -1, 1
    trainer = make_trainer()
    save = trainer.backend.save_weights
    outcomes: list[str] = []

    def score_and_save(directory: Path) -> None:
        if not outcomes:
            scored = story.journal.add_feedback(SCOPE, turns[0].completion_id, 0, 1, None)
            outcomes.append(scored.result(9).outcome)
        save(directory)

    monkeypatch.setattr(trainer.backend, "save_weights", score_and_save)
    trainer.train(1)
    assert outcomes == ["accepted"]
    assert story.versions()[1].metrics["reward_mean"] == pytest.approx(0.5)
    assert story.counters()["abandoned_steps"] == {"refused": 1}
    assert len(trainer.backend.learned) == 4


def test_a_skipped_step_is_counted_and_its_samples_are_used_up(
    make_trainer: Make, story: TrainStory
) -> None:  # B083
    story.add_samples(4)
    trainer = make_trainer()
    trainer.backend.figures = StepFigures({"loss": 0.0}, "non_finite_gradient")
    trainer.train(1)
    assert story.counters()["skipped_steps"] == {"non_finite_gradient": 1}
    assert story.versions()[1].metrics["skipped"] == 1.0
    assert trainer.backend.learned == []
    assert story.ready() == 0
    status = story.journal.status(POLICY, 4)
    assert status["samples"]["trained"] == 0
    assert status["samples"]["dropped"] == {"non_finite_gradient": 4}
    (role,) = status["roles"]
    assert role["alarms"] == ["step 1 changed no weights: non_finite_gradient"]
    assert role["last_error"] is None, "training goes on"


@pytest.mark.parametrize("verdict", [-1, 1])
def test_a_step_of_verdicts_that_are_alike_says_so_and_is_an_alarm_only_where_all_complain(
    make_trainer: Make, story: TrainStory, verdict: int
) -> None:
    for seed in range(4):
        story.add_sample(verdict, seed=seed)
    trainer = make_trainer()
    trainer.algorithm = Binary("leave_one_out")
    trainer.train(1)
    assert trainer.backend.learned == []
    assert story.counters()["skipped_steps"] == {"all_alike": 1}
    (role,) = story.journal.status(POLICY, 4)["roles"]
    assert (role["alarms"] or []) == (
        ["step 1 changed no weights: all_alike"] if verdict < 0 else []
    )


def test_turns_of_several_versions_train_only_with_a_correction(
    make_trainer: Make, story: TrainStory
) -> None:
    for seed in range(4):
        story.add_sample(1, seed=seed, runs=[VersionRun(0, 2), VersionRun(1, 4)])
    trainer = make_trainer(loss={"correction": "none"})
    trainer.train(1)
    assert story.counters()["samples_without_signal"] == {"mixed_versions": 4}
    assert trainer.backend.learned == []
    assert story.versions()[1].metrics["mixed_version_turns"] == 4


def test_turns_of_several_versions_train_with_the_default_correction(
    make_trainer: Make, story: TrainStory
) -> None:
    for seed in range(4):
        story.add_sample(1, seed=seed, runs=[VersionRun(0, 2), VersionRun(1, 4)])
    trainer = make_trainer()
    trainer.train(1)
    assert len(trainer.backend.learned) == 4
    assert story.versions()[1].metrics["mixed_version_turns"] == 4


def test_different_logprobs_of_engine_and_trainer_raise_an_alarm(
    make_trainer: Make, story: TrainStory
) -> None:  # rule 8
    story.add_samples(4)
    trainer = make_trainer()
    trainer.backend.figures = StepFigures({"logprob_difference_mean": 0.4})
    trainer.until(lambda: len(story.steps()) == 1)
    trainer.stop()
    (report,) = [one for one in story.journal.reports() if one.role == "trainer"]
    assert "0.4" in report.detail["alarms"][0]
    assert "different log-probabilities" in report.detail["alarms"][0]
    assert report.last_error is None, "training goes on"


def test_a_tracker_that_fails_stops_no_training_and_is_no_error(
    make_trainer: Make, story: TrainStory
) -> None:
    told: list[tuple[int, bool]] = []
    trainer = make_trainer(checkpoint_every=1, keep_checkpoints=1)

    class Full:
        def log(self, version: int, metrics: Mapping[str, float]) -> None:
            # Retention comes first: what a tracker does cannot keep it from deleting.
            told.append((version, trainer.files.checkpoints() == [version]))
            raise OSError("disk full")

        def close(self) -> None: ...

    trainer.trackers = Trackers({"wandb": Full()})
    story.add_samples(8)
    trainer.train(2)
    shutil.rmtree(trainer.files.checkpoint(2))  # as after a crash: back to the start
    trainer.until(lambda: len(told) == 4)
    trainer.stop()
    assert told == [(1, True), (2, True), (3, True), (4, True)]
    assert [step for step, _, _ in story.steps()] == [1, 2]
    (report,) = [one for one in story.journal.reports() if one.role == "trainer"]
    assert report.detail["tracker_problem"] == "wandb: OSError: disk full"
    assert report.last_error is None


def test_only_one_trainer_trains(
    make_trainer: Make, story: TrainStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "TTL_S", 60.0)
    held = story.journal.acquire_lease(LEASE, "another", 60.0)
    assert held is not None
    story.add_samples(4)
    trainer = make_trainer()
    trainer.until(lambda: collecting(story) == "waiting for the training lease")
    assert trainer.backend.loads == []
    story.journal.release_lease(LEASE, held)
    trainer.train(1)
    assert story.steps() == [(1, 1, 4)]


def test_a_trainer_that_lost_its_lease_commits_nothing(
    make_trainer: Make, story: TrainStory
) -> None:
    story.add_samples(4)
    trainer = make_trainer()
    taken: list[int] = []

    def take_over() -> None:
        if not taken:
            with story.journal.database.engine.begin() as connection:
                connection.exec_driver_sql("UPDATE leases SET expires_at = 0")
            fence = story.journal.acquire_lease(LEASE, "another", 60.0)
            assert fence is not None
            taken.append(fence)

    trainer.backend.during = take_over
    trainer.until(lambda: bool(taken) and collecting(story) == "waiting for the training lease")
    assert story.steps() == []
    assert story.ready() == 4
    story.journal.release_lease(LEASE, taken[0])
    trainer.train(1)
    assert story.steps() == [(1, 1, 4)]


def test_a_trainer_that_slept_past_its_lease_replaces_no_version_of_its_successor(
    make_trainer: Make, story: TrainStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEW_S", 60.0)  # asleep: its thread notices nothing
    story.add_samples(4)
    trainer = make_trainer()
    target = trainer.files.version(1)
    save = trainer.backend.save_weights
    fences: list[int] = []

    def sleep_and_save(directory: Path) -> None:
        if not fences:
            with story.journal.database.engine.begin() as connection:
                connection.exec_driver_sql("UPDATE leases SET expires_at = 0")
            fence = story.journal.acquire_lease(LEASE, "another", 60.0)
            assert fence is not None
            with durable_directory(target, {"version": 1}) as made:
                (made / "weights.json").write_text("[[7]]")
            step = story.step(story.take(), uri=target.as_uri())
            story.journal.commit_step(LEASE, fence, step)
            fences.append(fence)
        save(directory)

    monkeypatch.setattr(trainer.backend, "save_weights", sleep_and_save)
    trainer.until(lambda: bool(fences) and collecting(story) == "waiting for the training lease")
    assert (target / "weights.json").read_text() == "[[7]]"
    assert story.versions()[1].files
    story.journal.release_lease(LEASE, fences[0])


def test_files_of_a_predecessor_that_woke_up_late_cost_one_step(
    make_trainer: Make, story: TrainStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.add_samples(4)
    trainer = make_trainer()
    save = trainer.backend.save_weights
    woken: list[int] = []

    def wake_and_save(directory: Path) -> None:
        if not woken:
            woken.append(1)
            with durable_directory(trainer.files.version(1), {"version": 1}) as made:
                (made / "weights.json").write_text("[[7]]")
        save(directory)

    monkeypatch.setattr(trainer.backend, "save_weights", wake_and_save)
    trainer.train(1)
    assert story.counters()["abandoned_steps"] == {"refused": 1}
    assert (trainer.files.version(1) / "weights.json").read_text() != "[[7]]"
    assert story.steps() == [(1, 1, 4)]


def test_old_weights_and_checkpoints_are_deleted(make_trainer: Make, story: TrainStory) -> None:
    story.add_samples(24)
    trainer = make_trainer(
        checkpoint_every=1,
        keep_checkpoints=1,
        keep_versions=2,
        max_staleness=20,
        auto_rollback=False,
    )
    trainer.train(6)
    assert trainer.files.checkpoints() == [6]
    kept = [number for number in range(1, 7) if trainer.files.version(number).exists()]
    assert kept == [5, 6]
    versions = story.versions()
    assert [number for number in versions if not versions[number].files] == [1, 2, 3, 4]
    assert versions[5].checkpoint_uri is None


def test_steps_that_change_nothing_share_files_and_cost_no_version_to_roll_back_to(
    make_trainer: Make, story: TrainStory
) -> None:
    for seed, verdict in enumerate([*(1, -1) * 4, *(1,) * 12]):  # two steps teach, three do not
        story.add_sample(verdict, seed=seed)
    settings = {
        "checkpoint_every": 1,
        "keep_checkpoints": 1,
        "keep_versions": 2,
        "auto_rollback": False,
    }
    trainer = make_trainer(**settings)
    trainer.algorithm = Binary("leave_one_out")
    trainer.train(5)
    versions = story.versions()
    assert [one.uri for one in versions.values()][3:] == [versions[2].uri] * 3
    assert all(one.files for one in versions.values())
    assert [number for number in range(1, 6) if trainer.files.version(number).exists()] == [1, 2]
    assert story.live() == 5
    assert len(story.consumed()) == len(set(story.consumed())) == 20

    again = make_trainer(**settings)
    story.add_samples(8, first_seed=30, version=5)
    again.train(7)
    assert again.backend.loads == [(8, 2)], "from the checkpoint of a version without own files"
    assert [number for number in range(8) if again.files.version(number).exists()] == [6, 7]
    files = [number for number, one in story.versions().items() if one.files]
    assert files == [0, 6, 7], "what shares files goes with them"


def test_before_the_first_lesson_versions_are_the_start_weights(
    make_trainer: Make, story: TrainStory
) -> None:
    for seed in range(4):
        story.add_sample(1, seed=seed)
    trainer = make_trainer()
    trainer.algorithm = Binary("leave_one_out")
    trainer.train(1)
    base, first = story.versions().values()
    assert (first.uri, first.kind, first.parent) == (base.uri, base.kind, 0)
    story.add_samples(4, first_seed=10)
    again = make_trainer()
    again.train(2)
    assert again.backend.loads == [(0, 0)]
    assert len(again.backend.learned) == 4


def test_what_another_algorithm_collected_fills_no_batch(
    make_trainer: Make, story: TrainStory
) -> None:
    story.add_samples(4)
    trainer = make_trainer()
    trainer.algorithm = build_algorithm(TrainerConfig(algorithm="opd"))
    trainer.until(lambda: collecting(story) == "collecting 0/4")
    trainer.stop()
    assert story.steps() == []
    assert story.journal.status(POLICY, 4)["samples"]["dropped"] == {"other_algorithm": 4}


def test_what_the_lineage_starts_from_is_never_deleted(
    make_trainer: Make, story: TrainStory
) -> None:
    story.add_samples(4)
    settings: dict[str, Any] = {
        "checkpoint_every": 100, "keep_checkpoints": 1, "keep_versions": 1, "max_staleness": 20,
    }  # fmt: skip
    first = make_trainer(**settings)
    first.train(1)
    story.journal.rollback(POLICY, 1, replay=False)
    story.add_samples(12, first_seed=10)
    second = make_trainer(**settings)
    second.train(4)
    assert second.files.version(1).exists()
    shutil.rmtree(second.files.checkpoint(4))
    third = make_trainer(**settings)
    third.train(4)
    assert third.backend.loads[0][0] == 4  # back at version 1


def test_stopping_in_the_middle_of_a_step_loses_nothing(
    make_trainer: Make, story: TrainStory
) -> None:
    story.add_samples(4)
    trainer = make_trainer()
    trainer.backend.during = trainer._stop.set
    trainer.until(trainer._stop.is_set)
    trainer.stop()
    assert story.steps() == []
    assert story.ready() == 4
    again = make_trainer()
    again.train(1)
    assert story.steps() == [(1, 1, 4)]


def test_the_last_heartbeat_says_what_was_reached(make_trainer: Make, story: TrainStory) -> None:
    story.add_samples(4)
    trainer = make_trainer()
    trainer.train(1)
    (report,) = [one for one in story.journal.reports() if one.role == "trainer"]
    assert report.state == "stopped"
    assert report.detail["batch_size"] == 4
    assert report.detail["version"] == 1


def test_a_missing_policy_is_named(make_config: Callable[..., Config]) -> None:
    config = make_config().model_copy(
        update={"model": make_config().model.model_copy(update={"policy": "unknown"})}
    )
    with pytest.raises(JournalError, match="'unknown' is not registered"):
        run_trainer(config, threading.Event())


# --- a teacher elsewhere -------------------------------------------------------------------------


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "TEACHER_WAIT_S", 0.02)


@pytest.mark.usefixtures("short_waits")
def test_a_step_waits_for_a_teacher_that_is_away_and_loses_nothing(
    make_trainer: Make, story: TrainStory
) -> None:
    story.add_samples(4)
    trainer = make_trainer()
    away = 3

    def answer() -> None:
        nonlocal away
        if away:
            away -= 1
            raise TeacherAway("the teacher's engine cannot be reached")

    trainer.backend.during = answer
    trainer.train(1)
    assert story.steps() == [(1, 1, 4)]
    assert len(trainer.backend.learned) == 4
    assert story.counters()["abandoned_steps"] == {"teacher_away": 3}
    (report,) = [one for one in story.journal.reports() if one.role == "trainer"]
    assert report.last_error == "the teacher's engine cannot be reached"


@pytest.mark.usefixtures("short_waits")
def test_weights_are_loaded_once_the_teacher_answers(make_trainer: Make, story: TrainStory) -> None:
    story.add_samples(4)
    trainer = make_trainer()
    plain, tries = trainer.backend.load, 0

    def load(weights: Path | None, checkpoint: Path | None, **how: bool) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise TeacherAway("it loads its model")
        plain(weights, checkpoint, **how)

    trainer.backend.load = load  # type: ignore[method-assign]
    trainer.train(1)
    assert tries == 3
    assert story.steps() == [(1, 1, 4)]


class OneHint:
    """Puts every hint into a prompt."""

    def prompts(self, sample: TrainSample) -> TeacherPrompts:
        return TeacherPrompts(tuple([*sample.prompt_ids, 7] for _ in sample.hints))


def test_hints_that_the_teacher_cannot_read_are_dropped_and_counted(
    make_trainer: Make, story: TrainStory
) -> None:
    story.add_sample(1, hints=["Be brief."])
    story.add_sample(-1, seed=1, hints=["Be kind."])
    story.add_samples(2, first_seed=2)
    trainer = make_trainer()
    trainer.algorithm = build_algorithm(TrainerConfig(algorithm="combine"))
    trainer.hinted = OneHint()
    seen: list[list[bool]] = []
    plain = trainer.backend.accumulate

    def accumulate(turns: Sequence[SignalledTurn]) -> Iterator[float]:
        seen.append([bool(turn.teacher_prompts) for turn in turns])
        if len(seen) == 1:
            raise TeacherFailed("it left out tokens", [turns[1]])
        yield from plain(turns)

    trainer.backend.accumulate = accumulate  # type: ignore[method-assign]
    trainer.train(1)
    assert seen == [[True, True, False, False], [True, False, False, False]]
    assert story.counters()["dropped_hints"] == {"teacher_failed": 1}
    assert story.steps() == [(1, 1, 4)]
