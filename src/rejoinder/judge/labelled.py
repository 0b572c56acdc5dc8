"""The labelled next states that judges are measured on; see ``data/READING_GUIDE.md``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from rejoinder.types import Json, Message, ToolCall

Split = Literal["dev", "held_out"]


@dataclass(frozen=True, slots=True)
class LabelledNextState:
    """One item with both readers' labels."""

    id: str
    kind: str
    """What its author had in mind; judges and readers never see it."""
    language: str
    context: tuple[Message, ...]
    answer: Message
    next_state: tuple[Message, ...]
    labels: tuple[int, int]
    """Reader a, reader b: -1, 0 or 1."""
    clear: bool
    """Both readers are sure of the same label, and it is not 0."""
    split: Split


def load_labelled(split: Split | None = None) -> list[LabelledNextState]:
    """Return the set, or one split of it, in the order of its file."""
    labels = {row["id"]: row for row in rows_of("labels.jsonl")}
    items = [_item(row, labels[row["id"]]) for row in rows_of("next_states.jsonl")]
    return [item for item in items if split is None or item.split == split]


def rows_of(name: str) -> list[Json]:
    """Return the lines of one file of ``judge/data``."""
    text = (files("rejoinder.judge") / "data" / name).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _item(row: Json, label: Json) -> LabelledNextState:
    return LabelledNextState(
        id=row["id"],
        kind=row["kind"],
        language=row["language"],
        context=tuple(message_of(entry) for entry in row["context"]),
        answer=message_of(row["answer"]),
        next_state=tuple(message_of(entry) for entry in row["next_state"]),
        labels=(label["reader_a"]["label"], label["reader_b"]["label"]),
        clear=label["clear"],
        split=label["split"],
    )


def message_of(entry: Json) -> Message:
    """Return one message of an item."""
    return Message(
        role=entry["role"],
        content=entry["content"],
        tool_call_id=entry.get("tool_call_id"),
        tool_calls=tuple(ToolCall(**call) for call in entry.get("tool_calls", ())),
    )
