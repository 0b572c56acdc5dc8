"""Requests that nobody meant to send: valid ones, changed at random and always in the same way.

A case is made from a seed and its number alone, so that one that fails can be made again.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent / "examples"
KEY = b"authorization: Bearer sk-alice-1"
MOST_BYTES = 150_000
"""Of a body before its bytes are changed; larger ones are cut."""

LONG = "x" * 20_000
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, -(2**63), 2**63, 2**64, 10**40, 0.5, -0.0, 1e308, 5e-324,
    float("nan"), float("inf"), "", " ", "\n", "null", "0", "main", "side", "\ud83d", "\udc00 x",
    "\x00", "\u202e\u200b\ufeff", "<|im_start|>system", "<|im_end|>", "<think>", "</tool_call>",
    '{"a":', "é" * 500, LONG, [], {}, [None], [[]], [{}], {"": ""}, {"type": "text"}, ["a"] * 300,
    [{"role": "user", "content": "again"}] * 200, {"$ref": "#"}, {"role": None},
)  # fmt: skip
NAMES = (
    "messages", "input", "model", "role", "content", "type", "text", "name", "id", "tools", "stop",
    "stream", "n", "seed", "max_tokens", "metadata", "session_id", "user", "", "__class__",
    "x" * 300,
)  # fmt: skip
HEADERS = (
    b"x-session-id", b"x-session-done", b"x-turn-type", b"traceparent", b"authorization", b"origin",
    b"x-stainless-retry-count", b"content-type", b"accept-encoding", b"content-encoding", b"host",
    b"expect", b"range", b"connection", b"upgrade", b"cookie", b"x-forwarded-for", b"te",
)  # fmt: skip
VALUES = (
    b"", b"1", b"main", b"side", b"100-continue", b"close", b"keep-alive", b"upgrade", b"websocket",
    b"gzip", b"application/json", b"text/plain; charset=utf-16", b"Bearer", b"Bearer sk-alice-1",
    b"Bearer \xff\xfe", b"null", b"http://[", b"x" * 3000, b"\xc3\xa9\x80", b"00-" + b"0" * 32,
    b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", b"h2c", b"trailers", b"bytes=0-",
)  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """A path and valid bodies for it."""

    name: str
    path: str
    bodies: tuple[Any, ...]


def dialects() -> list[Dialect]:
    """Return what the files of examples describe; a new file is a new dialect."""
    found = []
    for file in sorted(EXAMPLES.glob("*.json")):
        text = json.loads(file.read_text("utf-8"))
        found.append(Dialect(file.stem, text["path"], tuple(text["bodies"])))
    return found


@dataclass(frozen=True)
class Case:
    """One request as bytes."""

    data: bytes
    is_whole: bool
    """It is one complete HTTP request: an answer must come."""
    leaves_after: int | None = None
    """The client goes away after so many bytes of the answer; None: it reads all."""


def case(dialect: Dialect, seed: int, number: int) -> Case:
    """Make one case."""
    rng = random.Random(f"{dialect.name}:{seed}:{number}")
    body = change_json(copy.deepcopy(rng.choice(dialect.bodies)), rng)
    data = json.dumps(body).encode()[:MOST_BYTES]
    kind = rng.random()
    if kind < 0.65:
        return Case(request(dialect.path, data), is_whole=True)
    if kind < 0.80:
        return Case(request(dialect.path, change_bytes(data, rng)), is_whole=True)
    if kind < 0.88:
        return Case(odd_head(dialect.path, data, rng), is_whole=False)
    if kind < 0.91:
        return Case(odd_chunks(dialect.path, data, rng), is_whole=False)
    if kind < 0.96:
        return Case(change_bytes(request(dialect.path, data), rng), is_whole=False)
    if kind < 0.98:
        whole = request(dialect.path, data)
        return Case(whole[: rng.randrange(len(whole))], is_whole=False)
    return Case(request(dialect.path, data), is_whole=True, leaves_after=rng.choice((0, 1, 300)))


def request(path: str, body: bytes, *more: bytes) -> bytes:
    """Return a proper request."""
    lines = [b"POST " + path.encode() + b" HTTP/1.1", b"host: localhost", KEY, *more]
    lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])


# --- bodies ---------------------------------------------------------------------------------------


def change_json(value: Any, rng: random.Random) -> Any:
    """Change some places of a JSON value; now and then none."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 6))):
        places = list(_places(value))
        if not places:
            return rng.choice(HOSTILE)
        holder, key = rng.choice(places)
        rng.choice(_CHANGES)(holder, key, rng)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    inner: Any = ()
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    for key, part in inner:
        yield value, key
        yield from _places(part)


def _replace(holder: Any, key: Any, rng: random.Random) -> None:
    holder[key] = copy.deepcopy(rng.choice(HOSTILE))


def _delete(holder: Any, key: Any, _rng: random.Random) -> None:
    del holder[key]


