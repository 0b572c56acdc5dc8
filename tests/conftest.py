"""Fixtures that several rooms share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rejoinder.models.tokenizer import ModelTokenizer

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}"
    "{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}</call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% endif %}"
)

# Nothing is timed in tests: how fast a machine is says nothing about what is right.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Tests run beside each other share the cores: threads of PyTorch that wait for their turn by
# spinning would take them from the others. It reads this when it is first imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fuzz")
    group.addoption("--fuzz-requests", type=int, default=2_000, help="requests per dialect")
    group.addoption("--fuzz-seed", type=int, default=1, help="other seeds give other requests")


@pytest.fixture(scope="session")
def tiny_tokenizer() -> ModelTokenizer:
    """A byte-level tokenizer without merges: one token per byte, and ChatML's special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    return ModelTokenizer(
        path=Path("tiny"),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE,
        special_tokens={"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
        eos_ids=(tokenizer.token_to_id("<|im_end|>"),),
        context_length=2048,
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse to run where groups have no effect: each worker would start a system of its own."""
    if getattr(config.option, "loadgroup", False):
        for item in items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
                text = (
                    "pytest-xdist does not know the groups of tests: see pytest in pyproject.toml"
                )
                raise pytest.UsageError(text)


@pytest.fixture(scope="session", autouse=True)
def no_home_of_a_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests that name no home away from that of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REJOINDER_HOME", str(tmp_path_factory.mktemp("home")))
        yield
