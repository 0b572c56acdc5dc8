"""The header ``Retry-After``."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rejoinder.judge.retry_after import retry_after_s

NOW = datetime(2025, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("12", 12.0),
        ("0.5", 0.5),
        ("-3", None),
        ("Sat, 01 Mar 2025 12:00:30 GMT", 30.0),
        ("Sat, 01 Mar 2025 11:00:00 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("9" * 400, None),
        ("Mon, 01 Jan 9999999999 00:00:00 GMT", None),
        ("Mon, 01 Jan 2026 00:00:00 +99999999999999999999", None),
        (None, None),
    ],
)
def test_seconds_and_dates_are_read_and_nonsense_is_ignored(
    value: str | None, seconds: float | None
) -> None:
    assert retry_after_s(value, NOW) == seconds
