"""The whole system: when it gives up on a role, and when it must not."""

from __future__ import annotations

import json
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rejoinder.config import Config, GatewayConfig, TorchEngineConfig
from rejoinder.errors import EXIT_CONFIG, EXIT_REFUSED, ConfigError, RejoinderError
from rejoinder.launch import system as system_module
from rejoinder.launch.base import RoleEnded, RoleRunning, RoleSpec
from rejoinder.launch.local import STEADY_S
from rejoinder.launch.logs import RoleLog
from rejoinder.launch.plan import bind_all
from rejoinder.launch.ports import bind_port, bound_port
from rejoinder.launch.system import TRIES_AT_START, LocalSystem, missing_parts


class Launcher:
    """Tells of ends that a test has thought up."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ended: list[RoleEnded] = []

    def start(self, roles: list[RoleSpec]) -> None: ...

    def watch(self) -> list[RoleEnded]:
        ended, self.ended = self.ended, []
        return ended

    def running(self) -> list[RoleRunning]:
        return []

    def stop(self, grace_s: float) -> None: ...

    def log_of(self, name: str) -> RoleLog:
        return RoleLog(self.directory, name)


def end(code: int, lives: int, lived_s: float = 1.0) -> RoleEnded:
    return RoleEnded("trainer", 1, code, lives, lived_s=lived_s, restart_in_s=0.2)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        home=str(tmp_path / "home"),
        gateway=GatewayConfig(port=0),
        engine=TorchEngineConfig(port=0),
    )


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path)


@pytest.fixture
def system(config: Config, launcher: Launcher) -> LocalSystem:
    system = LocalSystem(config)
    system._launcher = launcher  # type: ignore[assignment]
    return system


def write_log(launcher: Launcher, line: str) -> None:
    with launcher.log_of("trainer").open() as log:
        log.write(f"{line}\n".encode())


@pytest.mark.parametrize("lives", [1, 2])
def test_a_role_that_refuses_its_configuration_ends_the_start_in_its_own_words(
    system: LocalSystem, launcher: Launcher, lives: int
) -> None:
    write_log(launcher, "error: trainer.lora.targets: there is no module 'x'")
    launcher.ended = [end(EXIT_CONFIG, lives)]
    with pytest.raises(RejoinderError, match=r"trainer cannot start: trainer\.lora\.targets"):
        system.watch()


def test_a_role_that_worked_for_long_before_it_refused_is_tried_again(
    system: LocalSystem, launcher: Launcher
) -> None:
    launcher.ended = [end(EXIT_CONFIG, lives=1, lived_s=STEADY_S)]
    assert len(system.watch()) == 1


@pytest.mark.parametrize("code", [1, EXIT_REFUSED, -9])
def test_a_role_that_ends_three_times_before_anything_worked_ends_the_system(
    system: LocalSystem, launcher: Launcher, code: int
) -> None:
    """A signal counts like any other end: out of memory at each start is no accident."""
    for lives in range(1, TRIES_AT_START):
        launcher.ended = [end(code, lives)]
        system.watch()
    launcher.ended = [end(code, TRIES_AT_START)]
    with pytest.raises(RejoinderError, match=f"signal 9|exit code {code}"):
        system.watch()


@pytest.mark.parametrize("code", [1, EXIT_REFUSED, EXIT_CONFIG, -9])
@pytest.mark.parametrize("lives", [1, 5])
def test_nothing_that_becomes_of_a_role_ends_a_system_that_has_served(
    system: LocalSystem, launcher: Launcher, code: int, lives: int
) -> None:
    system._has_served = True
    launcher.ended = [end(code, lives)]
    assert len(system.watch()) == 1


def test_a_role_that_ends_while_the_start_is_waited_for_is_told_with_its_last_words(
    system: LocalSystem, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(launcher, "error: the disk is full")
    launcher.ended = [end(1, lives=1)]
    monkeypatch.setattr(system_module, "missing_parts", lambda *_: [])
    said: list[str] = []
    system.wait_until_ready(said.append)
    (line,) = said
    assert line.startswith("the trainer (process 1) ended with exit code 1 after 1 s: the disk is")


def test_a_killed_role_is_not_given_the_words_of_an_earlier_end(
    system: LocalSystem, launcher: Launcher
) -> None:
    write_log(launcher, "error: of another life")
    assert "another life" not in system.told(end(-9, lives=2))


def test_one_port_for_gateway_and_engine_is_told_as_that(config: Config) -> None:
    """It was taken "by another program", whose process was the one that told."""
    with bind_port("127.0.0.1", 0, "gateway.port") as listener:
        port = bound_port(listener)

    def of(gateway_host: str) -> Config:
        return config.model_copy(
            update={
                "gateway": GatewayConfig(host=gateway_host, port=port),
                "engine": TorchEngineConfig(port=port),
            }
        )

    for host in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(ConfigError, match=f"port and engine.port are both {port}: set one"):
            bind_all(of(host))
    _, roles = bind_all(of("127.0.0.2"))
    for role in roles[:2]:
        assert role.listener is not None
        role.listener.close()


def test_ports_are_bound_before_anything_starts_and_freed_at_the_end(config: Config) -> None:
    with LocalSystem(config) as system:
        port = system.config.gateway.port
        assert port > 0
        assert system.address == f"http://127.0.0.1:{port}"
        with pytest.raises(RejoinderError, match="taken"):
            bind_port("127.0.0.1", port, "gateway.port")
    bind_port("127.0.0.1", port, "gateway.port").close()


def test_an_address_of_ipv6_has_brackets(config: Config) -> None:
    six = config.model_copy(update={"gateway": GatewayConfig(host="::1", port=8080)})
    assert LocalSystem(six).address == "http://[::1]:8080"


def test_a_taken_port_leaves_the_home_and_the_other_port_free(config: Config) -> None:
    with bind_port("127.0.0.1", 0, "gateway.port") as other:
        taken = config.model_copy(update={"gateway": GatewayConfig(port=bound_port(other))})
        with pytest.raises(RejoinderError, match="taken"):
            LocalSystem(taken).__enter__()
    with LocalSystem(config):
        pass


def test_all_taken_ports_are_named_at_once(config: Config) -> None:
    with LocalSystem(config) as first:
        ports = {"gateway": first.config.gateway, "engine": first.config.engine}
        again = config.model_copy(update={"home": f"{config.home}-2", **ports})
        with pytest.raises(RejoinderError, match=r"set engine\.port and gateway\.port") as told:
            LocalSystem(again).__enter__()
        assert str(first.config.gateway.port) in str(told.value)
        if sys.platform == "linux":
            assert f"`rejoinder up` with {config.home}" in str(told.value)


def test_a_gateway_that_is_not_there_is_what_is_missing() -> None:
    with bind_port("127.0.0.1", 0, "gateway.port") as listener:
        port = bound_port(listener)
    assert missing_parts("127.0.0.1", port) == ["the gateway does not answer yet"]


def test_what_is_missing_is_told_once() -> None:
    """It read "engine: the engine does not answer: the engine is loading its model"."""

    class NotReady(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.end_headers()
            missing = {"engine": "the engine is loading its model", "gateway": "shutting down"}
            self.wfile.write(json.dumps({"missing": missing}).encode())

        def log_message(self, *_: object) -> None:
            """Nothing to tell."""

    with HTTPServer(("127.0.0.1", 0), NotReady) as server:
        asked = threading.Thread(target=server.handle_request)
        asked.start()
        found = missing_parts("127.0.0.1", server.server_port)
        asked.join()
    assert found == ["the engine is loading its model", "gateway: shutting down"]


def test_a_killed_helper_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_module, "resolve_model", signal.raise_signal)
    with pytest.raises(RejoinderError, match="ended before it was done"):
        system_module.fetch_model(signal.SIGKILL)  # type: ignore[arg-type]
