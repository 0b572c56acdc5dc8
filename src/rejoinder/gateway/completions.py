"""``POST /v1/chat/completions``: answers leave as they are sampled, and are recorded on the way.

A plain ASGI application, for this is the hot path: between a token and its bytes on the wire
there is no other layer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import Future

import structlog
from starlette.types import Receive, Scope, Send

from rejoinder.engine.base import GenerateRequest, TokenChunk
from rejoinder.errors import ContextLengthExceeded, EngineError, EngineTimeout, UnknownVersion
from rejoinder.gateway import wire
from rejoinder.gateway.arrival import Job, accept
from rejoinder.gateway.capture import Piece
from rejoinder.gateway.errors import ApiError, from_engine, send_error
from rejoinder.gateway.generation import ClientGone, Generation
from rejoinder.gateway.reading import read_body
from rejoinder.gateway.service import Service
from rejoinder.types import Fate

log = structlog.get_logger(__name__)

UNREAD_S = 60.0
"""How long after the end of its time a request waits for a client that does not read."""

_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies must not collect tokens
)


class ChatCompletions:
    """The endpoint. One object serves all requests of a process."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        arrived = time.perf_counter()
        service = self._service
        try:
            headers = dict(scope["headers"])
            caller = service.keys.caller(headers)
            with service.admission.admit(caller.key):
                service.metrics.active.inc()
                try:
                    data = await read_body(receive, headers, service.config.gateway)
                    job = await accept(service, headers, data, caller)
                    await self._serve(job, arrived, receive, send)
                finally:
                    service.metrics.active.dec()
        except ClientGone:
            return  # before its body was complete: there is nothing to record
        except EngineError as error:
            await self._refuse(send, from_engine(error))
        except ApiError as error:
            await self._refuse(send, error)
        except Exception as error:
            log.exception("a request failed by a fault of the gateway")
            service.note_error(f"internal error: {type(error).__name__}: {error}")
            text = "internal error; the gateway's log has the details"
            await self._refuse(send, ApiError(500, "internal_error", text))
        else:
            service.metrics.request_seconds.observe(time.perf_counter() - arrived)

    async def _refuse(self, send: Send, error: ApiError) -> None:
        self._service.metrics.errors.labels(str(error.status), error.code).inc()
        self._service.recorder.count("rejected", error.code)
        await send_error(send, error)

    async def _serve(self, job: Job, arrived: float, receive: Receive, send: Send) -> None:
        """Sample and send; whatever happens, the turns get their end."""
        service = self._service
        recorder = service.recorder
        end = "answered"
        try:
            async with asyncio.timeout(service.config.gateway.request_timeout_s + UNREAD_S):
                await self._sample(job, arrived, receive, send)
        except (ClientGone, TimeoutError):  # a client that does not read is as good as gone
            end = Fate.CLIENT_GONE
            await recorder.written(self._abort(job, end, None))
        except EngineError as error:
            end = Fate.TIMED_OUT if isinstance(error, EngineTimeout) else Fate.ENGINE_FAILED
            await recorder.written(self._abort(job, end, f"{error.code}: {error}"))
            if not isinstance(error, UnknownVersion):  # it went between the check and the call
                service.note_error(f"engine: {error}")
            if not job.started:
                raise
            await self._break_off(send, from_engine(error))
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
            await self._break_off(send, ApiError(500, "internal_error", "internal error"))
        finally:
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

    async def _break_off(self, send: Send, error: ApiError) -> None:
        self._service.metrics.errors.labels("stream", error.code).inc()
        data = wire.error_event(error)
        with contextlib.suppress(TimeoutError):  # a client that does not read
            async with asyncio.timeout(UNREAD_S):
                await send({"type": "http.response.body", "body": data, "more_body": False})

    async def _sample(self, job: Job, arrived: float, receive: Receive, send: Send) -> None:
        service = self._service
        if len(job.prompt_ids) >= service.context_length:
            raise ContextLengthExceeded(
                f"the messages have {len(job.prompt_ids)} tokens; this model's context of "
                f"{service.context_length} tokens must also hold the answer: shorten the messages"
            )
        config = service.config.gateway
        limit_s = config.request_timeout_s - (time.perf_counter() - arrived)
        requests = _requests(job, limit_s)
        async with Generation(
            service.engine, requests, receive, limit_s, config.engine_wait_s
        ) as generation:
            reply = _Reply(service, job, generation, send)
            await (reply.stream() if job.body.stream else reply.whole())
        self._measure(job)

    def _measure(self, job: Job) -> None:
        tokens = self._service.metrics.tokens
        tokens.labels("prompt").inc(len(job.prompt_ids))
        tokens.labels("cached").inc(job.answers[0].cached_tokens)
        tokens.labels("completion").inc(sum(len(answer.ids) for answer in job.answers))
        if job.answers[0].first_token_s is not None:
            self._service.metrics.first_token_seconds.observe(job.answers[0].first_token_s)


