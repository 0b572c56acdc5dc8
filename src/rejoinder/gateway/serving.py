"""Serves turns in any dialect: answers leave as they are sampled, and are recorded on the way.

Between a token and its bytes on the wire stands nothing but the dialect's writer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable
from concurrent.futures import Future

import structlog
from starlette.types import Receive, Send

from rejoinder.engine.base import GenerateRequest, TokenChunk
from rejoinder.errors import ConstraintRefused, ContextLengthExceeded, EngineError
from rejoinder.gateway.arrival import Job, accept
from rejoinder.gateway.auth import Caller, cache_salt
from rejoinder.gateway.capture import Piece
from rejoinder.gateway.dialects.base import Dialect
from rejoinder.gateway.endpoint import Endpoint
from rejoinder.gateway.errors import ApiError, fate_of, from_engine, is_failure
from rejoinder.gateway.generation import Call, ClientGone
from rejoinder.gateway.identity import Headers
from rejoinder.gateway.service import Service
from rejoinder.gateway.streamed import Burst, StreamedGeneration
from rejoinder.gateway.whole import WholeGeneration
from rejoinder.journal.records import KeptResponse
from rejoinder.types import Fate

log = structlog.get_logger(__name__)

UNREAD_S = 60.0
"""How long after the end of its time a request waits for a client that does not read."""

_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies must not collect tokens
)


class Turns(Endpoint):
    """Samples turns and answers with them."""

    def __init__(self, service: Service, dialect: Dialect) -> None:
        super().__init__(service, dialect)
        self._dialect = dialect

    async def _answer(
        self,
        headers: Headers,
        data: bytes,
        caller: Caller,
        arrived: float,
        receive: Receive,
        send: Send,
    ) -> None:
        job = await accept(self._service, self._dialect, headers, data, caller)
        await self._serve(job, arrived, receive, send)

    async def _serve(self, job: Job, arrived: float, receive: Receive, send: Send) -> None:
        """Sample and send; whatever happens, the turns get their end."""
        service = self._service
        recorder = service.recorder
        end = "answered"
        try:
            await self._sample(job, arrived, receive, send)
        except (ClientGone, TimeoutError):  # a client that does not read is as good as gone
            end = Fate.CLIENT_GONE
            await recorder.written(self._abort(job, end, None))
        except EngineError as error:
            end = fate_of(error)
            await recorder.written(self._abort(job, end, f"{error.code}: {error}"))
            if is_failure(error):
                service.note_error(f"engine: {error}")
            if not job.started:
                raise _told(job, error) from error
            await self._break_off(job, send, _told(job, error))
        except asyncio.CancelledError:
            end = Fate.PROCESS_KILLED
            self._abort(job, Fate.PROCESS_KILLED, "the gateway was stopped")
            raise
        except Exception as error:  # a fault of ours must leave no turn open either
            end = Fate.ENGINE_FAILED
            await recorder.written(self._abort(job, end, f"internal error: {error}"))
            if not job.started:
                raise
            log.exception("a stream broke off by a fault of the gateway")
            service.note_error(f"internal error: {type(error).__name__}: {error}")
            failure = ApiError(500, "internal_error", "internal error")
            await self._break_off(job, send, failure)
        finally:
            service.admission.charge(job.caller.key, job.tokens)
            if job.identity.done:
                recorder.close_session(job.session_id)
            service.metrics.requests.labels(end).inc()
            service.metrics.turns.labels(job.identity.turn_type, end).inc(len(job.answers))

    def _abort(self, job: Job, fate: Fate, error: str | None) -> list[Future[None]]:
        """Queue the end of answers that broke off.

        The request's place is held until that is written, so that no client can fill the queue.
        """
        if job.settled:
            return []  # complete, and already on its way to the disk
        job.settled = True
        abort = self._service.recorder.abort
        queued = [abort(answer.aborted(fate, error)) for answer in job.answers]
        return [future for future in queued if future is not None]

    async def _break_off(self, job: Job, send: Send, error: ApiError) -> None:
        self._service.metrics.errors.labels("stream", error.code).inc()
        data = job.writer.failed(error)
        with contextlib.suppress(TimeoutError):  # a client that does not read
            async with asyncio.timeout(UNREAD_S):
                await send({"type": "http.response.body", "body": data, "more_body": False})

    async def _sample(self, job: Job, arrived: float, receive: Receive, send: Send) -> None:
        service = self._service
        longest = max(len(prompt.ids) for prompt in job.prompts)
        if longest >= service.context_length:
            raise ContextLengthExceeded(
                f"the prompt has {longest} tokens; this model's context of "
                f"{service.context_length} tokens must also hold the answer: shorten the messages"
            )
        config = service.config.gateway
        limit_s = config.request_timeout_s - (time.perf_counter() - arrived)
        call = Call(
            service.engine,
            _requests(job, limit_s),
            receive,
            limit_s,
            config.engine_wait_s,
            service.generations,
        )
        reply = _Reply(service, job, send)
        if job.request.stream:
            async with StreamedGeneration(call) as streamed:
                async with asyncio.timeout(limit_s + UNREAD_S):
                    await reply.stream(streamed)
        else:  # sampling and recording end by themselves; one write is left, which never waits
            async with WholeGeneration(call, reply.take) as whole:
                await whole.sample()
            await reply.whole()
        self._measure(job)

    def _measure(self, job: Job) -> None:
        tokens = self._service.metrics.tokens
        tokens.labels("prompt").inc(sum(len(prompt.ids) for prompt in job.prompts))
        tokens.labels("cached").inc(sum(p.answers[0].cached_tokens for p in job.prompts))
        tokens.labels("completion").inc(sum(len(answer.ids) for answer in job.answers))
        if job.answers[0].first_token_s is not None:
            self._service.metrics.first_token_seconds.observe(job.answers[0].first_token_s)


def _told(job: Job, error: EngineError) -> ApiError:
    """Return an engine's error as the client should see it."""
    if isinstance(error, ConstraintRefused) and job.held is not None:
        return job.held.refusal(error)
    return from_engine(error)


