"""What a person says about the manner of an answer, turned into an instruction.

Sentence by sentence: praise and new tasks say nothing of it; an instruction is taken as it stands,
and a wish or a request is made one; a complaint becomes the sentence that the phrasebook has for
what is meant, and gives nothing where it has none: to quote it would be to guess what is wanted
instead. Nothing passes that would leak (``leak.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rejoinder.judge.hints.cleaning import MAX_CHARS, MAX_SENTENCES, MIN_CHARS, is_prose
from rejoinder.judge.hints.leak import asks_for_length, leaked_words
from rejoinder.judge.hints.phrasebook import Topic, phrasebook
from rejoinder.judge.hints.restating import restated
from rejoinder.judge.hints.soundness import (
    is_torn,
    may_mean_the_reverse,
    tells_content,
)
from rejoinder.judge.hints.words import manner_stems, plain_stems, sentences_of, stem, words_of

_CONTRAST = re.compile(
    r"[,;]?\s+(?:but|however|though|although|only that|except that)\b,?\s+|;\s+|\s+[–—-]+\s+"
)
_CLAUSE = re.compile(r"[,;:]\s+(?:and\s+|or\s+|so\s+)?|\s+(?:because|since|and)\s+")
_INSIDE_NOUN = re.compile(r"\b(?:an?|one|be|it|in|with|sound|your)\s+[\w-]+$", re.IGNORECASE)
_BEGINS_CLAUSE = re.compile(
    r"(?:please|i|i'[a-z]+|you|it|it's|that|this|they|we|there|do|don't|no|not)\b", re.IGNORECASE
)
"""Which "but" joins two adjectives: before it the first, behind it no new clause."""
_TAG = re.compile(
    r"(?:,\s*(?:ok|okay|right|yeah)\s*[?.!]*|\s(?:ok|okay|right|yeah)\s*\?+"
    r"|,?\s*\b(?:would you|will you|could you|thanks?)\s*[?.!]*)$"
)
_BEGIN = re.compile(r"^[^\w\"“‘']+")
_BEGIN_INSIDE = re.compile(r"(?<=\bwant )[A-Z](?=[a-z ])|(?<=\blike )[A-Z](?=[a-z ])")
"""The capital letter of a clause that now stands inside a sentence."""
_END = re.compile(r"[\s.,;:!?…]+$")
_GAP = re.compile(r"\s[,.;:!?]")
"""Before a punctuation mark, where something was taken out of a sentence."""
_QUESTION = re.compile(r"\?[\"”’)]*$")
_PLEASE = re.compile(r"please\b.*|.*\bplease(?:,.*)?")
_STATEMENT = re.compile(r"\b(?:is|are|was|were|has|have|that's|it's|looks?|makes?)\b")
"""A clause with one of these says how something is and asks for nothing."""
_JUDGES = re.compile(r"(?!\w+er |more |less |.*\bplease)\w+ and (?:\w+ )?\w+")
""""Plain and clear": what a person says of an answer that was so."""
_FEWEST_WORDS = 2
_FRAGMENT_WORDS = range(3, 10)
"""Words that a fragment has: with fewer, the phrasebook says it better."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One sentence of a hint."""

    text: str
    topics: frozenset[str]
    """Names of what it means, so that nothing is said twice."""
    opposes: frozenset[str] = frozenset()
    """Names of what it speaks against."""
    yields_to: re.Pattern[str] | None = None
    """What the person's own instructions may not have beside it."""
    own: bool = True
    """In the person's own words, which say it better than the phrasebook's."""


@dataclass(slots=True)
class Findings:
    """What was found in a person's words."""

    instructions: list[Instruction] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    """Words that kept sentences from becoming instructions."""
    beyond: list[str] = field(default_factory=list)
    """Instructions that are none about manner, as far as the rules know."""
    too_long: bool = False
    """An instruction was left out because it alone is longer than a hint may be."""

    def hint(self) -> str:
        """Return one hint of what fits, in the order it was said; empty if there is nothing."""
        hint, covered, count = "", set[str](), 0
        own = [one for one in self.instructions if one.own]
        said = set[str]().union(*(one.topics for one in own))
        words = _low(" ".join(one.text for one in own))
        opposed = set[str]().union(*(one.opposes for one in self.instructions))
        for one in self.instructions:
            if one.topics and one.topics <= covered:
                continue
            disagrees = one.yields_to is not None and one.yields_to.search(words)
            if not one.own and (one.topics & (said | opposed) or disagrees):
                continue
            sentences = len(sentences_of(one.text))
            longer = f"{hint} {one.text}".strip()
            if len(longer) <= MAX_CHARS and count + sentences <= MAX_SENTENCES:
                hint, covered, count = longer, covered | one.topics, count + sentences
        return hint


