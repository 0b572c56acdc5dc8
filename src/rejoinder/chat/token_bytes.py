"""The bytes of single tokens, for clients that ask what was sampled token by token."""

from __future__ import annotations

import re

from tokenizers import Tokenizer, decoders

from rejoinder.chat.detokenizer import BYTE_OF_CHAR

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""How SentencePiece vocabularies write a token that is one byte."""


class TokenBytes(dict[int, bytes]):
    """The bytes that each id stands for, special tokens written out; filled on first use.

    Joined, the bytes of an answer's ids are its text, so a character that is spread over several
    tokens is complete there although no single token has it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._byte_level = isinstance(tokenizer.decoder, decoders.ByteLevel)

    def __missing__(self, id_: int) -> bytes:
        token: str | None = self._tokenizer.id_to_token(id_)
        self[id_] = found = b"" if token is None else self._bytes_of(token)
        return found

    def _bytes_of(self, token: str) -> bytes:
        if self._byte_level:
            if all(char in BYTE_OF_CHAR for char in token):
                return bytes(BYTE_OF_CHAR[char] for char in token)
            return token.encode()  # an added token: plain text
        byte = _BYTE_TOKEN.fullmatch(token)
        if byte:
            return bytes([int(byte.group(1), 16)])
        return token.replace("\u2581", " ").encode()
