"""Text that is no Unicode: half of a surrogate pair, left by programs that cut an emoji in two.

JSON can write such halves, and no tokenizer, database or encoder takes them. They become U+FFFD
where text comes in, so that they never fail a turn later.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    r"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|.)",
    re.DOTALL,
)
"""One escape sequence of a JSON text; every backslash of the text belongs to one."""


def mend_escapes(text: str) -> str:
    """Replace escaped halves of surrogate pairs in a JSON text by an escaped U+FFFD."""
    return _ESCAPE.sub(lambda found: r"\ufffd" if found["half"] else found[0], text)
