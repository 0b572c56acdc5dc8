"""The embedded model itself: conversion facts, parity, and an update on real weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rejoinder.engine.base import ScoreRequest
from rejoinder.models.embedded import resolve_model
from rejoinder.models.loading import load_model
from rejoinder.models.tokenizer import load_tokenizer
from tiny_model import POLICY, answer, reference_logprobs, request, source, torch_engine

pytestmark = pytest.mark.model

CHAT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def model_dir() -> Path:
    return resolve_model("embedded")


def test_the_converted_model_has_the_documented_facts(model_dir: Path):
    tokenizer = load_tokenizer(model_dir)
    assert tokenizer.context_length == 8192
    assert tokenizer.eos_ids == (tokenizer.token_to_id("<|im_end|>"),)
    assert "message['content'] + '<|im_end|>'" in (tokenizer.chat_template or "")
    assert tokenizer.encode(CHAT)[0] == tokenizer.token_to_id("<|im_start|>")


async def test_real_logprobs_equal_a_full_forward_pass_before_and_after_an_update(
    model_dir: Path, tmp_path: Path
):
    tokenizer = load_tokenizer(model_dir)
    prompt = tokenizer.encode(CHAT)
    model = load_model(model_dir, torch.float32, torch.device("cpu"))
    async with torch_engine(model_dir, context_length=512) as engine:
        for version in (0, 1):
            if version == 1:
                torch.manual_seed(0)
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.add_(torch.randn_like(parameter) * 0.02 * parameter.std())
                model.save_pretrained(tmp_path)
                await engine.load(source(tmp_path, 1), live=True)
            found = await answer(engine, request(prompt, max_tokens=24, temperature=0.7, seed=1))
            assert set(found.versions) == {version}
            expected = reference_logprobs(model, prompt + found.ids, len(prompt), 0.7)
            difference = (torch.tensor(found.logprobs) - expected).abs()
            assert difference.mean() <= 1e-4
            scored = await engine.score(ScoreRequest("s", prompt + found.ids, POLICY))
            expected = reference_logprobs(model, prompt + found.ids, 1)
            assert (torch.tensor(scored.logprobs) - expected).abs().mean() <= 1e-4


async def test_the_real_model_answers_a_question(model_dir: Path):
    tokenizer = load_tokenizer(model_dir)
    async with torch_engine(model_dir, context_length=512) as engine:
        found = await answer(
            engine, request(tokenizer.encode(CHAT), max_tokens=30, temperature=0.0)
        )
        assert "Paris" in tokenizer.decode(found.ids)
        assert found.ids[-1] in tokenizer.eos_ids
