"""Which earlier answer does a request reply to? Named rules over hashes of message histories.

Three questions are asked of every request: does it repeat an earlier one, which answer does it
reply to, and to which session does it belong? Each has a table of rules; the first rule that has an
answer decides, and is kept with the turn. What the tables add up to (design, *Linking*): a session
id names the session, and only a match of the history names the parent. Two possible parents mean
none. Nothing is linked by time, by ``user`` or by a trace alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Generic, TypeVar

from rejoinder.chat.client_context import own_words
from rejoinder.chat.history import History
from rejoinder.types import ChainMatch, Json, Message, SameRequest, Scope

RETRY_WINDOW_S = 900.0
"""A client's retry marker refers to a request at most so old: longer than clients wait."""


def session_key(scope: Scope, external: str) -> str:
    """Return the internal id of the session a client names: the same in every gateway process."""
    parts = (scope.tenant, scope.key, scope.user, external)
    named = "".join(f"{len(part)}:{part}" for part in parts)  # no part can pass for two
    return blake2b(named.encode(), digest_size=16).hexdigest()


# --- what is known ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedSession:
    """A session that the client names."""

    external: str
    session_id: str
    """Its internal id."""

    def holds(self, turn: ChainMatch) -> bool:
        """Whether an earlier turn is of this session; clients may name it by the id we gave."""
        ids = (self.session_id, self.external)
        return turn.session_id in ids or turn.external_session == self.external


@dataclass(frozen=True)
class Facts:
    """What the rules may look at."""

    history: History
    named: NamedSession | None = None
    """The session the client names, if it names one."""
    matches: Sequence[ChainMatch] = ()
    """Turns of the scope whose answer chain is one of ``history.answer_chains``."""
    same: Sequence[SameRequest] = ()
    """Turns that answered this very history: of the named session, or, where the client marked a
    retry and named no session, of the whole scope. Empty otherwise."""
    trace: bytes | None = None
    """The trace of the request, where its client sends one."""
    continues: str | None = None
    """The turn whose answer the request says it goes on from."""
    now: float = 0.0
    """For the age of retried requests, Unix seconds."""
    answers: Mapping[str, Message] = field(default_factory=dict)
    """Answers of the turns that ``unread`` names."""

    @cached_property
    def last(self) -> list[ChainMatch]:
        """Turns that gave the last answer of the history to what stands before it."""
        if self.history.last_answer is None:
            return []
        return self.at(self.history.chains[self.history.last_answer])

    @cached_property
    def earlier(self) -> list[ChainMatch]:
        """Turns that gave the newest known answer of the history."""
        return next(filter(None, map(self.at, reversed(self.history.answer_chains))), [])

    @property
    def unread(self) -> list[str]:
        """Turns whose answers must be read: chains do not tell apart what stands beside calls."""
        if len(self.last) < 2 or not self._words:
            return []
        return [turn.turn_id for turn in self.last]

    @cached_property
    def _words(self) -> str:
        """What the last answer says beside its tool calls, as the client sent it back."""
        at = self.history.last_answer
        if at is None or not self.history.messages[at].tool_calls:
            return ""
        return own_words(self.history.messages[at])

    def in_words(self, turns: Sequence[ChainMatch]) -> list[ChainMatch]:
        """Return the turns whose answers say the same beside their tool calls."""
        return [
            turn
            for turn in turns
            if (answer := self.answers.get(turn.turn_id)) and own_words(answer) == self._words
        ]

    def at(self, chain: bytes) -> list[ChainMatch]:
        """Return the turns behind one chain; some count only where there is no other.

        Those are replaced ones, and side turns unless the request names them: if the reply was to
        one, the main turn that said the same to the same is judged no worse by it.
        """
        found = self._by_chain.get(chain, [])
        found = [turn for turn in found if not turn.superseded] or found
        return [one for one in found if not one.side or one.turn_id == self.continues] or found

    @cached_property
    def _by_chain(self) -> dict[bytes, list[ChainMatch]]:
        found: dict[bytes, list[ChainMatch]] = {}
        for turn in self.matches:
            if self.named is None or self.named.holds(turn):
                found.setdefault(turn.chain, []).append(turn)
        return found

    @cached_property
    def retried(self) -> list[SameRequest]:
        """Turns that a retry mark without a session may mean."""
        if self.named is not None:
            return []
        return [turn for turn in self.same if self.now - turn.created_at <= RETRY_WINDOW_S]

    def of_trace(self, turns: Sequence[Traced]) -> list[Traced]:
        """Return the turns that were asked for under the request's trace."""
        return [turn for turn in turns if self.trace is not None and turn.trace == self.trace]


