"""The LLM judge: several votes of a language model, majority with quorum."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from rejoinder.config import LlmJudgeConfig
from rejoinder.errors import ConfigError, JudgeError
from rejoinder.judge.base import JudgeSetting, fingerprint_of
from rejoinder.judge.completion import CallFailed, Completer, PromptTooLong
from rejoinder.judge.parsing import parse_vote
from rejoinder.judge.prompts import RESPONSE_FORMAT, SYSTEM, judge_messages
from rejoinder.judge.transcript import FORM
from rejoinder.judge.voting import failed_vote, verdict
from rejoinder.types import Judgement, Message, Vote

_FEWEST_CHARS = 1000
"""A prompt that does not fit is halved down to about this much conversation, and no further."""


class _Prompts:
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


class LlmJudge:
    """Asks for ``config.votes`` votes at once. See ``Judge``."""

    def __init__(self, config: LlmJudgeConfig, completer: Completer) -> None:
        self._quorum = config.votes // 2 + 1 if config.quorum is None else config.quorum
        if self._quorum > config.votes:
            raise ConfigError(
                f"judge.quorum is {self._quorum} but judge.votes is {config.votes}: no verdict "
                "could ever be reached; lower the quorum or raise the votes"
            )
        self._config = config
        self._completer = completer
        self._fingerprint = fingerprint_of(
            "llm",
            prompt=SYSTEM,
            transcript=FORM,
            form=RESPONSE_FORMAT if config.structured else None,
            model=completer.model_id,
            votes=config.votes,
            quorum=self._quorum,
            temperature=config.temperature,
            limits=(config.max_tokens, config.context_messages, config.max_chars),
        )

    @property
    def fingerprint(self) -> str:
        """See ``Judge.fingerprint``."""
        return self._fingerprint

    async def judge(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Judgement:
        """See ``Judge.judge``."""
        started = time.monotonic()
        prompts = self._prompts(context, answer, next_state)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._vote(prompts)) for _ in range(self._config.votes)]
        votes = tuple(task.result() for task in tasks)
        score, why = verdict(votes, self._quorum)
        return Judgement(score, votes, self._fingerprint, why, time.monotonic() - started)

    def _prompts(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> _Prompts:
        def build(budget: int) -> list[Message]:
            return judge_messages(
                context,
                answer,
                next_state,
                context_messages=self._config.context_messages,
                max_chars=budget,
                special_tokens=self._completer.special_tokens,
            )

        return _Prompts(build)

    async def _vote(self, prompts: _Prompts) -> Vote:
        budget = self._config.max_chars
        while True:
            messages = await prompts.within(budget)
            try:
                completion = await self._completer.complete(messages)
            except PromptTooLong as error:
                if budget // 2 < _FEWEST_CHARS:
                    return failed_vote(error.code, error.detail)
                budget //= 2
            except CallFailed as error:
                return failed_vote(error.code, error.detail)
            else:
                return parse_vote(completion.text, completion.finish_reason)

    async def check(self) -> None:
        """Ask for one vote on a made-up turn; see ``Judge.check``."""
        prompts = self._prompts(
            [Message("user", "What is the capital of France?")],
            Message("assistant", "Paris."),
            [Message("user", "Right, thank you!")],
        )
        vote = await self._vote(prompts)
        if vote.score is None:
            raise JudgeError(f"the LLM judge ({self._completer.model_id}): {vote.reason}")

    async def close(self) -> None:
        """See ``Judge.close``."""
        await self._completer.close()


def build(setting: JudgeSetting) -> LlmJudge:
    """Return the judge for an endpoint, or for the engine where no endpoint is configured.

    Raises:
        ConfigError: it cannot work as configured, or a setting would have no effect.
    """
    config = setting.config
    assert isinstance(config, LlmJudgeConfig)
    if config.base_url is not None:
        from rejoinder.judge.endpoint import EndpointCompleter

        return LlmJudge(config, EndpointCompleter(config))
    _refuse_settings_of_endpoints(config)
    from rejoinder.judge.embedded import EngineCompleter

    return LlmJudge(config, EngineCompleter(setting, config))


def _refuse_settings_of_endpoints(config: LlmJudgeConfig) -> None:
    """Refuse settings that only a call to an endpoint would heed: another judge was meant."""
    given = {
        "model": config.model is not None,
        "api_key_env": config.api_key_env is not None,
        "structured": not config.structured,
    }
    if names := [f"judge.{name}" for name, is_given in given.items() if is_given]:
        raise ConfigError(
            f"without judge.base_url the engine's start weights judge, and {' and '.join(names)} "
            "would have no effect; set judge.base_url to the endpoint, or remove the rest"
        )
