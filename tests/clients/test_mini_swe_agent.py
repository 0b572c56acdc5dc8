"""The real mini-swe-agent works on a task to its end. It never streams."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from client_kit import PYTHON, System, client_environment
from test_conversations import check_captured

pytestmark = pytest.mark.clients

COMMANDS = (
    "printf 'one\\ntwo ☂\\n' > list.txt && cat list.txt",
    "wc -l < list.txt",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
)
THOUGHTS = ("I make the file first. ☂", "Now I count.", "That was all.")


def _answer(thought: str, command: str) -> str:
    call = json.dumps({"name": "bash", "arguments": {"command": command}}, ensure_ascii=False)
    return f"{thought}\n<tool_call>\n{call}\n</tool_call>"


def test_its_turns_are_captured_and_judged_by_what_its_commands_print(
    replaying: Callable[..., System], installed: Callable[[Path], Path], tmp_path: Path
) -> None:
    mini = installed(PYTHON / "mini")
    answers = [_answer(*pair) for pair in zip(THOUGHTS, COMMANDS, strict=True)]
    system = replaying([{"when": "", "answers": answers}])
    work, record = tmp_path / "work", tmp_path / "trajectory.json"
    work.mkdir()
    options = ["-c", "mini.yaml", "-c", f"model.model_kwargs.api_base={system.url}/v1"]
    task = ["-m", "openai/default", "-t", "Count the lines.", "-o", str(record)]
    done = subprocess.run(
        [mini, *task, "--yolo", "--exit-immediately", *options],
        env=client_environment(
            OPENAI_API_KEY="none",
            MSWEA_CONFIGURED="true",
            MSWEA_COST_TRACKING="ignore_errors",
            MSWEA_GLOBAL_CONFIG_DIR=str(tmp_path / "config"),
        ),
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [m for m in json.loads(record.read_text())["messages"] if m["role"] == "assistant"]
    assert tuple(message["content"] for message in shown) == THOUGHTS
    called = [json.loads(m["tool_calls"][0]["function"]["arguments"]) for m in shown]
    assert tuple(one["command"] for one in called) == COMMANDS
    turns = system.turns()
    check_captured(system, turns)
    assert [turn.parent_id for turn in turns] == [None, turns[0].turn_id, turns[1].turn_id]
    states = [[(one.role, json.loads(one.content)) for one in t.next_state] for t in turns]
    assert states == [
        [("tool", {"returncode": 0, "output": "one\ntwo ☂\n"})],
        [("tool", {"returncode": 0, "output": "2\n"})],
        [],
    ]
