"""From a constraint to what holds one answer to it. llguidance does the work."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec
import structlog
from llguidance import LLMatcher, LLTokenizer

from rejoinder.engine.base import Constraint, Form
from rejoinder.engine.torch_engine import grammar_check
from rejoinder.engine.torch_engine.fair_threads import FairThreads
from rejoinder.engine.torch_engine.grammar_check import Fault
from rejoinder.engine.torch_engine.grammar_text import ANY_OBJECT, PANIC, grammar_of, refused
from rejoinder.engine.torch_engine.guide import Guide
from rejoinder.errors import ConstraintRefused, EngineTimeout, EngineUnavailable
from rejoinder.models.tokenizer import ModelTokenizer

log = structlog.get_logger(__name__)

CHECK_S = 30.0
"""Longest time for the check of a schema on a busy machine; it ends itself much earlier."""
_THREADS = 2
_MOST_KNOWN_CHARS = 2_000_000
"""Of grammars that are remembered. Compiled, one of 250,000 characters took 8 MB."""
_DESCRIBING = frozenset({"description", "title", "examples", "default", "$comment"})


class Grammars:
    """Compiles constraints off the engine's thread. Used from event loops."""

    def __init__(self, tokenizer: ModelTokenizer, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._tokens = _tokens(tokenizer, vocab_size)
        self._added = _added(tokenizer)
        self._special = [text for text, id_ in self._added.items() if id_ in tokenizer.special_ids]
        self._compiling = FairThreads[LLMatcher | str](_THREADS, "grammar")
        self._copying = ThreadPoolExecutor(_THREADS, "guide")
        self._masking = ThreadPoolExecutor(_THREADS, "mask")
        self._known = _Known()
        self._closed = False

    @property
    def works(self) -> bool:
        """Whether this model's answers can be constrained."""
        return self._tokens is not None

    async def guide(
        self, constraint: Constraint, within_s: float | None, caller: str = ""
    ) -> Guide:
        """Return what holds one answer to a constraint, ready for its first token.

        Callers take turns at having new constraints compiled, which takes seconds where they are
        made to cost much; one that is known waits for nobody's.

        Raises:
            ConstraintRefused: a schema is none, cannot be enforced, or costs too much.
            EngineTimeout: others' schemas took the time.
            EngineUnavailable: the engine is closed.
        """
        self._refuse_closed()
        if self._tokens is None:
            raise ConstraintRefused(
                "answers of a model with such a tokenizer cannot be constrained"
            )
        try:
            async with asyncio.timeout(within_s):
                found = self._known.get(key := _key(constraint))
                if found is None:
                    job = self._compiling.submit(caller, lambda: self._compile(key, constraint))
                    found = await asyncio.wrap_future(job)
                return await asyncio.get_running_loop().run_in_executor(
                    self._copying, self._guide, found, constraint.unless
                )
        except TimeoutError as error:
            raise EngineTimeout(f"the schema was not compiled within {within_s} s") from error

    def close(self) -> None:
        """Refuse what still waits; the threads end by themselves."""
        self._closed = True
        self._compiling.close()
        self._copying.shutdown(wait=False)
        self._masking.shutdown(wait=False)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise EngineUnavailable("the engine is closed")

    def _guide(self, found: LLMatcher | str, unless: Sequence[int]) -> Guide:
        if isinstance(found, str):
            raise ConstraintRefused(found)
        return Guide(found.deep_copy(), unless, self._vocab_size, self._masking)

    def _compile(self, key: bytes, constraint: Constraint) -> LLMatcher | str:
        """Return what answers are given copies of, or why there is none; and remember it."""
        self._refuse_closed()
        found = self._known.get(key)  # another request may have asked meanwhile
        if found is None:
            try:
                forms = _enforceable(constraint, self._special)
                found, size = self._matcher(replace(constraint, forms=forms))
            except _Faulty as error:
                found, size = str(error.refusal), len(str(error.refusal))
            self._known.put(key, found, size)
        return found

    def _matcher(self, constraint: Constraint) -> tuple[LLMatcher, int]:
        assert self._tokens is not None  # `guide` has looked
        grammar = grammar_of(constraint, self._added)
        made = LLMatcher(self._tokens, grammar.text, log_level=0, limits=grammar_check.LIMITS)
        if fault := made.get_error():
            raise _Faulty(refused(fault))
        for at, why in grammar.loosened:
            _log_loosened(constraint.forms[at], why)
        return made, len(grammar.text)


class _Known:
    """What constraints have come to, those in use the longest. Used from any thread."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, tuple[LLMatcher | str, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: bytes) -> LLMatcher | str | None:
        """Return what a constraint has come to; None where it is not known."""
        with self._lock:
            if key not in self._found:
                return None
            self._found.move_to_end(key)
            return self._found[key][0]

    def put(self, key: bytes, found: LLMatcher | str, size: int) -> None:
        """Remember it, and forget what nobody has asked for the longest time."""
        with self._lock:
            self._size += size - self._found.pop(key, (found, 0))[1]
            self._found[key] = found, size
            while len(self._found) > 1 and self._size > _MOST_KNOWN_CHARS:
                self._size -= self._found.popitem(last=False)[1][1]


class _Faulty(Exception):
    """A constraint that will be refused whenever it is asked for."""

    def __init__(self, refusal: ConstraintRefused) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def _spelled_token(schema: str, special: Collection[str]) -> str | None:
    """Return what is wrong with a schema that wants the text of such a token said.

    The library would say it as that token, which ends the answer, or is no text to its reader.
    """
    if not any(text in schema for text in special):
        return None
    try:
        said = "\n".join(_enforced_texts(msgspec.json.decode(schema)))
    except RecursionError:
        return "it is too deep"
    spelled = next((text for text in special if text in said), None)
    return spelled and f"{spelled!r} stands for a token of the model and cannot be said"


def _enforced_texts(schema: object) -> Iterator[str]:
    """Yield all texts of a schema but those that only describe."""
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one
            # What describes is no object; a property of that name has one.
            told = {key for key, value in one.items() if not isinstance(value, dict)} & _DESCRIBING
            left += [value for key, value in one.items() if key not in told]


def _key(constraint: Constraint) -> bytes:
    return hashlib.sha256(msgspec.json.encode((constraint.forms, constraint.end))).digest()


def _enforceable(constraint: Constraint, special: Collection[str]) -> list[Form]:
    """Return forms that can be enforced: arguments of a lenient tool may be any object instead.

    Args:
        constraint: as asked for.
        special: texts of tokens that control the model.

    Raises:
        ConstraintRefused: they cost too much. Elsewhere or later they may not.
        _Faulty: one cannot be enforced.
    """
    tried = list(constraint.forms)
    for _ in range(2):  # what is loosened is loosened at once: a check takes seconds at worst
        faults = _faults(replace(constraint, forms=tried), special)
        for text, at in faults:
            form = None if at is None else tried[at]
            if at is None or form is None or not form.loosens or form.schema == ANY_OBJECT:
                if text.startswith(PANIC):
                    log.warning("the grammar library failed", why=text)
                raise _Faulty(refused(text, form))
            _log_loosened(form, text)
            tried[at] = replace(form, schema=ANY_OBJECT)
        if not faults:
            break
    return tried


def _log_loosened(form: Form, why: str) -> None:
    log.warning("a tool's arguments are held to less than its schema", tool=form.subject, why=why)


def _faults(constraint: Constraint, special: Collection[str]) -> list[Fault]:
    """Return what is wrong with a constraint, by the place of the form that is at fault."""
    try:
        # The check knows bytes alone; what a token costs instead is nothing.
        grammar = grammar_of(constraint, {})
    except ConstraintRefused as error:
        raise _Faulty(error) from error
    forms = constraint.forms
    spelled = [(_spelled_token(form.schema, special), at) for at, form in enumerate(forms)]
    found = {at: Fault(text, at) for text, at in spelled if text}
    whole: list[Fault] = []
    for text, part in _tried(grammar.text):
        if part is None:
            whole.append(Fault(text))
        else:
            at = grammar.owners[part]
            found.setdefault(at, Fault(text, at))
    return [*found.values(), *whole]


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


def _tried(grammar: str) -> list[Fault]:
    """Compile a grammar in another process; returns its faults.

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
    return [Fault(*one) for one in json.loads(done.stdout)]
