"""One path of one API, from the first byte of a request to a refusal in that API's form.

A plain ASGI application, for this is the hot path: the framework's layers cost more than a fifth of
a request.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

import structlog
from starlette.types import Receive, Scope, Send

from rejoinder.errors import EngineError
from rejoinder.gateway.auth import Caller
from rejoinder.gateway.dialects.base import Form
from rejoinder.gateway.errors import ApiError, from_engine, send_json
from rejoinder.gateway.generation import ClientGone
from rejoinder.gateway.identity import Headers
from rejoinder.gateway.reading import read_body
from rejoinder.gateway.service import Service

log = structlog.get_logger(__name__)


class Endpoint(ABC):
    """Admits requests, reads their bodies and refuses them. One object serves a whole process."""

    def __init__(self, service: Service, form: Form) -> None:
        self._service = service
        self._form = form

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
                    await self._answer(headers, data, caller, arrived, receive, send)
                finally:
                    service.metrics.active.dec()
        except ClientGone:
            return  # before its body was complete: there is nothing to record
        except EngineError as error:
            await self._refuse(send, from_engine(error))
        except ApiError as error:
            await self._refuse(send, error)
        except Exception as error:  # a fault of ours: the client still gets an answer in its form
            log.exception("a request failed by a fault of the gateway")
            service.note_error(f"internal error: {type(error).__name__}: {error}")
            text = "internal error; the gateway's log has the details"
            await self._refuse(send, ApiError(500, "internal_error", text))
        else:
            service.metrics.request_seconds.observe(time.perf_counter() - arrived)

    @abstractmethod
    async def _answer(
        self,
        headers: Headers,
        data: bytes,
        caller: Caller,
        arrived: float,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serve a request whose body has come. ``arrived``: ``time.perf_counter`` then.

        Raises:
            ApiError: a refusal; nothing has been sent.
            EngineError: as above.
        """

    async def _refuse(self, send: Send, error: ApiError) -> None:
        self._service.count_error(error)
        status, body = self._form.refusal(error)
        await send_json(send, status, body, error.headers())
