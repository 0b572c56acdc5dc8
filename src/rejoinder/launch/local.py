"""Roles as processes of this machine: each one is this program's own command, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from rejoinder.launch.base import RoleEnded, RoleRunning, RoleSpec
from rejoinder.launch.lifeline import Lifeline
from rejoinder.launch.logs import RoleLog

log = structlog.get_logger(__name__)

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 30.0
STEADY_S = 60.0
"""A role that lived this long is well: its next restart is quick again."""
LOG_CHECK_S = 10.0
_FORCED_WAIT_S = 10.0
_STEP_S = 0.02
_BEFORE_FIRST_S = FIRST_DELAY_S / 2


class LocalLauncher:
    """See ``Launcher``. Restarts with a delay that doubles while a role keeps dying young."""

    def __init__(
        self,
        config_file: Path,
        log_directory: Path,
        program: Sequence[str] = (sys.executable, "-P", "-m", "rejoinder"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = [*program, "--config", str(config_file)]
        self._log_directory = log_directory
        self._clock = clock
        self._lifeline = Lifeline()
        self._roles: list[_Role] = []
        self._stopping = False
        self._deadline = 0.0
        self._next_log_check = clock() + LOG_CHECK_S

    def start(self, roles: Sequence[RoleSpec]) -> None:
        """See ``Launcher``."""
        self._roles = [_Role(spec, RoleLog(self._log_directory, spec.name)) for spec in roles]
        for role in self._roles:
            self._start(role)

    def watch(self) -> list[RoleEnded]:
        """See ``Launcher``."""
        if self._stopping:
            return []
        now = self._clock()
        ended = [event for role in self._roles if (event := self._reap(role, now))]
        for role in self._roles:
            if role.process is None and now >= role.start_at:
                self._restart(role, now)
        if now >= self._next_log_check:
            self._next_log_check = now + LOG_CHECK_S
            for role in self._roles:
                self._turn_over(role)
        return ended

    def running(self) -> list[RoleRunning]:
        """See ``Launcher``."""
        return [
            RoleRunning(
                role.spec.name,
                None if role.process is None else role.process.pid,
                max(0, role.lives - 1),
            )
            for role in self._roles
        ]

    def log_of(self, name: str) -> RoleLog:
        """Return a role's log."""
        return next(role.log for role in self._roles if role.spec.name == name)

    def stop(self, grace_s: float) -> None:
        """See ``Launcher``."""
        if self._stopping:
            self._deadline = self._clock()
            return
        self._stopping = True
        self._deadline = self._clock() + grace_s
        for last in (False, True):
            wave = [r.process for r in self._roles if r.spec.stops_last is last and r.process]
            for process in wave:
                _signal(process, signal.SIGTERM)
            for process in wave:
                self._wait_or_kill(process)
        self._lifeline.close()

    def _start(self, role: _Role) -> None:
        arguments = [role.spec.name, "--lifeline", str(self._lifeline.read_end)]
        handed = [self._lifeline.read_end]
        if role.spec.listener is not None:
            handed.append(role.spec.listener.fileno())
            arguments += ["--fd", str(role.spec.listener.fileno())]
        with role.log.open() as output:
            role.process = subprocess.Popen(  # noqa: S603 - this program itself
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=handed,
                # Ctrl-C in the terminal reaches the supervisor only, which ends roles in order. No
                # session of its own: Linux shares cores out between sessions first (autogroup), and
                # the lower priority of a trainer would count among its own threads only.
                process_group=0,
            )
        role.lives += 1
        role.started = self._clock()

    def _restart(self, role: _Role, now: float) -> None:
        """Start a role again, later if the machine cannot do it now: the others run on."""
        try:
            self._start(role)
        except OSError as error:  # a full disk, or no memory for another process
            role.wait(now)
            log.warning("a role cannot be started now", role=role.spec.name, error=str(error))

    def _turn_over(self, role: _Role) -> None:
        try:
            role.log.turn_over()
        except OSError as error:  # such as a full disk; nothing hangs on these files
            log.warning("a log was not turned over", file=str(role.log.path), error=str(error))

    def _wait_or_kill(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            if self._clock() >= self._deadline:
                log.warning("a role did not stop in time and is killed", pid=process.pid)
                _signal(process, signal.SIGKILL)
                process.wait(_FORCED_WAIT_S)
            time.sleep(_STEP_S)

    def _reap(self, role: _Role, now: float) -> RoleEnded | None:
        if role.process is None or role.process.poll() is None:
            return None
        lived = now - role.started
        if lived >= STEADY_S:
            role.delay_s = _BEFORE_FIRST_S
        role.wait(now)
        event = RoleEnded(
            name=role.spec.name,
            pid=role.process.pid,
            exit_code=role.process.returncode,
            lives=role.lives,
            lived_s=lived,
            restart_in_s=role.delay_s,
        )
        role.process = None
        return event


class _Role:
    """What the launcher keeps of one role."""

    def __init__(self, spec: RoleSpec, log_file: RoleLog) -> None:
        self.spec = spec
        self.log = log_file
        self.process: subprocess.Popen[bytes] | None = None
        self.lives = 0
        self.started = 0.0
        self.start_at = 0.0
        self.delay_s = _BEFORE_FIRST_S

    def wait(self, now: float) -> None:
        """Put the next start off, twice as long as the last time."""
        self.delay_s = min(LONGEST_DELAY_S, self.delay_s * 2)
        self.start_at = now + self.delay_s


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a child; one that has ended already is not signalled (its id may be another's)."""
    if process.poll() is None:
        os.kill(process.pid, number)
