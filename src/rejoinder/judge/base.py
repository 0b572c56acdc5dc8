"""The judge seam: (context, answer, next state) become votes and a verdict, or no verdict."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rejoinder.config import JudgeConfig
from rejoinder.engine.base import Engine
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Judgement, Message


class Judge(Protocol):
    """Judges one answer by what came after it.

    A package outside adds one under the entry point group ``rejoinder.judges``: a function that
    takes a ``JudgeSetting`` and returns a ``Judge``; ``judge.kind = "plugin"`` picks it by name.
    """

    @property
    def fingerprint(self) -> str:
        """Changes whenever the same input could be judged otherwise: prompt, model, settings."""
        ...

    async def judge(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Judgement:
        """Return the judgement; failed calls are failed votes in it, never exceptions.

        Args:
            context: the request's messages, oldest first.
            answer: what the policy answered.
            next_state: every message after the answer, with its role; at least one.
        """
        ...

    async def check(self) -> None:
        """Try what judging needs; for ``doctor`` and for the start of the judge.

        Raises:
            ConfigError: it can never work as configured; the message says what to change.
            EngineError: the engine does not answer, or refuses, right now.
            JudgeError: the endpoint does not answer, or refuses, right now.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


@dataclass(frozen=True, slots=True)
class JudgeSetting:
    """What a judge is built from."""

    config: JudgeConfig
    policy: str
    """Whose start weights (version 0) an engine-backed judge uses."""
    engine: Engine
    tokenizer: ModelTokenizer
    """The policy's; the engine takes ids."""
    model_id: str
    """Names the start weights in fingerprints."""


def fingerprint_of(kind: str, **parts: object) -> str:
    """Return ``kind-<16 hex digits>`` over everything that can change a verdict."""
    return f"{kind}-{digest_of(**parts)}"


def digest_of(**parts: object) -> str:
    """Return 16 hexadecimal digits over values."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
