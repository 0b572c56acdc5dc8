"""The end of a benchmark: a table, a figure, and one JSON object, of all finished runs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, repeat
from pathlib import Path

from rich.box import HORIZONTALS
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rejoinder.evaluation.curves import Band, Panel, Tail, save_panels
from rejoinder.evaluation.personas.outcomes import (
    Comparison,
    Outcome,
    RunCurve,
    comparisons,
    outcomes,
)
from rejoinder.evaluation.personas.persona import Persona
from rejoinder.evaluation.personas.records import RunRecord
from rejoinder.evaluation.statistics import MIN_RUNS, Estimate
from rejoinder.types import Json


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that came to no end."""

    personas: tuple[str, ...]
    method: str
    seed: int
    reason: str


def show_runs(
    runs: Sequence[RunRecord],
    reference: str,
    console: Console,
    figure: Path,
    failed: Sequence[FailedRun] = (),
    unfinished: Sequence[RunRecord] = (),
) -> Json:
    """Print the table of all runs, draw their curves, and return the machine-readable result.

    Args:
        runs: finished ones, in any mixture of personas, methods and seeds; at least one.
        reference: the method that others are compared with.
        console: where the table goes.
        figure: PNG file to write.
        failed: runs without a result.
        unfinished: runs that broke off, or go on elsewhere. They count nowhere; without a word
            about them a method whose runs fail would look better than it is.
    """
    found = outcomes(runs)
    compared = comparisons(found, reference)
    save_panels(panels(found), figure)
    console.print()
    console.print(_table(found, failed))
    missing = (*_missing(found, failed), *map(_unfinished, unfinished))
    for sentence in (*map(_sentence, compared), *missing):
        console.print(Text(sentence), soft_wrap=True)
    console.print(f"figure: {figure}", soft_wrap=True, highlight=False)
    return {
        "runs": len(runs),
        "failed_runs": [asdict(one) | {"personas": list(one.personas)} for one in failed],
        "unfinished_runs": [_unfinished_json(one) for one in unfinished],
        "failed_requests": sum(run.failed_requests for run in runs),
        "lost_sessions": sum(run.lost_sessions for run in runs),
        "results": [_outcome_json(one) for one in found],
        "comparisons": [_comparison_json(one) for one in compared],
        "figure": str(figure),
    }


def show_personas(personas: Sequence[Persona], console: Console) -> None:
    """Print what there is to choose from."""
    table = Table(box=None, pad_edge=False)
    for heading in ("persona", "tasks", "what it wants"):
        table.add_column(heading)
    for persona in personas:
        table.add_row(persona.name, persona.tasks, Text(persona.description))
    console.print(table)


def panels(found: Sequence[Outcome]) -> list[Panel]:
    """Return one panel of learning curves per subject, with a line per method."""
    return [
        Panel(subject.title, [_band(outcome) for outcome in group], y_label="held-out pass rate")
        for subject, group in groupby(found, key=lambda outcome: outcome.subject)
    ]


def _band(outcome: Outcome) -> Band:
    points = outcome.curve
    estimates = [point.passed for point in points]
    return Band(
        outcome.method,
        [point.updates for point in points],
        [one.value for one in estimates],
        [one.value if one.low is None else one.low for one in estimates],
        [one.value if one.high is None else one.high for one in estimates],
        len(outcome.seeds),
        [_tail(run, points[-1].updates) for run in outcome.run_curves],
    )


def _tail(run: RunCurve, end: int) -> Tail:
    """Return how a run went on from ``end``, where the mean has its last point."""
    left = run.after(end)
    return Tail([updates for updates, _ in left], [rate for _, rate in left], run.ended_converged)


def _table(found: Sequence[Outcome], failed: Sequence[FailedRun]) -> Table:
    rows = [*map(_row, found, repeat(failed))]
    shown = {(one.subject.personas, one.method) for one in found}
    for (personas, method), count in Counter((run.personas, run.method) for run in failed).items():
        if (personas, method) not in shown:
            empty = dict.fromkeys(rows[0], "-")
            empty |= {"persona": "+".join(personas), "method": method}
            rows.append(empty | {"failed": _count(count, "run")})
    # What is empty throughout leaves its room to the names, which break on 80 columns.
    left_out = {name for name in ("right", "failed") if all(row[name] == "-" for row in rows)}
    right = "" if "right" in left_out else "right: that end with the task's number; "
    table = Table(
        title=f"Means over seeds, with 95 % intervals where there are at least {MIN_RUNS}",
        caption="sessions: mean to converge ('2 not in 320': two runs had not, and count as 320); "
        f"held out: first answers that pass; {right}template: how much answers to different tasks "
        "share",
        show_lines=True,
        box=HORIZONTALS,  # no side lines: headings stay whole on 80 columns
        padding=0,
    )
    for heading in rows[0]:
        if heading in {"persona", "method"}:
            table.add_column(heading, overflow="fold")
        elif heading not in left_out:
            is_text = heading == "failed"
            table.add_column(
                heading,
                justify="left" if is_text else "right",
                no_wrap=not is_text and heading != "KL to start",
            )
    for row in rows:
        table.add_row(*(Text(cell) for heading, cell in row.items() if heading not in left_out))
    return table


def _row(one: Outcome, failed: Sequence[FailedRun]) -> dict[str, str]:
    """Return the cells of one method by their headings."""
    return {
        "persona": one.subject.title,
        "method": one.method,
        "converged": f"{len(one.converged)} of {len(one.timed)}",
        "sessions": _sessions(one),
        "held out": f"{_change(one.passed_before, one.passed_after)}\n"
        f"best {one.passed_best.value:.2f}",
        "right": _change(one.right_before, one.right_after),
        "template": "-" if one.template_after is None else f"{one.template_after.value:.2f}",
        "KL to start": "-" if one.divergence is None else f"{one.divergence.value:.3f}",
        "failed": _failures(one, failed),
    }


