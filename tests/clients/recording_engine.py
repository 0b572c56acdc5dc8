"""An engine process for tests: what it samples is written down before anybody is told.

``python recording_engine.py REJOINDER_TOML RECORD [SCRIPT]`` serves the configured engine on
``engine.port``, or, with a script, one that replays it. Each line of the record is one answer:
``{"id", "prompt_ids", "ids", "temperature"}``. A script is a list of ``{"when", "answers"}``; the
first entry whose text is in the prompt answers, with as many answers gone as the prompt has.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvicorn

from rejoinder.config import Config, load_config
from rejoinder.engine.app import EngineHolder, engine_app
from rejoinder.engine.base import Engine, EngineInfo, GenerateRequest, TokenChunk
from rejoinder.engine.server import start_engine
from rejoinder.models.embedded import resolve_model
from rejoinder.models.tokenizer import ModelTokenizer, load_tokenizer
from rejoinder.types import FinishReason

HEADER = "<|im_start|>assistant\n"


@dataclass
class Replay:
    """Answers from a script, one id at a time, each with a log-probability of its own."""

    tokenizer: ModelTokenizer
    script: list[dict[str, Any]]

    async def info(self) -> EngineInfo:
        return EngineInfo(
            name="replay",
            tokenizer_hash=self.tokenizer.hash,
            context_length=self.tokenizer.context_length,
            eos_ids=list(self.tokenizer.eos_ids),
            capabilities=["logprobs"],
            live={"default": 0},
            loaded={"default": [0]},
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        ids = [*self.tokenizer.encode(self._answer(request.prompt_ids)), self.tokenizer.eos_ids[0]]
        for index, id_ in enumerate(ids):
            await asyncio.sleep(0)
            last = FinishReason.STOP if index == len(ids) - 1 else None
            yield TokenChunk([id_], [-0.001 * (index + 1)], 0, finish_reason=last)

    async def close(self) -> None:
        pass

    def _answer(self, prompt_ids: list[int]) -> str:
        prompt = self.tokenizer.decode(prompt_ids, skip_special_tokens=False)
        found = next(one for one in self.script if one["when"] in prompt)
        given = prompt.count(HEADER) - 1
        answer: str = found["answers"][min(given, len(found["answers"]) - 1)]
        return answer


class Recording:
    """Hands on to an engine and writes down what it samples."""

    def __init__(self, engine: Engine, record: Path) -> None:
        self._engine = engine
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        ids: list[int] = []
        async for chunk in self._engine.generate(request):
            ids += chunk.ids
            if chunk.finish_reason is not None:
                self._write(request, ids)
            yield chunk

    def _write(self, request: GenerateRequest, ids: list[int]) -> None:
        line = {
            "id": request.request_id,
            "prompt_ids": request.prompt_ids,
            "ids": ids,
            "temperature": request.sampling.temperature,
        }
        with self._record.open("a") as file:
            file.write(json.dumps(line) + "\n")


async def serve(config: Config, record: Path, script: list[dict[str, Any]] | None) -> None:
    if script is None:
        engine = await start_engine(config)
    else:
        engine = cast("Engine", Replay(load_tokenizer(resolve_model(config.model.path)), script))
    holder = EngineHolder()
    holder.engine = cast("Engine", Recording(engine, record))
    port = config.engine.port  # type: ignore[union-attr]
    settings = uvicorn.Config(engine_app(holder), port=port, log_level="warning")
    try:
        await uvicorn.Server(settings).serve()
    finally:
        await engine.close()


def main(config: str, record: str, script: str | None = None) -> None:
    replayed = None if script is None else json.loads(Path(script).read_text())
    asyncio.run(serve(load_config(Path(config)), Path(record), replayed))


if __name__ == "__main__":
    main(*sys.argv[1:])
