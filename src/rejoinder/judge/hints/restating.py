"""An instruction about the answer before, restated for an answer that is still to come.

People say "please say that in one short sentence": the teacher reads it beside the question alone,
where "that" names nothing. Small models follow the same wish far better when it is put plainly.
"""

from __future__ import annotations

import re

_PLEASE = re.compile(
    r"^(?:please|just|kindly|so|and),?\s+|,?\s+please\b|\bplease\s+", re.IGNORECASE
)
_POINTS_BACK = re.compile(
    r"^(?:say|put|write|tell me|express|explain|sum up)\s+"
    r"(?:it|this|that|all that|all of that|everything|(?:the|your) (?:whole )?(?:answer|thing))"
    r"\s+(?:all\s+)?(?:in|into|with|within)\b",
    re.IGNORECASE,
)
_LIMITS = re.compile(
    r"^(?:keep|limit|reduce|cut|shorten|trim)\s+(?:it|this|that|yourself|your answers?|the answer)"
    r"\s+(?:down\s+)?to\b",
    re.IGNORECASE,
)
_ANSWER_IT = re.compile(r"^answer (?:it|this|that|(?:my|the) question) in\b", re.IGNORECASE)
_PIECE = r"(?:sentences?|paragraphs?|lines?|words)"
_FORM = re.compile(
    r"^(?:answer|reply|respond|i want|i would like|i need|give me|write|use|make it|send me)\s+"
    r"(?:back\s+)?(?:in\s+|with\s+)?(?:just\s+|only\s+|simply\s+)*"
    rf"((?:an?|one|two|three|four|five|\d+)\s+(?:(?!more\b|one\b)[\w-]+\s+){{0,4}}?"
    rf"{_PIECE})\b(?:\s+(?:about|on)\s+[\w'-]+(?=[.,;]|$))?",
    re.IGNORECASE,
)
_ONLY = re.compile(r"^(?:just|only)\s+", re.IGNORECASE)


def restated(instruction: str) -> str:
    """Return an instruction, without its full stop, as one says it before there is an answer."""
    text = _PLEASE.sub("", instruction).strip()
    text = _POINTS_BACK.sub("Answer in", text)
    text = _ANSWER_IT.sub("Answer in", _LIMITS.sub("Answer in", text))
    text = re.sub(r"^(Answer in)\s+(?:just|only)\s+", r"\1 ", text)
    return _FORM.sub(lambda match: f"Answer in {_ONLY.sub('', match[1])}", text)
