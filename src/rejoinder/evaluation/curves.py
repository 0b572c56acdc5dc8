"""Learning curves: drawn with characters for the terminal, and as a PNG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rejoinder.evaluation.statistics import Share

_WIDTH, _HEIGHT = 60, 12
_PANELS_IN_A_ROW = 3
_MARK, _LETTER = 0.7, 0.09
"""Inches of a legend that a line's mark and a letter take."""
_RING: dict[str, Any] = {"marker": "o", "markersize": 8, "markerfacecolor": "none"}
_RING_SAID = "single run; ring: ended converged"


@dataclass(frozen=True, slots=True)
class Curve:
    """Shares over policy versions."""

    label: str
    mark: str
    """One character: the terminal's point."""
    points: Sequence[tuple[int, Share]]
    """(version, share), in order of versions."""


def draw_in_terminal(curves: Sequence[Curve], width: int = _WIDTH, height: int = _HEIGHT) -> str:
    """Draw shares from 0 to 1 over versions; a later curve's points lie above earlier ones'."""
    last = max((version for curve in curves for version, _ in curve.points), default=0)
    grid = [[" "] * (width + 1) for _ in range(height + 1)]
    for curve in curves:
        for version, share in curve.points:
            if share.of:
                column = round(width * version / max(1, last))
                grid[height - round(height * share.value)][column] = curve.mark
    lines = []
    for row, cells in enumerate(grid):
        level = 1 - row / height
        label = f"{level:4.2f} " if row % (height // 4) == 0 else " " * 5
        lines.append(f"{label}|{''.join(cells)}".rstrip())
    lines.append(" " * 5 + "+" + "-" * (width + 1))
    ticks = [" "] * (width + 4)
    for version in range(last + 1):
        column = round(width * version / max(1, last))
        number = str(version)
        if "".join(ticks[max(0, column - 1) : column + len(number) + 1]).strip() == "":
            ticks[column : column + len(number)] = number
    lines.append(" " * 6 + "".join(ticks).rstrip() + "   updates")
    lines += [f"{' ' * 6}{curve.mark} {curve.label}" for curve in curves]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Tail:
    """A single run from the last point of the mean of all on, that point included."""

    xs: Sequence[float]
    values: Sequence[float]
    ringed: bool
    """Whether its last point is marked with a ring."""


@dataclass(frozen=True, slots=True)
class Band:
    """A line with the interval around each of its points."""

    label: str
    """Lines of one label look alike in all panels and are told once."""
    xs: Sequence[float]
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    seeds: int | None = None
    """Of how many runs it is the mean."""
    tails: Sequence[Tail] = ()
    """How its runs went on from the mean's last point; drawn thin."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over a common pair of axes; all values are shares."""

    title: str
    bands: Sequence[Band]
    x_label: str = "policy updates"
    y_label: str = "share of satisfying answers"


def save_png(curves: Sequence[Curve], title: str, path: Path) -> None:
    """Draw the curves with their 95 % intervals into a PNG file."""
    save_panels([Panel(title, [_band(curve) for curve in curves])], path)


def save_panels(panels: Sequence[Panel], path: Path) -> None:
    """Draw panels side by side, three in a row, into a PNG file; below them what the lines are."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = min(_PANELS_IN_A_ROW, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (7, 4.6) if len(panels) == 1 else (4.6 * columns, 3.6 * rows + 0.4)
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    labels = dict.fromkeys(band.label for panel in panels for band in panel.bands)
    colors = {label: f"C{number}" for number, label in enumerate(labels)}
    lines: dict[str, Any] = {}
    for number, panel in enumerate(panels, 1):
        lines |= _draw(figure.add_subplot(rows, columns, number), panel, colors)
    if lines:
        said = [label + _seeds(label, panels) for label in labels]
        if any(tail.ringed for panel in panels for band in panel.bands for tail in band.tails):
            lines[_RING_SAID] = Line2D([], [], linewidth=0.8, color="0.4", **_RING)
            labels, said = {**labels, _RING_SAID: None}, [*said, _RING_SAID]
        fitting = int(size[0] / (_MARK + _LETTER * max(map(len, said))))
        # Outside: in a panel that is full it would lie over lines.
        figure.legend(
            [lines[label] for label in labels],
            said,
            loc="outside lower center",
            ncols=max(1, min(len(labels), fitting)),
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _seeds(label: str, panels: Sequence[Panel]) -> str:
    """Return of how many runs the lines of a label are means; " (3 to 5 seeds)" where it varies."""
    counts = [band.seeds for panel in panels for band in panel.bands if band.label == label]
    known = sorted({count for count in counts if count is not None})
    if not known:
        return ""
    numbers = f"{known[0]}" if len(known) == 1 else f"{known[0]} to {known[-1]}"
    return f" ({numbers} {'seed' if known == [1] else 'seeds'})"


def _band(curve: Curve) -> Band:
    known = [(version, share) for version, share in curve.points if share.of]
    return Band(
        curve.label,
        [version for version, _ in known],
        [share.value for _, share in known],
        [share.interval[0] for _, share in known],
        [share.interval[1] for _, share in known],
    )


def _draw(axes: Any, panel: Panel, colors: Mapping[str, str]) -> dict[str, Any]:
    """Draw a panel; returns its lines by their labels."""
    from matplotlib.ticker import MaxNLocator

    lines = {}
    for band in panel.bands:
        color = colors[band.label]
        (lines[band.label],) = axes.plot(
            band.xs, band.values, marker="o", markersize=4, color=color
        )
        axes.fill_between(band.xs, band.lows, band.highs, color=color, alpha=0.15, linewidth=0)
        for tail in band.tails:
            axes.plot(tail.xs, tail.values, linewidth=0.8, alpha=0.5, color=color)
            if tail.ringed:
                axes.plot(tail.xs[-1:], tail.values[-1:], color=color, **_RING)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    axes.set_ylim(-0.02, 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    return lines