def _requests(job: Job, limit_s: float) -> list[GenerateRequest]:
    top_logprobs = (job.body.top_logprobs or 0) if job.body.logprobs else None
    return [
        GenerateRequest(
            request_id=answer.turn_id,
            prompt_ids=job.prompt_ids,
            sampling=sampling,
            policy=job.target.policy,
            version=job.target.version,
            top_logprobs=top_logprobs,
            deadline_s=limit_s,
        )
        for answer, sampling in zip(job.answers, job.samplings, strict=True)
    ]


class _Reply:
    """Sends the answers of one request, streamed or whole."""

    def __init__(self, service: Service, job: Job, generation: Generation, send: Send) -> None:
        self._service = service
        self._job = job
        self._generation = generation
        self._send = send
        self._wire = wire.Completion(
            job.completion_id,
            job.created,
            job.body.model or job.target.policy,
            service.token_texts,
            with_logprobs=bool(job.body.logprobs),
        )

    async def stream(self) -> None:
        """Send events as tokens arrive."""
        job, completion = self._job, self._wire
        # Nothing is sent before the engine has begun, so that its refusal keeps its status.
        burst = await self._generation.burst()
        with_usage = bool(job.body.stream_options and job.body.stream_options.include_usage)
        fingerprint = self._fingerprint(burst[0][1].version)
        completion.start(len(job.answers), fingerprint, with_usage=with_usage)
        await self._start(_STREAM_HEADERS, fingerprint)
        events = [completion.role_event(answer.choice) for answer in job.answers]
        while burst:
            events += [self._event(choice, chunk) for choice, chunk in burst]
            data = b"".join(events)
            if data:
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
            events.clear()
            burst = await self._generation.burst()
        # A client may take the finish reason for the end, so it too waits until all is durable.
        recorded = await self._settle()
        events = [completion.finish_event(answer, recorded=recorded) for answer in job.answers]
        if with_usage:
            figures = wire.usage(job.answers, len(job.prompt_ids))
            events.append(completion.usage_event(fingerprint, figures))
        data = b"".join(events) + wire.DONE
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def whole(self) -> None:
        """Send one JSON body at the end."""
        job = self._job
        version = 0
        while burst := await self._generation.burst():
            version = burst[0][1].version
            for choice, chunk in burst:
                self._take(choice, chunk)
        if job.answers[0].versions:
            version = job.answers[0].versions[0].version
        fingerprint = self._fingerprint(version)
        recorded = await self._settle()
        extra = {"session_id": job.session_id} | ({} if recorded else {"recorded": False})
        figures = wire.usage(job.answers, len(job.prompt_ids))
        body = self._wire.whole(job.answers, fingerprint, figures, extra)
        length = (b"content-length", b"%d" % len(body))
        await self._start(((b"content-type", b"application/json"), length), fingerprint)
        await self._send({"type": "http.response.body", "body": body})

    def _event(self, choice: int, chunk: TokenChunk) -> bytes:
        return self._wire.piece_events(choice, self._take(choice, chunk))

    def _take(self, choice: int, chunk: TokenChunk) -> Piece:
        answer = self._job.answers[choice]
        piece = answer.feed(chunk)
        if answer.finish_reason is not None and chunk.finish_reason is None:
            self._generation.stop(choice)
        return piece

    async def _settle(self) -> bool:
        """Make the answers durable; returns whether that is certain."""
        job = self._job
        job.settled = True
        finished = [answer.finished(job.history) for answer in job.answers]
        remember = self._service.splicer.remember
        for turn in finished:
            remember(turn.turn_id, job.prompt_ids, job.rendered_ids, turn.answer_ids)
        return await self._service.recorder.finish(finished)

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
