"""How people say how an answer should have been: ``data/directives.toml``, compiled."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

_PATTERNS = (
    "praise", "more_of_it", "not_too", "wants_change", "complaint", "back_reference", "new_task",
    "reason", "about_the_answer", "about_form", "task_object", "form_object", "hands_over",
    "states", "copula", "form_clause", "torn", "reverse", "objection",
    "scarce", "declined",
)  # fmt: skip
"""Keys of the file that are patterns as they stand."""
_CLAUSE_END = re.compile(r"[,;:]\s|\band\b")


@dataclass(frozen=True, slots=True)
class Topic:
    """One thing that people mean, and the sentence that says it."""

    name: str
    say: str
    says: re.Pattern[str] | None
    """Enough alone."""
    about: re.Pattern[str] | None
    """Enough beside a complaint."""
    wants: re.Pattern[str] | None
    """Enough in a clause that does not object to it."""
    unless: re.Pattern[str] | None
    """Takes all three back."""
    general: bool
    """Holds whatever else is wrong with an answer, so that it is said only beside nothing else."""
    opposes: str = ""
    """Name of the topic that asks for the opposite."""
    yields_to: re.Pattern[str] | None = None
    """Words of the person's own instructions that its sentence would disagree with."""

    def matches(self, text: str, said: str, objection: re.Pattern[str], *, complains: bool) -> bool:
        """Whether a sentence in lower case means this.

        Args:
            text: the sentence.
            said: the sentence without what it asks to leave out.
            objection: words with which a clause objects to what it names.
            complains: whether the sentence objects to what it is about.
        """
        if self.unless is not None and self.unless.search(text):
            return False
        if self.says is not None and self.says.search(said):
            return True
        if self.wants is not None:
            for clause in _CLAUSE_END.split(text):
                if self.wants.search(clause) and not objection.search(clause):
                    return True
        return complains and self.about is not None and self.about.search(text) is not None


@dataclass(frozen=True, slots=True)
class Phrasebook:
    """All patterns; the file says what each is for."""

    topics: tuple[Topic, ...]
    rewrites: tuple[tuple[re.Pattern[str], str], ...]
    instruction: re.Pattern[str]
    fragment: re.Pattern[str]
    task: re.Pattern[str]
    reason: re.Pattern[str]
    opener: re.Pattern[str]
    lasting: re.Pattern[str]
    lasting_end: re.Pattern[str]
    praise: re.Pattern[str]
    more_of_it: re.Pattern[str]
    not_too: re.Pattern[str]
    wants_change: re.Pattern[str]
    complaint: re.Pattern[str]
    back_reference: re.Pattern[str]
    new_task: re.Pattern[str]
    about_form: re.Pattern[str]
    about_the_answer: re.Pattern[str]
    task_object: re.Pattern[str]
    form_object: re.Pattern[str]
    hands_over: re.Pattern[str]
    states: re.Pattern[str]
    copula: re.Pattern[str]
    form_clause: re.Pattern[str]
    torn: re.Pattern[str]
    reverse: re.Pattern[str]
    objection: re.Pattern[str]
    scarce: re.Pattern[str]
    declined: re.Pattern[str]

    def meant(self, text: str, *, complains: bool) -> list[Topic]:
        """Return the topics that a sentence in lower case means."""
        said = self.declined.sub(" ", text)
        objects = complains and not self.scarce.search(text)
        return [
            topic
            for topic in self.topics
            if topic.matches(text, said, self.objection, complains=objects)
        ]


@cache
def source() -> str:
    """Return the file's text, for fingerprints."""
    return (files("rejoinder.judge.hints") / "data" / "directives.toml").read_text("utf-8")


@cache
def phrasebook() -> Phrasebook:
    """Return the patterns, read once."""
    data = tomllib.loads(source())
    lasting = "|".join(data["lasting"])
    opener = _words(data["openers"])
    leading = _words(data["leading"])
    patterns = {name: _any_of(data[name]) for name in _PATTERNS}
    return Phrasebook(
        topics=tuple(_topic(entry) for entry in data["topic"]),
        rewrites=tuple((re.compile(pattern), made) for pattern, made in data["rewrites"]),
        instruction=re.compile(rf"(?:please |just |do |let's )*{_words(data['imperatives'])}\b"),
        task=re.compile(rf"(?:please |just )*{_words(data['task_verbs'])}\b"),
        fragment=re.compile(rf"(?:please |just )*{_words(data['fragments'])}\b"),
        opener=re.compile(rf"(?:{opener}(?: {opener})*\s*[,.!:…]+\s*|{leading},?\s+)"),
        lasting=re.compile(rf"(?:{lasting}),?\s+"),
        lasting_end=re.compile(rf",?\s+(?:{lasting})(?=[.!]*$)"),
        **patterns,
    )


def _topic(entry: dict[str, Any]) -> Topic:
    patterns = {
        key: _any_of(entry[key]) if key in entry else None
        for key in ("says", "about", "wants", "unless", "yields_to")
    }
    return Topic(
        entry["name"],
        entry["say"],
        **patterns,
        general=entry.get("general", False),
        opposes=entry.get("opposes", ""),
    )


def _any_of(patterns: str | list[str]) -> re.Pattern[str]:
    """Compile the lines of a text as they are, and a list as alternatives of whole words."""
    if isinstance(patterns, str):
        return re.compile("|".join(patterns.splitlines()))
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)")


def _words(text: str) -> str:
    return f"(?:{'|'.join(map(re.escape, text.split()))})"