def _requests(job: Job, limit_s: float) -> list[GenerateRequest]:
    constraint = None if job.held is None else job.held.constraint
    return [
        GenerateRequest(
            request_id=answer.turn_id,
            prompt_ids=prompt.ids,
            sampling=sampling,
            policy=job.target.policy,
            version=job.target.version,
            top_logprobs=job.request.top_logprobs,
            deadline_s=limit_s,
            caller=f"{job.caller.tenant}/{job.caller.key}",
            cache_salt=cache_salt(job.caller.tenant),
            constraint=constraint,
            whole=not (job.request.stream or job.by_token),
        )
        for prompt in job.prompts
        for answer, sampling in zip(prompt.answers, prompt.samplings, strict=True)
    ]


class _Reply:
    """Sends the answers of one request, streamed or whole."""

    def __init__(self, service: Service, job: Job, send: Send) -> None:
        self._service = service
        self._job = job
        self._send = send
        self._version = 0
        """Of what has been taken last."""

    async def stream(self, generation: StreamedGeneration) -> None:
        """Send events as tokens arrive."""
        writer = self._job.writer

        def fed(burst: Burst) -> list[tuple[int, Piece]]:
            return [(choice, self._feed(generation, choice, chunk)) for choice, chunk in burst]

        # Nothing is sent before the engine has begun, so that its refusal keeps its status.
        burst = await generation.burst()
        fingerprint = self._fingerprint(burst[0][1].version)
        first = fed(burst)
        data = writer.begin(fingerprint) + b"".join([writer.piece(*one) for one in first])
        await self._start(_STREAM_HEADERS, fingerprint)
        # Also where there is nothing to tell yet: the head leaves with it.
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        while burst := await generation.burst():
            if data := b"".join([writer.piece(*one) for one in fed(burst)]):
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        # A client may take the finish reason for the end, so it too waits until all is durable.
        data = writer.end(recorded=await self._settle(fingerprint))
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def _feed(self, generation: StreamedGeneration, choice: int, chunk: TokenChunk) -> Piece:
        answer = self._job.answers[choice]
        piece = answer.feed(chunk)
        if answer.finish_reason is not None and chunk.finish_reason is None:
            generation.stop(choice)
        return piece

    def take(self, choice: int, chunk: TokenChunk) -> bool:
        """See ``whole.Take``."""
        job = self._job
        answer = job.answers[choice]
        piece = answer.feed(chunk)
        self._version = chunk.version
        if job.reading.follows:
            job.writer.piece(choice, piece)
        return answer.finish_reason is None or chunk.finish_reason is not None

    async def whole(self) -> None:
        """Send one JSON body when all has been taken."""
        job = self._job
        versions = job.answers[0].versions
        fingerprint = self._fingerprint(versions[0].version if versions else self._version)
        settling = self._settle(fingerprint)
        body = job.writer.whole(fingerprint, recorded=True)  # while the disk is at work
        if not await settling:
            body = job.writer.whole(fingerprint, recorded=False)
        length = (b"content-length", b"%d" % len(body))
        await self._start(((b"content-type", b"application/json"), length), fingerprint)
        await self._send({"type": "http.response.body", "body": body})

    def _settle(self, fingerprint: str) -> Awaitable[bool]:
        """Begin to make the answers durable; awaited, it says whether they certainly are."""
        job = self._job
        kept = None
        if job.request.keep:
            body = job.writer.whole(fingerprint, recorded=True)
            kept = KeptResponse(body, job.request.own_messages, job.reading.common)
        finished = [
            answer.finished(prompt.history, kept)
            for prompt in job.prompts
            for answer in prompt.answers
        ]
        job.settled = True
        settling = self._service.recorder.finish(finished)
        for prompt in job.prompts:
            for answer in prompt.answers:
                self._service.splicer.remember(
                    answer.turn_id, prompt.ids, prompt.rendered_ids, answer.ids
                )
        return settling

    def _fingerprint(self, version: int) -> str:
        return f"{self._job.target.policy}@{version}"

    async def _start(self, headers: tuple[tuple[bytes, bytes], ...], fingerprint: str) -> None:
        job = self._job
        job.started = True
        own = (
            (b"x-rejoinder-session-id", job.session_id.encode()),
            (b"x-rejoinder-turn-id", job.answers[0].turn_id.encode()),
            (b"x-rejoinder-version", fingerprint.encode()),
        )
        await self._send(
            {"type": "http.response.start", "status": 200, "headers": [*headers, *own]}
        )
