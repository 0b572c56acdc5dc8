"""How many prompt tokens a step may take while somebody waits for the next token."""

from __future__ import annotations

_PATIENCE_S = 0.1
"""What prompts may add to a step that others wait for."""
_LEAST = 32
"""Prompt tokens of a step in any case: a slow machine must get through prompts, too."""
_WEIGHT = 0.2
"""Of a new measurement in the running means."""


class Pace:
    """Measures steps, and bounds prompt tokens by the time that they take.

    A number of tokens that suits a GPU stalls answers on a CPU by half a second: after an update,
    when no prefix can be reused, for many steps in a row. Owned by the engine's thread.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._step_s: float | None = None
        """Of a step without prompts."""
        self._token_s: float | None = None
        """What one prompt token adds."""

    @property
    def most(self) -> int:
        """Prompt tokens of a step that nobody waits for."""
        return self._most

    def allowed(self) -> int:
        """Return how many prompt tokens a step may take that somebody waits for."""
        least = min(_LEAST, self._most)
        if self._token_s is None:
            return least
        fitting = int(_PATIENCE_S / self._token_s) if self._token_s > 0 else self._most
        return max(least, min(fitting, self._most))

    def note(self, prompt_tokens: int, seconds: float) -> None:
        """Learn from a step of one forward pass; few prompt tokens say nothing."""
        if prompt_tokens == 0:
            self._step_s = _mean(self._step_s, seconds)
        elif prompt_tokens >= min(_LEAST, self._most) and self._step_s is not None:
            added = max(seconds - self._step_s, 0.0) / prompt_tokens
            self._token_s = _mean(self._token_s, added)


def _mean(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _WEIGHT * (value - mean)
