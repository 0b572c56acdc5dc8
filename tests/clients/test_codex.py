"""The real Codex, through responses. It always streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_kit import CommandLine
from client_kit import NODE_MODULES, System
from test_claude_code import calling
from test_conversations import check_captured

pytestmark = pytest.mark.clients

SAYS = ("Run echo hi", "And again", "Thank you!")
CONFIG = """
model = "default"
model_provider = "rejoinder"

[model_providers.rejoinder]
name = "Rejoinder"
base_url = "{url}/v1"
env_key = "REJOINDER_KEY"
"""
COMMAND = ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access")


@pytest.fixture
def codex(tmp_path: Path, installed: Callable[[Path], Path]) -> Callable[[System], CommandLine]:
    """Return what sets Codex up before a gateway, as the guide says."""
    program = installed(NODE_MODULES / ".bin" / "codex")

    def make(system: System) -> CommandLine:
        made = CommandLine(program, tmp_path / "codex", {"REJOINDER_KEY": "none"})
        (made.home / ".codex").mkdir()
        (made.home / ".codex" / "config.toml").write_text(CONFIG.format(url=system.url))
        return made

    return make


def test_a_conversation_with_a_tool_call_is_captured_and_linked(
    replaying: Callable[..., System], codex: Callable[[System], CommandLine]
) -> None:
    call = calling("Let me run it.", "exec_command", cmd="echo hi-from-tool")
    answers = (call, "It says **hi**. ☂", "Second answer.", "Third answer 🤷🏽.")
    system = replaying([{"when": "", "answers": answers}])
    client = codex(system)
    shown = [client.run(*COMMAND, SAYS[0])]
    shown += [client.run(*COMMAND, "resume", "--last", text) for text in SAYS[1:]]
    assert shown == list(answers[1:])
    turns = system.turns()
    assert len(turns) == len(answers)
    check_captured(system, turns)
    assert [turn.parent_id for turn in turns] == [None, *(turn.turn_id for turn in turns[:-1])]
    (printed,) = turns[0].next_state
    assert (printed.role, printed.content[-13:]) == ("tool", "hi-from-tool\n")
    states = [[one.content for one in turn.next_state] for turn in turns[1:]]
    assert states == [[SAYS[1]], [SAYS[2]], []]
    assert {turn.link["named_by"] for turn in turns} == {"rule codex"}
    assert len({turn.session_id for turn in turns}) == 1


def test_it_finds_a_function_of_a_namespace_by_its_two_names(
    replaying: Callable[..., System], codex: Callable[[System], CommandLine]
) -> None:
    """A name that it does not know ends as ``unsupported call``."""
    call = calling("I ask for help.", "multi_agent_v1__spawn_agent", message="Count the rivers.")
    script = [
        {"when": "<|im_start|>user\nCount the rivers.", "answers": ["Many."]},
        {"when": "", "answers": [call, "Helped."]},
    ]
    system = replaying(script)
    assert codex(system).run(*COMMAND, "Ask a helper") == "Helped."
    first = system.turns()[0]
    assert first.answer.tool_calls[0].name == "multi_agent_v1__spawn_agent"
    assert '"agent_id"' in first.next_state[0].content


def test_a_summary_is_a_side_turn_and_its_session_goes_on(
    replaying: Callable[..., System], codex: Callable[[System], CommandLine]
) -> None:
    script = [
        {"when": "CONTEXT CHECKPOINT", "answers": ["Of rivers."]},
        {"when": "", "answers": ["First.", "Second."]},
    ]
    system = replaying(script)
    client = codex(system)
    early = ("-c", "model_auto_compact_token_limit=2000")
    client.run(*COMMAND, *early, "Tell me about rivers")
    client.run(*COMMAND, *early, "resume", "--last", "And the sea?")
    first, summary, last = system.turns()
    assert [first.turn_type, summary.turn_type, last.turn_type] == ["main", "side", "main"]
    assert summary.link["type_by"].startswith("opening 'you are performing a context checkpoint")
    assert first.next_state == ()
    assert {summary.session_id, last.session_id} == {first.session_id}
