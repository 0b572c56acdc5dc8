"""The local launcher: restarts what dies, ends only what it started, hands sockets over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rejoinder.launch import local
from rejoinder.launch.base import RoleEnded, RoleSpec
from rejoinder.launch.local import LocalLauncher
from rejoinder.launch.ports import bind_port, bound_port

ROLE = """
import argparse, os, signal, socket, sys, threading, time
sys.path.insert(0, {source!r})
from rejoinder.launch.lifeline import stop_with_parent
parser = argparse.ArgumentParser()
for name in ("--config", "--lifeline", "--fd"):
    parser.add_argument(name)
parser.add_argument("role")
given = parser.parse_args()
stop_with_parent(int(given.lifeline))
print(given.role, "runs", os.getpid(), flush=True)
if given.role == "judge":
    sys.exit(3)
if given.role == "trainer":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
if given.fd is None:
    time.sleep(60)
listener = socket.socket(fileno=int(given.fd))
while True:
    client, _ = listener.accept()
    client.sendall(str(os.getpid()).encode())
    client.close()
"""
Make = Callable[[], LocalLauncher]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    program = tmp_path / "role.py"
    program.write_text(ROLE.format(source=str(Path(local.__file__).parents[2])))
    made: list[LocalLauncher] = []

    def make_one() -> LocalLauncher:
        launcher = LocalLauncher(
            tmp_path / "config.toml", tmp_path / "logs", program=(sys.executable, str(program))
        )
        made.append(launcher)
        return launcher

    yield make_one
    for launcher in made:
        launcher.stop(0.0)


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def ask(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        return int(client.recv(20))


def test_a_killed_role_is_started_again_and_its_clients_only_wait(make: Make) -> None:
    launcher = make()
    with bind_port("127.0.0.1", 0, "gateway.port") as listener:
        launcher.start([RoleSpec("gateway", listener)])
        first = ask(bound_port(listener))
        os.kill(first, signal.SIGKILL)
        # Nobody has reaped it: dead for certain, and not yet started again.
        wait_for(lambda: psutil.Process(first).status() == psutil.STATUS_ZOMBIE)
        with socket.create_connection(("127.0.0.1", bound_port(listener)), timeout=20) as client:
            ended: list[RoleEnded] = []
            wait_for(lambda: bool(ended.extend(launcher.watch()) or ended))
            assert (ended[0].pid, ended[0].exit_code) == (first, -signal.SIGKILL)
            assert ended[0].cause == "was killed by signal 9"
            wait_for(lambda: not launcher.watch() and launcher.running()[0].pid is not None)
            assert int(client.recv(20)) == launcher.running()[0].pid
        assert launcher.running()[0].restarts == 1


def test_a_role_that_keeps_dying_young_is_started_ever_more_rarely(make: Make) -> None:
    launcher = make()
    launcher.start([RoleSpec("judge")])
    ended: list[RoleEnded] = []
    wait_for(lambda: bool(ended.extend(launcher.watch()) or len(ended) == 3))
    delays = [event.restart_in_s for event in ended]
    assert delays == [local.FIRST_DELAY_S, 2 * local.FIRST_DELAY_S, 4 * local.FIRST_DELAY_S]
    assert [event.lives for event in ended] == [1, 2, 3]
    assert ended[0].cause == "ended with exit code 3"


def test_stopping_ends_every_role_and_nobody_else(make: Make) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as bystander:
        launcher = make()
        launcher.start([RoleSpec("engine", stops_last=True), RoleSpec("gateway")])
        pids = [role.pid for role in launcher.running()]
        launcher.stop(20.0)
        assert bystander.poll() is None
        bystander.kill()
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_role_is_out_of_reach_of_ctrl_c_and_yet_in_the_session_of_its_supervisor(
    make: Make,
) -> None:
    """Guards against sessions of their own, between which Linux pays no heed to priorities."""
    launcher = make()
    launcher.start([RoleSpec("engine")])
    pid = launcher.running()[0].pid
    assert pid is not None
    assert os.getpgid(pid) == pid
    assert os.getsid(pid) == os.getsid(0)


def test_a_role_that_does_not_listen_is_killed_after_the_grace_time(make: Make) -> None:
    launcher = make()
    launcher.start([RoleSpec("trainer")])
    wait_for(lambda: launcher.log_of("trainer").last_line() == "deaf")
    pid = launcher.running()[0].pid
    assert pid is not None
    launcher.stop(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_roles_stop_when_their_supervisor_is_gone(make: Make) -> None:
    launcher = make()
    launcher.start([RoleSpec("engine")])
    log = launcher.log_of("engine")
    wait_for(lambda: "runs" in log.last_line())
    launcher._lifeline.close()  # what the kernel does when the supervisor is killed
    ended: list[RoleEnded] = []
    wait_for(lambda: bool(ended.extend(launcher.watch()) or ended))
    assert ended[0].exit_code == -signal.SIGTERM
    launcher._stopping = True  # its pipe is closed already


def test_a_full_disk_or_memory_ends_neither_the_supervisor_nor_other_roles(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    launcher = make()
    launcher.start([RoleSpec("judge"), RoleSpec("engine")])
    pid = launcher.running()[1].pid
    with monkeypatch.context() as broken:
        broken.setattr(local.RoleLog, "turn_over", full)
        broken.setattr(local.subprocess, "Popen", full)
        launcher._next_log_check = 0.0
        ended: list[RoleEnded] = []
        wait_for(lambda: bool(ended.extend(launcher.watch()) or ended))
        role = launcher._roles[0]
        role.start_at = 0.0
        assert launcher.watch() == []
        assert [one.pid for one in launcher.running()] == [None, pid]
        assert role.delay_s == 2 * local.FIRST_DELAY_S  # tried again later
    role.start_at = 0.0
    launcher.watch()
    assert launcher.running()[0].pid is not None
