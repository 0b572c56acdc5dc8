"""Whether hints tell answers that please from others: only then is their teacher followed.

A teacher that has read a wish should find what pleased likelier than before, and what the wish was
about less likely. One that does not has not understood the wish, or cannot heed it, and would lead
away from what pleases. So answers that pleased are read under a hint of the same step as well. The
figures behind this stand in ``docs/how-to/compare-methods.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rejoinder.trainer.base import SignalledTurn


def under_hint(turns: Sequence[SignalledTurn]) -> list[SignalledTurn]:
    """Return the turns to read as evidence, each with a hint in its prompt, its own or a borrowed.

    None where there is nothing to compare: no answer pleased, or none was wished otherwise.
    """
    pleased = [turn for turn in turns if turn.borrowed_prompt is not None]
    wished = [turn for turn in turns if turn.teacher_prompts]
    if not pleased or not wished:
        return []
    return [
        replace(
            turn,
            prompt_ids=turn.teacher_prompts[0]
            if turn.borrowed_prompt is None
            else turn.borrowed_prompt,
            signal=replace(turn.signal, hint_weight=0.0),
            teacher_prompts=(),
        )
        for turn in (*pleased, *wished)
    ]


def rise(turn: SignalledTurn, taught: Sequence[float]) -> float:
    """Return the mean of l_T - l_mu over the tokens that learn, l_T being given of these alone."""
    behaviour = np.asarray(turn.behaviour)[turn.signal.mask]
    return float(np.mean(np.asarray(taught) - behaviour))


def evidence(turns: Sequence[SignalledTurn], rises: Sequence[float]) -> float:
    """Return what hints of a step count, from 0 to 1.

    max(0, 2 P - 1), P being the share of pairs, of an answer that pleased and one that was wished
    otherwise, in which the teacher raises the former more (Mann and Whitney 1947); of equal ones
    half count.

    Args:
        turns: what ``under_hint`` returned, not empty.
        rises: ``rise`` of each.
    """
    raised = np.asarray(rises)
    if np.isnan(raised).any():
        return 1.0  # a loss that is not finite tells of it; nothing would hide it
    did_please = np.array([turn.borrowed_prompt is not None for turn in turns])
    difference = np.sign(raised[did_please][:, None] - raised[~did_please])
    return max(0.0, float(difference.mean()))


def weighed(turns: Sequence[SignalledTurn], share: float) -> list[SignalledTurn]:
    """Return the turns with hints that count so much of what they did."""
    return [_weighed(turn, turn.signal.hint_weight * share) for turn in turns]


def _weighed(turn: SignalledTurn, weight: float) -> SignalledTurn:
    signal = replace(turn.signal, hint_weight=weight)
    return replace(turn, signal=signal, teacher_prompts=turn.teacher_prompts if weight else ())
