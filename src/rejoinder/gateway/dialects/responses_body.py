"""The body of a response request: fields, types and ranges."""

from __future__ import annotations

from msgspec import Struct

from rejoinder.gateway.dialects.fields import Positive, Temperature, TopLogprobs, TopP, User
from rejoinder.types import Json

LOGPROBS = "message.output_text.logprobs"
"""What ``include`` says where a client wants log-probabilities."""


class ResponseTextFormat(Struct, omit_defaults=True):
    """``text.format``: plain text, any JSON object, or JSON that fits a schema."""

    type: str
    name: str | None = None
    schema: Json | None = None
    strict: bool | None = None


class ResponseText(Struct):
    """``text``."""

    format: ResponseTextFormat | None = None


class ResponsesBody(Struct, kw_only=True):
    """The fields that have an effect. Null means the same as leaving a field out."""

    input: str | list[Json]
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    max_output_tokens: Positive | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_logprobs: TopLogprobs | None = None
    include: list[str] | None = None
    tools: list[Json] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    text: ResponseText | None = None
    chat_template_kwargs: Json | None = None
    user: User | None = None
    metadata: Json | None = None
    prompt_cache_key: str | None = None
    session_id: str | None = None
    turn_type: str | None = None
    session_done: bool | None = None


REFUSED = {
    "background": "leave it out and wait for the answer, or stream it",
    "conversation": "chain responses by previous_response_id, or send the whole history as input",
    "prompt": "prompts are not kept here: send instructions and input",
}
"""Fields of the API that would change what is asked for, and what to do instead."""

IGNORED = frozenset(
    (
        "background", "background_options", "context_management", "include", "max_tool_calls",
        "moderation", "prompt_cache_options", "prompt_cache_retention",
        "reasoning", "safety_identifier", "service_tier", "stream_options", "truncation",
    )
)  # fmt: skip
"""Fields of the API without an effect here; like unknown ones they are tolerated and counted."""
