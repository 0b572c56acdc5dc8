"""A gateway that answers from a script: enough of the API for the clients under test."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from rejoinder.types import Json

GOOD = (
    "Start with {topic} in a quiet corner, mix warm water with a spoon of salt, and let everything "
    "rest under a towel until the evening. Then taste it and add a slice of lemon."
)


@dataclass
class Asked:
    """One request as it arrived."""

    body: Json
    headers: dict[str, str]

    @property
    def last(self) -> str:
        text: str = self.body["messages"][-1]["content"]
        return text


@dataclass
class FakeGateway:
    """Answers with ``answer(asked)``; a tuple gives the finish reason too."""

    answer: Callable[[Asked], str] = lambda asked: GOOD.format(topic=asked.last)
    before_answer: Callable[[Asked], Awaitable[None]] | None = None
    status: int = 200
    breaks_off: bool = False
    finish_reason: str = "stop"
    version: int = 0
    """Live; every answer is signed with it."""
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(await request.json(), dict(request.headers))
        self.asked.append(asked)
        if self.status != 200:
            return web.json_response({"error": {"message": "no"}}, status=self.status)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        number = f"chatcmpl-{len(self.asked)}"
        if self.before_answer is not None:
            await self.before_answer(asked)
        for word in self.answer(asked).split(" "):
            await self._send(stream, number, {"content": word + " "}, None)
        if self.breaks_off:
            return stream
        await self._send(stream, number, {}, self.finish_reason)
        usage = json.dumps({"id": number, "choices": [], "usage": {"completion_tokens": 7}})
        await stream.write(f"data: {usage}\n\ndata: [DONE]\n\n".encode())
        return stream

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "default", "version": self.version}]})

    async def _send(
        self, stream: web.StreamResponse, number: str, delta: Json, finish: str | None
    ) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        fingerprint = f"default@{self.version}"
        event = {"id": number, "system_fingerprint": fingerprint, "choices": [choice]}
        await stream.write(f"data: {json.dumps(event)}\n\n".encode())
