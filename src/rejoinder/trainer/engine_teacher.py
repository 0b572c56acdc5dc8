"""A teacher on an engine: another model, or the start weights where they are held already.

The student's side stays in the trainer; an engine scores the ids under each hint. It is asked for
nothing but what the loss compares: log-probabilities of given ids, or its own most likely ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rejoinder.config import TrainerConfig
from rejoinder.engine.base import ScoreRequest, ScoreResult
from rejoinder.errors import ConfigError, EngineError
from rejoinder.models.logprobs import chunked_top
from rejoinder.trainer.base import SignalledTurn, TeacherAway, TeacherFailed
from rejoinder.trainer.batching import MicroBatch
from rejoinder.trainer.distil import Candidates
from rejoinder.trainer.engine_calls import AWAY, EngineCaller
from rejoinder.trainer.hint_choice import HintChoice
from rejoinder.trainer.model import TrainModel
from rejoinder.trainer.teacher import largest_difference, refuse_difference
from rejoinder.types import BASE_VERSION, new_id

TEACHER_PRIORITY = 15
"""People and judges go first (``ScoreRequest.priority``)."""
_ROUNDING = 1e-3
"""How far above 0 a log-probability may lie; in fp32 it is some 1e-6."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What an engine says of the n learning tokens of one turn under one hint."""

    ids: Tensor
    """[n, K] the tokens that are compared."""
    logprobs: Tensor
    """[n, K] fp32."""
    likeliest: Tensor
    """[n, C] its own most likely ids, where it was asked for them; else [n, 0]."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One turn, as it is asked about."""

    turn: SignalledTurn
    prompts: Sequence[list[int]]
    """One for each hint that has to be compared; none without a hint."""
    tokens: int
    """n that learn."""
    likeliest: Tensor | None
    """[n, C] the student's, where they are compared."""


