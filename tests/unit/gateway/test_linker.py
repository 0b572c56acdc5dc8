"""What the gateway asks the journal when it links a request."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rejoinder.chat.history import History
from rejoinder.errors import JournalError
from rejoinder.gateway.identity import Identity
from rejoinder.gateway.linker import Linker
from rejoinder.gateway.metrics import GatewayMetrics
from rejoinder.types import ChainMatch, Message, SameRequest, Scope, TurnType

_SAID = [Message(role, text) for text in ("a", "b", "c") for role in ("user", "assistant")]
HISTORY = History((*_SAID, Message("user", "last")))
OLDEST, MIDDLE, NEWEST = HISTORY.answer_chains


class Journal:
    """Knows some chains, and remembers which were asked for."""

    def __init__(self, *known: bytes) -> None:
        self._known = known
        self.asked: list[list[bytes]] = []
        self.threads: set[int] = set()

    def find_same_request(self, _scope, _chain, _external) -> list[SameRequest]:
        return []

    def find_chains(self, _scope, chains, _external=None) -> list[ChainMatch]:
        self.asked.append(list(chains))
        self.threads.add(threading.get_ident())
        return [
            ChainMatch(f"t{chain.hex()}", "s", None, chain, False, None, False)
            for chain in chains
            if chain in self._known
        ]


class Splicer:
    """Keeps every turn, or has to read each."""

    def __init__(self, *, keeps: bool = True) -> None:
        self._keeps = keeps
        self.fetched: list[str] = []
        self.threads: set[int] = set()

    def keeps(self, _turn_id: str) -> bool:
        return self._keeps

    def fetch(self, turn_id: str) -> None:
        self.fetched.append(turn_id)
        self.threads.add(threading.get_ident())


@pytest.fixture
def link():
    """Link the history to what a journal knows."""
    with ThreadPoolExecutor(1) as reads:

        async def call(
            journal: Journal,
            splicer: Splicer | None = None,
            history: History = HISTORY,
            session: str | None = None,
        ):
            linker = Linker(journal, reads, GatewayMetrics(), splicer or Splicer())
            identity = Identity(session, TurnType.MAIN, done=False, retried=False)
            return await linker.link(history, Scope("tenant", "key"), identity).decision()

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


async def test_a_reply_to_a_turn_at_hand_is_linked_without_a_thread(link):
    journal, splicer = Journal(NEWEST), Splicer()
    decision = await link(journal, splicer)
    assert decision.parent_id == f"t{NEWEST.hex()}"
    assert journal.threads == {threading.get_ident()}
    assert not splicer.fetched


async def test_ids_that_must_be_read_are_read_in_a_thread(link):
    splicer = Splicer(keeps=False)
    decision = await link(Journal(NEWEST), splicer)
    assert splicer.fetched == [decision.continues] == [f"t{NEWEST.hex()}"]
    assert threading.get_ident() not in splicer.threads


async def test_a_long_history_is_looked_up_in_a_thread(link):
    said = [Message(role, f"{at}") for at in range(40) for role in ("user", "assistant")]
    journal = Journal()
    decision = await link(journal, history=History((*said, Message("user", "last"))))
    assert decision.parent_id is None
    assert threading.get_ident() not in journal.threads


@pytest.mark.parametrize("history", [HISTORY, History((*_SAID * 20, Message("user", "last")))])
async def test_a_journal_that_cannot_be_read_makes_a_new_session(link, history):
    class Broken(Journal):
        def find_chains(self, _scope, _chains, _external=None) -> list[ChainMatch]:
            raise JournalError("the disk is gone")

    decision = await link(Broken(), history=history)
    assert (decision.parent_id, decision.session_id) == (None, None)
    assert "the disk is gone" in decision.reason


async def test_a_named_session_is_looked_up_in_a_thread(link):
    journal = Journal(NEWEST)
    await link(journal, session="mine")
    assert threading.get_ident() not in journal.threads
