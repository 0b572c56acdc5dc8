"""From a JSON schema to what holds one answer to it. llguidance does the work."""

from __future__ import annotations

import asyncio
import re
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
_MOST_FAULT_CHARS = 500
_SPACE = r"[\x20\x0A\x09]{1,32}"
"""White space between two parts. Small models write it for ever where they may."""
_NOTHING_FITS = "NoExtension"
"""What the library says where no byte can follow."""
_OPTIONS_OF_OTHERS = re.compile(r"Enable '\w{1,40}' option.*", re.DOTALL)
"""Advice of the library about its own options, which clients do not have. The text around it quotes
the client's, so nothing in here may repeat without bound before what must come."""


class Grammars:
    """Compiles constraints off the engine's thread. Used from event loops."""

    def __init__(self, tokenizer: ModelTokenizer, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._tokens = _tokens(tokenizer, vocab_size)
        self._checking = FairThreads[str](_THREADS, "check")
        self._compiling = ThreadPoolExecutor(_THREADS, "grammar")
        self._masking = ThreadPoolExecutor(_THREADS, "mask")
        self._faults: OrderedDict[str, str] = OrderedDict()
        """By grammar; empty where it has none."""
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
                grammar = await self._compiled(_grammar, constraint)
                fault = self._faults.get(grammar)
                if fault is None:
                    fault = await self._checked(grammar, caller)
                if fault:
                    raise _refused(fault)
                return await self._compiled(self._make, constraint, grammar)
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

    async def _checked(self, grammar: str, caller: str) -> str:
        self._refuse_closed()
        job = self._checking.submit(caller, lambda: self._fault_of(grammar))
        return await asyncio.wrap_future(job)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise EngineUnavailable("the engine is closed")

    def _fault_of(self, grammar: str) -> str:
        self._refuse_closed()
        fault = self._faults.get(grammar)  # another request may have asked meanwhile
        if fault is None:
            self._faults[grammar] = fault = _tried(grammar)
            while len(self._faults) > _KNOWN:
                self._faults.popitem(last=False)
        return fault

    def _make(self, constraint: Constraint, grammar: str) -> Guide:
        assert self._tokens is not None  # `_compiled` has looked
        matcher = LLMatcher(self._tokens, grammar, log_level=0, limits=grammar_check.LIMITS)
        guide = Guide(matcher, constraint.unless, self._vocab_size, self._masking)
        if fault := matcher.get_error():
            raise _refused(fault)
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


def _grammar(constraint: Constraint) -> str:
    try:
        return LLMatcher.grammar_from_json_schema(
            constraint.schema,
            # All of them: what is missing here, a schema could set for itself.
            overrides={
                "item_separator": ",",
                "key_separator": ":",
                "whitespace_flexible": True,
                "whitespace_pattern": _SPACE,
                "coerce_one_of": constraint.lenient,
                "lenient": constraint.lenient,
            },
        )
    except ValueError as error:
        raise _refused(str(error)) from error


def _tried(grammar: str) -> str:
    """Compile a grammar in another process; returns its fault, or nothing.

    Raises:
        ConstraintRefused: it costs too much. Elsewhere or later it may not, so nobody remembers it.
    """
    command = [sys.executable, "-P", "-m", grammar_check.__name__]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, input=grammar.encode(), capture_output=True, timeout=CHECK_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _refused("it is too complex to compile") from error
    if done.returncode:
        log.warning("a schema was too complex", code=done.returncode, said=done.stderr[-500:])
        raise _refused("it is too complex to compile")
    return done.stdout.decode()


def _refused(fault: str) -> ConstraintRefused:
    told = _OPTIONS_OF_OTHERS.sub("", fault.removesuffix("<non-verbose/>")).strip()
    if told.startswith(_NOTHING_FITS):
        told = "no finite JSON text fits it"
    return ConstraintRefused(f"the schema cannot be enforced: {told[:_MOST_FAULT_CHARS]}")
