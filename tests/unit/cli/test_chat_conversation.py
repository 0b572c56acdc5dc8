"""The terminal chat: sessions, scores, versions, and answers that fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rejoinder.cli import conversation, terminal
from rejoinder.cli.api_client import Answer, ApiAway, ApiClient, ApiRefused
from rejoinder.cli.conversation import Conversation, Style
from rejoinder.types import Json


class Gateway(ApiClient):
    """Answers without a network; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__("http://gateway", None)
        self.asked: list[tuple[str, list[Json]]] = []
        self.scores: list[tuple[str, int, str | None]] = []
        self.version = 1
        self.pieces = ("fine ", "[b]")
        self.failure: Exception | None = None
        self.outcome = "accepted"

    def stream(self, body: Json, session: str, answer: Answer) -> Iterator[str]:
        self.asked.append((session, [dict(message) for message in body["messages"]]))
        if self.failure is not None:
            raise self.failure
        answer.completion_id = f"c{len(self.asked)}"
        answer.fingerprint = f"default@{self.version}"
        answer.finish_reason = "stop"
        yield from self.pieces

    def feedback(self, completion_id: str, score: int, text: str | None) -> str:
        self.scores.append((completion_id, score, text))
        return self.outcome


@pytest.fixture(autouse=True)
def _fresh_consoles() -> Iterator[None]:
    terminal.out.cache_clear()
    terminal.err.cache_clear()
    yield
    terminal.out.cache_clear()
    terminal.err.cache_clear()


def talk(gateway: Gateway, *lines: str, system: str | None = None) -> None:
    left = iter(lines)

    def read(_prompt: str) -> str:
        for line in left:
            return line
        raise EOFError

    Conversation(gateway, Style("default", 0.7, 64), system, 1, read).run()


def test_an_answer_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A model can be made to write escape sequences, and chat passed them on."""
    gateway = Gateway()
    gateway.pieces = ("fine\n\x1b", "]0;renamed\x07")
    talk(gateway, "Hi")
    shown = capsys.readouterr().out
    assert "fine\n\ufffd]0;renamed\ufffd" in shown


def test_an_answer_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A backslash at the end of a piece became two, and words between colons a picture."""
    gateway = Gateway()
    gateway.pieces = ("C:\\", "Temp :warning: [/b]")
    talk(gateway, "Hi")
    assert "C:\\Temp :warning: [/b]\n" in capsys.readouterr().out


def test_a_session_grows_by_what_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    gateway = Gateway()
    talk(gateway, "hello", "and now?", system="be brief")
    (first, _), (second, messages) = gateway.asked
    assert first == second
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == "fine [b]"
    assert capsys.readouterr().out.count("fine [b]") == 2  # markup of the model is text


def test_new_begins_a_session_without_history() -> None:
    gateway = Gateway()
    talk(gateway, "hello", "/new", "again")
    (first, _), (second, messages) = gateway.asked
    assert first != second
    assert messages == [{"role": "user", "content": "again"}]


def test_scores_go_to_the_last_answer() -> None:
    gateway = Gateway()
    talk(gateway, "/bad", "one", "/good short", "two", "/bad", "/quit", "never sent")
    assert gateway.scores == [("c1", 1, "short"), ("c2", -1, None)]
    assert len(gateway.asked) == 2


def test_a_score_of_an_answer_that_never_trains_is_told_to_change_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gateway = Gateway()
    gateway.outcome = "never_trains"
    talk(gateway, "one", "/good")
    said = capsys.readouterr().err
    assert "never trains" in said
    assert "outranks" not in said


def test_a_new_version_is_pointed_out_once(capsys: pytest.CaptureFixture[str]) -> None:
    gateway = Gateway()
    talk(gateway, "one")
    assert "answers now" not in capsys.readouterr().err
    gateway.version = 2
    talk(gateway, "one", "two")
    assert capsys.readouterr().err.count("default@2 answers now") == 1


@pytest.mark.parametrize("failure", [ApiRefused("too long"), ApiAway("gone")])
def test_a_failed_question_leaves_no_trace_in_the_session(
    failure: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = Gateway()
    gateway.failure = failure
    talk(gateway, "one")
    assert str(failure) in capsys.readouterr().err
    gateway.failure = None
    gateway.asked.clear()
    talk(gateway, "two")
    assert gateway.asked[0][1] == [{"role": "user", "content": "two"}]


def test_unknown_commands_are_explained_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    gateway = Gateway()
    talk(gateway, "/what", "")
    assert gateway.asked == []
    assert conversation.HELP in capsys.readouterr().err


def test_where_hints_alone_teach_a_score_is_not_said_to_outrank_a_judge(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = iter(("one", "/bad", "/bad too long", "/quit"))
    Conversation(
        Gateway(), Style("default", 0.7, 64), None, 1, lambda _: next(left), scores_teach=False
    ).run()
    told = " ".join(capsys.readouterr().err.split())
    assert "outranks" not in told
    assert "hints alone teach here: say how the answer should have been" in told
    assert "your words are read for a hint" in told
