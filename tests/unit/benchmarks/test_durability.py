"""What the benchmark of kills counts as a violation, and which runs it goes on with."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import durability
from durability import Crowd, State, own_ends
from loop_process import LoopProcess
from outcome import UNKNOWN
from rejoinder.config import Config, GatewayConfig, TorchEngineConfig
from rejoinder.launch.base import RoleEnded
from rejoinder.launch.system import LocalSystem
from talkers import Answer


def ended(pid: int, exit_code: int) -> RoleEnded:
    return RoleEnded("trainer", pid, exit_code, lives=1, lived_s=9.0, restart_in_s=0.2)


def test_only_the_kills_of_the_benchmark_itself_are_no_violation():
    killed = {1, 2}
    events = [ended(1, -signal.SIGKILL), ended(2, 1), ended(3, -signal.SIGKILL), ended(4, 0)]
    found = own_ends(events, killed)
    assert len(found) == 3
    assert all(str(pid) in text for pid, text in zip((2, 3, 4), found, strict=True))
    state = State()
    durability._note(state, [], found)
    assert (state.own_ends, len(state.violations)) == (3, 3)


def test_ends_of_roles_while_the_system_starts_are_seen_too(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalSystem, "watch", lambda _: [ended(5, 1)])
    config = Config(
        home=str(tmp_path), gateway=GatewayConfig(port=0), engine=TorchEngineConfig(port=0)
    )
    loop = LoopProcess(config)
    loop._system.watch()  # as waiting for the first answer does
    assert [event.pid for event in loop.ended] == [5]


class Unwatched:
    """A system whose watching has failed: no end is ever noticed."""

    ended = ()

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def wait_until_at_work(self) -> None:
        pass

    def pid(self, _role: str) -> int:
        return self._pid

    def check(self) -> None:
        raise RuntimeError("the watching ended")


def test_a_kill_that_nobody_watches_ends_the_run_instead_of_waiting_for_ever():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        with pytest.raises(RuntimeError, match="the watching ended"):
            durability._kill(Unwatched(child.pid), "judge", random.Random(0), 0.0, set())
        assert child.wait() == -signal.SIGKILL


def test_a_run_goes_on_only_with_the_code_that_it_began_with(tmp_path):
    state = State.load(tmp_path, "one")
    state.kills["judge"] = 7
    state.save(tmp_path / durability.STATE)
    assert State.load(tmp_path, "one").kills["judge"] == 7
    with pytest.raises(SystemExit, match="run of the code one, and the code is two"):
        State.load(tmp_path, "two")


def test_a_run_of_unknown_code_is_not_gone_on_with(tmp_path):
    State.load(tmp_path, UNKNOWN).save(tmp_path / durability.STATE)
    with pytest.raises(SystemExit):
        State.load(tmp_path, UNKNOWN)
    written = json.loads((tmp_path / durability.STATE).read_text())
    del written["revision"]  # as before revisions were noted
    (tmp_path / durability.STATE).write_text(json.dumps(written))
    with pytest.raises(SystemExit):
        State.load(tmp_path, "one")


def test_data_of_something_else_is_not_taken_for_a_run(tmp_path):
    (tmp_path / "journal.db").touch()
    with pytest.raises(SystemExit, match="no such run"):
        State.load(tmp_path, "one")


def test_an_answer_that_was_cut_and_sent_as_whole_is_a_violation_and_an_error_is_not(
    tmp_path: Path,
):
    crowd = Crowd("http://nowhere", tmp_path / "answers.jsonl", people=1, seed=0)
    cut = Answer(0.0, "cut", finish_reason="length", max_tokens=24, tokens=3, done=True)
    crowd._hear(cut)
    crowd._hear(Answer(0.0, "failed", error="status 503"))
    crowd._hear(Answer(0.0, "whole", finish_reason="length", max_tokens=24, tokens=24, done=True))
    assert crowd.broken == 2
    assert len(crowd.violations) == 1
    assert "cut" in crowd.violations[0]
    assert "whole" in (tmp_path / "answers.jsonl").read_text()
