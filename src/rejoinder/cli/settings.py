"""The options that every command shares, and the configuration they lead to."""

from __future__ import annotations

import shlex
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rejoinder.paths import expanded

if TYPE_CHECKING:
    from rejoinder.config import Config

DEFAULT_FILE = Path("rejoinder.toml")


class Settings:
    """``--config`` and ``--home``. The file is read when the configuration is first asked for."""

    def __init__(self, config_file: Path | None, home: Path | None) -> None:
        self.is_role = False
        """Set by the roles: their standard error is a log already, and gets traces too."""
        self._named = config_file
        self._home = home

    @property
    def file(self) -> Path | None:
        """The configuration file in use; None: only defaults."""
        if self._named is None and DEFAULT_FILE.is_file():
            return DEFAULT_FILE
        return self._named

    @cached_property
    def config(self) -> Config:
        """The configuration, with ``--home`` in it.

        Raises:
            ConfigError: the file is missing or has faults.
        """
        from rejoinder.config import load_config

        config = load_config(self.file)
        if self._home is None:
            return config
        home = str(expanded(self._home).absolute())
        return config.model_copy(update={"home": home})

    @property
    def command(self) -> str:
        """The command with these options, as another shell in this folder takes it."""
        named = (("--config", self._named), ("--home", self._home))
        options = [part for name, path in named if path is not None for part in (name, str(path))]
        return shlex.join(["rejoinder", *options])

    def spelled(self, advice: str) -> str:
        """Return advice whose commands have these options, so that it can be followed as it is."""
        return advice.replace("`rejoinder ", f"`{self.command} ")

    def fault_log(self) -> Path:
        """Return the file for traces of unexpected faults; its directory exists afterwards.

        Raises:
            RejoinderError: there is no usable configuration or directory.
        """
        from rejoinder.launch.home import ensure_home, logs_path

        ensure_home(self.config)
        return logs_path(self.config) / "commands.log"


def settings_of(ctx: typer.Context) -> Settings:
    """Return the settings of a command."""
    settings: Settings = ctx.find_root().obj
    return settings
