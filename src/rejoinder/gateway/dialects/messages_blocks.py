"""Messages made of content blocks, brought into the normal form that all dialects share.

One message of a client may become several: a user message holds the results of tools beside the
user's words, and each result is a message of the ``tool`` role in the normal form. Thoughts become
the reasoning of their answer; redacted ones hold nothing that can be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson

from rejoinder.chat.messages import BadMessages
from rejoinder.types import Json, Message, ToolCall

INVALID_JSON = "INVALID_JSON"
"""Key under which arguments that are no JSON object stand as text, as Anthropic advises."""
ERROR_MARK = "Error: "
"""Before the text of a failed tool's result, which has no other place in the normal form."""
LOADED = "Tool loaded: {}\n"
"""What the model reads where a tool's result refers to a tool that its prompt now names."""
_TEXT_ONLY = frozenset({"image", "document", "search_result"})


def read_messages(system: str | list[Json] | None, messages: Sequence[Json]) -> tuple[Message, ...]:
    """Return the normal form of a request's messages, its system text first.

    Texts of one message are joined without a separator, as are the parts of an answer that a
    client sends back as several messages.

    Raises:
        BadMessages: no messages, an unknown role, a wrong type, a block that is not served, or
            an answer that is to be continued.
    """
    if not messages:
        raise BadMessages("messages must not be empty", "messages")
    made: list[Message] = []
    text = _text(system, "system") if system else ""
    if text:
        made.append(Message("system", text))
    for index, raw in enumerate(messages):
        for message in _message(raw, f"messages[{index}]"):
            if made and message.role == made[-1].role == "assistant":
                message = _joined(made.pop(), message)  # noqa: PLW2901
            made.append(message)
    if made[-1].role == "assistant":
        last = f"messages[{len(messages) - 1}]"
        raise BadMessages(
            "an answer cannot be continued (prefill is not served): end with a user message", last
        )
    return tuple(made)


def _message(raw: Json, param: str) -> list[Message]:
    role, content = raw.get("role"), raw.get("content")
    if role not in ("user", "assistant", "system"):
        raise BadMessages(
            f"unknown role {role!r}; the roles are user, assistant, system", f"{param}.role"
        )
    if isinstance(content, str):
        return [Message(role, content)]
    place = f"{param}.content"
    if role == "system":
        return [Message("system", _text(content, place))]
    blocks = _blocks(content, place)
    return [_answer(blocks)] if role == "assistant" else _said(blocks)


_Blocks = Sequence[tuple[Mapping[str, object], str, str]]
"""Blocks with their type and place."""


def _blocks(content: object, param: str) -> _Blocks:
    if not isinstance(content, list):
        raise BadMessages("content must be a string or a list of blocks", param)
    found: list[tuple[Mapping[str, object], str, str]] = []
    for index, block in enumerate(content):
        place = f"{param}[{index}]"
        kind = block.get("type") if isinstance(block, Mapping) else None
        if not isinstance(block, Mapping) or not isinstance(kind, str):
            raise BadMessages("each content block must be an object with a type", place)
        found.append((block, kind, place))
    return found


def _string(block: Mapping[str, object], field: str, place: str) -> str:
    value = block.get(field)
    if not isinstance(value, str):
        raise BadMessages(f"a block of type {block['type']!r} needs a string {field!r}", place)
    return value


def _unserved(kind: str, place: str) -> BadMessages:
    why = "this model takes text only" if kind in _TEXT_ONLY else "they have no place here"
    return BadMessages(f"content blocks of type {kind!r} are not served: {why}", place)


def _text(content: object, param: str, *, references: bool = False) -> str:
    """Return the text of content that may hold nothing else but ``references`` to tools."""
    if isinstance(content, str):
        return content
    texts = []
    for block, kind, place in _blocks(content, param):
        if kind == "text":
            texts.append(_string(block, "text", place))
        elif kind == "tool_reference" and references:
            texts.append(LOADED.format(_string(block, "tool_name", place)))
        else:
            raise _unserved(kind, place)
    return "".join(texts)


def _said(blocks: _Blocks) -> list[Message]:
    """Return a user message as tool results and the user's words, in their order."""
    made: list[Message] = []
    texts: list[str] = []
    for block, kind, place in blocks:
        if kind == "text":
            texts.append(_string(block, "text", place))
        elif kind == "tool_result":
            if texts:
                made.append(Message("user", "".join(texts)))
                texts = []
            made.append(_result(block, place))
        else:
            raise _unserved(kind, place)
    if texts or not made:
        made.append(Message("user", "".join(texts)))
    return made


def _result(block: Mapping[str, object], place: str) -> Message:
    content = block.get("content")
    text = "" if content is None else _text(content, f"{place}.content", references=True)
    if block.get("is_error") is True and not text.lower().startswith("error"):
        text = ERROR_MARK + text
    return Message("tool", text, tool_call_id=_string(block, "tool_use_id", place))


def _answer(blocks: _Blocks) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for block, kind, place in blocks:
        match kind:
            case "text":
                texts.append(_string(block, "text", place))
            case "thinking":
                thoughts.append(_string(block, "thinking", place))
            case "redacted_thinking":
                pass
            case "tool_use":
                id_, name = _string(block, "id", place), _string(block, "name", place)
                calls.append(ToolCall(id_, name, _arguments(block.get("input"))))
            case _:
                raise _unserved(kind, place)
    return Message(
        "assistant",
        "".join(texts),
        tool_calls=tuple(calls),
        reasoning="".join(thoughts) or None,
    )


def _arguments(given: object) -> str:
    if isinstance(given, dict) and list(given) == [INVALID_JSON]:
        text = given[INVALID_JSON]
        if isinstance(text, str):
            return text
    return json.dumps({} if given is None else given, ensure_ascii=False)


def tool_input(arguments: str) -> bytes:
    """Return the JSON object that a call's arguments write, as written; see ``INVALID_JSON``."""
    if not arguments.strip():
        return b"{}"
    try:
        written = isinstance(json.loads(arguments, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        written = False
    return arguments.encode() if written else orjson.dumps({INVALID_JSON: arguments})


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _joined(first: Message, second: Message) -> Message:
    return replace(
        first,
        content=first.content + second.content,
        tool_calls=first.tool_calls + second.tool_calls,
        reasoning=(first.reasoning or "") + (second.reasoning or "") or None,
    )
