"""Tracebacks of foreign code, short enough for a log."""

from __future__ import annotations

from traceback import TracebackException

_FRAMES = 10
"""The innermost ones: those of the foreign code."""
_LINE_CHARS = 500
_CHARS = 4000


def short_traceback(error: BaseException) -> str:
    """Return the innermost frames of an error and of its causes, in at most 4000 characters.

    Messages are cut, so that one that quotes a conversation leaves room for file and line.
    """
    lines = TracebackException.from_exception(error, limit=-_FRAMES).format()
    return "".join(map(_cut, lines))[-_CHARS:].rstrip()


def _cut(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else line[:_LINE_CHARS] + "…\n"
