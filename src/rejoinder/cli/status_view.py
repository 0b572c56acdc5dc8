"""The status document on one screen, and as one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rejoinder.cli.advice import next_steps
from rejoinder.cli.step_remarks import remarks
from rejoinder.cli.terminal import age, counted, size
from rejoinder.journal.learning import is_alive
from rejoinder.plain_text import shortened
from rejoinder.types import Json

WORD_STYLES = {
    "learning": "bold green",
    "collecting": "bold cyan",
    "no traffic": "bold cyan",
    "stopped": "bold red",
    "stalled": "bold red",
    "no judge": "bold red",
    "no trainer": "bold red",
}
_SCORE_STYLES = {"+1": "green", "0": "white", "-1": "red", "none": "yellow"}
_BAR = 12
_METRICS = ("loss", "grad_norm", "entropy", "logprob_difference_mean", "off_policy_kl")
"""Of the last step, where the trainer reports them; the first ones found are shown."""
_SHOWN_METRICS = 4
_ERROR = 100
"""Characters of an error that are shown."""
REPORTING_S = 15.0
"""Every living role reports more often than this."""


def status_line(document: Json) -> Text:
    """Return the one line that ``rejoinder up`` keeps at the bottom."""
    learning, live = document["learning"], document["live"]
    word = learning["word"]
    parts = [Text(f"● {word}", style=WORD_STYLES.get(word, "bold"))]
    if live is not None:
        parts.append(Text(f"version {live['version']}"))
    parts.append(Text(f"{_progress_text(document)} samples"))
    parts.append(Text(counted(document["turns"]["total"], "turn")))
    known = {role["role"] for role in document["roles"]}
    gone = sorted(known - {role["role"] for role in document["roles"] if is_alive(role)})
    if gone:
        parts.append(Text("away: " + ", ".join(gone), style="yellow"))
    parts.append(Text(learning["reason"], style="dim"))
    line = Text("  ").join(parts)
    line.no_wrap = True
    line.overflow = "ellipsis"
    return line


def status_screen(document: Json) -> RenderableType:
    """Return the whole document as panels that fit one screen."""
    return Group(
        _learning(document),
        _side_by_side(_turns(document), _verdicts(document), _step(document)),
        _roles(document),
        *_footer(document),
    )


def _side_by_side(*panels: Panel) -> Table:
    grid = Table.grid(expand=True)
    for _ in panels:
        grid.add_column(ratio=1)
    grid.add_row(*panels)
    return grid


def _learning(document: Json) -> Panel:
    learning, live = document["learning"], document["live"]
    word = learning["word"]
    style = WORD_STYLES.get(word, "bold")
    samples = document["samples"]
    needed = samples["needed"]
    bar = ProgressBar(total=needed or 1, completed=min(samples["ready"], needed or 1), width=32)
    row = Table.grid(padding=(0, 1))
    row.add_row("next step", bar if needed else "", f"{_progress_text(document)} samples")
    version = "-" if live is None else f"version {live['version']} since {age(live['since_s'])}"
    trained, dropped = samples["trained"], samples["dropped"]
    steps = counted(document["training"]["steps"], "step")
    facts = f"{version}   {steps}, {counted(trained, 'sample')} trained"
    if dropped:
        facts += f"   dropped: {_counts(dropped)}"
    head = Text.assemble((word.upper(), style), "  ", learning["reason"])
    lines: list[RenderableType] = [head, row, Text(facts)]
    lines += _rollback(document["training"]["rollback"])
    return Panel(Group(*lines), title=f"policy {document['policy']}", border_style=style)


def _rollback(rollback: Json | None) -> list[Text]:
    """Say after a rollback why steps have numbers that others had before."""
    if rollback is None:
        return []
    made = rollback["step"]
    origin = "the start weights" if made is None else f"which step {made} made"
    line = f"rolled back {age(rollback['ago_s'])} ago to version {rollback['version']}, {origin}: "
    lines = [Text(f"{line}steps are counted on from there", style="dim")]
    if rollback["reason"]:
        lines.append(Text(f"the trainer did so: {rollback['reason']}", style="yellow"))
    return lines


def _progress_text(document: Json) -> str:
    samples = document["samples"]
    return f"{samples['ready']}/{samples['needed'] if samples['needed'] is not None else '?'}"


def _turns(document: Json) -> Panel:
    """Show where turns stand, and under each state why turns stand there for good."""
    turns = document["turns"]
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right")
    for state, count in _largest_first(turns["states"]):
        hints_only = state == "no_verdict" and document["judge"]["asked"] is False
        table.add_row(str(count), "read for hints" if hints_only else _words(state))
        for fate, part in _largest_first(turns["state_fates"].get(state, {})):
            table.add_row("", Text(f"{part} {_words(fate)}", style="dim"))
    kinds = Text(f"{turns['main']} main, {turns['side']} side")
    return Panel(Group(kinds, table), title=counted(turns["total"], "turn"))


def _verdicts(document: Json) -> Panel:
    verdicts, queue = document["verdicts"], document["judge"]
    if queue["asked"] is False:
        return _hints(document)
    judged = [one for kind, one in verdicts["by_next_state"].items() if kind != "feedback"]
    scores = {name: sum(one[name] for one in judged) for name in _SCORE_STYLES}
    most = max(scores.values()) or 1
    table = Table.grid(padding=(0, 1))
    for name, style in _SCORE_STYLES.items():
        bar = ProgressBar(total=most, completed=scores[name], width=_BAR, complete_style=style)
        table.add_row(name, bar, str(scores[name]))
    lines: list[RenderableType] = [table]
    coverage = "-" if queue["coverage"] is None else f"{queue['coverage']:.0%}"
    lines.append(Text(f"coverage {coverage}, {_queued(queue)}"))
    lines.extend(_people(verdicts))
    if verdicts["hints"]:
        lines.append(Text(f"{counted(verdicts['hints'], 'answer')} with a hint"))
    if verdicts["no_verdict"]:
        lines.append(Text(f"no verdict: {_counts(verdicts['no_verdict'])}", style="yellow"))
    return Panel(Group(*lines), title="verdicts of the judge")


def _people(verdicts: Json) -> list[Text]:
    """Say, if they gave any, how often people gave each score: no verdicts of the judge."""
    scores = verdicts["by_next_state"].get("feedback", {})
    told = [f"{scores[name]} of {name}" for name in _SCORE_STYLES if scores.get(name)]
    return [Text(f"people's scores: {', '.join(told)}")] if told else []


def _hints(document: Json) -> Panel:
    """Stand in for the verdicts where none is asked for."""
    told = f"{counted(document['verdicts']['hints'], 'answer')} with a hint"
    lines = [Text(told), Text(_queued(document["judge"])), *_people(document["verdicts"])]
    why = Text("no verdict is asked for: hints alone teach", style="dim")
    return Panel(Group(*lines, why), title="hints")


def _queued(queue: Json) -> str:
    oldest = "" if queue["oldest_s"] is None else f", oldest {age(queue['oldest_s'])}"
    return f"{queue['queued']} queued{oldest}"


def _step(document: Json) -> Panel:
    last = document["training"]["last"]
    if last is None:
        return Panel(Text("none yet", style="dim"), title="last step")
    table = Table.grid(padding=(0, 1))
    score = last["mean_score"]
    table.add_row("made", f"version {last['version']}, {age(last['ago_s'])} ago")
    if last["metrics"].get("skipped"):
        table.add_row("weights", "as before")
    table.add_row("took", f"{last['seconds']:.1f} s, {last['samples']} samples")
    table.add_row("mean score", "-" if score is None else f"{score:+.2f}")
    metrics: Json = last["metrics"]
    for name in [name for name in _METRICS if name in metrics][:_SHOWN_METRICS]:
        table.add_row(name.removesuffix("_mean").replace("_", " "), f"{metrics[name]:.4g}")
    why = [Text(line, style="dim") for line in remarks(last)]
    return Panel(Group(table, *why), title=f"step {last['step']}")


def _roles(document: Json) -> Panel:
    table = Table(box=None, pad_edge=False, expand=True)
    for name in ("role", "state", "seen", "serves"):
        table.add_column(name, no_wrap=True)
    table.add_column("last error", ratio=1)
    for role in _newest(document["roles"]):
        style = "" if role["fresh"] else "yellow"
        state = role["state"] if role["fresh"] else f"gone ({role['state']})"
        table.add_row(
            role["role"],
            Text(state, style=style),
            f"{age(role['seen_s'])} ago",
            _serves(role),
            _trouble(role),
        )
    return Panel(table, title="roles")


def _trouble(role: Json) -> Text:
    """Return a role's last error, or what it warns of; never markup, for it may quote anything."""
    if role["last_error"]:
        return Text(f"{shortened(role['last_error'], _ERROR)} ({age(role['last_error_s'])} ago)")
    return Text("; ".join(shortened(one, _ERROR) for one in role.get("alarms", ())), style="yellow")


