"""A pipe by which roles notice that their supervisor is gone, even after ``kill -9``.

The supervisor holds the only writing end. When it ends, however it ends, the reading ends in the
roles see end of file, and the roles stop as on SIGTERM: no orphan keeps a port or a lease.
"""

from __future__ import annotations

import os
import signal
import threading


class Lifeline:
    """The supervisor's side."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()  # neither is inherited unless handed over

    def close(self) -> None:
        """Let go; roles that still run will stop."""
        os.close(self.read_end)
        os.close(self._write_end)


def stop_with_parent(descriptor: int) -> None:
    """Send this process SIGTERM as soon as the supervisor behind the pipe is gone."""

    def watch() -> None:
        while os.read(descriptor, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
