"""Paths as people write them in files and commands."""

from __future__ import annotations

from pathlib import Path

from rejoinder.errors import ConfigError


def expanded(path: str | Path) -> Path:
    """Return a path with the home directory in the place of a ``~`` at its beginning.

    Raises:
        ConfigError: there is no such person, or the environment names no home directory; or the
            text can be no path.
    """
    if "\0" in str(path):
        raise ConfigError(f"{str(path)!r} is no path: it holds a character of code 0")
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"{str(path)!r}: no home directory is known that its ~ stands for: write the path out"
        ) from error
