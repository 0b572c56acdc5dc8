"""What an evaluation reads from the journal while it runs: progress, verdicts, token ids."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

import sqlalchemy as sa

from rejoinder.config import Config
from rejoinder.engine.base import VersionSource
from rejoinder.errors import JournalError
from rejoinder.journal.columns import decode_ids, decode_logprobs
from rejoinder.journal.schema import answers, turns, verdicts
from rejoinder.journal.sql import SqlJournal
from rejoinder.policy.registry import version_sources
from rejoinder.types import TurnType


@dataclass(frozen=True, slots=True)
class Progress:
    """Where learning stands."""

    version: int
    """Newest version of the line; each update makes one."""
    trained: int
    """Samples that updates have used."""
    ready: int
    """Samples that wait for the next update."""
    judging: int = 0
    """Answers whose next state waits for the judge."""
    served: int | None = None
    """Version that the engine answers with; None: that is not known."""
    rollbacks: int = 0
    """How often the trainer has gone back by itself."""


@dataclass(frozen=True, slots=True)
class SampledIds:
    """Exactly what the engine got and sampled."""

    prompt: list[int]
    answer: list[int]
    logprobs: list[float]
    """[len(answer)] as sampled, at the temperature of the request."""


class JournalView:
    """Reads a running system's journal; never writes to it."""

    def __init__(self, config: Config) -> None:
        self._journal = SqlJournal(config.journal_url)
        self._policy = config.model.policy
        self._max_staleness = config.trainer.max_staleness

    def __enter__(self) -> JournalView:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._journal.close()

    def progress(self) -> Progress:
        """Return where learning stands now."""
        status = self._journal.status(self._policy, self._max_staleness)
        return Progress(
            version=status["training"]["head_version"] or 0,
            trained=status["samples"]["trained"],
            ready=status["samples"]["ready"],
            judging=status["judge"]["queued"],
            rollbacks=sum(status["counters"].get("trainer", {}).get("auto_rollbacks", {}).values()),
        )

    def source(self, version: int) -> VersionSource:
        """Return where a version's weights are.

        Raises:
            JournalError: there is no such version.
        """
        found = [one for one in self._journal.versions(self._policy) if one.version == version]
        if not found:
            raise JournalError(f"there is no version {version} of policy {self._policy!r}")
        return version_sources(found)[0]

    def judged(self) -> dict[str, int | None]:
        """Return the verdicts of main turns by completion id; None: judged, and no verdict."""
        query = (
            sa.select(turns.c.completion_id, verdicts.c.score)
            .join(verdicts, verdicts.c.turn_id == turns.c.turn_id)
            .where(turns.c.policy == self._policy, turns.c.turn_type == TurnType.MAIN)
        )
        rows = self._journal.database.reader().execute(query)
        return {row.completion_id: row.score for row in rows}

    def sampled_ids(self, completion_id: str) -> SampledIds:
        """Return a turn's exact prompt and answer ids.

        Raises:
            JournalError: no such completion was answered.
        """
        query = (
            sa.select(turns.c.turn_id, answers.c.answer_ids, answers.c.logprobs)
            .join(answers, answers.c.turn_id == turns.c.turn_id)
            .where(turns.c.completion_id == completion_id)
        )
        row = self._journal.database.reader().execute(query).first()
        if row is None:
            raise JournalError(f"no answer of completion {completion_id!r} is in the journal")
        prompt = self._journal.read_request(row.turn_id).prompt_ids
        return SampledIds(prompt, decode_ids(row.answer_ids), decode_logprobs(row.logprobs))
