from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time

import pytest
from journal_story import LEASE, POLICY, SCOPE, Story, opening

from rejoinder.journal import status as status_module
from rejoinder.journal.records import RoleReport, RollbackCause, StepSample
from rejoinder.types import Fate, Json, TurnType


def status(story: Story) -> Json:
    story.journal.flush()
    return story.journal.status(POLICY, 4)


def report(story: Story, role: str, state: str = "ready", **changes: object) -> None:
    detail = {"batch_size": 16} if role == "trainer" else {}
    fields = {"instance": f"{role}-1", "pid": os.getpid(), "detail": detail} | changes
    story.journal.report(RoleReport(role, state=state, **{"seen_at": time.time(), **fields}))


def test_every_turn_is_counted_in_one_state_and_every_end_has_a_fate(story: Story) -> None:
    story.answer()
    story.answer(turn_type=TurnType.SIDE)
    story.journal.open_turn(opening())
    story.sample()
    turns = status(story)["turns"]
    assert turns["total"] == sum(turns["states"].values()) == 4
    assert turns["states"] == {"waiting": 1, "ended": 1, "open": 1, "sampled": 1}
    assert turns["fates"] == {"side": 1}
    assert turns["state_fates"] == {"ended": {"side": 1}}
    assert (turns["main"], turns["side"]) == (3, 1)


def test_samples_say_how_many_are_missing_for_the_next_step(story: Story) -> None:
    report(story, "trainer")
    story.sample(), story.sample()
    samples = status(story)["samples"]
    assert (samples["ready"], samples["needed"], samples["missing"]) == (2, 16, 14)
    story.train()
    samples = status(story)["samples"]
    assert (samples["ready"], samples["trained"], samples["made"]) == (0, 2, 2)


def test_dropped_samples_are_counted_by_reason(story: Story) -> None:
    story.sample(prompt_ids=range(100))
    story.take(tokens=10)
    assert status(story)["samples"]["dropped"] == {Fate.LIMIT: 1}


def test_samples_that_changed_no_weights_are_not_counted_as_trained(story: Story) -> None:
    for _ in range(3):
        story.sample()
    first, second, third = story.take()
    for used in ([(first, "no_signal"), (second, None)], [(third, "non_finite_loss")]):
        step = story.step([])
        samples = [StepSample(one.sample_id, one.reward, reason) for one, reason in used]
        step = dataclasses.replace(step, samples=samples)
        story.journal.commit_step(LEASE, story.lease(), step)
    samples = status(story)["samples"]
    assert (samples["made"], samples["ready"], samples["trained"]) == (3, 0, 1)
    assert samples["dropped"] == {"no_signal": 1, "non_finite_loss": 1}
    story.journal.rewind(LEASE, story.lease(), story.lineage(), 1)
    samples = status(story)["samples"]
    assert (samples["ready"], samples["dropped"]) == (1, {"no_signal": 1})


def test_verdicts_are_counted_by_the_role_that_spoke_next(story: Story) -> None:
    for role, score in (("user", -1), ("tool", 1), ("tool", 0), ("user", None)):
        story.reply(story.answer(), role=role)
        story.judge(score, why=Fate.NO_QUORUM)
    liked = story.answer()
    story.journal.add_feedback(SCOPE, liked.completion_id, 0, 1, None).result(9)
    found = status(story)
    verdicts = found["verdicts"]
    assert verdicts["scores"] == {"-1": 1, "0": 1, "+1": 2, "none": 1}
    assert verdicts["last_100"] == verdicts["scores"]
    assert verdicts["by_next_state"]["user"] == {"-1": 1, "0": 0, "+1": 0, "none": 1}
    assert verdicts["by_next_state"]["tool"] == {"-1": 0, "0": 1, "+1": 1, "none": 0}
    assert verdicts["by_next_state"]["feedback"]["+1"] == 1
    assert verdicts["no_verdict"] == {Fate.NO_QUORUM: 1}
    assert found["judge"]["coverage"] == 0.75, "feedback is no judgement"


def test_the_judges_queue_has_length_and_age(story: Story) -> None:
    nothing = {"queued": 0, "oldest_s": None, "coverage": None, "asked": None}
    assert status(story)["judge"] == nothing
    story.reply(story.answer())
    queue = status(story)["judge"]
    assert queue["queued"] == 1
    assert queue["oldest_s"] >= 0


@pytest.mark.parametrize(("fingerprint", "asked"), [("likelihood-1", True), (None, False)])
def test_whether_verdicts_are_asked_for_is_what_the_newest_living_judge_says(
    story: Story, fingerprint: str | None, asked: bool
) -> None:
    before = {"detail": {"fingerprint": None if asked else "likelihood-0"}}
    report(story, "judge", "stopped", instance="judge-0", **before)
    report(story, "judge", detail={"fingerprint": fingerprint})
    assert status(story)["judge"]["asked"] is asked


