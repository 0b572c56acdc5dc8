"""Answers of all seats at once, over one cache; every request has its own seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rejoinder.evaluation.pack.stacked import (
    StackedModel,
    left_padded,
    penalty,
    positions_of,
    visible,
)

_BLOCK = 256
_MOST_IDS = 131_072
"""Padded ids of prompts that are read at one time."""
_MOST_CACHED = 655_360
"""Padded ids, prompts and answers, whose keys and values are held at one time: 30 GB for a model of
135 M parameters."""
_LOOK_EVERY = 8
"""Tokens between looks at whether all have ended: a look waits for the device."""


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to sample."""

    prompt: list[int]
    """[P] at least one id."""
    max_tokens: int
    temperature: float
    """Above 0."""
    seed: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """An answer."""

    ids: list[int]
    """With the end token, where one was sampled."""
    logprobs: list[float]
    """Of the ids, at the temperature they were sampled with."""
    ended: bool
    """By an end token, not by ``max_tokens``."""


@torch.inference_mode()
def decode(
    model: StackedModel, requests: Sequence[Sequence[Request]], eos_ids: Sequence[int]
) -> list[list[Sampled]]:
    """Sample answers to the requests of each seat; at least one has one."""
    asked = [request for own in requests for request in own]
    width = max(len(one.prompt) for one in asked) + max(one.max_tokens for one in asked)
    at_once = max(1, _MOST_CACHED // (len(requests) * width))
    found: list[list[Sampled]] = [[] for _ in requests]
    for first in range(0, max(map(len, requests)), at_once):
        part = [own[first : first + at_once] for own in requests]
        for seat, answers in enumerate(_decode(model, part, eos_ids)):
            found[seat] += answers
    return found


def _decode(
    model: StackedModel, requests: Sequence[Sequence[Request]], eos_ids: Sequence[int]
) -> list[list[Sampled]]:
    rows = max(map(len, requests))
    flat = [[*own, *[_NOTHING] * (rows - len(own))] for own in requests]
    every = [request for own in flat for request in own]
    longest = max(len(request.prompt) for request in every)
    limit = max(request.max_tokens for request in every)
    run = _Run(model, every, rows, longest, limit, eos_ids)
    run.read_prompts()
    run.answer()
    ids, logprobs = run.ids.tolist(), run.logprobs.tolist()
    ends = frozenset(eos_ids)
    answers = [
        _answer(own, values, request, ends)
        for own, values, request in zip(ids, logprobs, every, strict=True)
    ]
    return [answers[seat * rows :][: len(own)] for seat, own in enumerate(requests)]


_NOTHING = Request([0], max_tokens=1, temperature=1.0, seed=0)
"""Fills the rows of seats that have fewer requests than others."""


def _answer(
    ids: list[int], logprobs: list[float], request: Request, ends: frozenset[int]
) -> Sampled:
    count = next((at + 1 for at, id_ in enumerate(ids) if id_ in ends), request.max_tokens)
    count = min(count, request.max_tokens)
    return Sampled(ids[:count], logprobs[:count], ids[count - 1] in ends)


class _Run:
    """One batch from its prompts to its last token."""

    def __init__(
        self,
        model: StackedModel,
        requests: Sequence[Request],
        rows: int,
        longest: int,
        limit: int,
        eos_ids: Sequence[int],
    ) -> None:
        device, count = model.device, len(requests)
        self._model, self._rows, self._longest, self._limit = model, rows, longest, limit
        prompts, mask = left_padded([request.prompt for request in requests])
        self._prompts, self._mask = prompts.to(device), mask.to(device)
        self._temperature = torch.tensor([[one.temperature] for one in requests], device=device)
        self._last = torch.tensor([one.max_tokens for one in requests], device=device)
        uniform = [_uniform(one.seed, limit) for one in requests]
        self._uniform = torch.tensor(uniform, dtype=torch.float64, device=device)
        self._ends = torch.tensor(list(eos_ids), device=device)
        shape = (model.layers, count, model.kv_heads, longest + limit, model.head_dim)
        # Zeros: columns to come are read, with a weight of nothing.
        self._keys, self._values = (torch.zeros(shape, device=device) for _ in range(2))
        ahead = torch.zeros(count, limit, dtype=torch.bool, device=device)
        self._penalty = penalty(torch.cat((self._mask, ahead), 1))
        places = self._mask.sum(-1, keepdim=True) + torch.arange(limit, device=device)
        self._factors = model.rotary(places)
        self.ids = torch.full((count, limit), eos_ids[0], device=device)
        self.logprobs = torch.zeros(count, limit, device=device)
        self._done = torch.zeros(count, dtype=torch.bool, device=device)
        self._at = torch.zeros(1, dtype=torch.long, device=device)
        self._newest = torch.empty(0)

    def read_prompts(self) -> None:
        """Fill the cache with the prompts and keep the states of their last ids."""
        at_once = max(1, _MOST_IDS // (self._model.seats * self._longest))
        starts = range(0, self._rows, at_once)
        states = [self._read_rows(slice(start, start + at_once)) for start in starts]
        self._newest = torch.cat(states, 1)

    def _read_rows(self, rows: slice) -> Tensor:
        """Fill the cache with some rows of each seat; return the states [S, b, H] of last ids."""
        model, longest = self._model, self._longest
        prompts, mask = (
            one.view(model.seats, self._rows, longest)[:, rows].flatten(0, 1)
            for one in (self._prompts, self._mask)
        )
        count = len(prompts) // model.seats
        x = model.embed(prompts)
        factors = model.rotary(positions_of(mask))
        seen = visible(mask)
        for number in range(model.layers):
            layer = model.layer(number)
            queries, keys, values = model.project(x, factors, count, layer)
            for cache, new in ((self._keys, keys), (self._values, values)):
                own = cache[number].view(model.seats, self._rows, *cache.shape[2:])
                own[:, rows, :, :longest] = new.reshape(model.seats, count, *new.shape[1:])
            x = model.finish(x, model.attend(queries, keys, values, seen), layer)
        return model.last_norm(x.view(model.seats, count, longest, x.shape[-1])[:, :, -1])

    def answer(self) -> None:
        """Draw tokens until all rows have ended."""
        self._step()
        if self._limit == 1:
            return
        step = self._recorded() if self._model.device.type == "cuda" else self._step
        for count in range(1, self._limit):
            if count % _LOOK_EVERY == 0 and bool(self._done.all()):
                return
            step()

    def _recorded(self) -> Callable[[], None]:
        """Return a step as one graph of kernels: their launches one by one take longer than they.

        The step of before has warmed up what a recording may not initialise.
        """
        graph = torch.cuda.CUDAGraph()
        # Without the device, a stream of the first one would record nothing that another one does.
        with torch.cuda.device(self._model.device), torch.cuda.graph(graph):
            self._step()
        return graph.replay

    def _step(self) -> None:
        """Draw the next id of every row and compute its state; all shapes are the same each time.

        Everything it leaves behind is written in place, for a recording knows addresses alone.
        """
        ids = self._sample()
        self._newest.copy_(self._extend(ids))
        self._at += 1

    def _sample(self) -> Tensor:
        """Draw the next id [N] of every row."""
        head = self._model.head
        logits = torch.bmm(self._newest, head.mT).flatten(0, 1) / self._temperature
        total = logits.logsumexp(-1, keepdim=True)
        mass = (logits - total).exp_()
        drawn = invert(mass, self._uniform.index_select(1, self._at))
        own = logits.gather(-1, drawn) - total
        ids = torch.where(self._done, self._ends[0], drawn[:, 0])
        self.ids.index_copy_(1, self._at, ids[:, None])
        self.logprobs.index_copy_(1, self._at, own)
        has_ended = (ids[:, None] == self._ends).any(-1)
        self._done |= has_ended | (self._at + 1 >= self._last)
        return ids

    def _extend(self, ids: Tensor) -> Tensor:
        """Return the states [S, B, H] of the ids drawn last."""
        model, column = self._model, self._at + self._longest
        x = model.embed(ids)
        cos, sin = (factor.index_select(2, self._at) for factor in self._factors)
        group = model.heads // model.kv_heads
        count = len(self.ids)
        self._penalty.index_fill_(-1, column, 0.0)
        for number in range(model.layers):
            layer = model.layer(number)
            queries, keys, values = model.project(x, (cos, sin), self._rows, layer)
            self._keys[number].index_copy_(2, column, keys)
            self._values[number].index_copy_(2, column, values)
            grouped = queries.reshape(count, model.kv_heads, group, model.head_dim)
            scores = grouped @ self._keys[number].mT
            weights = (scores * model.head_dim**-0.5 + self._penalty).softmax(-1)
            attended = weights @ self._values[number]
            x = model.finish(x, attended.reshape(model.seats, self._rows, -1), layer)
        return model.last_norm(x)


def invert(mass: Tensor, uniform: Tensor) -> Tensor:
    """Return the id [N, 1] at which the distribution function of ``mass`` [N, V] passes a number.

    By blocks first, then inside one: a running sum over whole rows is slow on a GPU. Sums are fp64,
    as the engine's: in fp32 a number near the end of a block can pass all of it by rounding, and
    an id that is next to impossible would be drawn.

    Args:
        mass: probabilities, up to a factor.
        uniform: [N, 1] in [0, 1), fp64.
    """
    count = mass.shape[-1]
    blocks = functional.pad(mass, (0, -count % _BLOCK)).view(len(mass), -1, _BLOCK)
    sums = blocks.sum(-1, dtype=torch.float64)
    ends = sums.cumsum(-1)
    point = uniform * ends[:, -1:]
    block = torch.searchsorted(ends, point, right=True).clamp_(max=ends.shape[-1] - 1)
    chosen = blocks.gather(1, block[..., None].expand(-1, -1, _BLOCK))[:, 0]
    inside = chosen.cumsum(-1, dtype=torch.float64)
    rest = point - (ends - sums).gather(-1, block)
    place = torch.searchsorted(inside, rest, right=True).clamp_(max=_BLOCK - 1)
    return (block * _BLOCK + place).clamp_(max=count - 1)


def _uniform(seed: int, count: int) -> list[float]:
    """Return one number for each token: the same seed gives the same, in any company."""
    rng = random.Random(seed)  # noqa: S311  (sampling)
    return [rng.random() for _ in range(count)]
