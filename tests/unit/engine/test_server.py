"""The engine's process: loading, ready, following, refusing, ending."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine_in_thread import EngineInThread
from rejoinder.config import Config
from rejoinder.engine import server
from rejoinder.engine.client import HttpEngine
from rejoinder.errors import ConfigError, EngineUnavailable
from tiny_model import POLICY, source


def _config(model: Path | str) -> Config:
    engine = {"kind": "torch", "max_running": 2, "cache_slots": 2, "threads": 1, "poll_s": 0.01}
    return Config.model_validate({"model": {"path": str(model), "device": "cpu"}, "engine": engine})


def _get(sock: socket.socket, path: str, content_type: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", sock.getsockname()[1], timeout=10)
    method = "POST" if content_type else "GET"
    connection.request(method, path, body=b"{}", headers={"Content-Type": content_type or "x"})
    response = connection.getresponse()
    return response.status, response.read()


def _running(monkeypatch: pytest.MonkeyPatch, config: Config, **options: object) -> EngineInThread:
    return EngineInThread(
        monkeypatch,
        lambda sock: server.run_engine_server(config, sock, **options),  # type: ignore[arg-type]
    )


async def test_health_says_loading_until_the_live_version_serves(
    tiny_models: list[Path], monkeypatch: pytest.MonkeyPatch
):
    may_go_on = threading.Event()
    live = [source(tiny_models[1], 1)]

    def registry() -> list:
        assert may_go_on.wait(20)
        return list(live)

    running = _running(monkeypatch, _config(tiny_models[0]), live_sources=registry)
    engine = HttpEngine(f"http://127.0.0.1:{running.sock.getsockname()[1]}")
    try:
        running.until(lambda: bool(running.servers) and running.servers[0]._server.started)
        assert _get(running.sock, "/health") == (503, b"loading")
        with pytest.raises(EngineUnavailable, match="loading"):
            await engine.info()
        may_go_on.set()
        running.until(lambda: _get(running.sock, "/health") == (200, b"ok"))
        assert (await engine.info()).live == {POLICY: 1}
        live[:] = [source(tiny_models[2], 2)]
        running.until(
            lambda: (
                running.servers[0]._holder.get()._worker.versions.live()  # type: ignore[attr-defined]
                == {POLICY: 2}
            )
        )
    finally:
        may_go_on.set()
        await engine.close()
        assert running.end() is None


def test_a_model_that_cannot_be_found_ends_the_process_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    running = _running(monkeypatch, _config(tmp_path / "nowhere"))
    running.until(lambda: running.raised is not None)
    error = running.end()
    assert isinstance(error, ConfigError)
    assert "nowhere" in str(error)


LOADS_FOR_EVER = """
import asyncio, socket, threading
from rejoinder.config import Config
from rejoinder.engine import server

async def start_engine(_):
    await asyncio.to_thread(threading.Event().wait)

server.start_engine = start_engine
sock = socket.create_server(("127.0.0.1", 0))
print(sock.getsockname()[1], flush=True)
server.run_engine_server(Config(), sock)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_is_told_to_end_while_the_model_loads_ends_at_once(number: signal.Signals):
    command = [sys.executable, "-c", LOADS_FOR_EVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/health")
            assert connection.getresponse().read() == b"loading"
            process.send_signal(number)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_page_in_a_browser_cannot_post_to_the_engine(
    tiny_models: list[Path], monkeypatch: pytest.MonkeyPatch
):
    """Guards against requests that browsers send to other sites without asking."""
    running = _running(monkeypatch, _config(tiny_models[0]))
    try:
        running.until(lambda: bool(running.servers) and running.servers[0]._server.started)
        for content_type in ("text/plain", "application/x-www-form-urlencoded"):
            assert _get(running.sock, "/load", content_type)[0] == 400
    finally:
        running.end()


def test_the_engine_refuses_to_listen_off_this_machine():
    with socket.create_server(("0.0.0.0", 0)) as sock, pytest.raises(ConfigError, match="stay on"):
        server.run_engine_server(Config(), sock)
