"""A journal whose samples were sampled from the tiny model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from journal_story import POLICY, Story

from rejoinder.journal.records import OpenTurn, PolicyVersion
from rejoinder.journal.sql import SqlJournal
from rejoinder.types import Json, Sampling, VersionRun

from .tiny import load_plain, sample_turn


class TrainStory(Story):
    """A ``Story`` with samples that can train."""

    def __init__(self, journal: SqlJournal, model_path: Path) -> None:
        self.journal = journal
        self.model = load_plain(model_path)
        journal.ensure_policy(POLICY, "local", model_path.as_uri(), "base-hash")

    def add_sample(
        self,
        reward: int = 1,
        *,
        seed: int = 0,
        version: int = 0,
        runs: Sequence[VersionRun] | None = None,
        hints: Sequence[str] = (),
    ) -> OpenTurn:
        """A judged turn that the start weights sampled."""
        turn = sample_turn(self.model, reward, seed=seed, prompt=(5 + seed % 3, 2, 3))
        return self.sample(
            reward,
            hints=hints,
            prompt_ids=turn["prompt"],
            sampling=Sampling(max_tokens=64, temperature=turn["temperature"]),
            finish={
                "answer_ids": turn["answer"],
                "logprobs": turn["behaviour"],
                "versions": runs or [VersionRun(version, len(turn["answer"]))],
            },
        )

    def add_samples(self, count: int, *, first_seed: int = 0, **changes: Any) -> list[OpenTurn]:
        """Several, of both verdicts in turn."""
        return [
            self.add_sample(1 if seed % 2 else -1, seed=seed, **changes)
            for seed in range(first_seed, first_seed + count)
        ]

    def versions(self) -> dict[int, PolicyVersion]:
        return {one.version: one for one in self.journal.versions(POLICY)}

    def live(self) -> int:
        (live,) = self.journal.live_versions()
        return live.version

    def steps(self) -> list[tuple[int, int, int]]:
        """(step, version, samples) of the steps that count."""
        return self.rows(
            "SELECT step, version, samples FROM steps WHERE orphaned_at IS NULL ORDER BY version"
        )

    def consumed(self) -> list[str]:
        """Sample ids, once for each time they count as consumed in the open lineage."""
        lineage = self.lineage().lineage_id
        rows = self.rows("SELECT sample_id FROM consumption WHERE lineage_id = ?", lineage)
        return [row[0] for row in rows]

    def counters(self) -> Json:
        self.journal.flush()
        found: Json = self.journal.status(POLICY, 4)["counters"].get("trainer", {})
        return found
