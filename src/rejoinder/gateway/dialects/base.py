"""The seam of dialects: what an API that clients speak has to read and to write.

A dialect turns a body's bytes into a ``TurnRequest`` and the answers of its turns into bytes. All
that lies between (keys, limits, linking, sampling, recording) knows no dialect, so a conversation
that goes on in another one is recognised. Add one: a class with these members, and a line in
``registry.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from rejoinder.gateway.capture import AnswerCapture, Piece
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.request import TurnRequest
from rejoinder.types import Sampling


@dataclass(frozen=True, slots=True)
class Opened:
    """The open turns of one request: what its response is written from."""

    completion_id: str
    created: int
    """Unix seconds."""
    model: str
    """As the client named it; the policy where it named none."""
    session_id: str
    prompt_tokens: int
    """Of all prompts together."""
    answers: Sequence[AnswerCapture]
    """[prompts x n] they fill while the response is written."""
    sampling: Sampling
    """How the answers are sampled, which need not be what was asked for."""


class Writer(Protocol):
    """Writes the response to one request: ``begin``, ``piece``..., ``end``; or ``whole`` alone."""

    def begin(self, fingerprint: str) -> bytes:
        """Return the first events of a stream. ``fingerprint``: ``policy@version``."""
        ...

    def piece(self, choice: int, piece: Piece) -> bytes:
        """Return the events of one piece of an answer; empty where there is nothing to tell."""
        ...

    def end(self, *, recorded: bool) -> bytes:
        """Return the last events; the answers are complete. ``recorded``: they are durable."""
        ...

    def failed(self, error: ApiError) -> bytes:
        """Return the events that end a stream which broke off."""
        ...

    def whole(self, fingerprint: str, *, recorded: bool) -> bytes:
        """Return the JSON body of a response that is not streamed, or that is to be kept."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What a dialect has read in a body."""

    request: TurnRequest
    ignored: Sequence[str]
    """Names of fields without effect, for counting; see ``json_body.without_effect``."""
    writer: Callable[[Opened], Writer]
    """Makes the writer of this request's response."""
    follows: bool = False
    """The writer gets the pieces of a response that is not streamed, too: it needs their order."""
    by_token: bool = False
    """It gets them token by token: it counts tokens, or tells their log-probabilities, by what they
    gave."""
    common: Sequence[bytes] = ()
    """See ``KeptResponse.common``."""


class Form(Protocol):
    """What all paths of one API have in common. Holds no request."""

    @property
    def path(self) -> str:
        """Where it is served, below the gateway's root."""
        ...

    @property
    def body(self) -> type[msgspec.Struct]:
        """The fields of a request's body, for the API description."""
        ...

    @property
    def summary(self) -> str:
        """What it does, for the API description."""
        ...

    def refusal(self, error: ApiError) -> tuple[int, bytes]:
        """Return the status and the JSON body of a refusal in this API's form."""
        ...


class Dialect(Form, Protocol):
    """One API for turns."""

    @property
    def id_prefix(self) -> str:
        """How the ids of its responses begin."""
        ...

    def read(self, data: bytes, most: int) -> Reading:
        """Read a request's body. Runs in a thread where the body is long.

        Args:
            data: the bytes.
            most: more messages than this are refused before any work is done on them.

        Raises:
            ApiError: 400; ``param`` names the field.
            ContextLengthExceeded: too many messages.
        """
        ...


class Counting(Form, Protocol):
    """One API for counting the tokens of a prompt. Makes no turn."""

    def read(self, data: bytes, most: int) -> TurnRequest:
        """Read a request's body, as ``Dialect.read`` does."""
        ...

    def counted(self, tokens: int) -> bytes:
        """Return the JSON body of the response."""
        ...
