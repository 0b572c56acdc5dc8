"""The seam: a family renders conversations and reads answers. ``registry.py`` finds one by name.

Rendering is the model's own chat template, whatever the family: it is what the model was trained
with. What differs is how answers are read, and how a call begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from rejoinder.chat.detokenizer import Detokenizer, StopMatcher
from rejoinder.chat.families.blocks import CallFrame
from rejoinder.chat.families.events import AnswerEvent, ContentDelta, EventWriter, call_id
from rejoinder.chat.families.lexer import Lexeme, MarkerLexer, Markers
from rejoinder.chat.renderer import Renderer
from rejoinder.errors import InvalidRequest
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Json, Message, ToolCall

_TAIL = 16
"""Ids at the end of a prompt that can hold an opening marker and the line breaks after it."""
_PROBES = {"call00001": "first_of_two", "call00002": "second_of_two"}
"""Calls, by ids that every family takes, of functions that no template names by itself."""


class AnswerParser(Protocol):
    """Reads the lexemes of one answer and writes its events. Never raises, whatever the text."""

    def feed(self, lexemes: Iterable[Lexeme]) -> None:
        """Read on."""
        ...

    def finish(self) -> None:
        """The answer is over: what is still held back is text."""
        ...


class MakeParser(Protocol):
    """What a family's module offers."""

    def __call__(self, out: EventWriter, tools: Sequence[Json], *, thinking: bool) -> AnswerParser:
        """Begin an answer.

        Args:
            out: where its events go.
            tools: those that the prompt names; without any nothing is read as a call.
            thinking: the prompt ends with the marker that opens thoughts.
        """
        ...


class BeginCall(Protocol):
    """What a family's module offers."""

    def __call__(self, name: str | None, template: str) -> str:
        """Return the text with which a call begins, up to what the model shall write itself.

        It ends where a token ends: what follows may begin with a space.

        Args:
            name: of the function; None leaves its choice to the model.
            template: the model's chat template, which tells apart the forms of a family.
        """
        ...


