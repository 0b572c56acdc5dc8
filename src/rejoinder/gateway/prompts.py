"""Prompt ids without ever stalling the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rejoinder.chat.renderer import Renderer
from rejoinder.errors import ContextLengthExceeded
from rejoinder.types import Json, Message

RENDER_INLINE_CHARS = 262_144
"""Conversations up to here are rendered on the loop (a millisecond): handing over costs more."""
MESSAGE_CHARS = 1_024
"""What rendering one more message costs, in characters."""
ENCODE_INLINE_CHARS = 2_048
"""Text not seen before up to here is tokenised on the loop (about half a millisecond)."""


class PromptMaker:
    """Renders and tokenises: short work at once, long work in a small thread pool."""

    def __init__(self, renderer: Renderer, threads: ThreadPoolExecutor, longest_token: int) -> None:
        """``longest_token``: characters of the vocabulary's longest token."""
        self._renderer = renderer
        self._threads = threads
        self._longest_token = longest_token

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
        if len(prompt.text) > context_length * self._longest_token:
            # Seconds of work for nothing, which other long prompts would have to wait for.
            raise ContextLengthExceeded(
                f"the messages have {len(prompt.text)} characters, more than any text of this "
                f"model's context of {context_length} tokens: shorten them"
            )
        if prompt.unknown_chars > ENCODE_INLINE_CHARS:
            return await loop.run_in_executor(self._threads, prompt.ids)
        return prompt.ids()


def _size(messages: Sequence[Message]) -> int:
    """Return how much work rendering is, in characters."""
    size = MESSAGE_CHARS * len(messages)
    for message in messages:
        size += len(message.content) + len(message.reasoning or "")
        size += sum(len(call.arguments) for call in message.tool_calls)
    return size
