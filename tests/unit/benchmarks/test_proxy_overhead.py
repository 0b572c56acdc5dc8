"""What counts as added by gateway and proxy, and that the instant engine speaks both languages."""

import asyncio
from dataclasses import replace

import pytest

from http_load import Connection
from instant_engine import Answers, Server
from proxy_overhead import ratios, verdict
from rejoinder.engine.base import GenerateRequest
from rejoinder.engine.client import HttpEngine
from rejoinder.types import FinishReason, Sampling


def found(rate: float, latency_ms: float, first_ms: float) -> dict[str, float]:
    return {"requests_per_s": rate, "latency_ms": latency_ms, "first_token_ms": first_ms}


ENGINE, PROXY = found(5000.0, 1.0, 0.5), found(100.0, 61.0, 30.5)


def test_what_is_added_is_without_what_the_engine_itself_takes():
    made = ratios({"engine": ENGINE, "gateway": found(900.0, 4.0, 2.0), "proxy": PROXY})
    assert made["rate_ratio"] == 9.0
    assert made["added"]["proxy"] == {"latency_ms": 60.0, "first_token_ms": 30.0}
    assert made["added_ratio"] == {"latency_ms": 0.05, "first_token_ms": 0.05}


@pytest.mark.parametrize(
    ("gateway", "passed"),
    [
        (found(900.0, 4.0, 2.0), True),
        (found(500.0, 4.0, 2.0), False),
        (found(900.0, 14.0, 2.0), False),
        (found(900.0, 4.0, 8.0), False),
    ],
    ids=["all", "rate", "latency", "first token"],
)
def test_every_bar_must_be_met_in_every_phase(gateway, passed):
    good = ratios({"engine": ENGINE, "gateway": found(900.0, 4.0, 2.0), "proxy": PROXY})
    one = ratios({"engine": ENGINE, "gateway": gateway, "proxy": PROXY})
    assert verdict([good, one]) == passed


async def test_the_instant_engine_says_the_same_in_both_languages(tiny_tokenizer, tmp_path):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64, "eos_token_id": 258}')
    tiny_tokenizer.tokenizer.save(str(tmp_path / "tokenizer.json"))
    answers = Answers(tmp_path, "Instant ☂")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(answers), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    engine = HttpEngine(f"http://127.0.0.1:{port}")
    connection = await Connection.open(port)
    try:
        info = await engine.info()
        assert info.tokenizer_hash == tiny_tokenizer.hash
        request = GenerateRequest("r", [1], Sampling(max_tokens=64), "default")
        chunks = [chunk async for chunk in engine.generate(request)]
        ids = [id_ for chunk in chunks for id_ in chunk.ids]
        assert ids == [*tiny_tokenizer.encode("Instant ☂"), *tiny_tokenizer.eos_ids]
        assert chunks[-1].finish_reason is FinishReason.STOP
        request = replace(request, whole=True)
        together = [chunk async for chunk in engine.generate(request)]  # joined if they come so
        assert [id_ for chunk in together for id_ in chunk.ids] == ids
        assert together[-1].finish_reason is FinishReason.STOP
        path = "/v1/chat/completions"
        whole = await connection.request("POST", path, b'{"stream": false}')
        assert whole.answer() == "Instant ☂"
        assert whole.first_s is None
        streamed = await connection.request("POST", path, b'{"stream": true}')
        assert streamed.body.count(b"data: ") == len(ids) + 2
        assert 0 < (streamed.first_s or 0) <= streamed.seconds
    finally:
        connection.close()
        await engine.close()
        server.close()
