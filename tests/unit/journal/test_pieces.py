"""Bodies come back byte for byte, whatever is taken out of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rejoinder.journal.columns import LARGE_BYTES
from rejoinder.journal.pieces import cut, put_together

LARGE = st.binary(min_size=1, max_size=3).map(lambda part: part * LARGE_BYTES)
PARTS = st.lists(LARGE | st.binary(max_size=9), max_size=4)


@given(st.lists(LARGE | st.binary(max_size=9), max_size=6).map(b"".join), PARTS)
def test_what_is_put_together_is_what_was_cut(body: bytes, common: list[bytes]) -> None:
    contents: dict[bytes, bytes] = {}

    def store(data: bytes) -> bytes:
        digest = b"%d" % len(contents)
        contents[digest] = data
        return digest

    rest, parts = cut(body, common, store)
    assert put_together(rest, parts, contents.__getitem__) == body
    assert (parts is None) == (not contents)
    assert all(len(data) >= LARGE_BYTES for data in contents.values())
