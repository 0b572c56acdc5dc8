"""The training loop: waits for a full batch, takes a step, commits it, and never loses one.

Nothing here knows PyTorch. A step's order is: gradient, a last look whether its samples still
stand, optimizer, files, one fenced transaction. A kill at any moment leaves either the step
before or the step after; what lies between is cleaned up at the next start (``recovery.py``).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from rejoinder.algorithms.base import Algorithm
from rejoinder.config import TrainerConfig
from rejoinder.errors import JournalError, LeaseLost
from rejoinder.journal.base import TrainJournal, WatchJournal
from rejoinder.journal.records import RollbackCause, TrainSample
from rejoinder.policy.files import PolicyFiles, has_weights
from rejoinder.policy.registry import PolicyRegistry, RegistryJournal
from rejoinder.trainer.base import StepFigures, TeacherAway, TeacherFailed, TrainerBackend
from rejoinder.trainer.evaluation import Evaluator
from rejoinder.trainer.heartbeat import ROLE, Heartbeat
from rejoinder.trainer.hinted import HintRenderer
from rejoinder.trainer.lease import Lease, wait_for_lease
from rejoinder.trainer.progress import StepProgress
from rejoinder.trainer.publish import Publisher, Run
from rejoinder.trainer.recovery import resume
from rejoinder.trainer.relapse import (
    JudgedStep,
    Relapse,
    find_relapse,
    held_versions,
    judged_steps,
    worth_keeping,
)
from rejoinder.trainer.step import (
    PreparedStep,
    prepare_step,
    step_metrics,
    steps_to_head,
    used_samples,
)
from rejoinder.trainer.trackers import Trackers
from rejoinder.types import BASE_VERSION, Fate

log = structlog.get_logger(__name__)

TEACHER_WAIT_S = 3.0
"""Between two attempts at a teacher that does not answer."""
FP32_ALARM = 1e-3
BF16_ALARM = 5e-2
"""Mean |engine - trainer| log-probability above which rule 8 counts as broken: fp32 keeps 1e-4,
and bfloat16 rounds every one of some hundred additions to three digits."""


class LoopJournal(TrainJournal, RegistryJournal, WatchJournal, Protocol):
    """What the loop needs of the journal."""

    def count(self, role: str, name: str, reason: str, amount: int = 1) -> None:
        """Add to a named counter."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Who watches the loop."""

    heartbeat: Heartbeat
    progress: StepProgress
    trackers: Trackers = field(default_factory=lambda: Trackers({}))
    evaluator: Evaluator | None = None
    hinted: HintRenderer | None = None
    """Puts hints into prompts, for algorithms that learn from them."""
    loaded: threading.Event = field(default_factory=threading.Event)
    """Set once weights are loaded: from then on there may be something to finish."""


