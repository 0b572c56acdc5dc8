"""How many requests may be in progress; the next one is refused at once instead of piling up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rejoinder.gateway.errors import ApiError


class Admission:
    """Counts requests in progress in this process, per key and in all."""

    def __init__(self, per_key: int, in_all: int) -> None:
        self._per_key = per_key
        self._in_all = in_all
        self._by_key: Counter[str] = Counter()
        self.active = 0

    @contextmanager
    def admit(self, key: str) -> Iterator[None]:
        """Hold a place while a request is in progress.

        Raises:
            ApiError: 429, the key or the whole process has all its places taken.
        """
        if self.active >= self._in_all:
            raise ApiError(429, "too_many_requests", f"{self.active} requests are in progress here")
        if self._by_key[key] >= self._per_key:
            raise ApiError(
                429,
                "rate_limit_exceeded",
                f"this key has {self._per_key} requests in progress, which is its limit",
            )
        self.active += 1
        self._by_key[key] += 1
        try:
            yield
        finally:
            self.active -= 1
            self._by_key[key] -= 1
            if not self._by_key[key]:
                del self._by_key[key]
