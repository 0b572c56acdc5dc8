"""Measures the hint judges on the labelled next states.

Usage: python benchmarks/hints.py [--split held_out|dev] [--judges extractive,llm,endpoint]

``extractive`` needs no model; ``llm`` lets the start weights of an in-process engine vote;
``endpoint`` is the same on ``--base-url``. A hint is right if it says what the item's author asked
for and nothing that it must not (``LabelledHintState.accepts``). The rules of ``extractive`` were
tuned on the development split, so only the held-out one says how good they are; figures of the
other are marked ``in_sample``. Two sets are read: the directives and non-directives written for
hints, and the English ones of the judges' set, by another author, where only the kind is known:
complaints about style should give a hint, and praise, thanks and results of tools none. Beside them
the personas talk, on whom the rules were tuned too: every sentence with which one says how an
answer should have been, and every one with which it is content, alone; and made-up replies of the
one that wants plain prose, which react and ask a next question in one message. The last line
printed is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from judge_engine import judge_setting
from outcome import at_least, at_most, finish
from rejoinder.config import LikelihoodJudgeConfig, LlmHintsConfig
from rejoinder.evaluation.personas.person import GOODBYE, PLEASED
from rejoinder.evaluation.personas.persona import Persona, load_persona, shipped_personas
from rejoinder.evaluation.questions import load_questions
from rejoinder.evaluation.statistics import Share
from rejoinder.judge.hints.base import HintFate, Hinting, HintJudge
from rejoinder.judge.hints.extractive import ExtractiveHintJudge
from rejoinder.judge.hints.factory import build_hint_judge
from rejoinder.judge.hints.labelled import LabelledHintState, load_labelled_hints
from rejoinder.judge.labelled import LabelledNextState, load_labelled
from rejoinder.judge.voting import failure_code
from rejoinder.models.embedded import EMBEDDED
from rejoinder.types import Message, Vote

COVERAGE_BAR, PRECISION_BAR = 0.8, 0.95
"""What the extractive judge must reach on the held-out split; leaks must be none."""
WHO_ASKS_ON, REPLIES = "no-lists", 1500
"""Half of the replies are kind."""
ASK_ON = (
    "Next question:",
    "Now tell me:",
    "I also want to know:",
    "Let me ask something else.",
    "",
)
COMPLAINTS = ("style_complaint",)
CONTENT = ("style_praise", "praise", "thanks_new", "moves_on", "tool_success", "tool_error")
"""Kinds of the judges' set that should give a hint, and that should give none."""


def main() -> None:
    arguments = parse()
    report = asyncio.run(measure_all(arguments))
    figures = {
        "split": arguments.split,
        "in_sample": arguments.split == "dev",
        "judges": report,
        "bars": {"coverage": COVERAGE_BAR, "precision": PRECISION_BAR, "leaks": 0},
    }
    whole = arguments.split == "held_out" and arguments.limit is None
    finish("hints", figures, passed=verdict(report) if whole else None)


def verdict(report: dict) -> bool | None:
    """Whether the extractive judge reaches its bars; None where it was not measured."""
    if "extractive" not in report:
        return None
    measured = report["extractive"]
    reached = at_least(COVERAGE_BAR, [measured["coverage"]])
    return (
        reached
        and at_least(PRECISION_BAR, [measured["precision"]])
        and at_most(0, [measured["leaks"]])
    )


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--split", choices=["held_out", "dev"], default="held_out")
    parser.add_argument("--judges", default="extractive", help="comma separated")
    parser.add_argument("--model", default=EMBEDDED, help="model of the in-process engine")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--limit", type=int, default=None, help="first items only")
    parser.add_argument("--votes", type=int, default=3, help="of the LLM hint judge")
    parser.add_argument("--max-tokens", type=int, default=96, help="of one vote")
    parser.add_argument("--base-url", help="OpenAI-compatible endpoint for `endpoint`")
    parser.add_argument("--endpoint-model")
    parser.add_argument("--api-key-env")
    parser.add_argument("--allow-external", action="store_true")
    return parser.parse_args(words)


