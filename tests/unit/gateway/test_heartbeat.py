"""Which gateway processes of this machine still run."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil

from rejoinder.gateway.heartbeat import living, new_owner
from rejoinder.journal.records import RoleReport


def reported(instance: str, pid: int, started_at: float, role: str = "gateway") -> RoleReport:
    return RoleReport(role, instance, pid, "ready", started_at=started_at)


def test_only_living_processes_of_this_machine_are_alive():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    now = time.time()
    mine, dead, reused = new_owner(), new_owner(), new_owner()
    reports = [
        reported(mine, os.getpid(), now),
        reported(dead, done.pid, now),
        reported(reused, os.getpid(), now - 10_000_000),  # its process id has gone to another
        reported("gateway:elsewhere:1", os.getpid(), now),
        reported(new_owner(), os.getpid(), now, role="judge"),
    ]
    assert living(reports) == [mine]


def test_a_process_that_started_before_the_clock_was_set_forward_is_alive():
    """Its open turns were ended by whichever gateway started next."""
    mine, dead = new_owner(), new_owner()
    born = psutil.Process().create_time()  # by the clock of now, as all processes' are
    reports = [
        RoleReport("gateway", mine, os.getpid(), "ready", started_at=born - 60, seen_at=born + 5),
        RoleReport("gateway", dead, os.getpid(), "ready", started_at=born - 60, seen_at=born - 5),
    ]
    assert living(reports) == [mine]
