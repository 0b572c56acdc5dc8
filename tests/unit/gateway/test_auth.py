"""Keys: who is asking, and who is refused."""

from __future__ import annotations

import hmac
import socket

import pytest

from rejoinder.config import GatewayConfig, KeyLimits
from rejoinder.errors import ConfigError
from rejoinder.gateway.auth import Caller, KeyRing, load_keys, parse_keys
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.server import check_bound

KEYS = "acme:alice:sk-a:with:colons, other:bob:sk-b"


@pytest.mark.parametrize(
    ("header", "caller"),
    [
        (b"Bearer sk-a:with:colons", Caller("acme", "alice")),
        (b"bearer  sk-b ", Caller("other", "bob")),
    ],
)
def test_a_bearer_key_names_tenant_and_key(header, caller):
    assert parse_keys(KEYS).caller({b"authorization": header}) == caller


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "missing_api_key"),
        (b"", "missing_api_key"),
        (b"Bearer", "missing_api_key"),
        (b"Basic sk-b", "missing_api_key"),
        (b"Bearer sk-", "invalid_api_key"),
        (b"Bearer sk-bb", "invalid_api_key"),
        (b"Bearer \xff", "invalid_api_key"),
    ],
)
def test_other_headers_get_a_401(header, code):
    with pytest.raises(ApiError) as caught:
        parse_keys(KEYS).caller({} if header is None else {b"authorization": header})
    assert (caught.value.status, caught.value.code) == (401, code)


def test_every_key_is_compared_in_constant_time_also_after_a_match(monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(a) or real(a, b))
    parse_keys(KEYS).caller({b"authorization": b"Bearer sk-a:with:colons"})
    assert len(compared) == 2


@pytest.mark.parametrize(
    "text",
    ["sk-only", "a:b", "a::sk-secret", ":n:sk-secret", "a:b:", "a:b:sk-\udcff", "a\udcff:b:sk-x"],
)
def test_a_malformed_entry_is_refused_without_quoting_it(text):
    with pytest.raises(ConfigError) as caught:
        parse_keys(text)
    assert "sk-" not in str(caught.value)


def test_two_keys_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="alice"):
        parse_keys("t:alice:sk-1,u:alice:sk-2")


def test_one_key_under_two_names_is_refused_without_quoting_it():
    with pytest.raises(ConfigError, match="entry 2") as caught:
        parse_keys("t:alice:sk-1,u:bob:sk-1")
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    "origin",
    [b"http://evil.example", b"https://evil.example:8080", b"null", b"", b"http://[", b"\xff"],
)
def test_without_keys_a_web_page_of_elsewhere_is_refused(origin):
    with pytest.raises(ApiError) as caught:
        KeyRing().caller({b"origin": origin})
    assert (caught.value.status, caught.value.code) == (403, "origin_not_allowed")


@pytest.mark.parametrize(
    "origin", [b"http://localhost:3000", b"http://127.0.0.1", b"http://[::1]:9"]
)
def test_without_keys_pages_of_this_machine_are_served(origin):
    assert KeyRing().caller({b"origin": origin}).key == "local"


def test_keys_do_not_show_in_representations():
    ring = parse_keys(KEYS)
    assert "sk-" not in repr(ring)
    assert "sk-" not in repr(ring._keys)


def test_off_loopback_the_gateway_refuses_to_start_without_keys(monkeypatch):
    monkeypatch.delenv("REJOINDER_API_KEYS", raising=False)
    with pytest.raises(ConfigError, match="REJOINDER_API_KEYS"):
        load_keys(GatewayConfig(host="0.0.0.0"))
    with pytest.raises(ConfigError, match="require_keys"):
        load_keys(GatewayConfig(require_keys=True))
    assert len(load_keys(GatewayConfig())) == 0
    monkeypatch.setenv("REJOINDER_API_KEYS", "t:n:sk-x")
    assert len(load_keys(GatewayConfig(host="0.0.0.0"))) == 1


def test_a_socket_that_strangers_reach_needs_keys_whatever_the_configuration_says():
    with socket.socket() as everywhere, socket.socket() as here:
        everywhere.bind(("0.0.0.0", 0))
        here.bind(("127.0.0.1", 0))
        check_bound([here], KeyRing())
        with pytest.raises(ConfigError, match="reachable"):
            check_bound([here, everywhere], KeyRing())
        check_bound([everywhere], parse_keys("t:n:sk-x"))


def test_limits_of_a_key_that_there_is_not_are_refused_at_the_start(monkeypatch):
    config = GatewayConfig(key_limits=(KeyLimits(key="ana", max_concurrent=1),))
    monkeypatch.setenv("REJOINDER_API_KEYS", "a:alice:k1,a:bob:k2")
    with pytest.raises(ConfigError, match=r"no key is named 'ana'; .* names alice, bob"):
        load_keys(config)
    monkeypatch.delenv("REJOINDER_API_KEYS")
    with pytest.raises(ConfigError, match="'local'"):
        load_keys(config)
    load_keys(GatewayConfig(key_limits=(KeyLimits(key="local"),)))
    with pytest.raises(ConfigError, match=r"metrics_keys: no key is named 'ana'"):
        load_keys(GatewayConfig(metrics_keys=("ana",)))