async def measure_all(arguments: argparse.Namespace) -> dict:
    items = load_labelled_hints(arguments.split)[: arguments.limit]
    others = [item for item in load_labelled(arguments.split) if item.language == "en"]
    report = {}
    for name in arguments.judges.split(","):
        print(f"{name}: {len(items)} next states", file=sys.stderr)
        async with hint_judge(name, arguments) as judge:
            report[name] = await measure(judge, items)
            if name == "extractive":
                report[name]["other_set"] = await measure_others(judge, others[: arguments.limit])
                asks_on = load_persona(WHO_ASKS_ON)
                report[name]["asking_on"] = await measure_asking_on(judge, asks_on)
                report[name]["personas"] = {
                    persona: await measure_persona(judge, load_persona(persona))
                    for persona in shipped_personas()
                }
    return report


@asynccontextmanager
async def hint_judge(name: str, arguments: argparse.Namespace) -> AsyncIterator[HintJudge]:
    if name == "extractive":
        yield ExtractiveHintJudge()
        return
    votes = {"votes": arguments.votes, "max_tokens": arguments.max_tokens}
    if name == "endpoint":
        votes |= {
            "base_url": arguments.base_url,
            "model": arguments.endpoint_model,
            "api_key_env": arguments.api_key_env,
            "allow_external": arguments.allow_external,
        }
    elif name != "llm":
        raise SystemExit(f"no hint judge {name!r}")
    async with judge_setting(LikelihoodJudgeConfig(), arguments.model, arguments.threads) as base:
        judge = build_hint_judge(base, LlmHintsConfig(**votes))
        try:
            yield judge
        finally:
            await judge.close()


async def measure(judge: HintJudge, items: list[LabelledHintState]) -> dict:
    """Coverage: directives with a hint; precision: right hints among all, each counted."""
    outcomes: list[tuple[LabelledHintState, Hinting]] = []
    seconds = []
    for item in items:
        started = time.perf_counter()
        outcomes.append((item, await judge.hints(item.context, item.answer, item.next_state)))
        seconds.append(time.perf_counter() - started)
    directives = [pair for pair in outcomes if pair[0].directive]
    others = [pair for pair in outcomes if not pair[0].directive]
    given = [(item, hint) for item, outcome in outcomes for hint in outcome.hints]
    covered = Share(sum(bool(outcome.hints) for _, outcome in directives), len(directives))
    right = Share(sum(item.accepts(hint) for item, hint in given), len(given))
    rejected = Share(sum(not outcome.hints for _, outcome in others), len(others))
    return {
        "fingerprint": judge.maker.fingerprint,
        "directives": len(directives),
        **share("coverage", covered),
        "hints": len(given),
        **share("precision", right),
        "non_directives": len(others),
        **share("rejected", rejected),
        "leaks": sum(leaks(item, hint) for item, hint in given),
        "per_kind": per_kind(outcomes),
        "why": dict(Counter(outcome.why for _, outcome in outcomes if outcome.why)),
        "stopped_leaks": sum(outcome.why is HintFate.LEAK for _, outcome in outcomes),
        "failed_calls": dict(
            Counter(failure_code(Vote(None, text)) for _, o in outcomes for text in o.failed_calls)
        ),
        "wrong": [{"id": item.id, "hint": hint} for item, hint in given if not item.accepts(hint)],
        "missed": [item.id for item, outcome in directives if not outcome.hints],
        "seconds": {
            "mean": round(statistics.fmean(seconds), 4),
            "worst": round(max(seconds), 4),
        },
    }


def share(name: str, value: Share) -> dict:
    return {
        name: round(value.value, 4),
        f"{name}_95": [round(end, 4) for end in value.interval],
    }


