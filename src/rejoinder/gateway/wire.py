"""Bytes of chat completions: whole bodies and server-sent events.

An event's constant part is made once per answer; per token only its text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import orjson
from tokenizers import Tokenizer

from rejoinder.chat.token_bytes import TokenBytes
from rejoinder.engine.base import ClientLogprob
from rejoinder.gateway.capture import AnswerCapture, Piece
from rejoinder.gateway.errors import ApiError
from rejoinder.types import Json

DONE = b"data: [DONE]\n\n"
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


def usage(answers: Sequence[AnswerCapture], prompt_tokens: int) -> Json:
    """Return the ``usage`` object: every sampled token counts, end tokens too."""
    completion = sum(len(answer.ids) for answer in answers)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt_tokens + completion,
        "prompt_tokens_details": {
            # Later answers of one request always find the prompt that the first one left.
            "cached_tokens": min((answer.cached_tokens for answer in answers), default=0)
        },
    }


class Completion:
    """Writes the answers of one request."""

    def __init__(
        self, id_: str, created: int, model: str, texts: TokenTexts, *, with_logprobs: bool
    ) -> None:
        self.id = id_
        self._created = created
        self._model = model
        self._texts = texts
        self._with_logprobs = with_logprobs
        self._heads: dict[int, bytes] = {}
        self._tail = b""

    def start(self, choices: int, fingerprint: str, *, with_usage: bool) -> None:
        """Prepare the constant parts of a stream's events."""
        common = self._common("chat.completion.chunk", fingerprint)
        head = b"data: " + orjson.dumps(common)[:-1] + b',"choices":[{"index":'
        self._heads = {i: head + b'%d,"delta":{"content":' % i for i in range(choices)}
        # Where usage is asked for, every event but the last says that it has none.
        self._tail = b"}]" + (b',"usage":null}\n\n' if with_usage else b"}\n\n")

    def _common(self, kind: str, fingerprint: str) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": fingerprint,
        }

    def role_event(self, choice: int) -> bytes:
        """Return an answer's first event."""
        role = b'"","role":"assistant"},"logprobs":null,"finish_reason":null'
        return self._heads[choice] + role + self._tail

    def piece_event(self, choice: int, piece: Piece) -> bytes:
        """Return the event of one piece; empty where there is nothing to tell."""
        if piece.logprobs:
            entries = self._texts.entries(piece.ids, piece.logprobs)
            logprobs = b'},"logprobs":' + orjson.dumps({"content": entries, "refusal": None})
        elif piece.text:
            logprobs = b'},"logprobs":null'
        else:
            return b""
        text = orjson.dumps(piece.text) + logprobs
        return self._heads[choice] + text + b',"finish_reason":null' + self._tail

    def finish_event(self, answer: AnswerCapture, *, recorded: bool) -> bytes:
        """Return an answer's last event."""
        head = self._heads[answer.choice].removesuffix(b'"content":')
        reason = b'},"logprobs":null,"finish_reason":%b' % orjson.dumps(answer.finish_reason)
        tail = self._tail if recorded else b'}],"recorded":false' + self._tail[2:]
        return head + reason + tail

    def usage_event(self, fingerprint: str, figures: Json) -> bytes:
        """Return the event with the usage and no choices."""
        common = self._common("chat.completion.chunk", fingerprint)
        return b"data: " + orjson.dumps({**common, "choices": [], "usage": figures}) + b"\n\n"

    def whole(
        self, answers: Sequence[AnswerCapture], fingerprint: str, figures: Json, extra: Json
    ) -> bytes:
        """Return the body of a response that is not streamed."""
        body = self._common("chat.completion", fingerprint)
        body["choices"] = [self._choice(answer) for answer in answers]
        body["usage"] = figures
        return orjson.dumps(body | extra)

    def _choice(self, answer: AnswerCapture) -> Json:
        logprobs: Any = None
        if self._with_logprobs:
            entries = self._texts.entries(answer.ids, answer.client)
            logprobs = {"content": entries, "refusal": None}
        return {
            "index": answer.choice,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": logprobs,
            "finish_reason": answer.finish_reason,
        }


def error_event(error: ApiError) -> bytes:
    """Return the event that ends a stream whose answer failed; no [DONE] follows."""
    return b"data: " + error.body() + b"\n\n"
