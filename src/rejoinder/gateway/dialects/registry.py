"""The dialects that a gateway speaks."""

from __future__ import annotations

from rejoinder.gateway.dialects.base import Dialect
from rejoinder.gateway.dialects.chat import ChatCompletions
from rejoinder.gateway.dialects.completions import Completions
from rejoinder.gateway.dialects.responses import Responses
from rejoinder.gateway.token_texts import TokenTexts


def dialects(texts: TokenTexts) -> tuple[Dialect, ...]:
    """Return all of them. The first one's form is also that of errors on other paths."""
    return (ChatCompletions(texts), Responses(texts), Completions(texts))
