"""Curves for the terminal and as a PNG."""

from __future__ import annotations

from pathlib import Path

from rejoinder.evaluation.curves import Curve, draw_in_terminal, save_png
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