class FrameCall(Protocol):
    """What a family's module offers."""

    def __call__(self, name: str, template: str) -> CallFrame:
        """Return what stands around a call's arguments.

        It begins with what ``BeginCall`` returns, for the name or for none.

        Args:
            name: of the function: letters, digits and ``_./:-``.
            template: as of ``BeginCall``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """How a family writes answers."""

    name: str
    make_parser: MakeParser | None = None
    """None: all is content."""
    markers: tuple[str, ...] = ()
    """Markers that are read in every answer."""
    call_markers: tuple[str, ...] = ()
    """Markers that are read where the prompt names tools."""
    thoughts_open: str | None = None
    """The marker of thoughts, which a prompt may end with."""
    thoughts_close: str = ""
    """The marker that ends them."""
    begin_call: BeginCall | None = None
    """None: the family has no calls."""
    frame_call: FrameCall | None = None
    """None: the family has no calls."""
    new_id: Callable[[], str] = call_id
    begin_content: str = ""
    """The text before content, where content does not begin by itself."""


class AnswerReader(Protocol):
    """One answer from its ids to its events. Made by ``ChatFamily.reader``."""

    def feed(self, ids: Sequence[int], *, last: bool = False) -> list[AnswerEvent]:
        """Take ids; return what they add. Text that a later id may change waits.

        With ``last`` or once a stop string has appeared nothing waits, and nothing may follow.
        """
        ...

    @property
    def stop_string(self) -> str | None:
        """The stop string that has ended the answer, if one has."""
        ...


class ChatFamily:
    """A model's renderer and the format of its answers."""

    def __init__(self, form: Format, renderer: Renderer, tokenizer: ModelTokenizer) -> None:
        self.renderer = renderer
        self._form = form
        self._tokenizer = tokenizer
        self._texts = Detokenizer(tokenizer.tokenizer)
        self._without_tools = Markers(tokenizer.tokenizer, form.markers)
        self._with_tools = Markers(
            tokenizer.tokenizer, dict.fromkeys((*form.markers, *form.call_markers))
        )

    @property
    def name(self) -> str:
        """The family's name, as in ``model.family``."""
        return self._form.name

    def reader(
        self,
        prompt_ids: Sequence[int],
        tools: Sequence[Json] | None,
        stop: Sequence[str],
        begun: Sequence[int] = (),
    ) -> AnswerReader:
        """Begin an answer.

        Args:
            prompt_ids: [P] what it answers; only their end counts.
            tools: those that the prompt names.
            stop: strings before which the text ends.
            begun: ids that the answer begins with, which are not fed and in which nothing stops.
        """
        if self._form.make_parser is None:
            return _PlainReader(self._texts, stop)
        markers = self._with_tools if tools else self._without_tools
        out = EventWriter(self._form.new_id)
        parser = self._form.make_parser(out, tools or (), thinking=self._thinks(prompt_ids))
        lexer = MarkerLexer(self._texts, markers)
        parser.feed(lexer.feed(begun))
        lexer.stop_at(stop)
        return _ParsingReader(lexer, parser, out)

    def begun_call(self, prompt_ids: Sequence[int], name: str | None) -> list[int] | None:
        """Return the ids with which a call begins; None where the family has no calls.

        Args:
            prompt_ids: [P] what it answers; thoughts that it has opened are closed.
            name: of the function; None leaves its choice to the model.
        """
        if self._form.begin_call is None:
            return None
        text = self._form.begin_call(name, self._tokenizer.chat_template or "")
        return self._tokenizer.encode(self._closing(prompt_ids) + text)

    def call_frame(self, name: str, *, named: bool, several: bool = False) -> CallFrame | None:
        """Return what the model shall write around a call's arguments; None: it writes no calls.

        Args:
            name: of the function: letters, digits and ``_./:-``.
            named: ``begun_call``, after whose ids the frame goes on, has got the name.
            several: more calls may follow, where the model's template shows several.
        """
        template = self._tokenizer.chat_template or ""
        if self._form.frame_call is None or self._form.begin_call is None:
            return None
        frame = self._form.frame_call(name, template)
        begun = self._form.begin_call(name if named else None, template)
        assert frame.before.startswith(begun), "a frame goes on from the beginning of a call"
        again = frame.again if several and self._shows_several else None
        return replace(frame, before=frame.before.removeprefix(begun), again=again)

    @cached_property
    def _shows_several(self) -> bool:
        """Whether the template shows all calls of an answer; some refuse two, or show the first."""
        calls = tuple(ToolCall(id_, name, "{}") for id_, name in _PROBES.items())
        results = [Message("tool", "", tool_call_id=call.id) for call in calls]
        said = [Message("user", "?"), Message("assistant", "", tool_calls=calls), *results]
        try:
            text = self.renderer.render(said).text
        except InvalidRequest:
            return False
        return all(name in text for name in _PROBES.values())

    def begun_content(self, prompt_ids: Sequence[int]) -> list[int]:
        """Return the ids after which an answer is content from its first id on; mostly none.

        Args:
            prompt_ids: [P] what it answers; thoughts that it has opened are closed.
        """
        text = self._closing(prompt_ids) + self._form.begin_content
        return self._tokenizer.encode(text) if text else []

    def call_openers(self) -> list[int]:
        """Return the ids of markers by which an answer can be known as a call at once."""
        begun = self.begun_call((), None) or ()
        markers = map(self._tokenizer.token_to_id, self._form.call_markers)
        return [begun[0]] if begun and begun[0] in markers else []

    def plain_reader(self, stop: Sequence[str]) -> AnswerReader:
        """Begin an answer of which all text is content: its prompt is no conversation."""
        return _PlainReader(self._texts, stop)

    def _closing(self, prompt_ids: Sequence[int]) -> str:
        """Return the text that ends the thoughts which a prompt has opened."""
        if not self._thinks(prompt_ids):
            return ""
        breaks = self._tail(prompt_ids).endswith("\n")
        return f"\n{self._form.thoughts_close}\n\n" if breaks else self._form.thoughts_close

    def _thinks(self, prompt_ids: Sequence[int]) -> bool:
        opening = self._form.thoughts_open
        if opening is None:
            return False
        return self._tail(prompt_ids).rstrip().endswith(opening)

    def _tail(self, prompt_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(prompt_ids[-_TAIL:]), skip_special_tokens=False)


class CallsOnly:
    """Reads an answer that the engine holds to calls: its other text is what stands around them.

    A call whose frame the end of the answer has cut would leave pieces of that as content.
    """

    def __init__(self, reader: AnswerReader) -> None:
        self._reader = reader

    @property
    def stop_string(self) -> str | None:
        """See ``AnswerReader``."""
        return self._reader.stop_string

    def feed(self, ids: Sequence[int], *, last: bool = False) -> list[AnswerEvent]:
        """See ``AnswerReader``."""
        read = self._reader.feed(ids, last=last)
        return [event for event in read if not isinstance(event, ContentDelta)]


class _PlainReader:
    """All text is content."""

    def __init__(self, texts: Detokenizer, stop: Sequence[str]) -> None:
        self._stream = texts.stream()
        self._stops = StopMatcher(stop)

    @property
    def stop_string(self) -> str | None:
        return self._stops.matched

    def feed(self, ids: Sequence[int], *, last: bool = False) -> list[AnswerEvent]:
        text = self._stops.feed(self._stream.feed(ids))
        if last and self.stop_string is None:
            text += self._stops.feed(self._stream.finish()) + self._stops.finish()
        return [ContentDelta(text)] if text else []


class _ParsingReader:
    """Text goes through a family's parser."""

    def __init__(self, lexer: MarkerLexer, parser: AnswerParser, out: EventWriter) -> None:
        self._lexer = lexer
        self._parser = parser
        self._out = out

    @property
    def stop_string(self) -> str | None:
        return self._lexer.stop_string

    def feed(self, ids: Sequence[int], *, last: bool = False) -> list[AnswerEvent]:
        self._parser.feed(self._lexer.feed(ids))
        if not last and self.stop_string is None:
            return self._out.take()
        self._parser.feed(self._lexer.finish())
        self._parser.finish()
        return self._out.finish()
