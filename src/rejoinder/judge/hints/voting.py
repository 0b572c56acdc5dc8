"""Votes on hints become hints: a majority of all that were asked for, then the checks of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rejoinder.judge.hints.base import HintFate, Hinting
from rejoinder.judge.hints.cleaning import MAX_SENTENCES, clean, within_bounds
from rejoinder.judge.hints.leak import copied_run, known_before, leaked_words
from rejoinder.judge.hints.parsing import HintVote
from rejoinder.judge.hints.words import manner_stems, plain_stems, sentences_of, words_of
from rejoinder.types import Json, Message

_CHECKS = 2
"""Part of fingerprints; raised whenever other hints pass the checks."""


def checks_of_hints() -> Json:
    """Return what fingerprints have to follow of the checks."""
    return {"checks": _CHECKS, "words": (sorted(plain_stems()), sorted(manner_stems()))}


async def hinting_of(
    votes: Sequence[HintVote],
    context: Sequence[Message],
    answer: Message,
    next_state: Sequence[Message],
    special_tokens: Sequence[str],
    started: float,
) -> Hinting:
    """Return what votes come to; ``started`` is of the monotonic clock."""
    failed = tuple(vote.text for vote in votes if vote.accepts is None)
    why = no_majority(votes)
    if why is not None:
        detail = failed[-1] if why is HintFate.FAILED else ""
        return Hinting((), why, detail, time.monotonic() - started, failed)
    candidates = [vote.text for vote in votes if vote.accepts]
    hints, why, detail = await asyncio.to_thread(
        _sound, candidates, context, answer, next_state, special_tokens
    )
    return Hinting(hints, why, detail, time.monotonic() - started, failed)


def no_majority(votes: Sequence[HintVote]) -> HintFate | None:
    """Return why the votes accept no hint; None where more than half of them all accept.

    Failed votes count for neither side: where they could have made a majority, nothing is decided.
    """
    accepts = sum(vote.accepts is True for vote in votes)
    failed = sum(vote.accepts is None for vote in votes)
    if 2 * accepts > len(votes):
        return None
    if failed and 2 * (accepts + failed) > len(votes):
        return HintFate.FAILED
    return HintFate.NO_MAJORITY if accepts else HintFate.NOTHING_SAID


def _sound(
    candidates: Sequence[str],
    context: Sequence[Message],
    answer: Message,
    next_state: Sequence[Message],
    special_tokens: Sequence[str],
) -> tuple[tuple[str, ...], HintFate | None, str]:
    """Return the distinct candidates that pass all checks; else why the last one did not."""
    known = known_before(context, answer)
    others = [message for message in next_state if message.role != "user"]
    sound: dict[tuple[str, ...], str] = {}
    why, detail = HintFate.BAD_LENGTH, ""
    for candidate in candidates:
        hint = clean(candidate, special_tokens)
        if not within_bounds(hint) or len(sentences_of(hint)) > MAX_SENTENCES:
            detail = detail or f"{len(hint)} characters, {len(sentences_of(hint))} sentences"
        elif leaked := leaked_words(hint, known):
            why, detail = HintFate.LEAK, f"only the next state knows: {', '.join(leaked)}"
        elif copied := copied_run(hint, others):
            why, detail = HintFate.LEAK, f"copies what no user wrote: {copied}"
        else:
            sound.setdefault(tuple(words_of(hint)), hint)
    return (tuple(sound.values()), None, "") if sound else ((), why, detail)
