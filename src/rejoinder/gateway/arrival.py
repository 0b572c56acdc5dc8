"""From the bytes of a request to open turns: check, render, link, queue the rows.

What a request says about an earlier answer is queued here, before anything is sampled: its judging
must not depend on what becomes of the request itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from rejoinder.chat.history import History
from rejoinder.gateway.asking import Prompt, make_prompts
from rejoinder.gateway.auth import Caller
from rejoinder.gateway.capture import AnswerCapture
from rejoinder.gateway.dialects.base import Dialect, Opened, Reading, Writer
from rejoinder.gateway.earlier import go_on
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.holding import Held, held_to
from rejoinder.gateway.identity import Headers, Identity, read_identity
from rejoinder.gateway.linker import Linking
from rejoinder.gateway.models import Target
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.sampling import planned_fate
from rejoinder.gateway.service import Service
from rejoinder.journal.records import NextState, OpenTurn
from rejoinder.types import Scope, TurnType, new_id

READ_INLINE_BYTES = 262_144
"""Bodies up to here are decoded on the loop (a millisecond)."""
_BETAS = (b"anthropic-beta", b"openai-beta")
"""Headers that ask for what is not finished at the API's own server; tolerated and counted."""
T = TypeVar("T")


@dataclass(slots=True)
class Job:
    """A request whose turns are open."""

    request: TurnRequest
    identity: Identity
    target: Target
    caller: Caller
    prompts: list[Prompt]
    session_id: str
    completion_id: str
    answers: list[AnswerCapture]
    """[prompts x n] to all prompts."""
    writer: Writer
    """Of the response."""
    reading: Reading
    """What the dialect has read."""
    held: Held | None
    """What the engine holds the answers to."""
    started: bool = False
    """Bytes of the response have been sent."""
    settled: bool = False
    """The end of the answers has been handed to the journal."""

    @property
    def by_token(self) -> bool:
        """Whether each token is looked at on its own: a stop string ends an answer at one."""
        stops = any(sampling.stop for prompt in self.prompts for sampling in prompt.samplings)
        return stops or self.reading.by_token

    @property
    def tokens(self) -> int:
        """Tokens of the prompts, and those sampled so far."""
        given = sum(len(prompt.ids) for prompt in self.prompts)
        return given + sum(len(answer.ids) for answer in self.answers)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request with its whole conversation."""

    reading: Reading
    history: History
    continues: str | None = None
    """The turn whose answer it says it goes on from."""


async def accept(
    service: Service, dialect: Dialect, headers: Headers, data: bytes, caller: Caller
) -> Job:
    """Check a request, find its place among earlier turns and queue its rows.

    Raises:
        ApiError: the request cannot be served; nothing has been recorded.
        EngineError: as above: the template refuses it, the engine does not fit, or does not
            hold the version.
    """
    try:
        most = service.context_length
        asked = await in_thread_if_long(service, data, lambda: _read(dialect, data, most))
        if asked.reading.request.continues is not None:
            whole = await go_on(service, asked.reading.request, caller)
            reading = replace(asked.reading, request=whole.request)
            asked = _Asked(reading, whole.history, whole.turn_id)
        return await _accept(service, dialect, headers, asked, caller)
    except RecursionError as error:  # whichever part of the program could not follow
        raise ApiError(400, "invalid_value", "the body is nested too deeply") from error


async def _accept(
    service: Service,
    dialect: Dialect,
    headers: Headers,
    asked: _Asked,
    caller: Caller,
) -> Job:
    request = asked.reading.request
    _count_ignored(service, headers, asked.reading)
    identity = read_identity(headers, request, service.config.gateway)
    target = service.models.resolve(request.model)
    service.check_engine()
    held = held_to(service, request)
    await service.check_version(target)
    scope = Scope(caller.tenant, caller.key, request.user)
    async with service.linker.in_order(scope, identity):

        def link(history: History) -> Linking:
            return service.linker.link(history, scope, identity, asked.continues)

        prompts = await make_prompts(service, request, identity, asked.history, link, held)
        session_id = prompts[0].link.session_id or new_id()
        completion_id = dialect.id_prefix + new_id()
        answers = [answer for prompt in prompts for answer in prompt.answers]
        opened = Opened(
            completion_id=completion_id,
            created=int(time.time()),
            model=request.model or target.policy,
            session_id=session_id,
            prompt_tokens=sum(len(prompt.ids) for prompt in prompts),
            answers=answers,
            sampling=prompts[0].samplings[0],
        )
        job = Job(
            request=request,
            identity=identity,
            target=target,
            caller=caller,
            prompts=prompts,
            session_id=session_id,
            completion_id=completion_id,
            answers=answers,
            writer=asked.reading.writer(opened),
            reading=asked.reading,
            held=held,
        )
        for prompt in prompts:
            _record(service, job, prompt, scope)
    return job


def _count_ignored(service: Service, headers: Headers, reading: Reading) -> None:
    for field in reading.ignored:
        service.metrics.ignored.labels(field).inc()
    for header in _BETAS:
        if header in headers:
            service.metrics.ignored.labels(header.decode()).inc()


async def in_thread_if_long(service: Service, data: bytes, read: Callable[[], T]) -> T:
    """Call what reads a body, off the event loop where the body is long."""
    if len(data) <= READ_INLINE_BYTES:
        return read()
    return await asyncio.get_running_loop().run_in_executor(service.renders, read)


def _read(dialect: Dialect, data: bytes, most: int) -> _Asked:
    """Return what a body says, with the chains of its messages made."""
    reading = dialect.read(data, most)
    history = History(reading.request.messages)
    _ = history.chains
    return _Asked(reading, history)


def _record(service: Service, job: Job, prompt: Prompt, scope: Scope) -> None:
    identity, tools, link = job.identity, job.request.tools, prompt.link
    # In the client's order, as they were rendered: a teacher's prompt is rendered from these texts.
    tools_text = msgspec.json.encode(tools).decode() if tools else None
    options = job.request.template_options
    options_text = msgspec.json.encode(options).decode() if options else None
    fate = planned_fate(service.config.gateway, prompt.samplings[0], identity.turn_type)
    now = time.time()
    for answer, chosen in zip(prompt.answers, prompt.samplings, strict=True):
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
                messages=prompt.history.messages,
                tools=tools_text,
                options=options_text,
                prompt_ids=prompt.ids,
                request_chain=prompt.history.request_chain,
                sampling=chosen,
                fate=fate,
                trace=identity.trace,
                link={
                    **link.explanation,
                    **({"begun": prompt.begun} if prompt.begun else {}),
                    "named_by": identity.session_by,
                    "type_by": identity.type_by,
                },
            )
        )
    if identity.turn_type is not TurnType.MAIN:
        return  # a client's own housekeeping says nothing about an answer
    first = prompt.answers[0].turn_id
    if link.parent_id is not None and link.next_state:
        digest = History(link.next_state).request_chain
        service.recorder.next_state(NextState(link.parent_id, first, link.next_state, digest))
    for turn_id in link.supersedes:
        service.recorder.supersede(turn_id, first)
    if link.ambiguous:
        service.recorder.ambiguous(link.ambiguous)
