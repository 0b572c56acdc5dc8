"""The HTTP header ``Retry-After`` (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_SECONDS = re.compile(r"\s*\d+(\.\d+)?\s*")


def retry_after_s(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds to wait, at least 0; None for a missing or unreadable header.

    Args:
        value: seconds, or an HTTP date.
        now: what a date is compared with; None: the clock.
    """
    if value is None:
        return None
    if _SECONDS.fullmatch(value):
        seconds = float(value)
        return seconds if math.isfinite(seconds) else None
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