class EngineTeacher:
    """Scores the hinted turns of one micro-batch after the other, as ``Teacher`` does."""

    def __init__(
        self, candidates: Candidates, config: TrainerConfig, caller: EngineCaller, policy: str
    ) -> None:
        """``policy``: the one that trains; its versions are asked if no other is named."""
        self._candidates = candidates
        self._choice = HintChoice(candidates, config)
        self._chunk = config.logit_chunk
        self._caller = caller
        self._config = config.teacher.engine
        self._own_policy = policy
        self._policy = self._config.policy or policy

    def check(self, tokenizer_hash: str) -> None:
        """Refuse an engine that cannot teach this policy.

        Args:
            tokenizer_hash: of the policy's vocabulary and special tokens.

        Raises:
            ConfigError: it can never teach; the message says what to change.
            TeacherAway: it does not answer right now.
        """
        try:
            info = self._caller.info()
        except EngineError as error:
            raise TeacherAway(f"the teacher's engine: {error}") from error
        if info.tokenizer_hash != tokenizer_hash:
            raise ConfigError(
                "trainer.teacher.engine: the engine's model has another tokenizer than the policy "
                f"({info.tokenizer_hash} and {tokenizer_hash}), so their ids do not mean the same: "
                "name an engine whose model has the policy's vocabulary and special tokens"
            )
        needed = {"score"} | ({"candidates"} if self._candidates.whose == "student" else set())
        if missing := needed - set(info.capabilities):
            raise ConfigError(
                f"trainer.teacher.engine: the engine {info.name!r} lacks {sorted(missing)}: name "
                "another, or set trainer.teacher.weights to 'frozen'"
            )
        if self._config.version not in info.loaded.get(self._policy, ()):
            there = {name: list(versions) for name, versions in info.loaded.items()}
            raise ConfigError(
                f"trainer.teacher.engine: no version {self._config.version} of a policy "
                f"{self._policy!r} is loaded there (it has {there}): set policy and version to "
                "what it serves"
            )

    def self_test(self, model: TrainModel, *, is_start: bool, tolerance: float) -> None:
        """Try the engine on two short turns; where it has the policy's start weights, compare.

        Args:
            model: the start weights where ``is_start``, else any.
            is_start: whether they are.
            tolerance: how far both may differ at a token.

        Raises:
            ConfigError: it cannot score, or says something else with the same weights.
            TeacherAway: it does not answer right now.
        """
        try:
            difference = largest_difference(self.score, model)
        except TeacherFailed as error:
            raise ConfigError(f"trainer.teacher.engine: {error}: name another engine") from error
        is_same = self._config.url is None and self._policy == self._own_policy
        if is_same and is_start and self._config.version == BASE_VERSION:
            refuse_difference(difference, tolerance)

    @torch.no_grad()
    def score(
        self,
        student: TrainModel,
        student_hidden: Tensor,
        batch: MicroBatch,
        turns: Sequence[SignalledTurn],
    ) -> tuple[Tensor, Tensor]:
        """Choose tokens to compare and return what the engine says of them.

        See ``Teacher.score`` for the arguments and what is returned.

        Raises:
            TeacherAway: the engine does not answer now.
            TeacherFailed: it cannot score some of the turns, whatever the time.
        """
        asked = self._asked(student, student_hidden, batch, turns)
        found = self._ask(asked, len(student.head))
        width = next(told[0].ids.shape[1] for told in found if told)
        ids = batch.targets[:, None].cpu().repeat(1, width)
        logprobs = torch.zeros(ids.shape)
        begin = 0
        for one, told in zip(asked, found, strict=True):
            if told:
                best = self._best(told, one)
                ids[begin : begin + one.tokens] = best.ids
                logprobs[begin : begin + one.tokens] = best.logprobs
            begin += one.tokens
        return ids.to(student.device), logprobs.to(student.device)

    def _asked(
        self,
        student: TrainModel,
        student_hidden: Tensor,
        batch: MicroBatch,
        turns: Sequence[SignalledTurn],
    ) -> list[_Asked]:
        prompts = [self._choice.drawn(turn) for turn in turns]
        counts = [int(turn.signal.mask.sum()) for turn in turns]
        parts: Sequence[Tensor | None] = [None] * len(turns)
        if self._candidates.whose == "student" or max(map(len, prompts)) > 1:
            count = self._choice.compared
            top = chunked_top(student_hidden, student.head, batch.temperature, count, self._chunk)
            parts = torch.split(top.cpu(), counts)
        return [_Asked(*one) for one in zip(turns, prompts, counts, parts, strict=True)]

    def _ask(self, asked: Sequence[_Asked], vocabulary: int) -> list[list[_Told]]:
        """Return what the engine says of each turn under each of its prompts."""
        requests = [self._request(one, prompt) for one in asked for prompt in one.prompts]
        answers = iter(zip(requests, self._caller.score_all(requests), strict=True))
        found: list[list[_Told]] = []
        failed: list[SignalledTurn] = []
        why = ""
        for one in asked:
            told = []
            for _ in one.prompts:
                request, result = next(answers)
                if isinstance(result, AWAY):
                    raise TeacherAway(f"the teacher's engine: {result}") from result
                if isinstance(result, EngineError):
                    why = str(result)
                elif fault := _fault(request, result, vocabulary):
                    why = fault
                else:
                    told.append(self._told(one, result))
            if len(told) < len(one.prompts):
                failed.append(one.turn)
            found.append(told)
        if failed:
            raise TeacherFailed(f"the teacher's engine: {why}", failed)
        return found

    def _request(self, one: _Asked, prompt: list[int]) -> ScoreRequest:
        whose, count = self._candidates.whose, self._candidates.count
        candidates: list[list[int]] | None = None
        if whose == "student":
            assert one.likeliest is not None
            rows = iter(one.likeliest.tolist())
            candidates = [next(rows) if learns else [] for learns in one.turn.signal.mask]
        own = count if whose == "teacher" else 0
        return ScoreRequest(
            request_id=new_id(),
            ids=[*prompt, *one.turn.answer_ids],
            policy=self._policy,
            version=self._config.version,
            start=len(prompt),
            temperature=one.turn.temperature,
            top_k=max(own, self._choice.compared) if len(one.prompts) > 1 else own,
            candidates=candidates,
            deadline_s=self._config.timeout_s,
            priority=TEACHER_PRIORITY,
        )

    def _told(self, one: _Asked, result: ScoreResult) -> _Told:
        learns = one.turn.signal.mask.nonzero()[0].tolist()
        top = [result.top[at] if result.top else [] for at in learns]
        own = torch.tensor([[id_ for id_, _ in row] for row in top], dtype=torch.long)
        likeliest = own[:, : self._choice.compared]
        match self._candidates.whose:
            case "teacher":
                count = self._candidates.count
                values = [[logprob for _, logprob in row[:count]] for row in top]
                ids = own[:, :count]
            case "student":
                assert one.likeliest is not None
                values = [result.candidates[at] for at in learns]
                ids = one.likeliest
            case "sampled":
                values = [[result.logprobs[at]] for at in learns]
                ids = torch.tensor([[one.turn.answer_ids[at]] for at in learns])
        return _Told(ids, torch.tensor(values), likeliest)

    def _best(self, told: Sequence[_Told], one: _Asked) -> _Told:
        """Return what counts at each token: that of the hint of the largest overlap."""
        if len(told) == 1:
            return told[0]
        assert one.likeliest is not None
        shared = [self._choice.fits(each.likeliest, one.likeliest, [one.tokens]) for each in told]
        best = torch.stack(shared).argmax(0)  # the first of equals, as ``Teacher`` takes it
        rows = torch.arange(one.tokens)
        ids, logprobs, likeliest = (
            torch.stack(parts)[best, rows]
            for parts in (
                [each.ids for each in told],
                [each.logprobs for each in told],
                [each.likeliest for each in told],
            )
        )
        return _Told(ids, logprobs, likeliest)


def _fault(request: ScoreRequest, result: ScoreResult, vocabulary: int) -> str | None:
    """Return why a result cannot teach: nothing that is missing is ever replaced."""
    tokens = len(request.ids) - request.start
    asked = [len(row) for row in request.candidates or ()]
    if len(result.logprobs) != tokens or [len(row) for row in result.candidates] != asked:
        return "it scored other tokens than were asked for"
    top = min(request.top_k, vocabulary)
    if top and [len(row) for row in result.top] != [top] * tokens:
        return f"it did not give its {top} most likely tokens at each position"
    if any(not 0 <= id_ < vocabulary for row in result.top for id_, _ in row):
        return "it finds tokens likely that the policy does not have"
    if any(len({id_ for id_, _ in row}) < len(row) for row in result.top):
        return "it named a token twice among the most likely ones"
    values = [*result.logprobs, *(value for row in result.candidates for value in row)]
    values += [value for row in result.top for _, value in row]
    if not all(map(math.isfinite, values)):
        return "it gave values that are not finite"
    if any(value > _ROUNDING for value in values):
        return "it gave values above 0, which are no log-probabilities"
    return None
