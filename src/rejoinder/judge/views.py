"""What the likelihood judge shows the model: two short prompts, each read at a few positions.

- **opinion**: a few classified examples, then what came after the answer; the next word would
  classify it.
- **reaction**: the same text as the last message of a chat; the next words would be the
  assistant's, and an assistant that is told off begins otherwise than one that is thanked.

Both begin with fixed text, which the engine's prefix cache keeps, and end with the variable part.
Untrusted text stands on one line between quotes that it cannot contain (rule 6), and what is read
is the model's probability of our words after our own last characters: nothing in it is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.errors import ConfigError
from rejoinder.judge.transcript import FORM, fit
from rejoinder.judge.untrusted import neutralise, one_line
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Message

MAX_CHARS = 480
"""Of the next state in a prompt; one forward pass over it should stay well under a second."""

_ROOM = 20
"""Times ``MAX_CHARS`` that are cleaned; line breaks and indentation shrink to single spaces."""
_HEAD = "Classify the feedback as positive or negative.\n\n"
_LABELS = {"user": "Feedback", "tool": "Tool output"}
_TAIL = "Class:"
_EXAMPLES = (
    ("user", "Thank you, that is exactly what I needed.", "positive"),
    ("user", "No, that's wrong. It happened in 1914.", "negative"),
    ("user", "Can you write it shorter and without the list?", "negative"),
    ("tool", "{'status': 'ok', 'rows': 3}", "positive"),
    ("user", "Great. And how do I save it as a PDF?", "positive"),
    ("user", "You didn't answer my question.", "negative"),
    ("tool", "Error: file not found", "negative"),
    ("user", "I really enjoyed reading this, it sounds natural.", "positive"),
)
_CHAT = (
    Message("system", "You are a helpful assistant."),
    Message("user", "I have a question."),
    Message("assistant", "Here is my answer to your question."),
)
_BEGUN = "I'm"
"""Put into the assistant's mouth: what follows it says much (glad, sorry)."""
_BEFORE = {"opinion": _TAIL, "begun": _BEGUN}
"""Our own last characters before a place that a word of the readout would follow."""
_FAKES = re.compile(r"\b(class|feedback|tool output|result of the tool)\s*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reading:
    """One prompt and where to look in it."""

    ids: list[int]
    places: dict[str, int]
    """Name of a place to the position whose distribution is read; the last is ``len(ids)``."""


class Views:
    """Makes the prompts with one model's tokenizer. ``reaction`` needs its chat template."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = tokenizer.special_texts
        examples = "".join(
            f"{_line(role, text)}{_TAIL} {label}\n\n" for role, text, label in _EXAMPLES
        )
        self._opinion_ids = tokenizer.encode(_HEAD + examples)
        self._begun_ids = tokenizer.encode(_BEGUN)
        try:
            self._renderer: ChatTemplateRenderer | None = ChatTemplateRenderer(tokenizer)
        except ConfigError:  # a base model without a template
            self._renderer = None

    def word_id(self, word: str, place: str) -> int:
        """Return the id that a word begins with at a place; a leading space belongs to the word.

        It is read behind the characters that stand there: a tokenizer that puts a space before
        every text gives all words of a list of their own the same first id.
        """
        before = _BEFORE.get(place, "")
        head, whole = self._tokenizer.encode(before), self._tokenizer.encode(before + word)
        if before and whole[: len(head)] == head and len(whole) > len(head):
            return whole[len(head)]
        return self._tokenizer.encode(word)[0]

    def opinion(self, next_state: Sequence[Message]) -> Reading:
        """Return the classification prompt; its one place is ``opinion``."""
        left_out, lines = self._lines(next_state)
        text = _note(left_out) + "".join(_line(role, line) for role, line in lines)
        ids = self._opinion_ids + self._tokenizer.encode(text + _TAIL)
        return Reading(ids, {"opinion": len(ids)})

    def reaction(self, next_state: Sequence[Message]) -> Reading:
        """Return the chat; its places are ``begin`` and ``begun``, before and after *I'm*.

        Raises:
            ConfigError: the model has no chat template.
        """
        if self._renderer is None:
            raise ConfigError("the likelihood judge's reaction view needs a chat template")
        left_out, lines = self._lines(next_state)
        text = _note(left_out) + "\n".join(
            f"Result of the tool: {line}" if role == "tool" else line for role, line in lines
        )
        chat = self._renderer.render([*_CHAT, Message("user", text)]).ids()
        ids = [*chat, *self._begun_ids]
        return Reading(ids, {"begin": len(chat), "begun": len(ids)})

    def _lines(self, next_state: Sequence[Message]) -> tuple[int, list[tuple[str, str]]]:
        """Return how many earlier ones are left out, and (role, harmless text) of the others.

        Only what a person said and tools returned counts.
        """
        messages = [message for message in next_state if message.role in _LABELS]
        left_out, kept = fit(messages, MAX_CHARS, self._harmless, _ROOM)
        return left_out, [(message.role, text) for message, text in kept]

    def _harmless(self, text: str) -> str:
        text = one_line(neutralise(text, self._special)).replace('"', "'")
        return _FAKES.sub(r"\1 -", text)

    @staticmethod
    def description() -> list[object]:
        """Return all that the prompts are made of, for fingerprints."""
        return [_HEAD, _LABELS, _TAIL, _EXAMPLES, [str(m) for m in _CHAT], _BEGUN, MAX_CHARS, FORM]


def _line(role: str, text: str) -> str:
    return f'{_LABELS[role]}: "{text}"\n'


def _note(left_out: int) -> str:
    return f"({left_out} earlier messages left out)\n" if left_out else ""
