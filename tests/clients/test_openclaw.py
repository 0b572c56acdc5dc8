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
    script = [
        {"when": "Thank you", "answers": ["Welcome."]},
        {"when": "the garden", "answers": ["NO_REPLY"]},
        {"when": "", "answers": ["First.", "The oven is hot.", "Third."]},
    ]
    system = replaying(script)
    claw = openclaw(system, plugin).start()

    def wake(event: str) -> None:
        known = len(system.turns())
        claw.run("system", "event", "--text", event, "--mode", "now")
        claw.wait_until(lambda: len(system.turns()) > known, HEARTBEAT_S)

    assert claw.say("Hello") == "First."
    wake("Look at the oven")
    assert claw.say("Switch it off") == "Third."
    wake("Look at the garden")
    assert claw.say("Thank you") == "Welcome."
    turns = system.turns()
    assert [turn.turn_type for turn in turns] == ["main", "side", "main", "side", "main"]
    by = "header X-Turn-Type" if plugin else "opening 'follow the heartbeat monitor'"
    assert {turn.link["type_by"] for turn in turns if turn.turn_type == "side"} == {by}
    first, oven, third, _, last = turns
    # The second heartbeat had nothing to say, so the person's words are about what came before it.
    assert (third.parent_id, last.parent_id) == (oven.turn_id, third.turn_id), last.link
    assert len({turn.session_id for turn in turns}) == 1
    assert [one.content for one in third.next_state] == ["Thank you"]
    assert first.next_state == ()
    claw.say("/new")
    closed = "SELECT close_reason FROM sessions WHERE closed_at IS NOT NULL"
    if plugin:
        claw.wait_until(lambda: system.rows(closed) == [("done",)], HEARTBEAT_S)
    assert "session end not" not in claw.story()


@pytest.mark.parametrize("plugin", [False, True], ids=["plain", "plugin"])
def test_a_summary_is_a_side_turn_and_its_session_goes_on(
    replaying: Callable[..., System], openclaw: Callable[[System, bool], OpenClaw], plugin: bool
) -> None:
    long = "Rivers are long. " * 3000  # so that there is something to summarise
    system = replaying([{"when": "", "answers": [long, long, "About rivers.", "Gladly."]}])
    claw = openclaw(system, plugin).start()
    for text in ("Tell me about rivers", "Tell me more"):
        claw.say(text)
    claw.run("sessions", "compact", "agent:main:main")
    for text in ("What was it about?", "Thank you"):
        claw.say(text)
    first, second, summary, third, last = system.turns()
    assert summary.turn_type == "side"
    by = "header X-Turn-Type" if plugin else r"opening '<conversation>\n[user]:'"
    assert summary.link["type_by"] == by
    assert second.parent_id == first.turn_id
    assert third.parent_id is None  # what came before was summarised
    assert (third.turn_type, last.parent_id) == ("main", third.turn_id)
    if plugin:
        assert {turn.session_id for turn in (second, third, last)} == {first.session_id}


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
