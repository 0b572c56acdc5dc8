"""Packed sequences give exactly what each gives alone, values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from rejoinder.errors import ConfigError
from rejoinder.models import packed_attention
from rejoinder.models.packed_attention import Segments, packed_hidden, use_packed_attention

VOCABULARY = 97
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
FAMILIES = {
    "llama": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE, head_dim=8),
    # Learned positions: unlike rotary ones they show whether each sequence starts anew.
    "gpt2": GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=128,
        n_embd=32,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    ),
    "heads not grouped": LlamaConfig(**(SHAPE | {"num_key_value_heads": 4})),
}


def build(config: PretrainedConfig) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def sequences(lengths: tuple[int, ...]) -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(VOCABULARY, (length,), generator=draw) for length in lengths]


def gradients(model: PreTrainedModel, hidden: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    hidden.square().sum().backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_packed_equals_one_by_one(family: str, checkpointing: bool) -> None:
    model = build(FAMILIES[family])
    rows = sequences((5, 1, 17, 9))
    alone = torch.cat([model.base_model(row[None]).last_hidden_state[0] for row in rows])
    expected = gradients(model, alone)

    use_packed_attention(model)
    if checkpointing:
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    segments = Segments.of([len(row) for row in rows], torch.device("cpu"))
    packed = packed_hidden(model.base_model, torch.cat(rows)[None], segments)
    torch.testing.assert_close(packed, alone, atol=1e-5, rtol=1e-5)
    for name, grad in gradients(model, packed).items():
        torch.testing.assert_close(grad, expected[name], atol=1e-3, rtol=1e-4)


def test_a_sequence_does_not_see_its_neighbours() -> None:
    model = build(FAMILIES["llama"])
    use_packed_attention(model)
    first, second, other = sequences((6, 8, 6))
    segments = Segments.of([6, 8], torch.device("cpu"))
    with torch.no_grad():
        one = packed_hidden(model.base_model, torch.cat([first, second])[None], segments)
        two = packed_hidden(model.base_model, torch.cat([other, second])[None], segments)
    assert torch.equal(one[6:], two[6:])
    assert not torch.equal(one[:6], two[:6])


def test_the_order_of_packed_sequences_does_not_matter() -> None:
    model = build(FAMILIES["llama"])
    use_packed_attention(model)
    first, second = sequences((6, 8))
    cpu = torch.device("cpu")
    with torch.no_grad():
        one = packed_hidden(
            model.base_model, torch.cat([first, second])[None], Segments.of([6, 8], cpu)
        )
        two = packed_hidden(
            model.base_model, torch.cat([second, first])[None], Segments.of([8, 6], cpu)
        )
    torch.testing.assert_close(one, torch.cat([two[8:], two[:8]]))


def test_positions_start_anew_in_each_sequence() -> None:
    segments = Segments.of([3, 1, 2], torch.device("cpu"))
    assert segments.positions.tolist() == [[0, 1, 2, 0, 0, 1]]
    assert segments.borders.tolist() == [0, 3, 4, 6]


def test_a_model_with_windowed_attention_is_refused() -> None:
    model = build(MistralConfig(**SHAPE, sliding_window=4))
    with pytest.raises(ConfigError, match="full causal attention"):
        use_packed_attention(model)


def test_no_mask_of_tokens_by_tokens_is_made() -> None:
    model = build(FAMILIES["llama"])
    use_packed_attention(model)
    made: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor):
                made.append(out.numel())
            return out

    tokens = 400
    lengths = [100] * 4
    ids = torch.cat(sequences(tuple(lengths)))[None]
    with Watch(), torch.no_grad():
        packed_hidden(model.base_model, ids, Segments.of(lengths, torch.device("cpu")))
    assert max(made) < tokens * tokens / 2


def test_autocast_attends_in_half_precision() -> None:
    model = build(FAMILIES["llama"])
    use_packed_attention(model)
    rows = sequences((5, 9))
    ids, segments = torch.cat(rows)[None], Segments.of([5, 9], torch.device("cpu"))
    with torch.no_grad():
        plain = packed_hidden(model.base_model, ids, segments)
        with torch.autocast("cpu", torch.bfloat16):
            half = packed_hidden(model.base_model, ids, segments)
    assert not torch.equal(half, plain)
    torch.testing.assert_close(half.float(), plain, atol=0.1, rtol=0.1)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("autocast", [False, True])
def test_the_kernel_agrees_with_the_loop(autocast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(FAMILIES["qwen3"]).to("cuda", torch.float32 if autocast else torch.bfloat16)
    use_packed_attention(model)
    rows = sequences((5, 33, 17))
    ids = torch.cat(rows)[None].cuda()
    segments = Segments.of([len(row) for row in rows], torch.device("cuda"))

    def gradient() -> tuple[Tensor, dict[str, Tensor]]:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            hidden = packed_hidden(model.base_model, ids, segments)
        return hidden.detach().float(), gradients(model, hidden.float())

    kernel, kernel_grads = gradient()
    monkeypatch.setattr(packed_attention, "_has_kernel", lambda _query: False)
    loop, loop_grads = gradient()
    torch.testing.assert_close(kernel, loop, atol=0.05, rtol=0.05)
    for name, grad in kernel_grads.items():
        scale = float(loop_grads[name].abs().max())
        torch.testing.assert_close(grad, loop_grads[name], atol=0.05 * scale, rtol=0.1)
