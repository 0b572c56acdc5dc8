"""Binding ports: a taken one is a line that names the remedy."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rejoinder.errors import ConfigError
from rejoinder.launch import ports
from rejoinder.launch.holders import Holder
from rejoinder.launch.ports import PortTaken, adopt_port, all_taken, bind_port, bound_port


def test_port_zero_gives_a_free_port() -> None:
    with bind_port("127.0.0.1", 0, "gateway.port") as listener:
        assert bound_port(listener) > 0


def test_a_taken_port_names_port_key_and_remedy() -> None:
    with bind_port("127.0.0.1", 0, "gateway.port") as listener:
        port = bound_port(listener)
        with pytest.raises(PortTaken, match=rf"port {port} .* set gateway.port to a free port"):
            bind_port("127.0.0.1", port, "gateway.port")


def test_taken_ports_are_told_in_one_line_with_who_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second ``up`` named one port at a time, and a program that nobody could find."""
    up = Holder(12, Path("/home/me/.rejoinder"), is_up=True)
    holders = {1: up, 2: up, 3: Holder(13, Path("/h")), 4: Holder(14, None)}
    monkeypatch.setattr(ports, "holder_of", lambda _host, port: holders.get(port))

    def told(gateway: int, engine: int) -> str:
        faults = [PortTaken("::1", {"a": gateway}), PortTaken("::1", {"b": engine})]
        return str(all_taken(faults))

    assert told(1, 2) == (
        "ports 1 and 2 on ::1 are taken by `rejoinder up` with /home/me/.rejoinder (process 12): "
        "stop it, or set a and b to free ports (0 picks one)"
    )
    assert told(3, 4).startswith(
        "port 3 on ::1 is taken by a Rejoinder with /h (process 13), and port 4 on ::1 is taken by "
        "another program (process 14): stop them, or set a and b"
    )
    assert "taken by another program: stop it" in str(PortTaken("::1", {"a": 5}))
    apart = str(all_taken([PortTaken("::1", {"a": 5}), PortTaken("::2", {"b": 5})]))
    assert "port 5 on ::1" in apart
    assert "port 5 on ::2" in apart


def test_a_port_is_free_again_at_once_after_closing() -> None:
    listener = bind_port("127.0.0.1", 0, "engine.port")
    port = bound_port(listener)
    client = socket.create_connection(("127.0.0.1", port))
    server, _ = listener.accept()
    server.close()  # the server's side goes into TIME_WAIT
    client.close()
    listener.close()
    bind_port("127.0.0.1", port, "engine.port").close()


def test_clients_wait_in_the_queue_while_nobody_accepts() -> None:
    with (
        bind_port("127.0.0.1", 0, "gateway.port") as listener,
        socket.create_connection(("127.0.0.1", bound_port(listener)), timeout=2) as client,
    ):
        client.sendall(b"hello")
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.recv(5) == b"hello"


def test_a_socket_survives_being_handed_over_by_its_number() -> None:
    listener = bind_port("127.0.0.1", 0, "gateway.port")
    port = bound_port(listener)
    with adopt_port(listener.detach()) as adopted:
        assert bound_port(adopted) == port


def test_a_host_of_another_machine_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"gateway\.host '192\.0\.2\.1'"):
        bind_port("192.0.2.1", 0, "gateway.port")


def test_a_name_that_is_no_host_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"gateway\.host 'no\.such\.host\.invalid'"):
        bind_port("no.such.host.invalid", 0, "gateway.port")
