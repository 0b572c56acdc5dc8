"""Holds one answer to a grammar: which ids may come next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as NotYet

import numpy as np
import torch
from llguidance import LLMatcher
from torch import Tensor

from rejoinder.errors import ConstraintRefused, EngineError

MOST_S = 10.0
"""Processor time that the masks of one answer may take together: what others take is not theirs."""


class Guide:
    """Belongs to the engine's thread. Masks are computed by others, beside the forward pass.

    The first mask is there from the beginning; each other one is ordered by ``advance``.
    """

    def __init__(
        self, matcher: LLMatcher, unless: Sequence[int], vocab_size: int, threads: Executor
    ) -> None:
        self._matcher = matcher
        self._unless = frozenset(unless)
        self._vocab_size = vocab_size
        self._threads = threads
        self._spent_s = 0.0
        self._coming: Future[Tensor] | None = None
        self._forbidden = self._mask()
        if unless:
            self._forbidden[list(unless)] = False

    @property
    def forbidden(self) -> Tensor:
        """[vocabulary] true for the ids that may not come next; ``arrived`` has said yes."""
        return self._forbidden

    @property
    def pending(self) -> bool:
        """Whether the mask of the next token is still being computed."""
        return self._coming is not None and not self._coming.done()

    def arrived(self, within_s: float) -> bool:
        """Wait for the mask of the next token; false where it takes longer.

        Raises:
            ConstraintRefused: the answer cannot go on, or costs too much.
            EngineError: its mask could not be computed.
        """
        if self._coming is not None:
            try:
                self._forbidden = self._coming.result(within_s)
            except NotYet:
                return False
            self._coming = None
        return True

    def advance(self, id_: int) -> bool:
        """Take the id that was sampled; false where the answer is free from now on."""
        if id_ in self._unless:
            return False
        self._unless = frozenset()
        self._coming = self._threads.submit(self._go_on, id_)
        return True

    def _go_on(self, id_: int) -> Tensor:
        begin = time.thread_time()
        try:
            self._matcher.consume_token(id_)
            mask = self._mask()
        except BaseException as error:  # a panic of the library is no Exception
            text = f"what may come next could not be found: {type(error).__name__}: {error}"
            raise EngineError(text) from error
        self._spent_s += time.thread_time() - begin
        if self._matcher.is_error():
            fault = self._matcher.get_error().removesuffix("<non-verbose/>").strip()
            raise ConstraintRefused(f"the schema is too complex for this answer: {fault}")
        if self._spent_s > MOST_S:
            raise ConstraintRefused(
                f"the schema is too complex: finding what may come next took more than {MOST_S:g} s"
            )
        return mask

    def _mask(self) -> Tensor:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(bits, count=self._vocab_size, bitorder="little")
        return torch.from_numpy(allowed == 0)
