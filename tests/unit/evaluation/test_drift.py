"""How far new answers are from the start weights."""

from __future__ import annotations

import pytest

from rejoinder.engine.base import ScoreRequest, ScoreResult
from rejoinder.evaluation.drift import start_divergence
from rejoinder.evaluation.watch import SampledIds


class Scorer:
    """Scores every id as minus its value."""

    def __init__(self) -> None:
        self.requests: list[ScoreRequest] = []

    async def score(self, request: ScoreRequest) -> ScoreResult:
        self.requests.append(request)
        return ScoreResult([-float(id_) for id_ in request.ids[request.start :]], version=0)


def sampled(prompt: list[int], answer: list[int], logprob: float = -0.5) -> SampledIds:
    return SampledIds(prompt, answer, [logprob] * len(answer))


async def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(ValueError, match="no answer tokens"):
        await start_divergence(Scorer(), "default", [], temperature=1.0)  # type: ignore[arg-type]


async def test_divergence_is_the_mean_lead_of_the_sampled_over_the_start_logprobs() -> None:
    engine = Scorer()
    answers = [sampled([50, 60], [1]), sampled([70], [2, 3, 6], logprob=-2.0), sampled([80], [])]
    # Leads: -0.5 + 1; -2 + 2, -2 + 3, -2 + 6; their mean is 5.5 / 4.
    found = await start_divergence(engine, "default", answers, temperature=0.6)  # type: ignore[arg-type]
    assert found == pytest.approx(5.5 / 4)
    assert {request.temperature for request in engine.requests} == {0.6}
    assert {request.version for request in engine.requests} == {0}
