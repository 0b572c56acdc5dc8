"""Bytes of legacy completions: whole bodies and server-sent events."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import orjson

from rejoinder.chat.families.events import ContentDelta
from rejoinder.engine.base import ClientLogprob
from rejoinder.gateway.capture import AnswerCapture, Piece
from rejoinder.gateway.dialects.base import Opened
from rejoinder.gateway.dialects.chat_writer import DONE, usage
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.types import Json


class Logprobs:
    """The legacy form of one answer's log-probabilities; offsets go on from piece to piece."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def of(self, ids: Sequence[int], logprobs: Sequence[ClientLogprob]) -> Json:
        """Return the form of these tokens: lists of the same length."""
        made: Json = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for entry in self._texts.entries(ids, logprobs):
            made["tokens"].append(_name(entry))
            made["token_logprobs"].append(entry["logprob"])
            best = {_name(other): other["logprob"] for other in entry["top_logprobs"]}
            made["top_logprobs"].append(best | {_name(entry): entry["logprob"]})
            made["text_offset"].append(self._offset)
            self._offset += len(self._characters.decode(bytes(entry["bytes"])))
        return made


def _name(entry: Json) -> str:
    """Return a token's text; part of a character is written in bytes, as OpenAI does."""
    try:
        return bytes(entry["bytes"]).decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in entry["bytes"])


class CompletionWriter:
    """See ``Writer``. A stream's events have the form of whole bodies."""

    def __init__(
        self,
        opened: Opened,
        texts: TokenTexts,
        *,
        prompts: int,
        with_logprobs: bool,
        with_usage: bool,
    ) -> None:
        self._opened = opened
        self._prompts = prompts
        self._with_usage = with_usage
        self._fingerprint = ""
        self._logprobs = [Logprobs(texts) if with_logprobs else None for _ in opened.answers]

    def begin(self, fingerprint: str) -> bytes:
        """See ``Writer.begin``; a stream begins with its first text."""
        self._fingerprint = fingerprint
        return b""

    def piece(self, choice: int, piece: Piece) -> bytes:
        """See ``Writer.piece``."""
        text = "".join(event.text for event in piece.events if isinstance(event, ContentDelta))
        writer = self._logprobs[choice]
        logprobs = writer.of(piece.ids, piece.logprobs) if writer and piece.logprobs else None
        if not text and logprobs is None:
            return b""
        return self._event([_choice(choice, text, logprobs, None)])

    def end(self, *, recorded: bool) -> bytes:
        """See ``Writer.end``."""
        events = [
            self._event(
                [_choice(answer.choice, "", None, answer.finish_reason)],
                {} if recorded else {"recorded": False},
            )
            for answer in self._opened.answers
        ]
        if self._with_usage:
            events.append(self._event([], {"usage": self._usage()}))
        return b"".join(events) + DONE

    def failed(self, error: ApiError) -> bytes:
        """See ``Writer.failed``; no [DONE] follows."""
        return b"data: " + error.body() + b"\n\n"

    def whole(self, fingerprint: str, *, recorded: bool) -> bytes:
        """See ``Writer.whole``."""
        self._fingerprint = fingerprint
        more: Json = {"usage": self._usage(), "session_id": self._opened.session_id}
        if not recorded:
            more["recorded"] = False
        return orjson.dumps(self._body([self._whole(one) for one in self._opened.answers], more))

    def _usage(self) -> Json:
        return usage(self._opened, self._prompts)

    def _whole(self, answer: AnswerCapture) -> Json:
        writer = self._logprobs[answer.choice]
        logprobs = writer.of(answer.ids, answer.client) if writer else None
        text = answer.message().content
        return _choice(answer.choice, text, logprobs, answer.finish_reason)

    def _event(self, choices: list[Json], more: Json | None = None) -> bytes:
        usage_: Json = {"usage": None} if self._with_usage else {}
        return b"data: " + orjson.dumps(self._body(choices, usage_ | (more or {}))) + b"\n\n"

    def _body(self, choices: list[Json], more: Json) -> Json:
        return {
            "id": self._opened.completion_id,
            "object": "text_completion",
            "created": self._opened.created,
            "model": self._opened.model,
            "system_fingerprint": self._fingerprint,
            "choices": choices,
            **more,
        }


def _choice(index: int, text: str, logprobs: Json | None, reason: str | None) -> Json:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}
