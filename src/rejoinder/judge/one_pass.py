"""The LLM judge whose votes give a score and, where there is something to improve, a hint.

One call answers both questions, and each answer is read for itself: a hint that is missing or
cannot be read costs no score, and the other way round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from rejoinder.config import LlmJudgeConfig
from rejoinder.errors import ConfigError, JudgeError
from rejoinder.journal.records import HintMaker
from rejoinder.judge.asking import Prompts, ask, build_completer, conversation_prompts
from rejoinder.judge.base import JudgeSetting, digest_of, fingerprint_of
from rejoinder.judge.completion import CallFailed, Completer
from rejoinder.judge.hints.base import Hinting
from rejoinder.judge.hints.parsing import HintVote, failed_hint_vote, parse_hint_beside_score
from rejoinder.judge.hints.prompts import ONE_PASS_FORM, ONE_PASS_SYSTEM
from rejoinder.judge.hints.voting import checks_of_hints, hinting_of
from rejoinder.judge.llm import quorum_of
from rejoinder.judge.parsing import parse_vote
from rejoinder.judge.transcript import FORM
from rejoinder.judge.voting import failed_vote, verdict
from rejoinder.types import Judgement, Message, Vote


@runtime_checkable
class ReadsBoth(Protocol):
    """A ``Judge`` that is a ``HintJudge`` too, and answers both questions in one pass."""

    async def read(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> tuple[Judgement, Hinting]:
        """Return what ``judge`` and ``hints`` would, from the same calls."""
        ...


class OnePassJudge:
    """Asks for ``config.votes`` votes at once. See ``Judge``, ``HintJudge`` and ``ReadsBoth``."""

    def __init__(
        self, config: LlmJudgeConfig, completer: Completer, special_tokens: Sequence[str] = ()
    ) -> None:
        """``special_tokens``: texts that the teacher's tokenizer turns into control ids.

        Raises:
            ConfigError: the quorum can never be reached.
        """
        self._config = config
        self._completer = completer
        self._special_tokens = tuple(special_tokens)
        self._quorum = quorum_of(config)
        prompt = {"prompt": ONE_PASS_SYSTEM, "transcript": FORM}
        self._fingerprint = fingerprint_of(
            "llm-hints",
            **prompt,
            form=ONE_PASS_FORM if config.structured else None,
            model=completer.model_id,
            votes=config.votes,
            quorum=self._quorum,
            temperature=config.temperature,
            limits=(config.max_tokens, config.context_messages, config.max_chars),
            **checks_of_hints(),
        )
        model = completer.model_id
        self._maker = HintMaker(self._fingerprint, "judge", model, digest_of(**prompt))

    @property
    def fingerprint(self) -> str:
        """See ``Judge.fingerprint``."""
        return self._fingerprint

    @property
    def maker(self) -> HintMaker:
        """See ``HintJudge.maker``."""
        return self._maker

    async def read(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> tuple[Judgement, Hinting]:
        """See ``ReadsBoth.read``."""
        started = time.monotonic()
        prompts = self._prompts(context, answer, next_state)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._vote(prompts)) for _ in range(self._config.votes)]
        votes = tuple(task.result()[0] for task in tasks)
        on_hints = [task.result()[1] for task in tasks]
        score, why = verdict(votes, self._quorum)
        judgement = Judgement(score, votes, self._fingerprint, why, time.monotonic() - started)
        hinting = await hinting_of(
            on_hints, context, answer, next_state, self._special_tokens, started
        )
        return judgement, hinting

    async def judge(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Judgement:
        """See ``Judge.judge``."""
        return (await self.read(context, answer, next_state))[0]

    async def hints(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Hinting:
        """See ``HintJudge.hints``."""
        return (await self.read(context, answer, next_state))[1]

    def _prompts(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> Prompts:
        return conversation_prompts(
            self._config, self._completer, ONE_PASS_SYSTEM, context, answer, next_state
        )

    async def _vote(self, prompts: Prompts) -> tuple[Vote, HintVote]:
        try:
            completion = await ask(self._completer, prompts, self._config.max_chars)
        except CallFailed as error:
            fault = error.code, error.detail
            return failed_vote(*fault), failed_hint_vote(*fault)
        said = completion.text, completion.finish_reason
        return parse_vote(*said), parse_hint_beside_score(*said)

    async def check(self) -> None:
        """Ask for one vote on a made-up turn; see ``Judge.check``."""
        prompts = self._prompts(
            [Message("user", "What is the capital of France?")],
            Message("assistant", "1. Paris\n2. It is in the north of the country"),
            [Message("user", "No list, please. A short sentence would do.")],
        )
        vote, on_hint = await self._vote(prompts)
        if vote.score is None or on_hint.accepts is None:
            why = vote.reason if vote.score is None else on_hint.text
            raise JudgeError(f"the LLM judge ({self._completer.model_id}): {why}")

    async def close(self) -> None:
        """See ``Judge.close``."""
        await self._completer.close()


def build(setting: JudgeSetting) -> OnePassJudge:
    """Return the judge for an endpoint, or for the engine where no endpoint is configured.

    Raises:
        ConfigError: it cannot work as configured, or a setting would have no effect.
    """
    config = setting.config
    if not isinstance(config, LlmJudgeConfig):
        raise ConfigError(
            f"hints.kind = 'judge' takes hints from the judge's votes, and judge.kind = "
            f"{config.kind!r} has none: set it to 'llm', or hints.kind to 'extractive'"
        )
    completer = build_completer(setting, config, ONE_PASS_FORM, "judge")
    return OnePassJudge(config, completer, setting.tokenizer.special_texts)
