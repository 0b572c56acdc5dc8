"""``[journal]``: the database."""

from __future__ import annotations

from pydantic import Field

from rejoinder.config.section import Section


class JournalConfig(Section):
    """Where everything that matters is kept."""

    url: str | None = None
    """SQLAlchemy URL; not set: ``sqlite:///<home>/journal.db``."""
    keep_days: float | None = Field(None, gt=0)
    """Conversations older than this are deleted by the retention pass; not set: none are."""
    max_bytes: int | None = Field(None, gt=0)
    """The retention pass deletes the oldest ended conversations above this size."""
