"""What a request asks for: its prompts, and what captures the answers to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rejoinder.chat.families.base import AnswerReader
from rejoinder.chat.history import History
from rejoinder.gateway.capture import AnswerCapture
from rejoinder.gateway.identity import Identity
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.sampling import choose_sampling, seeded
from rejoinder.gateway.service import Service
from rejoinder.types import Message, Sampling, new_id


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is answered. All but legacy completions have one."""

    history: History
    ids: list[int]
    answers: list[AnswerCapture]
    """[n]"""
    samplings: list[Sampling]
    """[n] per answer; they differ in their seeds."""


async def make_prompts(
    service: Service, request: TurnRequest, identity: Identity, history: History
) -> list[Prompt]:
    """Return what is to be answered, with room for the answers."""
    if not request.prompts:
        ids = await service.prompts.ids(
            request.messages, request.tools, request.template_options, service.context_length
        )
        asked = [(history, ids)]
    else:
        asked = [await _raw_prompt(service, prompt) for prompt in request.prompts]
    room = service.context_length - max(len(ids) for _, ids in asked)
    chosen = choose_sampling(
        service.config.gateway, request, identity.turn_type, room, service.vocab_size
    )
    choices = request.choices if room > 0 else 1  # where none can be sampled one row says so
    return [
        Prompt(
            history=said,
            ids=ids,
            answers=[
                AnswerCapture(
                    new_id(), at * choices + choice, _reader(service, request, ids, chosen.stop)
                )
                for choice in range(choices)
            ],
            samplings=[seeded(chosen, choice) for choice in range(choices)],
        )
        for at, (said, ids) in enumerate(asked)
    ]


def _reader(
    service: Service, request: TurnRequest, ids: list[int], stop: Sequence[str]
) -> AnswerReader:
    if request.prompts:
        return service.family.plain_reader(stop)
    return service.family.reader(ids, request.tools, stop)


async def _raw_prompt(service: Service, prompt: str | tuple[int, ...]) -> tuple[History, list[int]]:
    """Return a prompt that no template renders; its turn has it as one message of a user."""
    ids = await service.prompts.raw_ids(prompt, service.context_length)
    if isinstance(prompt, str):
        text = prompt
    else:
        text = service.tokenizer.decode(ids, skip_special_tokens=False)
    return History((Message("user", text),)), ids
