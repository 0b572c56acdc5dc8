"""Runs the real trainer in child processes that kill themselves at a named moment.

Usage: ``python crash_trainer.py CONFIG_JSON MOMENT...``; prints one JSON line per child. PyTorch is
imported once and the children are forked, so that a dozen of them take seconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rejoinder.config import Config
from rejoinder.journal.records import TrainSample
from rejoinder.journal.sql import SqlJournal
from rejoinder.models.embedded import resolve_model
from rejoinder.models.loading import load_model
from rejoinder.policy import durable
from rejoinder.policy.registry import PolicyRegistry
from rejoinder.trainer import lease, loop, recovery
from rejoinder.trainer.hinted import TeacherPrompts
from rejoinder.trainer.loop import run_trainer
from rejoinder.trainer.publish import Publisher
from rejoinder.trainer.torch_backend import TorchBackend


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, count: int = 1) -> None:
    """Die at the ``count``-th call of a function, before it does anything."""
    original, calls = getattr(owner, name), []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        if len(calls) == count:
            die()
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def after(owner: Any, name: str) -> None:
    """Die after the first call of a function, before its caller goes on."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        original(*args, **kwargs)
        die()

    setattr(owner, name, wrapped)


def in_the_gradient() -> None:
    original = TorchBackend.accumulate

    def accumulate(self: TorchBackend, turns: Any) -> Iterator[float]:
        for done in original(self, turns):
            yield done
            die()

    TorchBackend.accumulate = accumulate  # type: ignore[method-assign]


MOMENTS: dict[str, Callable[[], None]] = {
    "in the gradient": in_the_gradient,
    "after the optimizer": lambda: after(TorchBackend, "apply"),
    "with half of the files": lambda: after(TorchBackend, "save_weights"),
    "before the rename": lambda: before(durable, "_take_place"),
    "before the checkpoint": lambda: before(Publisher, "_write_checkpoint"),
    "with half of a checkpoint": lambda: after(TorchBackend, "save_checkpoint"),
    "before the commit": lambda: before(SqlJournal, "commit_step"),
    "before the second commit": lambda: before(SqlJournal, "commit_step", 2),
    "before the third commit": lambda: before(SqlJournal, "commit_step", 3),
    "after the commit": lambda: after(SqlJournal, "commit_step"),
    "before retention": lambda: before(PolicyRegistry, "apply_retention"),
    "while rewinding": lambda: after(SqlJournal, "rewind"),
    "before cleaning up": lambda: before(recovery.PolicyFiles, "remove_leftovers"),
}


class SpelledHints:
    """Puts hints, lists of ids, behind the prompt: the tiny model has no tokenizer."""

    def prompts(self, sample: TrainSample) -> TeacherPrompts:
        hints = [[int(word) for word in hint.split()] for hint in sample.hints]
        return TeacherPrompts(tuple([*sample.prompt_ids, *hint] for hint in hints))


def child(config: Config, moment: str) -> int:
    """Train in a fork until it dies, or until nothing is left to train; returns its exit code."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)
    lease.TTL_S, lease.RENEW_S = 0.5, 0.1
    if moment != "to the end":
        MOMENTS[moment]()
    stop = threading.Event()
    watcher = threading.Thread(target=stop_when_idle, args=(config, stop), daemon=True)
    watcher.start()
    run_trainer(config, stop)
    os._exit(0)


def stop_when_idle(config: Config, stop: threading.Event) -> None:
    """End the run once no batch is left."""
    policy, size = config.model.policy, config.trainer.batch_size
    with SqlJournal(config.journal_url) as journal:
        while not stop.wait(0.1):
            lineage = journal.current_lineage(policy)
            if journal.ready_count(lineage, config.trainer.max_staleness) < size:
                stop.set()


def main() -> None:
    config = Config.model_validate_json(sys.argv[1])
    loop._build_hint_renderer = lambda _: SpelledHints()
    torch.set_num_threads(1)
    # What transformers makes ready for its first model takes half a second; each child would do it.
    load_model(resolve_model(config.model.path), torch.float32, torch.device("cpu"))
    for moment in sys.argv[2:]:
        print(json.dumps([moment, child(config, moment)]), flush=True)


if __name__ == "__main__":
    main()
