"""The real agent OpenClaw in a home of its own: one command at a time, or as a daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from client_kit import NODE, NODE_MODULES, answers, client_environment, free_port

OPENCLAW = NODE_MODULES / "openclaw"
PLUGIN = Path(__file__).parents[2] / "integrations" / "openclaw"
TOKEN = "for-this-test-alone"
COMMAND_S = 900.0
"""It starts for minutes where other work takes the processor."""
READY_S = 240.0


@dataclass
class OpenClaw:
    """Talks to the model behind ``url``; ``close`` ends the daemon, if one was started."""

    home: Path
    url: str
    plugin: bool
    port: int = field(default_factory=free_port)
    _daemon: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        (self.home / "work").mkdir(parents=True)
        (self.home / "openclaw.json").write_text(json.dumps(self._config()))

    def run(self, *arguments: str) -> str:
        """Run one command to its end; returns what it printed."""
        done = subprocess.run(
            self._command(*arguments),
            env=self._environment(),
            cwd=self.home / "work",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.story()
        return done.stdout

    def say(self, text: str, *arguments: str) -> str:
        """Say something to the agent; returns the last line of its answer."""
        printed = self.run("agent", "--agent", "main", "--message", text, *arguments)
        return [line for line in printed.splitlines() if line and not line.startswith("[")][-1]

    def start(self) -> OpenClaw:
        """Start the daemon, which heartbeats need."""
        with self._log.open("wb") as log:
            self._daemon = subprocess.Popen(
                self._command("gateway", "run", "--port", str(self.port)),
                env=self._environment(),
                cwd=self.home / "work",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.wait_until(lambda: answers(f"http://127.0.0.1:{self.port}/readyz"), READY_S)
        return self

    def wait_until(self, condition: Callable[[], object], seconds: float) -> None:
        """Wait for something that must come; the time is a limit, not a measurement."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s\n{self.story()}"
            assert self._daemon is None or self._daemon.poll() is None, self.story()
            time.sleep(0.5)

    def story(self) -> str:
        """Return what the daemon said."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def close(self) -> None:
        if self._daemon is None:
            return
        self._daemon.send_signal(signal.SIGTERM)
        try:
            self._daemon.wait(30)
        except subprocess.TimeoutExpired:
            self._daemon.kill()

    @property
    def _log(self) -> Path:
        return self.home / "openclaw.log"

    def _command(self, *arguments: str) -> list[str]:
        return [str(NODE), str(OPENCLAW / "openclaw.mjs"), *arguments]

    def _environment(self) -> dict[str, str]:
        return client_environment(
            OPENCLAW_STATE_DIR=str(self.home / "state"),
            OPENCLAW_CONFIG_PATH=str(self.home / "openclaw.json"),
            OPENCLAW_GATEWAY_TOKEN=TOKEN,
        )

    def _config(self) -> dict[str, Any]:
        model = {
            "id": "default",
            "name": "Rejoinder",
            "reasoning": False,
            "input": ["text"],
            "contextWindow": 200_000,
            "maxTokens": 512,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        }
        provider = {
            "baseUrl": f"{self.url}/v1",
            "apiKey": "none",
            "api": "openai-completions",
            "models": [model],
        }
        config: dict[str, Any] = {
            "agents": {
                "defaults": {
                    "workspace": str(self.home / "work"),
                    "skipBootstrap": True,
                    "model": {"primary": "rejoinder/default"},
                    # None but those that a test asks for.
                    "heartbeat": {"every": "24h", "target": "none"},
                }
            },
            "models": {"mode": "merge", "providers": {"rejoinder": provider}},
            "gateway": {
                "mode": "local",
                "port": self.port,
                "bind": "loopback",
                "auth": {"mode": "token", "token": TOKEN},
            },
        }
        if self.plugin:
            config["plugins"] = {
                "load": {"paths": [str(PLUGIN)]},
                "entries": {
                    "rejoinder": {"enabled": True, "hooks": {"allowConversationAccess": True}}
                },
            }
        return config
