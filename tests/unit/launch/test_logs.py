"""Log files of roles: turned over by size, read back by their last line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rejoinder.launch import logs
from rejoinder.launch.logs import RoleLog


@pytest.fixture
def role_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RoleLog:
    monkeypatch.setattr(logs, "MAX_BYTES", 10)
    return RoleLog(tmp_path / "logs", "engine")


def test_a_log_is_readable_by_its_owner_only(role_log: RoleLog) -> None:
    role_log.open().close()
    assert role_log.path.stat().st_mode & 0o777 == 0o600


def test_a_role_goes_on_writing_after_its_log_was_turned_over(role_log: RoleLog) -> None:
    with role_log.open() as file:
        file.write(b"first and long\n")
        file.flush()
        role_log.turn_over()
        file.write(b"second\n")
    assert role_log.path.read_text() == "second\n"
    assert (role_log.path.parent / "engine.log.1").read_text() == "first and long\n"


def test_a_short_log_is_left_alone(role_log: RoleLog) -> None:
    with role_log.open() as file:
        file.write(b"short\n")
    role_log.turn_over()
    assert role_log.path.read_text() == "short\n"


def test_only_the_newest_copies_are_kept(role_log: RoleLog) -> None:
    for number in range(logs.KEPT + 2):
        with role_log.open() as file:
            file.write(f"{number} is long enough\n".encode())
        role_log.turn_over()
    copies = sorted(role_log.path.parent.glob("engine.log.*"))
    assert [copy.read_text()[0] for copy in copies] == ["4", "3", "2"]


def test_the_last_line_that_says_something_is_found(role_log: RoleLog) -> None:
    assert role_log.last_line() == ""
    with role_log.open() as file:
        file.write(b"start\nerror: no model\n\n  \n")
    assert role_log.last_line() == "error: no model"
