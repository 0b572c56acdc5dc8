"""What of the outcomes is drawn."""

from __future__ import annotations

from dataclasses import replace

from rejoinder.evaluation.curves import Tail
from rejoinder.evaluation.personas.outcomes import outcomes
from rejoinder.evaluation.personas.records import Ended
from rejoinder.evaluation.personas.report import panels

from .kit import measured, run


def test_every_run_goes_on_where_the_mean_of_all_ends_and_is_ringed_where_it_had_converged() -> (
    None
):
    soon = run(measurements=[measured(0, 5), measured(4, 5), measured(6, 9)])
    gap = run(measurements=[measured(0, 4), measured(4, 4), measured(8, 10)], seed=1)
    late = run(
        measurements=[measured(0, 4), measured(4, 4), measured(8, 6), measured(12, 10)], seed=2
    )
    runs = [replace(soon, ended=Ended.CONVERGED), gap, replace(late, ended=Ended.CONVERGED)]
    (panel,) = panels(outcomes(runs))
    (band,) = panel.bands
    assert list(band.xs) == [0, 4, 6]
    assert list(band.tails) == [
        Tail([6], [0.9], ringed=True),
        Tail([6, 8], [0.4, 1.0], ringed=False),
        Tail([6, 8, 12], [0.4, 0.6, 1.0], ringed=True),
    ]
