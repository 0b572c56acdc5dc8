"""Options of every command that were given after its name: the command line that was meant."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

WITH_VALUE = {"--config": "FILE", "--home": "DIRECTORY"}
"""Options that go before the command, and what stands for a value that is missing."""


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
