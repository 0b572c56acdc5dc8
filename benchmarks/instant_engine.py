"""One instant engine in two languages: OpenAI's chat API, and the engine protocol of Rejoinder.

``python instant_engine.py PORT MODEL ANSWER`` serves until it is stopped. Every answer is the same,
and all of it is written at once: token by token, or, where nobody reads along, the first token and
then the others together, as our engine's server does. Its bytes are made beforehand, so that what
a benchmark sees is what stands in front.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import uvloop

from rejoinder.engine import wire
from rejoinder.engine.base import EngineInfo, TokenChunk
from rejoinder.engine.gathering import joined
from rejoinder.models.tokenizer import load_tokenizer
from rejoinder.types import FinishReason

HEAD_END = b"\r\n\r\n"
STREAM_MARK = b'"stream":true'
WHOLE_MARK = wire.encode({"whole": True})[1:]
CONTEXT = 32_768


def _response(kind: str, body: bytes, *, chunked: bool = False) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n"
    if chunked:
        head += "transfer-encoding: chunked\r\n\r\n"
        return head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Answers:
    """The bytes of every response."""

    def __init__(self, model: Path, answer: str) -> None:
        tokenizer = load_tokenizer(model)
        ids = tokenizer.encode(answer)
        pieces = [tokenizer.decode([id_]) for id_ in ids]
        end = len(ids)
        chunks = [TokenChunk([id_], [-0.5], 0) for id_ in ids]
        chunks.append(TokenChunk([tokenizer.eos_ids[0]], [-0.5], 0, None, FinishReason.STOP))
        info = EngineInfo(
            name="instant",
            tokenizer_hash=tokenizer.hash,
            context_length=CONTEXT,
            eos_ids=list(tokenizer.eos_ids),
            capabilities=["logprobs"],
            live={"default": 0},
            loaded={"default": [0]},
        )
        usage = {"prompt_tokens": 1, "completion_tokens": end + 1, "total_tokens": end + 2}
        common = {"id": "chatcmpl-instant", "created": 1, "model": "default"}
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {**common, "object": "chat.completion", "choices": [choice], "usage": usage}
        deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)]
        choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
        events = [
            b"data: %b\n\n" % _json({**common, "object": "chat.completion.chunk", "choices": [one]})
            for one in choices
        ]
        whole = _response("application/json", _json(body))
        stream = b"".join(events) + b"data: [DONE]\n\n"
        self._generated = (_frames(chunks), _frames([chunks[0], *joined(chunks[1:])]))
        self._chat = (whole, _response("text/event-stream", stream, chunked=True))
        self._by_path = {
            b"/info": _response(wire.CONTENT_TYPE, wire.encode(info)),
        }

    def to(self, path: bytes, body: bytes | bytearray) -> bytes:
        """Return the response to a request."""
        if path.endswith(b"/chat/completions"):
            return self._chat[STREAM_MARK in body.replace(b" ", b"")]
        if path == b"/generate":
            return self._generated[WHOLE_MARK in body]
        return self._by_path.get(path, _response("text/plain", b"ok"))


def _frames(chunks: Iterable[TokenChunk]) -> bytes:
    frames = b"".join(map(wire.chunk_frame, chunks))
    return _response(wire.CONTENT_TYPE, frames, chunked=True)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Server(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.Protocol``."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._buffer += data
        while (head_end := self._buffer.find(HEAD_END)) >= 0:
            lines = bytes(self._buffer[:head_end]).split(b"\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in lines[1:] if b": " in line)
            end = head_end + len(HEAD_END) + int(fields.get(b"content-length", b"0"))
            if len(self._buffer) < end:
                return
            body = self._buffer[head_end + len(HEAD_END) : end]
            del self._buffer[:end]
            self._transport.write(self._answers.to(lines[0].split(b" ")[1], body))


async def main(port: str, model: str, answer: str) -> None:
    """Serve on loopback."""
    answers = Answers(Path(model), answer)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(answers), "127.0.0.1", int(port))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
