"""Prompts that begin with the exact ids of the turn they continue.

The journal has the ids of every turn. Those of recent turns are kept in this process as well, so
that a conversation that goes on here costs no read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import structlog

from rejoinder.chat.splicing import KnownTurn, SplicedPrompt, SpliceOutcome, splice
from rejoinder.chat.token_bytes import TokenBytes
from rejoinder.gateway.metrics import GatewayMetrics
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Json

log = structlog.get_logger(__name__)

MAX_TURNS = 4096
MAX_IDS = 1 << 21
"""Ids of the turns that are kept: about 60 MB, for most numbers are objects of their own."""

_WHY = {
    SpliceOutcome.SAME: "tokenised from text it has the ids of that turn's prompt and answer",
    SpliceOutcome.SPLICED: "that turn's prompt and answer stand in it as they were sampled",
    SpliceOutcome.PROMPT_DIFFERS: (
        "what stands before that turn's answer is rendered otherwise now: system text, client "
        "context, or thoughts that the template leaves out"
    ),
    SpliceOutcome.ANSWER_DIFFERS: (
        "that turn's answer is rendered otherwise than it was sampled: without its thoughts, with "
        "its calls written anew, or without what a stop string cut off"
    ),
    SpliceOutcome.NO_ROOM: "with that turn's sampled ids it would not fit the context",
    SpliceOutcome.UNREAD: "the ids of that turn could not be read",
    SpliceOutcome.NO_TURN: "no earlier answer is known to be that of one turn",
}


class Splicer:
    """Splices prompts, and remembers the turns for it. Safe from any thread."""

    def __init__(
        self,
        read: Callable[[str], tuple[Sequence[int], Sequence[int]] | None],
        tokenizer: ModelTokenizer,
        metrics: GatewayMetrics,
        max_ids: int = MAX_IDS,
    ) -> None:
        """``read`` gives prompt and answer ids of a turn that is in the journal."""
        self._read = read
        self._tokenizer = tokenizer
        self._token_bytes = TokenBytes(tokenizer.tokenizer)
        self._metrics = metrics
        self._max_ids = max_ids
        self._turns: OrderedDict[str, KnownTurn] = OrderedDict()
        self._ids = 0
        self._lock = threading.Lock()

    def remember(
        self,
        turn_id: str,
        prompt_ids: list[int],
        rendered_ids: list[int],
        answer_ids: Sequence[int],
    ) -> None:
        """Keep a turn that has been answered; ``rendered_ids`` are other ids of its prompt."""
        ids = tuple(prompt_ids)
        then = ids if prompt_ids is rendered_ids else tuple(rendered_ids)
        self._keep(turn_id, KnownTurn(ids, tuple(answer_ids), then))

    def keeps(self, turn_id: str) -> bool:
        """Whether a turn is kept here; if so, it is kept longer than others now."""
        with self._lock:
            if turn_id not in self._turns:
                return False
            self._turns.move_to_end(turn_id)
            return True

    def fetch(self, turn_id: str) -> None:
        """Get a turn from the journal unless it is kept here; not for an event loop."""
        if self.keeps(turn_id):
            return
        try:
            found = self._read(turn_id)
        except Exception as error:  # noqa: BLE001 - any journal's failure: the rendering stands
            log.error("ids of a turn could not be read", turn=turn_id, error=str(error))  # noqa: TRY400
            return
        if found is not None:
            self._keep(turn_id, KnownTurn(tuple(found[0]), tuple(found[1])))

    def splice(self, turn_id: str | None, rendered: list[int], room: int) -> SplicedPrompt:
        """Return the prompt that continues a turn, which has been fetched.

        Args:
            turn_id: None where no one turn is known.
            rendered: [R] the prompt as it is rendered from text.
            room: ids that a prompt must stay below.
        """
        prompt = self._spliced(turn_id, rendered)
        if len(prompt.ids) >= room > len(rendered):
            prompt = SplicedPrompt(rendered, SpliceOutcome.NO_ROOM)
        self._metrics.splices.labels(prompt.outcome).inc()
        return prompt

    def _spliced(self, turn_id: str | None, rendered: list[int]) -> SplicedPrompt:
        if turn_id is None:
            return SplicedPrompt(rendered, SpliceOutcome.NO_TURN)
        with self._lock:
            turn = self._turns.get(turn_id)
        if turn is None:
            return SplicedPrompt(rendered, SpliceOutcome.UNREAD)
        tokenizer = self._tokenizer
        return splice(turn, rendered, self._token_bytes, tokenizer.eos_ids, tokenizer.special_ids)

    def _keep(self, turn_id: str, turn: KnownTurn) -> None:
        with self._lock:
            self._drop(turn_id)
            self._turns[turn_id] = turn
            self._ids += _size(turn)
            while len(self._turns) > MAX_TURNS or self._ids > self._max_ids:
                self._drop(next(iter(self._turns)))

    def _drop(self, turn_id: str) -> None:
        turn = self._turns.pop(turn_id, None)
        if turn is not None:
            self._ids -= _size(turn)


def explained(prompt: SplicedPrompt, turn_id: str | None) -> Json:
    """Return what ``rejoinder explain turn`` tells of a prompt."""
    told: Json = {"rule": prompt.outcome.value, "why": _WHY[prompt.outcome]}
    if turn_id is not None:
        told |= {"turns": [turn_id], "ids": prompt.kept}
    return told


def _size(turn: KnownTurn) -> int:
    size = len(turn.prompt_ids) + len(turn.answer_ids)
    if turn.rendered_ids is not None and turn.rendered_ids is not turn.prompt_ids:
        size += len(turn.rendered_ids)
    return size
