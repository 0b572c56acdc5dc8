"""Tools of a Messages request: what the prompt names of them, and the call that is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rejoinder.gateway.dialects.messages_body import CountBody, Tool, ToolChoice
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.tool_choice import WantedCall, wanted_call
from rejoinder.types import Json


def shown_tools(body: CountBody) -> tuple[Json, ...]:
    """Return the tools that the prompt names, in the form of chat completions.

    Those that the client defers are named once a tool's result refers to them, or where they have
    to be called: agents with very many tools let the model search for them.

    Raises:
        ApiError: 400, a tool that is not served.
    """
    given = body.tools or ()
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(given)]
    choice = body.tool_choice
    if choice is not None and choice.type == "none":
        return ()
    if not any(tool.defer_loading for tool in given):
        return tuple(tools)
    loaded = set(_referenced(body.messages))
    if choice is not None and choice.name is not None:
        loaded.add(choice.name)
    pairs = zip(given, tools, strict=True)
    return tuple(made for tool, made in pairs if not tool.defer_loading or tool.name in loaded)


def asked_call(choice: ToolChoice | None, shown: Sequence[Json]) -> WantedCall | None:
    """Return the call that an answer has to begin with; ``shown`` are the tools of the prompt.

    Raises:
        ApiError: 400, the choice names none of the tools, or there are none.
    """
    if choice is not None and choice.type == "tool":
        return wanted_call({"function": {"name": choice.name}}, shown, parallel=False)
    if choice is None:
        return None
    return wanted_call(choice.type, shown, parallel=not choice.disable_parallel_tool_use)


def _tool(tool: Tool, param: str) -> Json:
    if tool.input_schema is None:
        kind = "custom" if tool.type is None else tool.type
        raise ApiError(
            400,
            "unsupported_parameter",
            f"a tool of type {kind!r} without an input_schema is not served: define what it takes",
            param,
        )
    function: Json = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _referenced(messages: Sequence[Json]) -> Iterator[str]:
    """Yield the names of tools to which results of tools refer."""
    for message in messages:
        for result in _of_type("tool_result", message.get("content")):
            for reference in _of_type("tool_reference", result.get("content")):
                if isinstance(name := reference.get("tool_name"), str):
                    yield name


def _of_type(kind: str, content: object) -> Iterator[Json]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == kind:
            yield block
