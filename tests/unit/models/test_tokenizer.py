"""What a model directory says about its text side."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from rejoinder.errors import ConfigError
from rejoinder.models.tokenizer import ModelTokenizer, load_tokenizer, tokenizer_hash


def _save(path: Path, tokenizer: ModelTokenizer, **files: object) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.tokenizer.save(str(path / "tokenizer.json"))
    content = {"config": {"max_position_embeddings": 64}} | files
    for name, value in content.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


def test_every_id_that_a_file_calls_the_end_ends_an_answer(
    tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    path = _save(
        tmp_path,
        tiny_tokenizer,
        config={"max_position_embeddings": 64, "eos_token_id": 256},
        generation_config={"eos_token_id": [256, 7]},
        tokenizer_config={"eos_token": {"content": "<|im_end|>"}},
    )
    assert load_tokenizer(path).eos_ids == (7, 256, 258)


def test_special_tokens_written_out_become_their_ids_and_no_others_are_added(
    tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    loaded = load_tokenizer(_save(tmp_path, tiny_tokenizer))
    ids = loaded.encode("<|im_start|>hi<|im_end|>")
    assert (ids[0], ids[-1], len(ids)) == (257, 258, 4)
    assert loaded.decode(ids) == "hi"
    assert loaded.decode(ids, skip_special_tokens=False) == "<|im_start|>hi<|im_end|>"
    assert {256, 257, 258} == loaded.special_ids


@pytest.mark.parametrize("text", ["hi", "<|im_start|>hi"])
def test_a_text_that_stands_alone_gets_the_opening_token_once(
    text: str, tiny_tokenizer: ModelTokenizer
):
    opening = Tokenizer.from_str(tiny_tokenizer.tokenizer.to_str())
    opening.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 257)]
    )
    assert tiny_tokenizer.encode_document(text) == tiny_tokenizer.encode(text)
    made = replace(tiny_tokenizer, tokenizer=opening).encode_document(text)
    assert made == tiny_tokenizer.encode("<|im_start|>hi")


@pytest.mark.parametrize("where", ["file", "settings", "named", "nowhere"])
def test_the_chat_template_is_found_wherever_models_keep_it(
    where: str, tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "T"}]
    settings = {"settings": {"chat_template": "T"}, "named": {"chat_template": named}}
    path = _save(tmp_path, tiny_tokenizer, tokenizer_config=settings.get(where, {}))
    if where == "file":
        (path / "chat_template.jinja").write_text("T")
    assert load_tokenizer(path).chat_template == (None if where == "nowhere" else "T")


def test_the_hash_depends_on_what_ids_mean_and_on_nothing_else(
    tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    one = _save(tmp_path / "one", tiny_tokenizer)
    same = _save(tmp_path / "same", tiny_tokenizer, tokenizer_config={"chat_template": "other"})
    swapped = tmp_path / "swapped"
    _save(swapped, tiny_tokenizer)
    data = json.loads((swapped / "tokenizer.json").read_text())
    vocabulary = data["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (swapped / "tokenizer.json").write_text(json.dumps(data))
    assert tokenizer_hash(one) == tokenizer_hash(same) == tiny_tokenizer.hash
    assert tokenizer_hash(swapped) != tokenizer_hash(one)


def test_truncation_and_padding_saved_with_a_tokenizer_are_switched_off(
    tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    path = _save(tmp_path, tiny_tokenizer)
    data = json.loads((path / "tokenizer.json").read_text())
    data["truncation"] = {
        "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0,
    }  # fmt: skip
    (path / "tokenizer.json").write_text(json.dumps(data))
    assert len(load_tokenizer(path).encode("a long text")) == 11


def test_a_directory_without_a_tokenizer_or_context_says_what_to_do(
    tmp_path: Path, tiny_tokenizer: ModelTokenizer
):
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
    with pytest.raises(ConfigError, match="max_position_embeddings"):
        load_tokenizer(_save(tmp_path, tiny_tokenizer, config={}))


def test_neither_pytorch_nor_transformers_is_imported():
    """The gateway starts several workers of this; PyTorch would cost each seconds and memory."""
    code = (
        "import sys, rejoinder.models.tokenizer, rejoinder.models.embedded, "
        "rejoinder.engine.client, rejoinder.engine.scripted, rejoinder.engine.server, "
        "rejoinder.chat.detokenizer; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
