"""The whole system: when it gives up on a role, and when it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rejoinder.config import Config, GatewayConfig, TorchEngineConfig
from rejoinder.errors import RejoinderError
from rejoinder.launch.base import RoleEnded, RoleRunning, RoleSpec
from rejoinder.launch.logs import RoleLog
from rejoinder.launch.ports import bind_port, bound_port
from rejoinder.launch.system import REFUSED, LocalSystem, missing_parts


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


def end(code: int, lives: int) -> RoleEnded:
    return RoleEnded("trainer", 1, code, lives, lived_s=1.0, restart_in_s=0.2)


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


def test_a_role_that_refuses_at_its_first_start_ends_the_system_in_its_own_words(
    system: LocalSystem, launcher: Launcher
) -> None:
    with launcher.log_of("trainer").open() as log:
        log.write(b"error: trainer.lora.targets: there is no module 'x'\n")
    launcher.ended = [end(REFUSED, lives=1)]
    with pytest.raises(RejoinderError, match=r"trainer cannot start: trainer\.lora\.targets"):
        system.watch()


def test_a_role_that_refuses_later_is_only_restarted(
    system: LocalSystem, launcher: Launcher
) -> None:
    launcher.ended = [end(REFUSED, lives=2)]
    assert len(system.watch()) == 1


def test_a_role_that_crashes_three_times_before_anything_worked_ends_the_system(
    system: LocalSystem, launcher: Launcher
) -> None:
    launcher.ended = [end(1, lives=2)]
    system.watch()
    launcher.ended = [end(1, lives=3)]
    with pytest.raises(RejoinderError, match="ended with exit code 1"):
        system.watch()


@pytest.mark.parametrize(("code", "served"), [(-9, False), (1, True)])
def test_a_killed_role_or_a_crash_after_serving_never_ends_the_system(
    system: LocalSystem, launcher: Launcher, code: int, served: bool
) -> None:
    system._has_served = served
    launcher.ended = [end(code, lives=3)]
    assert len(system.watch()) == 1


def test_ports_are_bound_before_anything_starts_and_freed_at_the_end(config: Config) -> None:
    with LocalSystem(config) as system:
        port = system.config.gateway.port
        assert port > 0
        assert system.address == f"http://127.0.0.1:{port}"
        with pytest.raises(RejoinderError, match="taken"):
            bind_port("127.0.0.1", port, "gateway.port")
    bind_port("127.0.0.1", port, "gateway.port").close()


def test_a_taken_port_leaves_the_home_and_the_other_port_free(config: Config) -> None:
    with bind_port("127.0.0.1", 0, "gateway.port") as other:
        taken = config.model_copy(update={"gateway": GatewayConfig(port=bound_port(other))})
        with pytest.raises(RejoinderError, match="taken"):
            LocalSystem(taken).__enter__()
    with LocalSystem(config):
        pass


def test_a_gateway_that_is_not_there_is_what_is_missing() -> None:
    with bind_port("127.0.0.1", 0, "gateway.port") as listener:
        port = bound_port(listener)
    assert missing_parts("127.0.0.1", port) == ["the gateway does not answer yet"]
