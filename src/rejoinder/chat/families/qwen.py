"""Qwen2.5 and Qwen3, and other models with Hermes tool calls.

``<think>...</think>``, then ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.
Qwen3-Coder and Qwen3.5 write ``<function=name><parameter=key>value</parameter></function>`` in the
same block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rejoinder.chat.families.blocks import (
    CallFrame,
    EitherBlock,
    JsonBlock,
    begun_json,
    json_frame,
)
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
RULES = TagRules(THOUGHTS, calls_end_thoughts=True)

_ARGUMENTS = "arguments"
_PLAIN = "<function="
"""With it calls begin whose values stand without quotes."""
_FIELDS = Fields(
    "<parameter=",
    ">\n",
    "\n</parameter>\n",
    r"[^<>\s\x00-\x1f]+",
    [*THOUGHTS, *CALL, "</parameter>"],
)
_FUNCTION = re.compile(r"<function=([^<>\s]+)>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\s]+)>\n?")
_VALUE_END = re.compile(r"\n?</parameter>(?=\s*(?:<parameter=|\Z))")


def parser(out: EventWriter, tools: Sequence[Json], *, thinking: bool) -> TaggedParser:
    """Return the parser of one answer."""
    types = ParameterTypes(tools)

    def open_block(marker: str) -> Block | None:
        if not tools or marker != CALL[0]:
            return None
        return EitherBlock(
            JsonBlock(out, *CALL),
            CollectedBlock(out, *CALL, read_function, types),
            lambda lexeme: lexeme.marker or not lexeme.text.lstrip().startswith("<"),
        )

    return TaggedParser(out, RULES, open_block, thinking=thinking)


def begin_call(name: str | None, template: str) -> str:
    """Return the text with which a call begins; see ``BeginCall``."""
    if _PLAIN in template:
        return f"{CALL[0]}\n{_PLAIN}" + ("" if name is None else f"{name}>\n")
    return f"{CALL[0]}\n{begun_json(name, _ARGUMENTS)}"


def frame_call(name: str, template: str) -> CallFrame:
    """Return what stands around the arguments of a call; see ``FrameCall``."""
    if _PLAIN in template:
        begun = begin_call(name, template)
        return CallFrame(begun, f"</function>\n{CALL[1]}", f"\n{begun}", fields=_FIELDS)
    before, after = json_frame(name, _ARGUMENTS)
    opening = f"{CALL[0]}\n{before}"
    return CallFrame(opening, f"{after}\n{CALL[1]}", f"\n{opening}")


def read_function(text: str, is_text: IsText) -> WrittenCall | None:
    """Read ``<function=...>`` with its parameters; None where it is none."""
    body = text.strip()
    head = _FUNCTION.match(body)
    if head is None:
        return None
    body = body[head.end() :].removesuffix("</function>").rstrip()
    pairs: list[tuple[str, str]] = []
    at = 0
    while at < len(body):
        begin = _PARAMETER.match(body, at)
        if begin is None:
            return None
        plain = is_text(head.group(1), begin.group(1))
        end = value_end(body, begin.end(), _VALUE_END, is_text=plain)
        if end is None:
            return None
        pairs.append((begin.group(1), body[begin.end() : end.start()]))
        at = end.end()
    return written_call(head.group(1), pairs)
