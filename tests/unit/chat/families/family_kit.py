"""Tokenizers with a family's special tokens, and answers read in pieces."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rejoinder.chat.families.base import ChatFamily
from rejoinder.chat.families.events import (
    AnswerEvent,
    AnswerParts,
    ArgumentsDelta,
    CallBegun,
    CallEnded,
    ContentDelta,
    ReasoningDelta,
)
from rejoinder.chat.families.registry import FORMATS, choose_family
from rejoinder.models.tokenizer import ModelTokenizer

FAMILIES = tuple(FORMATS)
PARSED = tuple(name for name, form in FORMATS.items() if form.make_parser is not None)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"properties": {"s": {"type": "string"}, "n": {"type": "integer"}}},
        },
    },
    {"type": "function", "function": {"name": "weather"}},
]


@cache
def tokenizer(family: str, *, with_tokens: bool = True) -> ModelTokenizer:
    """Return a byte-level tokenizer; ``with_tokens``: each marker of the family is one token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<eos>", special=True)])
    if with_tokens:
        form = FORMATS[family]
        for index, marker in enumerate(dict.fromkeys((*form.markers, *form.call_markers))):
            # Real tokenizers mark some as special, which plain decoding leaves out.
            made.add_tokens([AddedToken(marker, special=bool(index % 2))])
    return ModelTokenizer(
        path=Path("made"),
        tokenizer=made,
        chat_template="",
        special_tokens={},
        eos_ids=(made.token_to_id("<eos>"),),
        context_length=4096,
    )


@cache
def family_of(name: str, *, with_tokens: bool = True) -> ChatFamily:
    return choose_family(name, tokenizer(name, with_tokens=with_tokens))


def letters(text: str) -> list[int]:
    """Return the ids of a text without any marker's token; they are the same in every family."""
    return [id_ for char in text for id_ in tokenizer("generic").encode(char)]


@dataclass(frozen=True)
class Read:
    """What a reader made of an answer; adjacent deltas joined, ids of calls left out."""

    events: list[tuple[Any, ...]]
    content: str
    reasoning: str | None
    calls: list[tuple[str, str]]


def read(
    family: str,
    text: str,
    *,
    cuts: Sequence[int] = (),
    tools: Sequence[Any] | None = TOOLS,
    stop: Sequence[str] = (),
    prompt: str = "",
    with_tokens: bool = True,
) -> Read:
    """Read an answer in the pieces that ``cuts`` make of its ids."""
    ids = tokenizer(family, with_tokens=with_tokens).encode(text)
    return read_ids(
        family, ids, cuts=cuts, tools=tools, stop=stop, prompt=prompt, with_tokens=with_tokens
    )


def read_ids(
    family: str,
    ids: Sequence[int],
    *,
    cuts: Sequence[int] = (),
    tools: Sequence[Any] | None = TOOLS,
    stop: Sequence[str] = (),
    prompt: str = "",
    with_tokens: bool = True,
) -> Read:
    prompt_ids = tokenizer(family, with_tokens=with_tokens).encode(prompt)
    reader = family_of(family, with_tokens=with_tokens).reader(prompt_ids, tools, stop)
    borders = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    events: list[AnswerEvent] = []
    for start, end in itertools.pairwise(borders):
        if reader.stop_string is None:
            events += reader.feed(ids[start:end])
    return summary(
        events if reader.stop_string is not None else [*events, *reader.feed([], last=True)]
    )


def summary(events: Sequence[AnswerEvent]) -> Read:
    parts = AnswerParts()
    joined: list[AnswerEvent] = []
    for event in events:
        parts.add(event)
        last = joined[-1] if joined else None
        if isinstance(event, ContentDelta | ReasoningDelta | ArgumentsDelta):
            assert event.text, "no empty deltas"
            if type(last) is type(event):
                joined[-1] = replace(last, text=last.text + event.text)
                continue
        joined.append(event)
    message = parts.message()
    check_order(joined)
    return Read(
        events=[_plain(event) for event in joined],
        content=message.content,
        reasoning=message.reasoning,
        calls=[(call.name, call.arguments) for call in message.tool_calls],
    )


def _plain(event: AnswerEvent) -> tuple[Any, ...]:
    if isinstance(event, CallBegun):
        return ("begun", event.index, event.name)
    if isinstance(event, ArgumentsDelta):
        return ("arguments", event.index, event.text)
    if isinstance(event, CallEnded):
        return ("ended", event.index)
    return (type(event).__name__, event.text)


def check_order(events: Sequence[AnswerEvent]) -> None:
    """Calls come one after the other, numbered from 0, each with an end."""
    open_call: int | None = None
    begun = 0
    for event in events:
        match event:
            case CallBegun(index):
                assert open_call is None
                assert index == begun
                open_call, begun = index, begun + 1
            case ArgumentsDelta(index):
                assert index == open_call
            case CallEnded(index):
                assert index == open_call
                open_call = None
            case _:
                assert open_call is None, "text inside a call"
    assert open_call is None, "a call without an end"


def said(result: Read) -> str:
    """All text of an answer in its order."""
    return "".join(str(event[-1]) for event in result.events if event[0] != "ended")


def dump(arguments: object) -> str:
    return json.dumps(arguments, ensure_ascii=False)
