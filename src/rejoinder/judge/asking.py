"""How the judges that ask a language model do so: which model, and prompts that fit it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rejoinder.config import LlmVotesConfig
from rejoinder.errors import ConfigError
from rejoinder.judge.base import JudgeSetting
from rejoinder.judge.completion import Completer, Completion, PromptTooLong
from rejoinder.judge.prompts import judge_messages
from rejoinder.types import Json, Message

_FEWEST_CHARS = 1000
"""A prompt that does not fit is halved down to about this much conversation, and no further."""


class Prompts:
    """The prompts of one judgement, by their budget of characters: its votes share them."""

    def __init__(self, build: Callable[[int], list[Message]]) -> None:
        self._build = build
        self._made: dict[int, list[Message]] = {}
        self._lock = asyncio.Lock()

    async def within(self, budget: int) -> list[Message]:
        """Return the prompt; it is built once, off the event loop."""
        async with self._lock:
            if budget not in self._made:
                self._made[budget] = await asyncio.to_thread(self._build, budget)
            return self._made[budget]


def conversation_prompts(
    config: LlmVotesConfig,
    completer: Completer,
    system: str,
    context: Sequence[Message],
    answer: Message,
    next_state: Sequence[Message],
) -> Prompts:
    """Return the prompts that show a model one turn and what came after it; see ``Judge.judge``."""

    def build(budget: int) -> list[Message]:
        return judge_messages(
            context,
            answer,
            next_state,
            context_messages=config.context_messages,
            max_chars=budget,
            special_tokens=completer.special_tokens,
            system=system,
        )

    return Prompts(build)


async def ask(completer: Completer, prompts: Prompts, budget: int) -> Completion:
    """Return one output; a prompt that is too long for the model is halved until it fits.

    Raises:
        CallFailed: there is none.
    """
    while True:
        try:
            return await completer.complete(await prompts.within(budget))
        except PromptTooLong:
            budget //= 2
            if budget < _FEWEST_CHARS:
                raise


def build_completer(
    setting: JudgeSetting, config: LlmVotesConfig, form: Json, section: str
) -> Completer:
    """Return the endpoint that ``config`` names, or the engine where it names none.

    Args:
        setting: whose engine that is.
        config: the section of the judge.
        form: the ``response_format`` that an endpoint is asked for.
        section: the section's name, for faults.

    Raises:
        ConfigError: it cannot work as configured, or a setting would have no effect.
    """
    if config.base_url is not None:
        from rejoinder.judge.endpoint import EndpointCompleter

        return EndpointCompleter(config, form, section)
    _refuse_settings_of_endpoints(config, section)
    from rejoinder.judge.embedded import EngineCompleter

    return EngineCompleter(setting, config)


def _refuse_settings_of_endpoints(config: LlmVotesConfig, section: str) -> None:
    """Refuse settings that only a call to an endpoint would heed: another judge was meant."""
    given = {
        "model": config.model is not None,
        "api_key_env": config.api_key_env is not None,
        "structured": not config.structured,
    }
    if names := [f"{section}.{name}" for name, is_given in given.items() if is_given]:
        raise ConfigError(
            f"without {section}.base_url the engine's start weights judge, and "
            f"{' and '.join(names)} would have no effect; set {section}.base_url to the "
            "endpoint, or remove the rest"
        )
