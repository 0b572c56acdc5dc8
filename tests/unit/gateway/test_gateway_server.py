"""The gateway as processes: workers on one socket, death and replacement, a graceful end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.model]

RUN = """
import socket, sys
from pathlib import Path
from rejoinder.config import load_config
from rejoinder.gateway.server import run_gateway

bound = socket.socket()
bound.bind(("127.0.0.1", 0))
bound.listen(100)
print(bound.getsockname()[1], flush=True)
kept = bound.dup()
run_gateway(load_config(Path(sys.argv[1])), [bound], handed_over=sys.argv[2] == "handed_over")
if sys.argv[2] == "handed_over":  # what a successor would find waiting
    kept.settimeout(5)
    print(kept.accept()[0].recv(4), flush=True)
"""
BODY = {"messages": [{"role": "user", "content": "Hi"}], "session_done": True}
CHAT = "/v1/chat/completions"


class Gateway:
    """A gateway in a process of its own, with the scripted engine."""

    def __init__(
        self, home: Path, workers: int, rate: float, more: str, *, handed_over: bool
    ) -> None:
        config = home / "rejoinder.toml"
        config.write_text(
            f"home = {json.dumps(str(home))}\n[gateway]\nworkers = {workers}\n{more}\n"
            "[engine]\nkind = 'scripted'\nanswer = 'one two three four'\n"
            f"tokens_per_second = {rate}\n"
        )
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(config), "handed_over" if handed_over else "alone"],
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}"

    def wait_ready(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            assert self.process.poll() is None, "the gateway has ended"
            assert time.monotonic() < deadline, "the gateway does not get ready"
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)

    def turns(self) -> list[tuple[str, str | None]]:
        with sqlite3.connect(self.home / "journal.db") as database:
            return database.execute("SELECT state, fate FROM turns").fetchall()

    def wait_for_turns(self, count: int) -> None:
        deadline = time.monotonic() + 30
        while len(self.turns()) < count:
            assert time.monotonic() < deadline, "the requests do not arrive"
            time.sleep(0.05)

    def ready_workers(self) -> int:
        """How many workers have ever reported that they serve."""
        with sqlite3.connect(self.home / "journal.db") as database:
            query = "SELECT count(*) FROM role_reports WHERE state = 'ready'"
            return int(database.execute(query).fetchone()[0])

    def workers(self) -> list[psutil.Process]:
        """The worker processes, not multiprocessing's helper."""
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "resource_tracker" not in " ".join(child.cmdline())]


@pytest.fixture
def start(tmp_path):
    started: list[Gateway] = []

    def start(
        workers: int, rate: float = 20.0, more: str = "", *, handed_over: bool = False
    ) -> Gateway:
        started.append(Gateway(tmp_path, workers, rate, more, handed_over=handed_over))
        started[-1].wait_ready()
        return started[-1]

    yield start
    for gateway in started:
        if gateway.process.poll() is None:
            gateway.process.kill()
        gateway.process.wait()


async def test_sigterm_lets_the_answer_in_progress_finish_and_records_it(start):
    gateway = start(1)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
        asking = asyncio.create_task(client.post(CHAT, json={**BODY, "stream": True}))
        await asyncio.sleep(0.1)
        gateway.process.send_signal(signal.SIGTERM)
        response = await asking
    assert response.text.endswith("data: [DONE]\n\n")
    assert await asyncio.to_thread(gateway.process.wait, 20) == 0
    assert gateway.turns() == [("ended", "no_next_state")]


async def test_while_answers_finish_new_requests_are_told_when_to_come_back(start):
    gateway = start(1, rate=2.0)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
        asking = asyncio.create_task(client.post(CHAT, json={**BODY, "stream": True}))
        await asyncio.to_thread(gateway.wait_for_turns, 1)
        gateway.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        refused = await client.post(CHAT, json=BODY)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert 25 <= int(refused.headers["retry-after"]) <= 31
        assert refused.headers["connection"] == "close"
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["missing"]) == (503, {"gateway": "shutting down"})
        assert (await client.get("/healthz")).status_code == 200
        assert (await asking).text.endswith("data: [DONE]\n\n")
    assert await asyncio.to_thread(gateway.process.wait, 20) == 0
    assert gateway.turns() == [("ended", "no_next_state")]


async def test_where_a_successor_takes_the_socket_over_new_connections_wait_for_it(start):
    gateway = start(1, rate=4.0, handed_over=True)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
        asking = asyncio.create_task(client.post(CHAT, json={**BODY, "stream": True}))
        await asyncio.to_thread(gateway.wait_for_turns, 1)
        gateway.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        waiting = asyncio.create_task(client.post(CHAT, json=BODY))
        assert (await asking).text.endswith("data: [DONE]\n\n")
        found = await asyncio.to_thread(gateway.process.stdout.readline)
        assert found.strip() == "b'POST'"
        await asyncio.to_thread(gateway.process.wait, 20)
        await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("workers", [1, 2])
