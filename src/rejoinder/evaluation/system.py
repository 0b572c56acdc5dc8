"""Starting the real system for a run and stopping it again: the same command that anyone types."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from types import TracebackType

from rejoinder.config import Config
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.client import ChatClient
from rejoinder.launch.home import ensure_home
from rejoinder.launch.toml import config_toml

READY_WITHIN_S = 300.0
"""The first start converts the embedded model."""
STOP_WITHIN_S = 60.0
_PROGRAM = (sys.executable, "-P", "-m", "rejoinder")


class SystemFailed(RejoinderError):
    """The system did not start, or ended while it was needed; the message shows its last words."""


class RunningSystem:
    """All four roles of one configuration, for the time of an ``async with``."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._log = config.home_path / "demo.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def base_url(self) -> str:
        """Where the gateway listens."""
        gateway = self._config.gateway
        return f"http://{gateway.host}:{gateway.port}"

    async def __aenter__(self) -> RunningSystem:
        file = ensure_home(self._config) / "demo.toml"
        file.write_text(config_toml(self._config), "utf-8")
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *_PROGRAM,
                "--config",
                str(file),
                "up",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C reaches the demonstration only, which then ends the system in order.
                start_new_session=True,
            )
        try:
            await self._until_ready()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()

    def check(self) -> None:
        """Raise ``SystemFailed`` if the system has ended."""
        if self._process is None or self._process.returncode is not None:
            raise SystemFailed(f"the system ended by itself:\n{self._last_words()}")

    async def _until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        async with ChatClient(self.base_url, timeout_s=5.0) as client:
            while time.monotonic() < deadline:
                self.check()
                with contextlib.suppress(OSError, TimeoutError):
                    if await client.is_ready():
                        return
                await asyncio.sleep(0.5)
        raise SystemFailed(f"not ready after {READY_WITHIN_S:.0f} s:\n{self._last_words()}")

    async def _stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_WITHIN_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    def _last_words(self) -> str:
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return "\n".join(["  " + line for line in lines[-15:]] + [f"  (all of it: {self._log})"])


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
