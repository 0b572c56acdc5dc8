"""Prompt ids without ever stalling the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rejoinder.chat.renderer import Renderer
from rejoinder.errors import ContextLengthExceeded
from rejoinder.gateway.errors import ApiError
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Json, Message

RENDER_INLINE_CHARS = 262_144
"""Conversations up to here are rendered on the loop (a millisecond): handing over costs more."""
MESSAGE_CHARS = 1_024
"""What rendering one more message costs, in characters."""
ENCODE_INLINE_CHARS = 2_048
"""Text not seen before up to here is tokenised on the loop (about half a millisecond)."""


class PromptMaker:
    """Renders and tokenises: short work at once, long work in a small thread pool."""

    def __init__(
        self, renderer: Renderer, tokenizer: ModelTokenizer, threads: ThreadPoolExecutor
    ) -> None:
        self._renderer = renderer
        self._tokenizer = tokenizer
        self._threads = threads
        self._longest_token = max(map(len, tokenizer.tokenizer.get_vocab()))

    async def ids(
        self,
        messages: Sequence[Message],
        tools: Sequence[Json] | None,
        options: Mapping[str, Any] | None,
        context_length: int,
    ) -> list[int]:
        """Return the prompt's ids.

        Raises:
            InvalidRequest: the template refuses the messages.
            ContextLengthExceeded: no tokenizing is needed to see that they cannot fit.
        """
        loop = asyncio.get_running_loop()
        if tools or _size(messages) > RENDER_INLINE_CHARS:
            prompt = await loop.run_in_executor(
                self._threads, self._renderer.render, messages, tools, options
            )
        else:
            prompt = self._renderer.render(messages, tools, options)
        self._check_length(prompt.text, context_length)
        if prompt.unknown_chars > ENCODE_INLINE_CHARS:
            return await loop.run_in_executor(self._threads, prompt.ids)
        return prompt.ids()

    async def raw_ids(self, prompt: str | Sequence[int], context_length: int) -> list[int]:
        """Return the ids of a prompt that no template renders, with the model's opening token.

        Raises:
            ApiError: 400, an id that the vocabulary lacks.
            ContextLengthExceeded: as ``ids`` does.
        """
        if not isinstance(prompt, str):
            size = self._tokenizer.vocab_size
            if any(not 0 <= id_ < size for id_ in prompt):
                text = f"token ids of a prompt must be 0 to {size - 1}"
                raise ApiError(400, "invalid_value", text, "prompt")
            return list(prompt)
        self._check_length(prompt, context_length)
        if len(prompt) <= ENCODE_INLINE_CHARS:
            return self._tokenizer.encode_document(prompt)
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, self._tokenizer.encode_document, prompt
        )

    def _check_length(self, text: str, context_length: int) -> None:
        if len(text) > context_length * self._longest_token:
            # Seconds of work for nothing, which other long prompts would have to wait for.
            raise ContextLengthExceeded(
                f"the prompt has {len(text)} characters, more than any text of this model's "
                f"context of {context_length} tokens: shorten it"
            )


def _size(messages: Sequence[Message]) -> int:
    """Return how much work rendering is, in characters."""
    size = MESSAGE_CHARS * len(messages)
    for message in messages:
        size += len(message.content) + len(message.reasoning or "")
        size += sum(len(call.arguments) for call in message.tool_calls)
    return size
