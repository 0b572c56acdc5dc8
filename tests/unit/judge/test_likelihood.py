"""The label-likelihood judge over a scripted engine, and on the real embedded model."""

from __future__ import annotations

import math

import pytest

from judge_fakes import FakeEngine, assistant, user
from rejoinder.config import LikelihoodJudgeConfig
from rejoinder.engine.base import ScoreRequest
from rejoinder.errors import ConfigError, EngineBusy, EngineTimeout, EngineUnavailable, JudgeError
from rejoinder.judge.base import JudgeSetting
from rejoinder.judge.likelihood import LikelihoodJudge
from rejoinder.judge.readout import PLAIN, Readout, readout_for
from rejoinder.judge.voting import failure_code, nothing_was_tried
from rejoinder.types import Fate, Judgement, Message

PAIR = Readout({"opinion": {"p": 1.0, "n": -1.0}})


@pytest.fixture
def make(tiny_tokenizer):
    good, bad = (tiny_tokenizer.encode(word)[0] for word in "pn")

    def logprob(request: ScoreRequest, id_: int) -> float:
        """Text with ``!`` is good by 3, any other bad by 1; an empty reply leans to bad by 2."""
        text = tiny_tokenizer.decode(request.ids).rpartition("Feedback")[2]
        if '""' in text:
            return {good: -3.0, bad: -1.0}.get(id_, -9.0)
        odds = 3.0 if "!" in text else -1.0
        return {good: odds / 2, bad: -odds / 2}.get(id_, -9.0)

    def build(
        readout: Readout = PAIR, model_id: str = "tiny", **settings: float
    ) -> LikelihoodJudge:
        engine = FakeEngine(logprob)
        config = LikelihoodJudgeConfig(**{"margin": 0.0, **settings})
        setting = JudgeSetting(config, "alice", engine, tiny_tokenizer, model_id)
        judge = LikelihoodJudge(setting, readout)
        judge.engine = engine
        return judge

    return build


async def judged(judge: LikelihoodJudge, text: str = "thanks!") -> Judgement:
    return await judge.judge([user("q")], assistant("a"), [user(text)])


async def test_the_more_likely_label_is_the_verdict_and_its_log_odds_are_kept(make) -> None:
    good, bad = await judged(make()), await judged(make(), "no")
    assert (good.score, bad.score) == (1, -1)
    assert good.votes[0].value == pytest.approx(3.0)
    assert bad.votes[0].value == pytest.approx(-1.0)


async def test_it_asks_the_frozen_start_weights_for_one_position_only(make) -> None:
    judge = make()
    await judged(judge)
    (request,) = judge.engine.requests
    assert (request.policy, request.version) == ("alice", 0)
    assert (request.start, request.stop) == (len(request.ids), len(request.ids) + 1)
    assert len(request.candidates) == 1
    assert request.priority == 10


async def test_near_the_threshold_it_is_unsure_and_gives_no_verdict(make) -> None:
    unsure = await judged(make(margin=1.5), "no")
    assert (unsure.score, unsure.why) == (None, Fate.JUDGE_UNSURE)
    assert unsure.votes[0].value == pytest.approx(-1.0)
    assert (await judged(make(margin=1.5))).score == 1


async def test_the_threshold_moves_the_border(make) -> None:
    assert (await judged(make(threshold=-2.0), "no")).score == 1
    assert (await judged(make(threshold=3.5))).score == -1


async def test_without_fitted_weights_the_score_of_an_empty_reply_is_subtracted_once(
    make,
) -> None:
    judge = make(Readout(PAIR.words, calibrated=False))
    assert (await judged(judge)).votes[0].value == pytest.approx(5.0)
    assert (await judged(judge, "no")).votes[0].value == pytest.approx(1.0)
    assert len(judge.engine.requests) == 3


async def test_a_readout_with_a_reaction_reads_both_prompts(make, tiny_tokenizer) -> None:
    judge = make(Readout({"opinion": {"p": 1.0}, "begin": {"T": 0.5}, "begun": {" g": 2.0}}))
    await judged(judge)
    opinion, reaction = judge.engine.requests
    assert len(opinion.candidates) == 1
    assert [len(row) for row in reaction.candidates] == [1, 0, 0, 1]
    assert tiny_tokenizer.decode(reaction.ids).endswith("I'm")


async def test_a_tool_result_is_read_as_one(make) -> None:
    judge = make(Readout(PAIR.words, tool=10.0))
    outcome = await judge.judge([user("q")], assistant("a"), [Message("tool", "3 rows")])
    assert outcome.votes[0].value == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("error", "code", "untried"),
    [
        (EngineUnavailable("gone"), "unreachable", True),
        (EngineBusy("full"), "busy", True),
        (EngineTimeout("slow"), "timeout", False),
    ],
)
async def test_a_failing_engine_gives_no_verdict_and_never_a_neutral_one(
    make, error: Exception, code: str, untried: bool
) -> None:
    judge = make()
    judge.engine.error = error
    outcome = await judged(judge)
    assert (outcome.score, outcome.why) == (None, Fate.JUDGE_FAILED)
    assert failure_code(outcome.votes[0]) == code
    assert nothing_was_tried(outcome) is untried
    with pytest.raises(JudgeError, match=code):
        await judge.check()


async def test_values_that_are_not_finite_are_a_failure(make) -> None:
    judge = make()
    judge.engine._logprob = lambda request, id_: math.nan
    assert (await judged(judge)).why is Fate.JUDGE_FAILED


async def test_an_engine_that_cannot_score_is_refused_at_the_start(make) -> None:
    judge = make()
    judge.engine.capabilities = ["logprobs"]
    with pytest.raises(ConfigError, match="lacks candidates and score"):
        await judge.check()


def test_regression_a_model_whose_labels_begin_alike_is_refused(make) -> None:
    with pytest.raises(ConfigError, match=r"'tiny'.*' positive' and ' negative'.*model\.path"):
        make(PLAIN)  # one token per byte: both begin with the space


def test_the_fingerprint_follows_readout_model_threshold_and_margin(make) -> None:
    prints = [
        make().fingerprint,
        make(Readout({"opinion": {"p": 2.0, "n": -1.0}})).fingerprint,
        make(model_id="other").fingerprint,
        make(threshold=0.5).fingerprint,
        make(margin=0.5).fingerprint,
    ]
    assert len(set(prints)) == 5
    assert make().fingerprint == prints[0]


def test_the_fingerprint_follows_the_prompt(make, monkeypatch) -> None:
    before = make().fingerprint
    monkeypatch.setattr("rejoinder.judge.views._HEAD", "Good or bad?\n\n")
    assert make().fingerprint != before


def test_only_the_embedded_model_has_fitted_weights(tmp_path) -> None:
    assert readout_for("embedded").calibrated
    assert readout_for("embedded").needs_reaction
    assert readout_for(str(tmp_path)) is PLAIN
