"""What a request asks for: its prompts, and what captures the answers to each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rejoinder.chat.families.base import AnswerReader, CallsOnly
from rejoinder.chat.history import History
from rejoinder.chat.linking import LinkDecision
from rejoinder.gateway.capture import AnswerCapture
from rejoinder.gateway.holding import Held
from rejoinder.gateway.identity import Identity
from rejoinder.gateway.linker import Linking
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.sampling import choose_sampling, seeded
from rejoinder.gateway.service import Service
from rejoinder.gateway.splicer import explained
from rejoinder.gateway.tool_choice import without_calls
from rejoinder.types import Message, Sampling, new_id


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is answered. All but legacy completions have one."""

    history: History
    link: LinkDecision
    """Where it belongs among earlier turns."""
    ids: list[int]
    """[P] what the engine gets: ``rendered_ids``, with earlier answers as they were sampled."""
    rendered_ids: list[int]
    """[R] the same text as the tokenizer has it."""
    begun: int
    """Ids at its end with which the answer begins: of a call or form that was asked for."""
    answers: list[AnswerCapture]
    """[n]"""
    samplings: list[Sampling]
    """[n] per answer; they differ in their seeds."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A prompt before its answers are thought of; fields as in ``Prompt``."""

    history: History
    link: LinkDecision
    ids: list[int]
    rendered_ids: list[int]
    asked_ids: list[int]
    """``rendered_ids`` without what begins the answer."""
    begun: list[int]


async def make_prompts(
    service: Service,
    request: TurnRequest,
    identity: Identity,
    history: History,
    link: Callable[[History], Linking],
    held: Held | None,
) -> list[Prompt]:
    """Return what is to be answered, with room for the answers; ``link`` begins to link one.

    ``held``: what the engine holds the answers to.
    """
    if not request.prompts:
        linking = link(history)  # perhaps in a thread, while the prompt is rendered here
        ids = await service.prompts.ids(
            request.messages, request.tools, request.template_options, service.context_length
        )
        begun = _begun(service, request, ids)
        asked = [_continued(service, history, await linking.decision(), ids, begun)]
    else:
        raw = [await _raw_prompt(service, prompt) for prompt in request.prompts]
        asked = [
            _continued(service, said, await link(said).decision(), ids, []) for said, ids in raw
        ]
    room = service.context_length - max(len(one.ids) for one in asked)
    chosen = choose_sampling(
        service.config.gateway,
        request,
        identity.turn_type,
        room,
        service.vocab_size,
        constrained=held is not None,
    )
    if held is not None and held.is_call:
        chosen = replace(chosen, stop=())
    choices = request.choices if room > 0 else 1  # where none can be sampled one row says so
    return [
        Prompt(
            history=one.history,
            link=one.link,
            ids=one.ids,
            rendered_ids=one.rendered_ids,
            begun=len(one.begun),
            answers=[
                AnswerCapture(
                    new_id(),
                    at * choices + choice,
                    _reader(service, request, one, chosen.stop, held),
                )
                for choice in range(choices)
            ],
            samplings=[seeded(chosen, choice) for choice in range(choices)],
        )
        for at, one in enumerate(asked)
    ]


def _reader(
    service: Service,
    request: TurnRequest,
    asked: _Asked,
    stop: Sequence[str],
    held: Held | None,
) -> AnswerReader:
    if request.prompts:
        return service.family.plain_reader(stop)
    reader = service.family.reader(asked.asked_ids, request.tools, stop, asked.begun)
    return CallsOnly(reader) if held is not None and held.is_call else reader


def _begun(service: Service, request: TurnRequest, prompt_ids: list[int]) -> list[int]:
    """Return the ids that begin the call or content which the client asks for; mostly none.

    Raises:
        ApiError: the model's family has no calls.
    """
    if request.wanted_call is not None:
        begun = service.family.begun_call(prompt_ids, request.wanted_call.name)
        if begun is None:
            raise without_calls(service.family.name)
        return begun
    return [] if request.answer_format is None else service.family.begun_content(prompt_ids)


def _continued(
    service: Service, history: History, link: LinkDecision, asked_ids: list[int], begun: list[int]
) -> _Asked:
    """Return a prompt with earlier answers as they were sampled; its link says what was done."""
    rendered_ids = [*asked_ids, *begun] if begun else asked_ids
    ids = rendered_ids
    if history.answers:
        prompt = service.splicer.splice(link.continues, rendered_ids, service.context_length)
        link.explanation["prompt"] = explained(prompt, link.continues)  # it is this request's own
        ids = prompt.ids
    return _Asked(history, link, ids, rendered_ids, asked_ids, begun)


async def _raw_prompt(service: Service, prompt: str | tuple[int, ...]) -> tuple[History, list[int]]:
    """Return a prompt that no template renders; its turn has it as one message of a user."""
    text, ids = await service.prompts.raw(prompt, service.context_length)
    return History((Message("user", text),)), ids
