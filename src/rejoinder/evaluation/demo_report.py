"""The end of a demonstration: a curve, answers before and after, figures, and one JSON object."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rejoinder.evaluation.curves import Curve, draw_in_terminal, save_png
from rejoinder.evaluation.personas.records import HeldOutAnswer, Rates, RunRecord
from rejoinder.evaluation.statistics import Share
from rejoinder.plain_text import plain
from rejoinder.types import Json

SHOWN_PAIRS = 4


def show_demo(record: RunRecord, seconds: float, console: Console, figure: Path) -> Json:
    """Print what a run found, and return the machine-readable result.

    Args:
        record: of a run of one persona.
        seconds: it took, the start of the system included.
        console: where it goes.
        figure: PNG file to write.
    """
    curves = learning_curves(record)
    (persona,) = record.personas
    save_png(curves, f"{persona}, {record.method}, seed {record.seed}", figure)
    console.print()
    console.print(Text(draw_in_terminal(curves)))
    console.print(f"figure: {figure}", soft_wrap=True, highlight=False)
    console.print()
    console.print(_answers_table(record))
    console.print(_figures_table(record, seconds))
    return summary(record, seconds) | {"figure": str(figure)}


def learning_curves(record: RunRecord) -> list[Curve]:
    """Return the curve of the people's own first answers, and the held-out one."""
    (persona,) = record.personas
    return [
        Curve("first answers to the people, by the version that gave them", "o", _training(record)),
        Curve(
            "first answers to held-out questions",
            "#",
            [(one.version, one.personas[persona].passed) for one in record.measured],
        ),
    ]


def summary(record: RunRecord, seconds: float) -> Json:
    """Return the machine-readable result; all shares lie in [0, 1]."""
    before, after = _rates(record, 0), _rates(record, -1)
    held_out = learning_curves(record)[1].points
    return {
        "persona": record.personas[0],
        "method": record.method,
        "seed": record.seed,
        "heldout": after.passed.of,
        "before": round(before.passed.value, 4),
        "before_interval": _rounded(before.passed.interval),
        "after": round(after.passed.value, 4),
        "after_interval": _rounded(after.passed.interval),
        "curve": [[version, round(share.value, 4)] for version, share in held_out],
        "training_curve": [[version, share.hits, share.of] for version, share in _training(record)],
        "faults_before": before.faults,
        "faults_after": after.faults,
        "template_before": before.template,
        "template_after": after.template,
        "divergence": record.measured[-1].divergence,
        "ended": str(record.ended),
        "updates": record.updates,
        "updates_measured": _updates_measured(record),
        "samples": record.samples,
        "seconds": round(seconds, 1),
        "judge_agreement": round(record.agreement.value, 4) if record.agreement.of else None,
        "no_verdicts": record.no_verdicts,
        "requests": record.requests,
        "failed_requests": record.failed_requests,
        "failures": list(record.failures),
    }


def _training(record: RunRecord) -> list[tuple[int, Share]]:
    by_version: dict[int, list[bool]] = {}
    for session in record.sessions:
        if session.version is not None:
            by_version.setdefault(session.version, []).append(session.passes)
    return [(version, Share.count(by_version[version])) for version in sorted(by_version)]


def _rates(record: RunRecord, number: int) -> Rates:
    return record.measured[number].personas[record.personas[0]]


def _updates_measured(record: RunRecord) -> int:
    """Fewer than were made, where the last measurement has failed."""
    return record.updates_until(record.measured[-1])


def _rounded(interval: tuple[float, float]) -> list[float]:
    return [round(end, 4) for end in interval]


def _answers_table(record: RunRecord) -> Table:
    """The first held-out questions of the run, as they come: not those that look best."""
    table = Table(title="The same questions, before and after", show_lines=True, expand=True)
    for heading in ("question", "before", f"after {_updates_measured(record)} updates"):
        table.add_column(heading, ratio=1 if heading == "question" else 2)
    pairs = zip(record.answers_before, record.answers_after, strict=True)
    for before, after in list(pairs)[:SHOWN_PAIRS]:
        table.add_row(Text(before.task), _read(before), _read(after))
    return table


def _read(answer: HeldOutAnswer) -> Text:
    """Return an answer, and what the rule says of it."""
    verdict = ", ".join(answer.faults) or "passes"
    return Text.assemble(plain(answer.text.strip()), "\n", (f"({verdict})", "dim"))


def _figures_table(record: RunRecord, seconds: float) -> Table:
    before, after = _rates(record, 0), _rates(record, -1)
    divergence = record.measured[-1].divergence
    table = Table(title=f"Seed {record.seed}", show_header=False)
    rows = {
        "held-out answers that pass, before": str(before.passed),
        f"held-out answers that pass, after {_updates_measured(record)} updates": str(after.passed),
        "faults before": _faults(before),
        "faults after": _faults(after),
        "policy updates": f"{record.updates}, {record.samples} samples (ended by {record.ended})",
        "verdicts of the judge that agree with the rule": str(record.agreement),
        "no verdict": str(record.no_verdicts),
        "word 4-grams shared by answers to different questions": (
            f"{_known(before.template)} before, {_known(after.template)} after"
        ),
        "KL divergence per token from the start weights": _known(divergence),
        "requests": f"{record.requests}, failed {record.failed_requests}",
        "time": f"{seconds:.0f} s",
    }
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def _faults(rates: Rates) -> str:
    return ", ".join(f"{name} {count}" for name, count in rates.faults.items()) or "none"


def _known(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