async def test_answers_that_take_too_long_are_broken_off_told_and_settled(start, workers):
    gateway = start(workers, rate=0.2, more="drain_s = 0.5")
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        whole = asyncio.create_task(client.post(CHAT, json=BODY))
        stream = asyncio.create_task(client.post(CHAT, json={**BODY, "stream": True}))
        await asyncio.to_thread(gateway.wait_for_turns, 2)
        gateway.process.send_signal(signal.SIGTERM)
        for asking in (whole, stream):
            reply = await asking
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "shutting_down")
    assert await asyncio.to_thread(gateway.process.wait, 20) == 0
    assert gateway.turns() == [("aborted", "process_killed")] * 2


async def test_a_stream_that_has_begun_and_takes_too_long_ends_with_an_error_event(start):
    gateway = start(1, rate=2.0, more="drain_s = 0.1")
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        body = {**BODY, "stream": True}
        async with client.stream("POST", CHAT, json=body) as reply:
            lines = reply.aiter_lines()
            await anext(lines)
            gateway.process.send_signal(signal.SIGTERM)
            rest = [line async for line in lines if line]
    assert '"code":"shutting_down"' in rest[-1]
    assert await asyncio.to_thread(gateway.process.wait, 20) == 0
    assert gateway.turns() == [("aborted", "process_killed")]


async def test_a_client_that_sends_half_a_request_does_not_hold_up_the_end(start):
    gateway = start(1, more="drain_s = 0.5")
    host, port = gateway.url.removeprefix("http://").split(":")
    halves = [b"", b"POST " + CHAT.encode() + b" HTTP/1.1\r\n"]
    halves.append(halves[1] + b"host: x\r\ncontent-length: 100\r\n\r\n{")
    for half in halves:
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(half)
    await asyncio.sleep(0.3)
    gateway.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(gateway.process.wait, 20) == 0


async def test_a_keys_limits_hold_in_all_workers_together(start):
    gateway = start(3, more="requests_per_minute = 5")
    async with asyncio.timeout(60):
        while gateway.ready_workers() < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    replies = []
    for _ in range(12):  # connections of their own, so that all workers have some
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
            replies.append(await client.post("/v1/feedback", json={}))
    statuses = [reply.status_code for reply in replies]
    assert statuses == [400] * 5 + [429] * 7
    assert all(1 <= int(reply.headers["retry-after"]) <= 12 for reply in replies[5:])


@pytest.mark.parametrize("workers", [1, 2])
async def test_ctrl_c_which_reaches_all_processes_lets_answers_finish(start, workers):
    gateway = start(workers, rate=4.0)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        asking = asyncio.create_task(client.post(CHAT, json={**BODY, "stream": True}))
        await asyncio.to_thread(gateway.wait_for_turns, 1)
        os.killpg(gateway.process.pid, signal.SIGINT)
        assert (await asking).text.endswith("data: [DONE]\n\n")
    assert await asyncio.to_thread(gateway.process.wait, 20) == 0
    assert gateway.turns() == [("ended", "no_next_state")]


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_second_sigterm_ends_the_wait_for_answers(start, workers):
    gateway = start(workers, rate=0.05)  # some 20 s a token, far longer than the limits below
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        asking = asyncio.create_task(client.post(CHAT, json=BODY))
        async with asyncio.timeout(20):
            while not gateway.turns():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        gateway.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert gateway.process.poll() is None, "the first one waits"
        gateway.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(gateway.process.wait, 15) == 0
        assert (await asking).status_code == 503
    assert gateway.turns() == [("aborted", "process_killed")]


async def test_workers_share_their_metrics_replace_their_dead_and_end_with_their_supervisor(start):
    gateway = start(2)
    async with asyncio.timeout(60):
        while gateway.ready_workers() < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
        asking = [client.post(CHAT, json=BODY) for _ in range(6)]
        assert {reply.status_code for reply in await asyncio.gather(*asking)} == {200}
        agreed = 0
        async with asyncio.timeout(20):  # a request is counted a moment after its last byte
            while agreed < 4:
                text = (await client.get("/metrics")).text
                all_told = 'rejoinder_gateway_requests_total{end="answered"} 6.0' in text
                agreed = agreed + 1 if all_told else 0

        killed = gateway.workers()[0]
        asking = [client.post(CHAT, json=BODY) for _ in range(8)]
        tasks = [asyncio.create_task(request) for request in asking]
        await asyncio.sleep(0.1)
        killed.kill()
        replies = await asyncio.gather(*tasks, return_exceptions=True)
        served = [reply for reply in replies if isinstance(reply, httpx.Response)]
        assert all(reply.status_code == 200 for reply in served)
    async with asyncio.timeout(60):  # the next worker ends what the killed one left open
        while gateway.ready_workers() < 3 or any(row[0] == "open" for row in gateway.turns()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    killed_turns = gateway.turns().count(("aborted", "process_killed"))
    assert len(gateway.turns()) - killed_turns == 6 + len(served)

    workers = gateway.workers()
    assert len(workers) == 2
    assert killed not in workers
    gateway.process.kill()
    gone, alive = await asyncio.to_thread(psutil.wait_procs, workers, 30)
    assert (len(gone), alive) == (2, [])
