"""GLM-4.5 to 4.7: ``<think>``, and calls whose arguments are pairs of keys and plain values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rejoinder.chat.families.blocks import CallFrame
from rejoinder.chat.families.events import EventWriter
from rejoinder.chat.families.tagged import Block, TaggedParser, TagRules
from rejoinder.chat.families.written_call import (
    CollectedBlock,
    IsText,
    ParameterTypes,
    WrittenCall,
    value_end,
    written_call,
)
from rejoinder.types import Fields, Json

THOUGHTS = ("<think>", "</think>")
CALL = ("<tool_call>", "</tool_call>")
PAIRS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
RULES = TagRules(THOUGHTS, calls_end_thoughts=True)

_NAME = re.compile(r"\s*([^\s<>]+)\s*")
_PAIR = re.compile(r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>")
_VALUE_END = re.compile(re.escape(PAIRS[3]))
_FIELDS = Fields(
    PAIRS[0],
    f"{PAIRS[1]}\n{PAIRS[2]}",
    f"{PAIRS[3]}\n",
    r"[^<>\s\x00-\x1f]+( [^<>\s\x00-\x1f]+)*",
    [*THOUGHTS, *CALL, PAIRS[3]],
)


def parser(out: EventWriter, tools: Sequence[Json], *, thinking: bool) -> TaggedParser:
    """Return the parser of one answer."""
    types = ParameterTypes(tools)

    def open_block(marker: str) -> Block | None:
        if not tools or marker != CALL[0]:
            return None
        return CollectedBlock(out, *CALL, read_call, types, PAIRS)

    return TaggedParser(out, RULES, open_block, thinking=thinking)


def begin_call(name: str | None, template: str) -> str:
    """Return the text with which a call begins; see ``BeginCall``."""
    del template  # the line break after the name, which GLM-4.7 leaves out, does no harm there
    return CALL[0] if name is None else f"{CALL[0]}{name}\n"


def frame_call(name: str, template: str) -> CallFrame:
    """Return what stands around the arguments of a call; see ``FrameCall``."""
    begun = begin_call(name, template)
    return CallFrame(begun, CALL[1], f"\n{begun}", fields=_FIELDS)


def read_call(text: str, is_text: IsText) -> WrittenCall | None:
    """Read a name and its pairs; None where the text is something else."""
    head = _NAME.match(text)
    if head is None:
        return None
    pairs: list[tuple[str, str]] = []
    body = text[head.end() :].rstrip()
    at = 0
    while at < len(body):
        begin = _PAIR.match(body, at)
        if begin is None:
            return None
        key = begin.group(1).strip()
        plain = is_text(head.group(1), key)
        end = value_end(body, begin.end(), _VALUE_END, is_text=plain)
        if end is None:
            return None
        pairs.append((key, body[begin.end() : end.start()]))
        at = end.end()
    return written_call(head.group(1), pairs)
