"""Which family a model is of."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from rejoinder.chat.families.registry import FORMATS, choose_family, detect
from rejoinder.config import ModelConfig

TEMPLATES = {
    "qwen": "...return a json object within <tool_call></tool_call> XML tags...",
    "glm": "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>...",
    "mistral": "{{ '[TOOL_CALLS] [' }}",
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + type + '<｜tool▁sep｜>",
    "gpt-oss": "<|start|>assistant<|channel|>final<|message|>",
    "llama": '<|start_header_id|>... {"name": function name, "parameters": dictionary ...}',
    "generic": "{{ '<|im_start|>' + message['role'] }}",
}


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_template_tells_its_family(family):
    assert detect(TEMPLATES[family]) == family


def test_a_model_that_only_thinks_is_read_as_one():
    assert detect("{{ '<think>' }}{{ content.split('</think>')[-1] }}") == "qwen"


def test_a_model_without_a_template_has_no_family():
    assert detect(None) == "generic"


def test_the_configured_family_counts_whatever_the_template_says(tiny_tokenizer):
    made = replace(tiny_tokenizer, chat_template=TEMPLATES["qwen"])
    assert choose_family("auto", made).name == "qwen"
    assert choose_family("mistral", made).name == "mistral"


def test_every_family_can_be_configured_and_every_name_is_one():
    names = get_args(ModelConfig.model_fields["family"].annotation)
    assert set(names) == {"auto", *FORMATS}


@pytest.mark.model
def test_the_embedded_model_has_neither_thoughts_nor_calls():
    from rejoinder.models.embedded import resolve_model
    from rejoinder.models.tokenizer import load_tokenizer

    assert choose_family("auto", load_tokenizer(resolve_model("embedded"))).name == "generic"
