"""Prompt ids without ever stalling the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rejoinder.chat.renderer import Renderer
from rejoinder.types import Json, Message

RENDER_INLINE_CHARS = 262_144
"""Conversations up to here are rendered on the loop (a millisecond): handing over costs more."""
MESSAGE_CHARS = 1_024
"""What rendering one more message costs, in characters."""
ENCODE_INLINE_CHARS = 2_048
"""Text not seen before up to here is tokenised on the loop (about half a millisecond)."""


class PromptMaker:
    """Renders and tokenises: short work at once, long work in a small thread pool."""

    def __init__(self, renderer: Renderer, threads: ThreadPoolExecutor) -> None:
        self._renderer = renderer
        self._threads = threads

    async def ids(
        self,
        messages: Sequence[Message],
        tools: Sequence[Json] | None,
        options: Mapping[str, Any] | None,
    ) -> list[int]:
        """Return the prompt's ids.

        Raises:
            InvalidRequest: the template refuses the messages.
        """
        loop = asyncio.get_running_loop()
        if tools or _size(messages) > RENDER_INLINE_CHARS:
            return await loop.run_in_executor(
                self._threads, lambda: self._renderer.render(messages, tools, options).ids()
            )
        prompt = self._renderer.render(messages, tools, options)
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
