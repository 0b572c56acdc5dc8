r"""Reading the verdict out of what an LLM judge wrote. Only the judge's own output is parsed.

Regression: a judge that was cut off while it quoted its instructions (``I must answer \boxed{1}
or \boxed{-1}; the user``) was read as a verdict of -1. Nothing before the end of thinking counts
here, and an output that was cut off is no vote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rejoinder.judge.voting import failed_vote
from rejoinder.types import FinishReason, Json, Vote

_THINK_OPEN = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\text\s*\{)?\s*([+\-−]?\s*[01])\s*\}", re.IGNORECASE)
_MAX_REASON = 500
LONGEST = 8000
"""Characters at the end of an output that are searched for the verdict."""


def parse_vote(text: str, finish_reason: str | None) -> Vote:
    """Return the vote in a judge's output, or a failed vote that says why there is none."""
    if finish_reason == FinishReason.LENGTH:
        return failed_vote("cut_off", "the judge reached max_tokens; raise judge.max_tokens")
    answer = after_thinking(text)
    if answer is None:
        return failed_vote("cut_off", "the judge ended inside its thinking")
    answer = answer[-LONGEST:]
    return _json_vote(answer) or _boxed_vote(answer) or failed_vote("unparsable", answer[:200])


def after_thinking(text: str) -> str | None:
    """Return what follows the last end of thinking; None if a thought is still open."""
    *_, rest = _THINK_CLOSE.split(text)
    return None if _THINK_OPEN.search(rest) else rest


def _json_vote(text: str) -> Vote | None:
    """Return the vote of the last well-formed object with a valid score."""
    found: Vote | None = None
    for value in json_objects(text):
        score = _score(value.get("score"))
        if score is not None:
            reason = value.get("reason")
            found = Vote(score, reason[:_MAX_REASON] if isinstance(reason, str) else "")
    return found


def json_objects(text: str) -> Iterator[Json]:
    """Yield the well-formed JSON objects in a text, outermost ones only."""
    decoder = json.JSONDecoder()
    position = 0
    while (position := text.find("{", position)) >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):  # an integer may have too many digits for Python
            position += 1
            continue
        position = end
        yield value


def _boxed_vote(text: str) -> Vote | None:
    boxed = _BOXED.findall(text)
    score = _score(boxed[-1]) if boxed else None
    return None if score is None else Vote(score, text.strip()[:_MAX_REASON])


def _score(value: object) -> int | None:
    """Return a score of -1, 0 or 1; numbers and numerals only, nothing is rounded."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        numeral = value.replace("−", "-").replace(" ", "")
        return {"1": 1, "+1": 1, "0": 0, "-1": -1}.get(numeral)
    if isinstance(value, int | float) and value in (-1, 0, 1):
        return int(value)
    return None
