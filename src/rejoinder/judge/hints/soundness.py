"""What no instruction may be: a fact in disguise, a torn sentence, the reverse of what was meant.

The leak check looks at single words. "Please say yes." has none that a hint may not use, and yet
tells the answer; so what an answer should state, and how things are, is refused here by its form.
"""

from __future__ import annotations

from rejoinder.judge.hints.phrasebook import phrasebook


def tells_content(text: str) -> bool:
    """Whether an instruction in lower case says what is true and not how to put it."""
    book = phrasebook()
    return bool(book.states.search(text) or book.copula.search(book.form_clause.sub(" ", text)))


def is_torn(text: str) -> bool:
    """Whether a text in lower case ends where a sentence cannot."""
    return phrasebook().torn.search(text) is not None


def may_mean_the_reverse(text: str) -> bool:
    """Whether a sentence in lower case negates twice, denies a fault or misses what is absent."""
    return phrasebook().reverse.search(text) is not None
