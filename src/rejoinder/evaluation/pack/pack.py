"""Runs several systems side by side on one device, in turns of one batch for all of them.

Who has ended makes room for the next one, which begins at the start weights.

Everybody's requests are answered together, then everybody's verdicts are read, then all steps that
are due are taken together. People wait meanwhile, as they do for a full batch elsewhere. A system
whose step is due answers nobody before it, so that its course does not depend on who else is in the
pack, but for rounding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import torch

from rejoinder.algorithms import build_algorithm
from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.chat.token_bytes import TokenBytes
from rejoinder.config import Config, TorchEngineConfig
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.evaluation.pack.decoding import Sampled, decode
from rejoinder.evaluation.pack.frozen import FrozenEngine
from rejoinder.evaluation.pack.learning import PackedTrainer, SeatTraining
from rejoinder.evaluation.pack.seat import Parts, Seat, Waiting
from rejoinder.evaluation.pack.stacked import StackedModel
from rejoinder.judge.base import JudgeSetting
from rejoinder.judge.factory import build_judge
from rejoinder.judge.hints.factory import build_hint_judge
from rejoinder.models.embedded import resolve_model
from rejoinder.models.loading import pick_device
from rejoinder.models.tokenizer import load_tokenizer
from rejoinder.trainer.hinted import HintRenderer

POLL_S = 0.004
"""How often runs in a pack look at their learning."""
_QUIET_S = 3 * POLL_S
"""So long without a new request, everybody waits who is going to."""
_MOMENT_S = 0.002
_MOST_PUT_OFF = 6
"""Rounds of answers to others that a step waits for company: one step costs as much as all."""

_T = TypeVar("_T")
Work = Callable[[Seat], Awaitable[_T]]
"""A run: talks to its seat and returns what was found."""


def refuse_unpackable(config: Config) -> None:
    """Refuse a configuration that a pack would not follow.

    Raises:
        ConfigError: with what to change.
    """
    if config.model.dtype == "bfloat16":
        raise ConfigError(
            "packed runs compute with weights in fp32: remove model.dtype, or make the runs one by "
            "one"
        )
    algorithm = build_algorithm(config.trainer)
    if algorithm.needs_verdicts and config.judge.kind not in ("likelihood", "callable"):
        raise ConfigError(
            f"packed runs have no engine that writes, so judge.kind = {config.judge.kind!r} cannot "
            "work: set it to 'likelihood' or 'callable', or make the runs one by one"
        )
    if config.hints.kind in ("llm", "judge"):
        raise ConfigError(
            "packed runs know extractive hints alone: set hints.kind to 'extractive', or make the "
            "runs one by one"
        )
    SeatTraining(config.trainer, algorithm.loss)


class Pack:
    """Systems of one model, each with its own configuration of learning."""

    def __init__(self, configs: Sequence[Config], updates: int, at_once: int | None = None) -> None:
        """Load the model for every system of which there are so many at once.

        Args:
            configs: of the systems, all with the same model.
            updates: steps after which a system takes none.
            at_once: seats; None: one for each.

        Raises:
            ConfigError: it cannot be stacked, or a configuration cannot be followed.
        """
        first = configs[0]
        for config in configs:
            refuse_unpackable(config)
            if config.model != first.model:
                raise ConfigError("packed runs share one model: give all the same [model] section")
        path = resolve_model(first.model.path)
        device = pick_device(first.model)
        if device.type == "cuda":  # TF32: 10 bits of mantissa where all else keeps fp32
            torch.set_float32_matmul_precision("high")
        self._tokenizer = load_tokenizer(path)
        self._renderer = ChatTemplateRenderer(self._tokenizer)
        self._configs, self._updates = configs, updates
        self._model = StackedModel(path, min(at_once or len(configs), len(configs)), device)
        start = StackedModel(path, 1, device)
        self._frozen = FrozenEngine(start, self._tokenizer, first.model.policy)
        self._judging: set[asyncio.Task[None]] = set()
        self._put_off = 0
        self._seats = [self._seat(number) for number in range(self._model.seats)]
        trainings = [
            SeatTraining(config.trainer, build_algorithm(config.trainer).loss) for config in configs
        ]
        self._trainer = PackedTrainer(self._model, start, trainings)

    def _seat(self, number: int) -> Seat:
        return Seat(self._parts(self._configs[number]), self._judging.add)

    def _parts(self, config: Config) -> Parts:
        setting = JudgeSetting(
            config.judge, config.model.policy, self._frozen, self._tokenizer, config.model.path
        )
        algorithm = build_algorithm(config.trainer)
        context = self._tokenizer.context_length
        longest = min(context, config.trainer.max_sample_tokens)
        if isinstance(config.engine, TorchEngineConfig):
            context = min(context, config.engine.context_length or context)
        return Parts(
            config=config,
            algorithm=algorithm,
            judge=build_judge(setting) if algorithm.needs_verdicts else None,
            hints=build_hint_judge(setting, config.hints),
            hinted=self._hinted(longest, config) if algorithm.needs_hints else None,
            renderer=self._renderer,
            tokenizer=self._tokenizer,
            engine=self._frozen,
            context_length=context,
            updates=self._updates,
        )

    def _hinted(self, longest: int, config: Config) -> HintRenderer:
        token_bytes = TokenBytes(self._tokenizer.tokenizer)
        times = config.trainer.teacher.hint_times
        return HintRenderer(self._renderer, longest, token_bytes, times)

    async def run(self, works: Sequence[Work[_T]]) -> list[_T | RejoinderError]:
        """Do the work of each system, and return what each found, or why it found nothing.

        Any other error than a ``RejoinderError`` is a fault of the program and ends all works.

        Args:
            works: of the systems, in their order.
        """
        found: dict[int, _T | RejoinderError] = {}
        todo = islice(enumerate(works), len(self._seats), None)
        runs = [
            asyncio.create_task(self._occupy(seat, works[seat], todo, found))
            for seat in range(len(self._seats))
        ]
        try:
            while not all(run.done() for run in runs):
                await self._settle()
                self._turn()
                for run in runs:
                    if run.done():
                        run.result()  # raises what went wrong
            return [found[number] for number in range(len(works))]
        finally:
            tasks = (*runs, *self._judging)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _occupy(
        self,
        seat: int,
        first: Work[_T],
        todo: Iterator[tuple[int, Work[_T]]],
        found: dict[int, _T | RejoinderError],
    ) -> None:
        """Do the first work of a seat, and then what is left to do."""
        found[seat] = await self._sit(self._seats[seat], first)
        for number, work in todo:
            self._trainer.begin(seat, number)
            self._seats[seat] = self._seat(number)
            found[number] = await self._sit(self._seats[seat], work)

    async def _sit(self, seat: Seat, work: Work[_T]) -> _T | RejoinderError:
        try:
            return await work(seat)
        except RejoinderError as error:  # the others go on
            return error
        finally:
            seat.leave()

    async def _settle(self) -> None:
        """Wait until nobody is about to ask anything; verdicts are read meanwhile."""
        quiet = 0.0
        known = -1
        while quiet < _QUIET_S:
            await asyncio.sleep(_MOMENT_S)
            for task in [task for task in self._judging if task.done()]:
                self._judging.discard(task)
                task.result()  # raises what went wrong
            asked = sum(len(seat.waiting) for seat in self._seats) + self._frozen.asked
            if asked != known or self._judging:
                quiet = 0.0
            else:
                quiet += _MOMENT_S
            if asked == known and self._frozen.waiting:  # all that come together
                self._frozen.flush()
                quiet = 0.0
            known = asked

    def _turn(self) -> None:
        """Take the steps that are due, or answer everybody else.

        Steps wait, for a while, until half of those who can still learn are due.
        """
        due = [number for number, seat in enumerate(self._seats) if seat.is_due]
        asking = [
            number for number, seat in enumerate(self._seats) if seat.waiting and number not in due
        ]
        talking = sum(not seat.left for seat in self._seats)
        is_time = 2 * len(due) >= talking or self._put_off >= _MOST_PUT_OFF
        if due and (is_time or not asking):
            self._put_off = 0
            self._train(due)
        elif asking:
            self._put_off += self._answer(asking) and bool(due)

    def _train(self, due: Sequence[int]) -> None:
        turns = {number: self._seats[number].take() for number in due}
        broken = self._trainer.step(turns)
        for number, taken in turns.items():
            self._seats[number].advance(moved=bool(taken) and number not in broken)
            self._look_back(number)

    def _look_back(self, number: int) -> None:
        """Let a system go back, as a trainer would, where its answers please far less."""
        seat = self._seats[number]
        if not seat.may_go_back:
            return
        self._trainer.keep(number, seat.version, seat.held)
        relapse = seat.relapse()
        if relapse is not None:
            self._trainer.go_back(number, relapse.version)
            seat.go_back(relapse.version)
            self._trainer.keep(number, seat.version, seat.held)

    def _answer(self, asking: Sequence[int]) -> bool:
        """Answer some seats; return whether that took the device: farewells alone do not."""
        waiting = [
            seat.take_waiting() if number in asking else []
            for number, seat in enumerate(self._seats)
        ]
        for own in waiting:
            for one in own:
                if one.request is None:
                    _give(one, _NO_ANSWER)
        requests = [[one.request for one in own if one.request is not None] for own in waiting]
        if not any(requests):
            return False
        found = decode(self._trainer.served, requests, self._tokenizer.eos_ids)
        for own, answers in zip(waiting, found, strict=True):
            asked = [one for one in own if one.request is not None]
            for one, answer in zip(asked, answers, strict=True):
                _give(one, answer)
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()  # the cache of keys and values has another size each time
        return True


_NO_ANSWER = Sampled([], [], ended=True)


def _give(one: Waiting, answer: Sampled) -> None:
    if not one.future.done():
        one.future.set_result(answer)
