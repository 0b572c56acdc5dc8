"""``kill -9`` at random moments under load; then the journal must prove that nothing is wrong.

People talk all the time. Again and again one of the four roles is killed and comes back by itself.
What the clients saw is set against the journal after every kill, and once more at the end: see
``durability_audit.py`` for what is checked. A run that was interrupted goes on where it stopped:
call it again with the same ``--home``. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from durability_audit import audit, queued
from loop_process import READY_S, LoopProcess
from outcome import machine
from rejoinder.config import Config, GatewayConfig, TorchEngineConfig, TrainerConfig
from talkers import Answer, Talkers

ROLES = ("gateway", "engine", "judge", "trainer")
_QUIET_S = 120.0
"""How long the judge may need for its queue once nobody talks any more."""


@dataclass
class State:
    """What an interrupted run goes on from; written after every kill."""

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    broken: int = 0
    """Requests that a kill cut or refused: allowed, since nothing was promised to them."""
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @staticmethod
    def load(file: Path) -> State:
        """Read the state of an earlier run, if there was one."""
        return State(**json.loads(file.read_text())) if file.is_file() else State()

    def save(self, file: Path) -> None:
        """Write it, whole or not at all."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)))
        new.replace(file)


class Crowd:
    """Talkers in a thread; every whole answer goes to a log before it counts as heard."""

    def __init__(self, address: str, log: Path, people: int, seed: int) -> None:
        self._log = log.open("a", encoding="utf-8")
        self._talkers = Talkers(address, people, max_tokens=24, heard=self._hear, seed=seed)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._talkers.talk()))
        self.broken = 0

    def start(self) -> None:
        """Begin to talk."""
        self._thread.start()

    def stop(self) -> None:
        """Return when the last answer has come."""
        self._talkers.stop()
        self._thread.join()
        self._log.close()

    def _hear(self, answer: Answer) -> None:
        if not answer.whole:
            self.broken += 1
            return
        line = {"id": answer.completion_id, "text": answer.text}
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()


def main() -> None:
    arguments = _arguments()
    home: Path = arguments.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    state = State.load(home / "durability.json")
    begin = time.monotonic() - state.seconds
    broken_before = state.broken
    with LoopProcess(_config(home)) as loop, _crowd(loop, home, state, arguments.people) as crowd:
        rng = random.Random(sum(state.kills.values()))
        while (role := _next_role(state, arguments.kills)) is not None:
            _kill(loop, role, rng, arguments.longest_wait)
            state.kills[role] += 1
            state.violations += _new(audit(home, settled=False), state.violations)
            state.seconds = time.monotonic() - begin
            state.broken = broken_before + crowd.broken
            state.save(home / "durability.json")
            print(f"{state.seconds:6.0f} s  killed {state.kills}", flush=True)
    with LoopProcess(_config(home)) as loop:  # the last start clears what the last kill left open
        loop.wait_until_at_work()
        _wait_for_the_judge(home, loop)
        counts: dict[str, int] = {}
        found = audit(home, settled=True, counts=counts)
    state.violations += _new(found, state.violations)
    state.save(home / "durability.json")
    # A run in which nothing trained proves nothing about training.
    enough = min(state.kills.values()) >= arguments.kills and counts["steps"] > 0
    passed = enough and not state.violations
    figures = {"benchmark": "durability", **asdict(state), **counts, "passed": passed}
    print(json.dumps({**figures, "machine": machine()}))
    sys.exit(0 if passed else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="kills of each role")
    parser.add_argument("--home", type=Path, default=Path("durability-run"))
    parser.add_argument("--people", type=int, default=4)
    parser.add_argument("--longest-wait", type=float, default=8.0, help="seconds before a kill")
    return parser.parse_args()


def _config(home: Path) -> Config:
    """Small steps and sparse checkpoints, so that kills hit steps, and restarts rewind some."""
    return Config(
        home=str(home),
        log_level="warning",
        gateway=GatewayConfig(port=0),
        engine=TorchEngineConfig(port=0, max_running=4, threads=1),
        trainer=TrainerConfig(batch_size=2, checkpoint_every=3, threads=1),
    )


def _next_role(state: State, wanted: int) -> str | None:
    """Return the role that was killed least, or None when all were killed often enough."""
    role = min(ROLES, key=lambda name: state.kills[name])
    return role if state.kills[role] < wanted else None


def _kill(loop: LoopProcess, role: str, rng: random.Random, longest_wait: float) -> None:
    """Kill a role at a random moment of its work and wait until it runs again."""
    loop.wait_until_at_work()
    time.sleep(rng.uniform(0.0, longest_wait))
    pid = _running(loop, role)
    ends = len(loop.ended)
    os.kill(pid, signal.SIGKILL)
    while len(loop.ended) == ends:
        time.sleep(0.05)
    _running(loop, role)


def _running(loop: LoopProcess, role: str) -> int:
    """Return a role's process, waiting until it is started again."""
    deadline = time.monotonic() + READY_S
    while (pid := loop.pid(role)) is None:
        loop.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"the {role} does not come back")
        time.sleep(0.05)
    return pid


@contextmanager
def _crowd(loop: LoopProcess, home: Path, state: State, people: int) -> Iterator[Crowd]:
    crowd = Crowd(loop.address, home / "answers.jsonl", people, seed=sum(state.kills.values()))
    crowd.start()
    try:
        yield crowd
    finally:
        crowd.stop()


def _wait_for_the_judge(home: Path, loop: LoopProcess) -> None:
    """Let the queue run empty, so that every turn has come to rest."""
    deadline = time.monotonic() + _QUIET_S
    while queued(home) and time.monotonic() < deadline:
        loop.check()
        time.sleep(0.5)


def _new(found: list[str], known: list[str]) -> list[str]:
    return [violation for violation in found if violation not in known]


if __name__ == "__main__":
    main()
