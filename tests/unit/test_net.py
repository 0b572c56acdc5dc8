"""Hosts and addresses."""

from __future__ import annotations

import pytest

from rejoinder.net import http_url, is_local, reachable


def test_an_ipv6_address_gets_brackets_and_a_name_does_not() -> None:
    assert http_url("::1", 8080) == "http://[::1]:8080"
    assert http_url("127.0.0.1", 8080) == "http://127.0.0.1:8080"
    assert http_url("gateway.example", 80) == "http://gateway.example:80"


def test_what_listens_everywhere_is_reached_on_loopback_of_its_family() -> None:
    assert [reachable(host) for host in ("0.0.0.0", "::", "10.0.0.7")] == [
        "127.0.0.1",
        "::1",
        "10.0.0.7",
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_a_loopback_address_is_this_machine(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "127.0.0.1.example", "", "myhost"])
def test_anything_else_may_be_another_machine(host: str) -> None:
    assert not is_local(host)
