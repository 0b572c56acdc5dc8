"""Tools of a response request: functions, alone or in namespaces, and those that no server runs.

The model sees all functions in one list, those of a namespace by a name made of both. A call gets
its two names back before the client sees it, for the client looks its function up by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.tool_choice import WantedCall, wanted_call
from rejoinder.types import Json

_HOSTED = (
    "web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search",
)  # fmt: skip
"""How the types begin of tools that OpenAI's server runs, their dated versions included."""


@dataclass(frozen=True, slots=True)
class Offered:
    """What a request offers to the model."""

    functions: Sequence[Json]
    """In the form of chat completions."""
    spaces: Mapping[str, str] = field(default_factory=dict)
    """By the name that the model sees, the namespaces of the functions that have one."""
    left_out: bool = False
    """Tools that the server would have to run stand beside them; nothing runs here."""


def joined_name(namespace: str, name: str) -> str:
    """Return the name by which the model sees a function of a namespace."""
    return namespace + name if namespace.endswith("_") else f"{namespace}__{name}"


def offered_tools(tools: Sequence[Json]) -> Offered:
    """Return the functions among the tools.

    Clients offer the server's tools by default, and a model need not use them: beside functions
    they are left out. Where there is nothing else the client wants them, and is told.

    Raises:
        ApiError: 400, a tool that is not served, or two functions of one name.
    """
    functions: list[Json] = []
    names: set[str] = set()
    spaces: dict[str, str] = {}
    hosted: str | None = None
    for tool, space, param in _flat(tools):
        kind = tool.get("type")
        if isinstance(kind, str) and kind.startswith(_HOSTED):
            hosted = hosted or f"{param}.type"
            continue
        function = _function(tool, space, param)
        name = function["function"]["name"]
        if name in spaces or (space is not None and name in names):
            raise ApiError(400, "invalid_value", f"the function {name!r} is there twice", param)
        if space is not None:
            spaces[name] = space
        names.add(name)
        functions.append(function)
    if hosted is not None and not functions:
        raise _unserved("that the server runs", hosted)
    return Offered(functions, spaces, hosted is not None)


def _flat(tools: Sequence[Json]) -> Iterator[tuple[Json, str | None, str]]:
    """Yield each tool with its namespace and its place."""
    for index, tool in enumerate(tools):
        param = f"tools[{index}]"
        if tool.get("type") != "namespace":
            yield tool, None, param
            continue
        space, inner = tool.get("name"), tool.get("tools")
        if not isinstance(space, str) or not isinstance(inner, list):
            raise ApiError(400, "invalid_value", "a namespace needs a name and tools", param)
        for at, one in enumerate(inner):
            place = f"{param}.tools[{at}]"
            if not isinstance(one, dict):
                raise ApiError(400, "invalid_value", "each tool must be an object", place)
            yield one, space, place


def _function(tool: Json, space: str | None, param: str) -> Json:
    kind = tool.get("type")
    if kind != "function":
        raise _unserved(f"of type {kind!r}", f"{param}.type")
    name = tool.get("name")
    if not isinstance(name, str):
        raise ApiError(400, "invalid_value", "a function needs a name", f"{param}.name")
    kept = ("name", "description", "parameters", "strict")
    function = {key: value for key, value in tool.items() if key in kept and value is not None}
    if space is not None:
        function["name"] = joined_name(space, name)
    return {"type": "function", "function": function}


def _unserved(what: str, param: str) -> ApiError:
    text = f"tools {what} are not served: no tool runs here. Offer functions, and run them yourself"
    return ApiError(400, "unsupported_parameter", text, param)


def shown_tools(offered: Offered, choice: str | Json | None) -> Sequence[Json]:
    """Return the functions that the prompt names.

    Raises:
        ApiError: 400, a choice that is none of the API's.
    """
    if choice == "none":
        return []
    if choice is None or choice in ("auto", "required"):
        return offered.functions
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "function":
        return offered.functions
    if kind == "allowed_tools" and isinstance(choice, dict):
        return _allowed(offered, choice.get("tools"))
    raise ApiError(
        400,
        "invalid_value",
        "tool_choice is 'none', 'auto', 'required', or of type 'function' or 'allowed_tools'",
        "tool_choice",
    )


def _allowed(offered: Offered, listed: object) -> list[Json]:
    given = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    whole = {space for one in given if (space := _space_named(one)) is not None}
    names = {called for one in given if isinstance(called := _named(one), str)}
    return [
        function
        for function in offered.functions
        if (name := function["function"]["name"]) in names or offered.spaces.get(name) in whole
    ]


def _space_named(reference: Json) -> str | None:
    name = reference.get("name")
    return name if reference.get("type") == "namespace" and isinstance(name, str) else None


def asked_call(
    shown: Sequence[Json], choice: str | Json | None, *, parallel: bool | None = None
) -> WantedCall | None:
    """Return the call that an answer has to begin with; see ``wanted_call``.

    ``shown``: the tools of the prompt.

    Raises:
        ApiError: 400, the choice names none of the tools, or there are none.
    """
    if not isinstance(choice, dict):
        return wanted_call(choice, shown, parallel=parallel)
    if choice.get("type") == "function":
        return wanted_call({"function": {"name": _named(choice)}}, shown, parallel=False)
    mode = choice.get("mode") if choice.get("mode") == "required" else None
    return wanted_call(mode, shown, parallel=parallel)


def _named(reference: Json) -> object:
    """Return by which name the model sees the function that a choice refers to."""
    if reference.get("type") == "namespace":
        return None
    space, name = reference.get("namespace"), reference.get("name")
    if isinstance(space, str) and isinstance(name, str):
        return joined_name(space, name)
    return name