def _failures(one: Outcome, failed: Sequence[FailedRun]) -> str:
    own = [
        run for run in failed if (run.personas, run.method) == (one.subject.personas, one.method)
    ]
    counts = {
        "run": len(own),
        "measurement": one.failures.measurements,
        "lost session": one.failures.lost_sessions,
        "request": one.failures.requests,
        "rollback": one.failures.rollbacks,
    }
    return "\n".join(_count(number, what) for what, number in counts.items() if number) or "-"


def _missing(found: Sequence[Outcome], failed: Sequence[FailedRun]) -> Iterator[str]:
    """Yield which runs are not in a figure, and why."""
    for run in failed:
        yield f"{'+'.join(run.personas)}: {run.method}, seed {run.seed} has failed: {run.reason}"
    for one in found:
        what = "is left out" if one.timed else "has no sessions to converge"
        for run_out in one.left_out:
            yield (
                f"{one.subject.title}: {one.method}, seed {run_out.seed} {what}: {run_out.reason}"
            )


def _unfinished(run: RunRecord) -> str:
    name = f"{'+'.join(run.personas)}: {run.method}, seed {run.seed}"
    told = f"{name} has not come to its end and counts nowhere: "
    if not run.measured:
        return f"{told}nothing was measured"
    newest = run.measured[-1]
    rates = ", ".join(f"{rates.passed.value:.2f}" for rates in newest.personas.values())
    updates = _count(run.updates_until(newest), "update")
    return f"{told}{rates} of held-out answers pass after {updates}"


def _unfinished_json(run: RunRecord) -> Json:
    newest = run.measured[-1] if run.measured else None
    passed = {} if newest is None else newest.personas
    return {
        "personas": list(run.personas),
        "method": run.method,
        "seed": run.seed,
        "updates": None if newest is None else run.updates_until(newest),
        "passed": {name: round(rates.passed.value, 4) for name, rates in passed.items()},
    }


def _sessions(one: Outcome) -> str:
    """Return the mean of the sessions to converge, and how many runs had not, and by when."""
    if one.sessions is None:
        return "-"
    if not one.converged:  # the mean is that of where they were last looked at
        return f"none in {one.horizon}"
    lines = [f"{one.sessions.value:.0f}"]
    if one.sessions.low is not None and one.sessions.high is not None:
        lines.append(f"{one.sessions.low:.0f} to {one.sessions.high:.0f}")
    if rest := len(one.timed) - len(one.converged):
        lines.append(f"{rest} not in {one.horizon}")
    return "\n".join(lines)


def _change(before: Estimate | None, after: Estimate | None) -> str:
    if before is None or after is None:
        return "-"
    values = f"{before.value:.2f} → {after.value:.2f}"
    if after.low is None or after.high is None:
        return values
    return f"{values}\n{after.low:.2f} to {after.high:.2f}"


def _sentence(one: Comparison) -> str:
    seeds = f"({_count(one.seeds, 'seed')} of both{_had_not(one)})"
    if one.ratio is None:
        return (
            f"{one.subject.title}: neither {one.method} nor {one.reference} converged within "
            f"{one.horizon} sessions {seeds}"
        )
    return (
        f"{one.subject.title}: {one.method} needs {one.ratio} times the sessions of "
        f"{one.reference} {seeds}"
    )


def _had_not(one: Comparison) -> str:
    """Say how many of the runs compared had converged, where not all had."""
    if one.ratio is None or one.converged == one.reference_converged == one.seeds:
        return ""
    return (
        f"; {one.converged} and {one.reference_converged} had converged, the others count as "
        f"{one.horizon}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _outcome_json(one: Outcome) -> Json:
    return {
        "persona": one.subject.persona,
        "personas": list(one.subject.personas),
        "method": one.method,
        "seeds": list(one.seeds),
        "converged": len(one.converged),
        "left_out": [asdict(run) for run in one.left_out],
        "horizon": one.horizon,
        "sessions": _estimate_json(one.sessions),
        "timed": list(one.timed),
        "sessions_by_seed": list(one.restricted_sessions),
        "passed_before": _estimate_json(one.passed_before),
        "passed_after": _estimate_json(one.passed_after),
        "passed_best": _estimate_json(one.passed_best),
        "right_before": _estimate_json(one.right_before),
        "right_after": _estimate_json(one.right_after),
        "template_after": _estimate_json(one.template_after),
        "divergence": _estimate_json(one.divergence),
        "failures": asdict(one.failures),
        "curve": [[point.updates, round(point.passed.value, 4)] for point in one.curve],
    }


def _comparison_json(one: Comparison) -> Json:
    return {
        "persona": one.subject.persona,
        "personas": list(one.subject.personas),
        "method": one.method,
        "reference": one.reference,
        "seeds": one.seeds,
        "converged": one.converged,
        "reference_converged": one.reference_converged,
        "horizon": one.horizon,
        "ratio": _estimate_json(one.ratio),
    }


def _estimate_json(estimate: Estimate | None) -> Json | None:
    """Return value and interval; the ends are null where there is none."""
    if estimate is None:
        return None
    ends = [None if end is None else round(end, 4) for end in (estimate.low, estimate.high)]
    return {"value": round(estimate.value, 4), "interval": ends}
