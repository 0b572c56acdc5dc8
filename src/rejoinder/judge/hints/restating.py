"""An instruction about the answer before, restated for an answer that is still to come.

People say "please say that in one short sentence": the teacher reads it beside the question alone,
where "that" names nothing. Small models follow the same wish far better when it is put plainly.
"""

from __future__ import annotations

import re

_PLEASE = re.compile(
    r"^(?:please|just|kindly|so|and),?\s+|(?<!\bsay),?\s+please\b(?!\s+\w)|(?<!\bsay )\bplease\s+",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"^(?:say|put|write|tell me|express|explain|sum up)\s+"
    r"(?:it|this|that|all that|all of that|everything|(?:the|your) (?:whole )?(?:answer|thing))"
    r"\s+(?:all\s+)?(?:in|into|with(?P<adds>)|within)\b",
    re.IGNORECASE,
)
_PIECE = r"(?:sentences?|paragraphs?|lines?|words)"
_LIMITS = re.compile(
    r"^(?:keep|limit|reduce|cut|shorten|trim)\s+(?:it|this|that|yourself|your answers?|the answer)"
    rf"\s+(?:down\s+)?to\b(?=[^.,;]*\b(?:{_PIECE}|bullets?)\b)",
    re.IGNORECASE,
)
_ANSWER_IT = re.compile(r"^answer (?:it|this|that|(?:my|the) question) in\b", re.IGNORECASE)
_NUMBER = r"(?:an?|one|two|three|four|five|\d+)"
_SIZE = (
    r"(?:very|really|quite|brief|short|shorter|long|longer|simple|simpler|single|plain|clear|concise"
    r"|compact|crisp|tiny|small|few|whole|full|complete|proper|or|to|and|but"
    rf"|{_NUMBER})"
)
_FORM = re.compile(
    r"^(?:answer|reply|respond|i want|i would like|i need|give me|write|use|make it|send me)\s+"
    r"(?:back\s+)?(?:in\s+|with\s+)?(?:just\s+|only\s+|simply\s+)*"
    rf"({_NUMBER}\s+(?:{_SIZE},?\s+){{0,4}}?{_PIECE})\b"
    r"(?:\s+(?:about|on)\s+[\w'-]+(?=[.,;]|$))?"
    r"(?=\s*$|[.,;:!]|\s+(?:and|or|about|on|for|without|with no|of (?:at most|up to|no more))\b)",
    re.IGNORECASE,
)
"""Pieces that are a whole answer; "a closing line" and "a sentence at the end" are parts of one."""


def restated(instruction: str) -> str:
    """Return an instruction, without its full stop, as one says it before there is an answer."""
    text = _PLEASE.sub("", instruction).strip()
    text = _POINTS_BACK.sub(
        lambda match: f"Answer {'in' if match['adds'] is None else 'with'}", text
    )
    text = _ANSWER_IT.sub("Answer in", _LIMITS.sub("Answer in", text))
    text = re.sub(r"^(Answer in)\s+(?:just|only)\s+", r"\1 ", text)
    return _FORM.sub(r"Answer in \1", text)