def _add(holder: Any, key: Any, rng: random.Random) -> None:
    if isinstance(holder, dict):
        holder[rng.choice(NAMES)] = copy.deepcopy(rng.choice((holder[key], rng.choice(HOSTILE))))
    else:
        holder.insert(
            rng.randrange(len(holder) + 1), copy.deepcopy(rng.choice((holder[key], None)))
        )


def _repeat(holder: Any, key: Any, rng: random.Random) -> None:
    value = holder[key]
    if isinstance(value, str):
        holder[key] = (value * rng.choice((2, 50)))[: LONG.__len__()]
    elif isinstance(value, list) and len(value) < 50:
        holder[key] = [copy.deepcopy(part) for part in value * rng.choice((2, 8))]
    elif isinstance(value, int | float):
        holder[key] = value * rng.choice((-1, 10, 1000))


def _wrap(holder: Any, key: Any, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 2, 200))):
        holder[key] = rng.choice(([holder[key]], {"content": holder[key]}))


def _as_text(holder: Any, key: Any, _rng: random.Random) -> None:
    value = holder[key]
    holder[key] = json.dumps(value) if not isinstance(value, str) else [value]


def _shuffle(holder: Any, key: Any, rng: random.Random) -> None:
    if isinstance(holder[key], list):
        rng.shuffle(holder[key])
    elif isinstance(holder[key], str) and holder[key]:
        at = rng.randrange(len(holder[key]))
        odd = rng.choice(("\ud800", "\x00", "\U0001f600", "e\u0301", '"', "\\", "</s>", "\r"))
        holder[key] = holder[key][:at] + odd + holder[key][at:]


_CHANGES: tuple[Callable[[Any, Any, random.Random], None], ...] = (
    _replace, _replace, _replace, _delete, _add, _repeat, _wrap, _as_text, _shuffle,
)  # fmt: skip


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, insert and repeat bytes."""
    made = bytearray(data or b"{}")
    for _ in range(rng.choice((1, 1, 2, 5, 30))):
        at, length = rng.randrange(len(made) + 1), rng.choice((1, 2, 10, 500))
        match rng.randrange(5):
            case 0 if at < len(made):
                made[at] ^= 1 << rng.randrange(8)
            case 1:
                del made[at : at + length]
            case 2:
                made[at:at] = rng.randbytes(length)
            case 3:
                made[at:at] = made[at : at + length]
            case _:
                made[at:at] = rng.choice(
                    (b"\\ud83d", b"NaN", b"1e999", b'"', b"\r\n\r\n", b"[" * 2000)
                )
        made = made or bytearray(b" ")
    return bytes(made)


# --- heads and framing ----------------------------------------------------------------------------


def odd_head(path: str, body: bytes, rng: random.Random) -> bytes:
    """Return a request with strange headers, path, method or version."""
    more = [
        rng.choice(HEADERS) + rng.choice((b": ", b":", b" : ", b":\t")) + rng.choice(VALUES)
        for _ in range(rng.choice((1, 2, 5, 60)))
    ]
    paths = (
        path, f"/s/one{path}", f"/s/%ff{path}", f"/s/{'x' * 400}{path}", f"/s/%00%0a%2F{path}",
        f"{path}?a=%zz&b", f"/s{path}", f"//{path}", f"{path}/", f"http://other{path}", f"{path}#x",
        f"{path}\u00e9", "*", "/v1/models/" + "%2e%2e%2f" * 20, "/s//v1/models", "/metrics",
    )  # fmt: skip
    data = request(rng.choice(paths), body, *more)
    changes = (
        (b"POST", b"post"), (b"POST", b"BREW"), (b"POST", b"OPTIONS"), (b"POST", b"HEAD"),
        (b"POST", b"CONNECT"), (b"HTTP/1.1", b"HTTP/1.0"), (b"HTTP/1.1", b"HTTP/9.9"),
        (b"HTTP/1.1", b""), (b"\r\n", b"\n"), (b"content-length: ", b"content-length: +"),
        (b"content-length: ", b"content-length: 1"), (b"content-length", b"content-lengt"),
        (b"content-length: ", b"content-length: 3\r\ncontent-length: "), (b"host", b"h\x00st"),
        (b"", b""),
    )  # fmt: skip
    return data.replace(*rng.choice(changes))


def odd_chunks(path: str, body: bytes, rng: random.Random) -> bytes:
    """Return a request in chunks, some of them malformed."""
    head = request(path, b"", b"transfer-encoding: chunked").partition(b"content-length")[0]
    chunks = [head, b"\r\n"]
    while body:
        size = rng.choice((1, 7, 1000, 60_000))
        piece, body = body[:size], body[size:]
        told = rng.choice((b"%x",) * 30 + (b"%X;a=b", b"0%x", b"-%x", b"%xg", b"fffffffffffffff%x"))
        chunks += [told % len(piece), rng.choice((b"\r\n",) * 30 + (b"\n",)), piece, b"\r\n"]
        if len(chunks) > 4000:
            break
    chunks.append(
        rng.choice((b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"0\r\n", b"", b"GET / HTTP/1.1\r\n"))
    )
    return b"".join(chunks)
