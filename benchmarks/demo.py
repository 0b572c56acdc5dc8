"""The demonstration with several seeds and many held-out questions: the figures of the README.

Each finished seed leaves a file in ``--output`` and is not run again with the same settings and the
same code, so a run that was interrupted goes on where it stopped. Versions in between are measured
after learning has ended, so measuring does not disturb it. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from outcome import REVISION, UNKNOWN, finish, revision, same_code
from rejoinder.config import load_config
from rejoinder.evaluation.demo import run_demo
from rejoinder.evaluation.settings import DEFAULT, DemoSettings
from rejoinder.evaluation.statistics import Share

GOAL = 0.9
UPDATES = 12
"""More than the short demonstration makes: what the method reaches, not what fits in minutes."""


def main() -> None:
    arguments = _arguments()
    settings = replace(
        DEFAULT,
        heldout=arguments.heldout,
        curve_every=arguments.curve_every,
        updates=arguments.updates,
        learning_s=arguments.learning_s,
    )
    runs = [
        _run(seed, settings, arguments.config, arguments.output) for seed in range(arguments.seeds)
    ]
    finish("demo", _figures(runs, settings), passed=verdict(runs))


def verdict(runs: list[dict[str, Any]]) -> bool:
    """Whether every seed reaches the goal and ends above its start."""
    return bool(runs) and all(run["after"] >= GOAL and run["after"] > run["before"] for run in runs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="runs seeds 0 to n - 1")
    parser.add_argument("--heldout", type=int, default=200, help="questions measured with")
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--curve-every", type=int, default=2, help="updates between measurements")
    parser.add_argument("--learning-s", type=float, default=3600.0, help="longest learning time")
    parser.add_argument("--config", type=Path, help="configuration: model, device and engine of it")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/demo"))
    return parser.parse_args()


def _run(seed: int, settings: DemoSettings, config: Path | None, output: Path) -> dict[str, Any]:
    """Return a seed's result: that of its file, if it is of the same settings and the same code."""
    file = output / f"seed-{seed}.json"
    used = {name: repr(getattr(settings, name)) for name in settings.__dataclass_fields__}
    run: dict[str, Any]
    if file.exists():
        known = json.loads(file.read_text("utf-8"))
        before = known.get("revision", UNKNOWN)
        if known["settings"] == used and same_code(before, REVISION):
            print(f"seed {seed}: from {file}, run before with this very code and settings")
            run = known["run"]
            return run
        print(f"seed {seed}: run anew; {file} is of the code {before} or of other settings")
    run = run_demo(load_config(config), settings, [seed], output)["runs"][0]
    # Roles start from the files as they are then: code that changed meanwhile ran in part.
    code = REVISION if revision() == REVISION else UNKNOWN
    kept = {"revision": code, "settings": used, "run": run}
    file.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return run


def _figures(runs: list[dict[str, Any]], settings: DemoSettings) -> dict[str, Any]:
    before, after = (
        Share(
            sum(round(run[when] * run["heldout"]) for run in runs),
            sum(run["heldout"] for run in runs),
        )
        for when in ("before", "after")
    )
    return {
        "before": round(before.value, 4),
        "before_interval": [round(end, 4) for end in before.interval],
        "after": round(after.value, 4),
        "after_interval": [round(end, 4) for end in after.interval],
        "updates": max(run["updates"] for run in runs),
        "samples": sum(run["samples"] for run in runs),
        "seconds": round(sum(run["seconds"] for run in runs), 1),
        "seeds": [run["seed"] for run in runs],
        "updates_to_goal": {run["seed"]: _updates_to_goal(run) for run in runs},
        "goal": GOAL,
        "every_seed_above_its_start": all(run["after"] > run["before"] for run in runs),
        "every_seed_reaches_goal": all(run["after"] >= GOAL for run in runs),
        "failed_requests": sum(run["failed_requests"] for run in runs),
        "drift_band": list(settings.drift_band),
        "in_drift_band": all(run["in_drift_band"] for run in runs),
        "runs": runs,
    }


def _updates_to_goal(run: dict[str, Any]) -> int | None:
    """Return after how many updates a measurement first reached the goal; None: it never did."""
    points = [(0, run["before"]), *run["curve"], (run["updates"], run["after"])]
    return next((version for version, share in points if share >= GOAL), None)


if __name__ == "__main__":
    main()
