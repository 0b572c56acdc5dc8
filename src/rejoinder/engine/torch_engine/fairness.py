"""Whose turn it is among callers that wait for the engine."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from rejoinder.engine.base import GenerateRequest
from rejoinder.engine.torch_engine.sequence import Sequence


def caller_of(sequence: Sequence) -> str:
    """Return who asks; scores are asked for by this system itself, which is one caller."""
    request = sequence.request
    return request.caller if isinstance(request, GenerateRequest) else ""


def fair_order(waiting: Iterable[Sequence], running: Iterable[Sequence]) -> Iterator[Sequence]:
    """Yield waiting sequences in the order in which they should start.

    By priority, then by how many sequences of the caller run, those yielded before included, then
    by arrival. So places go round among callers, and one that has none is next.

    Args:
        waiting: by rank; read at the first step, so that it may change meanwhile.
        running: those that have places.
    """
    places = Counter(caller_of(one) for one in running)
    queues: dict[tuple[int, str], deque[Sequence]] = {}
    for sequence in waiting:
        key = (sequence.request.priority, caller_of(sequence))
        queues.setdefault(key, deque()).append(sequence)
    heads = [
        (priority, places[caller], queue[0].order, caller)
        for (priority, caller), queue in queues.items()
    ]
    heapq.heapify(heads)
    while heads:
        priority, count, _, caller = heads[0]
        queue = queues[priority, caller]
        yield queue.popleft()
        if queue:
            heapq.heapreplace(heads, (priority, count + 1, queue[0].order, caller))
        else:
            heapq.heappop(heads)
