"""The renderer seam: messages and tools to the exact prompt ids. One renderer per model family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from jinja2.exceptions import TemplateError

from rejoinder.chat.messages import for_template
from rejoinder.chat.plainer import plainer_forms
from rejoinder.chat.segments import Pieces, SegmentTokenizer
from rejoinder.chat.template import compile_template
from rejoinder.errors import ConfigError, InvalidRequest
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Json, Message

RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
"""Template arguments that the renderer itself gives."""


class Prompt(Protocol):
    """A rendered prompt whose ids may still have to be made."""

    @property
    def text(self) -> str:
        """The prompt as text, special tokens written out."""
        ...

    @property
    def unknown_chars(self) -> int:
        """Characters that have to be tokenised; 0 where all is known already."""
        ...

    def ids(self) -> list[int]:
        """[P] the prompt's ids. Safe from any thread."""
        ...


class Renderer(Protocol):
    """Renders whole conversations; never one message alone, for templates look around."""

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Json] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Render a conversation up to the place where the answer begins. Safe from any thread.

        Args:
            messages: normalised messages.
            tools: tool definitions as the client sent them.
            options: further template arguments (``chat_template_kwargs``).

        Raises:
            InvalidRequest: the template refuses these messages or options.
        """
        ...


@dataclass(frozen=True, slots=True)
class TemplatePrompt:
    """A prompt that a chat template made."""

    text: str
    pieces: Pieces
    tokenizer: SegmentTokenizer

    @property
    def unknown_chars(self) -> int:
        """See ``Prompt``."""
        return self.pieces.unknown_chars

    def ids(self) -> list[int]:
        """See ``Prompt``."""
        return self.tokenizer.encode(self.pieces)


class ChatTemplateRenderer:
    """Renders with the chat template of the model's files, as ``apply_chat_template`` does."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        """Compile the template.

        Raises:
            ConfigError: the model has no chat template.
        """
        if tokenizer.chat_template is None:
            raise ConfigError(
                f"model.path: {tokenizer.path} has no chat template (chat_template.jinja); "
                "use the model's instruct variant, or add its template"
            )
        self._template = compile_template(tokenizer.chat_template)
        self._special_tokens = tokenizer.special_tokens
        self._tokenizer = SegmentTokenizer(tokenizer)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Json] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> TemplatePrompt:
        """See ``Renderer.render``."""
        if options and not RESERVED.isdisjoint(options):
            names = ", ".join(sorted(RESERVED & options.keys()))
            raise InvalidRequest(f"chat_template_kwargs cannot set {names}")
        arguments: Json = {**self._special_tokens, **(options or {})}
        try:
            text = self._text(messages, list(tools) if tools else None, arguments)
        # The template's text meets what a client sent: its faults are faults of the request.
        except (
            TemplateError,
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
            ArithmeticError,
        ) as error:
            raise InvalidRequest(f"the chat template refuses the messages: {error}") from error
        return TemplatePrompt(text, self._tokenizer.cut(text), self._tokenizer)

    def _text(self, messages: Sequence[Message], tools: list[Json] | None, arguments: Json) -> str:
        """Fill the template; where it refuses the roles, with the same texts in a plainer form."""
        try:
            return self._filled(messages, tools, arguments)
        except TemplateError:
            for form in plainer_forms(messages):
                with suppress(TemplateError):
                    return self._filled(form, tools, arguments)
            raise

    def _filled(
        self, messages: Sequence[Message], tools: list[Json] | None, arguments: Json
    ) -> str:
        return self._template(
            messages=[for_template(message) for message in messages],
            tools=tools,
            documents=None,
            add_generation_prompt=True,
            **arguments,
        )
