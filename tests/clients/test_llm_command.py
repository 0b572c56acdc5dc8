"""The command ``llm``, through chat completions: a conversation with a tool, streamed and not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_kit import CommandLine
from client_kit import PYTHON, System
from test_conversations import check_captured, check_linked

pytestmark = pytest.mark.clients

MODELS = """
- model_id: rejoinder
  model_name: default
  api_base: "{url}/v1"
  supports_tools: true
"""
TOOL = '''
def weather(city: str) -> str:
    """Tells the weather."""
    return f"rain in {city}"
'''
CALL = json.dumps({"name": "weather", "arguments": {"city": "Zürich"}}, ensure_ascii=False)
ANSWERS = (f"<tool_call>\n{CALL}\n</tool_call>", "It **rains**. ☂", "No idea 🤷🏽.", "Gladly!")
SAYS = ("What is the weather in Zürich?", "And tomorrow?", "Thank you!")


@pytest.mark.parametrize("stream", [(), ("--no-stream",)], ids=["streamed", "whole"])
def test_a_conversation_with_a_tool_call_is_captured_and_linked(
    replaying: Callable[..., System],
    installed: Callable[[Path], Path],
    tmp_path: Path,
    stream: tuple[str, ...],
) -> None:
    system = replaying([{"when": "", "answers": ANSWERS}])
    home = tmp_path / "llm"
    client = CommandLine(installed(PYTHON / "llm"), home, {"LLM_USER_PATH": str(home)})
    (home / "extra-openai-models.yaml").write_text(MODELS.format(url=system.url))
    asked = [("--model", "rejoinder", SAYS[0]), *(("--continue", text) for text in SAYS[1:])]
    shown = [client.run("prompt", *stream, "--functions", TOOL, *one) for one in asked]
    assert shown == list(ANSWERS[1:])
    turns = system.turns()
    assert len(turns) == len(ANSWERS)
    check_captured(system, turns)
    check_linked(turns, ["tool: rain in Zürich", *(f"user: {text}" for text in SAYS[1:])])
