"""A model small enough to train in milliseconds, and turns sampled from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from rejoinder.algorithms.base import TokenSignal
from rejoinder.trainer.base import SignalledTurn

POLICY = "default"
VOCABULARY = 61


def save_tiny_model(path: Path) -> Path:
    """Write a random Llama of two layers as a Hugging Face directory."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    return path


def load_plain(path: Path) -> PreTrainedModel:
    """Load a directory as anybody would."""
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def answer_logprobs(
    model: PreTrainedModel, prompt: Sequence[int], answer: Sequence[int], temperature: float
) -> Tensor:
    """[T] log-probabilities by the model's own forward pass, one sequence, all logits."""
    ids = torch.tensor([[*prompt, *answer]])
    logits = model(ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None])[:, 0]


@torch.no_grad()
def sample_turn(
    model: PreTrainedModel,
    reward: float,
    *,
    prompt: Sequence[int] = (1, 2, 3),
    tokens: int = 6,
    temperature: float = 1.0,
    seed: int = 0,
) -> dict[str, Any]:
    """Sample an answer; returns prompt, answer, its behaviour logprobs, temperature, reward."""
    draw = torch.Generator().manual_seed(seed)
    ids = list(prompt)
    for _ in range(tokens):
        logits = model(torch.tensor([ids])).logits[0, -1] / temperature
        ids.append(int(torch.multinomial(logits.softmax(-1), 1, generator=draw)))
    answer = ids[len(prompt) :]
    return {
        "prompt": list(prompt),
        "answer": answer,
        "behaviour": answer_logprobs(model, prompt, answer, temperature).tolist(),
        "temperature": temperature,
        "reward": reward,
    }


def signalled(turn: dict[str, Any], turns: int, **changes: Any) -> SignalledTurn:
    """A sampled turn as one of ``turns`` of a step in mode ``turn_mean``."""
    tokens = len(turn["answer"])
    signal = TokenSignal(
        np.full(tokens, turn["reward"], dtype=np.float32), np.ones(tokens, dtype=np.bool_)
    )
    fields: dict[str, Any] = {
        "prompt_ids": turn["prompt"],
        "answer_ids": turn["answer"],
        "behaviour": turn["behaviour"],
        "temperature": turn["temperature"],
        "signal": signal,
        "weight": 1.0 / (turns * tokens),
        "is_current": True,
    }
    return SignalledTurn(**(fields | changes))
