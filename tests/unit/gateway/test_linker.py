"""What the gateway asks the journal when it links a request."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from rejoinder.chat.history import History
from rejoinder.gateway.identity import Identity
from rejoinder.gateway.linker import Linker
from rejoinder.gateway.metrics import GatewayMetrics
from rejoinder.types import ChainMatch, Message, Scope, TurnType

_SAID = [Message(role, text) for text in ("a", "b", "c") for role in ("user", "assistant")]
HISTORY = History((*_SAID, Message("user", "last")))
OLDEST, MIDDLE, NEWEST = HISTORY.answer_chains


class Journal:
    """Knows some chains, and remembers which were asked for."""

    def __init__(self, *known: bytes) -> None:
        self._known = known
        self.asked: list[list[bytes]] = []

    def find_chains(self, _scope, chains, _external=None) -> list[ChainMatch]:
        self.asked.append(list(chains))
        return [
            ChainMatch(f"t{chain.hex()}", "s", None, chain, False, None, False)
            for chain in chains
            if chain in self._known
        ]


class Splicer:
    """Has every turn."""

    def fetch(self, _turn_id: str) -> None: ...


@pytest.fixture
def link():
    """Link the history to what a journal knows."""
    with ThreadPoolExecutor(1) as reads:

        async def call(journal: Journal):
            linker = Linker(journal, reads, GatewayMetrics(), Splicer())
            identity = Identity(None, TurnType.MAIN, done=False, retried=False)
            return await linker.link(HISTORY, Scope("tenant", "key"), identity).decision()

        yield call


async def test_nothing_is_asked_about_older_answers_where_the_newest_is_known(link):
    journal = Journal(OLDEST, MIDDLE, NEWEST)
    decision = await link(journal)
    assert journal.asked == [[NEWEST]]
    assert decision.parent_id == f"t{NEWEST.hex()}"


async def test_where_the_newest_answer_is_not_known_the_newest_that_is_goes_on(link):
    journal = Journal(OLDEST, MIDDLE)
    decision = await link(journal)
    assert journal.asked == [[NEWEST], [OLDEST, MIDDLE]]
    assert decision.parent_id is None
    assert decision.continues == f"t{MIDDLE.hex()}"
