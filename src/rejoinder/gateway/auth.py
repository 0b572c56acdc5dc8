"""API keys: who is asking. Keys are secrets; only their names leave this file."""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from rejoinder.config import LOOPBACK, GatewayConfig
from rejoinder.errors import ConfigError
from rejoinder.gateway.errors import ApiError

KEYS_VARIABLE = "REJOINDER_API_KEYS"
DEFAULT_TENANT = "default"
"""Whose data it is where the gateway has no keys."""
LOCAL_KEY = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request."""

    tenant: str
    key: str
    """The key's name."""


@functools.lru_cache(maxsize=1024)
def cache_salt(tenant: str) -> str:
    """Return what tells a tenant's prompts apart in the engine's cache, for all workers the same.

    It is never empty, and tells an engine's logs nothing of who it is.
    """
    return hashlib.blake2b(tenant.encode(), digest_size=16, person=b"prefix cache").hexdigest()


@dataclass(frozen=True, slots=True)
class _Key:
    caller: Caller
    secret: bytes = field(repr=False)


class KeyRing:
    """The keys of a gateway; with none, every caller is the local user."""

    def __init__(self, keys: Iterable[_Key] = ()) -> None:
        self._keys = tuple(keys)
        self._local = Caller(DEFAULT_TENANT, LOCAL_KEY)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all keys, in the order of their entries."""
        return tuple(key.caller.key for key in self._keys) or (LOCAL_KEY,)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys themselves, for the log's redaction only."""
        return tuple(key.secret.decode() for key in self._keys)

    def caller(self, headers: Mapping[bytes, bytes]) -> Caller:
        """Return who owns the key of a request with these headers (lower-case names).

        It is the bearer token, or ``x-api-key`` as clients of Anthropic send it.

        A gateway without keys ignores it: callers may bring a key meant for elsewhere. It
        serves this machine only, so it refuses what a browser sends for a web page of elsewhere,
        which could otherwise teach the user's model without being seen.

        Raises:
            ApiError: 401, the key is missing or wrong; 403, a page of elsewhere sent it.
        """
        if not self._keys:
            _check_origin(headers.get(b"origin"))
            return self._local
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        given = token.strip() if scheme.lower() == b"bearer" else b""
        given = given or headers.get(b"x-api-key", b"").strip()
        if not given:
            raise ApiError(401, "missing_api_key", "send an API key: Authorization: Bearer <key>")
        found: Caller | None = None
        for key in self._keys:  # all of them, so that time does not tell which one is near
            if hmac.compare_digest(key.secret, given):
                found = key.caller
        if found is None:
            raise ApiError(401, "invalid_api_key", "this API key is not known here")
        return found

    def sees_totals(self, caller: Caller, named: Collection[str]) -> bool:
        """Whether a caller may see what all tenants do together; ``named``: keys that may."""
        if named:
            return caller.key in named
        return len({key.caller.tenant for key in self._keys}) <= 1


def _check_origin(origin: bytes | None) -> None:
    if origin is None:
        return
    try:
        host = urlsplit(origin.decode("latin-1")).hostname
    except ValueError:
        host = None
    if host not in LOOPBACK:
        raise ApiError(
            403,
            "origin_not_allowed",
            f"web pages of other hosts need an API key: set {KEYS_VARIABLE} for the gateway",
        )


def parse_keys(text: str) -> KeyRing:
    """Read ``tenant:name:key`` entries, comma separated. A key may contain colons.

    Raises:
        ConfigError: an entry has another form, or two share a name or key; no key is quoted.
    """
    keys: list[_Key] = []
    names: set[str] = set()
    secrets: set[str] = set()
    for number, entry in enumerate(filter(None, map(str.strip, text.split(","))), start=1):
        if not entry.isprintable():  # bytes that are no UTF-8 arrive as lone surrogates
            raise ConfigError(f"{KEYS_VARIABLE}: entry {number} holds bytes that are no text")
        parts = entry.split(":", 2)
        if len(parts) != 3 or not all(parts):
            raise ConfigError(f"{KEYS_VARIABLE}: entry {number} is not tenant:name:key")
        tenant, name, secret = parts
        if name in names:
            raise ConfigError(f"{KEYS_VARIABLE}: two entries are named {name!r}")
        if secret in secrets:
            raise ConfigError(f"{KEYS_VARIABLE}: entry {number} has the key of another entry")
        names.add(name)
        secrets.add(secret)
        keys.append(_Key(Caller(tenant, name), secret.encode()))
    return KeyRing(keys)


def load_keys(config: GatewayConfig) -> KeyRing:
    """Read the environment's keys and refuse to serve strangers (rule 9).

    Raises:
        ConfigError: a malformed entry, no keys where the host or ``require_keys`` needs them, or
            a setting that names a key that there is not.
    """
    keys = parse_keys(os.environ.get(KEYS_VARIABLE, ""))
    if not keys and config.host not in LOOPBACK:
        raise ConfigError(
            f"gateway.host {config.host!r} is reachable from other machines, which needs keys: "
            f"set {KEYS_VARIABLE}=tenant:name:key, or gateway.host = '127.0.0.1'"
        )
    if not keys and config.require_keys:
        raise ConfigError(
            f"gateway.require_keys is true and there are none: set {KEYS_VARIABLE}=tenant:name:key"
        )
    _check_names(keys, "key_limits", [limits.key for limits in config.key_limits])
    _check_names(keys, "metrics_keys", config.metrics_keys)
    return keys


def _check_names(keys: KeyRing, setting: str, named: Iterable[str]) -> None:
    unknown = [name for name in named if name not in keys.names]
    if unknown:
        raise ConfigError(
            f"gateway.{setting}: no key is named {unknown[0]!r}; {KEYS_VARIABLE} names "
            f"{', '.join(keys.names) if keys else f'none, so that the one caller is {LOCAL_KEY!r}'}"
        )
