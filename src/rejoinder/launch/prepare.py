"""What must be there before a role can work: journal tables, model files, the policy's base."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rejoinder.config import Config
from rejoinder.errors import ConfigError

_PIECE = 64 << 10
_PIECES = 16
_ENDS = 1 << 20


def prepare(config: Config, model: Path) -> None:
    """Run missing migrations and register the policy with its start weights; safe to repeat.

    Raises:
        JournalError: the journal cannot be used, or the policy has other start weights; the
            message says what to change.
    """
    from rejoinder.gateway.auth import DEFAULT_TENANT
    from rejoinder.journal.sql import SqlJournal

    with SqlJournal(config.journal_url) as journal:
        journal.ensure_policy(
            config.model.policy, DEFAULT_TENANT, model.as_uri(), weights_fingerprint(model)
        )


def weights_fingerprint(model: Path) -> str:
    """Return a hash that tells the weights in one model directory from any others.

    It covers the configuration, each weight file's size, its first and last MiB (the header with
    all names and shapes is in the first) and pieces in between: a fraction of a second for a model
    of any size, where a hash of everything would delay each start by minutes.

    Raises:
        ConfigError: the directory has no safetensors files.
    """
    files = sorted(model.glob("*.safetensors"))
    if not files:
        raise ConfigError(
            f"model.path: {model} has no *.safetensors files; save the model there with "
            "save_pretrained(..., safe_serialization=True)"
        )
    digest = hashlib.sha256((model / "config.json").read_bytes())
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as content:
            for start, length in _pieces(size):
                content.seek(start)
                digest.update(content.read(length))
    return f"sampled-sha256:{digest.hexdigest()[:32]}"


def _pieces(size: int) -> list[tuple[int, int]]:
    """Return (start, length) of what is read of a file of ``size`` bytes."""
    if size <= 2 * _ENDS + _PIECES * _PIECE:
        return [(0, size)]
    stride = (size - 2 * _ENDS) // _PIECES
    middle = [(_ENDS + number * stride, _PIECE) for number in range(_PIECES)]
    return [(0, _ENDS), *middle, (size - _ENDS, _ENDS)]
