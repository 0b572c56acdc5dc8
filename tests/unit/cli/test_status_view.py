"""The status screen answers its questions at a glance."""

from __future__ import annotations

import pytest
from rich.console import Console, RenderableType

from rejoinder.cli.status_view import status_line, status_screen
from rejoinder.types import Json


def text_of(view: RenderableType, width: int = 100) -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(view)
    return captured.get()


def test_one_screen_answers_what_a_person_asks(document: Json) -> None:
    screen = text_of(status_screen(document))
    for expected in (
        "LEARNING",  # is it learning
        "9/16 samples",  # how many are missing
        "version 4",  # what is served
        "default@4",  # by which engine
        "3 no next state",  # turns by fate
        "dropped: 2 stale",  # samples by fate
        "no verdict: 2 judge failed",
        "coverage 82%",
        "mean score",
        "timeout (2 min ago)",  # last error of each loop
    ):
        assert expected in screen
    assert len(screen.splitlines()) <= 40


def test_a_killed_instance_is_not_shown_beside_its_successor(document: Json) -> None:
    engine = document["roles"][0]
    old = engine | {"instance": "engine-0", "seen_s": 40.0, "detail": {"live": {"default": 3}}}
    document["roles"].append(old)
    assert "default@3" not in text_of(status_screen(document))


def test_the_newest_error_of_a_role_is_shown_whichever_instance_had_it(document: Json) -> None:
    trainer = document["roles"][3]
    for number, failed_s in enumerate((300.0, 60.0, 180.0)):
        error = {"last_error": f"fault {number}", "last_error_s": failed_s}
        dead = {"instance": f"dead-{number}", "seen_s": failed_s, "fresh": failed_s < 60.0}
        document["roles"].append(trainer | error | dead)
    screen = text_of(status_screen(document))
    assert "fault 1 (1 min ago)" in screen
    assert "fault 0" not in screen
    assert "fault 2" not in screen


def test_the_last_words_of_a_role_without_successor_are_shown(document: Json) -> None:
    document["roles"][2] |= {"seen_s": 4000.0, "fresh": False}
    assert "gone (ready)" in text_of(status_screen(document))


def test_places_that_conversations_go_to_are_shown(document: Json) -> None:
    document["external"] = ["https://judge.example"]
    assert "conversations leave this machine: https://judge.example" in text_of(
        status_screen(document)
    )


def test_an_empty_system_can_be_shown(document: Json) -> None:
    document["live"] = None
    document["training"]["last"] = None
    document["samples"] |= {"needed": None, "missing": None}
    document["judge"] |= {"coverage": None, "oldest_s": None}
    document["roles"] = []
    screen = text_of(status_screen(document))
    assert "9/? samples" in screen
    assert "none yet" in screen


def test_markup_in_an_error_is_text(document: Json) -> None:
    document["roles"][2]["last_error"] = "bad [/red] tag"
    assert "bad [/red] tag" in text_of(status_screen(document), width=160)


@pytest.mark.parametrize("end", [{"fresh": False}, {"state": "stopped"}])
def test_the_line_names_what_is_away(document: Json, end: Json) -> None:
    document["roles"][3] |= end
    line = text_of(status_line(document), width=200)
    assert "learning" in line
    assert "9/16 samples" in line
    assert "away: trainer" in line


def test_what_a_role_warns_of_is_shown_where_it_has_no_error(document: Json) -> None:
    document["roles"][3]["alarms"] = ["step 4 changed no weights: non_finite"]
    assert "step 4 changed no weights" in text_of(status_screen(document), width=160)


def test_that_no_verdict_is_asked_for_is_said_and_not_shown_as_a_score(document: Json) -> None:
    assert "hints alone teach" not in text_of(status_screen(document))
    document["judge"]["asked"] = False
    document["turns"]["states"] = {"no_verdict": 7}
    shown = text_of(status_screen(document), 160)
    assert "no verdict is asked for: hints alone teach" in shown
    assert "coverage" not in shown
    assert "7 read for hints" in shown


def test_answers_with_a_hint_are_counted_where_there_are_any(document: Json) -> None:
    document["verdicts"]["hints"] = 0
    assert "hint" not in text_of(status_screen(document), 160)
    document["verdicts"]["hints"] = 37
    assert "37 answers with a hint" in text_of(status_screen(document), 160)


