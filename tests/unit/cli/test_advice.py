"""What to do next follows from the numbers."""

from __future__ import annotations

from rejoinder.cli.advice import next_steps
from rejoinder.journal.learning import judge_learning
from rejoinder.types import Json


def test_a_learning_system_needs_nothing(document: Json) -> None:
    assert next_steps(document) == []


def test_without_any_role_the_headline_says_enough(document: Json) -> None:
    document["roles"] = []
    document["learning"] = judge_learning(document)
    assert "rejoinder up" in document["learning"]["reason"]
    assert next_steps(document) == []


def test_each_absent_role_is_named(document: Json) -> None:
    document["roles"] = document["roles"][:2]
    told = "\n".join(next_steps(document))
    assert "the judge does not run" in told
    assert "the trainer does not run" in told


def test_a_live_version_that_the_engine_cannot_load_is_named(document: Json) -> None:
    policy, wanted = document["policy"], document["live"]["version"]
    engine = next(one for one in document["roles"] if one["role"] == "engine")
    failed = {policy: {"version": wanted, "problem": "no such file"}}
    engine["detail"] = {"live": {policy: wanted - 1}, "not_taken_up": failed}
    (told,) = next_steps(document)
    assert f"cannot load version {wanted} and serves version {wanted - 1} instead" in told
    assert "restore /somewhere," in told
    assert f"`rejoinder policy rollback {wanted - 1}`" in told
    engine["detail"]["live"] = {policy: wanted}
    assert next_steps(document) == []
    engine["detail"]["live"] = {policy: wanted - 1}
    failed[policy]["version"] = wanted - 2
    assert next_steps(document) == [], "it failed before, and the present one is being taken up"
    failed[policy]["version"], engine["state"] = wanted, "stopped"
    assert "serves version" not in "".join(next_steps(document))


def test_without_traffic_talking_is_the_next_step(document: Json) -> None:
    document["learning"]["word"] = "no traffic"
    document["turns"] |= {"main": 0, "fates": {}}
    document["turns"]["newest"] |= {"main": 0, "fates": {}}
    assert "rejoinder chat" in next_steps(document)[0]


def test_collecting_says_how_many_answers_are_missing(document: Json) -> None:
    document["learning"]["word"] = "collecting"
    assert "7 more judged answers until" in next_steps(document)[0]
    document["samples"]["missing"] = 1
    assert "1 more judged answer until" in next_steps(document)[0]
    document["judge"]["asked"] = False
    assert "1 more answer whose reply says how it should have been" in next_steps(document)[0]


def test_clients_that_sample_untrainably_are_pointed_out(document: Json) -> None:
    document["turns"]["newest"]["fates"] = {"sampling_not_trainable": 20}
    assert "gateway.main_temperature" in next_steps(document)[0]


def test_answers_without_replies_are_pointed_out(document: Json) -> None:
    document["turns"]["newest"]["fates"] = {"no_next_state": 20}
    assert "/v1/feedback" in next_steps(document)[0]


def test_a_system_that_sees_only_side_turns_is_told_why_nothing_trains(document: Json) -> None:
    document["turns"]["newest"]["side"] = 100
    assert "X-Turn-Type" in next_steps(document)[0]


def test_where_hints_alone_teach_nobody_is_told_to_send_scores(document: Json) -> None:
    document["turns"]["newest"]["fates"] = {"no_next_state": 29}
    assert any("POST /v1/feedback" in step for step in next_steps(document))
    document["judge"]["asked"] = False
    assert not any("POST /v1/feedback" in step for step in next_steps(document))
    assert any("continue conversations" in step for step in next_steps(document))


def test_where_all_complain_and_complaints_are_compared_hints_are_advised(document: Json) -> None:
    last = document["training"]["last"] | {"untrained": {"all_alike": 16}}
    document["training"]["last"] = last
    assert not any("learn-from-hints" in step for step in next_steps(document))
    document["learning"]["word"] = "stalled"
    assert "learn-from-hints" in next_steps(document)[0]
    last["untrained"]["non_finite_loss"] = 2
    assert not any("learn-from-hints" in step for step in next_steps(document))


def test_a_few_turns_are_enough_where_none_of_them_can_train(document: Json) -> None:
    document["turns"]["newest"] |= {"main": 3, "fates": {"sampling_not_trainable": 3}}
    assert "gateway.main_temperature" in next_steps(document)[0]
    document["turns"]["newest"]["fates"]["sampling_not_trainable"] = 2
    assert not any("gateway.main_temperature" in step for step in next_steps(document))


def test_what_older_turns_were_like_is_no_advice(document: Json) -> None:
    document["turns"]["fates"] = {"sampling_not_trainable": 20, "no_next_state": 20}
    document["turns"]["side"] = 100
    assert next_steps(document) == []
