"""The engine's thread: commands, then a step, then the results, for ever."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import structlog
import torch
from torch import Tensor

from rejoinder.engine.torch_engine import scorer
from rejoinder.engine.torch_engine.attention import StepAttention
from rejoinder.engine.torch_engine.batch import make_batch
from rejoinder.engine.torch_engine.delivery import Delivery
from rejoinder.engine.torch_engine.kv_cache import KVCache
from rejoinder.engine.torch_engine.sampler import client_logprobs, draw, for_client
from rejoinder.engine.torch_engine.scheduler import Scheduler, Work, prompt_tokens
from rejoinder.engine.torch_engine.sequence import Generation, Scoring, Sequence
from rejoinder.engine.torch_engine.versions import Versions, Weights
from rejoinder.errors import ConstraintRefused, EngineError, EngineUnavailable

log = structlog.get_logger(__name__)
Result = TypeVar("Result")

PATIENCE_S = 0.005
"""How long a step waits for masks at most. They are computed beside the forward pass, so that they
are nearly always there; answers by schemas that take longer must not hold the others up."""
REST_S = 0.005
"""Between two looks for masks where nothing else is to be done."""


class Worker:
    """Owns scheduler, slots and versions. Other threads talk to it through ``call``."""

    def __init__(
        self,
        cache: KVCache,
        scheduler: Scheduler,
        eos_ids: frozenset[int],
        *,
        threads: int,
        free: Callable[[list[Weights]], None],
    ) -> None:
        self.scheduler = scheduler
        self.versions = Versions()
        self.delivery = Delivery()
        self.last_error: str | None = None
        self._cache = cache
        self._device = cache.keys[0].device
        self._eos_ids = eos_ids
        self._threads = threads
        self._free = free
        self._dropped: list[Weights] = []
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False  # guarded by _lock: no command comes after
        self._closing = False
        self._resting = False
        """All that runs waits for masks."""
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)
        self._thread.start()
        self.call(lambda: None).result()  # its number of cores is set

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Run a function between two steps (any thread).

        Raises:
            EngineUnavailable: the engine is closed.
        """
        future: Future[Result] = Future()

        def command() -> None:
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - it belongs to the caller
                future.set_exception(error)

        self._post(command)
        return future

    def _post(self, command: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise EngineUnavailable("the engine is closed")
            self._commands.put(command)

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence (any thread); refusals arrive at its sink.

        Raises:
            EngineUnavailable: the engine is closed.
        """

        def command() -> None:
            request = sequence.request
            try:
                weights = self.versions.resolve(request.policy, request.version)
                if request.version is not None:
                    sequence.weights = weights
                self.scheduler.submit(sequence)
            except EngineError as error:
                sequence.sink.put(error)

        self._post(command)

    def install(self, weights: Weights, *, live: bool) -> None:
        """Register weights and let running sequences follow (engine's thread)."""
        self._dropped += self.versions.add(weights, live=live)
        if live:
            self.scheduler.switch(weights.source.policy, weights)

    def remove(self, policy: str, version: int) -> None:
        """Drop a version (engine's thread)."""
        weights = self.versions.remove(policy, version)
        if weights is not None:
            self._dropped.append(weights)

    def close(self) -> None:
        """End the thread; sequences end with ``EngineUnavailable`` (blocks for one step)."""

        def command() -> None:
            self._closing = True

        with contextlib.suppress(EngineUnavailable):
            self._post(command)
        self._thread.join()

    def _main(self) -> None:
        torch.set_num_threads(self._threads)
        with torch.inference_mode():
            while not self._closing:
                self._take_commands()
                self._step()
                self._free_unused()
                self.delivery.flush()
        with self._lock:
            self._closed = True
        while not self._commands.empty():
            self._commands.get()()
        for sequence in list(self.scheduler.sequences()):
            self.scheduler.fail(sequence, EngineUnavailable("the engine was closed"))
        self._free(self.versions.clear() + self._dropped)
        self.delivery.flush()

    def _take_commands(self) -> None:
        """Run what other threads asked for; wait for it if there is nothing else to do."""
        wait = self._resting or not self.scheduler.has_work()
        while True:
            try:
                command = self._commands.get(wait, REST_S if self._resting else None)
            except queue.Empty:
                return
            command()
            wait = False

    def _step(self) -> None:
        involved: list[Sequence] = list(self.scheduler.running)
        try:
            self.scheduler.drop_ended(time.monotonic())
            self.scheduler.admit(lambda policy: self.versions.resolve(policy, None))
            involved = list(self.scheduler.running)
            plan = self.scheduler.plan()
            self._resting = bool(involved) and not plan
            began = time.perf_counter()
            for weights, works in plan:
                involved = [work.sequence for work in works]
                self._compute(weights, works)
            if len(plan) == 1:
                self.scheduler.pace.note(prompt_tokens(plan[0][1]), time.perf_counter() - began)
        except Exception as error:  # whatever it was, the others must go on
            log.exception("engine step failed", sequences=len(involved))
            for sequence in involved:
                if not sequence.done:
                    text = f"a step of the engine failed: {type(error).__name__}: {error}"
                    self._fail_one(sequence, EngineError(text))

    def _fail_one(self, sequence: Sequence, error: EngineError) -> None:
        self.last_error = str(error)
        if sequence.slot is not None:
            sequence.slot.reset()
        self.scheduler.fail(sequence, error)

    def _compute(self, weights: Weights, works: list[Work]) -> None:
        """Run one forward pass and give every sequence what it waited for."""
        spans = [work.span() for work in works]
        keep: list[int] = []
        offset = 0
        for work in works:
            keep += [offset + token - work.begin for token in work.wanted]
            offset += work.end - work.begin
        batch = make_batch(spans, keep, self._cache.shape.context, self._device)
        attention = StepAttention(self._cache, batch, batched=self._device.type != "cpu")
        logits = weights.forward.logits(batch, attention)
        for work, span in zip(works, spans, strict=True):
            assert work.sequence.slot is not None
            work.sequence.slot.extend(span.ids)
        self._hand_out(works, logits)

    def _hand_out(self, works: list[Work], logits: Tensor) -> None:
        row = 0
        drawing: list[tuple[int, Generation]] = []
        for work in works:
            tokens, sequence = work.wanted, work.sequence
            if isinstance(sequence, Generation):
                drawing += [(row + index, sequence) for index in range(len(tokens))]
            elif isinstance(sequence, Scoring):
                self._score(sequence, work, logits[row : row + len(tokens)])
            row += len(tokens)
        if any(generation.guide is not None for _, generation in drawing):
            drawing = self._with_masks(drawing)
        if drawing:
            rows = [index for index, _ in drawing]
            own = logits if len(rows) == len(logits) else logits[rows]
            self._draw(own, [generation for _, generation in drawing])

    def _with_masks(self, drawing: list[tuple[int, Generation]]) -> list[tuple[int, Generation]]:
        """Return those that can be drawn now; the others are put off, or cannot go on."""
        ready: list[tuple[int, Generation]] = []
        patient_until = time.monotonic() + PATIENCE_S
        for row, generation in drawing:
            left = max(0.0, patient_until - time.monotonic())
            try:
                if generation.guide is None or generation.guide.arrived(left):
                    ready.append((row, generation))
                else:
                    generation.put_off()
            except ConstraintRefused as error:
                self.scheduler.fail(generation, error)
            except EngineError as error:
                self._fail_one(generation, error)
        return ready

    def _draw(self, logits: Tensor, generations: list[Generation]) -> None:
        asked = [generation.request.top_logprobs for generation in generations]
        rows = [row for row, k in enumerate(asked) if k is not None]
        most = max((k for k in asked if k is not None), default=0)
        plain = dict(zip(rows, client_logprobs(logits[rows], most), strict=True)) if rows else {}
        drawn = draw(logits, generations)
        for row, generation in enumerate(generations):
            id_, logprob = drawn.ids[row], drawn.logprobs[row]
            if not math.isfinite(logprob):
                self._fail_one(generation, _broken(generation))
                continue
            client = for_client(plain[row], id_, asked[row] or 0) if row in plain else None
            generation.sink.put(generation.accept(id_, logprob, client, self._eos_ids))
            if generation.done:
                self.scheduler.finish(generation)

    def _score(self, scoring: Scoring, work: Work, logits: Tensor) -> None:
        try:
            if len(logits):
                scorer.collect(scoring, work.wanted, logits)
        except EngineError as error:
            self._fail_one(scoring, error)
            return
        if scoring.computed >= scoring.goal:
            scoring.sink.put(scoring.result())
            self.scheduler.finish(scoring)

    def _free_unused(self) -> None:
        """Give dropped weights away once no sequence needs them: freeing takes a while."""
        unused = [weights for weights in self._dropped if not self.scheduler.uses(weights)]
        if unused:
            self._dropped = [weights for weights in self._dropped if weights not in unused]
            self.scheduler.forget(unused)
            self._free(unused)


def _broken(sequence: Sequence) -> EngineError:
    assert sequence.weights is not None
    return EngineError(
        f"version {sequence.weights.version} gave logits that are not finite: "
        "its weights are broken"
    )
