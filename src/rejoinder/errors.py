"""Errors that cross a seam. Each names what is wrong and what to change."""

from __future__ import annotations

EXIT_REFUSED = 2
"""Exit code of a process that ends with a ``RejoinderError``: its arguments, or what they name or
found, do not allow what it should do. Other arguments, or another time, may work."""
EXIT_CONFIG = 78
"""Exit code of one that ends with a ``ConfigError``: no try can work before the configuration is
changed. ``EX_CONFIG`` of sysexits.h, which nothing else uses by accident."""


class RejoinderError(Exception):
    """Base of the errors this package raises on purpose; the message is written for a person."""


class ConfigError(RejoinderError):
    """The configuration cannot work (rule 10); the message names the key and the remedy.

    It is what files and the environment say; the arguments of a command are not.
    """


class EngineError(RejoinderError):
    """An engine call failed. ``status`` and ``code`` are what an API client should see."""

    status = 502
    code = "engine_error"


class EngineUnavailable(EngineError):
    """The engine cannot be reached, or went away while answering. Safe to retry."""

    status = 503
    code = "engine_unavailable"


class EngineBusy(EngineError):
    """The engine's queue is full. Safe to retry later."""

    status = 429
    code = "engine_busy"


class EngineTimeout(EngineError):
    """The deadline passed before the answer was complete."""

    status = 504
    code = "timeout"


class InvalidRequest(EngineError):
    """The request has no possible answer: the message says which part is wrong."""

    status = 400
    code = "invalid_request"


class ConstraintRefused(EngineError):
    """The engine cannot hold an answer to this constraint: the message says why."""

    status = 400
    code = "invalid_schema"


class ContextLengthExceeded(EngineError):
    """Prompt and requested answer do not fit the model's context."""

    status = 400
    code = "context_length_exceeded"


class UnknownVersion(EngineError):
    """The named policy or version is not loaded and cannot be loaded."""

    status = 404
    code = "model_not_found"


class JournalError(RejoinderError):
    """The journal refused an operation."""


class UnknownTurn(JournalError):
    """A write names a turn that the journal does not have, for its conversation was deleted.

    The journal itself works.
    """


class LeaseLost(JournalError):
    """Another process took the lease over; this one must stop writing (fencing)."""


class JudgeError(RejoinderError):
    """A judge's endpoint does not answer or refuses; the message names the status."""
