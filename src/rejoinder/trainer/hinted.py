"""Prompts with a hint in them: the student's own prompt, rendered again with one message changed.

Earlier answers stand in the student's prompt as they were sampled (``chat/splicing.py``), and so
they do in the teacher's: with nothing added it is the student's prompt, id for id. A conversation
whose rendering has another text than that prompt (another template, one
that tells the time) teaches by its verdict alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rejoinder.chat.renderer import Renderer
from rejoinder.chat.splicing import changed_after, text_end
from rejoinder.errors import InvalidRequest
from rejoinder.journal.records import TrainSample
from rejoinder.types import Message

_SENTENCE = re.compile(r".+?(?:[.!?]+(?=\s|$)|$)\s*", re.DOTALL)


class HintFault(StrEnum):
    """Why a sample's hints do not teach; each is counted."""

    PROMPT_DIFFERS = "prompt_differs"
    """Rendered again, the conversation does not give the text that was answered."""
    NO_ROOM = "no_room"
    """The context, or ``trainer.max_sample_tokens``, has no room for one sentence of the hint."""
    TEMPLATE_REFUSES = "template_refuses"
    """The chat template refuses the conversation with the hint in it."""
    TEMPLATE_HIDES = "template_hides"
    """The chat template leaves the hint out: the teacher would read what the student did."""
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

    def __init__(
        self,
        renderer: Renderer,
        context_length: int,
        token_bytes: Mapping[int, bytes],
        times: int = 1,
    ) -> None:
        """Get ready to render.

        Args:
            renderer: of the policy's chat template.
            context_length: most tokens of prompt and answer together.
            token_bytes: the bytes that each id stands for.
            times: that a hint stands in a prompt.
        """
        self._times = times
        self._renderer = renderer
        self._token_bytes = token_bytes
        self._context_length = context_length

    def prompts(self, sample: TrainSample) -> TeacherPrompts:
        """Return the teacher's prompts of a sample."""
        rendered = self._ids(sample, sample.messages)
        own = sample.prompt_ids
        end = None if rendered is None else text_end(own, rendered, self._token_bytes)
        if rendered is None or end is None:
            return TeacherPrompts(faults=(HintFault.PROMPT_DIFFERS,) * len(sample.hints))
        hints = sorted(sample.hints, key=len)[::-1]
        tried = [self._fitting(sample, rendered, end, hint) for hint in hints]
        found = [one for one in tried if not isinstance(one, HintFault)]
        return TeacherPrompts(
            tuple(ids for ids, _ in found),
            tuple(one for one in tried if isinstance(one, HintFault)),
            sum(is_shorter for _, is_shorter in found),
        )

    def _fitting(
        self, sample: TrainSample, rendered: list[int], end: int, hint: str
    ) -> tuple[list[int], bool] | HintFault:
        """Return a prompt that leaves room for the answer, with as many sentences as fit.

        Where room is short, the hint stands there less often before it loses a sentence. The
        student's prompt may have more after the ``end`` of the conversation: it begins the answer.
        A sentence is never cut: half of one may ask for the contrary.
        """
        most = self._context_length - len(sample.answer_ids)
        sentences = _SENTENCE.findall(hint) or [hint]
        whole = [(len(sentences), times) for times in range(self._times, 0, -1)]
        part = [(count, 1) for count in range(len(sentences) - 1, 0, -1)]
        for count, times in (*whole, *part):
            text = "".join(sentences[:count]).strip()
            hinted = with_hint(sample.messages, text, times)
            ids = self._ids(sample, hinted)
            if ids is None:
                return HintFault.TEMPLATE_REFUSES
            if ids == rendered and hinted != sample.messages:
                return HintFault.TEMPLATE_HIDES
            own, begun = sample.prompt_ids[:end], sample.prompt_ids[end:]
            ids = changed_after(own, rendered, ids, self._token_bytes) + begun
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


def with_hint(messages: Sequence[Message], hint: str, times: int = 1) -> tuple[Message, ...]:
    """Return the conversation as it would have been, had the wish been known.

    The hint stands at the end of the last message if a user wrote that; else, so that the evidence
    of tools stays before it, in a message of its own. It stands there as the person would have said
    it: small models answer an instruction that is quoted or announced with words about it.
    Some wishes are followed more often where they stand there several ``times``.
    """
    said = "\n\n".join([hint] * times)
    last = messages[-1] if messages else None
    if last is None or last.role != "user":
        return (*messages, Message("user", said))
    return (*messages[:-1], replace(last, content=f"{last.content}\n\n{said}"))
