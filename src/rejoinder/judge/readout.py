"""From the log-probabilities of many words to one log-odds: the verbalizer of the judge.

A verbalizer with many label words, each with a weight, instead of one pair: Hu et al. 2022,
"Knowledgeable Prompt-tuning". Weights belong to a model. For the embedded one they were fitted by
``benchmarks/judge_fit.py`` on ``data/examples.jsonl`` and the development split; any other model
is read by the pair positive / negative, from which the same reading of an empty reply is
subtracted (Zhao et al. 2021, "Calibrate Before Use").
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from rejoinder.models.embedded import EMBEDDED
from rejoinder.types import Json

FITTED = {EMBEDDED: "readout_embedded.json"}
"""File in ``judge/data`` of each model whose weights were fitted, by its ``model.path``."""


@dataclass(frozen=True, slots=True)
class Readout:
    """Weights of words at places, of the echo, and of the presence of tool output."""

    words: Mapping[str, Mapping[str, float]]
    """Place to word to weight; see ``views`` for the places."""
    bias: float = 0.0
    tool: float = 0.0
    """Added where the last message is a tool's."""
    echo: tuple[float, float] = (0.0, 0.0)
    usual_echo: tuple[float, float] = (0.0, 0.0)
    """Taken where there is no echo to measure."""
    calibrated: bool = True
    """False: the value of an empty reply still has to be subtracted."""

    @property
    def needs_reaction(self) -> bool:
        """Whether the chat prompt has to be scored too."""
        return any(place != "opinion" for place in self.words)

    def value(
        self,
        logprobs: Mapping[str, Mapping[str, float]],
        echo: tuple[float, float] | None,
        *,
        tool: bool,
    ) -> float:
        """Return the log-odds of *good*.

        Args:
            logprobs: place to word to its log-probability there.
            echo: see ``echo.echo``.
            tool: whether the last message is a tool's.
        """
        total = self.bias + self.tool * tool
        total += sum(
            weight * value for weight, value in zip(self.echo, echo or self.usual_echo, strict=True)
        )
        for place, weights in self.words.items():
            found = logprobs[place]
            total += sum(weight * found[word] for word, weight in weights.items())
        return total


PLAIN = Readout(words={"opinion": {" positive": 1.0, " negative": -1.0}}, calibrated=False)


def readout_for(model_path: str) -> Readout:
    """Return the fitted readout of a model, or the plain one."""
    name = FITTED.get(model_path)
    if name is None:
        return PLAIN
    data: Json = json.loads((files("rejoinder.judge") / "data" / name).read_text("utf-8"))
    return Readout(
        words=data["words"],
        bias=data["bias"],
        tool=data["tool"],
        echo=tuple(data["echo"]),
        usual_echo=tuple(data["usual_echo"]),
    )
