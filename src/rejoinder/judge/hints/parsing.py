"""Reading a vote on hints out of what a language model wrote. Only its own output is parsed."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.judge.hints.prompts import PLACEHOLDERS
from rejoinder.judge.hints.words import words_of
from rejoinder.judge.parsing import LONGEST, after_thinking, json_objects
from rejoinder.judge.voting import failed_vote
from rejoinder.types import FinishReason

_WORDS = {"true": True, "yes": True, "accept": True, "false": False, "no": False, "reject": False}

_PLACEHOLDERS = [words_of(text) for text in PLACEHOLDERS]
"""Small models give the form back that they were to fill in."""


@dataclass(frozen=True, slots=True)
class HintVote:
    """One call: a hint, a rejection, or the reason there is neither."""

    accepts: bool | None
    """None for a failed vote."""
    text: str = ""
    """The hint of a vote that accepts, the reason of one that failed. Untrusted text."""


def failed_hint_vote(code: str, detail: str = "") -> HintVote:
    """Return a failed vote; ``code`` is short and countable, ``detail`` is for people."""
    return HintVote(None, failed_vote(code, detail).reason)


def parse_hint_vote(text: str, finish_reason: str | None) -> HintVote:
    """Return the vote in an output: its last well-formed object that accepts or rejects."""
    if finish_reason == FinishReason.LENGTH:
        return failed_hint_vote("cut_off", "the judge reached max_tokens; raise hints.max_tokens")
    answer = after_thinking(text)
    if answer is None:
        return failed_hint_vote("cut_off", "the judge ended inside its thinking")
    answer = answer[-LONGEST:]
    found = failed_hint_vote("unparsable", answer[:200])
    for value in json_objects(answer):
        accepts = _boolean(value.get("accept"))
        hint = value.get("hint")
        if accepts is False:
            found = HintVote(False)
        elif accepts and isinstance(hint, str) and _says_something(hint):
            found = HintVote(True, hint)
        elif accepts:
            found = failed_hint_vote("no_hint", "accepted without saying anything")
    return found


def parse_hint_beside_score(text: str, finish_reason: str | None) -> HintVote:
    """Return the vote on a hint in an output that scores too: its last object with a hint.

    A hint that says nothing, or null, rejects.
    """
    if finish_reason == FinishReason.LENGTH:
        return failed_hint_vote("cut_off", "the judge reached max_tokens; raise judge.max_tokens")
    answer = after_thinking(text)
    if answer is None:
        return failed_hint_vote("cut_off", "the judge ended inside its thinking")
    answer = answer[-LONGEST:]
    found = failed_hint_vote("unparsable", answer[:200])
    for value in json_objects(answer):
        match value:
            case {"hint": str(hint)}:
                found = HintVote(True, hint) if _says_something(hint) else HintVote(False)
            case {"hint": None}:
                found = HintVote(False)
    return found


def _says_something(hint: str) -> bool:
    """Whether a hint has words, and not those that the prompt has in its place."""
    return bool(words_of(hint)) and words_of(hint) not in _PLACEHOLDERS


def _boolean(value: object) -> bool | None:
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower())
    return value if isinstance(value, bool) else None
