"""What a person says of an answer, without what the person only shows or passes on (rule 6).

A reply also carries text by others: mail to be summarised, results of tools, what a client program
adds in tags. So reading stops where a sentence hands such text over, or asks for something new.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence

from rejoinder.judge.hints.cleaning import without_markers
from rejoinder.judge.hints.phrasebook import phrasebook
from rejoinder.judge.hints.words import sentences_of, words_of

_LONGEST_SENTENCE = 600
"""Characters; a longer one is passed over, for time grows with the square of the length."""
_CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_QUOTED_LINE = re.compile(r"^\s*>.*$", re.MULTILINE)
_SPEECH = re.compile(r"[\"“”]([^\"“”]*)[\"“”]|(?<!\w)['‘]((?:[^'’]|(?<=\w)['’](?=\w))*)['’](?!\w)")
_LONGEST_TERM = 2
"""Words in quotation marks that may still be a term and not somebody's speech."""
_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*+)[^<>]*+>")


def without_tagged(text: str) -> str:
    """Cut out ``<name>…</name>`` blocks; one that names no element of HTML needs no end."""
    tags = list(_TAG.finditer(text))
    ends: dict[str, list[int]] = defaultdict(list)
    for tag in tags:
        if tag[1]:
            ends[tag[2].lower()].append(tag.end())
    kept: list[str] = []
    at = 0
    for tag in tags:
        if tag[1] or tag.start() < at:
            continue
        found = ends[tag[2].lower()]
        index = bisect_left(found, tag.end())
        closed = index < len(found)
        if not closed and "-" not in tag[2] and "_" not in tag[2]:
            continue
        kept.append(text[at : tag.start()])
        at = found[index] if closed else len(text)
    return " ".join([*kept, text[at:]])


def spoken_sentences(text: str, special_tokens: Sequence[str] = ()) -> Iterator[str]:
    """Yield a person's own sentences, up to where the person hands over text by others.

    Args:
        text: what the person wrote, untrusted.
        special_tokens: texts that the teacher's tokenizer turns into control ids.
    """
    shown = _QUOTED_LINE.sub("", _CODE_BLOCK.sub(" ", text))
    for sentence in sentences_of(_SPEECH.sub(_term, shown)):
        if phrasebook().hands_over.search(sentence.lower().replace("’", "'")):
            return
        if len(sentence) > _LONGEST_SENTENCE:
            continue
        own = without_markers(sentence, special_tokens).strip()
        # Words from both sides of a marker make no sentence together.
        if own in sentence and words_of(own):
            yield own


def _term(speech: re.Match[str]) -> str:
    said = speech[1] if speech[1] is not None else speech[2]
    return speech[0] if len(said.split()) <= _LONGEST_TERM else ""
