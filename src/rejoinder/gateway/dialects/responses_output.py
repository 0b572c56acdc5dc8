"""The output items of a response: they grow as the answer is sampled, and tell how they do.

An answer is one or more items in the order in which the model wrote them: thoughts
(``reasoning``), text (``message``), calls (``function_call``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import orjson

from rejoinder.chat.families.events import (
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    ContentDelta,
    ReasoningDelta,
)
from rejoinder.gateway.capture import Piece
from rejoinder.gateway.dialects.responses_tools import joined_name
from rejoinder.types import Json, new_id

Kind: TypeAlias = Literal["message", "reasoning", "function_call"]
Tell: TypeAlias = Callable[[str, Json], object]
"""Takes an event: its type, and its fields but the type and the number."""

_PREFIXES: dict[Kind, str] = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}


@dataclass(slots=True)
class _Item:
    """One output item."""

    kind: Kind
    index: int
    call: CallBegun | None = None
    space: str | None = None
    """The namespace of the function that is called."""
    id: str = ""
    status: str = "in_progress"
    texts: list[str] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)
    """Of the tokens of a message's text, where the client wants them."""

    def __post_init__(self) -> None:
        self.id = _PREFIXES[self.kind] + new_id()

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def part(self) -> Json:
        """Return the content part that holds the text."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        return {
            "type": "output_text",
            "annotations": [],
            "logprobs": list(self.logprobs),
            "text": self.text,
        }

    def json(self) -> Json:
        """Return the item as it stands."""
        made: Json = {"id": self.id, "type": self.kind, "status": self.status}
        if self.call is not None:
            made |= {"call_id": self.call.id, "name": self.call.name, "arguments": self.text}
            return made if self.space is None else made | _in_space(self.space, self.call.name)
        made["content"] = [self.part()] if self.texts or self.status != "in_progress" else []
        if self.kind == "message":
            return {**made, "role": "assistant"}
        return {**made, "summary": []}


class Output:
    """All items of one response."""

    def __init__(self, tell: Tell, spaces: Mapping[str, str]) -> None:
        """``spaces``: see ``Offered``."""
        self._spaces = spaces
        self.reasoning_tokens = 0
        """Tokens that gave thoughts; an engine that sends several at once makes this a guess."""
        self._tell = tell
        self._items: list[_Item] = []
        self._open: _Item | None = None
        self._held: list[Json] = []
        self._tokens = 0  # since the last event

    def items(self) -> list[Json]:
        """Return the items as they stand."""
        return [item.json() for item in self._items]

    def add(self, piece: Piece, entries: Sequence[Json]) -> None:
        """Take a piece of the answer; ``entries``: the log-probabilities of its tokens, if any."""
        self._tokens += len(piece.ids)
        self._held += entries
        for event in piece.events:
            if not isinstance(event, ContentDelta):
                self._held = []  # only those of the visible text are told
            match event:
                case ContentDelta(text):
                    self._text("message", text)
                case ReasoningDelta(text):
                    self.reasoning_tokens += self._tokens
                    self._text("reasoning", text)
                case CallBegun():
                    self._begin("function_call", event)
                case ArgumentsDelta(_, text):
                    self._arguments(text)
                case CallEnded():
                    pass  # a cut call ends like a whole one; which it is shows at the very end
            self._tokens = 0

    def finish(self, status: str) -> None:
        """End the last item; an answer that says nothing at all has one empty message."""
        if not self._items:
            self._begin("message")
        last = self._open
        if last is not None and last.call is not None and _is_json(last.text):
            status = "completed"  # cut behind it
        self._end(status)

    def cut(self) -> None:
        """Leave the last item as it stands: the answer broke off."""
        if self._open is not None:
            self._open.status = "incomplete"

    def _begin(self, kind: Kind, call: CallBegun | None = None) -> _Item:
        self._end("completed")
        space = None if call is None else self._spaces.get(call.name)
        item = _Item(kind, len(self._items), call, space)
        self._items.append(item)
        self._open = item
        self._tell("response.output_item.added", {"output_index": item.index, "item": item.json()})
        if call is None:
            self._tell("response.content_part.added", _place(item) | {"part": item.part()})
        return item

    def _text(self, kind: Kind, text: str) -> None:
        item = self._open
        if item is None or item.kind != kind:
            item = self._begin(kind)
        item.texts.append(text)
        if kind == "reasoning":
            self._tell("response.reasoning_text.delta", _place(item) | {"delta": text})
            return
        logprobs, self._held = self._held, []
        item.logprobs += logprobs
        told = _place(item) | {"delta": text, "logprobs": logprobs}
        self._tell("response.output_text.delta", told)

    def _arguments(self, text: str) -> None:
        item = self._open
        assert item is not None, "arguments without a call"
        item.texts.append(text)
        told = {"item_id": item.id, "output_index": item.index, "delta": text}
        self._tell("response.function_call_arguments.delta", told)

    def _end(self, status: str) -> None:
        item, self._open = self._open, None
        if item is None:
            return
        item.status = status
        if item.call is not None:
            told = {"item_id": item.id, "output_index": item.index, "arguments": item.text}
            self._tell("response.function_call_arguments.done", told)
        else:
            name = "reasoning_text" if item.kind == "reasoning" else "output_text"
            told = _place(item) | {"text": item.text}
            if item.kind == "message":
                told["logprobs"] = list(item.logprobs)
            self._tell(f"response.{name}.done", told)
            self._tell("response.content_part.done", _place(item) | {"part": item.part()})
        self._tell("response.output_item.done", {"output_index": item.index, "item": item.json()})


def _in_space(space: str, name: str) -> Json:
    return {"namespace": space, "name": name.removeprefix(joined_name(space, ""))}


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _place(item: _Item) -> Json:
    return {"item_id": item.id, "output_index": item.index, "content_index": 0}
