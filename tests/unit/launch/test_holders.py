"""Who has a taken port: a Rejoinder is told by its data directory, and by what it is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rejoinder.config import Config
from rejoinder.launch import holders
from rejoinder.launch.holders import Holder, holder_of
from rejoinder.launch.home import ensure_home, home_lock
from rejoinder.launch.ports import bind_port, bound_port

pytestmark = pytest.mark.skipif(not Path("/proc/self/net").exists(), reason="only Linux tells")
ME = os.getpid()


def test_a_supervisor_is_known_by_its_lock(tmp_path: Path) -> None:
    config = Config(home=str(tmp_path))
    ensure_home(config)
    with bind_port("127.0.0.1", 0, "gateway.port") as listener, home_lock(config):
        assert holder_of("127.0.0.1", bound_port(listener)) == Holder(ME, tmp_path, is_up=True)


def test_a_role_is_known_by_its_journal(tmp_path: Path) -> None:
    ensure_home(Config(home=str(tmp_path)))
    with (
        bind_port("127.0.0.1", 0, "gateway.port") as listener,
        (tmp_path / "journal.db").open("w"),
    ):
        assert holder_of("127.0.0.1", bound_port(listener)) == Holder(ME, tmp_path)


def test_another_program_may_have_a_journal_of_its_own(tmp_path: Path) -> None:
    with (
        bind_port("127.0.0.1", 0, "gateway.port") as listener,
        (tmp_path / "journal.db").open("w"),
    ):
        assert holder_of("127.0.0.1", bound_port(listener)) == Holder(ME, None)


def test_a_port_that_nobody_listens_on_has_no_holder() -> None:
    with bind_port("127.0.0.1", 0, "gateway.port") as listener:
        port = bound_port(listener)
    assert holder_of("127.0.0.1", port) is None


def listening(address: str, port: int = 0) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((address, port))
    listener.listen()
    return listener


def test_who_has_the_port_on_another_address_is_not_in_the_way() -> None:
    """It was named all the same, and was to be stopped."""
    with listening("127.0.0.2") as listener:
        port = bound_port(listener)
        assert holder_of("127.0.0.1", port) is None
        assert holder_of("127.0.0.2", port) == Holder(ME, None)
        assert holder_of("0.0.0.0", port) == Holder(ME, None)
        assert holder_of("::", port) == Holder(ME, None)


@pytest.mark.parametrize(("address", "host"), [("::1", "::1"), ("::", "127.0.0.1")])
def test_a_listener_of_ipv6_is_found(address: str, host: str) -> None:
    try:
        listener = listening(address)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener:
        assert holder_of(host, bound_port(listener)) == Holder(ME, None)


def test_where_the_system_tells_nothing_nobody_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "_PROC", tmp_path)
    with bind_port("127.0.0.1", 0, "gateway.port") as listener:
        assert holder_of("127.0.0.1", bound_port(listener)) is None
