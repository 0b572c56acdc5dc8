"""A chat client that streams like anybody's would, and checks that nothing was cut."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import aiohttp

from rejoinder.types import Json, TurnType

ChatMessages = Sequence[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, apart from its messages."""

    max_tokens: int
    temperature: float
    seed: int | None = None
    model: str | None = None
    session: str | None = None
    turn_type: TurnType = TurnType.MAIN
    done: bool = False

    def body(self, messages: ChatMessages) -> Json:
        """Return the request's JSON body."""
        body: Json = {
            "messages": list(messages),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.model is not None:
            body["model"] = self.model
        if self.seed is not None:
            body["seed"] = self.seed
        return body

    def headers(self) -> dict[str, str]:
        """Return the headers that say which session and kind of turn this is."""
        headers = {"X-Turn-Type": str(self.turn_type)}
        if self.session is not None:
            headers["X-Session-Id"] = self.session
        if self.done:
            headers["X-Session-Done"] = "1"
        return headers


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    completion_id: str
    text: str
    finish_reason: str
    """``stop`` or ``length``."""
    tokens: int
    seconds: float
    version: int | None = None
    """Which version of the policy began the answer, where the endpoint says it."""


class RequestFailed(Exception):
    """A request was refused, broke off, or ended without its end marks."""


class Asker(Protocol):
    """Whoever answers requests and counts those that fail."""

    requests: int
    failures: list[str]

    async def ask(self, messages: ChatMessages, ask: Ask) -> Reply:
        """See ``ChatClient.ask``."""
        ...


@dataclass(slots=True)
class ChatClient:
    """Asks a gateway, many requests at a time, and counts every request that fails."""

    base_url: str
    """Such as ``http://127.0.0.1:8080``, with a path or without."""
    key: str | None = field(default=None, repr=False)
    """API key, where the endpoint wants one."""
    timeout_s: float = 600.0
    requests: int = 0
    failures: list[str] = field(default_factory=list)
    """What went wrong, one line per failed request."""
    _session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ChatClient:
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self.key}"} if self.key else None,
            timeout=aiohttp.ClientTimeout(total=self.timeout_s),
            connector=aiohttp.TCPConnector(limit=0),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, messages: ChatMessages, ask: Ask) -> Reply:
        """Send a conversation and return the answer.

        Raises:
            RequestFailed: and the failure is counted.
        """
        self.requests += 1
        try:
            return await self._ask(messages, ask)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            failure = RequestFailed(f"{type(error).__name__}: {error}")
            self.failures.append(str(failure))
            raise failure from error
        except RequestFailed as failure:
            self.failures.append(str(failure))
            raise

    async def get(self, path: str) -> Json:
        """Return the JSON of another resource of the gateway, such as ``/v1/models``."""
        assert self._session is not None, "use `async with`"
        async with self._session.get(self._url(path), allow_redirects=False) as response:
            response.raise_for_status()
            found: Json = await response.json()
            return found

    def _url(self, path: str) -> str:
        return self.base_url.rstrip("/") + path

    async def _ask(self, messages: ChatMessages, ask: Ask) -> Reply:
        assert self._session is not None, "use `async with`"
        started = time.monotonic()
        async with self._session.post(
            self._url("/v1/chat/completions"),
            json=ask.body(messages),
            headers=ask.headers(),
            allow_redirects=False,  # neither conversation nor key goes where nobody sent them
        ) as response:
            if response.status != 200:
                text = (await response.text())[:500]
                raise RequestFailed(f"status {response.status}: {text}")
            answer = _StreamedAnswer()
            async for line in response.content:
                answer.read(line)
        return answer.reply(time.monotonic() - started)


class _StreamedAnswer:
    """Puts the events of one stream together."""

    def __init__(self) -> None:
        self._id = ""
        self._text = ""
        self._finish: str | None = None
        self._tokens = 0
        self._fingerprint = ""
        self._done = False

    def read(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            self._done = True
        elif data:
            try:
                self._take(json.loads(data))
            except (LookupError, TypeError, AttributeError, RecursionError) as error:
                raise RequestFailed(
                    f"the stream holds what is no part of a chat completion: {data[:200]!r}"
                ) from error

    def _take(self, event: dict[str, Any]) -> None:
        if "error" in event:
            raise RequestFailed(f"the stream ended with an error: {event['error']}")
        self._id = event.get("id", self._id)
        self._fingerprint = f"{event.get('system_fingerprint') or self._fingerprint}"
        if usage := event.get("usage"):
            self._tokens = usage["completion_tokens"]
        for choice in event.get("choices") or ():
            self._text += choice["delta"].get("content") or ""
            self._finish = choice.get("finish_reason") or self._finish

    def reply(self, seconds: float) -> Reply:
        if not self._done or self._finish is None:
            raise RequestFailed("the stream broke off: no finish reason or no [DONE]")
        _, _, version = self._fingerprint.rpartition("@")
        return Reply(
            self._id,
            self._text,
            self._finish,
            self._tokens,
            seconds,
            int(version) if version.isdecimal() else None,
        )
