"""Text of ids that arrive in any pieces, and stop strings in it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rejoinder.chat.detokenizer import Detokenizer, StopMatcher


def _byte_level() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.add_tokens([AddedToken("<naïve>", special=False)])
    return tokenizer


def _sentence_piece() -> Tokenizer:
    words = ["\u2581the", "\u2581sea", "s", "\u2581", ".", "h\u00e9"]
    vocabulary = [(word, -1.0) for word in words] + [(f"<0x{b:02X}>", -5.0) for b in range(256)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


BYTE_LEVEL = _byte_level()
SENTENCE_PIECE = _sentence_piece()


def _pieces(ids: list[int], cuts: list[int]) -> list[list[int]]:
    borders = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    return [ids[a:b] for a, b in itertools.pairwise(borders)]


def _stream(tokenizer: Tokenizer, pieces: list[list[int]]) -> tuple[list[str], str]:
    stream = Detokenizer(tokenizer).stream()
    return [stream.feed(piece) for piece in pieces], stream.finish()


@given(st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() - 1)), st.lists(st.integers(0, 99)))
def test_any_ids_in_any_pieces_give_the_text_of_a_full_decode(ids: list[int], cuts: list[int]):
    given_out, rest = _stream(BYTE_LEVEL, _pieces(ids, cuts))
    assert "".join(given_out) + rest == BYTE_LEVEL.decode(ids)


@given(st.text(max_size=20), st.lists(st.integers(0, 99)))
def test_characters_over_several_tokens_never_become_replacement_characters(
    text: str, cuts: list[int]
):
    ids = BYTE_LEVEL.encode(text).ids
    given_out, rest = _stream(BYTE_LEVEL, _pieces(ids, cuts))
    assert "".join(given_out) == text
    assert rest == ""


@pytest.mark.parametrize(
    "text", ["the seas. h\u00e9", " \U0001f30a the \ud55c\uad6d\uc5b4.", "s" * 30]
)
def test_tokenizers_that_are_not_byte_level_stream_the_text_of_a_full_decode(text: str):
    ids = SENTENCE_PIECE.encode(text).ids
    given_out, rest = _stream(SENTENCE_PIECE, [[id_] for id_ in ids])
    assert "".join(given_out) + rest == SENTENCE_PIECE.decode(ids)
    assert not any("\ufffd" in piece for piece in given_out)


def test_text_after_a_break_in_the_stream_keeps_the_space_it_begins_with():
    stream = Detokenizer(SENTENCE_PIECE).stream()
    pieces = [stream.feed(SENTENCE_PIECE.encode("the").ids), stream.finish(), stream.finish()]
    pieces.append(stream.feed([SENTENCE_PIECE.token_to_id("\u2581sea")]))
    assert "".join(pieces) == "the sea"


def test_a_long_run_of_invalid_bytes_is_given_out_instead_of_held_for_ever():
    ids = [SENTENCE_PIECE.token_to_id("<0xFF>")] * 100
    given_out, rest = _stream(SENTENCE_PIECE, [[id_] for id_ in ids])
    assert len("".join(given_out)) > 80
    assert "".join(given_out) + rest == "\ufffd" * 100


def test_an_incomplete_character_at_the_end_appears_once_and_only_at_the_end():
    ids = BYTE_LEVEL.encode("sea \U0001f30a").ids[:-1]
    given_out, rest = _stream(BYTE_LEVEL, [[id_] for id_ in ids])
    assert "".join(given_out) == "sea "
    assert rest == "\ufffd"


def test_special_tokens_have_no_text_unless_asked_for():
    ids = [*BYTE_LEVEL.encode("sea").ids, BYTE_LEVEL.token_to_id("<|end|>")]
    assert Detokenizer(BYTE_LEVEL).stream().feed(ids) == "sea"
    kept = Detokenizer(BYTE_LEVEL, skip_special_tokens=False)
    assert kept.stream().feed(ids) == "sea<|end|>"


@pytest.mark.parametrize("silent", ["<pad>", None], ids=["special", "unknown"])
def test_a_long_run_of_ids_without_text_costs_no_more_per_id_than_a_short_one(silent: str | None):
    tokenizer = Tokenizer.from_str(SENTENCE_PIECE.to_str())
    tokenizer.add_special_tokens([AddedToken("<pad>", special=True)])
    id_ = 9999 if silent is None else tokenizer.token_to_id(silent)
    decoded = _CountingTokenizer(tokenizer)
    stream = Detokenizer(decoded).stream()  # type: ignore[arg-type]
    the, sea = tokenizer.token_to_id("\u2581the"), tokenizer.token_to_id("\u2581sea")
    assert stream.feed([the, *[id_] * 2000, sea]) == "the sea"
    assert decoded.ids < 2000 * 50


class _CountingTokenizer:
    """Counts the ids that are decoded."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.ids = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def decode(self, ids: list[int], **how: bool) -> str:
        self.ids += len(ids)
        return self._tokenizer.decode(ids, **how)


def test_ids_that_the_tokenizer_does_not_know_have_no_text():
    assert Detokenizer(BYTE_LEVEL).stream().feed([BYTE_LEVEL.get_vocab_size() + 5]) == ""


def _match(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    out = "".join(matcher.feed(piece) for piece in pieces)
    if matcher.matched is None:
        out += matcher.finish()
    return out, matcher.matched


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.text("abc", max_size=30),
    st.lists(st.integers(0, 99)),
)
def test_stop_strings_are_found_the_same_way_however_the_text_is_cut(
    stops: list[str], text: str, cuts: list[int]
):
    borders = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(borders)]
    whole = _match(tuple(stops), [text])
    assert _match(tuple(stops), pieces) == whole
    assert _match(tuple(stops), list(text)) == whole
    before, matched = whole
    if matched is None:
        assert before == text
        assert not any(stop in text for stop in stops)
    else:
        assert text.startswith(before + matched)
        assert not any(stop in before for stop in stops)


def test_text_that_may_begin_a_stop_string_is_held_back_and_nothing_else():
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.feed("Hello.\n") == "Hello."
    assert matcher.feed("\nUse") == ""
    assert matcher.feed("ful.") == "\n\nUseful."
    assert matcher.matched is None


def test_nothing_comes_out_after_a_match():
    matcher = StopMatcher(["END"])
    assert matcher.feed("a END b") == "a "
    assert matcher.matched == "END"
    assert matcher.feed("more") == ""
    assert matcher.finish() == ""


def test_of_two_stop_strings_that_end_together_the_longer_one_matches():
    assert _match(("b", "ab"), ["xab"]) == ("x", "ab")


def test_empty_stop_strings_match_nothing():
    assert _match(("",), ["text"]) == ("text", None)
