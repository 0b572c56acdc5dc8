"""Chat messages as clients send them, made one normal form; and that form for a chat template.

Clients write content as a string, a list of parts or null, call the system role ``developer``, and
send tool arguments as JSON text. Everything after this file sees ``Message`` only, so rendering,
hashing, storing and judging cannot disagree about what was said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rejoinder.chat.unicode import mend_escapes
from rejoinder.types import Json, Message, ToolCall

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXT_PARTS = {"text": "text", "refusal": "refusal"}
"""Content part types that are text, and the field that holds it."""


class BadMessages(ValueError):
    """The messages cannot be served; ``param`` names the faulty part (``messages[2].content``)."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


def normalise(messages: Sequence[object]) -> tuple[Message, ...]:
    """Return the normal form of a request's messages.

    Lists of text parts are joined without a separator, null content becomes the empty string,
    ``developer`` becomes ``system`` and the old ``function`` role becomes ``tool``.

    Raises:
        BadMessages: no messages, an unknown role, a wrong type, or content that is not text.
    """
    if not messages:
        raise BadMessages("messages must not be empty", "messages")
    return tuple(_message(raw, f"messages[{index}]") for index, raw in enumerate(messages))


def _message(raw: object, param: str) -> Message:
    if not isinstance(raw, dict):
        raise BadMessages("each message must be an object", param)
    said = raw.get("role")
    role = _ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        known = ", ".join(_ROLES)
        raise BadMessages(f"unknown role {said!r}; the roles are {known}", f"{param}.role")
    content = raw.get("content")
    return Message(
        role=role,
        content=flatten(content, f"{param}.content", _TEXT_PARTS),
        name=_text(raw, "name", param),
        tool_call_id=_text(raw, "tool_call_id", param),
        tool_calls=_tool_calls(raw, param),
        reasoning=_text(raw, "reasoning_content", param) or _text(raw, "reasoning", param),
    )


def _text(raw: Mapping[str, object], field: str, param: str) -> str | None:
    value = raw.get(field)
    if value is not None and not isinstance(value, str):
        raise BadMessages(f"{field} must be a string", f"{param}.{field}")
    return value


def flatten(content: object, param: str, kinds: Mapping[str, str]) -> str:
    """Return the text of a message's content: a string, a list of text parts, or null.

    Args:
        content: as the client sent it.
        param: its place, for faults.
        kinds: the types of parts that are text, and the field that holds it.

    Raises:
        BadMessages: it is none of these.
    """
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise BadMessages("content must be a string, a list of parts or null", param)
    return "".join(_part(part, f"{param}[{index}]", kinds) for index, part in enumerate(content))


def _part(part: object, param: str, kinds: Mapping[str, str]) -> str:
    if not isinstance(part, dict):
        raise BadMessages("each content part must be an object with a type", param)
    kind = part.get("type")
    field = kinds.get(kind) if isinstance(kind, str) else None
    if field is None:
        raise BadMessages(
            f"content parts of type {kind!r} are not served: this model takes text only", param
        )
    text = part.get(field)
    if not isinstance(text, str):
        raise BadMessages(f"a part of type {kind!r} needs a string {field!r}", param)
    return text


def _tool_calls(raw: Mapping[str, object], param: str) -> tuple[ToolCall, ...]:
    calls = raw.get("tool_calls")
    if calls is None:
        old = raw.get("function_call")  # the form before tools
        return () if old is None else (read_call({"function": old}, f"{param}.function_call"),)
    if not isinstance(calls, list):
        raise BadMessages("tool_calls must be a list", f"{param}.tool_calls")
    return tuple(read_call(call, f"{param}.tool_calls[{i}]") for i, call in enumerate(calls))


def read_call(call: object, param: str) -> ToolCall:
    """Return a tool call in the form of chat completions, checked.

    Raises:
        BadMessages: a part is missing or no text.
    """
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise BadMessages("a tool call needs a function with a name and arguments", param)
    name, arguments, id_ = function.get("name"), function.get("arguments", ""), call.get("id", "")
    if isinstance(arguments, dict):  # some clients send the object itself
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not isinstance(name, str) or not isinstance(arguments, str) or not isinstance(id_, str):
        raise BadMessages("id, name and arguments of a tool call must be strings", param)
    return ToolCall(id=id_, name=name, arguments=arguments)


def parsed_arguments(arguments: str) -> Json | str:
    """Return the object that ``arguments`` writes; the text itself where it writes none."""
    try:
        value = json.loads(mend_escapes(arguments) if "\\u" in arguments else arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def for_template(message: Message) -> Json:
    """Return a message as chat templates expect it: tool arguments as an object, no nulls."""
    made: Json = {"role": message.role, "content": message.content}
    if message.name is not None:
        made["name"] = message.name
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": parsed_arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.reasoning is not None:
        # Families read it under either name.
        made["reasoning_content"] = made["thinking"] = message.reasoning
    return made
