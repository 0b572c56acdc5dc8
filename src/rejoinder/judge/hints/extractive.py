"""The extractive hint judge: the person's own directive, turned into an instruction. No model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rejoinder.chat.client_context import own_words
from rejoinder.journal.records import HintMaker
from rejoinder.judge.base import digest_of, fingerprint_of
from rejoinder.judge.hints.base import HintFate, Hinting
from rejoinder.judge.hints.cleaning import MAX_CHARS, clean, within_bounds
from rejoinder.judge.hints.directives import read_directives
from rejoinder.judge.hints.leak import known_before
from rejoinder.judge.hints.phrasebook import source
from rejoinder.judge.hints.spoken import spoken_sentences, without_tagged
from rejoinder.judge.hints.words import manner_stems, plain_stems
from rejoinder.types import Json, Message

_FORM = 5
"""Part of the fingerprint; raised whenever the code gives other hints for the same words."""
_LONGEST_READ = 4000
"""Characters that are read, all messages together; what a person says of an answer is short."""


class ExtractiveHintJudge:
    """Reads the users' messages of the next state and nothing else of it (rule 6).

    It gives at most one hint. See ``HintJudge``.
    """

    def __init__(self, special_tokens: Sequence[str] = ()) -> None:
        """``special_tokens``: texts that the teacher's tokenizer turns into control ids."""
        self._special_tokens = tuple(special_tokens)
        rules: Json = {
            "form": _FORM,
            "phrases": source(),
            "plain": sorted(plain_stems()),
            "manner": sorted(manner_stems()),
        }
        fingerprint = fingerprint_of("hints-extractive", **rules)
        self._maker = HintMaker(fingerprint, "extractive", None, digest_of(**rules))

    @property
    def maker(self) -> HintMaker:
        """See ``HintJudge.maker``."""
        return self._maker

    async def hints(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Hinting:
        """See ``HintJudge.hints``."""
        return await asyncio.to_thread(self.read, context, answer, next_state)

    def read(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Hinting:
        """Return the hints at once; see ``HintJudge.hints``."""
        started = time.monotonic()
        sentences = list(spoken_sentences(_own_text(next_state), self._special_tokens))
        findings = read_directives(sentences, known_before(context, answer))
        hint = clean(findings.hint(), self._special_tokens)
        seconds = time.monotonic() - started
        if within_bounds(hint):
            return Hinting((hint,), seconds=seconds)
        if findings.leaked:
            detail = f"only the next state knows: {', '.join(dict.fromkeys(findings.leaked))}"
            return Hinting((), HintFate.LEAK, detail[:MAX_CHARS], seconds)
        if findings.too_long:
            detail = f"the instruction is longer than {MAX_CHARS} characters"
            return Hinting((), HintFate.BAD_LENGTH, detail, seconds)
        if findings.beyond:
            detail = f"the rules do not read: {findings.beyond[0]}"
            return Hinting((), HintFate.BEYOND_RULES, detail[:MAX_CHARS], seconds)
        return Hinting((), HintFate.NOTHING_SAID, "no words about manner", seconds)

    async def check(self) -> None:
        """Nothing to try: it calls nobody."""

    async def close(self) -> None:
        """Nothing to release."""


def _own_text(next_state: Sequence[Message]) -> str:
    """Return what users wrote themselves, within one budget for all their messages."""
    left, said = _LONGEST_READ, list[str]()
    for message in next_state:
        if message.role == "user" and left > 0:
            text = without_tagged(own_words(message))
            said.append(_head(text, left))
            left -= len(text)
    return "\n".join(said)


def _head(text: str, limit: int) -> str:
    """Return whole sentences from the beginning; behind a gap it is unknown whose words follow."""
    if len(text) <= limit:
        return text
    end = max(text.rfind(mark, 0, limit) for mark in ".!?\n")
    return text[: end + 1]
