"""Completions from an OpenAI-compatible endpoint, against a real local server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from judge_fakes import user
from rejoinder.config import ExtractiveHintsConfig, LlmHintsConfig, LlmJudgeConfig
from rejoinder.errors import ConfigError
from rejoinder.judge import endpoint as endpoint_module
from rejoinder.judge.completion import CallFailed, Completion, PromptTooLong
from rejoinder.judge.endpoint import EndpointCompleter, external_places

KEY = "sk-TEST-123"
DONE = {"choices": [{"message": {"content": '{"score": 1}'}, "finish_reason": "stop"}]}


class Endpoint:
    """A chat completions server that answers by a script and remembers what it was sent."""

    def __init__(self) -> None:
        self.replies: list[web.Response | Callable[[], Awaitable[web.Response]]] = []
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.running = 0
        self.most_running = 0

    async def handle(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        reply = self.replies.pop(0) if self.replies else web.json_response(DONE)
        return reply if isinstance(reply, web.Response) else await reply()


def error(status: int, text: str = "no", **headers: str) -> web.Response:
    body = json.dumps({"error": {"message": text}})
    return web.Response(status=status, text=body, headers=headers)


@pytest.fixture
async def server():
    endpoint = Endpoint()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.handle)
    running = TestServer(app, host="127.0.0.1")
    await running.start_server()
    endpoint.url = str(running.make_url("/v1"))
    yield endpoint
    await running.close()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch) -> None:
    monkeypatch.setattr(endpoint_module, "_FIRST_WAIT_S", 0.001)


async def ask(server: Endpoint, **settings: object) -> Completion:
    config = LlmJudgeConfig(base_url=server.url, model="judge-1", **settings)
    completer = EndpointCompleter(config)
    try:
        return await completer.complete([user("judge this")])
    finally:
        await completer.close()


async def test_it_posts_a_chat_completion_and_asks_for_json(server) -> None:
    completion = await ask(server, temperature=0.3, max_tokens=99)
    assert completion == Completion('{"score": 1}', "stop")
    (body,) = server.bodies
    assert body["model"] == "judge-1"
    assert body["messages"] == [{"role": "user", "content": "judge this"}]
    assert (body["temperature"], body["max_tokens"]) == (0.3, 99)
    assert body["response_format"]["type"] == "json_schema"


async def test_an_endpoint_that_refuses_the_json_form_is_asked_without_it_from_then_on(
    server,
) -> None:
    server.replies = [error(400, "response_format is not supported")]
    completer = EndpointCompleter(LlmJudgeConfig(base_url=server.url, model="m"))
    for _ in range(2):
        assert (await completer.complete([user("x")])).text == '{"score": 1}'
    await completer.close()
    assert ["response_format" in body for body in server.bodies] == [True, False, False]


async def test_a_request_that_is_bad_in_both_forms_fails(server) -> None:
    server.replies = [error(400), error(400)]
    with pytest.raises(CallFailed, match="http_400"):
        await ask(server)
    assert len(server.bodies) == 2


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_overload_is_tried_again(server, status: int) -> None:
    server.replies = [error(status), error(status)]
    assert (await ask(server)).text == '{"score": 1}'
    assert len(server.bodies) == 3


async def test_tries_end_and_name_the_status(server) -> None:
    server.replies = [error(503, "overloaded") for _ in range(5)]
    with pytest.raises(CallFailed, match=r"http_503: .*overloaded"):
        await ask(server)
    assert len(server.bodies) == 3


async def test_retry_after_is_honoured(server, monkeypatch) -> None:
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    server.replies = [error(429, **{"Retry-After": "7"})]
    monkeypatch.setattr(endpoint_module.asyncio, "sleep", sleep)
    await ask(server)
    assert 7.0 in waits


async def test_regression_a_refused_key_is_named_at_once_and_never_shown(
    server, monkeypatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    server.replies = [error(401, f"Incorrect API key provided: {KEY}")]
    with pytest.raises(CallFailed, match=r"http_401: .*JUDGE_KEY") as caught:
        await ask(server, api_key_env="JUDGE_KEY")
    assert KEY not in str(caught.value)
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert len(server.bodies) == 1


async def test_the_key_is_in_no_text_about_the_completer(server, monkeypatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    config = LlmJudgeConfig(base_url=server.url, model="m", api_key_env="JUDGE_KEY")
    completer = EndpointCompleter(config)
    assert KEY not in f"{completer!r} {completer.model_id} {config!r}"


async def test_a_refused_connection_is_unreachable() -> None:
    nowhere = Endpoint()
    nowhere.url = f"http://127.0.0.1:{unused_port()}/v1"
    with pytest.raises(CallFailed) as caught:
        await ask(nowhere)
    assert caught.value.code == "unreachable"


async def test_an_endpoint_that_never_answers_times_out(server) -> None:
    async def never() -> web.Response:
        await asyncio.sleep(2)
        return web.Response()

    server.replies = [never]
    with pytest.raises(CallFailed, match="timeout"):
        await ask(server, timeout_s=0.05)


@pytest.mark.parametrize(
    "reply",
    [
        error(413),
        error(400, "context_length_exceeded: too many tokens"),
        error(400, "x" * 900 + " This model's maximum context length is 8192 tokens"),
        error(400, "the request exceeds the available Context Size"),
        error(400, "prompt does not fit the context window"),
    ],
)
async def test_regression_too_long_a_prompt_is_told_apart(server, reply: web.Response) -> None:
    server.replies = [reply]
    with pytest.raises(PromptTooLong):
        await ask(server)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("text", ["", "<html>", "{}", '{"choices": []}', '{"choices": [{}]}', "[]"])
async def test_what_is_no_completion_is_a_failed_call(server, text: str) -> None:
    server.replies = [web.Response(text=text)]
    with pytest.raises(CallFailed, match="bad_reply"):
        await ask(server)


@pytest.mark.parametrize(
    "content", [3, {"text": "Hi."}, [{"text": 3}], [None], ["Hi."], [["Hi."]], [{"text": {}}, 3]]
)
async def test_regression_content_of_another_form_is_a_failed_call(server, content: Any) -> None:
    server.replies = [web.json_response({"choices": [{"message": {"content": content}}]})]
    with pytest.raises(CallFailed, match="bad_reply"):
        await ask(server)


async def test_content_may_come_in_parts(server) -> None:
    parts = [{"text": "A"}, {"type": "image"}, {"text": None}, {"text": "b."}]
    choice = {"message": {"content": parts}, "finish_reason": "stop"}
    server.replies = [web.json_response({"choices": [choice]})]
    assert await ask(server) == Completion("Ab.", "stop")


async def test_a_reply_of_reasoning_only_is_an_empty_text(server) -> None:
    choice = {"message": {"content": None, "reasoning_content": "hm"}, "finish_reason": "length"}
    server.replies = [web.json_response({"choices": [choice]})]
    assert await ask(server) == Completion("", "length")


async def test_a_redirect_is_not_followed(server) -> None:
    server.replies = [web.Response(status=307, headers={"Location": "http://example.org/v1"})]
    with pytest.raises(CallFailed, match="http_307"):
        await ask(server)


async def test_no_more_calls_at_once_than_configured(server) -> None:
    config = LlmJudgeConfig(base_url=server.url, model="m", concurrency=2)
    completer = EndpointCompleter(config)
    await asyncio.gather(*(completer.complete([user("x")]) for _ in range(6)))
    await completer.close()
    assert server.most_running == 2


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.org/v1",
        "http://192.168.1.9:8000/v1",
        "http://localhost.example.org/v1",
        "http://127.0.0.1.example.org/v1",
        "http://0.0.0.0:8000/v1",
    ],
)
def test_conversations_leave_this_machine_only_if_that_is_allowed(url: str) -> None:
    with pytest.raises(ConfigError, match="allow_external"):
        EndpointCompleter(LlmJudgeConfig(base_url=url, model="m"))
    allowed = LlmJudgeConfig(base_url=url, model="m", allow_external=True)
    EndpointCompleter(allowed)
    assert external_places(allowed)


def test_a_place_that_verdicts_and_hints_both_go_to_is_told_once() -> None:
    place = {"base_url": "https://judge.example/v1", "model": "m"}
    other = LlmHintsConfig(base_url="https://hints.example/v1", model="m")
    judge, hints = LlmJudgeConfig(**place), LlmHintsConfig(**place)
    assert external_places(judge, hints) == ["judge.example"]
    assert external_places(judge, other) == ["judge.example", "hints.example"]
    assert external_places(LlmJudgeConfig(), ExtractiveHintsConfig()) == []


async def test_the_form_that_is_asked_for_and_the_section_that_faults_name_are_the_callers(
    server,
) -> None:
    server.replies = [error(401)]
    config = LlmHintsConfig(base_url=server.url, model="m")
    completer = EndpointCompleter(config, {"type": "json_object"}, "hints")
    with pytest.raises(CallFailed, match=r"set hints\.api_key_env"):
        await completer.complete([user("hint at this")])
    await completer.close()
    assert server.bodies[0]["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.3", "[::1]"])
def test_this_machine_needs_no_permission(host: str) -> None:
    config = LlmJudgeConfig(base_url=f"http://{host}:8000/v1", model="m")
    EndpointCompleter(config)
    assert external_places(config) == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"base_url": "localhost:8000", "model": "m"}, "base_url"),
        ({"base_url": "ftp://localhost/v1", "model": "m"}, "base_url"),
        ({"base_url": "http://[::1/v1", "model": "m"}, "base_url"),
        ({"base_url": "http://me:pw@localhost/v1", "model": "m"}, "api_key_env"),
        ({"base_url": "http://localhost/v1"}, "model"),
        ({"base_url": "http://localhost/v1", "model": "m", "api_key_env": "NO_SUCH"}, "NO_SUCH"),
    ],
)
def test_an_endpoint_that_cannot_work_is_refused_with_the_key_to_change(
    settings: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        EndpointCompleter(LlmJudgeConfig(**settings))
