"""Which earlier answer does a request reply to? Pure rules over hashes of message histories.

Every history has a rolling hash (a *chain*) after each of its messages. A turn's answer chain is
the chain of its request plus its answer, so a later request that carries the same history ends in
the same chain at the same place. Left out of chains: system text (clients put clocks and hints
there), what client programs add to a user's words, surrounding white space, tool call ids and the
spacing of tool arguments, all of which clients rewrite; and reasoning, which most do not send back.

The rules (design, *Linking*): a session id names the session, and only a match of the history names
the parent. Two possible parents mean none. Nothing is linked by time or by ``user``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from rejoinder.chat.client_context import own_words, without_context
from rejoinder.types import ChainMatch, Message, SameRequest, Scope

_SEED = b"rejoinder chain 1"
RETRY_WINDOW_S = 900.0
"""A client's retry marker refers to a request at most so old: longer than clients wait."""


def session_key(scope: Scope, external: str) -> str:
    """Return the internal id of the session a client names: the same in every gateway process."""
    parts = (scope.tenant, scope.key, scope.user, external)
    named = "".join(f"{len(part)}:{part}" for part in parts)  # no part can pass for two
    return blake2b(named.encode(), digest_size=16).hexdigest()


def _canonical_arguments(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments.strip()


def _extend(chain: bytes, message: Message) -> bytes:
    """Return the chain after one more message; system text and pure client context change none."""
    if message.role == "system":
        return chain
    words = own_words(message)
    name = ""
    if message.role == "user":
        if not words:
            return chain
        name = message.name or ""  # tells speakers apart; clients drop it from other roles
    digest = blake2b(chain, digest_size=16)
    parts = [message.role, name, words]
    for call in message.tool_calls:
        parts += [call.name, _canonical_arguments(call.arguments)]
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


@dataclass(frozen=True)
class History:
    """A request's messages with their chains."""

    messages: tuple[Message, ...]

    @cached_property
    def chains(self) -> list[bytes]:
        """[M] the chain after each message."""
        chain, chains = _SEED, []
        for message in self.messages:
            chain = _extend(chain, message)
            chains.append(chain)
        return chains

    @property
    def request_chain(self) -> bytes:
        """Hash of the whole history, for recognising the same request."""
        return self.chains[-1] if self.messages else _SEED

    def answer_chain(self, answer: Message) -> bytes:
        """Hash of the history and an answer to it: what the next request is recognised by."""
        return _extend(self.request_chain, answer)

    @cached_property
    def next_state(self) -> tuple[Message, ...]:
        """Everything said after the last answer; empty where nothing was."""
        if self.last_answer is None:
            return ()
        return without_context(self.messages[self.last_answer + 1 :])

    @cached_property
    def answers(self) -> list[int]:
        """Positions of earlier answers that something follows, oldest first.

        An assistant message at the very end is no answer but words put into the model's mouth.
        """
        found: list[int] = []
        follows = False
        for index in range(len(self.messages) - 1, -1, -1):
            if self.messages[index].role != "assistant":
                follows = True
            elif follows:
                found.append(index)
        return found[::-1]

    @property
    def last_answer(self) -> int | None:
        """Position of the last earlier answer."""
        return self.answers[-1] if self.answers else None

    @property
    def answer_chains(self) -> list[bytes]:
        """The chains by which earlier answers may be known, oldest first."""
        return [self.chains[index] for index in self.answers]


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


def decide(
    history: History,
    named: NamedSession | None,
    matches: Sequence[ChainMatch],
    same: Sequence[SameRequest] = (),
    *,
    now: float = 0.0,
) -> LinkDecision:
    """Apply the rules.

    Args:
        history: the request.
        named: the session the client names, if it names one.
        matches: turns of the scope whose answer chain is one of ``history.answer_chains``.
        same: turns that answered this very history: of the named session, or, where the client
            marked a retry and named no session, of the whole scope. Empty otherwise.
        now: for the age of retried requests, Unix seconds.
    """
    parent = _parent(history, named, matches)
    if named is not None:
        supersedes = tuple(turn.turn_id for turn in same)
        session_id: str | None = parent.session_id or named.session_id
    else:
        retried = [turn for turn in same if now - turn.created_at <= RETRY_WINDOW_S]
        one_session = {turn.session_id for turn in retried}
        # Requests of several sessions look the same: which one is retried cannot be known.
        supersedes = tuple(turn.turn_id for turn in retried) if len(one_session) == 1 else ()
        session_id = retried[0].session_id if supersedes else parent.session_id
    reason = parent.reason
    if supersedes:
        reason = f"repeats {len(supersedes)} earlier request(s); {reason}"
    return LinkDecision(
        session_id=session_id,
        parent_id=parent.turn_id,
        next_state=history.next_state if parent.turn_id is not None else (),
        supersedes=supersedes,
        ambiguous=parent.ambiguous,
        reason=reason,
    )


@dataclass(frozen=True, slots=True)
class _Parent:
    reason: str
    turn_id: str | None = None
    session_id: str | None = None
    ambiguous: tuple[str, ...] = ()


def _parent(history: History, named: NamedSession | None, matches: Sequence[ChainMatch]) -> _Parent:
    if history.last_answer is None:
        return _Parent("no earlier answer in the history")
    if named is not None:
        matches = [match for match in matches if named.holds(match)]
    at_last = _at(history.chains[history.last_answer], matches)
    if len(at_last) == 1:
        return _Parent("replies to the last answer", at_last[0].turn_id, at_last[0].session_id)
    if at_last:
        sessions = {match.session_id for match in at_last}
        return _Parent(
            f"{len(at_last)} earlier answers fit the history",
            session_id=sessions.pop() if len(sessions) == 1 else None,
            ambiguous=tuple(match.turn_id for match in at_last),
        )
    reason = "the last answer in the history is not one of ours, or was edited"
    return _Parent(reason, session_id=_session_of_earlier(history, matches))


def _at(chain: bytes, matches: Sequence[ChainMatch]) -> list[ChainMatch]:
    """Return the turns behind one chain; replaced ones count only where there is no other."""
    found = [match for match in matches if match.chain == chain]
    return [match for match in found if not match.superseded] or found


def _session_of_earlier(history: History, matches: Sequence[ChainMatch]) -> str | None:
    """Return the session in which the history began, if it can only be one."""
    for chain in reversed(history.answer_chains):
        sessions = {match.session_id for match in _at(chain, matches)}
        if sessions:
            return sessions.pop() if len(sessions) == 1 else None
    return None
