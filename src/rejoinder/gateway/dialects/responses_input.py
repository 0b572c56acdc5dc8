"""Input items and tools of a response request, made messages and tools of the one internal form.

This API writes one answer as several items: thoughts, text, each call. They become one message
again, so that a history is recognised whichever dialect its answers were given in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rejoinder.chat.messages import BadMessages, flatten, read_call
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.tool_choice import WantedCall, wanted_call
from rejoinder.types import Json, Message, ToolCall

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
                call = {"id": item.get("call_id"), "function": item}
                self._open().calls.append(read_call(call, param))
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


def _thoughts(item: Mapping[str, object], param: str) -> str:
    """Return the text of a reasoning item; a summary stands in where the text was not kept."""
    if item.get("content"):
        return flatten(item["content"], f"{param}.content", _THOUGHTS)
    return flatten(item.get("summary"), f"{param}.summary", _THOUGHTS)


def shown_tools(tools: Sequence[Json], choice: str | Json | None) -> list[Json]:
    """Return the tools that the prompt names, in the form of chat completions.

    Raises:
        ApiError: 400, a tool that is no function, or a choice that is none of the API's.
    """
    functions = [_function(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    if choice == "none":
        return []
    if choice is None or choice in ("auto", "required"):
        return functions
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "function":
        return functions
    if kind == "allowed_tools" and isinstance(choice, dict):
        listed = choice.get("tools")
        allowed = (
            [tool.get("name") for tool in listed or () if isinstance(tool, dict)]
            if isinstance(listed, list)
            else []
        )
        return [tool for tool in functions if tool["function"]["name"] in allowed]
    raise ApiError(
        400,
        "invalid_value",
        "tool_choice is 'none', 'auto', 'required', or of type 'function' or 'allowed_tools'",
        "tool_choice",
    )


def asked_call(shown: Sequence[Json], choice: str | Json | None) -> WantedCall | None:
    """Return the call that an answer has to begin with; ``shown`` are the tools of the prompt.

    Raises:
        ApiError: 400, the choice names none of the tools, or there are none.
    """
    if not isinstance(choice, dict):
        return wanted_call(choice, shown)
    if choice.get("type") == "function":
        return wanted_call({"function": {"name": choice.get("name")}}, shown)
    return wanted_call(choice.get("mode") if choice.get("mode") == "required" else None, shown)


def _function(tool: Json, param: str) -> Json:
    kind = tool.get("type")
    if kind != "function":
        raise ApiError(
            400,
            "unsupported_parameter",
            f"tools of type {kind!r} are not served: no tool runs here. Offer functions, and run "
            "them yourself",
            f"{param}.type",
        )
    if not isinstance(tool.get("name"), str):
        raise ApiError(400, "invalid_value", "a function needs a name", f"{param}.name")
    kept = ("name", "description", "parameters", "strict")
    function = {key: value for key, value in tool.items() if key in kept and value is not None}
    return {"type": "function", "function": function}
