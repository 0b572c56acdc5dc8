"""The label-likelihood judge: which verdict words would the frozen model say next?

No generation: one or two short forward passes through the policy's start weights, so that it works
with a small model and costs little. See ``views`` for the prompts, ``readout`` for the arithmetic.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence

from rejoinder.config import LikelihoodJudgeConfig
from rejoinder.engine.base import Engine, ScoreRequest
from rejoinder.errors import ConfigError, EngineError, JudgeError
from rejoinder.judge.base import JudgeSetting, fingerprint_of
from rejoinder.judge.echo import echo
from rejoinder.judge.embedded import JUDGE_PRIORITY, call_failed
from rejoinder.judge.readout import Readout, readout_for
from rejoinder.judge.views import Reading, Views
from rejoinder.judge.voting import failed_vote
from rejoinder.types import BASE_VERSION, Fate, Judgement, Message, Vote, new_id


class LikelihoodJudge:
    """One vote, whose ``value`` is the log-odds of *good*. See ``Judge``."""

    def __init__(self, setting: JudgeSetting, readout: Readout) -> None:
        config = setting.config
        assert isinstance(config, LikelihoodJudgeConfig)
        self._config = config
        self._engine: Engine = setting.engine
        self._policy = setting.policy
        self._readout = readout
        self._views = Views(setting.tokenizer)
        self._word_ids = {
            place: {word: self._views.word_id(word, place) for word in words}
            for place, words in readout.words.items()
        }
        for ids in self._word_ids.values():
            _refuse_shared(ids, setting.model_id)
        self._empty: dict[bool, float] = {}
        self._fingerprint = fingerprint_of(
            "likelihood",
            views=self._views.description(),
            readout=str(readout),
            model=setting.model_id,
            threshold=config.threshold,
            margin=config.margin,
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
        try:
            value = await self.log_odds(context, answer, next_state)
        except EngineError as error:
            failure = call_failed(error)
            vote, why = failed_vote(failure.code, failure.detail), Fate.JUDGE_FAILED
            return Judgement(None, (vote,), self._fingerprint, why, time.monotonic() - started)
        distance = value - self._config.threshold
        score = 1 if distance > 0 else -1
        unsure = abs(distance) < self._config.margin or distance == 0
        vote = Vote(None if unsure else score, "unsure" if unsure else "", value)
        return Judgement(
            vote.score,
            (vote,),
            self._fingerprint,
            Fate.JUDGE_UNSURE if unsure else None,
            time.monotonic() - started,
        )

    async def log_odds(
        self, context: Sequence[Message], answer: Message, next_state: Sequence[Message]
    ) -> float:
        """Return the log-odds that the answer served.

        Raises:
            EngineError: the engine failed.
        """
        tool = bool(next_state) and next_state[-1].role == "tool"
        logprobs = await self.word_logprobs(next_state)
        value = self._readout.value(logprobs, echo(context, answer, next_state), tool=tool)
        return value if self._readout.calibrated else value - await self._empty_value(tool)

    async def _empty_value(self, tool: bool) -> float:  # noqa: FBT001 - a key
        """Return what the prompt alone says: the same reading of a reply without text."""
        if tool not in self._empty:
            nothing = [Message("tool" if tool else "user", "")]
            logprobs = await self.word_logprobs(nothing)
            self._empty[tool] = self._readout.value(logprobs, None, tool=tool)
        return self._empty[tool]

    async def word_logprobs(self, next_state: Sequence[Message]) -> dict[str, dict[str, float]]:
        """Return the log-probability of each word of the readout at its place.

        Raises:
            EngineError: the engine failed.
        """
        readings = [await asyncio.to_thread(self._views.opinion, next_state)]
        if self._readout.needs_reaction:
            readings.append(await asyncio.to_thread(self._views.reaction, next_state))
        found: dict[str, dict[str, float]] = {}
        for part in await asyncio.gather(*map(self._read, readings)):
            found |= part
        return found

    async def _read(self, reading: Reading) -> dict[str, dict[str, float]]:
        first = min(reading.places.values())
        wanted: dict[int, Mapping[str, int]] = {
            position: self._word_ids.get(place, {}) for place, position in reading.places.items()
        }
        rows = [list(wanted.get(at, {}).values()) for at in range(first, len(reading.ids) + 1)]
        result = await self._engine.score(
            ScoreRequest(
                request_id=new_id(),
                ids=reading.ids,
                policy=self._policy,
                version=BASE_VERSION,
                start=first,
                stop=len(reading.ids) + 1,
                candidates=rows,
                deadline_s=self._config.timeout_s,
                priority=JUDGE_PRIORITY,
            )
        )
        found: dict[str, dict[str, float]] = {}
        for place, position in reading.places.items():
            values = result.candidates[position - first]
            if not all(map(math.isfinite, values)):
                raise EngineError("the engine gave log-probabilities that are not finite")
            found[place] = dict(zip(wanted[position], values, strict=True))
        return found

    async def check(self) -> None:
        """Judge a made-up turn; see ``Judge.check``."""
        info = await self._engine.info()
        if missing := {"score", "candidates"} - set(info.capabilities):
            raise ConfigError(
                "judge.kind = 'likelihood' needs an engine with the capabilities score and "
                f"candidates; {info.name} lacks {' and '.join(sorted(missing))}; choose another "
                "judge.kind or engine.kind"
            )
        judgement = await self.judge(
            [Message("user", "What is the capital of France?")],
            Message("assistant", "Paris."),
            [Message("user", "Right, thank you!")],
        )
        if judgement.why is Fate.JUDGE_FAILED:
            raise JudgeError(f"the likelihood judge: {judgement.votes[0].reason}")

    async def close(self) -> None:
        """The engine belongs to the caller."""


def _refuse_shared(ids: Mapping[str, int], model_id: str) -> None:
    """Refuse words that the model cannot tell apart by their first token.

    Raises:
        ConfigError: two words begin with one id: their probabilities would always be equal.
    """
    owner: dict[int, str] = {}
    for word, id_ in ids.items():
        if id_ in owner:
            raise ConfigError(
                f"judge.kind = 'likelihood' cannot work with model.path = {model_id!r}: its "
                f"tokenizer begins {owner[id_]!r} and {word!r} with the same token; choose another "
                "model.path, or another judge.kind (llm, callable, feedback)"
            )
        owner[id_] = word


def build(setting: JudgeSetting) -> LikelihoodJudge:
    """Return the judge with the readout that was fitted for the model, or the plain one."""
    return LikelihoodJudge(setting, readout_for(setting.model_id))
