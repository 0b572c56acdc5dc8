"""The drawn distribution is the reported one."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from rejoinder.engine.torch_engine.sampler import draw
from rejoinder.engine.torch_engine.sequence import Generation
from rejoinder.types import Sampling
from tiny_model import request

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0, float("-inf")])


class _NoDetokenizer:
    def stream(self) -> None:
        """Nothing here has stop strings."""


def _generation(**sampling: object) -> Generation:
    return Generation.start(request([1], **sampling), None, _NoDetokenizer(), 100)  # type: ignore[arg-type]


def _draw_many(count: int = 4000, **sampling: object) -> dict[int, tuple[float, float]]:
    """Return, per id, its frequency and the probability reported with it."""
    generation = _generation(seed=1, **sampling)
    seen: dict[int, tuple[int, float]] = {}
    for _ in range(count // 50):
        drawn = draw(LOGITS.repeat(50, 1), [generation] * 50)
        for id_, logprob in zip(drawn.ids, drawn.logprobs, strict=True):
            seen[id_] = (seen.get(id_, (0, 0.0))[0] + 1, math.exp(logprob))
    return {id_: (times / count, probability) for id_, (times, probability) in seen.items()}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, 5),
        ({"temperature": 0.8}, 5),
        ({"temperature": 2.0}, 5),
        ({"top_k": 2}, 2),
        ({"top_p": 0.7}, 2),
        ({"top_p": 0.6}, 1),
        ({"top_p": 1e-46}, 1),  # zero in float32
        ({"min_p": 0.2}, 2),
        ({"top_k": 3, "top_p": 0.75}, 2),
        ({"logit_bias": {2: 3.0}}, 5),
    ],
)
def test_frequencies_agree_with_the_reported_probabilities_and_these_sum_to_one(
    settings: dict[str, object], kept: int
):
    seen = _draw_many(**settings)
    assert len(seen) == kept
    for frequency, probability in seen.values():
        assert frequency == pytest.approx(probability, abs=0.03)
    assert sum(probability for _, probability in seen.values()) == pytest.approx(1.0, abs=1e-4)


def test_the_nucleus_is_right_where_it_is_larger_than_the_usual_one():
    logits = torch.zeros(1, 5000)
    generation = _generation(top_p=0.5)
    drawn = draw(logits, [generation])
    assert math.exp(drawn.logprobs[0]) == pytest.approx(1 / 2500, rel=1e-2)


def test_greedy_takes_the_best_and_reports_its_logprob_at_temperature_one():
    drawn = draw(LOGITS[None].clone(), [_generation(temperature=0.0)])
    assert drawn.ids == [0]
    assert drawn.logprobs[0] == pytest.approx(float(LOGITS.log_softmax(-1)[0]), abs=1e-6)


def test_rows_do_not_influence_each_other():
    rows = [{"temperature": 0.0}, {"top_k": 1, "seed": 3}, {"seed": 3}, {"logit_bias": {5: 9.0}}]
    together = draw(LOGITS.repeat(4, 1), [_generation(**row) for row in rows])
    for n, row in enumerate(rows[:3]):
        alone = draw(LOGITS[None].clone(), [_generation(**row)])
        assert together.ids[n] == alone.ids[0]
        assert together.logprobs[n] == pytest.approx(alone.logprobs[0], abs=1e-6)


def test_what_a_constraint_forbids_is_never_drawn_and_the_rest_is_a_whole_distribution():
    """Not even where a bias asks for it."""
    held, free = _generation(logit_bias={0: 50.0}), _generation()
    held.guide = SimpleNamespace(forbidden=torch.tensor([True, False, True, False, True, False]))  # type: ignore[assignment]
    left = dict(zip((1, 3), LOGITS[[1, 3]].log_softmax(-1).tolist(), strict=True))
    for _ in range(50):
        drawn = draw(LOGITS.repeat(2, 1), [held, free])
        assert drawn.logprobs[0] == pytest.approx(left[drawn.ids[0]], abs=1e-5)
        own = float(LOGITS.log_softmax(-1)[drawn.ids[1]])
        assert drawn.logprobs[1] == pytest.approx(own, abs=1e-5)


def test_bad_logits_give_a_logprob_that_is_not_finite():
    logits = LOGITS.repeat(2, 1)
    logits[1, 2] = float("nan")
    drawn = draw(logits, [_generation(), _generation()])
    assert math.isfinite(drawn.logprobs[0])
    assert not math.isfinite(drawn.logprobs[1])


def test_presence_and_frequency_penalties_follow_the_counts():
    generation = _generation(temperature=0.0, frequency_penalty=0.4, presence_penalty=0.3)
    generation.counts.update({0: 2})
    assert draw(LOGITS[None].clone(), [generation]).ids == [1]
    generation.counts.update({0: 1})
    assert draw(LOGITS[None].clone(), [generation]).ids == [0]


def test_a_sampling_without_truncation_is_left_trainable():
    assert Sampling(max_tokens=1).not_trainable_because() is None
