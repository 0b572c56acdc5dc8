"""What every engine refuses before any work: requests that cannot have an answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rejoinder.engine.base import Form, GenerateRequest, ScoreRequest
from rejoinder.errors import (
    ConstraintRefused,
    ContextLengthExceeded,
    InvalidRequest,
    UnknownVersion,
)

GREEDY_BELOW = 1e-6
"""Temperatures below this mean: take the most likely token."""
MOST_SCHEMA_CHARS = 65_536
"""Of a JSON schema as text: what is longer is data, and takes long to make a grammar of."""
MOST_FORMS = 512
"""That an answer may choose among."""
MOST_SCHEMAS_CHARS = 262_144
"""Of all schemas of one answer, which many tools have."""
_LARGEST_CHANGE = 1e4
"""Of a logit: far above any that matters; infinities would make a distribution of nothing."""


def unknown_version(policy: str, version: int | None, loaded: Iterable[int]) -> UnknownVersion:
    """Return the refusal of a version (None: the live one) that is not among ``loaded``."""
    wanted = "live version" if version is None else f"version {version}"
    there = ", ".join(map(str, loaded)) or "none"
    return UnknownVersion(
        f"no {wanted} of policy {policy!r} is loaded in this engine; loaded versions: {there}"
    )


def check_generate(request: GenerateRequest, context_length: int, vocab_size: int) -> None:
    """Refuse what cannot be answered.

    A prompt that fills the context is refused. One that leaves room for fewer tokens than
    ``max_tokens`` is served, and the answer may end for ``length`` (one rule for all callers).

    Raises:
        ContextLengthExceeded: the prompt leaves no room for a token.
        InvalidRequest: ids outside the vocabulary, no prompt, or settings without a meaning.
        ConstraintRefused: a schema is too large.
    """
    _check_ids(request.prompt_ids, vocab_size)
    if len(request.prompt_ids) >= context_length:
        raise ContextLengthExceeded(
            f"the prompt has {len(request.prompt_ids)} tokens; this model's context of "
            f"{context_length} tokens must also hold the answer: shorten the messages"
        )
    sampling = request.sampling
    if sampling.max_tokens < 1:
        raise InvalidRequest(f"max_tokens must be at least 1, not {sampling.max_tokens}")
    if not (
        0 <= sampling.temperature < math.inf
        and 0 < sampling.top_p <= 1
        and 0 <= sampling.min_p <= 1
    ):
        raise InvalidRequest(
            "temperature must be >= 0 and finite, top_p in (0, 1] and min_p in [0, 1]"
        )
    if sampling.top_k < 0 or (request.top_logprobs or 0) < 0:
        raise InvalidRequest("top_k and top_logprobs must not be negative")
    changes = [sampling.frequency_penalty, sampling.presence_penalty]
    changes += sampling.logit_bias.values()
    if not all(abs(change) <= _LARGEST_CHANGE for change in changes):
        raise InvalidRequest(
            f"penalties and logit_bias must be numbers within {_LARGEST_CHANGE:g} of 0"
        )
    outside = [id_ for id_ in sampling.logit_bias if not 0 <= id_ < vocab_size]
    if outside:
        raise InvalidRequest(f"logit_bias: id {outside[0]} is outside the vocabulary")
    if request.constraint is not None:
        check_schemas(request.constraint.forms)


def check_schemas(forms: Sequence[Form]) -> None:
    """Refuse JSON schemas that are too large.

    Raises:
        ConstraintRefused: as said.
    """
    for form in forms:
        if len(form.schema) > MOST_SCHEMA_CHARS:
            whose = f" of {form.subject}" if form.subject else ""
            raise ConstraintRefused(
                f"the schema{whose} has {len(form.schema)} characters; at most {MOST_SCHEMA_CHARS} "
                "can be enforced"
            )
    if len(forms) > MOST_FORMS:
        raise ConstraintRefused(
            f"there are {len(forms)} schemas to choose among; at most {MOST_FORMS} can be enforced"
        )
    together = sum(len(form.schema) for form in forms)
    if together > MOST_SCHEMAS_CHARS:
        raise ConstraintRefused(
            f"the {len(forms)} schemas have {together} characters together; at most "
            f"{MOST_SCHEMAS_CHARS} can be enforced"
        )


def cannot_constrain(engine: str) -> ConstraintRefused:
    """Return the refusal of every constraint by an engine without the capability."""
    return ConstraintRefused(
        f"the engine {engine!r} cannot hold answers to a schema: serve with engine.kind = 'torch'"
    )


def check_score(request: ScoreRequest, context_length: int, vocab_size: int) -> None:
    """Refuse what cannot be scored.

    Raises:
        ContextLengthExceeded: the ids do not fit the context.
        InvalidRequest: positions or candidates do not fit the ids, or ids are no ids.
    """
    _check_ids(request.ids, vocab_size)
    if len(request.ids) > context_length:
        raise ContextLengthExceeded(
            f"{len(request.ids)} tokens to score; this model's context is {context_length} tokens"
        )
    stop = len(request.ids) if request.stop is None else request.stop
    if not 1 <= request.start < stop <= len(request.ids) + 1:
        raise InvalidRequest(
            f"positions {request.start}..{stop} do not fit {len(request.ids)} ids: "
            "1 <= start < stop <= len(ids) + 1"
        )
    if not GREEDY_BELOW < request.temperature < math.inf:
        raise InvalidRequest(f"cannot score at temperature {request.temperature}")
    if request.top_k < 0:
        raise InvalidRequest(f"top_k must not be negative, not {request.top_k}")
    if request.candidates is not None:
        if len(request.candidates) != stop - request.start:
            raise InvalidRequest(
                f"{len(request.candidates)} rows of candidates for {stop - request.start} positions"
            )
        for row in request.candidates:
            _check_ids(row, vocab_size, allow_none=True)


def _check_ids(ids: list[int], vocab_size: int, *, allow_none: bool = False) -> None:
    if not ids:
        if allow_none:
            return
        raise InvalidRequest("no ids")
    if min(ids) < 0 or max(ids) >= vocab_size:
        raise InvalidRequest(f"ids must be in 0..{vocab_size - 1}")
