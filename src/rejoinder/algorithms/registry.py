"""From ``trainer.algorithm`` to an algorithm; other packages add theirs by entry points."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from rejoinder.algorithms.base import Algorithm
from rejoinder.config import TrainerConfig
from rejoinder.errors import ConfigError

ENTRY_POINTS = "rejoinder.algorithms"
_BUILT_IN = {name: f"rejoinder.algorithms.{name}" for name in ("binary", "opd", "combine")}
"""Module of each algorithm; imported when it is picked."""


def build_algorithm(config: TrainerConfig) -> Algorithm:
    """Build the algorithm that ``trainer.algorithm`` names.

    Raises:
        ConfigError: nothing installed has this name.
    """
    name = config.algorithm
    if name in _BUILT_IN:
        algorithm: Algorithm = importlib.import_module(_BUILT_IN[name]).build(config)
        return algorithm
    found = entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        raise ConfigError(
            f"trainer.algorithm: no algorithm is called {name!r} (there are "
            f"{', '.join(sorted({*_BUILT_IN, *found.names}))}); correct the name, or install the "
            f"package that offers it as an entry point of the group {ENTRY_POINTS}"
        )
    plugin: Algorithm = found[name].load()(config)
    return plugin
