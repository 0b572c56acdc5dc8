"""``kill -9`` at random moments under load; then the journal must prove that nothing is wrong.

People talk all the time. Again and again one of the four roles is killed and comes back by itself.
What the clients saw is set against the journal after every kill, and once more at the end: see
``durability_audit.py`` for what is checked. A role that ends in any other way than by these kills,
and an answer that is given out as whole and is not, are violations as well.

A run that was interrupted goes on where it stopped: call it again with the same ``--home``, and
with the same code, for kills of different code prove nothing together. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from durability_audit import audit, queued
from loop_process import READY_S, LoopProcess
from outcome import REVISION, UNKNOWN, finish, revision, same_code
from rejoinder.config import Config, GatewayConfig, TorchEngineConfig, TrainerConfig
from rejoinder.launch.base import RoleEnded
from talkers import Answer, Talkers

ROLES = ("gateway", "engine", "judge", "trainer")
STATE = "durability.json"
_QUIET_S = 120.0
"""How long the judge may need for its queue once nobody talks any more."""


@dataclass
class State:
    """What an interrupted run goes on from; written after every kill."""

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    broken: int = 0
    """Requests that a kill cut or refused: allowed, since nothing was promised to them. Those that
    had no token yet when the engine was killed wait for it and are whole in the end."""
    own_ends: int = 0
    """How often a role ended otherwise than by a kill of this program; each is a violation."""
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    revision: str = UNKNOWN
    """Of the code that all of it ran with."""

    @staticmethod
    def load(home: Path, now: str) -> State:
        """Read the state of an earlier run, if there was one.

        Args:
            home: of the run.
            now: the revision of the code that would go on with it.
        """
        file = home / STATE
        if not file.is_file():
            if (home / "journal.db").exists():
                raise SystemExit(f"{home} holds data of no such run: name another --home")
            return State(revision=now)
        state = State(**json.loads(file.read_text()))
        if not same_code(state.revision, now):
            raise SystemExit(
                f"{home} holds a run of the code {state.revision}, and the code is {now} now. "
                "Kills of different code prove nothing together: name another --home, or delete "
                "this one to start anew"
            )
        return state

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
        self._thread = threading.Thread(target=self._talk)
        self._failure: BaseException | None = None
        self.broken = 0
        self.violations: list[str] = []

    def start(self) -> None:
        """Begin to talk."""
        self._thread.start()

    def stop(self) -> None:
        """Return when the last answer has come."""
        self._talkers.stop()
        self._thread.join()
        self._log.close()

    def check(self) -> None:
        """Raise what ended the talking, if it has: kills without load prove less."""
        if self._failure is not None:
            raise self._failure

    def _talk(self) -> None:
        try:
            asyncio.run(self._talkers.talk())
        except BaseException as error:  # noqa: BLE001 - handed to the main thread by check()
            self._failure = error

    def _hear(self, answer: Answer) -> None:
        if answer.truncated:
            self.violations.append(f"an answer was cut and sent as whole: {answer.completion_id}")
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
    state = State.load(home, REVISION)
    state.save(home / STATE)
    if _next_role(state, arguments.kills) is None:
        print(f"{home} holds a complete run of this very code; it is only checked again")
    else:
        _kill_all(home, state, arguments)
    counts: dict[str, int] = {}
    with LoopProcess(_config(home)) as loop:  # this start clears what the last kill left open
        loop.wait_until_at_work()
        _wait_for_the_judge(home, loop)
        found = audit(home, settled=True, counts=counts)
    _note(state, found, own_ends(loop.ended, killed=set()))
    state.save(home / STATE)
    # A run in which nothing trained proves nothing about training.
    enough = min(state.kills.values()) >= arguments.kills and counts["steps"] > 0
    passed = enough and not state.violations and not state.own_ends
    finish("durability", {**asdict(state), **counts}, passed=passed)


def _kill_all(home: Path, state: State, arguments: argparse.Namespace) -> None:
    """Kill every role as often as asked for; the state is saved after each kill."""
    begin = time.monotonic() - state.seconds
    broken_before = state.broken
    killed: set[int] = set()
    noted = 0
    rng = random.Random(sum(state.kills.values()))
    with LoopProcess(_config(home)) as loop, _crowd(loop, home, state, arguments.people) as crowd:
        while (role := _next_role(state, arguments.kills)) is not None:
            hit = _kill(loop, role, rng, arguments.longest_wait, killed)
            crowd.check()
            if revision() != state.revision:
                raise SystemExit("the code changed during the run; the last kill does not count")
            state.kills[role] += hit
            ended = loop.ended[noted:]
            noted += len(ended)
            found = audit(home, settled=False) + crowd.violations
            _note(state, found, own_ends(ended, killed))
            state.seconds = time.monotonic() - begin
            state.broken = broken_before + crowd.broken
            state.save(home / STATE)
            print(f"{state.seconds:6.0f} s  killed {state.kills}", flush=True)
    # What ended since then, with the last answers that people waited for.
    _note(state, crowd.violations, own_ends(loop.ended[noted:], killed))
    state.broken = broken_before + crowd.broken
    state.save(home / STATE)


def own_ends(ended: Sequence[RoleEnded], killed: set[int]) -> list[str]:
    """Return in words the ends that are not of this program's doing.

    Args:
        ended: every end of a role.
        killed: the processes that were killed.
    """
    return [
        f"the {event.name} (process {event.pid}) {event.cause} by itself"
        for event in ended
        if event.pid not in killed or event.exit_code != -signal.SIGKILL
    ]


def _note(state: State, found: Sequence[str], ends: Sequence[str]) -> None:
    """Add violations that are not known yet, and every end."""
    state.own_ends += len(ends)
    state.violations += [violation for violation in found if violation not in state.violations]
    state.violations += ends


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


def _kill(
    loop: LoopProcess, role: str, rng: random.Random, longest_wait: float, killed: set[int]
) -> bool:
    """Kill a role at a random moment of its work and wait until it runs again.

    Returns whether it was this kill that ended it.
    """
    loop.wait_until_at_work()
    time.sleep(rng.uniform(0.0, longest_wait))
    pid = _running(loop, role)
    killed.add(pid)
    with suppress(ProcessLookupError):  # it has just ended by itself, which is noted as that
        os.kill(pid, signal.SIGKILL)
    _wait(loop, lambda: _end(loop, pid) is not None, f"nobody notices that the {role} is dead")
    _running(loop, role)
    event = _end(loop, pid)
    return event is not None and event.exit_code == -signal.SIGKILL


def _end(loop: LoopProcess, pid: int) -> RoleEnded | None:
    return next((event for event in reversed(loop.ended) if event.pid == pid), None)


def _running(loop: LoopProcess, role: str) -> int:
    """Return a role's process, waiting until it is started again."""
    _wait(loop, lambda: loop.pid(role) is not None, f"the {role} does not come back")
    pid = loop.pid(role)
    return _running(loop, role) if pid is None else pid  # ended again since


def _wait(loop: LoopProcess, is_so: Callable[[], bool], otherwise: str) -> None:
    """Wait until something is so; end the run if it does not become so."""
    deadline = time.monotonic() + READY_S
    while not is_so():
        loop.check()
        if time.monotonic() > deadline:
            raise SystemExit(otherwise)
        time.sleep(0.05)


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


if __name__ == "__main__":
    main()
