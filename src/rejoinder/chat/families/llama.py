"""Llama 3.1 to 3.3: a call is an answer that is JSON, with or without ``<|python_tag|>`` before it.

``{"name": ..., "parameters": {...}}``; several are separated by semicolons. Without the tag nothing
but its form says that JSON is a call, so there the name must be one of a tool.
"""

from __future__ import annotations

from collections.abc import Sequence

from rejoinder.chat.families.blocks import CallFrame, CallList, begun_json, json_frame, tool_name
from rejoinder.chat.families.events import EventWriter
from rejoinder.chat.families.tagged import Block, TaggedParser, TagRules
from rejoinder.types import Json

THOUGHTS = ("<think>", "</think>")
"""Of models that were distilled into Llama; Llama's own have no thoughts."""
TAG = "<|python_tag|>"
SEPARATOR = ";"
_ARGUMENTS = "parameters"
RULES = TagRules(THOUGHTS, calls_end_thoughts=False)


def parser(out: EventWriter, tools: Sequence[Json], *, thinking: bool) -> TaggedParser:
    """Return the parser of one answer."""
    names = frozenset(map(tool_name, tools))

    def open_block(marker: str) -> Block | None:
        if not tools or marker != TAG:
            return None
        return CallList(out, TAG, SEPARATOR, brackets=False)

    def bare_block() -> Block:
        return CallList(out, "", SEPARATOR, brackets=False, may_call=names.__contains__)

    bare = bare_block if tools else None
    return TaggedParser(out, RULES, open_block, thinking=thinking, bare_block=bare)


def begin_call(name: str | None, template: str) -> str:
    """Return the text with which a call begins; see ``BeginCall``."""
    del template  # one form for all
    return begun_json(name, _ARGUMENTS)


def frame_call(name: str, template: str) -> CallFrame:
    """Return what stands around the arguments of a call; see ``FrameCall``."""
    del template
    before, after = json_frame(name, _ARGUMENTS)
    return CallFrame(before, after, f"{SEPARATOR} {before}")
