"""Counts the tokens of a prompt without sampling an answer. Nothing is linked or recorded."""

from __future__ import annotations

from starlette.types import Receive, Send

from rejoinder.gateway.arrival import in_thread_if_long
from rejoinder.gateway.auth import Caller
from rejoinder.gateway.dialects.base import Counting
from rejoinder.gateway.endpoint import Endpoint
from rejoinder.gateway.errors import send_json
from rejoinder.gateway.identity import Headers
from rejoinder.gateway.service import Service


class Counts(Endpoint):
    """Renders a prompt as a turn would and tells its length."""

    def __init__(self, service: Service, counting: Counting) -> None:
        super().__init__(service, counting)
        self._counting = counting

    async def _answer(
        self,
        headers: Headers,  # noqa: ARG002 - no session
        data: bytes,
        caller: Caller,  # noqa: ARG002 - no owner
        arrived: float,  # noqa: ARG002 - no deadline
        receive: Receive,  # noqa: ARG002 - soon done, whoever waits
        send: Send,
    ) -> None:
        service, counting = self._service, self._counting
        most = service.context_length
        request = await in_thread_if_long(service, data, lambda: counting.read(data, most))
        service.models.resolve(request.model)
        ids = await service.prompts.ids(
            request.messages, request.tools, request.template_options, most
        )
        await send_json(send, 200, counting.counted(len(ids)))
