"""Exports load with transformers and peft alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from rejoinder.errors import RejoinderError
from rejoinder.journal.records import PolicyVersion
from rejoinder.policy import export
from rejoinder.policy.export import export_version
from rejoinder.types import VersionState, WeightsKind


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=31,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    (path / "tokenizer.json").write_text('{"of": "the base"}')
    (path / "chat_template.jinja").write_text("{{ messages }}")
    return path


def row(base: Path, uri: Path, kind: WeightsKind, number: int = 3) -> PolicyVersion:
    return PolicyVersion(
        policy="default",
        version=number,
        uri=uri.as_uri(),
        kind=kind,
        base_uri=base.as_uri(),
        parent=2,
        lineage_id="l",
        step=3,
        state=VersionState.LIVE,
        created_at=0.0,
    )


def test_full_weights_come_with_tokenizer_and_template(base: Path, tmp_path: Path) -> None:
    trained = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        trained.lm_head.weight.add_(1.0)
    trained.save_pretrained(tmp_path / "version")
    target = tmp_path / "new" / "export"
    export_version(row(base, tmp_path / "version", WeightsKind.FULL), target)
    loaded = AutoModelForCausalLM.from_pretrained(target)
    assert torch.equal(loaded.lm_head.weight, trained.lm_head.weight)
    assert (target / "tokenizer.json").read_text() == '{"of": "the base"}'
    assert (target / "chat_template.jinja").is_file()


def test_an_adapter_names_its_base_and_loads_with_peft(base: Path, tmp_path: Path) -> None:
    model = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(base),
        peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False),
    )
    model.save_pretrained(tmp_path / "adapter")
    target = tmp_path / "export"
    export_version(row(base, tmp_path / "adapter", WeightsKind.LORA), target)
    assert json.loads((target / "adapter_config.json").read_text())[
        "base_model_name_or_path"
    ] == str(base)
    loaded = peft.AutoPeftModelForCausalLM.from_pretrained(target)
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits)


@pytest.mark.parametrize("number", [0, 3])
def test_the_base_itself_can_be_exported_and_what_never_moved_from_it(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    version = row(base, base, WeightsKind.FULL, number=number)
    monkeypatch.setattr(export, "resolve_model", lambda _: base)
    version = replace(version, uri="embedded:model", base_uri="embedded:model")
    export_version(version, tmp_path / "export")
    AutoModelForCausalLM.from_pretrained(tmp_path / "export")


def test_an_empty_directory_is_a_target_and_a_used_one_is_not(base: Path, tmp_path: Path) -> None:
    target = tmp_path / "export"
    target.mkdir()
    export_version(row(base, base, WeightsKind.FULL, number=0), target)
    with pytest.raises(RejoinderError, match="in use"):
        export_version(row(base, base, WeightsKind.FULL, number=0), target)


def test_deleted_weights_are_named(base: Path, tmp_path: Path) -> None:
    gone = replace(row(base, tmp_path / "gone", WeightsKind.FULL), files=False)
    with pytest.raises(RejoinderError, match=r"version 3 .* not on disk"):
        export_version(gone, tmp_path / "export")
    assert not (tmp_path / "export").exists()
