"""Measures the built-in judges on the labelled next states.

Usage: python benchmarks/judge.py [--split held_out|dev] [--judges likelihood,plain,llm,endpoint]

``likelihood`` is the default judge; ``plain`` the same without the weights fitted for the embedded
model (what any other model gets); ``llm`` lets the engine's start weights generate votes;
``endpoint`` is the LLM judge on ``--base-url``. Judgements run one at a time, so that their
seconds are those of one call. The weights of ``likelihood`` were fitted on the development split
(``judge_fit.py``), so only the held-out one says how good it is; figures of the other are marked
``in_sample``. The last line printed is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

from judge_engine import judge_setting
from outcome import at_least, finish
from rejoinder.config import LikelihoodJudgeConfig, LlmJudgeConfig
from rejoinder.evaluation.statistics import Share
from rejoinder.judge.base import Judge, JudgeSetting
from rejoinder.judge.factory import build_judge
from rejoinder.judge.labelled import LabelledNextState, load_labelled
from rejoinder.judge.likelihood import LikelihoodJudge
from rejoinder.judge.readout import PLAIN
from rejoinder.judge.voting import failure_code, failures
from rejoinder.models.embedded import EMBEDDED
from rejoinder.types import Judgement

CLASSES = {1: "good", -1: "bad"}
COVERAGE_BAR, ACCURACY_BAR = 0.9, 0.92
"""What the default judge must reach on all clear next states that are held out."""


def main() -> None:
    arguments = parse()
    items = load_labelled(arguments.split)[: arguments.limit]
    report = asyncio.run(measure_all(items, arguments))
    figures = {
        "split": arguments.split,
        "in_sample": arguments.split == "dev",
        "items": len(items),
        "judges": report,
        "bars": {"coverage": COVERAGE_BAR, "accuracy": ACCURACY_BAR},
    }
    whole = arguments.split == "held_out" and arguments.limit is None
    finish("judge", figures, passed=verdict(report) if whole else None)


def verdict(report: dict) -> bool | None:
    """Whether the default judge reaches its bars; None where it was not measured."""
    if "likelihood" not in report:
        return None
    clear = report["likelihood"]["clear"]
    reached = at_least(COVERAGE_BAR, [clear["coverage"]])
    return reached and at_least(ACCURACY_BAR, [clear["accuracy"]])


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--split", choices=["held_out", "dev"], default="held_out")
    parser.add_argument("--judges", default="likelihood", help="comma separated")
    parser.add_argument("--model", default=EMBEDDED, help="model of the in-process engine")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--limit", type=int, default=None, help="first items only")
    parser.add_argument("--votes", type=int, default=3, help="of the LLM judge")
    parser.add_argument("--max-tokens", type=int, default=96, help="of one vote")
    parser.add_argument("--base-url", help="OpenAI-compatible endpoint for `endpoint`")
    parser.add_argument("--endpoint-model")
    parser.add_argument("--api-key-env")
    parser.add_argument("--allow-external", action="store_true")
    return parser.parse_args(words)


async def measure_all(items: list[LabelledNextState], arguments: argparse.Namespace) -> dict:
    report = {}
    async with judge_setting(LikelihoodJudgeConfig(), arguments.model, arguments.threads) as base:
        for name, judge in judges(base, arguments):
            print(f"{name}: {len(items)} judgements", file=sys.stderr)
            report[name] = await measure(judge, items)
            await judge.close()
    return report


def judges(base: JudgeSetting, arguments: argparse.Namespace) -> Iterator[tuple[str, Judge]]:
    llm = {"votes": arguments.votes, "max_tokens": arguments.max_tokens}
    for name in arguments.judges.split(","):
        if name == "likelihood":
            yield name, build_judge(base)
        elif name == "plain":
            yield name, LikelihoodJudge(base, PLAIN)
        elif name == "llm":
            yield name, build_judge(with_config(base, LlmJudgeConfig(**llm)))
        elif name == "endpoint":
            config = LlmJudgeConfig(
                **llm,
                base_url=arguments.base_url,
                model=arguments.endpoint_model,
                api_key_env=arguments.api_key_env,
                allow_external=arguments.allow_external,
            )
            yield name, build_judge(with_config(base, config))
        else:
            raise SystemExit(f"no judge {name!r}")


def with_config(base: JudgeSetting, config: LlmJudgeConfig) -> JudgeSetting:
    return JudgeSetting(config, base.policy, base.engine, base.tokenizer, base.model_id)


async def measure(judge: Judge, items: list[LabelledNextState]) -> dict:
    await judge.check()  # the first call also fills the prefix cache
    outcomes: list[tuple[LabelledNextState, Judgement]] = []
    seconds = []
    for item in items:
        started = time.perf_counter()
        outcomes.append((item, await judge.judge(item.context, item.answer, item.next_state)))
        seconds.append(time.perf_counter() - started)
    clear = [(item, outcome) for item, outcome in outcomes if item.clear]
    unclear = [outcome for item, outcome in outcomes if not item.clear]
    by_kind: dict[str, list[tuple[LabelledNextState, Judgement]]] = defaultdict(list)
    for item, outcome in clear:
        by_kind[item.kind].append((item, outcome))
        by_kind["english" if item.language == "en" else "other languages"].append((item, outcome))
    return {
        "fingerprint": judge.fingerprint,
        "clear": rates(clear),
        "per_class": {
            name: rates([pair for pair in clear if pair[0].labels[0] == label])
            for label, name in CLASSES.items()
        },
        "per_kind": {kind: rates(pairs) for kind, pairs in sorted(by_kind.items())},
        "unclear": histogram(unclear),
        "failed_calls": dict(
            Counter(failure_code(vote) for _, outcome in outcomes for vote in failures(outcome))
        ),
        "seconds": {
            "mean": round(statistics.fmean(seconds), 3),
            "median": round(statistics.median(seconds), 3),
            "worst": round(max(seconds), 3),
        },
    }


def rates(pairs: list[tuple[LabelledNextState, Judgement]]) -> dict:
    """Coverage: verdicts of +1 or -1 among all; accuracy: right ones among those."""
    decided = [(item, outcome) for item, outcome in pairs if outcome.score in CLASSES]
    right = sum(item.labels[0] == outcome.score for item, outcome in decided)
    coverage, accuracy = Share(len(decided), len(pairs)), Share(right, len(decided))
    return {
        "count": len(pairs),
        "coverage": round(coverage.value, 4),
        "accuracy": round(accuracy.value, 4),
        "accuracy_95": [round(end, 4) for end in accuracy.interval],
    }


def histogram(outcomes: list[Judgement]) -> dict:
    names = {**CLASSES, 0: "neutral", None: "no_verdict"}
    return dict(Counter(names[outcome.score] for outcome in outcomes))


if __name__ == "__main__":
    main()
