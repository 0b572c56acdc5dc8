"""Answers of all seats at once are what each seat would give alone."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from tests.unit.evaluation.pack.kit import CPU, two_policies
from tests.unit.trainer.tiny import answer_logprobs, load_plain, save_tiny_model
from torch import Tensor

from rejoinder.evaluation.pack import attention, decoding
from rejoinder.evaluation.pack.attention import attend_newest, newest_attention
from rejoinder.evaluation.pack.decoding import Request, decode, invert
from rejoinder.evaluation.pack.stacked import StackedModel

ROWS = ([5, 9, 3, 7], [8, 2], [4, 4, 1, 6, 2, 9])


DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path)


@pytest.mark.parametrize("device", DEVICES)
def test_answers_have_the_logprobs_of_their_own_policy(path: Path, device: str) -> None:
    model, plain = two_policies(path, torch.device(device)), load_plain(path)
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
    run = decoding._Run(model, requests, limit, [60])
    run.read_prompts()
    return run


@torch.inference_mode()
def test_a_step_leaves_every_tensor_where_it_was(path: Path) -> None:
    """A recorded step knows addresses alone: what is bound anew would be computed in vain."""
    run = a_run(two_policies(path))

    def places() -> dict[str, int]:
        of_rows = {one.name: getattr(run._rows, one.name) for one in fields(run._rows)}
        known = vars(run) | of_rows
        return {name: one.data_ptr() for name, one in known.items() if isinstance(one, Tensor)}

    before = places()
    run._step()
    run._step()
    assert places() == before
    assert int(run._at) == 2


@pytest.mark.parametrize("device", DEVICES)
def test_rows_that_have_ended_may_be_left_out(
    path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = StackedModel(path, 2, torch.device(device))
    asked = [
        [Request(row, 1 + 11 * (at % 4) + seat, 0.8, at) for at, row in enumerate(ROWS * 3)]
        for seat in range(2)
    ]
    together = decode(model, asked, eos_ids=[60])
    thinned = list[int]()
    real = decoding._Run._thin_out

    def thin_out(run: decoding._Run, count: int) -> None:
        thinned.append(count)
        real(run, count)

    monkeypatch.setattr(decoding._Run, "_thin_out", thin_out)
    monkeypatch.setattr(decoding, "_FEW", 1)
    monkeypatch.setattr(decoding, "_LOOK_EVERY", 1)
    for own, apart in zip(together, decode(model, asked, eos_ids=[60]), strict=True):
        assert [one.ids for one in own] == [one.ids for one in apart]
        for one, other in zip(own, apart, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert len(thinned) >= 2


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


def test_without_triton_a_gpu_computes_as_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "find_spec", lambda _: None)
    assert newest_attention(torch.device("cuda")) is attend_newest


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a kernel for a GPU alone")
@pytest.mark.parametrize("shape", [(5, 3, 3, 64), (2, 1, 4, 80), (3, 2, 1, 16)])
def test_the_kernel_attends_as_products_of_matrices_do(shape: tuple[int, ...]) -> None:
    rows, heads, group, width = shape
    longest, limit = 21, 40
    lengths = torch.tensor([21, 1, 7, 20, 4][:rows])
    generator = torch.Generator().manual_seed(rows)
    queries = torch.randn(shape, generator=generator)
    cache = torch.randn(2, rows, heads, longest + limit, width, generator=generator)
    first = longest - lengths
    beside = torch.cat((queries.flatten(1, 2), cache[0, :, :, 0]), 1).cuda()
    own = beside[:, : heads * group].reshape(shape)  # as they come from one projection
    fused = newest_attention(torch.device("cuda"))
    for column in range(longest, longest + limit):
        last = torch.tensor([column])
        expected = attend_newest(queries, *cache, first, last)
        found = fused(own, *cache.cuda(), first.cuda(), last.cuda())
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)


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
