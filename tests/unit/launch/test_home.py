"""The data directory: private, and for one system at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rejoinder.config import Config, GatewayConfig, load_config
from rejoinder.errors import RejoinderError
from rejoinder.journal.sql import SqlJournal
from rejoinder.launch.home import ensure_home, exposure, freeze_config, home_lock


def test_the_data_directory_is_its_owners(tmp_path: Path) -> None:
    home = ensure_home(Config(home=str(tmp_path / "data")))
    assert home.stat().st_mode & 0o777 == 0o700


def test_what_is_made_in_a_directory_that_others_can_read_is_its_owners(tmp_path: Path) -> None:
    config = Config(home=str(tmp_path / "open"))
    config.home_path.mkdir(mode=0o755)
    ensure_home(config)
    with SqlJournal(config.journal_url):
        made = list(config.home_path.iterdir())
        rights = {path.name: path.stat().st_mode & 0o077 for path in made}
    assert {"journal.db", "journal.db-wal", "logs", "run", "policies"} <= set(rights)
    assert set(rights.values()) == {0}


def test_a_directory_that_others_can_read_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    config = Config(home=str(tmp_path / "open"))
    assert exposure(config) is None  # not there yet
    config.home_path.mkdir()
    config.home_path.chmod(0o750)
    ensure_home(config)
    assert f"chmod go-rwx {config.home_path}" in (exposure(config) or "")
    assert config.home_path.stat().st_mode & 0o777 == 0o750
    config.home_path.chmod(0o700)
    assert exposure(config) is None


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
