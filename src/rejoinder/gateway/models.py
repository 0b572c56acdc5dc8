"""Which names clients may put into ``model``, and what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from rejoinder.config import ModelConfig
from rejoinder.gateway.errors import ApiError

_EMBEDDED_NAME = "SmolLM2-135M-Instruct"
_PINNED = re.compile(r"(.+)@([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class Target:
    """Who shall answer."""

    policy: str
    version: int | None
    """None: the live version."""


class ModelNames:
    """The policy's own name, the name of its model, and ``name@version`` for one version."""

    def __init__(self, config: ModelConfig) -> None:
        self.policy = config.policy
        path = config.path
        if path == "embedded":
            alias = _EMBEDDED_NAME
        elif path.startswith(("/", ".", "~", "file:")):
            alias = PurePath(path).name
        else:
            alias = path
        self.names = tuple(dict.fromkeys((config.policy, alias)))

    def resolve(self, model: str | None) -> Target:
        """Return what a request's ``model`` names; without one, the live policy.

        Raises:
            ApiError: 404, no such model.
        """
        if model is None or model in self.names:
            return Target(self.policy, None)
        pinned = _PINNED.fullmatch(model)
        if pinned and pinned.group(1) in self.names:
            return Target(self.policy, int(pinned.group(2)))
        raise ApiError(
            404,
            "model_not_found",
            f"there is no model {model!r} here; the models are {', '.join(self.names)}",
            "model",
        )