def read_directives(sentences: Sequence[str], known: frozenset[str]) -> Findings:
    """Return what a person says about the manner of an answer, up to the first new task.

    Args:
        sentences: what the person said; see ``spoken.spoken_sentences``.
        known: stems of the conversation before; see ``leak.known_before``.
    """
    findings = Findings()
    reader = _Reader(known, findings, pleased=any(map(_is_praise, sentences)))
    for sentence in sentences:
        for part in _parts(sentence):
            for one in reader.read(part):
                if one.text not in [other.text for other in findings.instructions]:
                    findings.instructions.append(one)
            if reader.stopped:
                return findings
    return findings


def _parts(sentence: str) -> Iterator[str]:
    """Yield what stands on either side of a contrast; "a short but complete answer" is whole."""
    at = 0
    for cut in _CONTRAST.finditer(sentence):
        before, behind = sentence[at : cut.start()], sentence[cut.end() :]
        joins = not cut[0].lstrip().startswith((",", ";")) and _INSIDE_NOUN.search(before)
        if joins and not _BEGINS_CLAUSE.match(behind):
            continue
        yield before
        at = cut.end()
    yield sentence[at:]


def _is_praise(sentence: str) -> bool:
    """Whether a sentence is content with the answer, or asks for more of the same."""
    text, book = _low(sentence), phrasebook()
    if _QUESTION.search(text):
        return False
    if book.more_of_it.search(text):
        return True
    wants_change = book.wants_change.search(book.not_too.sub(" ", text))
    return book.praise.search(text) is not None and not wants_change


def _asks(sentence: str) -> bool:
    """Whether a sentence is a question; "no lists, ok?" is none."""
    return _QUESTION.search(sentence) is not None and _TAG.search(sentence) is None


