"""``tool_choice``: whether an answer has to be a tool call.

The beginning of the call, up to the name of the function or to its arguments, is put at the end of
the prompt, and the model writes the rest. What it did not sample is thus in the prompt, where
nothing trains (rule 1); the client gets the whole call. What holds the rest is in ``holding.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rejoinder.chat.families.blocks import tool_name
from rejoinder.gateway.errors import ApiError
from rejoinder.types import Json

_MODES = {"auto": False, "none": False, "required": True, "any": True}
"""Whether they ask for a call; ``any`` is another API's name for ``required``."""
_NAME = re.compile(r"[\w./:-]{1,128}")


@dataclass(frozen=True, slots=True)
class WantedCall:
    """A call that the client asks for."""

    name: str | None
    """Of the function; None leaves its choice to the model."""
    several: bool = False
    """More calls may follow it."""


def wanted_call(
    choice: object, tools: Sequence[Json], *, parallel: bool | None
) -> WantedCall | None:
    """Return the call that an answer has to begin with, by a chat completion's ``tool_choice``.

    A function that the choice names is called once, as OpenAI's API says of it.

    Args:
        choice: as the client sends it.
        tools: those that the prompt names.
        parallel: whether an answer may make several calls; None is the APIs' default, which is yes.

    Raises:
        ApiError: 400, the choice has another form, or names none of the tools.
    """
    if choice is None or (isinstance(choice, str) and _MODES.get(choice) is False):
        return None
    names = [tool_name(tool) for tool in tools]
    if isinstance(choice, str) and choice in _MODES:
        if not names:
            raise _refused(f"tool_choice {choice!r} asks for a call, but there are no tools")
        only = names[0] if len(names) == 1 and nameable(names[0]) else None
        return WantedCall(only, several=parallel is not False)
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise _refused(
            "tool_choice must be 'auto', 'none', 'required', allowed_tools, or "
            '{"type": "function", "function": {"name": ...}}'
        )
    if name not in names or not nameable(name):
        raise _refused(f"tool_choice names {name!r}, which is no function of tools")
    return WantedCall(name)


def parallel_ignored(wanted: WantedCall | None, *, parallel: bool | None) -> list[str]:
    """Return the name of OpenAI's field ``parallel_tool_calls`` where it has no effect.

    Nothing holds an answer that need not be a call.
    """
    return ["parallel_tool_calls"] if parallel is not None and wanted is None else []


def nameable(name: str) -> bool:
    """Whether every family can write a function's name, and nothing takes it for something else."""
    return _NAME.fullmatch(name) is not None


def allowed_tools(choice: object, tools: Sequence[Json]) -> tuple[Sequence[Json], object]:
    """Return the tools that a chat completion's ``tool_choice`` leaves, and its mode among them.

    Raises:
        ApiError: 400, ``allowed_tools`` of another form.
    """
    if choice == "none":
        return (), choice
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return tools, choice
    allowed = choice.get("allowed_tools")
    listed = allowed.get("tools") if isinstance(allowed, dict) else None
    mode = allowed.get("mode") if isinstance(allowed, dict) else None
    if not isinstance(listed, list) or mode not in ("auto", "required"):
        raise _refused("allowed_tools has a mode, 'auto' or 'required', and a list of tools")
    names = {tool_name(tool) for tool in listed if isinstance(tool, dict)}
    return [tool for tool in tools if tool_name(tool) in names], mode


def without_calls(family: str) -> ApiError:
    """Return the refusal of a call by a model whose family has none."""
    return ApiError(
        400,
        "unsupported_parameter",
        f"models of the family {family!r} write no tool calls that are read: leave tool_choice "
        "out, or name the model's family in the configuration (model.family)",
        "tool_choice",
    )


def _refused(text: str) -> ApiError:
    return ApiError(400, "invalid_value", text, "tool_choice")
