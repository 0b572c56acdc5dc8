"""The labelled next states that hint judges are measured on; see ``docs/reference/hints.md``."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from rejoinder.judge.labelled import Split, message_of, rows_of
from rejoinder.types import Message

_FILE = "hint_states.jsonl"
_SPLITS = 3
"""One in so many items is held out."""


@dataclass(frozen=True, slots=True)
class LabelledHintState:
    """One item: a next state, and what a hint from it must and must not say."""

    id: str
    kind: str
    """What its author had in mind; kinds that begin with ``none_`` must give no hint."""
    context: tuple[Message, ...]
    answer: Message
    next_state: tuple[Message, ...]
    must: tuple[tuple[str, ...], ...]
    """Of each group a hint has to contain at least one term; a final ``*`` stands for any ending.
    Empty: there must be no hint."""
    must_not: tuple[str, ...]
    """Terms that it may not contain: a corrected fact, a new task, the opposite."""

    @property
    def directive(self) -> bool:
        """Whether there is something to hint at."""
        return bool(self.must)

    @property
    def split(self) -> Split:
        """Fixed by a hash of the id, so that new items move no others."""
        held_out = int(hashlib.sha256(self.id.encode()).hexdigest(), 16) % _SPLITS == 0
        return "held_out" if held_out else "dev"

    def accepts(self, hint: str) -> bool:
        """Whether a hint says what this next state asks for and nothing that it must not."""
        wanted = all(any(_says(hint, term) for term in group) for group in self.must)
        return self.directive and wanted and not any(_says(hint, term) for term in self.must_not)


def _says(hint: str, term: str) -> bool:
    pattern = r"\b" + re.escape(term.removesuffix("*")) + ("" if term.endswith("*") else r"\b")
    return re.search(pattern, hint.replace("’", "'"), re.IGNORECASE) is not None


def load_labelled_hints(split: Split | None = None) -> list[LabelledHintState]:
    """Return the set, or one split of it, in the order of its file."""
    items = [
        LabelledHintState(
            id=row["id"],
            kind=row["kind"],
            context=tuple(message_of(entry) for entry in row["context"]),
            answer=message_of(row["answer"]),
            next_state=tuple(message_of(entry) for entry in row["next_state"]),
            must=tuple(tuple(group) for group in row.get("must", ())),
            must_not=tuple(row.get("must_not", ())),
        )
        for row in rows_of(_FILE)
    ]
    return [item for item in items if split is None or item.split == split]
