"""Which gateway processes of this machine still run."""

from __future__ import annotations

import os
import subprocess
import sys
import time

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
