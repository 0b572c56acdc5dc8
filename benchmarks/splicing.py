"""How much of a conversation is computed again, with earlier answers as sampled and as tokenised.

People talk to the real model at temperature 1. Where an answer was sampled in another tokenisation
than its text has, a prompt that is rendered from text parts from what the engine has computed.
Prompts are spliced here as the gateway does it; what rendered ones would have cost is counted
beside it, from the same answers. The engine says how much of each prompt it had from before.

    python benchmarks/splicing.py [--people 16] [--turns 4] [--tokens 80]

The last line is one JSON object; ``passed`` says whether the engine had the whole turn before, but
for its last token, wherever the template renders the answer as it was sampled.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outcome import finish
from rejoinder.models.cores import share_cores

share_cores()

from rejoinder.chat.renderer import ChatTemplateRenderer  # noqa: E402 - after share_cores
from rejoinder.chat.splicing import KnownTurn, SpliceOutcome, splice  # noqa: E402
from rejoinder.chat.token_bytes import TokenBytes  # noqa: E402
from rejoinder.config import ModelConfig, TorchEngineConfig  # noqa: E402
from rejoinder.engine.base import GenerateRequest, VersionSource  # noqa: E402
from rejoinder.engine.torch_engine.engine import TorchEngine  # noqa: E402
from rejoinder.evaluation.questions import Split, load_questions  # noqa: E402
from rejoinder.models.embedded import resolve_model  # noqa: E402
from rejoinder.models.loading import pick_device, pick_dtype  # noqa: E402
from rejoinder.models.tokenizer import load_tokenizer  # noqa: E402
from rejoinder.types import Message, Sampling, WeightsKind  # noqa: E402

POLICY = "default"
AT_ONCE = 8
CONTEXT = 2048


@dataclass
class Tally:
    """What all conversations saw together."""

    answers: int = 0
    other_tokenisation: int = 0
    known: int = 0
    """Tokens of turns that were continued, without the last one of each, which nothing followed."""
    computed_again: int = 0
    """Of these, by the engine, with spliced prompts."""
    again_if_rendered: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    """Turns that should have been whole in the engine, and were not."""
    splice_us: list[float] = field(default_factory=list)


class Talk:
    """One engine, and people who talk to it."""

    def __init__(self, path: Path, engine: TorchEngine) -> None:
        self._engine = engine
        self._tokenizer = load_tokenizer(path)
        self._renderer = ChatTemplateRenderer(self._tokenizer)
        self._token_bytes = TokenBytes(self._tokenizer.tokenizer)
        self.tally = Tally()

    async def converse(self, number: int, questions: Sequence[str], tokens: int) -> None:
        """Hold one conversation."""
        tokenizer, tally = self._tokenizer, self.tally
        history: list[Message] = []
        before: KnownTurn | None = None
        for turn, question in enumerate(questions):
            history.append(Message("user", question))
            prompt = rendered = self._renderer.render(history).ids()
            whole = False
            if before is not None:
                started = time.perf_counter()
                spliced = splice(
                    before, rendered, self._token_bytes, tokenizer.eos_ids, tokenizer.special_ids
                )
                tally.splice_us.append(1e6 * (time.perf_counter() - started))
                tally.outcomes[spliced.outcome] += 1
                whole = spliced.outcome in (SpliceOutcome.SAME, SpliceOutcome.SPLICED)
                prompt = spliced.ids
            answer, cached = await self._sample(f"{number}-{turn}", prompt, tokens, seed=turn)
            if before is not None:
                assert before.rendered_ids is not None
                known = len(before.prompt_ids) + len(before.answer_ids) - 1
                had = _common((*before.rendered_ids, *before.answer_ids), rendered)
                tally.known += known
                tally.computed_again += max(0, known - cached)
                tally.again_if_rendered += max(0, known - had)
                tally.missed += whole and cached < known
            said = tokenizer.decode(answer)
            tally.answers += 1
            own = [id_ for id_ in answer if id_ not in tokenizer.eos_ids]
            tally.other_tokenisation += tokenizer.encode(said) != own
            history.append(Message("assistant", said))
            before = KnownTurn(tuple(prompt), tuple(answer), tuple(rendered))

    async def _sample(
        self, name: str, prompt: list[int], tokens: int, seed: int
    ) -> tuple[list[int], int]:
        """Return an answer's ids, and how many tokens of the prompt the engine had."""
        sampling = Sampling(max_tokens=tokens, seed=seed)
        ids: list[int] = []
        cached = 0
        async for chunk in self._engine.generate(GenerateRequest(name, prompt, sampling, POLICY)):
            ids += chunk.ids
            cached += chunk.cached_tokens
        return ids, cached


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    return sum(1 for _ in same)


async def measure(people: int, turns: int, tokens: int) -> Tally:
    """Let people talk, some at once."""
    config = ModelConfig()
    path = resolve_model(config.path)
    device = pick_device(config)
    settings = TorchEngineConfig(
        max_running=AT_ONCE, cache_slots=people + AT_ONCE, context_length=CONTEXT
    )
    engine = TorchEngine(path, settings, pick_dtype(config, device), device)
    base = str(path)
    await engine.load(VersionSource(POLICY, 0, base, WeightsKind.FULL, base), live=True)
    talk = Talk(path, engine)
    asked = [question.text for question in load_questions(Split.TRAINING)]
    shares = [asked[number::people][:turns] for number in range(people)]
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with room:
            await talk.converse(number, shares[number], tokens)

    await asyncio.gather(*map(one, range(people)))
    await engine.close()
    return talk.tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=16)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=80)
    options = parser.parse_args()
    tally = asyncio.run(measure(options.people, options.turns, options.tokens))
    figures = {
        "answers": tally.answers,
        "sampled_in_another_tokenisation": tally.other_tokenisation,
        "outcomes": dict(tally.outcomes),
        "tokens_of_continued_turns": tally.known,
        "computed_again": tally.computed_again,
        "computed_again_if_rendered": tally.again_if_rendered,
        "splice_us_median": round(statistics.median(tally.splice_us), 1),
        "splice_us_max": round(max(tally.splice_us), 1),
    }
    finish("splicing", figures, passed=tally.missed == 0)


if __name__ == "__main__":
    main()
