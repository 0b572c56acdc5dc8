"""The LLM hint judge: several votes of a language model; a hint needs a majority of them all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rejoinder.config import LlmHintsConfig
from rejoinder.errors import JudgeError
from rejoinder.journal.base import HintMaker
from rejoinder.judge.asking import Prompts, ask, conversation_prompts
from rejoinder.judge.base import digest_of, fingerprint_of
from rejoinder.judge.completion import CallFailed, Completer
from rejoinder.judge.hints.base import HintFate, Hinting
from rejoinder.judge.hints.cleaning import MAX_SENTENCES, clean, within_bounds
from rejoinder.judge.hints.leak import copied_run, known_before, leaked_words
from rejoinder.judge.hints.parsing import HintVote, failed_hint_vote, parse_hint_vote
from rejoinder.judge.hints.prompts import RESPONSE_FORMAT, SYSTEM
from rejoinder.judge.hints.words import manner_stems, plain_stems, sentences_of, words_of
from rejoinder.judge.transcript import FORM
from rejoinder.types import Message

_CHECKS = 1
"""Part of the fingerprint; raised whenever other hints pass the checks."""


class LlmHintJudge:
    """Asks for ``config.votes`` votes at once and keeps all distinct hints. See ``HintJudge``."""

    def __init__(
        self, config: LlmHintsConfig, completer: Completer, special_tokens: Sequence[str] = ()
    ) -> None:
        """``special_tokens``: texts that the teacher's tokenizer turns into control ids."""
        self._config = config
        self._completer = completer
        self._special_tokens = tuple(special_tokens)
        fingerprint = fingerprint_of(
            "hints-llm",
            prompt=SYSTEM,
            transcript=FORM,
            form=RESPONSE_FORMAT if config.structured else None,
            model=completer.model_id,
            votes=config.votes,
            temperature=config.temperature,
            limits=(config.max_tokens, config.context_messages, config.max_chars),
            checks=_CHECKS,
            words=(sorted(plain_stems()), sorted(manner_stems())),
        )
        prompt = digest_of(prompt=SYSTEM, transcript=FORM)
        self._maker = HintMaker(fingerprint, config.kind, completer.model_id, prompt)

    @property
    def maker(self) -> HintMaker:
        """See ``HintJudge.maker``."""
        return self._maker

    async def hints(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Hinting:
        """See ``HintJudge.hints``."""
        started = time.monotonic()
        prompts = self._prompts(context, answer, next_state)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._vote(prompts)) for _ in range(self._config.votes)]
        votes = [task.result() for task in tasks]
        failed = tuple(vote.text for vote in votes if vote.accepts is None)
        why = no_majority(votes)
        if why is not None:
            detail = failed[-1] if why is HintFate.FAILED else ""
            return Hinting((), why, detail, time.monotonic() - started, failed)
        candidates = [vote.text for vote in votes if vote.accepts]
        hints, why, detail = await asyncio.to_thread(
            self._sound, candidates, context, answer, next_state
        )
        return Hinting(hints, why, detail, time.monotonic() - started, failed)

    def _prompts(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Prompts:
        return conversation_prompts(
            self._config, self._completer, SYSTEM, context, answer, next_state
        )

    async def _vote(self, prompts: Prompts) -> HintVote:
        try:
            completion = await ask(self._completer, prompts, self._config.max_chars)
        except CallFailed as error:
            return failed_hint_vote(error.code, error.detail)
        return parse_hint_vote(completion.text, completion.finish_reason)

    def _sound(
        self,
        candidates: Sequence[str],
        context: Sequence[Message],
        answer: Message,
        next_state: Sequence[Message],
    ) -> tuple[tuple[str, ...], HintFate | None, str]:
        """Return the distinct candidates that pass all checks; else why the last one did not."""
        known = known_before(context, answer)
        others = [message for message in next_state if message.role != "user"]
        sound: dict[tuple[str, ...], str] = {}
        why, detail = HintFate.BAD_LENGTH, ""
        for candidate in candidates:
            hint = clean(candidate, self._special_tokens)
            if not within_bounds(hint) or len(sentences_of(hint)) > MAX_SENTENCES:
                detail = detail or f"{len(hint)} characters, {len(sentences_of(hint))} sentences"
            elif leaked := leaked_words(hint, known):
                why, detail = HintFate.LEAK, f"only the next state knows: {', '.join(leaked)}"
            elif copied := copied_run(hint, others):
                why, detail = HintFate.LEAK, f"copies what no user wrote: {copied}"
            else:
                sound.setdefault(tuple(words_of(hint)), hint)
        return (tuple(sound.values()), None, "") if sound else ((), why, detail)

    async def check(self) -> None:
        """Ask for one vote on a made-up turn; see ``HintJudge.check``."""
        prompts = self._prompts(
            [Message("user", "What is the capital of France?")],
            Message("assistant", "1. Paris\n2. It is in the north of the country"),
            [Message("user", "No list, please. A short sentence would do.")],
        )
        vote = await self._vote(prompts)
        if vote.accepts is None:
            raise JudgeError(f"the LLM hint judge ({self._completer.model_id}): {vote.text}")

    async def close(self) -> None:
        """See ``HintJudge.close``."""
        await self._completer.close()


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
