"""Tries a grammar out, in a process of its own that ends where it costs too much.

A thread cannot be stopped, and there are schemas of a few characters that take minutes to compile
(``multipleOf`` with a large number is one). Kept free of heavy imports, for it starts often.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
from typing import NamedTuple

import msgspec
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from rejoinder.engine.torch_engine.endless import endless_part

MOST_CPU_S = 3
MOST_BYTES = 1 << 30
"""Address space of the process."""
LIMITS = LLParserLimits(
    step_lexer_fuel=100_000,  # some 10 ms per token
    max_lexer_states=20_000,  # some 40 MB per answer
    verbose_errors=False,  # messages reach the client and quote no inner state
)
"""What one grammar may cost. Usual schemas stay far below."""


class _Bytes:
    """A vocabulary of all bytes: what a grammar costs depends little on the model's own."""

    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


class _Whole(msgspec.Struct):
    grammars: list[msgspec.Raw]
    """Not read: their numbers could change."""


class _Schema(msgspec.Struct):
    json_schema: object = None
    """Only looked at."""


class Fault(NamedTuple):
    """What is wrong with a grammar."""

    text: str
    part: int | None = None
    """Which of its parts behind the first is at fault alone."""


def faults_of(grammar: str) -> list[Fault]:
    """Return what is wrong with each part of a grammar; where all are right, with the whole."""
    tokens = LLTokenizer(TokenizerWrapper(_Bytes()))
    _, *parts = msgspec.json.decode(grammar, type=_Whole).grammars
    # Behind other text nothing would show that no text fits a part.
    alone = [msgspec.json.encode(_Whole([part])).decode() for part in parts]
    texts = [_fault(tokens, one) or _endless(part) for one, part in zip(alone, parts, strict=True)]
    found = [Fault(text, at) for at, text in enumerate(texts) if text]
    if not found and (text := _fault(tokens, grammar)):
        found = [Fault(text)]
    return found


def _fault(tokens: LLTokenizer, grammar: str) -> str:
    matcher = LLMatcher(tokens, grammar, log_level=0, limits=LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()  # finds what no text fits
    return matcher.get_error()


def _endless(part: msgspec.Raw) -> str:
    place = endless_part(msgspec.json.decode(part, type=_Schema).json_schema)
    if place is None:
        return ""
    which = "it" if place == "#" else f"its part {place[:200]!r}"
    return f"no finite JSON text fits {which}, which needs itself again"


def main() -> None:
    """Read a grammar from standard input and write its faults, if it has any."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its end is no crash to look into
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S + 1))
    # Not every system knows this limit; where it does not, the time limit must do.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    json.dump(faults_of(sys.stdin.read()), sys.stdout)


if __name__ == "__main__":
    main()
