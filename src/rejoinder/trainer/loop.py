"""The trainer role: puts the parts together and runs the training loop until told to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import structlog

from rejoinder.algorithms.base import Algorithm
from rejoinder.algorithms.registry import build_algorithm
from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.chat.token_bytes import TokenBytes
from rejoinder.config import Config
from rejoinder.engine.base import Engine
from rejoinder.journal.sql import SqlJournal
from rejoinder.models.cores import share_cores
from rejoinder.models.embedded import resolve_model
from rejoinder.models.tokenizer import load_tokenizer
from rejoinder.policy.files import PolicyFiles
from rejoinder.trainer.checks import check_training, external_teachers
from rejoinder.trainer.engine_calls import EngineCaller
from rejoinder.trainer.evaluation import Evaluator
from rejoinder.trainer.heartbeat import ROLE, Heartbeat
from rejoinder.trainer.hinted import HintRenderer
from rejoinder.trainer.progress import StepProgress
from rejoinder.trainer.trackers import EXTERNAL, Trackers, build_trackers
from rejoinder.trainer.training import BF16_ALARM, FP32_ALARM, Surroundings, TrainingLoop

log = structlog.get_logger(__name__)


def run_trainer(config: Config, stop: threading.Event | None = None) -> None:
    """Train the configured policy until SIGTERM or SIGINT, or until ``stop`` is set.

    The policy must be registered (``ensure_policy``). The process gives way to serving: its
    priority is lowered to ``trainer.nice``.

    Args:
        config: all of it.
        stop: ends the run at the next clean point; None: only signals do.

    Raises:
        ConfigError: the configuration cannot work; the message says what to change.
        JournalError: the journal cannot be used, or the policy is not registered.
    """
    stop, loaded = stop or threading.Event(), threading.Event()
    share_cores()
    _give_way(config.trainer.nice)
    algorithm = build_algorithm(config.trainer)
    with SqlJournal(config.journal_url) as journal, _stop_on_signals(stop, loaded):
        with Heartbeat(journal, _constant_detail(config)) as heartbeat:
            _train(config, journal, algorithm, heartbeat, stop, loaded)
        journal.flush()


def _train(
    config: Config,
    journal: SqlJournal,
    algorithm: Algorithm,
    heartbeat: Heartbeat,
    stop: threading.Event,
    loaded: threading.Event,
) -> None:
    check_training(config.trainer)
    policy = config.model.policy
    with contextlib.ExitStack() as stack:
        trackers = Trackers(
            build_trackers(config.trainer.trackers, config.home_path, policy),
            lambda name: journal.count(ROLE, "tracker_failures", name),
        )
        stack.callback(trackers.close)
        evaluator = _build_evaluator(
            config, journal, lambda problem: heartbeat.note(evaluation_problem=problem)
        )
        if evaluator is not None:
            stack.callback(evaluator.close)
        # PyTorch is imported here, after ``share_cores``, and not by tests with another backend.
        from rejoinder.trainer.torch_backend import TorchBackend

        engine = None
        if algorithm.needs_hints and config.trainer.teacher.weights == "engine":
            engine = EngineCaller(_teacher_engine(config))
            stack.callback(engine.close)
        backend = TorchBackend(
            config, algorithm.loss, needs_teacher=algorithm.needs_hints, engine=engine
        )
        loop = TrainingLoop(
            journal,
            backend,
            algorithm,
            config.trainer,
            policy,
            PolicyFiles(config.versions_path, policy),
            Surroundings(
                heartbeat,
                stack.enter_context(StepProgress()),
                trackers,
                evaluator,
                _build_hint_renderer(config) if algorithm.needs_hints else None,
                loaded,
            ),
            FP32_ALARM if backend.is_full_precision else BF16_ALARM,
        )
        loop.run(stop)


def _constant_detail(config: Config) -> dict[str, object]:
    trainer = config.trainer
    return {
        "batch_size": trainer.batch_size,
        "algorithm": trainer.algorithm,
        "weights": "full" if trainer.lora is None else "lora",
        "external": sorted(EXTERNAL & set(trainer.trackers)) + external_teachers(trainer.teacher),
    }


def _teacher_engine(config: Config) -> Engine:
    """Return the engine that the teacher is on, as this process reaches it."""
    from rejoinder.engine.client import HttpEngine
    from rejoinder.engine.connect import connect_engine

    url = config.trainer.teacher.engine.url
    return connect_engine(config) if url is None else HttpEngine(url)


def _build_evaluator(
    config: Config, journal: SqlJournal, note_problem: Callable[[str | None], None]
) -> Evaluator | None:
    if not config.evaluation.every:
        return None
    from rejoinder.engine.connect import connect_engine

    tokenizer = load_tokenizer(resolve_model(config.model.path))
    return Evaluator(
        config.evaluation,
        lambda: connect_engine(config),
        ChatTemplateRenderer(tokenizer),
        tokenizer,
        journal,
        note_problem,
    )


def _build_hint_renderer(config: Config) -> HintRenderer:
    tokenizer = load_tokenizer(resolve_model(config.model.path))
    longest = min(tokenizer.context_length, config.trainer.max_sample_tokens)
    token_bytes = TokenBytes(tokenizer.tokenizer)
    times = config.trainer.teacher.hint_times
    return HintRenderer(ChatTemplateRenderer(tokenizer), longest, token_bytes, times)


def _give_way(nice: int) -> None:
    """Lower this process's priority; one that is lower already stays."""
    wanted = max(nice, os.getpriority(os.PRIO_PROCESS, 0))
    try:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
    except OSError as error:
        log.warning("cannot lower the priority", nice=nice, error=str(error))


@contextlib.contextmanager
def _stop_on_signals(stop: threading.Event, loaded: threading.Event) -> Iterator[None]:
    """Let SIGTERM and SIGINT set ``stop``; a second one ends the process as usual.

    Until weights are ``loaded`` the first one ends it at once: there is nothing to finish, and to
    import PyTorch and load a model takes many seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def ask_to_stop(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, before[signal.Signals(number)])
        stop.set()
        if not loaded.is_set():
            sys.exit(0)

    for number in before:
        signal.signal(number, ask_to_stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
