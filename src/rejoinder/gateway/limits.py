"""How much each key may ask for; what is too much is refused at once instead of piling up.

A key's limits hold in all workers of a gateway together (``tally.py``); how many requests a worker
holds is its own affair, for it bounds that process's memory. Nothing here waits or does I/O.

The two rates are token buckets. A bucket of N a minute allows N at once and gets N back a minute,
evenly. It is kept as the time at which it will be full again, so that nothing has to fill it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rejoinder.config import GatewayConfig
from rejoinder.gateway.errors import SHUTTING_DOWN, ApiError
from rejoinder.gateway.tally import KeyNumbers, SharedTally, Tally

MINUTE_S = 60.0
_KEPT_FOR_NEWCOMERS = 8
"""One place of so many is for keys that have no request in progress here."""
_MEMORY = 0.05
"""What one request counts in the mean duration."""
CLOSE_MARGIN_S = 1.0
"""How long after the end of a drain somebody may be listening again."""


@dataclass(frozen=True, slots=True)
class _Limits:
    concurrent: int
    requests: int | None
    tokens: int | None


class Admission:
    """Lets requests in, and counts those in progress in this process and per key."""

    def __init__(
        self,
        config: GatewayConfig,
        keys: Sequence[str],
        shared: SharedTally | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``keys``: the names of all keys, in the same order in all workers."""
        self._limits = {name: _limits_of(config, name) for name in keys}
        self._number = {name: number for number, name in enumerate(keys)}
        self._tally = Tally(len(keys), shared)
        self._in_all = config.max_queued
        self._kept = config.max_queued // _KEPT_FOR_NEWCOMERS
        self._clock = clock
        self._mean_s = 0.0
        self._closed_until: float | None = None
        self.active = 0
        """Requests in progress in this process."""

    @contextmanager
    def admit(self, key: str) -> Iterator[None]:
        """Hold a place while a request is in progress.

        Raises:
            ApiError: 429, a limit of the key or of the process is reached; 503, the process ends.
                Both say when to come back.
        """
        began = self._clock()
        self._refuse_while_closing(began)
        with self._tally.locked(self._number[key]) as numbers:
            self._check(key, numbers, began)
            numbers.here += 1
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
            with self._tally.locked(self._number[key]) as numbers:
                numbers.here -= 1
            self._mean_s += (self._clock() - began - self._mean_s) * _MEMORY

    def charge(self, key: str, tokens: int) -> None:
        """Count the tokens of a request that ends."""
        limit = self._limits[key].tokens
        if limit is not None:
            now = self._clock()
            with self._tally.locked(self._number[key]) as numbers:
                numbers.tokens_until = max(numbers.tokens_until, now) + tokens * MINUTE_S / limit

    def close(self, seconds: float) -> None:
        """Refuse new requests from now on; in ``seconds`` this process will have ended."""
        self._closed_until = self._clock() + seconds

    def _refuse_while_closing(self, now: float) -> None:
        if self._closed_until is not None:
            raise ApiError(
                503,
                SHUTTING_DOWN,
                "this gateway is shutting down",
                retry_after_s=self._closed_until - now + CLOSE_MARGIN_S,
            )

    def _check(self, key: str, numbers: KeyNumbers, now: float) -> None:
        limits = self._limits[key]
        left = self._in_all - self.active
        if left <= (self._kept if numbers.here else 0):
            raise ApiError(
                429,
                "too_many_requests",
                f"{self.active} requests are in progress here (gateway.max_queued)",
                retry_after_s=self._until_one_ends(self.active),
            )
        busy = numbers.everywhere
        if busy >= limits.concurrent:
            raise _over(
                f"has {busy} requests in progress, of {limits.concurrent} that it may have",
                self._until_one_ends(busy),
            )
        if limits.tokens is not None and numbers.tokens_until - now >= MINUTE_S:
            raise _over(
                f"has used up its {limits.tokens} tokens per minute",
                numbers.tokens_until - now - MINUTE_S,
            )
        if limits.requests is not None:
            until = max(numbers.requests_until, now) + MINUTE_S / limits.requests
            if until - now > MINUTE_S:
                raise _over(
                    f"has used up its {limits.requests} requests per minute", until - now - MINUTE_S
                )
            numbers.requests_until = until

    def _until_one_ends(self, of: int) -> float:
        """Return when the first of some requests is likely to end, by how long they took lately."""
        return self._mean_s / of


def _over(what: str, wait_s: float) -> ApiError:
    return ApiError(429, "rate_limit_exceeded", f"this key {what}", retry_after_s=wait_s)


def _limits_of(config: GatewayConfig, name: str) -> _Limits:
    own = next((one for one in config.key_limits if one.key == name), None)
    if own is None:
        return _Limits(config.max_concurrent, config.requests_per_minute, config.tokens_per_minute)
    return _Limits(
        own.max_concurrent or config.max_concurrent,
        own.requests_per_minute or config.requests_per_minute,
        own.tokens_per_minute or config.tokens_per_minute,
    )
