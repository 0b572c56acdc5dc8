"""How the answers of a request are sampled, and what that means for training."""

from __future__ import annotations

from dataclasses import replace

from rejoinder.config import GatewayConfig
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.request import LARGEST_SEED, TurnRequest
from rejoinder.types import Fate, Sampling, TurnType


def choose_sampling(
    config: GatewayConfig,
    request: TurnRequest,
    turn_type: TurnType,
    room: int,
    vocab_size: int,
    *,
    constrained: bool = False,
) -> Sampling:
    """Return how answers are sampled; ``constrained``: the engine holds them to something.

    One rule for their length: what the client asks for, else the default, and never more than
    the context has room for or one response may have.

    Raises:
        ApiError: 400, a bias for an id that the vocabulary lacks.
    """
    asked = request.max_tokens or config.default_max_tokens
    answers = request.choices * max(1, len(request.prompts))
    most = min(asked, room, config.max_answer_tokens // answers)
    chosen = _sampling(request, max(1, most), vocab_size, constrained)
    if turn_type is TurnType.MAIN and config.main_temperature is not None:
        return replace(chosen, temperature=config.main_temperature, top_p=1.0, top_k=0, min_p=0.0)
    return chosen


def _sampling(
    request: TurnRequest,
    max_tokens: int,
    vocab_size: int,
    constrained: bool,  # noqa: FBT001
) -> Sampling:
    if request.logit_bias and max(request.logit_bias) >= vocab_size:
        raise ApiError(
            400,
            "invalid_value",
            f"the keys of logit_bias must be token ids, 0 to {vocab_size - 1}",
            "logit_bias",
        )
    return Sampling(
        max_tokens=max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k if request.top_k < vocab_size else 0,  # so many are all of them
        min_p=request.min_p,
        seed=request.seed,
        stop=request.stop,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        logit_bias=dict(request.logit_bias),
        constrained=constrained,
    )


def planned_fate(config: GatewayConfig, chosen: Sampling, turn_type: TurnType) -> Fate | None:
    """Return why a turn will be served only, if that is known before it is answered."""
    if turn_type is TurnType.SIDE:
        return Fate.SIDE
    if config.train_truncated_sampling:  # these are allowed; what else stands against it?
        chosen = replace(
            chosen, top_p=1.0, top_k=0, min_p=0.0, frequency_penalty=0.0, presence_penalty=0.0
        )
    return Fate.SAMPLING_NOT_TRAINABLE if chosen.not_trainable_because() else None


def seeded(chosen: Sampling, choice: int) -> Sampling:
    """Give each answer its own seed; equal seeds would give equal answers."""
    if not choice or chosen.seed is None:
        return chosen
    seed = chosen.seed + choice
    return replace(chosen, seed=seed if seed < LARGEST_SEED else seed - LARGEST_SEED)
