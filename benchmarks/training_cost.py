"""What a step of ``combine`` costs beside one of ``binary``, per sample.

The same samples, with the real model and the real trainer: once with verdicts alone, once with one
hint each, once with three, among which the trainer chooses. Every sample has its hints, the dearest
case there is: in use only criticised answers have any. How the benchmark of personas trains applies
(a reference model for all, a teacher that is a running average). Steps of all are taken in turns,
and ratios are within a turn.

    python benchmarks/training_cost.py [--repeats 7] [--samples 16] [--tokens 48] [--device cuda]

The last line is one JSON object; ``passed`` says whether one hint costs at most 1.5 times as much.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

from outcome import at_most, finish
from rejoinder.models.cores import share_cores

share_cores()

import torch  # noqa: E402 - share_cores must come before PyTorch

from rejoinder.algorithms import build_algorithm  # noqa: E402
from rejoinder.chat.renderer import ChatTemplateRenderer  # noqa: E402
from rejoinder.chat.token_bytes import TokenBytes  # noqa: E402
from rejoinder.config import Config, ModelConfig  # noqa: E402
from rejoinder.evaluation.personas.settings import DEFAULT, system_config  # noqa: E402
from rejoinder.evaluation.questions import Split, load_questions  # noqa: E402
from rejoinder.journal.records import TrainSample  # noqa: E402
from rejoinder.models.embedded import resolve_model  # noqa: E402
from rejoinder.models.tokenizer import ModelTokenizer, load_tokenizer  # noqa: E402
from rejoinder.trainer.hinted import HintRenderer  # noqa: E402
from rejoinder.trainer.step import prepare_step  # noqa: E402
from rejoinder.trainer.torch_backend import TorchBackend  # noqa: E402
from rejoinder.types import BASE_VERSION, Message, VersionRun  # noqa: E402

BAR = 1.5
HINTS = (
    "Answer in one short sentence.",
    "Keep it to one sentence and leave out the list.",
    "Say it in a few plain words, as to a friend.",
)
METHODS = {"binary": 0, "combine, one hint": 1, "combine, three hints": 3}


class Trained:
    """One method with a trainer of its own."""

    def __init__(self, hints: int, samples: list[TrainSample], device: str) -> None:
        algorithm = "combine" if hints else "binary"
        base = Config(model=ModelConfig(device=device))
        self._config = system_config(base, DEFAULT, algorithm, 0, Path())
        self._algorithm = build_algorithm(self._config.trainer)
        self._backend = TorchBackend(
            self._config, self._algorithm.loss, needs_teacher=self._algorithm.needs_hints
        )
        self._backend.load(None, None)
        self._samples = [replace(sample, hints=HINTS[:hints]) for sample in samples]
        self._steps = 0

    def step(self, hinted: HintRenderer) -> float:
        """Take a step; return its seconds."""
        started = time.perf_counter()
        prepared = prepare_step(
            self._samples,
            self._algorithm,
            self._config.trainer.loss,
            {BASE_VERSION: 0},
            BASE_VERSION,
            hinted if self._algorithm.needs_hints else None,
        )
        for _ in self._backend.accumulate(prepared.turns):
            pass
        self._steps += 1
        self._backend.apply(self._steps)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - started


def samples_of(tokenizer: ModelTokenizer, count: int, tokens: int) -> list[TrainSample]:
    """Return questions, answered by other questions' words: the time is the same for any."""
    renderer = ChatTemplateRenderer(tokenizer)
    questions = [one.text for one in load_questions(Split.TRAINING)][:count]
    words = tokenizer.encode(" ".join(questions) * 3)
    made = []
    for number, question in enumerate(questions):
        messages = (Message("user", question),)
        answer = words[number : number + tokens]
        made.append(
            TrainSample(
                sample_id=str(number),
                turn_id=str(number),
                session_id=str(number),
                trajectory=None,
                prompt_ids=renderer.render(messages).ids(),
                answer_ids=answer,
                logprobs=[-3.0] * len(answer),
                versions=(VersionRun(BASE_VERSION, len(answer)),),
                temperature=DEFAULT.temperature,
                reward=-1.0 if number % 2 else 1.0,
                hints=(),
                created_at=0.0,
                messages=messages,
            )
        )
    return made


def main() -> None:
    """Measure, print, and end with the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=48, help="of each answer")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    tokenizer = load_tokenizer(resolve_model("embedded"))
    samples = samples_of(tokenizer, options.samples, options.tokens)
    hinted = HintRenderer(
        ChatTemplateRenderer(tokenizer), tokenizer.context_length, TokenBytes(tokenizer.tokenizer)
    )
    methods = {name: Trained(hints, samples, options.device) for name, hints in METHODS.items()}
    for trained in methods.values():
        trained.step(hinted)  # warm
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(options.repeats):
        for name, trained in methods.items():
            seconds[name].append(trained.step(hinted))
    figures = {
        name: {
            "ms_per_sample": round(1e3 * statistics.median(own) / len(samples), 1),
            "times_binary": round(
                statistics.median(
                    one / plain for one, plain in zip(own, seconds["binary"], strict=True)
                ),
                3,
            ),
        }
        for name, own in seconds.items()
    }
    finish(
        "training_cost",
        {
            "samples": len(samples),
            "answer_tokens": options.tokens,
            "prompt_tokens": round(statistics.mean(len(one.prompt_ids) for one in samples), 1),
            "device": options.device,
            "methods": figures,
        },
        passed=at_most(BAR, [figures["combine, one hint"]["times_binary"]]),
    )


if __name__ == "__main__":
    main()
