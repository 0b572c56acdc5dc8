"""Bodies without the parts that others have too: those are kept by content, once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rejoinder.journal.columns import LARGE_BYTES, Fetch, Store


def cut(body: bytes, common: Sequence[bytes], store: Store) -> tuple[bytes, bytes | None]:
    """Take large common parts out of a body.

    Returns:
        what is left of it, and where the parts go; None where none was taken out.
    """
    places: list[tuple[int, bytes]] = []
    for part in common:
        at = body.find(part) if len(part) >= LARGE_BYTES else -1
        if at >= 0:
            body = body[:at] + body[at + len(part) :]
            places.append((at, store(part)))
    return body, msgspec.msgpack.encode(places) if places else None


def put_together(body: bytes, parts: bytes | None, fetch: Fetch) -> bytes:
    """Return the body that ``cut`` was given."""
    if parts is None:
        return body
    places = msgspec.msgpack.decode(parts, type=list[tuple[int, bytes]])
    for at, digest in reversed(places):
        body = body[:at] + fetch(digest) + body[at:]
    return body
