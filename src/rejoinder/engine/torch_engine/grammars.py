"""From a constraint to what holds one answer to it. llguidance does the work."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog
from llguidance import LLMatcher, LLTokenizer

from rejoinder.engine.base import Constraint
from rejoinder.engine.torch_engine import grammar_check
from rejoinder.engine.torch_engine.fair_threads import FairThreads
from rejoinder.engine.torch_engine.grammar_check import Fault
from rejoinder.engine.torch_engine.grammar_text import grammar_of, refused
from rejoinder.engine.torch_engine.guide import Guide
from rejoinder.errors import ConstraintRefused, EngineTimeout, EngineUnavailable
from rejoinder.models.tokenizer import ModelTokenizer

log = structlog.get_logger(__name__)
_Made = TypeVar("_Made")

CHECK_S = 30.0
"""Longest time for the check of a schema on a busy machine; it ends itself much earlier."""
_THREADS = 2
_KNOWN = 256
"""Schemas whose check is remembered."""


class Grammars:
    """Compiles constraints off the engine's thread. Used from event loops."""

    def __init__(self, tokenizer: ModelTokenizer, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._tokens = _tokens(tokenizer, vocab_size)
        self._added = _added(tokenizer)
        self._checking = FairThreads[Fault](_THREADS, "check")
        self._compiling = ThreadPoolExecutor(_THREADS, "grammar")
        self._masking = ThreadPoolExecutor(_THREADS, "mask")
        self._faults: OrderedDict[str, Fault] = OrderedDict()
        """By grammar."""
        self._closed = False

    @property
    def works(self) -> bool:
        """Whether this model's answers can be constrained."""
        return self._tokens is not None

    async def guide(
        self, constraint: Constraint, within_s: float | None, caller: str = ""
    ) -> Guide:
        """Return what holds one answer to a constraint, ready for its first token.

        Callers take turns at having new schemas checked, which takes seconds where they are made to
        cost much; a schema that is known waits for no check.

        Raises:
            ConstraintRefused: the schema is none, cannot be enforced, or costs too much.
            EngineTimeout: others' schemas took the time.
            EngineUnavailable: the engine is closed.
        """
        try:
            async with asyncio.timeout(within_s):
                # The check knows bytes alone; what a token costs instead is nothing.
                checked = await self._compiled(grammar_of, constraint, {})
                fault = self._faults.get(checked)
                if fault is None:
                    fault = await self._checked(checked, caller)
                if fault.text:
                    at = fault.schema
                    raise refused(fault.text, None if at is None else constraint.forms[at])
                return await self._compiled(self._make, constraint)
        except TimeoutError as error:
            raise EngineTimeout(f"the schema was not compiled within {within_s} s") from error

    def close(self) -> None:
        """Refuse what still waits; the threads end by themselves."""
        self._closed = True
        self._checking.close()
        self._compiling.shutdown(wait=False)
        self._masking.shutdown(wait=False)

    def _compiled(self, function: Callable[..., _Made], *given: object) -> Awaitable[_Made]:
        self._refuse_closed()
        if self._tokens is None:
            raise ConstraintRefused(
                "answers of a model with such a tokenizer cannot be constrained"
            )
        return asyncio.get_running_loop().run_in_executor(self._compiling, function, *given)

    async def _checked(self, grammar: str, caller: str) -> Fault:
        self._refuse_closed()
        job = self._checking.submit(caller, lambda: self._fault_of(grammar))
        return await asyncio.wrap_future(job)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise EngineUnavailable("the engine is closed")

    def _fault_of(self, grammar: str) -> Fault:
        self._refuse_closed()
        fault = self._faults.get(grammar)  # another request may have asked meanwhile
        if fault is None:
            self._faults[grammar] = fault = _tried(grammar)
            while len(self._faults) > _KNOWN:
                self._faults.popitem(last=False)
        return fault

    def _make(self, constraint: Constraint) -> Guide:
        assert self._tokens is not None  # `_compiled` has looked
        grammar = grammar_of(constraint, self._added)
        matcher = LLMatcher(self._tokens, grammar, log_level=0, limits=grammar_check.LIMITS)
        guide = Guide(matcher, constraint.unless, self._vocab_size, self._masking)
        if fault := matcher.get_error():
            raise refused(fault)
        return guide


def _tokens(tokenizer: ModelTokenizer, vocab_size: int) -> LLTokenizer | None:
    """Return the library's form of a tokenizer; None where it cannot read that kind."""
    try:
        return LLTokenizer(
            tokenizer.tokenizer.to_str(),
            n_vocab=vocab_size,
            eos_token=list(tokenizer.eos_ids),
            slices=LLTokenizer.json_slices(),
        )
    except Exception as error:  # noqa: BLE001 - whatever it is, answers without a format go on
        log.warning(
            "answers cannot be constrained", tokenizer=str(tokenizer.path), error=str(error)
        )
        return None


def _added(tokenizer: ModelTokenizer) -> dict[str, int]:
    """Return the texts that have a token of their own, whatever stands beside them."""
    added = tokenizer.tokenizer.get_added_tokens_decoder()
    return {token.content: id_ for id_, token in added.items()}


def _tried(grammar: str) -> Fault:
    """Compile a grammar in another process; returns its fault.

    Raises:
        ConstraintRefused: it costs too much. Elsewhere or later it may not, so nobody remembers it.
    """
    command = [sys.executable, "-P", "-m", grammar_check.__name__]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, input=grammar.encode(), capture_output=True, timeout=CHECK_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise refused("it is too complex to compile") from error
    if done.returncode:
        log.warning("a schema was too complex", code=done.returncode, said=done.stderr[-500:])
        raise refused("it is too complex to compile")
    return Fault(*json.loads(done.stdout))
