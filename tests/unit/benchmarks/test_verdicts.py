"""When the benchmarks of engine, gateway, memory and parity pass."""

import importlib
import math
import os

import pytest

import gateway
import memory
from generate_process import GenerateProcess
from http_load import Reply
from rejoinder.models.tokenizer import ModelTokenizer
from tiny_model import save_tiny_model

OMP = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@pytest.fixture
def script(monkeypatch):
    """Imports a benchmark that sets OMP variables, and leaves those of the tests as they are."""

    def load(name: str):
        for variable in OMP:
            monkeypatch.setenv(variable, os.environ.get(variable, "1"))
        return importlib.import_module(name)

    return load


@pytest.mark.parametrize(
    ("ratios", "passed"),
    [((1.2, 1.2), True), ((1.3, 1.19), False), ((1.3, math.nan), False), ((1.3,), False)],
)
def test_the_engine_must_be_faster_at_every_concurrency(script, ratios, passed):
    named = {n: {"ratio": ratio} for n, ratio in zip(("1", "8"), ratios, strict=False)}
    assert script("engine").verdict(named) is passed


def test_the_baseline_runs_without_the_thread_settings_of_the_engine(
    tmp_path, tiny_tokenizer: ModelTokenizer, monkeypatch
):
    started_with = {k: v for k, v in os.environ.items() if k not in OMP} | {"OMP_NUM_THREADS": "1"}
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # as the engine's part has it
    model = save_tiny_model(tmp_path, tiny_tokenizer)
    with GenerateProcess(model, "cpu", "float32", started_with) as baseline:
        assert baseline.settings == {
            "threads": 1,
            "OMP_WAIT_POLICY": None,
            "GOMP_SPINCOUNT": None,
            "OMP_NUM_THREADS": "1",
        }
        assert baseline.run([[5, 6, 7], [7, 8, 9]], 4) > 0
        assert baseline.run([[5, 6]], 2) > 0


def measured(size: int, requests: float, tokens: float, overhead: float) -> dict:
    return {
        "prompt_words": size,
        "closed": {"requests_per_s": requests},
        "streaming": {"tokens_per_s": tokens},
        "open": {"overhead_p99_ms": overhead},
    }


@pytest.mark.parametrize(
    ("figures", "passed"),
    [
        ((600.0, 20_000.0, 20.0), True),
        ((599.0, 30_000.0, 1.0), False),
        ((900.0, 19_999.0, 1.0), False),
        ((900.0, 30_000.0, 20.1), False),
        ((900.0, 30_000.0, math.nan), False),
    ],
)
def test_the_gateway_must_meet_every_bar_with_short_prompts_only(figures, passed):
    slow_with_long_ones = measured(10_000, 1.0, 1.0, 900.0)
    assert gateway.verdict([measured(200, *figures), slow_with_long_ones]) is passed
    assert gateway.verdict([slow_with_long_ones]) is None


def test_the_length_of_prompts_is_what_the_gateway_counted():
    body = b'{"choices": [], "usage": {"prompt_tokens": 187, "completion_tokens": 16}}'
    assert Reply(200, body, 0.1).prompt_tokens() == 187


@pytest.mark.parametrize(
    ("samples", "growth"),
    [
        ([(5_000, 50), (20_000, 100), (25_000, 120), (30_000, 101)], 20.0),  # the highest one
        ([(15_000, 500), (20_000, 100), (25_000, 104)], 4.0),  # what was before does not count
        ([(20_000, 100), (25_000, 90)], -10.0),
        ([(5_000, 50), (20_000, 100)], None),
        ([], None),
    ],
)
def test_memory_is_judged_by_its_highest_after_the_baseline(samples, growth):
    assert memory.growth_percent(samples) == growth


def test_a_difference_that_is_no_number_fails_the_parity(script):
    parity = script("logprob_parity")
    results = {
        "full": {"after_0_updates": {"mean": 1e-6}, "sampled_by_two_versions": {"mean": 1.0}},
        "lora": {"after_0_updates": {"mean": math.nan}},
    }
    means = parity.means_of(results)
    assert len(means) == 2
    assert not parity.at_most(parity.BAR, means)
    assert parity.at_most(parity.BAR, means[:1])


async def test_the_faster_baseline_of_each_round_is_the_one_that_counts(
    script, tiny_tokenizer: ModelTokenizer, monkeypatch
):
    engine = script("engine")
    monkeypatch.setattr(engine, "REST_S", 0.0)

    class Baseline:
        def __init__(self, *seconds: float) -> None:
            self._seconds = list(seconds)

        def run(self, _prompts: list[list[int]], _tokens: int) -> float:
            return self._seconds.pop(0)

    async def answer(*_: object) -> list[float]:
        return []

    monkeypatch.setattr(engine, "one_answer", answer)
    baselines = {"default": Baseline(1.0, 8.0), "shared": Baseline(2.0, 2.0)}
    bench = engine.Bench(None, baselines, tiny_tokenizer, 4)
    for _ in range(2):
        await bench.throughput(2, 3)
    assert bench.measured.generate == {2: [8.0, 4.0]}
