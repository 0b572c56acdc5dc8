"""Clients of other people, where they are installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from client_kit import CLIENTS, Json, System, make_long_context_model


@pytest.fixture
def installed() -> Callable[[Path], Path]:
    """Return what skips a test where a client is missing."""

    def check(path: Path) -> Path:
        if not path.exists():
            pytest.skip(f"{path.relative_to(CLIENTS)} is not installed: make test-clients does it")
        return path

    return check


@pytest.fixture(scope="session")
def long_context_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the family of Qwen3 with room for the prompts of agents."""
    return make_long_context_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def replaying(tmp_path: Path, long_context_model: Path) -> Iterator[Callable[..., System]]:
    """Return what starts a gateway before an engine that replays a script."""
    started: list[System] = []

    def start(script: list[Json], gateway_settings: str = "") -> System:
        home = tmp_path / f"home{len(started)}"
        home.mkdir()
        system = System(home, str(long_context_model), script, gateway_settings)
        started.append(system)
        return system.start()

    yield start
    for system in started:
        system.close()


@pytest.fixture(scope="session")
def real_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], System]]:
    """Return what gives a gateway before the embedded model; all tests share it."""
    started: list[System] = []

    def start() -> System:
        if not started:
            started.append(System(tmp_path_factory.mktemp("smol"), "embedded"))
            started[0].start()
        return started[0]

    yield start
    for system in started:
        system.close()