def leaks(item: LabelledHintState, hint: str) -> bool:
    """Whether a hint tells a corrected fact or a new task: what its item says it must not."""
    words = " ".join(message.content for message in item.next_state).lower()
    told = [term for term in item.must_not if term.rstrip("*").lower() in words]
    return any(term.rstrip("*").lower() in hint.lower() for term in told)


def per_kind(outcomes: list[tuple[LabelledHintState, Hinting]]) -> dict:
    """Count, with a hint, and with a right one, for each kind."""
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for item, outcome in outcomes:
        right = any(item.accepts(hint) for hint in outcome.hints)
        for index, value in enumerate((1, bool(outcome.hints), right)):
            rows[item.kind][index] += value
    return dict(sorted(rows.items()))


async def measure_others(judge: HintJudge, items: list[LabelledNextState]) -> dict:
    given: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for item in items:
        count[item.kind] += 1
        outcome = await judge.hints(item.context, item.answer, item.next_state)
        given[item.kind] += bool(outcome.hints)
    return {
        **share("coverage_of_complaints", shared(given, count, COMPLAINTS)),
        **share("hints_where_none_is_due", shared(given, count, CONTENT)),
        "per_kind": {kind: [count[kind], given[kind]] for kind in sorted(count)},
    }


async def measure_asking_on(judge: HintJudge, persona: Persona) -> dict:
    """Complaints with a hint, and kind words with one, where a next question follows at once."""
    chance, questions = random.Random(REPLIES), load_questions("training")
    person = persona.speak(REPLIES)
    hinted: dict[bool, list[bool]] = {True: [], False: []}
    for index in range(REPLIES):
        asked, following = chance.sample(questions, 2)
        faults = chance.sample(persona.order, chance.choice((1, 1, 1, 2))) if index % 2 else []
        said = f"{person.react(asked, faults)} {chance.choice(ASK_ON)} {following.text}"
        context, answer = [Message("user", asked.text)], Message("assistant", "Some answer.")
        hinting = await judge.hints(context, answer, [Message("user", said)])
        hinted[bool(faults)].append(bool(hinting.hints))
    return {
        **share("coverage_of_complaints", Share.count(hinted[True])),
        **share("hints_where_none_is_due", Share.count(hinted[False])),
        "replies": REPLIES,
    }


async def measure_persona(judge: HintJudge, persona: Persona) -> dict:
    """Cores with a hint, each said once: of all faults, and of those of this persona's own wish."""
    hinted: dict[str, dict[str, bool]] = {}
    for kind, phrases in persona.voice.items():
        if kind != GOODBYE:
            hinted[kind] = {core: await gives_hint(judge, persona, core) for core in phrases.cores}
    content = hinted.pop(PLEASED)
    complaints = [given for cores in hinted.values() for given in cores.values()]
    wished = {fault for check in persona.checks for fault in check.faults}
    own = [given for kind in hinted if kind in wished for given in hinted[kind].values()]
    return {
        **share("coverage_of_complaints", Share.count(complaints)),
        **share("coverage_of_its_wish", Share.count(own)),
        **share("hints_where_none_is_due", Share.count(list(content.values()))),
        "counts": [len(complaints), len(own), len(content)],
        "missed": [core for cores in hinted.values() for core, given in cores.items() if not given],
    }


async def gives_hint(judge: HintJudge, persona: Persona, core: str) -> bool:
    asked = persona.asks[0].replace("{task}", "I need help with gardening: how do I plant tulips?")
    said = Message("user", core.format(topic="gardening", word="tulips"))
    context, answer = [Message("user", asked)], Message("assistant", "Some answer.")
    return bool((await judge.hints(context, answer, [said])).hints)


def shared(given: Counter[str], count: Counter[str], kinds: tuple[str, ...]) -> Share:
    return Share(sum(given[kind] for kind in kinds), sum(count[kind] for kind in kinds))


if __name__ == "__main__":
    main()
