"""The real OpenClaw: by itself, and with the plugin of ``integrations/openclaw``."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from client_kit import LONG_CONTEXT, NODE, NODE_MODULES, System
from openclaw_kit import OPENCLAW, PLUGIN, OpenClaw
from test_conversations import check_captured, check_linked

pytestmark = pytest.mark.clients

COMMAND = {"name": "exec", "arguments": {"command": "echo hi-from-tool"}}
CALL = (
    "<think>\nThey want it run.\n</think>\n\nLet me run it.\n<tool_call>\n"
    f"{json.dumps(COMMAND)}\n</tool_call>"
)
ANSWERS = (CALL, "It says **hi**. ☂", "Second answer.", "Third answer 🤷🏽.")
HEARTBEAT_S = 120.0


@pytest.fixture
def openclaw(
    tmp_path: Path, installed: Callable[[Path], Path]
) -> Iterator[Callable[[System, bool], OpenClaw]]:
    """Return what sets OpenClaw up before a gateway."""
    installed(OPENCLAW)
    made: list[OpenClaw] = []

    def make(system: System, plugin: bool) -> OpenClaw:
        made.append(OpenClaw(tmp_path / f"openclaw{len(made)}", system.url, plugin))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("plugin", [False, True], ids=["plain", "plugin"])
def test_a_conversation_with_a_tool_call_is_captured_and_linked(
    replaying: Callable[..., System], openclaw: Callable[[System, bool], OpenClaw], plugin: bool
) -> None:
    system = replaying([{"when": "", "answers": ANSWERS}])
    claw = openclaw(system, plugin)
    says = ("Run echo hi", "And again", "Thank you!")
    shown = [claw.say(text, "--local", "--session-id", "sess-abc") for text in says]
    assert shown == list(ANSWERS[1:])
    turns = system.turns()
    assert len(turns) == len(ANSWERS)
    check_captured(system, turns)
    check_linked(turns, ["tool: hi-from-tool", *(f"user: {text}" for text in says[1:])])
    assert {turn.external for turn in turns} == {"sess-abc"}
    by = ("header X-Session-Id", "header X-Turn-Type") if plugin else ("rule openclaw", "default")
    assert {(turn.link["named_by"], turn.link["type_by"]) for turn in turns} == {by}
    assert max(len(one.prompt_ids) for one in system.sampled()) < LONG_CONTEXT / 2


@pytest.mark.parametrize("plugin", [False, True], ids=["plain", "plugin"])
def test_a_heartbeat_is_a_side_turn_and_the_persons_next_words_are_linked(
    replaying: Callable[..., System], openclaw: Callable[[System, bool], OpenClaw], plugin: bool
) -> None:
    system = replaying([{"when": "", "answers": ("First.", "Second.", "Third.")}])
    claw = openclaw(system, plugin).start()
    assert claw.say("Hello") == "First."
    claw.run("system", "event", "--text", "Look at the oven", "--mode", "now")
    claw.wait_until(lambda: len(system.turns()) == 2, HEARTBEAT_S)
    assert claw.say("What is new?").endswith(".")
    first, heartbeat, reply = system.turns()
    assert [turn.turn_type for turn in (first, heartbeat, reply)] == ["main", "side", "main"]
    by = "header X-Turn-Type" if plugin else "opening 'follow the heartbeat monitor'"
    assert heartbeat.link["type_by"] == by
    assert reply.parent_id in (first.turn_id, heartbeat.turn_id), reply.link
    assert len({turn.session_id for turn in (first, heartbeat, reply)}) == 1
    claw.say("/new")
    closed = "SELECT close_reason FROM sessions WHERE closed_at IS NOT NULL"
    if plugin:
        claw.wait_until(lambda: system.rows(closed) == [("done",)], HEARTBEAT_S)
    assert "session end not" not in claw.story()


def test_the_plugin_fits_the_types_of_openclaw(
    tmp_path: Path, installed: Callable[[Path], Path]
) -> None:
    compiler = installed(NODE_MODULES / "typescript" / "bin" / "tsc")
    for file in PLUGIN.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    done = subprocess.run(
        [NODE, compiler, "--project", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