def test_a_step_that_changed_no_weights_is_shown_as_such(document: Json) -> None:
    assert "as before" not in text_of(status_screen(document), 160)
    document["training"]["last"]["metrics"]["skipped"] = 1.0
    assert "as before" in text_of(status_screen(document), 160)


def test_the_fates_of_turns_stand_under_their_state(document: Json) -> None:
    """Both had one list under the other, so that a turn seemed to be counted twice."""
    document["turns"]["states"] = {"ended": 4, "judged": 9}
    document["turns"]["state_fates"] = {
        "ended": {"side": 1, "no_next_state": 3},
        "judged": {"neutral": 2},
    }
    cells = [line[1:33].strip() for line in text_of(status_screen(document)).splitlines()]
    start = cells.index("29 main, 1 side")
    assert cells[start + 1 : start + 6] == [
        "9 judged",
        "2 neutral",
        "4 ended",
        "3 no next state",
        "1 side",
    ]


def test_scores_of_people_are_no_verdicts_of_the_judge(document: Json) -> None:
    assert "people" not in text_of(status_screen(document))
    people = {"-1": 1, "0": 0, "+1": 40, "none": 0}
    document["verdicts"]["by_next_state"]["feedback"] = people
    document["verdicts"]["scores"] = {"-1": 4, "0": 1, "+1": 45, "none": 2}
    shown = text_of(status_screen(document), 160)
    assert "people's scores: 40 of +1, 1 of -1" in shown
    (praised,) = (line for line in shown.splitlines() if "│ +1 " in line)
    assert " 5 " in praised
    assert "45" not in praised
    document["judge"]["asked"] = False
    assert "people's scores: 40 of +1, 1 of -1" in text_of(status_screen(document), 160)


@pytest.mark.parametrize(
    ("step", "origin"),
    [(2, "version 3, which step 2 made"), (None, "version 3, the start weights")],
)
def test_a_rollback_says_why_steps_have_numbers_that_others_had(
    document: Json, step: int | None, origin: str
) -> None:
    assert "rolled back" not in text_of(status_screen(document), 160)
    rollback = {"version": 3, "step": step, "ago_s": 180.0, "reason": None}
    document["training"]["rollback"] = rollback
    told = f"rolled back 3 min ago to {origin}: steps are counted on from there"
    assert told in text_of(status_screen(document), 160)
    assert "the trainer" not in text_of(status_screen(document), 160)
    rollback["reason"] = "3% of 32 judged answers pleased, 50% of 48 did before"
    shown = text_of(status_screen(document), 160)
    assert "the trainer did so: 3% of 32 judged answers pleased, 50% of 48 did before" in shown


def test_a_mean_score_of_0_is_explained_and_no_other(document: Json) -> None:
    last = document["training"]["last"]
    assert "as many good as bad" not in text_of(status_screen(document), 160)
    last["mean_score"] = 0.0
    assert "score 0: as many good as bad, and both teach" in text_of(status_screen(document), 160)
    last["metrics"]["skipped"] = 1.0
    shown = text_of(status_screen(document), 160)
    assert "as many good as bad" in shown
    assert "both teach" not in shown


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"loss": 0.9, "policy_loss": 0.9}, None),
        ({"loss": 6.18, "policy_loss": 6.08, "distil_loss": 0.099, "kl": 0.0153},
         "loss: 6.08 of it is what its verdicts weigh"),
        ({"loss": -16.0, "policy_loss": -16.0}, "loss: -16 of it is what its verdicts weigh"),
        ({"loss": 2.5, "policy_loss": 0.1, "distil_loss": 2.4}, "2.4 of it is how far it is from"),
        ({"loss": 3.0, "policy_loss": 0.5, "kl": 8.0}, "2.5 of it is how far it is from the start"),
        ({"loss": 40.0}, None),  # of another package, whose parts are not known
    ],
)  # fmt: skip
def test_a_large_loss_is_explained_by_its_largest_part(
    document: Json, metrics: Json, told: str | None
) -> None:
    document["training"]["last"]["metrics"] = metrics
    shown = " ".join(text_of(status_screen(document), 240).split())
    assert ("loss:" in shown) == (told is not None)
    assert told is None or told in shown
