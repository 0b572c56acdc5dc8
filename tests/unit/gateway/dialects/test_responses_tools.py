"""Tools of responses: what the model sees of them, which call is asked for, what is refused."""

from __future__ import annotations

import pytest

from rejoinder.gateway.dialects.responses_tools import asked_call, offered_tools, shown_tools
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.tool_choice import WantedCall

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
CLOCK = {"type": "function", "name": "clock", "description": "Tells the time.", "strict": None}
SEARCH = {"type": "web_search", "external_web_access": False}
AGENTS = {
    "type": "namespace",
    "name": "agents",
    "description": "Others who help.",
    "tools": [
        {"type": "function", "name": "start", "parameters": {"type": "object"}},
        {"type": "function", "name": "stop"},
    ],
}


def names(tools) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def test_functions_get_the_form_that_templates_know():
    assert shown_tools(offered_tools([WEATHER, CLOCK]), None) == [
        {
            "type": "function",
            "function": {"name": "weather", "parameters": {"type": "object"}},
        },
        {"type": "function", "function": {"name": "clock", "description": "Tells the time."}},
    ]


@pytest.mark.parametrize(
    ("choice", "shown"),
    [
        ("auto", ["weather", "clock"]),
        ("required", ["weather", "clock"]),
        ("none", []),
        ({"type": "function", "name": "clock"}, ["weather", "clock"]),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "clock"}],
            },
            ["clock"],
        ),
        ({"type": "allowed_tools", "tools": None}, []),
    ],
)
def test_the_choice_says_which_tools_the_prompt_names(choice, shown):
    assert names(shown_tools(offered_tools([WEATHER, CLOCK]), choice)) == shown


@pytest.mark.parametrize(
    ("choice", "call"),
    [
        (None, None),
        ("auto", None),
        ("none", None),
        ("required", WantedCall(None, several=True)),
        ({"type": "function", "name": "clock"}, WantedCall("clock")),
        ({"type": "allowed_tools", "mode": "auto", "tools": [CLOCK]}, None),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [CLOCK]},
            WantedCall("clock", several=True),
        ),
    ],
)
def test_the_choice_says_which_call_is_asked_for(choice, call):
    assert asked_call(shown_tools(offered_tools([WEATHER, CLOCK]), choice), choice) == call


def test_calls_that_are_not_parallel_are_one():
    shown = shown_tools(offered_tools([WEATHER, CLOCK]), "required")
    assert asked_call(shown, "required", parallel=False) == WantedCall(None)
    assert asked_call(shown, "required", parallel=True) == WantedCall(None, several=True)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "unknown"},
        {"type": "function"},
        {"type": "allowed_tools", "mode": "required", "tools": []},
    ],
)
def test_a_call_of_no_tool_is_refused(choice):
    with pytest.raises(ApiError) as caught:
        asked_call(shown_tools(offered_tools([WEATHER, CLOCK]), choice), choice)
    assert (caught.value.status, caught.value.param) == (400, "tool_choice")


def test_functions_of_a_namespace_are_seen_by_both_names():
    offered = offered_tools([WEATHER, AGENTS])
    assert names(offered.functions) == ["weather", "agents__start", "agents__stop"]
    assert offered.functions[1]["function"]["parameters"] == {"type": "object"}
    assert offered.spaces == {"agents__start": "agents", "agents__stop": "agents"}
    assert names(offered_tools([{**AGENTS, "name": "mcp__a__"}]).functions)[0] == "mcp__a__start"


@pytest.mark.parametrize(
    ("tools", "choice", "shown"),
    [
        ([{"type": "namespace", "name": "agents"}], "auto", ["agents__start", "agents__stop"]),
        ([{"type": "function", "namespace": "agents", "name": "stop"}], "auto", ["agents__stop"]),
        ([{"type": "function", "name": "stop"}], "auto", []),
    ],
)
def test_a_choice_may_name_a_namespace(tools, choice, shown):
    allowed = {"type": "allowed_tools", "mode": choice, "tools": tools}
    assert names(shown_tools(offered_tools([WEATHER, AGENTS]), allowed)) == shown


def test_a_call_of_a_function_in_a_namespace_can_be_asked_for():
    choice = {"type": "function", "namespace": "agents", "name": "stop"}
    shown = shown_tools(offered_tools([AGENTS]), choice)
    assert asked_call(shown, choice) == WantedCall("agents__stop")


def test_tools_that_the_server_runs_are_left_out_beside_functions_and_said_so():
    offered = offered_tools([SEARCH, WEATHER, {"type": "file_search"}])
    assert (names(offered.functions), offered.left_out) == (["weather"], True)
    assert not offered_tools([WEATHER]).left_out


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ([{"type": "web_search"}], None, "tools[0].type"),
        ([WEATHER, {"type": "custom", "name": "patch"}], "none", "tools[1].type"),
        ([{"name": "weather"}], None, "tools[0].type"),
        ([{"type": "function", "function": {"name": "weather"}}], None, "tools[0].name"),
        ([WEATHER], "always", "tool_choice"),
        ([WEATHER], {"type": "web_search"}, "tool_choice"),
        ([WEATHER, SEARCH], {"type": "web_search"}, "tool_choice"),
        ([{"type": "namespace", "name": "agents"}], None, "tools[0]"),
        ([{**AGENTS, "tools": [SEARCH]}], None, "tools[0].tools[0].type"),
        ([{**AGENTS, "tools": ["stop"]}], None, "tools[0].tools[0]"),
        ([AGENTS, AGENTS], None, "tools[1].tools[0]"),
        ([AGENTS, {**WEATHER, "name": "agents__stop"}], None, "tools[1]"),
        ([{**WEATHER, "name": "agents__stop"}, AGENTS], None, "tools[1].tools[1]"),
    ],
)
def test_tools_that_cannot_be_offered_are_refused(tools, choice, param):
    with pytest.raises(ApiError) as caught:
        shown_tools(offered_tools(tools), choice)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_thousands_of_functions_are_read_in_no_time():
    """Each was looked for in a list of all before it; so many would take minutes."""
    many = [{"type": "function", "name": f"f{n}"} for n in range(20_000)]
    chosen = {"type": "allowed_tools", "mode": "auto", "tools": many}
    offered = offered_tools([{"type": "namespace", "name": "s", "tools": many}, *many])
    assert len(shown_tools(offered, chosen)) == 20_000


def test_a_namespace_without_a_name_allows_nothing():
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "namespace"}]}
    assert names(shown_tools(offered_tools([WEATHER, AGENTS]), choice)) == []
