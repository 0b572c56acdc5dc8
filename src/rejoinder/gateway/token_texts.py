"""Log-probabilities of tokens with their text, as OpenAI's APIs write them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tokenizers import Tokenizer

from rejoinder.chat.token_bytes import TokenBytes
from rejoinder.engine.base import ClientLogprob
from rejoinder.types import Json

LOWEST_LOGPROB = -9999.0
"""What JSON gets in place of minus infinity or NaN, as OpenAI writes it."""


class TokenTexts:
    """Log-probability entries in the API's form."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._bytes = TokenBytes(tokenizer)

    def entries(self, ids: Sequence[int], logprobs: Sequence[ClientLogprob]) -> list[Json]:
        """Return one entry per sampled token, the end token's included."""
        return [
            self._entry(id_, item.logprob)
            | {"top_logprobs": [self._entry(other, value) for other, value in item.top]}
            for id_, item in zip(ids, logprobs, strict=True)
        ]

    def _entry(self, id_: int, logprob: float) -> Json:
        data = self._bytes[id_]
        return {
            "token": data.decode("utf-8", "replace"),
            "logprob": logprob if math.isfinite(logprob) else LOWEST_LOGPROB,
            "bytes": list(data),
        }
