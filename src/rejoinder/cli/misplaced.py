"""Arguments that stand where no command takes them: the command line, or key, that was meant."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

WITH_VALUE = {"--config": "FILE", "--home": "DIRECTORY"}
"""Options that go before the command, and what stands for a value that is missing."""
CONFIGURED = ("up", "gateway", "engine", "judge", "trainer")
"""Commands that take all they need from the configuration, and have no option for any key of it."""


def corrected(arguments: Sequence[str]) -> str:
    """Return the command line with those options where they belong, values and order kept.

    Args:
        arguments: of the program, without its own name.
    """
    first, rest = list[str](), list[str]()
    left = list(arguments)
    while left:
        argument = left.pop(0)
        name, given, value = argument.partition("=")
        if argument == "--":  # what follows is no option
            rest += [argument, *left]
            break
        if name in WITH_VALUE and value:
            first.append(argument)
        elif name in WITH_VALUE:
            is_there = not given and left and not left[0].startswith("-")
            first += [name, left.pop(0) if is_there else WITH_VALUE[name]]
        else:
            rest.append(argument)
    return shlex.join(["rejoinder", *first, *rest])


def is_misplaced(option: str) -> bool:
    """Whether a command that does not know this option would take it before its name."""
    return option in WITH_VALUE


def add_remedy(error: Any) -> None:
    """Let an error of the command line say what there is, where nothing else does.

    Args:
        error: of the command line's parser; others are left as they are.
    """
    context, message = getattr(error, "ctx", None), getattr(error, "message", "")
    if context is None:
        return
    if message.startswith("No such command") and "Did you mean" not in message:
        error.message = f"{message} There are: {', '.join(context.command.commands)}."
    option = getattr(error, "option_name", "")
    if option.startswith("--") and context.command.name in CONFIGURED:
        # Imported where it is needed: commands start fast.
        from rejoinder.config import Config
        from rejoinder.config.faults import places_of

        if places := places_of(Config, option.removeprefix("--").replace("-", "_")):
            keys = " or ".join(places)
            error.message = f"{message}. The configuration file (rejoinder.toml) has {keys}."
