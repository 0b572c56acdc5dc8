"""Sends cases to a gateway over real connections, and says what went wrong."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field

from gateway_kit import Running, Script
from mutate import Case, Dialect, case

CLIENTS = 16
HUNG_S = 90.0
"""Longer than the gateway's own limit: a machine that is busy is no fault."""
PATIENCE_S = 0.15
"""How long an answer is waited for where none need come."""
TEXTS = (
    "Paris.", "", "한국 👍🏽 né",
    '<tool_call>{"name": "weather", "arguments": {"city": "Bern"}}</tool_call>',
    "<think>hm</think>Paris", "<tool_call>", "a END b", "x" * 200,
)  # fmt: skip


@dataclass
class Report:
    """What came of it."""

    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def fault(self, number: int, what: str, sent: Case) -> None:
        if len(self.faults) < 20:
            self.faults.append(f"case {number}: {what}\n    {sent.data[:1500]!r}")


async def storm(g: Running, dialect: Dialect, seed: int, numbers: range) -> Report:
    """Send all cases and check that nothing is left of them."""
    g.engine.script = lambda request: Script(TEXTS[len(g.engine.requests) % len(TEXTS)])
    report = Report()
    waiting = iter(numbers)
    clients = [_client(g, dialect, seed, waiting, report) for _ in range(CLIENTS)]
    await asyncio.gather(*clients)
    with contextlib.suppress(TimeoutError):
        await g.eventually(lambda: not leftovers(g), seconds=15)
    report.faults += leftovers(g)
    return report


def leftovers(g: Running) -> list[str]:
    """Return what should not be there when nobody asks for anything."""
    found = {
        "requests in progress": g.service.admission.active,
        "answers being sampled": g.engine.running,
        "generations": len(g.service.generations),
        "locks of sessions": len(g.service.linker._locks),
        "open turns": g.rows("SELECT count(*) AS n FROM turns WHERE state = 'open'")[0]["n"],
    }
    with g.service.admission._tally.locked(0) as numbers:
        found["places of a key"] = numbers.everywhere
    left = [f"left over: {count} {what}" for what, count in found.items() if count]
    if g.service.last_error is not None:
        left.append(f"an error was noted: {g.service.last_error[0]}")
    return left


async def _client(g: Running, dialect: Dialect, seed: int, numbers: object, report: Report) -> None:
    connection = _Connection(g.base_url)
    for number in numbers:  # type: ignore[attr-defined]
        made = case(dialect, seed, number)
        try:
            statuses = await connection.send(made)
        except TimeoutError:
            report.fault(number, "no answer", made)
            connection.close()
            continue
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            report.fault(number, f"the connection ended: {error!r}", made)
            connection.close()
            continue
        report.statuses.update(statuses)
        if any(status >= 500 for status in statuses):
            report.fault(number, f"status {statuses}", made)
    connection.close()


class _Connection:
    """A client's connection; it is used for one case after the other while it lasts."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._address = host, int(port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def send(self, made: Case) -> list[int]:
        """Send a case; returns the statuses of the answers."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        writer.write(made.data)
        if made.is_whole and made.leaves_after is None:
            async with asyncio.timeout(HUNG_S):
                return [await self._answer(reader)]
        said = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(PATIENCE_S):
                await writer.drain()
                if made.leaves_after is None:
                    said = await _all(reader)
                elif made.leaves_after:
                    said = await reader.read(made.leaves_after)
        self.close()
        return [int(said[9:12])] if said.startswith(b"HTTP/1.1 ") else []

    async def _answer(self, reader: asyncio.StreamReader) -> int:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        body = b""
        if b"transfer-encoding: chunked" in head:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        else:
            _, _, rest = head.partition(b"content-length: ")
            body = await reader.readexactly(int(rest.partition(b"\r\n")[0]))
        if b"connection: close" in head:
            self.close()
        # A fault behind the first token has no status of its own.
        return 500 if b'"code":"internal_error"' in body else int(head[9:12])


async def _all(reader: asyncio.StreamReader) -> bytes:
    said = b""
    while piece := await reader.read(65536):
        said += piece
        if b"\r\n\r\n" in said:
            return said
    return said
