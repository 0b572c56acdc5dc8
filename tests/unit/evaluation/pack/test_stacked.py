"""Stacked policies compute what each would compute alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.unit.trainer.tiny import answer_logprobs, load_plain, save_tiny_model
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from rejoinder.errors import ConfigError
from rejoinder.evaluation.pack import decoding
from rejoinder.evaluation.pack.decoding import Request, decode, invert
from rejoinder.evaluation.pack.stacked import StackedModel, padded_groups

CPU = torch.device("cpu")
ROWS = ([5, 9, 3, 7], [8, 2], [4, 4, 1, 6, 2, 9])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path)


def two_policies(path: Path) -> StackedModel:
    """Seat 0 has the model's weights, seat 1 others."""
    model = StackedModel(path, 2, CPU)
    generator = torch.Generator().manual_seed(1)
    for weight in model.weights.values():
        weight[1] *= 1 + 0.3 * torch.rand(weight[1].shape, generator=generator)
    return model


def padded(rows: tuple[list[int], ...]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[False] * (longest - len(row)) + [True] * len(row) for row in rows])
    return ids, mask


def test_hidden_states_are_those_of_transformers(path: Path) -> None:
    model, plain = two_policies(path), load_plain(path)
    ids, mask = padded(ROWS)
    with torch.no_grad():
        found = model.hidden(ids.expand(2, -1, -1), mask.expand(2, -1, -1))
        for row, own in enumerate(ROWS):
            expected = plain.base_model(torch.tensor([own])).last_hidden_state[0]
            torch.testing.assert_close(found[0, row, -len(own) :], expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(found[0], found[1], atol=1e-2)


def test_saving_memory_changes_nothing(path: Path) -> None:
    model = two_policies(path)
    ids, mask = padded(ROWS)
    ids, mask = ids.expand(2, -1, -1), mask.expand(2, -1, -1)
    plain, saving = (
        model.hidden(ids, mask, saves_memory=saves_memory) for saves_memory in (False, True)
    )
    torch.testing.assert_close(plain, saving)


def test_answers_have_the_logprobs_of_their_own_policy(path: Path) -> None:
    model, plain = two_policies(path), load_plain(path)
    asked = [[Request(row, 12, 0.8, seed) for seed, row in enumerate(ROWS)] for _ in range(2)]
    found = decode(model, asked, eos_ids=[60])
    for row, answer in zip(ROWS, found[0], strict=True):
        expected = answer_logprobs(plain, row, answer.ids, 0.8).tolist()
        assert answer.logprobs == pytest.approx(expected, abs=1e-4)
    assert [one.ids for one in found[0]] != [one.ids for one in found[1]]


def test_a_seed_gives_the_same_answer_in_any_company(path: Path) -> None:
    model = StackedModel(path, 2, CPU)
    own = Request([5, 9, 3], 10, 1.0, seed=7)
    alone = decode(model, [[own], []], eos_ids=[60])[0][0]
    others = [Request([1] * length, 16, 0.5, length) for length in (2, 9)]
    among = decode(model, [others, [*others, own]], eos_ids=[60])[1][2]
    assert among.ids == alone.ids
    assert among.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_what_would_not_fit_the_memory_at_once_is_computed_in_parts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = two_policies(path)
    asked = [[Request(row, 12, 0.8, seed) for seed, row in enumerate(ROWS * 2)] for _ in range(2)]
    asked[1].pop()
    whole = decode(model, asked, eos_ids=[60])
    for name in ("_MOST_IDS", "_MOST_CACHED"):
        monkeypatch.setattr(decoding, name, 2 * 18 * 2)
        parts = decode(model, asked, eos_ids=[60])
        assert [[one.ids for one in own] for own in parts] == [
            [one.ids for one in own] for own in whole
        ]


def test_answers_end_at_an_end_token_or_at_their_limit(path: Path) -> None:
    model = StackedModel(path, 1, CPU)
    free = decode(model, [[Request([5, 9, 3], 9, 1.0, seed=3)]], eos_ids=[60])[0][0]
    assert len(free.ids) == 9
    assert not free.ended
    end = free.ids[4]
    cut = decode(model, [[Request([5, 9, 3], 9, 1.0, seed=3)]], eos_ids=[end])[0][0]
    assert cut.ids == free.ids[: free.ids.index(end) + 1]
    assert cut.ended
    first = decode(model, [[Request([5, 9, 3], 1, 1.0, seed=3)]], eos_ids=[60])[0][0]
    assert first.ids == free.ids[:1]


def a_run(model: StackedModel, limit: int = 12) -> decoding._Run:
    requests = [Request(row, limit - at, 0.8, at) for at, row in enumerate(ROWS)] * model.seats
    run = decoding._Run(model, requests, len(ROWS), max(map(len, ROWS)), limit, [60])
    run.read_prompts()
    return run


@torch.inference_mode()
def test_a_step_leaves_every_tensor_where_it_was(path: Path) -> None:
    """A recorded step knows addresses alone: what is bound anew would be computed in vain."""
    run = a_run(two_policies(path))

    def places() -> dict[str, int]:
        return {name: one.data_ptr() for name, one in vars(run).items() if isinstance(one, Tensor)}

    before = places()
    run._step()
    run._step()
    assert places() == before
    assert int(run._at) == 2


@torch.inference_mode()
def test_what_stands_in_columns_to_come_is_not_seen(path: Path) -> None:
    clean, dirty = (a_run(two_policies(path)) for _ in range(2))
    for cache in (dirty._keys, dirty._values):
        cache[:, :, :, dirty._longest :] = 1e3
    clean.answer()
    dirty.answer()
    assert torch.equal(clean.ids, dirty.ids)
    torch.testing.assert_close(clean.logprobs, dirty.logprobs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="records on a GPU alone")
@pytest.mark.parametrize("limit", [1, 2, 12])
def test_a_recorded_step_draws_what_a_plain_one_does(path: Path, limit: int) -> None:
    device = torch.device("cuda", torch.cuda.device_count() - 1)
    model = StackedModel(path, 2, device)
    asked = [
        [Request(row, max(1, limit - at), 0.8, at) for at, row in enumerate(ROWS)] for _ in range(2)
    ]
    recorded = decode(model, asked, eos_ids=[60])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding._Run, "_recorded", lambda run: run._step)
        plain = decode(model, asked, eos_ids=[60])
    assert recorded == plain