class TrainingLoop:
    """Trains one policy; see the module's text."""

    def __init__(
        self,
        journal: LoopJournal,
        backend: TrainerBackend,
        algorithm: Algorithm,
        config: TrainerConfig,
        policy: str,
        files: PolicyFiles,
        around: Surroundings,
        difference_alarm: float = FP32_ALARM,
    ) -> None:
        self._journal = journal
        self._backend = backend
        self._algorithm = algorithm
        self._config = config
        self._policy = policy
        self._files = files
        self._registry = PolicyRegistry(journal, files, policy)
        self._publisher = Publisher(journal, backend, files, config.checkpoint_every)
        self._around = around
        self._difference_alarm = difference_alarm
        self._owner = f"{ROLE}:{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"

    def run(self, stop: threading.Event) -> None:
        """Train until ``stop`` is set; then end at the next clean point, with a checkpoint.

        Raises:
            ConfigError: the versions on disk do not fit the configuration.
            JournalError: the journal cannot be used.
        """
        while not stop.is_set():
            self._around.heartbeat.update("waiting", message="waiting for the training lease")
            lease = wait_for_lease(
                self._journal, f"{ROLE}:{self._policy}", self._owner, stop, self._config.poll_s
            )
            if lease is None:
                return
            try:
                with lease:
                    self._train(lease, stop)
            except LeaseLost as error:
                log.warning("stopped training", reason=str(error))
                self._around.heartbeat.note_error(str(error))

    def _train(self, lease: Lease, stop: threading.Event) -> None:
        """Train under a lease until told to stop, loading anew whenever the registry moved."""
        while not stop.is_set():
            try:
                run = self._load(lease)
            except TeacherAway as error:
                self._wait_for_teacher(error, stop)
                lease.check()
                continue
            try:
                self._go_back(run, find_relapse(*self._judged(run)))  # a kill came first
                while run.is_current and not stop.is_set():
                    self._work(run, stop)
            except LeaseLost:
                raise
            except JournalError:
                if not self._was_rolled_back(run):
                    raise
                run.is_current = False
            if run.is_current:
                self._around.heartbeat.update("stopping", message="writing a checkpoint")
                self._publisher.keep_optimizer(run)

    def _load(self, lease: Lease) -> Run:
        """Clean up, choose where to go on, and load that."""
        self._around.heartbeat.update("loading", message="loading weights", progress=None)
        self._around.progress.show("loading", 0, 1, "")
        found = resume(self._journal, self._registry, self._files, lease, self._policy)
        aside = self._journal.fit_samples(lease.name, lease.fence, self._policy, self._algorithm)
        if aside:
            log.info("samples of another algorithm put aside", samples=aside)
        self._backend.load(found.weights, found.checkpoint, as_served=found.as_served)
        self._around.loaded.set()
        log.info(
            "training goes on",
            policy=self._policy,
            version=found.head.version,
            optimizer="from its checkpoint" if found.checkpoint else "new",
        )
        if found.head.version == BASE_VERSION and self._around.evaluator is not None:
            self._around.evaluator.submit(found.head)
        return Run(lease, found.lineage, found.head)

    def _work(self, run: Run, stop: threading.Event) -> None:
        """Take a step if a batch is there; else wait a little."""
        run.lease.check()
        if not self._head_is_live(run):
            return
        size = self._config.batch_size
        ready = self._journal.ready_count(run.lineage, self._config.max_staleness)
        samples = self._take(run) if ready >= size else []
        if len(samples) == size:
            self._step(run, samples, stop)
            return
        self._around.heartbeat.update(
            "collecting",
            message=f"collecting {ready}/{size}",
            ready=ready,
            step=run.lineage.next_step,
            progress=None,
        )
        self._around.progress.show("collecting", ready, size, f"{ready}/{size} samples")
        stop.wait(self._config.poll_s)

    def _step(self, run: Run, samples: list[TrainSample], stop: threading.Event) -> None:
        """Take one step with these samples, unless something forbids it on the way."""
        started_at = time.time()
        prepared = self._gradient(run, samples, stop)
        if prepared is None or not self._may_apply(run, samples):
            self._backend.discard()
            return
        figures = self._apply(run, prepared)
        metrics = step_metrics(prepared, figures, time.time() - started_at)
        used = used_samples(prepared, figures.skipped)
        if not self._publisher.publish(run, used, metrics, started_at):
            # Weights and optimizer in memory are ahead of the journal: as after a crash.
            self._journal.count(ROLE, "abandoned_steps", "refused")
            run.is_current = False
            return
        for reason, amount in prepared.hint_faults.items():
            self._journal.count(ROLE, "dropped_hints", reason, amount)
        steps, held = self._judged(run)
        found = find_relapse(steps, held)  # before retention, which may delete what it names
        spared = worth_keeping(steps, held) | (set() if found is None else {found.version})
        self._registry.apply_retention(
            run.lineage, self._config.keep_versions, self._config.keep_checkpoints, spared
        )
        self._tell(run, prepared, figures, metrics)
        self._go_back(run, found)

    def _judged(self, run: Run) -> tuple[list[JudgedStep], set[int]]:
        """Return the steps that a relapse shows in, and the versions that can be gone back to.

        Weights that are missing on disk would end the training. Nothing at all where the policy is
        to stay as it is.
        """
        if not self._config.auto_rollback:
            return [], set()
        versions = self._registry.versions()
        recorded = held_versions(versions)
        held = {one.version for one in versions if one.version in recorded and has_weights(one)}
        return judged_steps(versions, run.lineage), held

    def _go_back(self, run: Run, found: Relapse | None) -> None:
        """Go back to where answers pleased, if they please far less now."""
        if found is None or not run.is_current:
            return
        lease = run.lease
        cause = RollbackCause(run.lineage.lineage_id, str(found), lease.name, lease.fence)
        try:
            self._journal.rollback(self._policy, found.version, replay=False, cause=cause)
        except LeaseLost:
            raise
        except JournalError:
            if not self._was_rolled_back(run):
                raise
            return
        run.is_current = False
        self._journal.count(ROLE, "auto_rollbacks", "pleases_less")
        log.warning("rolled back", version=found.version, fallen=run.head.version, why=str(found))

    def _gradient(
        self, run: Run, samples: list[TrainSample], stop: threading.Event
    ) -> PreparedStep | None:
        """Prepare a step and compute its gradient, without the hints that the teacher refuses.

        None if told to stop on the way, or if the teacher does not answer: nothing is lost.
        """
        distances = steps_to_head(self._registry.versions(), run.head.version)
        refused: set[str] = set()
        while True:
            prepared = prepare_step(
                samples,
                self._algorithm,
                self._config.loss,
                distances,
                run.head.version,
                self._around.hinted,
                refused,
            )
            try:
                return prepared if self._accumulate(run, prepared, stop) else None
            except TeacherAway as error:
                self._journal.count(ROLE, "abandoned_steps", "teacher_away")
                self._wait_for_teacher(error, stop)
                return None
            except TeacherFailed as error:
                log.warning("hints dropped", turns=len(error.turns), reason=str(error))
                refused |= {prepared.sample_of(turn) for turn in error.turns}

    def _wait_for_teacher(self, error: TeacherAway, stop: threading.Event) -> None:
        """Say who is waited for, and wait a little; a step never goes on without its teacher."""
        self._around.heartbeat.update("waiting", message=str(error), progress=None)
        self._around.heartbeat.note_error(str(error))
        stop.wait(TEACHER_WAIT_S)

    def _take(self, run: Run) -> list[TrainSample]:
        config = self._config
        return self._journal.take_samples(
            run.lineage, config.batch_size, config.max_staleness, config.max_sample_tokens
        )

    def _accumulate(self, run: Run, prepared: PreparedStep, stop: threading.Event) -> bool:
        """Compute the gradient; False if told to stop on the way, which loses nothing."""
        step = run.lineage.next_step
        self._show_step(step, 0.0)
        for done in self._backend.accumulate(prepared.turns):
            run.lease.check()
            self._show_step(step, done)
            if stop.is_set():
                return False
        return True

    def _show_step(self, step: int, done: float) -> None:
        message = f"step {step}: {done:.0%}"
        self._around.heartbeat.update("training", message=message, step=step, progress=done)
        self._around.progress.show(f"step {step}", done, 1.0, f"{done:.0%}")

    def _may_apply(self, run: Run, samples: list[TrainSample]) -> bool:
        """Whether, after the long part, the policy and the samples are still what they were.

        A sample may have been superseded, or scored otherwise by a person.
        """
        if not self._head_is_live(run):
            return False
        taken = {(one.sample_id, one.reward, one.hints) for one in samples}
        if {(one.sample_id, one.reward, one.hints) for one in self._take(run)} == taken:
            return True
        self._journal.count(ROLE, "abandoned_steps", "samples_changed")
        log.info("samples of the step were withdrawn or scored anew: taking it again")
        return False

    def _apply(self, run: Run, prepared: PreparedStep) -> StepFigures:
        """Take the optimizer step; where no sample has a signal there is none to take."""
        if not prepared.turns:
            is_alike = set(prepared.without_signal.values()) == {Fate.ALL_ALIKE}
            return StepFigures({}, Fate.ALL_ALIKE if is_alike else Fate.NO_SIGNAL)
        return self._backend.apply(run.lineage.next_step)

    def _head_is_live(self, run: Run) -> bool:
        """Whether nobody has rolled the policy back meanwhile."""
        live = self._registry.live().version
        if live != run.head.version:
            log.warning("the policy was rolled back", live=live, trained=run.head.version)
            run.is_current = False
        return run.is_current

    def _was_rolled_back(self, run: Run) -> bool:
        return self._journal.current_lineage(self._policy).lineage_id != run.lineage.lineage_id

    def _tell(
        self, run: Run, prepared: PreparedStep, figures: StepFigures, metrics: dict[str, float]
    ) -> None:
        """Tell everybody who watches of a committed step."""
        step = run.head.step or 0
        if figures.skipped is not None:
            self._journal.count(ROLE, "skipped_steps", figures.skipped)
        for reason, amount in Counter(prepared.without_signal.values()).items():
            self._journal.count(ROLE, "samples_without_signal", reason, amount)
        self._around.heartbeat.update(
            "collecting",
            version=run.head.version,
            message=f"step {step} committed",
            progress=None,
            alarms=self._alarms(step, figures, metrics) or None,
        )
        self._around.progress.finished(step, run.head.version, metrics)
        problem = self._around.trackers.log(run.head.version, metrics)
        self._around.heartbeat.note(tracker_problem=problem)
        if self._around.evaluator is not None:
            self._around.evaluator.submit(run.head)

    def _alarms(self, step: int, figures: StepFigures, metrics: dict[str, float]) -> list[str]:
        """Say what is wrong with the last step; no errors, because training goes on."""
        alarms = []
        everybody_pleased = figures.skipped == Fate.ALL_ALIKE and metrics.get("reward_mean") == 1.0
        if figures.skipped is not None and not everybody_pleased:
            alarms.append(f"step {step} changed no weights: {figures.skipped}")
        difference = metrics.get("logprob_difference_mean", 0.0)
        if difference > self._difference_alarm:
            alarms.append(
                f"engine and trainer compute different log-probabilities: mean difference "
                f"{difference:.2g}, above {self._difference_alarm:g}"
            )
        for alarm in alarms:
            log.warning("alarm", problem=alarm)
        return alarms
