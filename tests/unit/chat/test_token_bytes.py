"""Bytes of single tokens."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models

from rejoinder.chat.token_bytes import TokenBytes


def test_the_bytes_of_the_tokens_join_to_the_text_even_inside_a_character(tiny_tokenizer):
    table = TokenBytes(tiny_tokenizer.tokenizer)
    text = "a 한국 👍"
    ids = tiny_tokenizer.encode(text)
    assert len(ids) == len(text.encode())
    assert b"".join(table[id_] for id_ in ids).decode() == text


def test_special_tokens_are_written_out_and_unknown_ids_have_no_bytes(tiny_tokenizer):
    table = TokenBytes(tiny_tokenizer.tokenizer)
    assert table[tiny_tokenizer.eos_ids[0]] == b"<|im_end|>"
    assert table[100_000] == b""


def test_sentencepiece_spaces_and_byte_tokens_are_understood():
    tokenizer = Tokenizer(models.BPE({"▁the": 0, "<0xC3>": 1, "<0xA9>": 2}, []))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    table = TokenBytes(tokenizer)
    assert b"".join(table[id_] for id_ in (0, 1, 2)).decode() == " theé"
