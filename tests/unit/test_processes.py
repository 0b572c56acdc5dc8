"""Whether a process still runs, and where its id means it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from rejoinder import processes
from rejoinder.processes import process_space, runs


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_process_runs_until_it_has_ended(other: subprocess.Popen[bytes]) -> None:
    assert runs(other.pid, time.time())
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert not runs(other.pid, time.time()), "nobody has asked for its end yet"
    other.wait()
    assert not runs(other.pid, time.time())


def test_a_younger_process_is_another_with_the_same_id() -> None:
    assert not runs(os.getpid(), psutil.Process().create_time() - 1.0)


def test_a_process_that_others_may_not_see_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc is mounted with ``hidepid``, those of other users seem not to exist."""

    def hidden(pid: int) -> None:
        raise psutil.NoSuchProcess(pid)

    def refused(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(processes.psutil, "Process", hidden)
    monkeypatch.setattr(os, "kill", refused)
    assert runs(7, time.time())


def test_processes_of_one_machine_have_one_space() -> None:
    program = "from rejoinder.processes import process_space; print(process_space())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == process_space()