def _newest(roles: Iterable[Json]) -> list[Json]:
    """Return the instances that report now, and of a role without any the one seen last.

    An instance that was killed keeps its last words in the journal; they are of no use beside
    those of its successor. Its error is: a role that keeps dying would hide it else each time.
    """
    shown: list[Json] = []
    for role in sorted(roles, key=lambda one: (str(one["role"]), one["seen_s"])):
        first = not shown or shown[-1]["role"] != role["role"]
        if first or (role["seen_s"] < REPORTING_S and role["state"] != "stopped"):
            shown.append(role)
        elif role["last_error"] and not _has_newer_error(shown[-1], role["last_error_s"]):
            error = {name: role[name] for name in ("last_error", "last_error_s")}
            shown[-1] = {**shown[-1], **error}
    return shown


def _has_newer_error(role: Json, seconds: float) -> bool:
    return bool(role["last_error"]) and bool(role["last_error_s"] <= seconds)


def _serves(role: Json) -> str:
    live = role["detail"].get("live")
    if isinstance(live, Mapping):
        return ", ".join(f"{policy}@{version}" for policy, version in live.items())
    return ""


def _footer(document: Json) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if document["external"]:
        places = ", ".join(document["external"])
        lines.append(Text(f"conversations leave this machine: {places}", style="bold yellow"))
    steps = document.get("next", next_steps(document))
    lines += [Text.assemble(("next: ", "bold"), step) for step in steps]
    lines.append(Text(f"journal {size(document['journal']['bytes'])}", style="dim"))
    return lines


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {_words(name)}" for name, count in _largest_first(counts))


def _largest_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: -item[1])


def _words(name: str) -> str:
    return name.replace("_", " ")