class _Reader:
    """Reads sentences of one reply, one by one."""

    def __init__(self, known: frozenset[str], findings: Findings, *, pleased: bool) -> None:
        """``pleased``: something in the reply is praise, and "no lists" may be so too."""
        self._known = known
        self._findings = findings
        self._pleased = pleased
        self._book = phrasebook()
        self.stopped = False
        """A new task was met: what follows belongs to it."""

    def read(self, sentence: str) -> list[Instruction]:
        """Return the instructions in one sentence, or in a part of one that stands alone."""
        if _is_praise(sentence) or (self._pleased and self._is_approval(sentence)):
            return []
        if _asks(sentence) and not self._book.about_the_answer.search(_low(sentence)):
            return []
        text = self._book.not_too.sub(" ", _low(sentence))
        topics = self._topics(text)
        points_back = self._book.back_reference.search(text) is not None
        if not (topics and points_back):
            clauses = _CLAUSE.split(sentence)
            if self._is_new_task(clauses[0]):
                self.stopped = True
                return []
            if own := self._own_words(sentence, fragments=True):
                return [own]
            found = [self._own_words(clause, fragments=not topics) for clause in clauses]
            if any(found):
                return [one for one in found if one]
        if may_mean_the_reverse(text) or self._demands_content(sentence):
            return []
        return [_canned(one) for one in topics]

    def _is_approval(self, sentence: str) -> bool:
        """Whether "no lists", beside praise, may say what was good."""
        if self._book.wants_change.search(_low(sentence)):
            return False
        return self._as_instruction(self._core(sentence), asks=False, fragments=False) is None

    def _demands_content(self, sentence: str) -> bool:
        """Whether it tells what to state: then its words about manner may be what is stated."""
        clauses = (self._core(clause) for clause in _CLAUSE.split(sentence))
        asked = (self._as_instruction(core, asks=False, fragments=False) for core in clauses)
        return any(one is not None and tells_content(_low(one)) for one in asked)

    def _topics(self, text: str) -> list[Topic]:
        complains = self._book.complaint.search(text) is not None
        found = self._book.meant(text, complains=complains)
        return [topic for topic in found if not topic.general] or found[:1]

    def _is_new_task(self, clause: str) -> bool:
        core = self._core(clause)
        asks = self._as_instruction(core, asks=False, fragments=False)
        made = core if asks is None else asks
        low = _low(made)
        task = self._book.task_object.match(low)
        if task and not self._book.form_object.search(task[1]) and _names_a_thing(task[1]):
            return True
        if not self._book.task.match(low):
            return False
        news = [word for word in leaked_words(made, self._known) if not word.endswith("ly")]
        return bool(news or self._book.new_task.search(low))

    def _own_words(self, sentence: str, *, fragments: bool) -> Instruction | None:
        """Return the sentence as an instruction, if it is one that stands alone."""
        core = self._core(sentence)
        made = self._as_instruction(core, asks=_asks(sentence), fragments=fragments)
        if made is None or len(words_of(made)) < _FEWEST_WORDS:
            return None
        low = _low(made)
        return self._accepted(made, self._book.meant(low, complains=True))

    def _core(self, sentence: str) -> str:
        """Return the sentence without openers, *next time* and a tag such as *ok?* at its end."""
        core = _BEGIN.sub("", sentence.replace("’", "'"))
        before = None
        while before != core:
            before = core
            for pattern in (self._book.opener, self._book.lasting):
                if match := pattern.match(_low(core)):
                    core = core[match.end() :]
        core = _END.sub("", _TAG.sub("", core))
        if match := self._book.reason.search(_low(core)):
            core = core[: match.start()]
        if match := self._book.lasting_end.search(_low(core)):
            core = core[: match.start()]
        return core

    def _as_instruction(self, core: str, *, asks: bool, fragments: bool) -> str | None:
        low = _low(core)
        for pattern, made in self._book.rewrites:
            if match := pattern.fullmatch(low):
                said = re.sub(r"\\(\d)", lambda m: core[slice(*match.span(int(m[1])))], made)
                said = _BEGIN_INSIDE.sub(lambda m: m[0].lower(), said)
                # A request made plain must be an instruction itself: "Can you swim?" is none.
                plain = made == r"\1"
                return said if not plain or self._book.instruction.match(_low(said)) else None
        if asks:
            return None
        if self._book.instruction.match(low):
            return core
        return core if fragments and self._is_fragment(low) else None

    def _is_fragment(self, low: str) -> bool:
        """Whether a text without a verb asks for something: "whole sentences, please"."""
        begins = self._book.fragment.match(low) or _PLEASE.fullmatch(low)
        states = _STATEMENT.search(low) or _JUDGES.fullmatch(low)
        return bool(begins and not states) and len(words_of(low)) in _FRAGMENT_WORDS

    def _accepted(self, made: str, topics: Sequence[Topic]) -> Instruction | None:
        """Return an instruction in the person's words if it says how and not what."""
        low = _low(made)
        if tells_content(low) or is_torn(low):
            return None
        return self._checked(made, topics)

    def _checked(self, made: str, topics: Sequence[Topic]) -> Instruction | None:
        """Return an instruction that is prose about manner, leaks nothing and is not too long."""
        made = restated(made)
        text = f"{_capital(made)}."
        if self._book.new_task.search(_low(made)):
            return None
        if not self._is_about_manner(made):
            self._findings.beyond.append(text)
            return None
        if leaked := leaked_words(made, self._known):
            self._findings.leaked.extend(leaked)
            return None
        if len(text) > MAX_CHARS:
            self._findings.too_long = True
            return None
        whole = is_prose(text) and not _GAP.search(text)
        if not whole or len(text) < MIN_CHARS:
            return None
        return Instruction(text, _names(topics), _opposites(topics))

    def _is_about_manner(self, text: str) -> bool:
        if self._book.about_form.search(_low(text)) or asks_for_length(text):
            return True
        return any(stem(word) in manner_stems() for word in words_of(text))


def _names_a_thing(text: str) -> bool:
    """Whether a verb's object is no part of an answer's form: "the coast", and "the cold coast"."""
    stems = [stem(word) for word in words_of(text)]
    if not stems:
        return False
    about_form = any(one in manner_stems() for one in stems)
    return not about_form or stems[-1] not in manner_stems() | plain_stems()


def _canned(topic: Topic) -> Instruction:
    names, opposites = _names([topic]), _opposites([topic])
    return Instruction(topic.say, names, opposites, topic.yields_to, own=False)


def _names(topics: Sequence[Topic]) -> frozenset[str]:
    return frozenset(topic.name for topic in topics)


def _opposites(topics: Sequence[Topic]) -> frozenset[str]:
    return frozenset(topic.opposes for topic in topics if topic.opposes)


def _low(text: str) -> str:
    """Return the text in lower case, character for character: a match's place is that in it."""
    text = text.replace("’", "'")
    if text.isascii():
        return text.lower()
    lower = (char.lower() for char in text)
    return "".join(low if len(low) == 1 else "?" for low in lower)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