@pytest.fixture
def ended() -> int:
    """The id of a process that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


ALL_ROLES = ("gateway", "engine", "judge", "trainer")


def test_that_nothing_runs_is_told_as_soon_as_all_processes_are_gone(
    story: Story, ended: int
) -> None:
    """For up to a minute after all was killed, one role alone was told to be missing."""
    story.answer()
    for role in ALL_ROLES:
        report(story, role)
    assert status(story)["learning"]["word"] == "collecting"
    for role in ALL_ROLES:
        report(story, role, pid=ended)
    found = status(story)
    reason = "nothing runs: start it with `rejoinder up`"
    assert found["learning"] == {"word": "stopped", "reason": reason}
    assert not any(role["fresh"] for role in found["roles"])
    assert found["samples"]["needed"] is None, "a killed trainer says nothing of the next step"


def test_a_role_whose_process_is_gone_is_missing_at_once(story: Story, ended: int) -> None:
    story.answer()
    for role in ALL_ROLES:
        report(story, role, pid=ended if role == "judge" else os.getpid())
    assert status(story)["learning"]["word"] == "no judge"


@pytest.mark.parametrize("space", ["another machine", ""])
def test_what_runs_elsewhere_is_not_sought_among_the_processes_of_this_machine(
    story: Story, ended: int, space: str
) -> None:
    story.answer()
    for role in ALL_ROLES:
        report(story, role, pid=ended, pid_space=space)
    found = status(story)
    assert found["learning"]["word"] == "collecting"
    assert all(role["fresh"] for role in found["roles"])


def test_steps_show_the_last_one_and_the_curve(story: Story) -> None:
    for score in (-1, 1):
        story.sample(score)
        story.train()
    training = status(story)["training"]
    assert (training["steps"], training["head_version"], training["next_step"]) == (2, 2, 3)
    assert (training["last"]["version"], training["last"]["seconds"]) == (2, 2.0)
    assert training["last"]["metrics"] == {"loss": 0.5}
    assert [step["mean_score"] for step in training["curve"]] == [-1.0, 1.0]
    assert status(story)["live"]["version"] == 2
    assert status(story)["versions"] == {"live": 1, "retired": 2}


def test_the_newest_turns_are_counted_apart(story: Story) -> None:
    for _ in range(3):
        story.answer(turn_type=TurnType.SIDE)
    for _ in range(status_module.RECENT - 1):
        story.journal.open_turn(opening())
    story.journal.flush()
    turns = status(story)["turns"]
    assert (turns["main"], turns["side"]) == (status_module.RECENT - 1, 3)
    newest = {"main": status_module.RECENT - 1, "side": 1, "fates": {"side": 1}}
    assert turns["newest"] == newest


def test_roles_show_their_age_and_last_error(story: Story) -> None:
    now = time.time()
    report(story, "judge", last_error="timeout", last_error_at=now - 30, seen_at=now - 100)
    (role,) = status(story)["roles"]
    assert (role["state"], role["last_error"], role["fresh"]) == ("ready", "timeout", False)
    assert 29 < role["last_error_s"] < 60
    assert 99 < role["seen_s"] < 130


def test_endpoints_off_this_machine_are_shown(story: Story) -> None:
    report(story, "judge", detail={"external": ["https://judge.example/v1"]})
    assert status(story)["external"] == ["https://judge.example/v1"]


@pytest.mark.parametrize("end", [{"state": "stopped"}, {"seen_at": 1.0}])
def test_endpoints_of_a_judge_that_is_gone_are_not_shown(story: Story, end: Json) -> None:
    report(story, "judge", detail={"external": ["https://judge.example/v1"]}, **end)
    assert status(story)["external"] == []


def test_another_policy_shows_none_of_it(story: Story) -> None:
    story.sample()
    story.journal.ensure_policy("other", "local", "/models/base", "base-hash")
    found = story.journal.status("other", 4)
    assert found["turns"]["total"] == found["samples"]["ready"] == found["verdicts"]["hints"] == 0


def test_an_unknown_policy_is_no_error(story: Story) -> None:
    assert story.journal.status("nobody", 4)["live"] is None


def test_a_rollback_is_told_with_the_step_from_which_steps_are_counted_on(story: Story) -> None:
    for _ in range(2):
        story.sample()
        story.train()
    assert status(story)["training"]["rollback"] is None
    for version, step in ((1, 1), (0, None)):
        story.journal.rollback(POLICY, version, replay=False)
        told = status(story)["training"]["rollback"]
        assert (told["version"], told["step"]) == (version, step)
        assert told["ago_s"] >= 0
        assert told["reason"] is None
    lineage, held = story.lineage().lineage_id, (LEASE, story.lease())
    cause = RollbackCause(lineage, "1% of 32 judged answers pleased", *held)
    story.journal.rollback(POLICY, 1, replay=False, cause=cause)
    assert status(story)["training"]["rollback"]["reason"] == cause.reason
