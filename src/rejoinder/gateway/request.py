"""What a client asks for, whatever dialect it speaks: the one form that all parts behind see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rejoinder.gateway.answer_format import AnswerFormat
from rejoinder.gateway.tool_choice import WantedCall
from rejoinder.types import Json, Message, TurnType

MAX_CHOICES = 32
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_USER_CHARS = 512
MAX_BIASES = 1024
LARGEST_SEED = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """One request. A dialect has checked types and ranges and filled in its API's defaults."""

    messages: tuple[Message, ...]
    """Normalised, system text among them. Empty where there are ``prompts``."""
    prompts: Sequence[str | tuple[int, ...]] = ()
    """Texts or token ids that are gone on from as they are: no template renders them."""
    continues: str | None = None
    """Id of the kept response whose conversation comes before the messages."""
    own_messages: int = 0
    """Leading messages that hold for this request alone, and stay behind when one goes on."""
    keep: bool = False
    """The client may ask for the response again, or go on from it, by its id."""
    model: str | None = None
    """None: the policy."""
    stream: bool = False
    choices: int = 1
    """Answers wanted to each prompt; each is a turn."""
    tools: Sequence[Json] = ()
    """Those that the prompt names, in the form of chat completions, which chat templates know."""
    wanted_call: WantedCall | None = None
    """What the answer has to begin with."""
    answer_format: AnswerFormat | None = None
    """What the answer has to be where it is no call; None: anything."""
    template_options: Json | None = None
    """Further arguments of the chat template."""
    max_tokens: int | None = None
    """None: ``gateway.default_max_tokens``."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens."""
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """By token id; whether the vocabulary has it is not known here."""
    top_logprobs: int | None = None
    """None: the client sees no logprobs."""
    user: str = ""
    """Separates people who share a key; never names a session."""
    session_id: str | None = None
    turn_type: str | None = None
    usual_type: TurnType = TurnType.MAIN
    """What turns of this API are where nothing else says."""
    session_done: bool = False
    metadata: Mapping[str, object] = field(default_factory=dict)
    prompt_cache_key: str | None = None