def test_groups_of_rows_count_their_padding() -> None:
    assert padded_groups([2, 9, 3, 30, 3], 20) == [[3], [1, 2], [4, 0]]
    assert padded_groups([], 20) == []


def test_a_llama_with_biases_is_refused(tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "llama", vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, mlp_bias=True,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="plain Llama"):
        StackedModel(tmp_path, 1, CPU)


def test_other_families_are_refused(tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "qwen2", vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="qwen2"):
        StackedModel(tmp_path, 1, CPU)


@pytest.mark.parametrize("count", [61, 256, 1000])
def test_inversion_draws_what_a_running_sum_over_all_ids_would(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    mass = torch.rand(64, count, generator=generator).square().softmax(-1)
    mass[:, 3] = 0.0
    uniform = torch.rand(64, 1, generator=generator, dtype=torch.float64)
    whole = mass.double().cumsum(-1)
    expected = torch.searchsorted(whole, uniform * whole[:, -1:], right=True)
    assert torch.equal(invert(mass, uniform), expected)
    assert invert(mass, torch.zeros(64, 1, dtype=torch.float64)).max() == 0
    assert invert(mass, torch.full((64, 1), 1 - 2**-53, dtype=torch.float64)).max() <= count - 1


def test_an_impossible_id_is_never_drawn() -> None:
    """Guards against numbers that pass the end of a block by rounding: its last id was drawn."""
    generator = torch.Generator().manual_seed(1)
    mass = torch.rand(1, 4 * 256, generator=generator).softmax(-1)
    mass[:, 200::256] = 0.0
    for block in range(4):
        mass[:, block * 256 + 200 : (block + 1) * 256] = 0.0
    ends = (mass.double().cumsum(-1) / mass.double().sum())[0, 255::256]
    near = torch.cat([ends - 10.0**-power for power in range(7, 12)]).clamp(0, 1 - 2**-53)
    found = invert(mass.expand(len(near), -1), near[:, None])
    assert mass[0, found[:, 0]].min() > 0
