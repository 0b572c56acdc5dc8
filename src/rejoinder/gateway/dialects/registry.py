"""The dialects that a gateway speaks."""

from __future__ import annotations

from rejoinder.gateway.dialects.base import Counting, Dialect
from rejoinder.gateway.dialects.chat import ChatCompletions
from rejoinder.gateway.dialects.completions import Completions
from rejoinder.gateway.dialects.messages import CountTokens, Messages
from rejoinder.gateway.dialects.responses import Responses
from rejoinder.gateway.token_texts import TokenTexts


def dialects(texts: TokenTexts) -> tuple[Dialect, ...]:
    """Return all of them."""
    return (ChatCompletions(texts), Responses(texts), Messages(), Completions(texts))


def countings() -> tuple[Counting, ...]:
    """Return those in which the tokens of a prompt can be counted."""
    return (CountTokens(),)
