"""The data directory: private, and for one system at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rejoinder.config import Config, GatewayConfig, load_config
from rejoinder.errors import RejoinderError
from rejoinder.launch.home import ensure_home, freeze_config, home_lock


def test_the_data_directory_is_its_owners(tmp_path: Path) -> None:
    home = ensure_home(Config(home=str(tmp_path / "data")))
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_cannot_be_made_names_the_ways_to_choose_another(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RejoinderError, match="--home"):
        ensure_home(Config(home=str(tmp_path / "file" / "data")))


def test_a_second_system_with_the_same_directory_is_refused(tmp_path: Path) -> None:
    config = Config(home=str(tmp_path))
    ensure_home(config)
    with (
        home_lock(config),
        pytest.raises(RejoinderError, match=f"process {os.getpid()}"),
        home_lock(config),
    ):
        pass
    with home_lock(config):  # free again
        pass


def test_roles_read_the_configuration_that_the_system_started_with(tmp_path: Path) -> None:
    config = Config(home=str(tmp_path), gateway=GatewayConfig(port=12345))
    ensure_home(config)
    assert load_config(freeze_config(config)) == config
