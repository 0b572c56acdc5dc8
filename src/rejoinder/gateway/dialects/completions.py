"""OpenAI's legacy completions: a text is gone on with, and no chat template has a part in it."""

from __future__ import annotations

from functools import partial

from rejoinder.gateway.dialects.base import Opened, Reading
from rejoinder.gateway.dialects.completions_body import CompletionsBody, read_prompts
from rejoinder.gateway.dialects.completions_writer import CompletionWriter
from rejoinder.gateway.dialects.fields import biases, stops
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.json_body import convert, parse_object, without_effect
from rejoinder.gateway.request import MAX_CHOICES, TurnRequest
from rejoinder.gateway.token_texts import TokenTexts
from rejoinder.types import TurnType

DEFAULT_MAX_TOKENS = 16
"""The API's own; tools that leave it out count on it."""


class Completions:
    """See ``Dialect``."""

    path = "/v1/completions"
    id_prefix = "cmpl-"
    body = CompletionsBody
    summary = "Go on with a text (legacy)"

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts

    def read(self, data: bytes, most: int) -> Reading:  # noqa: ARG002 - there are no messages
        """See ``Dialect.read``."""
        raw = parse_object(data)
        body = convert(raw, CompletionsBody)
        _check(body)
        request = _request(body)
        if len(request.prompts) * request.choices > MAX_CHOICES:
            raise ApiError(
                400,
                "invalid_value",
                f"{len(request.prompts)} prompts with n = {request.choices} ask for more than "
                f"{MAX_CHOICES} answers: send several requests",
                "prompt",
            )
        ignored = without_effect(raw, CompletionsBody, ())
        return Reading(request, ignored, partial(self._writer, body, len(request.prompts)))

    def _writer(self, body: CompletionsBody, prompts: int, opened: Opened) -> CompletionWriter:
        return CompletionWriter(
            opened,
            self._texts,
            prompts=prompts,
            with_logprobs=body.logprobs is not None,
            with_usage=bool(body.stream_options and body.stream_options.include_usage),
        )

    def refusal(self, error: ApiError) -> tuple[int, bytes]:
        """See ``Dialect.refusal``."""
        return error.status, error.body()


def _check(body: CompletionsBody) -> None:
    for name, asked, instead in (
        ("echo", body.echo, "put the prompt before the text yourself; prompts are not scored"),
        ("suffix", body.suffix, "text can only be gone on with at its end"),
        (
            "best_of",
            body.best_of is not None and body.best_of != (body.n or 1),
            "ask for n answers and choose among them",
        ),
    ):
        if asked:
            raise ApiError(400, "unsupported_parameter", f"{name} is not served: {instead}", name)


def _request(body: CompletionsBody) -> TurnRequest:
    return TurnRequest(
        messages=(),
        prompts=read_prompts(body.prompt),
        usual_type=TurnType.SIDE,
        model=body.model,
        stream=bool(body.stream),
        choices=body.n or 1,
        max_tokens=body.max_tokens or DEFAULT_MAX_TOKENS,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(body.top_k or 0, 0),
        min_p=body.min_p or 0.0,
        seed=body.seed,
        stop=stops(body.stop),
        frequency_penalty=body.frequency_penalty or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        logit_bias=biases(body.logit_bias),
        top_logprobs=body.logprobs,
        user=body.user or "",
        session_id=body.session_id,
        turn_type=body.turn_type,
        session_done=bool(body.session_done),
        metadata=body.metadata or {},
    )
