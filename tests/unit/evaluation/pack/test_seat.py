"""A seat of a pack: who reads what came after its answers."""

from __future__ import annotations

import asyncio

import pytest

from judge_fakes import FakeEngine, FakeJudge, judgement
from rejoinder.algorithms import build_algorithm
from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.config import Config, LlmJudgeConfig, TrainerConfig
from rejoinder.errors import ConfigError
from rejoinder.evaluation.client import Ask
from rejoinder.evaluation.pack.decoding import Sampled
from rejoinder.evaluation.pack.pack import refuse_unpackable
from rejoinder.evaluation.pack.seat import Parts, Seat
from rejoinder.judge.hints.extractive import ExtractiveHintJudge
from rejoinder.models.tokenizer import ModelTokenizer

QUESTION = {"role": "user", "content": "Why is the sky blue?"}
WISH = {"role": "user", "content": "Please answer in one short sentence."}


@pytest.mark.parametrize(("algorithm", "verdicts"), [("combine", [-1]), ("opd", [])])
async def test_a_seat_asks_for_verdicts_only_where_they_teach(
    tiny_tokenizer: ModelTokenizer, algorithm: str, verdicts: list[int]
) -> None:
    config = Config(trainer=TrainerConfig(algorithm=algorithm, batch_size=1))
    rule = build_algorithm(config.trainer)
    started: list[asyncio.Task[None]] = []
    parts = Parts(
        config=config,
        algorithm=rule,
        judge=FakeJudge(judgement(-1)) if rule.needs_verdicts else None,
        hints=ExtractiveHintJudge(),
        hinted=None,
        renderer=ChatTemplateRenderer(tiny_tokenizer),
        tokenizer=tiny_tokenizer,
        engine=FakeEngine(lambda request, id_: -1.0),  # type: ignore[arg-type]
    )
    seat = Seat(parts, started.append)
    asking = asyncio.create_task(seat.ask([QUESTION], Ask(8, 1.0, session="s")))
    await asyncio.sleep(0)
    ids = tiny_tokenizer.encode("Light.")
    seat.waiting.pop().future.set_result(Sampled(ids, [-0.5] * len(ids), ended=True))
    answer = {"role": "assistant", "content": (await asking).text}
    following = asyncio.create_task(seat.ask([QUESTION, answer, WISH], Ask(8, 1.0, session="s")))
    await asyncio.sleep(0)
    await asyncio.gather(*started)
    following.cancel()
    assert [turn.score for turn in (await seat.judged()).values()] == verdicts
    assert seat.is_due


def test_a_judge_that_a_pack_cannot_run_is_refused_only_where_it_would_be_asked() -> None:
    judge = LlmJudgeConfig()
    refuse_unpackable(Config(judge=judge, trainer=TrainerConfig(algorithm="opd")))
    with pytest.raises(ConfigError, match=r"judge\.kind"):
        refuse_unpackable(Config(judge=judge, trainer=TrainerConfig(algorithm="combine")))
