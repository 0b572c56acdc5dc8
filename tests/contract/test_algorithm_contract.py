"""The algorithm seam: what every algorithm keeps, and that another package can add one."""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from rejoinder.algorithms import Algorithm, build_algorithm
from rejoinder.config import LossConfig, TrainerConfig
from rejoinder.errors import ConfigError
from rejoinder.journal.records import SampleSpec, TrainSample
from rejoinder.judge.voting import NOT_ASKED
from rejoinder.trainer.loss_registry import BUILT_IN, find_loss
from rejoinder.trainer.losses import Hinted, LossInputs
from rejoinder.types import Fate, Judgement, VersionRun, Vote

OUTSIDE = '''
"""A package of somebody else: an algorithm that learns from praise alone, with its own loss."""
import numpy as np
from rejoinder.algorithms.base import TokenSignal
from rejoinder.journal.records import SampleSpec
from rejoinder.trainer.losses import LossMetrics
from rejoinder.types import Fate


class PraiseOnly:
    name = "praise_only"
    loss = "likelihood"
    needs_hints = False
    needs_verdicts = True

    def __init__(self, config):
        self.batch_size = config.batch_size

    def sample_spec(self, judgement, hints=()):
        return SampleSpec(reward=1.0) if judgement.score == 1 else Fate.NO_SIGNAL

    def signals(self, samples):
        return [
            TokenSignal(np.ones(len(s.answer_ids), np.float32), np.ones(len(s.answer_ids), bool))
            if s.reward == 1.0 and s.answer_ids else None
            for s in samples
        ]


def likelihood(inputs, config):
    loss = -(inputs.logprobs * inputs.advantages * inputs.weights).sum()
    return loss, LossMetrics(means={"loss": loss.detach()})
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package as pip would: a module beside its metadata with entry points."""
    (tmp_path / "rejoinder_praise.py").write_text(OUTSIDE)
    info = tmp_path / "rejoinder_praise-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rejoinder-praise\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rejoinder.algorithms]\npraise_only = rejoinder_praise:PraiseOnly\n"
        "[rejoinder.losses]\nlikelihood = rejoinder_praise:likelihood\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("rejoinder_praise", None)


def sample(reward: float | None, tokens: int, hints: tuple[str, ...] = ()) -> TrainSample:
    return TrainSample(
        sample_id=f"s{tokens}{reward}",
        turn_id="t",
        session_id="c",
        trajectory=None,
        prompt_ids=[1, 2, 3],
        answer_ids=list(range(tokens)),
        logprobs=[-0.5] * tokens,
        versions=(VersionRun(0, tokens),) if tokens else (),
        temperature=1.0,
        reward=reward,
        hints=hints,
        created_at=0.0,
    )


SAMPLES = [
    sample(reward, tokens, hints)
    for reward, tokens, hints in itertools.product(
        (1.0, -1.0, None), (0, 1, 5), ((), ("Answer in one sentence.",))
    )
]


@pytest.fixture(params=["binary", "opd", "combine", "praise_only"])
def algorithm(request: pytest.FixtureRequest, outside: None) -> Algorithm:
    return build_algorithm(TrainerConfig(algorithm=request.param))


def test_it_is_called_as_the_configuration_names_it(
    algorithm: Algorithm, request: pytest.FixtureRequest
) -> None:
    assert algorithm.name == request.node.callspec.params["algorithm"]


@pytest.mark.parametrize("hints", [(), ("Answer in one sentence.",)], ids=["no hint", "hint"])
@pytest.mark.parametrize("score", [-1, 0, 1, None])
def test_every_judgement_becomes_a_sample_or_a_named_fate(
    algorithm: Algorithm, score: int | None, hints: tuple[str, ...]
) -> None:  # rule 4
    why = Fate.NO_QUORUM if score is None else None
    found = algorithm.sample_spec(Judgement(score, (Vote(score),), "judge", why), hints)
    assert isinstance(found, SampleSpec | Fate)
    assert score is not None or found is not Fate.NEUTRAL  # rule 5
    if isinstance(found, SampleSpec):
        assert found.reward is not None or found.hints


def test_what_needs_no_verdicts_is_not_changed_by_any(algorithm: Algorithm) -> None:
    if algorithm.needs_verdicts:
        pytest.skip("it learns from verdicts")
    for hints in ((), ("Answer in one sentence.",)):
        without = algorithm.sample_spec(NOT_ASKED, hints)
        for score in (-1, 0, 1):
            assert (
                algorithm.sample_spec(Judgement(score, (Vote(score),), "judge"), hints) == without
            )


def test_signals_come_in_the_order_of_the_samples(algorithm: Algorithm) -> None:
    together = algorithm.signals(SAMPLES)
    assert len(together) == len(SAMPLES)
    for signal, one in zip(together, SAMPLES, strict=True):
        if signal is not None:
            assert signal.advantages.shape == signal.mask.shape == (len(one.answer_ids),)
            assert np.isfinite(signal.advantages[signal.mask]).all()


def test_a_sample_with_nothing_to_learn_from_has_no_signal(algorithm: Algorithm) -> None:
    assert algorithm.signals([sample(None, 4), sample(1.0, 0)]) == [None, None]


def test_signals_do_not_change_the_samples(algorithm: Algorithm) -> None:
    before = [(list(one.answer_ids), list(one.logprobs), one.reward) for one in SAMPLES]
    algorithm.signals(SAMPLES)
    assert [(one.answer_ids, one.logprobs, one.reward) for one in SAMPLES] == before


def test_its_loss_can_be_found_and_has_a_gradient(algorithm: Algorithm) -> None:
    loss = find_loss(algorithm.loss, algorithm.name)
    logprobs = torch.tensor([-1.0, -2.0]).requires_grad_()
    rows = logprobs[:, None]
    value, metrics = loss(
        LossInputs(
            logprobs=logprobs,
            anchor=logprobs.detach(),
            behaviour=logprobs.detach(),
            advantages=torch.tensor([1.0, -1.0]),
            weights=torch.tensor([0.5, 0.5]),
            hinted=Hinted(torch.zeros(2), rows, rows.detach(), rows.detach()),
        ),
        LossConfig(),
    )
    value.backward()
    assert logprobs.grad is not None
    assert logprobs.grad[0] < 0 < logprobs.grad[1]
    assert "loss" in metrics.means


@pytest.mark.usefixtures("outside")
def test_a_package_outside_gets_the_trainer_s_configuration() -> None:
    algorithm = build_algorithm(TrainerConfig(algorithm="praise_only", batch_size=7))
    assert algorithm.batch_size == 7  # type: ignore[attr-defined]


def test_an_unknown_algorithm_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'praise_only'.*binary"):
        build_algorithm(TrainerConfig(algorithm="praise_only"))


def test_an_unknown_loss_is_refused_with_the_algorithm_that_asks_for_it() -> None:
    with pytest.raises(ConfigError, match=r"'praise_only' asks for the loss 'likelihood'"):
        find_loss("likelihood", "praise_only")


def test_built_in_names_cannot_be_taken_by_another_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "impostor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: impostor\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rejoinder.algorithms]\nbinary = impostor:Evil\n"
        "[rejoinder.losses]\npolicy = impostor:evil\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert type(build_algorithm(TrainerConfig())).__module__ == "rejoinder.algorithms.binary"
    assert find_loss("policy", "binary") is BUILT_IN["policy"]


def test_asking_for_signals_needs_no_pytorch() -> None:
    """The judge asks algorithms too, and must start fast."""
    code = (
        "import sys\nfrom rejoinder.algorithms import build_algorithm\n"
        "from rejoinder.config import TrainerConfig\nbuild_algorithm(TrainerConfig())\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
