"""Input items of a response request, made messages of the one internal form.

This API writes one answer as several items: thoughts, text, each call. They become one message
again, so that a history is recognised whichever dialect its answers were given in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rejoinder.chat.messages import BadMessages, flatten, read_call
from rejoinder.gateway.dialects.responses_tools import joined_name
from rejoinder.types import Message, ToolCall

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Types of content parts that are text, and the field that holds it."""
_THOUGHTS = {"reasoning_text": "text", "summary_text": "text"}


def read_input(given: str | Sequence[object]) -> tuple[Message, ...]:
    """Return the messages of ``input``.

    Raises:
        BadMessages: no items, one of a kind that is not served, or a wrong type.
    """
    if isinstance(given, str):
        return (Message("user", given),)
    if not given:
        raise BadMessages("input must not be empty", "input")
    conversation = _Conversation()
    for index, item in enumerate(given):
        conversation.add(item, f"input[{index}]")
    return conversation.messages()


@dataclass(slots=True)
class _Answer:
    """The items of one answer."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    ends_with_text: bool = False

    def message(self) -> Message:
        return Message(
            "assistant",
            "".join(self.texts),
            tool_calls=tuple(self.calls),
            reasoning="".join(self.thoughts) or None,
        )


class _Conversation:
    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._answer: _Answer | None = None

    def messages(self) -> tuple[Message, ...]:
        self._close()
        return tuple(self._messages)

    def add(self, item: object, param: str) -> None:
        if not isinstance(item, Mapping):
            raise BadMessages("each input item must be an object", param)
        # Messages are often written without a type; references to stored items can be, too.
        kind = item.get("type") or ("message" if "role" in item else "item_reference")
        match kind:
            case "message":
                self._message(item, param)
            case "reasoning":
                self._open().thoughts.append(_thoughts(item, param))
            case "function_call":
                self._open().calls.append(_call(item, param))
            case "function_call_output":
                self._result(item, param)
            case "item_reference":
                raise BadMessages(
                    "references to items are not served: send the item itself, or name the "
                    "response by previous_response_id",
                    param,
                )
            case _:
                raise BadMessages(f"input items of type {kind!r} are not served", param)

    def _message(self, item: Mapping[str, object], param: str) -> None:
        given = item.get("role")
        role = _ROLES.get(given) if isinstance(given, str) else None
        if role is None:
            known = ", ".join(_ROLES)
            raise BadMessages(f"unknown role {given!r}; the roles are {known}", f"{param}.role")
        text = flatten(item.get("content"), f"{param}.content", _PARTS)
        if role != "assistant":
            self._close()
            self._messages.append(Message(role, text))
            return
        if self._answer is not None and self._answer.ends_with_text and not item.get("id"):
            self._close()  # written by hand: two such messages in a row are two answers
        answer = self._open()
        answer.texts.append(text)
        answer.ends_with_text = True

    def _result(self, item: Mapping[str, object], param: str) -> None:
        call_id = item.get("call_id")
        if not isinstance(call_id, str):
            raise BadMessages("call_id must be a string", f"{param}.call_id")
        self._close()
        output = flatten(item.get("output"), f"{param}.output", _PARTS)
        self._messages.append(Message("tool", output, tool_call_id=call_id))

    def _open(self) -> _Answer:
        if self._answer is None:
            self._answer = _Answer()
        self._answer.ends_with_text = False
        return self._answer

    def _close(self) -> None:
        if self._answer is not None:
            self._messages.append(self._answer.message())
            self._answer = None


def _call(item: Mapping[str, object], param: str) -> ToolCall:
    call = read_call({"id": item.get("call_id"), "function": item}, param)
    space = item.get("namespace")
    if space is None:
        return call
    if not isinstance(space, str):
        raise BadMessages("namespace must be a string", f"{param}.namespace")
    return replace(call, name=joined_name(space, call.name))


def _thoughts(item: Mapping[str, object], param: str) -> str:
    """Return the text of a reasoning item; a summary stands in where the text was not kept."""
    if item.get("content"):
        return flatten(item["content"], f"{param}.content", _THOUGHTS)
    return flatten(item.get("summary"), f"{param}.summary", _THOUGHTS)
