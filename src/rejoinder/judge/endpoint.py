"""Completions from any OpenAI-compatible endpoint: time-outs, retries, no secrets in any text."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from rejoinder.config import HintsConfig, JudgeConfig, LlmVotesConfig
from rejoinder.errors import ConfigError
from rejoinder.judge.completion import CallFailed, Completion, PromptTooLong
from rejoinder.judge.prompts import RESPONSE_FORMAT
from rejoinder.judge.retry_after import retry_after_s
from rejoinder.judge.voting import UNREACHABLE
from rejoinder.net import is_local
from rejoinder.types import Json, Message

_TRIES = 3
_FIRST_WAIT_S = 0.5
_MAX_DETAIL = 300
_TOO_LONG = re.compile(
    r"context[ _](length|window|size)|maximum context|too many tokens", re.IGNORECASE
)
"""How OpenAI, vLLM, llama.cpp and others say that a prompt does not fit."""


class EndpointCompleter:
    """``POST {base_url}/chat/completions``. See ``Completer``.

    At most ``config.concurrency`` calls at once; each ends within ``config.timeout_s``, waits
    between tries included. Status 429 and 5xx are tried again, as late as ``Retry-After`` says.

    Raises:
        ConfigError: the endpoint is off this machine without ``allow_external``, or incomplete.
    """

    def __init__(
        self, config: LlmVotesConfig, form: Json = RESPONSE_FORMAT, section: str = "judge"
    ) -> None:
        """``form``: the ``response_format`` asked for; ``section``: whose keys faults name."""
        self._url = _checked_url(config, section)
        if not config.model:
            raise ConfigError(
                f"{section}.base_url needs {section}.model: the name the endpoint serves"
            )
        self._model = config.model
        self._key = _api_key(config, section)
        self._config = config
        self._form = form
        self._section = section
        self._structured = config.structured
        self._slots = asyncio.Semaphore(config.concurrency)
        self._session: aiohttp.ClientSession | None = None

    @property
    def model_id(self) -> str:
        """See ``Completer.model_id``."""
        return f"{self._model} at {self._url}"

    @property
    def special_tokens(self) -> Sequence[str]:
        """Not known of a remote model; chat control tokens of the usual form are taken out."""
        return ()

    async def complete(self, messages: Sequence[Message]) -> Completion:
        """See ``Completer.complete``."""
        body: Json = {
            "model": self._model,
            "messages": [{"role": entry.role, "content": entry.content} for entry in messages],
            "temperature": self._config.temperature,
            "max_tokens": self._config.max_tokens,
        }
        async with self._slots:
            try:
                async with asyncio.timeout(self._config.timeout_s):
                    return await self._complete(body)
            except TimeoutError:
                raise CallFailed("timeout", f"nothing in {self._config.timeout_s:g} s") from None

    async def _complete(self, body: Json) -> Completion:
        structured = self._structured
        if structured:
            try:
                return await self._post_patiently(body | {"response_format": self._form})
            except PromptTooLong:
                raise
            except CallFailed as error:
                if error.code not in {"http_400", "http_422"}:
                    raise
        completion = await self._post_patiently(body)
        if structured:  # refused with the response format and taken without it
            self._structured = False
        return completion

    async def _post_patiently(self, body: Json) -> Completion:
        for attempt in range(1, _TRIES + 1):
            try:
                status, headers, payload = await self._post(body)
            except aiohttp.ClientConnectorError as error:
                raise CallFailed(UNREACHABLE, self._clean(str(error))) from None
            except aiohttp.ClientError as error:
                # The connection broke, or the reply was not HTTP.
                detail = self._clean(f"{type(error).__name__}: {error}")
                if attempt == _TRIES:
                    raise CallFailed("connection_lost", detail) from None
                await asyncio.sleep(_FIRST_WAIT_S * 2 ** (attempt - 1))
                continue
            if status == 200:
                return _completion(payload)
            failure = self._failure(status, payload)
            if attempt == _TRIES or not (status == 429 or status >= 500):
                raise failure
            wait = retry_after_s(headers.get("Retry-After"))
            await asyncio.sleep(_FIRST_WAIT_S * 2 ** (attempt - 1) if wait is None else wait)
        raise AssertionError("unreachable: the last try raises")

    async def _post(self, body: Json) -> tuple[int, Any, bytes]:
        if self._session is None:
            # No proxies from the environment: conversations go where the configuration says.
            self._session = aiohttp.ClientSession(
                trust_env=False, timeout=aiohttp.ClientTimeout(total=None)
            )
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        async with self._session.post(
            f"{self._url}/chat/completions",
            data=orjson.dumps(body),
            headers=headers,
            allow_redirects=False,  # a redirect could lead off this machine
        ) as reply:
            return reply.status, reply.headers, await reply.read()

    def _failure(self, status: int, payload: bytes) -> CallFailed:
        raw = payload.decode("utf-8", "replace")
        text = self._clean(raw)
        # Searched before it is shortened: the words may stand behind a long prefix.
        if status == 413 or (status == 400 and _TOO_LONG.search(raw)):
            return PromptTooLong(text)
        if status in {401, 403}:
            named = self._config.api_key_env
            hint = f"check the key in ${named}" if named else f"set {self._section}.api_key_env"
            return CallFailed(f"http_{status}", f"the endpoint refuses the key; {hint}. {text}")
        return CallFailed(f"http_{status}", text)

    def _clean(self, text: str) -> str:
        """Return a text fit for logs: without the key, and short."""
        if self._key:
            text = text.replace(self._key, "***")
        return " ".join(text.split())[:_MAX_DETAIL]

    async def close(self) -> None:
        """See ``Completer.close``."""
        if self._session is not None:
            await self._session.close()


def external_places(*configs: JudgeConfig | HintsConfig) -> list[str]:
    """Return the hosts off this machine that judges send conversations to, each once."""
    urls = [config.base_url or "" for config in configs if isinstance(config, LlmVotesConfig)]
    hosts = [urlsplit(url).hostname or "" for url in urls if url]
    return [host for host in dict.fromkeys(hosts) if not is_local(host)]


def _checked_url(config: LlmVotesConfig, section: str) -> str:
    url = (config.base_url or "").rstrip("/")
    try:
        parts = urlsplit(url)
    except ValueError:  # an address in brackets that is none
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{section}.base_url: {url!r} is not of the form http://host:port/v1")
    if parts.username or parts.password:
        raise ConfigError(f"{section}.base_url holds a user or password; use {section}.api_key_env")
    if not is_local(parts.hostname) and not config.allow_external:
        raise ConfigError(
            f"{section}.base_url: {parts.hostname} is not this machine, and judging sends whole "
            f"conversations there; set {section}.allow_external = true if that is wanted"
        )
    return url


def _api_key(config: LlmVotesConfig, section: str) -> str | None:
    if config.api_key_env is None:
        return None
    key = os.environ.get(config.api_key_env, "").strip()
    if not key:
        raise ConfigError(f"{section}.api_key_env: the variable {config.api_key_env} is not set")
    return key


def _completion(payload: bytes) -> Completion:
    """Read an OpenAI chat completion; null content (all of it was reasoning) is an empty text."""
    try:
        choice = orjson.loads(payload)["choices"][0]
        text = choice["message"].get("content") or ""
        if isinstance(text, list):  # some endpoints answer in parts
            text = "".join(part.get("text") or "" for part in text)
        finish_reason = choice.get("finish_reason")
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CallFailed("bad_reply", f"no chat completion: {type(error).__name__}") from None
    if not isinstance(text, str):
        raise CallFailed("bad_reply", f"no chat completion: its content is a {type(text).__name__}")
    return Completion(text, finish_reason)
