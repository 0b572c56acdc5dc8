"""Votes become a verdict: majority with quorum. Failed votes never count as neutral (rule 5)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rejoinder.types import Fate, Judgement, Vote

UNREACHABLE = "unreachable"
"""Failure code of a call to an engine or endpoint that is not there at all."""
BUSY = "busy"
"""Failure code of a call that a full engine did not take."""
NOT_ASKED = Judgement(None, (), "", Fate.NO_SIGNAL)
"""What an algorithm is told where no judge was asked; no verdict, and never stored as one."""
_OVERLOADED = {"http_429", "http_502", "http_503", "http_504"}
"""Failure codes of an endpoint that is away or full, as it or the proxy before it says."""


def failed_vote(code: str, detail: str = "") -> Vote:
    """Return a vote without a score; ``code`` is short and countable, ``detail`` is for people."""
    return Vote(score=None, reason=f"{code}: {detail}" if detail else code)


def failure_code(vote: Vote) -> str:
    """Return the countable part of a failed vote's reason."""
    return vote.reason.partition(":")[0]


def malformed(judgement: object) -> Vote | None:
    """Return a failed vote for what breaks ``Judgement``'s rules; None for a sound judgement.

    A judge of another package may return anything, and what it returns is stored and learnt from.
    """
    if not isinstance(judgement, Judgement):
        return failed_vote("bad_judgement", f"a {type(judgement).__name__} is no Judgement")
    score, why, votes = judgement.score, judgement.why, judgement.votes
    if not isinstance(votes, tuple | list) or not all(map(_sound, votes)):
        return failed_vote("bad_judgement", "votes must be a tuple of Vote with texts as reasons")
    for value in (score, *(vote.score for vote in votes)):
        if value is not None and (type(value) is not int or value not in (-1, 0, 1)):
            return failed_vote("bad_score", f"{value!r} is none of -1, 0, 1, None")
    if not (isinstance(why, Fate) if score is None else why is None):
        return failed_vote("bad_score", f"score {score!r} with why {why!r}: set exactly one")
    if not isinstance(judgement.fingerprint, str):
        return failed_vote("bad_judgement", f"the fingerprint {judgement.fingerprint!r} is no text")
    if not isinstance(judgement.seconds, int | float) or not math.isfinite(judgement.seconds):
        return failed_vote("bad_judgement", f"seconds {judgement.seconds!r} is no finite number")
    return None


def _sound(vote: object) -> bool:
    return isinstance(vote, Vote) and isinstance(vote.reason, str)


def failures(judgement: Judgement) -> list[Vote]:
    """Return the votes that a failed call left without a score; *unsure* is not a failure."""
    if judgement.why is Fate.JUDGE_UNSURE:
        return []
    return [vote for vote in judgement.votes if vote.score is None]


def verdict(votes: Sequence[Vote], quorum: int) -> tuple[int | None, Fate | None]:
    """Return (score, None), or (None, why there is none).

    The score needs more than half of the votes that succeeded, and these must be at least
    ``quorum``. A tie is no verdict.
    """
    scores = [vote.score for vote in votes if vote.score is not None]
    if not scores:
        return None, Fate.JUDGE_FAILED
    score, count = Counter(scores).most_common(1)[0]
    if len(scores) < quorum or 2 * count <= len(scores):
        return None, Fate.NO_QUORUM
    return score, None


def another_attempt_may_help(judgement: Judgement) -> bool:
    """Whether calls failed and there is no verdict; a tie or *unsure* would only repeat."""
    return judgement.score is None and bool(failures(judgement))


def nothing_was_tried(judgement: Judgement) -> bool:
    """Whether there is no verdict only because no call was taken: wait, and count no attempt."""
    codes = _codes(judgement)
    return judgement.score is None and bool(codes) and codes <= _OVERLOADED | {UNREACHABLE, BUSY}


def its_own_fault_is_possible(judgement: Judgement) -> bool:
    """Whether the endpoint may have failed at this one prompt, and could judge another."""
    return bool(_codes(judgement) & _OVERLOADED)


def _codes(judgement: Judgement) -> set[str]:
    return {failure_code(vote) for vote in failures(judgement)}
