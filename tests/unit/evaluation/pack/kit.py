"""A chat model small enough to run in a test, and a judge that is a plain function."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from rejoinder.config import CallableJudgeConfig, Config, LossConfig, ModelConfig, TrainerConfig
from rejoinder.evaluation.pack.stacked import StackedModel
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Message

CONTEXT = 2048
CPU = torch.device("cpu")


def save_chat_model(path: Path, tokenizer: ModelTokenizer) -> Path:
    """Write a random Llama of one layer with a tokenizer and its chat template."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_ids[0],
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    tokenizer.tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer.special_tokens))
    (path / "chat_template.jinja").write_text(tokenizer.chat_template or "")
    return path


def score(_context: Sequence[Message], answer: Message, _after: Sequence[Message]) -> int:
    """Like answers of some lengths, for no reason."""
    return 1 if len(answer.content) % 3 else -1


def system(path: Path, **training: object) -> Config:
    """Return a configuration of small steps."""
    usual = {"batch_size": 4, "learning_rate": 1e-2, "loss": LossConfig(kl_coefficient=0.05)}
    return Config(
        model=ModelConfig(path=str(path), device="cpu"),
        judge=CallableJudgeConfig(kind="callable", target=f"{__name__}:score"),
        trainer=TrainerConfig.model_validate(usual | training),
    )


def two_policies(path: Path, device: torch.device = CPU) -> StackedModel:
    """Seat 0 has the model's weights, seat 1 others."""
    model = StackedModel(path, 2, device)
    generator = torch.Generator().manual_seed(1)
    for weight in model.weights.values():
        weight[1] *= 1 + 0.3 * torch.rand(weight[1].shape, generator=generator).to(device)
    return model
