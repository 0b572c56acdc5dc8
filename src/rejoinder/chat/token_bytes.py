"""The bytes of single tokens: of which text is made, and which clients may ask for one by one."""

from __future__ import annotations

import re

from tokenizers import Tokenizer, decoders

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""How SentencePiece vocabularies write a token that is one byte."""


def _byte_of_char() -> dict[str, int]:
    """Return the table of byte-level BPE: each byte is written as one printable character.

    Printable Latin-1 bytes stand for themselves, the others for the code points from 256 up
    (GPT-2, Radford et al. 2019).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return table | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF_CHAR = _byte_of_char()
"""The byte that each character of a byte-level vocabulary stands for."""


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
            if all(char in _BYTE_OF_CHAR for char in token):
                return bytes(_BYTE_OF_CHAR[char] for char in token)
            return token.encode()  # an added token: plain text
        byte = _BYTE_TOKEN.fullmatch(token)
        if byte:
            return bytes([int(byte.group(1), 16)])
        return token.replace("\u2581", " ").encode()
