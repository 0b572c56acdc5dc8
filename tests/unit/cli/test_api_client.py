"""The chat's client against a real HTTP server that plays the gateway."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from rejoinder.cli.api_client import Answer, ApiAway, ApiClient, ApiRefused
from rejoinder.errors import RejoinderError
from rejoinder.types import Json


def event(delta: Json, finish: str | None = None, **more: object) -> bytes:
    body = {
        "id": "chatcmpl-1",
        "system_fingerprint": "default@3",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    } | more
    return b"data: " + json.dumps(body).encode() + b"\n\n"


ANSWER = [
    event({"role": "assistant", "content": ""}),
    event({"content": "Hé"}),
    event({"content": "llo"}),
    event({}, "stop"),
    b"data: [DONE]\n\n",
]


class Gateway(BaseHTTPRequestHandler):
    seen: ClassVar[list[tuple[str, dict[str, str], Json]]] = []
    replies: ClassVar[dict[str, tuple[int, bytes]]] = {}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Gateway.seen.append((self.path, dict(self.headers), body))
        self._reply()

    def do_GET(self) -> None:
        Gateway.seen.append((self.path, dict(self.headers), {}))
        self._reply()

    def _reply(self) -> None:
        status, payload = Gateway.replies[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def client() -> Iterator[ApiClient]:
    Gateway.seen.clear()
    Gateway.replies.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield ApiClient(f"http://127.0.0.1:{server.server_port}/v1/", "sk-test")
        server.shutdown()
        thread.join()


def test_an_answer_arrives_in_pieces_with_its_id_and_version(client: ApiClient) -> None:
    Gateway.replies["/v1/chat/completions"] = (200, b"".join(ANSWER))
    answer = Answer()
    assert list(client.stream({"messages": []}, "s1", answer)) == ["Hé", "llo"]
    assert answer == Answer("chatcmpl-1", "default@3", "stop", recorded=True)
    _, headers, _ = Gateway.seen[0]
    assert headers["X-Session-Id"] == "s1"
    assert headers["Authorization"] == "Bearer sk-test"


def test_an_answer_that_breaks_off_is_an_error(client: ApiClient) -> None:
    Gateway.replies["/v1/chat/completions"] = (200, b"".join(ANSWER[:2]))
    with pytest.raises(ApiAway, match="broke off"):
        list(client.stream({}, "s1", Answer()))


def test_an_error_in_the_stream_is_told_in_the_gateways_words(client: ApiClient) -> None:
    failed = b'data: {"error": {"message": "the engine went away"}}\n\n'
    Gateway.replies["/v1/chat/completions"] = (200, ANSWER[0] + failed)
    with pytest.raises(ApiRefused, match="the engine went away"):
        list(client.stream({}, "s1", Answer()))


def test_an_answer_that_could_not_be_recorded_says_so(client: ApiClient) -> None:
    last = event({}, "stop", recorded=False)
    Gateway.replies["/v1/chat/completions"] = (200, last + b"data: [DONE]\n\n")
    answer = Answer()
    list(client.stream({}, "s1", answer))
    assert not answer.recorded


def test_a_refusal_is_told_in_the_gateways_words(client: ApiClient) -> None:
    Gateway.replies["/v1/models"] = (401, b'{"error": {"message": "send an API key"}}')
    with pytest.raises(ApiRefused, match="send an API key"):
        client.live_version()


def test_a_refusal_without_a_body_names_the_status(client: ApiClient) -> None:
    Gateway.replies["/v1/models"] = (502, b"<html>")
    with pytest.raises(ApiRefused, match="HTTP 502"):
        client.live_version()


def test_feedback_returns_what_became_of_it(client: ApiClient) -> None:
    Gateway.replies["/v1/feedback"] = (200, b'{"outcome": "late_feedback"}')
    assert client.feedback("chatcmpl-1", -1, "wrong") == "late_feedback"
    assert Gateway.seen[0][2] == {"completion_id": "chatcmpl-1", "score": -1, "text": "wrong"}


def test_nobody_listening_is_told_with_the_remedy() -> None:
    with pytest.raises(ApiAway, match="rejoinder up"):
        ApiClient("127.0.0.1:9", None).live_version()


@pytest.mark.parametrize("url", ["ftp://host", "http://", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(RejoinderError, match="http://host:port"):
        ApiClient(url, None)
