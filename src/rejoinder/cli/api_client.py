"""The HTTP API as ``rejoinder chat`` uses it: plain HTTP, nothing that other clients lack."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from rejoinder.errors import RejoinderError
from rejoinder.types import Json

TIMEOUT_S = 600.0


class ApiRefused(RejoinderError):
    """The gateway answered with an error; the message is its own.

    ``status`` is the HTTP status, None where the answer had begun.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ApiAway(RejoinderError):
    """The gateway cannot be reached, or the answer broke off."""


@dataclass(slots=True)
class Answer:
    """An answer as it arrives."""

    completion_id: str = ""
    fingerprint: str = ""
    """``policy@version`` that began the answer."""
    finish_reason: str | None = None
    recorded: bool = True


def split_url(url: str) -> SplitResult:
    """Return the parts of a gateway's address; ``http://`` may be left out.

    Raises:
        RejoinderError: it has another form.
    """
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets of IPv6, or the port
        sound = False
    if not sound:
        raise RejoinderError(f"{url!r} is not of the form http://host:port")
    return parts


class ApiClient:
    """One gateway, one session.

    Args:
        url: ``http://host:port`` with or without ``/v1``.
        key: API key, where the gateway wants one.
    """

    def __init__(self, url: str, key: str | None) -> None:
        parts = split_url(url)
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self.url = f"{parts.scheme}://{parts.netloc}{self._prefix}"
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def stream(self, body: Json, session: str, answer: Answer) -> Iterator[str]:
        """Yield the pieces of an answer as they are sampled; fills ``answer`` on the way.

        Closing the iterator ends the answer at the gateway too.

        Raises:
            ApiRefused: the gateway refuses the request, or the answer fails midway.
            ApiAway: it cannot be reached.
        """
        headers = {"X-Session-Id": session}
        with self._request("POST", "/v1/chat/completions", body, headers) as response:
            for line in response:
                if not line.startswith(b"data: "):
                    continue
                data = line[len(b"data: ") :].strip()
                if data == b"[DONE]":
                    return
                yield from self._read(json.loads(data), answer)
        if answer.finish_reason is None:
            raise ApiAway("the answer broke off")

    def feedback(self, completion_id: str, score: int, text: str | None) -> str:
        """Score an answer; returns ``accepted``, ``late_feedback`` or ``never_trains``.

        Raises:
            ApiRefused: the gateway does not know the answer.
            ApiAway: it cannot be reached.
        """
        body: Json = {"completion_id": completion_id, "score": score}
        if text:
            body["text"] = text
        with self._request("POST", "/v1/feedback", body, {}) as response:
            outcome: str = json.loads(response.read())["outcome"]
            return outcome

    def live_version(self) -> tuple[str, int | None]:
        """Return the policy's name and its live version.

        Raises:
            ApiRefused: the key is missing or wrong.
            ApiAway: the gateway cannot be reached.
        """
        with self._request("GET", "/v1/models", None, {}) as response:
            model = json.loads(response.read())["data"][0]
            return model["id"], model["version"]

    def _read(self, event: Json, answer: Answer) -> Iterator[str]:
        if "error" in event:
            raise ApiRefused(str(event["error"]["message"]))
        answer.completion_id = event["id"]
        answer.fingerprint = event.get("system_fingerprint") or answer.fingerprint
        for choice in event["choices"]:
            if text := choice["delta"].get("content"):
                yield text
            answer.finish_reason = choice["finish_reason"] or answer.finish_reason
            answer.recorded = event.get("recorded", answer.recorded)

    @contextmanager
    def _request(
        self, method: str, path: str, body: Json | None, headers: dict[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=TIMEOUT_S)
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, self._prefix + path, data, self._headers | headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise ApiRefused(_error_text(response), response.status)
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise ApiAway(
                f"the gateway at {self.url} does not answer ({error or type(error).__name__}): "
                "start it with `rejoinder up`, or name another with --url"
            ) from error
        finally:
            connection.close()


def _error_text(response: http.client.HTTPResponse) -> str:
    payload = response.read()
    try:
        return str(json.loads(payload)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status} {response.reason}"