Traced = TypeVar("Traced", ChainMatch, SameRequest)


def _one_session(turns: Sequence[ChainMatch] | Sequence[SameRequest]) -> str | None:
    sessions = {turn.session_id for turn in turns}
    return sessions.pop() if len(sessions) == 1 else None


# --- rules -----------------------------------------------------------------------------------

Known = TypeVar("Known")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Known, Found]):
    """One line of a table."""

    name: str
    """Kept with the turn; stable, documented in ``docs/reference/http-api.md``."""
    says: str
    """For people; may speak of the ``{count}`` turns that it looked at."""
    find: Callable[[Known], Found | None]
    """None: the rule has nothing to say, and the next one is asked."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """The earlier turns that a request asks again for."""

    turns: tuple[str, ...] = ()
    """They are superseded."""
    session_id: str | None = None
    looked_at: tuple[str, ...] = ()


def _repeat(turns: Sequence[SameRequest]) -> Repeat | None:
    ids = tuple(turn.turn_id for turn in turns)
    return Repeat(ids, turns[0].session_id, ids) if turns else None


REPEATS: tuple[Rule[Facts, Repeat], ...] = (
    Rule(
        "asked_again",
        "asks again what {count} request(s) of the named session asked",
        lambda facts: _repeat(facts.same) if facts.named else None,
    ),
    Rule(
        "marked_retry",
        "is marked as a retry and repeats {count} recent request(s)",
        lambda facts: _repeat(facts.retried) if _one_session(facts.retried) else None,
    ),
    Rule(
        "retry_in_trace",
        "is marked as a retry and repeats {count} recent request(s) of its trace",
        lambda facts: (
            _repeat(found)
            if (found := facts.of_trace(facts.retried)) and _one_session(found)
            else None
        ),
    ),
    Rule(
        "retry_of_several",
        "is marked as a retry, but {count} requests of several sessions look like it",
        lambda facts: (
            Repeat(looked_at=tuple(turn.turn_id for turn in facts.retried))
            if facts.retried
            else None
        ),
    ),
    Rule("not_repeated", "repeats no earlier request", lambda _facts: Repeat()),
)
"""Does the request ask again for an answer? Outside named sessions only a client's mark says so."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The turn whose answer a request replies to, or what stands in its way."""

    turn_id: str | None = None
    session_id: str | None = None
    """Where the history is known to belong, with a parent or without."""
    continues: str | None = None
    """The one turn that is known to have given the newest known answer."""
    ambiguous: tuple[str, ...] = ()
    """Turns that each might be it."""
    looked_at: tuple[str, ...] = ()


def _the_one(turns: Sequence[ChainMatch]) -> Parent | None:
    if len(turns) != 1:
        return None
    turn_id = turns[0].turn_id
    return Parent(turn_id, turns[0].session_id, continues=turn_id, looked_at=(turn_id,))


def _several(facts: Facts) -> Parent | None:
    ids = tuple(turn.turn_id for turn in facts.last)
    if not ids:
        return None
    return Parent(session_id=_one_session(facts.last), ambiguous=ids, looked_at=ids)


def _known_earlier(facts: Facts) -> Parent | None:
    ids = tuple(turn.turn_id for turn in facts.earlier)
    if not ids:
        return None
    return Parent(
        session_id=_one_session(facts.earlier),
        continues=ids[0] if len(ids) == 1 else None,
        looked_at=ids,
    )


