"""Log-probability of new answers under the start weights."""

from __future__ import annotations

import pytest

from rejoinder.engine.base import ScoreRequest, ScoreResult
from rejoinder.evaluation.drift import start_logprob
from rejoinder.evaluation.watch import SampledIds


class Scorer:
    """Scores every id as minus its value."""

    def __init__(self) -> None:
        self.requests: list[ScoreRequest] = []

    async def score(self, request: ScoreRequest) -> ScoreResult:
        self.requests.append(request)
        return ScoreResult([-float(id_) for id_ in request.ids[request.start :]], version=0)


async def test_the_mean_runs_over_all_answer_tokens_and_no_prompt_token() -> None:
    engine = Scorer()
    answers = [SampledIds([50, 60], [1]), SampledIds([70], [2, 3, 6]), SampledIds([80], [])]
    assert await start_logprob(engine, "default", answers) == -3.0  # type: ignore[arg-type]
    assert {request.version for request in engine.requests} == {0}
    assert {request.temperature for request in engine.requests} == {1.0}


async def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(ValueError, match="no answer tokens"):
        await start_logprob(Scorer(), "default", [])  # type: ignore[arg-type]
