"""Answers of all seats at once, over one cache; every request has its own seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from rejoinder.evaluation.pack.attention import newest_attention
from rejoinder.evaluation.pack.stacked import (
    StackedModel,
    left_padded,
    positions_of,
    rotate,
    visible,
)

_BLOCK = 256
_MOST_IDS = 131_072
"""Padded ids of prompts that are read at one time."""
_MOST_CACHED = 655_360
"""Padded ids, prompts and answers, whose keys and values are held at one time: 30 GB for a model of
135 M parameters."""
_LEAST = 1e-38
"""Stands for a probability that fp32 rounds to nothing, in a logarithm."""
_LOOK_EVERY = 8
"""Tokens between looks at who has ended: a look waits for the device."""
_FEW = 128
"""Rows that are not thinned out when half of them have ended: a step with fewer hardly costs less,
and a new recording costs what a dozen steps do."""


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
    run = _Run(model, every, max(request.max_tokens for request in every), eos_ids)
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


@dataclass(frozen=True, slots=True)
class _Rows:
    """What is known of the N rows that run, row by row."""

    numbers: Tensor
    """[N] of the rows among all of the batch."""
    temperature: Tensor
    """[N, 1]."""
    most: Tensor
    """[N] ids of the answer."""
    uniform: Tensor
    """[N, limit] one number for each id to draw."""
    first: Tensor
    """[N] the column in which a prompt begins."""
    cos: Tensor
    """[N, 1, limit, D] rotary factors of ids to come."""
    sin: Tensor
    ids: Tensor
    """[N, limit] of the answer so far."""
    logprobs: Tensor
    """[N, limit]."""
    done: Tensor
    """[N]."""

    def of(self, rows: Tensor) -> _Rows:
        """Return some of the rows, copied."""
        return _Rows(*(getattr(self, one.name)[rows] for one in fields(self)))


class _Run:
    """One batch from its prompts to its last token."""

    def __init__(
        self,
        model: StackedModel,
        requests: Sequence[Request],
        limit: int,
        eos_ids: Sequence[int],
    ) -> None:
        """Get ready: as many requests of each seat, and ``limit`` the most ids of any answer."""
        device, count = model.device, len(requests)
        prompts, mask = left_padded([request.prompt for request in requests])
        self._prompts, self._mask = prompts.to(device), mask.to(device)
        self._model, self._limit, self._longest = model, limit, mask.shape[1]
        self._ends = torch.tensor(list(eos_ids), device=device)
        lengths = self._mask.sum(-1)
        cos, sin = model.rotary(lengths[:, None] + torch.arange(limit, device=device))
        self._rows = _Rows(
            numbers=torch.arange(count, device=device),
            temperature=torch.tensor([[one.temperature] for one in requests], device=device),
            most=torch.tensor([one.max_tokens for one in requests], device=device),
            uniform=torch.from_numpy(_uniform(requests, limit)).to(device),
            first=self._longest - lengths,
            cos=cos,
            sin=sin,
            ids=torch.full((count, limit), eos_ids[0], device=device),
            logprobs=torch.zeros(count, limit, device=device),
            done=torch.zeros(count, dtype=torch.bool, device=device),
        )
        self.ids, self.logprobs = self._rows.ids.clone(), self._rows.logprobs.clone()
        """Of all rows, once ``answer`` has ended."""
        shape = (model.layers, count, model.kv_heads, self._longest + limit, model.head_dim)
        # Zeros: columns to come are read, with a weight of nothing.
        self._keys, self._values = (torch.zeros(shape, device=device) for _ in range(2))
        self._attend = newest_attention(device)
        self._layers = [model.joined(number) for number in range(model.layers)]
        self._at = torch.zeros(1, dtype=torch.long, device=device)
        self._newest = torch.empty(0)

    def read_prompts(self) -> None:
        """Fill the cache with the prompts and keep the states of their last ids."""
        seats = self._model.seats
        count = len(self._prompts) // seats
        at_once = max(1, _MOST_IDS // (seats * self._longest))
        starts = range(0, count, at_once)
        states = [self._read_rows(slice(start, start + at_once)) for start in starts]
        self._newest = torch.cat(states, 1)

    def _read_rows(self, rows: slice) -> Tensor:
        """Fill the cache with some rows of each seat; return the states [S, b, H] of last ids."""
        model, longest = self._model, self._longest
        prompts, mask = (
            one.view(model.seats, -1, longest)[:, rows].flatten(0, 1)
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
                own = cache[number].view(model.seats, -1, *cache.shape[2:])
                own[:, rows, :, :longest] = new.reshape(model.seats, count, *new.shape[1:])
            x = model.finish(x, model.attend(queries, keys, values, seen), layer)
        return model.last_norm(x.view(model.seats, count, longest, x.shape[-1])[:, :, -1])

    def answer(self) -> None:
        """Draw tokens until all rows have ended."""
        self._step()
        step: Callable[[], None] | None = None
        for count in range(1, self._limit):
            if count % _LOOK_EVERY == 0:
                running = int((~self._rows.done).view(self._model.seats, -1).sum(1).max())
                if not running:
                    break
                if 2 * running * self._model.seats <= len(self._rows.ids) > _FEW:
                    self._thin_out(running)
                    step = None
            step = step or self._fast_step()
            step()
        self._keep()

    def _thin_out(self, count: int) -> None:
        """Go on with so many rows of each seat, those that have not ended among them."""
        self._keep()
        seats, before = self._model.seats, self._newest.shape[1]
        order = self._rows.done.view(seats, before).sort(stable=True).indices[:, :count]
        kept = (order + before * torch.arange(seats, device=order.device)[:, None]).flatten()
        self._rows = self._rows.of(kept)
        self._newest = self._newest.flatten(0, 1)[kept].view(seats, count, -1)
        self._keys, self._values = self._keys[:, kept], self._values[:, kept]

    def _keep(self) -> None:
        """Put what the rows have so far to that of all."""
        self.ids[self._rows.numbers] = self._rows.ids
        self.logprobs[self._rows.numbers] = self._rows.logprobs

    def _fast_step(self) -> Callable[[], None]:
        return self._recorded() if self._model.device.type == "cuda" else self._step

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
        rows = self._rows
        states = self._newest / rows.temperature.view(*self._newest.shape[:2], 1)
        mass = torch.bmm(states, self._model.head.mT).flatten(0, 1).softmax(-1)
        drawn = invert(mass, rows.uniform.index_select(1, self._at))
        own = mass.gather(-1, drawn).clamp_min(_LEAST).log()
        ids = torch.where(rows.done, self._ends[0], drawn[:, 0])
        rows.ids.index_copy_(1, self._at, ids[:, None])
        rows.logprobs.index_copy_(1, self._at, own)
        has_ended = (ids[:, None] == self._ends).any(-1)
        rows.done.logical_or_(has_ended | (self._at + 1 >= rows.most))
        return ids

    def _extend(self, ids: Tensor) -> Tensor:
        """Return the states [S, B, H] of the ids drawn last."""
        model, rows, column = self._model, self._rows, self._at + self._longest
        x = model.embed(ids)
        factors = rows.cos.index_select(2, self._at), rows.sin.index_select(2, self._at)
        for number, layer in enumerate(self._layers):
            heads = torch.bmm(model.norm(x, layer.attention_norm), layer.projections.mT)
            heads = heads.view(len(ids), -1, 1, model.head_dim)
            turned = rotate(heads[:, : -model.kv_heads], factors)
            queries, keys = turned[:, : model.heads, 0], turned[:, model.heads :]
            self._keys[number].index_copy_(2, column, keys)
            self._values[number].index_copy_(2, column, heads[:, -model.kv_heads :])
            cache = self._keys[number], self._values[number]
            grouped = queries.reshape(len(ids), model.kv_heads, -1, model.head_dim)
            attended = self._attend(grouped, *cache, rows.first, column)
            x = x + torch.bmm(attended.reshape(*x.shape[:2], -1), layer.output.mT)
            inner = torch.bmm(model.norm(x, layer.mlp_norm), layer.gate_and_up.mT)
            gate, up = inner.chunk(2, dim=-1)
            x = x + torch.bmm(functional.silu(gate) * up, layer.down.mT)
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
    padded = functional.pad(mass, (0, -count % _BLOCK)) if count % _BLOCK else mass
    blocks = padded.view(len(mass), -1, _BLOCK)
    sums = blocks.sum(-1, dtype=torch.float64)
    ends = sums.cumsum(-1)
    point = uniform * ends[:, -1:]
    block = torch.searchsorted(ends, point, right=True).clamp_(max=ends.shape[-1] - 1)
    chosen = blocks.gather(1, block[..., None].expand(-1, -1, _BLOCK))[:, 0]
    inside = chosen.cumsum(-1, dtype=torch.float64)
    rest = point - (ends - sums).gather(-1, block)
    place = torch.searchsorted(inside, rest, right=True).clamp_(max=_BLOCK - 1)
    return (block * _BLOCK + place).clamp_(max=count - 1)


def _uniform(requests: Sequence[Request], limit: int) -> NDArray[np.float64]:
    """Return a number [N, limit] for each id: the same seed gives the same, in any company."""
    numbers = np.zeros((len(requests), limit))
    for row, request in zip(numbers, requests, strict=True):
        rng = random.Random(request.seed)  # noqa: S311  (sampling)
        row[: request.max_tokens] = [rng.random() for _ in range(request.max_tokens)]
    return numbers
