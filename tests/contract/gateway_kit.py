"""A gateway for tests: real HTTP, the real journal in a temporary file, an engine that obeys."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import orjson
from tokenizers import AddedToken, Tokenizer

from quick_server import NO_TLS, serving
from rejoinder.config import Config, GatewayConfig
from rejoinder.engine.base import (
    ClientLogprob,
    Engine,
    EngineInfo,
    GenerateRequest,
    TokenChunk,
)
from rejoinder.errors import EngineError
from rejoinder.gateway.app import create_app
from rejoinder.gateway.auth import KeyRing, parse_keys
from rejoinder.gateway.http import HttpConfig
from rejoinder.journal.sql import SqlJournal
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import FinishReason

Json = dict[str, Any]

THINKING_TEMPLATE = (
    "{% for t in tools or [] %}<tools>{{ t.function.name }}</tools>{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>"
    "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
"""Of a model that thinks and calls tools."""


@dataclass
class Script:
    """What the engine does with one request."""

    text: str = "Paris."
    ids: list[int] | None = None
    """Sampled in the place of the text's own ids."""
    eos: bool = True
    """Sample an end token after the text."""
    error: EngineError | None = None
    """Raised after ``error_after`` tokens."""
    error_after: int = 0
    gate: asyncio.Event | None = None
    """Waited for after ``gate_after`` tokens."""
    gate_after: int = 0
    logprob: float = -0.5
    versions: tuple[int, ...] = (3,)
    """Version of each token; the last one for all others."""
    together: bool = False
    """All tokens are there at once, as after a while in which nobody could read them."""


class ObedientEngine:
    """Answers by ``script``: a function of the request. One token per byte of the text."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self.tokenizer = tokenizer
        self.script: Callable[[GenerateRequest], Script] = lambda _request: Script()
        self.requests: list[GenerateRequest] = []
        self.cancelled: list[str] = []
        self.running = 0
        self.context_length = 600
        self.loaded = [2, 3]
        self.tokenizer_hash = tokenizer.hash
        self.capabilities = ["logprobs", "json_schema"]
        self.down: EngineError | None = None

    def say(self, text: str, **more: Any) -> None:
        """Answer everything with one text."""
        self.script = lambda _request: Script(text, **more)

    async def info(self) -> EngineInfo:
        if self.down is not None:
            raise self.down
        return EngineInfo(
            name="obedient",
            tokenizer_hash=self.tokenizer_hash,
            context_length=self.context_length,
            eos_ids=list(self.tokenizer.eos_ids),
            capabilities=self.capabilities,
            live={"default": 3},
            loaded={"default": self.loaded},
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        self.requests.append(request)
        script = self.script(request)
        own = self.tokenizer.encode(script.text) if script.ids is None else script.ids
        ids = own + list(self.tokenizer.eos_ids) * script.eos
        limit = request.sampling.max_tokens
        kept = ids[:limit]
        self.running += 1
        try:
            for index, id_ in enumerate(kept):
                if script.error is not None and index == script.error_after:
                    raise script.error
                if script.gate is not None and index == script.gate_after:
                    await script.gate.wait()
                if not script.together:
                    await asyncio.sleep(0)
                finish = None
                if index == len(kept) - 1:
                    finish = FinishReason.STOP if len(ids) <= limit else FinishReason.LENGTH
                client = None
                if request.top_logprobs is not None:
                    top = [(id_, script.logprob)] * min(1, request.top_logprobs)
                    client = [ClientLogprob(script.logprob, top)]
                yield TokenChunk(
                    ids=[id_],
                    logprobs=[script.logprob],
                    version=script.versions[min(index, len(script.versions) - 1)],
                    client=client,
                    finish_reason=finish,
                    cached_tokens=4 if index == 0 else 0,
                )
        except (GeneratorExit, asyncio.CancelledError):
            self.cancelled.append(request.request_id)
            raise
        finally:
            self.running -= 1


@dataclass
class Event:
    """One server-sent event."""

    data: str

    @property
    def json(self) -> Json:
        return orjson.loads(self.data)


@dataclass
class Running:
    """A gateway that serves."""

    client: httpx.AsyncClient
    engine: ObedientEngine
    journal: SqlJournal
    service: Any
    base_url: str
    _rows: list[Any] = field(default_factory=list)

    async def chat(self, *messages: Json, headers: dict[str, str] | None = None, **body: Any):
        """Ask; returns the response."""
        made = {"model": "default", "messages": list(messages), **body}
        return await self.client.post("/v1/chat/completions", json=made, headers=headers)

    async def answer(self, *messages: Json, headers: dict[str, str] | None = None, **body: Any):
        """Ask; returns the body of a response that must be good."""
        response = await self.chat(*messages, headers=headers, **body)
        assert response.status_code == 200, response.text
        return response.json()

    async def events(self, *messages: Json, **body: Any) -> list[Event]:
        """Ask for a stream; returns its events."""
        response = await self.chat(*messages, stream=True, **body)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.text.split("\n\n")
        assert lines.pop() == ""
        return [Event(line.removeprefix("data: ")) for line in lines]

    def rows(self, query: str) -> list[Json]:
        """Return rows of the journal, everything queued included."""
        self.journal.flush()
        with self.journal.database.connect() as connection:
            return [dict(row) for row in connection.exec_driver_sql(query).mappings()]

    def turns(self) -> list[Json]:
        """Return all turns in order of arrival."""
        return self.rows("SELECT * FROM turns ORDER BY created_at, choice")

    async def eventually(self, condition: Callable[[], object], seconds: float = 5.0) -> None:
        """Wait until something becomes true."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - conditions are of any kind
                await asyncio.sleep(0.005)


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def bot(text: str) -> Json:
    return {"role": "assistant", "content": text}


KEYS = "acme:alice:sk-alice-1,acme:bob:sk-bob-22,other:carol:sk-carol"


def thinking(tokenizer: ModelTokenizer) -> ModelTokenizer:
    """Return a tokenizer like another, with the template and markers of the family of Qwen3."""
    made = Tokenizer.from_str(tokenizer.tokenizer.to_str())
    names = ("<tool_call>", "</tool_call>", "<think>", "</think>")
    made.add_tokens([AddedToken(name, special=False) for name in names])
    return replace(tokenizer, tokenizer=made, chat_template=THINKING_TEMPLATE)


@contextlib.asynccontextmanager
async def running(
    tokenizer: ModelTokenizer,
    url: str,
    *,
    keys: str = "",
    served_by: Engine | None = None,
    **gateway: Any,
) -> AsyncIterator[Running]:
    """Start a gateway and stop it; ``served_by`` takes the place of the engine that obeys."""
    config = Config(gateway=GatewayConfig(**{"engine_wait_s": 0.0, **gateway}))
    engine = ObedientEngine(tokenizer)
    with SqlJournal(url) as journal:
        ring = parse_keys(keys) if keys else KeyRing()
        app = create_app(config, served_by or engine, journal, tokenizer=tokenizer, keys=ring)  # type: ignore[arg-type]
        service = app.state.service
        http = HttpConfig(app, config.gateway, service.count_error)
        async with (
            serving(http) as base_url,
            httpx.AsyncClient(base_url=base_url, timeout=20, verify=NO_TLS) as client,
        ):
            yield Running(client, engine, journal, service, base_url)
