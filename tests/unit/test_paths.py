"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rejoinder.errors import ConfigError
from rejoinder.paths import expanded


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~/a") == tmp_path / "a"
    assert expanded(Path("a/~")) == Path("a/~")


@pytest.mark.parametrize("path", ["~nobody-of-this-name/a", "a\0b"])
def test_regression_what_can_be_no_path_is_a_fault_and_no_crash(path: str) -> None:
    with pytest.raises(ConfigError, match=r"nobody-of-this-name|a\\x00b"):
        expanded(path)
