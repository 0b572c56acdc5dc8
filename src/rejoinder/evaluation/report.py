"""The end of a demonstration: tables, curves, and one JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rejoinder.evaluation.curves import Curve, draw_in_terminal, save_png
from rejoinder.evaluation.measure import Measurement
from rejoinder.evaluation.rules import Flaw
from rejoinder.evaluation.run import DemoResult
from rejoinder.evaluation.sessions import Exchange
from rejoinder.evaluation.settings import DemoSettings
from rejoinder.evaluation.statistics import Share
from rejoinder.types import Json

SHOWN_PAIRS = 2


def show_result(result: DemoResult, settings: DemoSettings, console: Console, png: Path) -> None:
    """Print what a run found and write its curve to ``png``."""
    curves = learning_curves(result)
    save_png(curves, f"Satisfying answers, seed {result.seed}", png)
    console.print()
    console.print(Text(draw_in_terminal(curves)))
    console.print(f"curve: {png}", soft_wrap=True, highlight=False)
    console.print()
    console.print(_answers_table(result))
    console.print(_figures_table(result, settings))


def learning_curves(result: DemoResult) -> list[Curve]:
    """Return the training answers' and the held-out curve of a run."""
    measured = sorted((result.before, *result.between, result.after), key=lambda m: m.version)
    return [
        Curve("training answers, by the version that gave them", "o", result.training),
        Curve("held-out answers", "#", [(each.version, each.satisfied) for each in measured]),
    ]


def summary(results: Sequence[DemoResult], settings: DemoSettings, pngs: Sequence[Path]) -> Json:
    """Return the machine-readable result of one or more seeds; all shares lie in [0, 1]."""
    before = _pool(result.before.satisfied for result in results)
    after = _pool(result.after.satisfied for result in results)
    return {
        "before": round(before.value, 4),
        "after": round(after.value, 4),
        "updates": max(result.updates for result in results),
        "samples": sum(result.samples for result in results),
        "seconds": round(sum(result.seconds for result in results), 1),
        "seeds": [result.seed for result in results],
        "before_interval": _rounded(before.interval),
        "after_interval": _rounded(after.interval),
        "heldout": settings.heldout,
        "failed_requests": sum(len(result.failures) for result in results),
        "drift_band": list(settings.drift_band),
        "runs": [
            seed_summary(result, settings) | {"png": str(png)}
            for result, png in zip(results, pngs, strict=True)
        ],
    }


def seed_summary(result: DemoResult, settings: DemoSettings) -> Json:
    """Return the machine-readable result of one seed."""
    low, high = settings.drift_band
    return {
        "seed": result.seed,
        "heldout": result.after.satisfied.of,
        "before": round(result.before.satisfied.value, 4),
        "before_interval": _rounded(result.before.satisfied.interval),
        "after": round(result.after.satisfied.value, 4),
        "after_interval": _rounded(result.after.satisfied.interval),
        "curve": [[each.version, round(each.satisfied.value, 4)] for each in result.between],
        "training_curve": [[version, share.hits, share.of] for version, share in result.training],
        "flaws_before": result.before.flaws,
        "flaws_after": result.after.flaws,
        "updates": result.updates,
        "samples": result.samples,
        "seconds": round(result.seconds, 1),
        "learning_seconds": round(result.learning_seconds, 1),
        "judge_agreement": round(result.agreement.value, 4) if result.agreement.of else None,
        "no_verdicts": result.no_verdicts,
        "start_logprob_before": round(result.start_logprob_before, 4),
        "start_logprob_after": round(result.start_logprob_after, 4),
        "in_drift_band": low <= result.start_logprob_after <= high,
        "requests": result.requests,
        "failed_requests": len(result.failures),
        "failures": list(result.failures[:5]),
    }


def _pool(shares: Iterable[Share]) -> Share:
    known = list(shares)
    return Share(sum(share.hits for share in known), sum(share.of for share in known))


def _rounded(interval: tuple[float, float]) -> list[float]:
    return [round(end, 4) for end in interval]


def _answers_table(result: DemoResult) -> Table:
    """Two questions whose answers got better, those that were lists first, where there are any."""
    old = {exchange.question.text: exchange for exchange in result.before.exchanges}
    pairs = [
        (old[new.question.text], new) for new in result.after.exchanges if new.question.text in old
    ]
    pairs.sort(key=_how_telling)
    table = Table(title="The same questions, before and after", show_lines=True, expand=True)
    for heading in ("question", "before", f"after {result.updates} updates"):
        table.add_column(heading, ratio=1 if heading == "question" else 3)
    for before, after in pairs[:SHOWN_PAIRS]:
        table.add_row(Text(before.question.text), Text(before.reply.text), Text(after.reply.text))
    return table


def _how_telling(pair: tuple[Exchange, Exchange]) -> tuple[bool, bool, bool, int]:
    """Sort key: what shows best that something was learnt comes first."""
    before, after = pair
    was_list = bool({Flaw.LIST, Flaw.BOLD} & set(before.assessment.flaws))
    return (
        before.assessment.passes,
        not after.assessment.passes,
        not was_list,
        before.assessment.words,
    )


def _figures_table(result: DemoResult, settings: DemoSettings) -> Table:
    low, high = settings.drift_band
    table = Table(title=f"Seed {result.seed}", show_header=False)
    rows = {
        "satisfying held-out answers before": str(result.before.satisfied),
        "satisfying held-out answers after": str(result.after.satisfied),
        "flaws before": _flaws(result.before),
        "flaws after": _flaws(result.after),
        "policy updates": f"{result.updates}, {result.samples} samples",
        "verdicts that agree with the person": str(result.agreement),
        "no verdict": str(result.no_verdicts),
        "log-probability per token under the start weights": (
            f"{result.start_logprob_before:.2f} before, {result.start_logprob_after:.2f} after "
            f"(band {low} to {high})"
        ),
        "requests": f"{result.requests}, failed {len(result.failures)}",
        "time": f"{result.seconds:.0f} s, of which learning {result.learning_seconds:.0f} s",
    }
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def _flaws(measurement: Measurement) -> str:
    return ", ".join(f"{name} {count}" for name, count in measurement.flaws.items()) or "none"
