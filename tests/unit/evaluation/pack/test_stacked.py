"""Stacked policies compute what each would compute alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.unit.evaluation.pack.kit import CPU, two_policies
from tests.unit.trainer.tiny import load_plain, save_tiny_model
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from rejoinder.errors import ConfigError
from rejoinder.evaluation.pack.stacked import StackedModel, padded_groups

ROWS = ([5, 9, 3, 7], [8, 2], [4, 4, 1, 6, 2, 9])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path)


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
