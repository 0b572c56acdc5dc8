"""Prompts with a hint in them: the student's own prompt, rendered again with one message changed.

With nothing added the rendering must give the student's prompt id for id; a conversation that does
not (another template, one that tells the time) teaches by its verdict alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rejoinder.chat.renderer import Renderer
from rejoinder.errors import InvalidRequest
from rejoinder.journal.base import TrainSample
from rejoinder.types import Message

_SENTENCE = re.compile(r".+?(?:[.!?]+(?=\s|$)|$)\s*", re.DOTALL)


class HintFault(StrEnum):
    """Why a sample's hints do not teach; each is counted."""

    PROMPT_DIFFERS = "prompt_differs"
    """Rendered again, the conversation does not give the ids that were sampled from."""
    NO_ROOM = "no_room"
    """The context, or ``trainer.max_sample_tokens``, has no room for one sentence of the hint."""
    TEMPLATE_REFUSES = "template_refuses"
    """The chat template refuses the conversation with the hint in it."""
    TEACHER_FAILED = "teacher_failed"
    """The teacher's engine cannot score the answer under it, or left out what was asked for."""


@dataclass(frozen=True, slots=True)
class TeacherPrompts:
    """What became of a sample's hints."""

    prompts: tuple[list[int], ...] = ()
    """One for each hint that fits, that of the longest hint first."""
    faults: tuple[HintFault, ...] = ()
    """One for each hint that does not."""
    shortened: int = 0
    """Hints that fit only in part."""


class HintRenderer:
    """Renders conversations with a hint, as the gateway rendered them without."""

    def __init__(self, renderer: Renderer, context_length: int) -> None:
        self._renderer = renderer
        self._context_length = context_length

    def prompts(self, sample: TrainSample) -> TeacherPrompts:
        """Return the teacher's prompts of a sample."""
        if self._ids(sample, sample.messages) != sample.prompt_ids:
            return TeacherPrompts(faults=(HintFault.PROMPT_DIFFERS,) * len(sample.hints))
        tried = [self._fitting(sample, hint) for hint in sorted(sample.hints, key=len)[::-1]]
        found = [one for one in tried if not isinstance(one, HintFault)]
        return TeacherPrompts(
            tuple(ids for ids, _ in found),
            tuple(one for one in tried if isinstance(one, HintFault)),
            sum(is_shorter for _, is_shorter in found),
        )

    def _fitting(self, sample: TrainSample, hint: str) -> tuple[list[int], bool] | HintFault:
        """Return a prompt that leaves room for the answer, with as many sentences as fit.

        A sentence is never cut: half of one may ask for the contrary.
        """
        most = self._context_length - len(sample.answer_ids)
        sentences = _SENTENCE.findall(hint) or [hint]
        for count in range(len(sentences), 0, -1):
            text = "".join(sentences[:count]).strip()
            ids = self._ids(sample, with_hint(sample.messages, text))
            if ids is None:
                return HintFault.TEMPLATE_REFUSES
            if len(ids) <= most:
                return ids, count < len(sentences)
        return HintFault.NO_ROOM

    def _ids(self, sample: TrainSample, messages: Sequence[Message]) -> list[int] | None:
        tools = None if sample.tools is None else json.loads(sample.tools)
        options = None if sample.options is None else json.loads(sample.options)
        try:
            return self._renderer.render(messages, tools, options).ids()
        except InvalidRequest:  # another template than the one that the prompt was made with
            return None


def with_hint(messages: Sequence[Message], hint: str) -> tuple[Message, ...]:
    """Return the conversation as it would have been, had the wish been known.

    The hint stands at the end of the last message if a user wrote that; else, so that the evidence
    of tools stays before it, in a message of its own. It stands there as the person would have said
    it: small models answer an instruction that is quoted or announced with words about it.
    """
    last = messages[-1] if messages else None
    if last is None or last.role != "user":
        return (*messages, Message("user", hint))
    return (*messages[:-1], replace(last, content=f"{last.content}\n\n{hint}"))
