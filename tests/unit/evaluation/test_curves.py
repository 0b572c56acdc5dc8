"""Curves for the terminal and as a PNG."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from rejoinder.evaluation.curves import (
    Band,
    Curve,
    Panel,
    Tail,
    draw_in_terminal,
    save_panels,
    save_png,
)
from rejoinder.evaluation.statistics import Share


def test_the_terminal_curve_puts_shares_at_their_height() -> None:
    curve = Curve("x", "#", [(0, Share(0, 4)), (5, Share(2, 4)), (10, Share(4, 4))])
    lines = draw_in_terminal([curve], width=20, height=4).splitlines()
    assert lines[0] == "1.00 |" + " " * 20 + "#"
    assert lines[2] == "0.50 |" + " " * 10 + "#"
    assert lines[4] == "0.00 |#"


def test_curves_without_any_point_are_drawn_empty(tmp_path: Path) -> None:
    empty = [Curve("x", "#", [(0, Share(0, 0))]), Curve("y", "o", [])]
    assert "#" not in draw_in_terminal(empty).splitlines()[0]
    save_png(empty, "nothing", tmp_path / "c.png")


def band(label: str, seeds: int) -> Band:
    return Band(label, [0, 1], [0.2, 0.4], [0.1, 0.3], [0.3, 0.5], seeds)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Those that were written."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: Any, **more: Any) -> None:
        figures.append(figure)
        save(figure, *args, **more)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def test_panels_have_one_legend_outside_of_them_in_which_a_label_has_one_color(
    figures: list[Figure], tmp_path: Path
) -> None:
    """Each panel had one of its own, which lay over lines; and colors by its own order."""
    panels = [
        Panel("p", [band("binary", 5), band("opd", 5)]),
        Panel("q", [band("opd", 3), band("one", 1)]),
    ]
    save_panels(panels, tmp_path / "c.png")
    (figure,) = figures
    (legend,) = figure.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said == ["binary (5 seeds)", "opd (3 to 5 seeds)", "one (1 seed)"]
    first, second = figure.axes
    assert first.lines[1].get_color() == second.lines[0].get_color()
    assert first.lines[0].get_color() != second.lines[0].get_color()
    below = legend.get_window_extent().y1
    assert all(below <= axes.get_tightbbox().y0 for axes in figure.axes)


@pytest.mark.parametrize("count", [1, 3])
def test_a_legend_of_long_labels_stays_within_the_figure(
    figures: list[Figure], tmp_path: Path, count: int
) -> None:
    bands = [band(f"combine with a teacher of its own, number {number}", 5) for number in range(6)]
    save_panels([Panel(str(number), bands) for number in range(count)], tmp_path / "c.png")
    (figure,) = figures
    shown = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= shown.x0
    assert shown.x1 <= figure.bbox.x1


def test_runs_that_go_on_after_the_mean_are_drawn_thin_in_its_color_and_ringed_where_told(
    figures: list[Figure], tmp_path: Path
) -> None:
    tails = [Tail([1, 2, 3], [0.5, 0.7, 0.9], ringed=True), Tail([1, 2], [0.3, 0.2], ringed=False)]
    save_panels([Panel("p", [replace(band("opd", 2), tails=tails)])], tmp_path / "c.png")
    (axes,) = figures[0].axes
    mean, first, ring, second = axes.lines
    assert list(first.get_xdata()) == [1, 2, 3]
    assert (list(ring.get_xdata()), list(ring.get_ydata())) == ([3], [0.9])
    assert list(second.get_ydata()) == [0.3, 0.2]
    assert {line.get_color() for line in axes.lines} == {mean.get_color()}
    assert 0 < first.get_linewidth() < mean.get_linewidth()
    assert first.get_alpha() > 0
    assert ring.get_markerfacecolor() == "none"
    said = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert said == ["opd (2 seeds)", "single run; ring: ended converged"]
