"""What a benchmark leaves where it ends early: told, and no empty folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rejoinder.evaluation.personas.job import Job
from rejoinder.evaluation.personas.records import refuse_unwritable


@contextlib.contextmanager
def output_folder(
    folder: Path, jobs: Sequence[Job], keep: Path | None, again: str, console: Console
) -> Iterator[None]:
    """Give a folder for runs; at Ctrl-C or SIGTERM, say what is left of them, and where.

    Args:
        folder: it is made; where nothing was written at the end, it is gone again.
        jobs: the runs.
        keep: where their systems' data stays; None: it is deleted.
        again: what the same command would do.
        console: is told.

    Raises:
        RejoinderError: nothing can be written there.
    """
    made = refuse_unwritable(folder)
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        console.print(Text(_left(folder, jobs, keep, again)), soft_wrap=True)
        raise
    finally:
        with contextlib.suppress(OSError):  # something is in it
            for one in made:
                one.rmdir()


def _left(folder: Path, jobs: Sequence[Job], keep: Path | None, again: str) -> str:
    lines = []
    if finished := [job for job in jobs if job.is_finished and not job.goes_on]:
        lines.append(f"finished runs: {len(finished)} of {len(jobs)}, in {folder.absolute()}")
    cut = [job for job in jobs if job.is_cut]
    lines += [f"{job.name}: what was measured until now is in {job.unfinished_path}" for job in cut]
    if not lines:
        lines.append("nothing had been measured, so nothing is kept")
    lines.append(f"the same command {again}")
    if keep is not None and keep.is_dir():
        lines.append(f"the systems' data is in {keep.absolute()}")
    return "\n".join(lines)
