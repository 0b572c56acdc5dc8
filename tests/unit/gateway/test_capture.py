"""One answer while it is sampled: ids for the journal, text for the client."""

from __future__ import annotations

import pytest

from rejoinder.chat.families.events import ContentDelta
from rejoinder.chat.families.registry import choose_family
from rejoinder.chat.history import History
from rejoinder.engine.base import ClientLogprob, TokenChunk
from rejoinder.engine.gathering import joined
from rejoinder.gateway.capture import AnswerCapture
from rejoinder.types import Fate, FinishReason, Message, VersionRun

HISTORY = History((Message("user", "?"),))


@pytest.fixture
def answer(tiny_tokenizer):
    """Make an empty capture."""
    family = choose_family("generic", tiny_tokenizer)
    return lambda *stop: AnswerCapture("t1", 0, family.reader([], None, stop))


def _text(piece) -> str:
    return "".join(event.text for event in piece.events if isinstance(event, ContentDelta))


@pytest.fixture
def chunk(tiny_tokenizer):
    """Make a chunk of the tokens of a text."""

    def make(text: str, finish: FinishReason | None = None, version: int = 1, eos: bool = False):
        ids = tiny_tokenizer.encode(text) + list(tiny_tokenizer.eos_ids) * eos
        return TokenChunk(ids, [-1.0] * len(ids), version, None, finish)

    return make


def test_ids_and_logprobs_are_the_sampled_ones_and_the_end_token_has_no_text(answer, chunk):
    capture = answer()
    capture.feed(chunk("ab"))
    capture.feed(chunk("c", FinishReason.STOP, eos=True))
    record = capture.finished(HISTORY)
    assert record.answer_ids == chunk("abc", eos=True).ids
    assert record.logprobs == [-1.0] * 4
    assert record.message == Message("assistant", "abc")
    assert record.answer_chain == HISTORY.answer_chain(Message("assistant", "abc"))


def test_successive_tokens_of_a_version_are_one_run(answer, chunk):
    capture = answer()
    for version in (1, 1, 2, 1):
        capture.feed(chunk("ab", version=version))
    assert list(capture.versions) == [VersionRun(1, 4), VersionRun(2, 2), VersionRun(1, 2)]


def test_text_is_held_back_while_a_character_or_stop_string_is_incomplete(answer, chunk):
    capture = answer("END")
    pieces = [_text(capture.feed(TokenChunk([id_], [-1.0], 1))) for id_ in chunk("é E").ids]
    assert pieces == ["", "é", " ", ""]
    assert _text(capture.feed(chunk("", FinishReason.LENGTH))) == "E"


def test_a_stop_string_ends_the_answer_and_later_chunks_are_not_part_of_it(answer, chunk):
    capture = answer("END")
    assert _text(capture.feed(chunk("a END b"))) == "a "
    assert capture.finish_reason is FinishReason.STOP
    before = list(capture.ids)
    assert capture.feed(chunk("more")).ids == ()
    assert capture.ids == before


def test_a_broken_answer_keeps_what_was_sampled(answer, chunk):
    capture = answer()
    capture.feed(chunk("ab"))
    record = capture.aborted(Fate.CLIENT_GONE, "gone")
    assert (record.turn_id, record.fate, record.error) == ("t1", Fate.CLIENT_GONE, "gone")
    assert record.answer_ids == chunk("ab").ids
    assert list(record.versions) == [VersionRun(1, 2)]


def test_an_answer_without_tokens_is_complete_when_the_engine_says_so(answer, chunk):
    capture = answer()
    capture.feed(chunk("", FinishReason.STOP))
    record = capture.finished(HISTORY)
    assert record.answer_ids == []
    assert record.first_token_s is None


def test_chunks_that_are_joined_leave_the_record_that_they_leave_one_by_one(answer, chunk):
    chunks = [
        TokenChunk(one.ids, [-0.25 * number] * len(one.ids), one.version, logprobs, None, None, 7)
        for number, (one, logprobs) in enumerate(
            [
                (chunk("a"), [ClientLogprob(-1.0)]),
                (chunk("b"), [ClientLogprob(-2.0)]),
                (chunk("c", version=2), [ClientLogprob(-3.0)]),
                (chunk("d"), [ClientLogprob(-4.0)]),
            ]
        )
    ]
    chunks.append(chunk("e", FinishReason.STOP, eos=True))
    captures = one_by_one, together = answer(), answer()
    for one in chunks:
        one_by_one.feed(one)
    made = list(joined(chunks))
    for one in made:
        together.feed(one)
    assert [len(one.ids) for one in made] == [2, 1, 3]
    records = [capture.finished(HISTORY) for capture in captures]
    for name in ("answer_ids", "logprobs", "versions", "finish_reason", "message", "answer_chain"):
        assert len({repr(getattr(record, name)) for record in records}) == 1, name
    assert together.client == one_by_one.client
    assert together.cached_tokens == one_by_one.cached_tokens == 7
