"""Completions from the engine's own start weights: a judge without any endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.config import LlmVotesConfig
from rejoinder.engine.base import GenerateRequest
from rejoinder.errors import (
    ContextLengthExceeded,
    EngineBusy,
    EngineError,
    EngineTimeout,
    EngineUnavailable,
    InvalidRequest,
)
from rejoinder.judge.base import JudgeSetting
from rejoinder.judge.completion import CallFailed, Completion, PromptTooLong
from rejoinder.judge.voting import BUSY, UNREACHABLE
from rejoinder.types import BASE_VERSION, FinishReason, Message, Sampling, new_id

JUDGE_PRIORITY = 10
"""People go first (``GenerateRequest.priority``)."""


def call_failed(error: EngineError) -> CallFailed:
    """Return an engine's error as a failed call."""
    if isinstance(error, EngineUnavailable):
        return CallFailed(UNREACHABLE, str(error))
    if isinstance(error, EngineBusy):
        return CallFailed(BUSY, str(error))
    if isinstance(error, EngineTimeout):
        return CallFailed("timeout", str(error))
    if isinstance(error, ContextLengthExceeded):
        return PromptTooLong(str(error))
    return CallFailed(error.code, str(error))


class EngineCompleter:
    """Samples from version 0 of the policy, however far the live version is. See ``Completer``."""

    def __init__(self, setting: JudgeSetting, config: LlmVotesConfig) -> None:
        self._setting = setting
        self._config = config
        self._renderer = ChatTemplateRenderer(setting.tokenizer)
        self._slots = asyncio.Semaphore(config.concurrency)

    @property
    def model_id(self) -> str:
        """See ``Completer.model_id``."""
        return self._setting.model_id

    @property
    def special_tokens(self) -> Sequence[str]:
        """See ``Completer.special_tokens``."""
        return self._setting.tokenizer.special_texts

    async def complete(self, messages: Sequence[Message]) -> Completion:
        """See ``Completer.complete``; cancelling frees the engine's slot."""
        request = GenerateRequest(
            request_id=new_id(),
            prompt_ids=await asyncio.to_thread(self._prompt_ids, messages),
            sampling=Sampling(self._config.max_tokens, self._config.temperature),
            policy=self._setting.policy,
            version=BASE_VERSION,
            deadline_s=self._config.timeout_s,
            priority=JUDGE_PRIORITY,
            whole=True,
        )
        ids: list[int] = []
        reason: FinishReason | None = None
        async with self._slots, aclosing(self._setting.engine.generate(request)) as chunks:
            try:
                async for chunk in chunks:
                    ids += chunk.ids
                    reason = chunk.finish_reason or reason
            except EngineError as error:
                raise call_failed(error) from error
        return Completion(self._setting.tokenizer.decode(ids), reason)

    def _prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        try:
            return self._renderer.render(messages).ids()
        except InvalidRequest as error:  # a template without system messages, say
            raise CallFailed("bad_prompt", str(error)) from error

    async def close(self) -> None:
        """The engine belongs to the caller."""
