"""Preparing: the policy's start weights are recognised, and other ones refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rejoinder.config import Config
from rejoinder.errors import ConfigError, JournalError
from rejoinder.journal.sql import SqlJournal
from rejoinder.launch.prepare import prepare, weights_fingerprint


def make_model(path: Path, weights: bytes) -> Path:
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(weights)
    return path


def test_the_fingerprint_tells_weights_apart_and_moves_with_them(tmp_path: Path) -> None:
    one = make_model(tmp_path / "one", b"a" * 100)
    moved = make_model(tmp_path / "moved", b"a" * 100)
    other = make_model(tmp_path / "other", b"b" * 100)
    assert weights_fingerprint(one) == weights_fingerprint(moved)
    assert weights_fingerprint(one) != weights_fingerprint(other)


def test_the_fingerprint_of_a_large_file_covers_its_middle_and_its_end(tmp_path: Path) -> None:
    plain = bytes(8 << 20)
    changed_end = plain[:-1] + b"x"
    changed_middle = bytearray(plain)
    for start in range(1 << 20, 7 << 20, 1 << 16):
        changed_middle[start] = 1
    found = {
        weights_fingerprint(make_model(tmp_path / name, bytes(weights)))
        for name, weights in (("a", plain), ("b", changed_end), ("c", changed_middle))
    }
    assert len(found) == 3


def test_a_directory_without_safetensors_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="safe_serialization"):
        weights_fingerprint(tmp_path)


def test_preparing_twice_changes_nothing_and_registers_version_0(tmp_path: Path) -> None:
    config = Config(home=str(tmp_path / "home"))
    model = make_model(tmp_path / "model", b"weights")
    prepare(config, model)
    prepare(config, model)
    with SqlJournal(config.journal_url) as journal:
        (version,) = journal.versions("default")
    assert (version.version, version.state, version.uri) == (0, "live", model.as_uri())


def test_other_weights_under_the_same_policy_are_refused(tmp_path: Path) -> None:
    config = Config(home=str(tmp_path / "home"))
    prepare(config, make_model(tmp_path / "model", b"weights"))
    with pytest.raises(JournalError, match=r"model\.policy"):
        prepare(config, make_model(tmp_path / "other", b"other weights"))
