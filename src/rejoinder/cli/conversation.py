"""One conversation in the terminal: input, answers as they come, and the slash commands."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from rich.markup import escape
from rich.text import Text

from rejoinder.cli.api_client import Answer, ApiAway, ApiClient, ApiRefused
from rejoinder.cli.terminal import err, out, show_error, show_note
from rejoinder.plain_text import plain
from rejoinder.types import Json, new_id

HELP = "/good [why]   /bad [why]   /new   /quit"


@dataclass(frozen=True, slots=True)
class Style:
    """How answers are asked for."""

    model: str
    temperature: float
    max_tokens: int


class Conversation:
    """Reads lines until the user leaves.

    Args:
        client: the gateway.
        style: how answers are sampled.
        system: first message of each session, or None.
        version: the version live now; a change is pointed out.
        scores_teach: False where hints alone teach, and a score without words does not.
        read: gives the next line; raises EOFError at the end.
    """

    def __init__(
        self,
        client: ApiClient,
        style: Style,
        system: str | None,
        version: int | None,
        read: Callable[[str], str] = input,
        *,
        scores_teach: bool = True,
    ) -> None:
        self._client = client
        self._style = style
        self._system = system
        self._read = read
        self._scores_teach = scores_teach
        self._fingerprint = None if version is None else f"{style.model}@{version}"
        self._last = Answer()
        self._begin()

    def run(self) -> None:
        """Talk until /quit, the end of input, or Ctrl-C at the prompt."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - gives input() a history and line editing
        while True:
            try:
                line = self._read("\n> ").strip()
            except (EOFError, KeyboardInterrupt):
                return
            if line in ("/quit", "/exit"):
                return
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._ask(line)

    def _begin(self) -> None:
        self._session = new_id()
        self._messages: list[Json] = []
        if self._system:
            self._messages.append({"role": "system", "content": self._system})

    def _command(self, line: str) -> None:
        name, _, text = line.partition(" ")
        if name == "/new":
            self._begin()
            show_note("a new session")
        elif name in ("/good", "/bad"):
            self._score(1 if name == "/good" else -1, text.strip())
        else:
            show_note(HELP)

    def _score(self, score: int, text: str) -> None:
        if not self._last.completion_id:
            show_note("there is no answer to score yet")
            return
        try:
            outcome = self._client.feedback(self._last.completion_id, score, text or None)
        except (ApiRefused, ApiAway) as error:
            show_error(str(error))
            return
        if outcome == "late_feedback":
            show_note("noted, but that answer has trained already")
        elif outcome == "never_trains":
            show_note("noted, but that answer never trains: cut off, asked anew or served only")
        elif self._scores_teach:
            show_note("noted: this outranks the judge")
        elif text:
            show_note("noted: your words are read for a hint")
        else:
            show_note("noted, but hints alone teach here: say how the answer should have been")

    def _ask(self, line: str) -> None:
        self._messages.append({"role": "user", "content": line})
        answer, pieces = Answer(), list[str]()
        try:
            for piece in self._client.stream(self._body(), self._session, answer):
                if not pieces:
                    self._point_out_version(answer)
                pieces.append(piece)
                out().print(Text(plain(piece)), end="", soft_wrap=True)
        except KeyboardInterrupt:
            out().print()
            show_note("cut off; this answer will not train")
        except (ApiRefused, ApiAway) as error:
            out().print()
            show_error(str(error))
            self._messages.pop()  # as if it had not been asked: the next try starts clean
            return
        out().print()
        if answer.finish_reason == "length":
            show_note("the answer reached --max-tokens")
        if not answer.recorded:
            show_note("this answer could not be recorded; see the gateway's log")
        self._last = answer
        self._messages.append({"role": "assistant", "content": "".join(pieces)})

    def _body(self) -> Json:
        return {
            "model": self._style.model,
            "messages": self._messages,
            "stream": True,
            "temperature": self._style.temperature,
            "max_tokens": self._style.max_tokens,
        }

    def _point_out_version(self, answer: Answer) -> None:
        if self._fingerprint not in (None, answer.fingerprint):
            err().print(f"[green]✦ {escape(answer.fingerprint)} answers now[/green]")
        self._fingerprint = answer.fingerprint
