"""GLM-4.5 to 4.7: ``<think>``, and calls whose arguments are pairs of keys and plain values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rejoinder.chat.families.blocks import CollectedBlock, ParameterTypes, WrittenCall, written_call
from rejoinder.chat.families.events import EventWriter
from rejoinder.chat.families.tagged import Block, TaggedParser, TagRules
from rejoinder.types import Json

THOUGHTS = ("<think>", "</think>")
CALL = ("<tool_call>", "</tool_call>")
PAIRS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
RULES = TagRules(THOUGHTS, calls_end_thoughts=True)

_NAME = re.compile(r"\s*([^\s<>]+)\s*")
_PAIR = re.compile(r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>")
_VALUE_END = "</arg_value>"


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


def read_call(text: str) -> WrittenCall | None:
    """Read a name and its pairs; None where the text is something else."""
    head = _NAME.match(text)
    if head is None:
        return None
    pairs: list[tuple[str, str]] = []
    body = text[head.end() :].rstrip()
    at = 0
    while at < len(body):
        begin = _PAIR.match(body, at)
        end = body.find(_VALUE_END, begin.end()) if begin is not None else -1
        if begin is None or end < 0:
            return None
        pairs.append((begin.group(1).strip(), body[begin.end() : end]))
        at = end + len(_VALUE_END)
    return written_call(head.group(1), pairs)
