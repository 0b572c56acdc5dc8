"""The LLM hint judge: several votes of a language model; a hint needs a majority of them all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rejoinder.config import LlmHintsConfig
from rejoinder.errors import JudgeError
from rejoinder.journal.records import HintMaker
from rejoinder.judge.asking import Prompts, ask, conversation_prompts
from rejoinder.judge.base import digest_of, fingerprint_of
from rejoinder.judge.completion import CallFailed, Completer
from rejoinder.judge.hints.base import Hinting
from rejoinder.judge.hints.parsing import HintVote, failed_hint_vote, parse_hint_vote
from rejoinder.judge.hints.prompts import RESPONSE_FORMAT, SYSTEM
from rejoinder.judge.hints.voting import checks_of_hints, hinting_of
from rejoinder.judge.transcript import FORM
from rejoinder.types import Message


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
            **checks_of_hints(),
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
        return await hinting_of(votes, context, answer, next_state, self._special_tokens, started)

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