PARENTS: tuple[Rule[Facts, Parent], ...] = (
    Rule(
        "first_request",
        "no earlier answer in the history",
        lambda facts: Parent() if facts.history.last_answer is None else None,
    ),
    Rule("last_answer", "replies to the last answer", lambda facts: _the_one(facts.last)),
    Rule(
        "last_answer_by_id",
        "replies to the last answer: of those that fit, the one that the request names",
        lambda facts: _the_one([turn for turn in facts.last if turn.turn_id == facts.continues]),
    ),
    Rule(
        "last_answer_in_words",
        "replies to the last answer: of those with its tool calls, the one with its text",
        lambda facts: _the_one(facts.in_words(facts.last)),
    ),
    Rule(
        "last_answer_in_trace",
        "replies to the last answer: of those that fit, the one of its trace",
        lambda facts: _the_one(facts.of_trace(facts.last)),
    ),
    Rule("several_answers", "{count} earlier answers fit the history", _several),
    Rule(
        "earlier_answer",
        "the last answer in the history is not one of ours, or was edited; an earlier one is known",
        _known_earlier,
    ),
    Rule(
        "unknown_history",
        "no answer in the history is one of ours, or what came before was edited or summarised",
        lambda _facts: Parent(),
    ),
)
"""Which answer does it reply to? Only one whose whole history the request carries."""


@dataclass(frozen=True, slots=True)
class Place:
    """What decides about the session."""

    repeat: Repeat
    parent: Parent
    named: NamedSession | None


@dataclass(frozen=True, slots=True)
class Session:
    """A session; None: a new one."""

    session_id: str | None


def _session(session_id: str | None) -> Session | None:
    return None if session_id is None else Session(session_id)


SESSIONS: tuple[Rule[Place, Session], ...] = (
    Rule(
        "repeated",
        "the session of what it repeats",
        lambda place: _session(place.repeat.session_id),
    ),
    Rule("history", "the session of its history", lambda place: _session(place.parent.session_id)),
    Rule(
        "named",
        "the session that the client names",
        lambda place: _session(place.named.session_id) if place.named else None,
    ),
    Rule("new", "a new session", lambda _place: Session(None)),
)
"""To which session does it belong? Where the history goes on in one, a client's new name for it
does not break it."""


# --- the decision ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinkDecision:
    """What a request is, among what came before it."""

    session_id: str | None
    """None: a new session."""
    parent_id: str | None
    """The turn whose answer the request replies to."""
    next_state: tuple[Message, ...]
    """What the request says about the parent's answer; empty without a parent."""
    supersedes: tuple[str, ...]
    """Earlier turns that this request repeats."""
    ambiguous: tuple[str, ...]
    """Turns that each might be the parent; none of them is judged by this request."""
    reason: str
    """For people."""
    explanation: Json = field(default_factory=dict)
    """The rules that decided, for the journal: ``repeat``, ``parent`` and ``session``, each with
    ``rule``, ``why`` and the ``turns`` it looked at; and, with a parent, the ``next_state``."""
    continues: str | None = None
    """The turn with whose prompt and answer the history begins: the parent, or, where later
    answers are not ours, the turn of the newest that is."""


def decide(facts: Facts) -> LinkDecision:
    """Ask the tables, one after the other."""
    repeat_rule, repeat = _ask(REPEATS, facts)
    parent_rule, parent = _ask(PARENTS, facts)
    session_rule, session = _ask(SESSIONS, Place(repeat, parent, facts.named))
    explanation: Json = {
        "repeat": _explained(repeat_rule, repeat.looked_at),
        "parent": _explained(parent_rule, parent.looked_at),
        "session": _explained(session_rule, ()),
    }
    next_state: tuple[Message, ...] = ()
    if parent.turn_id is not None and facts.history.last_answer is not None:
        next_state = facts.history.next_state
        said = len(facts.history.messages) - facts.history.last_answer - 1
        explanation["next_state"] = {
            "messages": len(next_state),
            "left_out": said - len(next_state),
        }
    why = explanation["parent"]["why"]
    return LinkDecision(
        session_id=session.session_id,
        parent_id=parent.turn_id,
        next_state=next_state,
        supersedes=repeat.turns,
        ambiguous=parent.ambiguous,
        reason=f"{explanation['repeat']['why']}; {why}" if repeat.looked_at else why,
        explanation=explanation,
        continues=parent.continues,
    )


def _ask(rules: Sequence[Rule[Known, Found]], known: Known) -> tuple[Rule[Known, Found], Found]:
    """Return the first rule that has something to say, and what; the last of a table always has."""
    for rule in rules:
        found = rule.find(known)
        if found is not None:
            return rule, found
    raise AssertionError("a table of rules ends with one that always answers")


def _explained(rule: Rule[Known, Found], turns: Sequence[str]) -> Json:
    if not turns:
        return {"rule": rule.name, "why": rule.says}
    why = rule.says.format(count=len(turns))
    return {"rule": rule.name, "why": why, "turns": list(turns)}
