"""The LLM judge: several votes of a language model, majority with quorum."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rejoinder.config import LlmJudgeConfig
from rejoinder.errors import ConfigError, JudgeError
from rejoinder.judge.asking import Prompts, ask, build_completer, conversation_prompts
from rejoinder.judge.base import JudgeSetting, fingerprint_of
from rejoinder.judge.completion import CallFailed, Completer
from rejoinder.judge.parsing import parse_vote
from rejoinder.judge.prompts import RESPONSE_FORMAT, SYSTEM
from rejoinder.judge.transcript import FORM
from rejoinder.judge.voting import failed_vote, verdict
from rejoinder.types import Judgement, Message, Vote


class LlmJudge:
    """Asks for ``config.votes`` votes at once. See ``Judge``."""

    def __init__(self, config: LlmJudgeConfig, completer: Completer) -> None:
        self._quorum = quorum_of(config)
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
    ) -> Prompts:
        return conversation_prompts(
            self._config, self._completer, SYSTEM, context, answer, next_state
        )

    async def _vote(self, prompts: Prompts) -> Vote:
        try:
            completion = await ask(self._completer, prompts, self._config.max_chars)
        except CallFailed as error:
            return failed_vote(error.code, error.detail)
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


def quorum_of(config: LlmJudgeConfig) -> int:
    """Return how many votes must succeed.

    Raises:
        ConfigError: more than are asked for.
    """
    quorum = config.votes // 2 + 1 if config.quorum is None else config.quorum
    if quorum > config.votes:
        raise ConfigError(
            f"judge.quorum is {quorum} but judge.votes is {config.votes}: no verdict could ever be "
            "reached; lower the quorum or raise the votes"
        )
    return quorum


def build(setting: JudgeSetting) -> LlmJudge:
    """Return the judge for an endpoint, or for the engine where no endpoint is configured.

    Raises:
        ConfigError: it cannot work as configured, or a setting would have no effect.
    """
    config = setting.config
    assert isinstance(config, LlmJudgeConfig)
    return LlmJudge(config, build_completer(setting, config, RESPONSE_FORMAT, "judge"))
