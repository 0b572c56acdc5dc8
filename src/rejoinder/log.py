"""Logging of all roles: structlog, as JSON lines or for a console, and never a secret in it.

Everything goes through one handler, the standard library's records (uvicorn, SQLAlchemy) too, and
is redacted twice: fields that are secrets by name, then whatever looks like one in the finished
line, tracebacks included.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

from rejoinder.config import Config

REDACTED = "[redacted]"
_SECRET_FIELDS = frozenset(
    "authorization api_key api_keys apikey x-api-key password secret token bearer cookie".split()  # noqa: SIM905
)
_LOOKS_SECRET = (
    (re.compile(r"(?i)\b(bearer\s+)[^\s\"',;}\])]+"), rf"\1{REDACTED}"),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{4,}"), REDACTED),
    (re.compile(r"(?i)\b(REJOINDER_API_KEYS['\"]?\s*[=:]\s*)\S+"), rf"\1{REDACTED}"),
    (re.compile(r"(://[^\s:/@]+:)[^\s@/]+(@)"), rf"\1{REDACTED}\2"),  # database URLs
)
_CHATTY = ("alembic", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "aiohttp.access")
"""Libraries whose warnings matter and whose news does not."""
_SHORTEST = 4
"""Shorter secrets are not searched for: they would hide half the words of a line."""


class Redactor:
    """Takes secrets out of text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        kept = sorted({s for s in secrets if len(s) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, kept))) if kept else None

    def text(self, line: str) -> str:
        """Return a line without known keys and without what looks like one."""
        if self._known is not None:
            line = self._known.sub(REDACTED, line)
        for pattern, replacement in _LOOKS_SECRET:
            line = pattern.sub(replacement, line)
        return line

    def fields(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Processor: blank the fields that are secrets by their names."""
        return {name: _field(name, value) for name, value in event.items()}


def _field(name: str, value: Any) -> Any:
    if name.lower() in _SECRET_FIELDS:
        return REDACTED
    if isinstance(value, Mapping):
        return {key: _field(str(key), inner) for key, inner in value.items()}
    return value


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Redacts what the renderer made, tracebacks included."""

    def __init__(self, redactor: Redactor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return one redacted line."""
        return self._redactor.text(super().format(record))


def secrets_of(config: Config) -> list[str]:
    """Return the secrets in the environment that this configuration uses."""
    found = [
        entry.split(":", 2)[-1].strip()
        for entry in os.environ.get("REJOINDER_API_KEYS", "").split(",")
    ]
    return found + [os.environ.get(name, "") for name in config.key_variables]


def set_up_logging(
    level: str = "info",
    *,
    as_json: bool | None = None,
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Send all logging of this process to one place; may be called again.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        as_json: one JSON object per line; None: unless ``stream`` is a terminal.
        secrets: texts that must never appear (see ``secrets_of``).
        stream: None: standard error.
    """
    stream = stream or sys.stderr
    if as_json is None:
        as_json = not stream.isatty()
    redactor = Redactor(secrets)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redactor.fields,
    ]
    renderer: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # a second call must reach loggers that exist
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        _Formatter(
            redactor,
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
