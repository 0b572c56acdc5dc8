"""From the bytes of a request to open turns: check, render, link, queue the rows.

What a request says about an earlier answer is queued here, before anything is sampled: its judging
must not depend on what becomes of the request itself.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

import msgspec

from rejoinder.chat.history import History
from rejoinder.chat.linking import LinkDecision
from rejoinder.chat.messages import BadMessages, normalise
from rejoinder.config import GatewayConfig
from rejoinder.errors import ContextLengthExceeded
from rejoinder.gateway.auth import Caller
from rejoinder.gateway.body import LARGEST_SEED, ChatBody, parse_body, sampling
from rejoinder.gateway.capture import AnswerCapture
from rejoinder.gateway.errors import ApiError, from_messages
from rejoinder.gateway.identity import Headers, Identity, read_identity
from rejoinder.gateway.models import Target
from rejoinder.gateway.service import Service
from rejoinder.gateway.splicer import explained
from rejoinder.gateway.tool_choice import WantedCall, wanted_call, without_calls
from rejoinder.journal.base import NextState, OpenTurn
from rejoinder.types import Fate, Sampling, Scope, TurnType, new_id

READ_INLINE_BYTES = 262_144
"""Bodies up to here are decoded on the loop (a millisecond)."""


@dataclass(slots=True)
class Job:
    """A request whose turns are open."""

    body: ChatBody
    identity: Identity
    target: Target
    history: History
    prompt_ids: list[int]
    """[P] what the engine gets: ``rendered_ids``, with earlier answers as they were sampled."""
    rendered_ids: list[int]
    """[R] the same text as the tokenizer has it."""
    begun: int
    """Ids at the end of the prompt with which the answer begins: of a call that was asked for."""
    samplings: list[Sampling]
    """[n] per answer; they differ in their seeds."""
    session_id: str
    completion_id: str
    created: int
    answers: list[AnswerCapture]
    """[n]"""
    started: bool = False
    """Bytes of the response have been sent."""
    settled: bool = False
    """The end of the answers has been handed to the journal."""


async def accept(service: Service, headers: Headers, data: bytes, caller: Caller) -> Job:
    """Check a request, find its place among earlier turns and queue its rows.

    Raises:
        ApiError: the request cannot be served; nothing has been recorded.
        EngineError: as above: the template refuses it, the engine does not fit, or does not
            hold the version.
    """
    try:
        return await _accept(service, headers, data, caller)
    except RecursionError as error:  # whichever part of the program could not follow
        raise ApiError(400, "invalid_value", "the body is nested too deeply") from error


async def _accept(service: Service, headers: Headers, data: bytes, caller: Caller) -> Job:
    body, without_effect, history = await _read(service, data)
    for field in without_effect:
        service.metrics.ignored.labels(field).inc()
    identity = read_identity(headers, body, history.messages, service.config.gateway)
    target = service.models.resolve(body.model)
    service.check_engine()
    await service.check_version(target)
    scope = Scope(caller.tenant, caller.key, body.user or "")
    wanted = wanted_call(body)
    async with service.linker.in_order(scope, identity):
        asked_ids = await service.prompts.ids(
            history.messages,
            body.shown_tools,
            body.chat_template_kwargs,
            service.context_length,
        )
        begun = _begun_call(service, wanted, asked_ids)
        rendered_ids = [*asked_ids, *begun] if begun else asked_ids
        link = await service.linker.link(history, scope, identity)
        prompt_ids, link = _spliced(service, history, link, rendered_ids)
        room = service.context_length - len(prompt_ids)
        chosen = choose_sampling(
            service.config.gateway, body, identity.turn_type, room, service.vocab_size
        )
        choices = (body.n or 1) if room > 0 else 1  # where none can be sampled one row says so
        job = Job(
            body=body,
            identity=identity,
            target=target,
            history=history,
            prompt_ids=prompt_ids,
            rendered_ids=rendered_ids,
            begun=len(begun),
            samplings=[_seeded(chosen, choice) for choice in range(choices)],
            session_id=link.session_id or new_id(),
            completion_id=f"chatcmpl-{new_id()}",
            created=int(time.time()),
            answers=[
                AnswerCapture(
                    new_id(),
                    choice,
                    service.family.reader(asked_ids, body.shown_tools, chosen.stop, begun),
                )
                for choice in range(choices)
            ],
        )
        _record(service, job, scope, link)
    return job


async def _read(service: Service, data: bytes) -> tuple[ChatBody, list[str], History]:
    if len(data) <= READ_INLINE_BYTES:
        return _decode(data, service.context_length)
    return await asyncio.get_running_loop().run_in_executor(
        service.renders, _decode, data, service.context_length
    )


def _decode(data: bytes, context_length: int) -> tuple[ChatBody, list[str], History]:
    """Return a body, its fields without effect, and its messages with their chains made."""
    body, without_effect = parse_body(data)
    if len(body.messages) > context_length:  # each message is a token at the very least
        raise ContextLengthExceeded(
            f"{len(body.messages)} messages cannot fit this model's context of {context_length} "
            "tokens: send fewer"
        )
    try:
        history = History(normalise(body.messages))
    except BadMessages as error:
        raise from_messages(error) from error
    _ = history.chains
    return body, without_effect, history


def _begun_call(service: Service, wanted: WantedCall | None, prompt_ids: list[int]) -> list[int]:
    """Return the ids that begin the call which the client asks for; none where it asks for none.

    Raises:
        ApiError: the model's family has no calls.
    """
    if wanted is None:
        return []
    begun = service.family.begun_call(prompt_ids, wanted.name)
    if begun is None:
        raise without_calls(service.family.name)
    return begun


def _spliced(
    service: Service, history: History, link: LinkDecision, rendered_ids: list[int]
) -> tuple[list[int], LinkDecision]:
    """Return the prompt with earlier answers as they were sampled; the link says what was done."""
    if not history.answers:
        return rendered_ids, link
    prompt = service.splicer.splice(link.continues, rendered_ids, service.context_length)
    told = {**link.explanation, "prompt": explained(prompt, link.continues)}
    return prompt.ids, replace(link, explanation=told)


def choose_sampling(
    config: GatewayConfig, body: ChatBody, turn_type: TurnType, room: int, vocab_size: int
) -> Sampling:
    """Return how answers are sampled.

    One rule for their length: what the client asks for (``max_completion_tokens`` before
    ``max_tokens``, else the default), and never more than the context has room for.
    """
    asked = body.max_completion_tokens or body.max_tokens or config.default_max_tokens
    chosen = sampling(body, max(1, min(asked, room)), vocab_size)
    if turn_type is TurnType.MAIN and config.main_temperature is not None:
        return replace(chosen, temperature=config.main_temperature, top_p=1.0, top_k=0, min_p=0.0)
    return chosen


def planned_fate(config: GatewayConfig, chosen: Sampling, turn_type: TurnType) -> Fate | None:
    """Return why a turn will be served only, if that is known before it is answered."""
    if turn_type is TurnType.SIDE:
        return Fate.SIDE
    if config.train_truncated_sampling:  # these are allowed; what else stands against it?
        chosen = replace(
            chosen, top_p=1.0, top_k=0, min_p=0.0, frequency_penalty=0.0, presence_penalty=0.0
        )
    return Fate.SAMPLING_NOT_TRAINABLE if chosen.not_trainable_because() else None


def _seeded(chosen: Sampling, choice: int) -> Sampling:
    """Give each answer its own seed; equal seeds would give equal answers."""
    if not choice or chosen.seed is None:
        return chosen
    seed = chosen.seed + choice
    return replace(chosen, seed=seed if seed < LARGEST_SEED else seed - LARGEST_SEED)


def _record(service: Service, job: Job, scope: Scope, link: LinkDecision) -> None:
    body, identity = job.body, job.identity
    tools = body.shown_tools
    # In the client's order, as they were rendered: a teacher's prompt is rendered from this text.
    tools_text = msgspec.json.encode(tools).decode() if tools else None
    fate = planned_fate(service.config.gateway, job.samplings[0], identity.turn_type)
    now = time.time()
    for answer, chosen in zip(job.answers, job.samplings, strict=True):
        service.recorder.open(
            OpenTurn(
                turn_id=answer.turn_id,
                session_id=job.session_id,
                external_session=identity.session,
                scope=scope,
                policy=job.target.policy,
                turn_type=identity.turn_type,
                parent_id=link.parent_id,
                link_reason=link.reason,
                completion_id=job.completion_id,
                choice=answer.choice,
                created_at=now,
                owner=service.owner,
                messages=job.history.messages,
                tools=tools_text,
                prompt_ids=job.prompt_ids,
                request_chain=job.history.request_chain,
                sampling=chosen,
                fate=fate,
                trace=identity.trace,
                link={
                    **link.explanation,
                    **({"begun": job.begun} if job.begun else {}),
                    "named_by": identity.session_by,
                    "type_by": identity.type_by,
                },
            )
        )
    if identity.turn_type is not TurnType.MAIN:
        return  # a client's own housekeeping says nothing about an answer
    first = job.answers[0].turn_id
    if link.parent_id is not None and link.next_state:
        digest = History(link.next_state).request_chain
        service.recorder.next_state(NextState(link.parent_id, first, link.next_state, digest))
    for turn_id in link.supersedes:
        service.recorder.supersede(turn_id, first)
    if link.ambiguous:
        service.recorder.ambiguous(link.ambiguous)
