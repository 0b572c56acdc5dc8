"""The real Claude Code, through Messages. It always streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_kit import CommandLine
from client_kit import NODE_MODULES, Json, System
from test_conversations import check_captured, check_linked

pytestmark = pytest.mark.clients

SAYS = ("Run echo hi", "And again", "Thank you!")


def calling(text: str, tool: str, **arguments: Json | str) -> str:
    call = json.dumps({"name": tool, "arguments": arguments})
    return f"<think>\nThey want it.\n</think>\n\n{text}\n<tool_call>\n{call}\n</tool_call>"


@pytest.fixture
def claude(tmp_path: Path, installed: Callable[[Path], Path]) -> Callable[[System], CommandLine]:
    """Return what sets Claude Code up before a gateway, as the guide says."""
    program = installed(NODE_MODULES / ".bin" / "claude")

    def make(system: System) -> CommandLine:
        settings = {
            "ANTHROPIC_BASE_URL": system.url,
            "ANTHROPIC_AUTH_TOKEN": "none",
            "ANTHROPIC_MODEL": "default",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "default",
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "200000",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        return CommandLine(program, tmp_path / "claude", settings)

    return make


def test_a_conversation_with_a_tool_call_is_captured_and_linked(
    replaying: Callable[..., System], claude: Callable[[System], CommandLine]
) -> None:
    call = calling("Let me run it.", "Bash", command="echo hi-from-tool", description="Say hi")
    answers = (call, "It says **hi**. ☂", "Second answer.", "Third answer 🤷🏽.")
    system = replaying([{"when": "", "answers": answers}])
    client = claude(system)
    shown = [client.run("--print", SAYS[0], "--allowedTools", "Bash")]
    shown += [client.run("--print", "--continue", text) for text in SAYS[1:]]
    assert shown == list(answers[1:])
    turns = system.turns()
    assert len(turns) == len(answers)
    check_captured(system, turns)
    check_linked(turns, ["tool: hi-from-tool", *(f"user: {text}" for text in SAYS[1:])])
    assert {turn.link["named_by"] for turn in turns} == {"rule claude-code"}
    assert len({turn.external for turn in turns}) == 1


def test_its_search_for_tools_brings_them_into_the_prompt(
    replaying: Callable[..., System], claude: Callable[[System], CommandLine]
) -> None:
    """Refused, it sends all tools with every request for the rest of the session."""
    search = calling("I look for a tool.", "ToolSearch", query="select:WebFetch")
    system = replaying([{"when": "", "answers": [search, "Found."]}])
    assert claude(system).run("--print", "Find a tool", "--allowedTools", "ToolSearch") == "Found."
    first, second = system.turns()
    assert second.parent_id == first.turn_id
    assert [one.content for one in first.next_state] == ["Tool loaded: WebFetch\n"]
    tokenizer = system.tokenizer()
    prompts = [tokenizer.decode(one.prompt_ids) for one in system.sampled()]
    assert ['"name": "WebFetch"' in prompt for prompt in prompts] == [False, True]


def test_a_summary_is_a_side_turn_and_its_session_goes_on(
    replaying: Callable[..., System], claude: Callable[[System], CommandLine]
) -> None:
    system = replaying(
        [
            {"when": "create a detailed summary", "answers": ["<summary>Of rivers.</summary>"]},
            {"when": "", "answers": ["First.", "Second.", "Third."]},
        ]
    )
    client = claude(system)
    client.run("--print", "Tell me about rivers")
    for text in ("And the sea?", "/compact", "Thank you!"):
        client.run("--print", "--continue", text)
    turns = system.turns()
    assert [turn.turn_type for turn in turns] == ["main", "main", "side", "main"]
    assert turns[2].link["type_by"].startswith("opening 'critical: respond with text only")
    assert turns[1].parent_id == turns[0].turn_id
    assert turns[1].next_state == ()
    assert len({turn.session_id for turn in turns}) == 1
