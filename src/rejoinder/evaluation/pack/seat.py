"""One system of a pack, as the benchmark meets it: it answers, is judged, and learns."""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import itemgetter

from rejoinder.algorithms.base import Algorithm
from rejoinder.chat.renderer import Renderer
from rejoinder.chat.splicing import KnownTurn, splice
from rejoinder.chat.token_bytes import TokenBytes
from rejoinder.config import Config
from rejoinder.engine.base import Engine
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.client import Ask, ChatMessages, Reply, RequestFailed
from rejoinder.evaluation.drift import start_divergence
from rejoinder.evaluation.pack.decoding import Request, Sampled
from rejoinder.evaluation.watch import Progress, SampledIds
from rejoinder.journal.records import SampleSpec, TrainSample
from rejoinder.judge.base import Judge
from rejoinder.judge.hints.base import HintJudge
from rejoinder.judge.voting import NOT_ASKED
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.trainer.base import SignalledTurn
from rejoinder.trainer.hinted import HintRenderer
from rejoinder.trainer.relapse import JudgedStep, Relapse, find_relapse, worth_keeping
from rejoinder.trainer.step import prepare_step
from rejoinder.types import BASE_VERSION, Message, TurnType, VersionRun, new_id


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that waits for its answer."""

    request: Request | None
    """None: it is a farewell, which carries a reaction and whose answer nobody reads."""
    future: asyncio.Future[Sampled]


@dataclass(frozen=True, slots=True)
class _Turn:
    """An answer whose next state is still to come."""

    number: int
    """Of its request; samples train in this order, however long their judging took."""
    completion: str
    messages: tuple[Message, ...]
    prompt: list[int]
    sampled: Sampled
    text: str
    version: int
    temperature: float


@dataclass(frozen=True, slots=True)
class Parts:
    """What all seats of a pack share, and what this one learns by."""

    config: Config
    algorithm: Algorithm
    judge: Judge | None
    """None where the algorithm needs no verdicts."""
    hints: HintJudge | None
    hinted: HintRenderer | None
    renderer: Renderer
    tokenizer: ModelTokenizer
    engine: Engine
    """Scores under the start weights."""
    context_length: int
    """Most tokens of prompt and answer together."""
    updates: int
    """Steps after which none is taken."""


class Seat:
    """Implements ``Asker`` and ``Learner``.

    Verdicts, hints, samples and signals come from the code that the roles run; the journal and the
    ways between the roles are left out.
    """

    def __init__(self, parts: Parts, start: Callable[[asyncio.Task[None]], None]) -> None:
        """``start`` is told of every judgement that has begun."""
        self.requests = 0
        self.failures: list[str] = []
        self.batch_size: int | None = parts.config.trainer.batch_size
        self.waiting: list[Waiting] = []
        self.left = False
        """Whether nobody talks here any more."""
        self._parts = parts
        self._token_bytes = TokenBytes(parts.tokenizer.tokenizer)
        self._start = start
        self._version = BASE_VERSION
        self._moves = [0]
        """How many steps had changed weights, by version."""
        self._steps: list[JudgedStep] = []
        """Since it last went back."""
        self._taken: JudgedStep | None = None
        """What the verdicts of the step under way say."""
        self._rejected: set[int] = set()
        """Versions that were gone back from: nothing that they answered trains."""
        self.held = {BASE_VERSION}
        """Versions that may be gone back to."""
        self.rollbacks = 0
        self._trained = 0
        self._unseeded = 0
        self._held = 0
        self._ready: list[tuple[int, TrainSample]] = []
        """With the number of the request that was answered."""
        self._open: dict[str, _Turn] = {}
        self._judged: dict[str, int | None] = {}
        self._sampled: dict[str, SampledIds] = {}

    async def ask(self, messages: ChatMessages, ask: Ask) -> Reply:
        """Answer as a gateway would; see ``ChatClient.ask``. A farewell gets an empty answer.

        Raises:
            RequestFailed: the context has no room for an answer; the failure is counted.
        """
        started = time.monotonic()
        self.requests += 1
        spoken = tuple(Message(one["role"], one["content"]) for one in messages)
        learns = ask.session is not None and ask.turn_type is TurnType.MAIN
        before = self._open.pop(str(ask.session), None) if learns else None
        if before is not None:
            after = spoken[len(before.messages) + 1 :]
            self._start(asyncio.create_task(self._judge(before, after)))
        prompt = self._prompt(spoken, before)
        number = self.requests
        request = self._request(prompt, ask)
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self.waiting.append(Waiting(None if ask.done else request, future))
        sampled, version = await future, self._version
        completion = new_id()
        text = self._parts.tokenizer.decode(sampled.ids)
        self._sampled[completion] = SampledIds(prompt, sampled.ids, sampled.logprobs)
        if learns and not ask.done:
            self._open[str(ask.session)] = _Turn(
                number, completion, spoken, prompt, sampled, text, version, request.temperature
            )
        reason = "stop" if sampled.ended else "length"
        seconds = time.monotonic() - started
        return Reply(completion, text, reason, len(sampled.ids), seconds, version)

    def _prompt(self, spoken: Sequence[Message], before: _Turn | None) -> list[int]:
        """Return a prompt, with the answer before it as it was sampled, as in a gateway."""
        rendered = self._parts.renderer.render(spoken).ids()
        if before is None:
            return rendered
        known = KnownTurn(tuple(before.prompt), tuple(before.sampled.ids))
        tokenizer = self._parts.tokenizer
        spliced = splice(
            known, rendered, self._token_bytes, tokenizer.eos_ids, tokenizer.special_ids
        ).ids
        return spliced if len(spliced) < self._parts.context_length else rendered

    def _request(self, prompt: list[int], ask: Ask) -> Request:
        """Return how an answer is sampled: what a gateway would make of it."""
        config = self._parts.config
        room = self._parts.context_length - len(prompt)
        if room < 1:
            failure = RequestFailed(f"the prompt's {len(prompt)} tokens leave no room to answer")
            self.failures.append(str(failure))
            raise failure
        temperature = ask.temperature
        if ask.turn_type is TurnType.MAIN and config.gateway.main_temperature is not None:
            temperature = config.gateway.main_temperature
        seed = ask.seed
        if seed is None:  # they differ from each other, and from run to run by the run's own
            self._unseeded += 1
            seed = (config.trainer.seed << 32) + self._unseeded
        return Request(prompt, min(ask.max_tokens, room), temperature, seed)

    async def _judge(self, turn: _Turn, after: Sequence[Message]) -> None:
        """Turn what came after an answer into a verdict, and perhaps a sample."""
        parts = self._parts
        answer = Message("assistant", turn.text)
        judgement = NOT_ASKED
        if parts.judge is not None:
            judgement = await parts.judge.judge(turn.messages, answer, after)
            self._judged[turn.completion] = judgement.score
        hints: tuple[str, ...] = ()
        if parts.hints is not None:
            hints = (await parts.hints.hints(turn.messages, answer, after)).hints
        spec = parts.algorithm.sample_spec(judgement, hints)
        tokens = len(turn.prompt) + len(turn.sampled.ids)
        fits = tokens <= parts.config.trainer.max_sample_tokens
        if isinstance(spec, SampleSpec) and fits and turn.version not in self._rejected:
            bisect.insort(self._ready, (turn.number, self._sample(turn, spec)), key=itemgetter(0))

    def _sample(self, turn: _Turn, spec: SampleSpec) -> TrainSample:
        return TrainSample(
            sample_id=turn.completion,
            turn_id=turn.completion,
            session_id=turn.completion,
            trajectory=None,
            prompt_ids=turn.prompt,
            answer_ids=turn.sampled.ids,
            logprobs=turn.sampled.logprobs,
            versions=(VersionRun(turn.version, len(turn.sampled.ids)),),
            temperature=turn.temperature,
            reward=spec.reward,
            hints=spec.hints,
            created_at=time.time(),
            messages=turn.messages,
        )

    @property
    def is_due(self) -> bool:
        """Whether a step could be taken now."""
        may_step = not self.left and not self._held and self._version < self._parts.updates
        return may_step and len(self._ready) >= self._parts.config.trainer.batch_size

    def take_waiting(self) -> list[Waiting]:
        """Return the requests that wait for their answers; they wait no longer."""
        taken, self.waiting = self.waiting, []
        return taken

    def leave(self) -> None:
        """Nobody talks here any more, and nobody waits."""
        self.left = True
        self.waiting = []

    def take(self) -> list[SignalledTurn]:
        """Use up one step's samples and return what they teach."""
        config = self._parts.config.trainer
        samples = [sample for _, sample in self._ready[: config.batch_size]]
        del self._ready[: config.batch_size]
        distances = {version: self._distance(version) for version in range(self._version + 1)}
        step = prepare_step(
            samples,
            self._parts.algorithm,
            config.loss,
            distances,
            self._version,
            self._parts.hinted,
        )
        self._trained += len(samples)
        self._taken = JudgedStep.of(step.metrics)
        return step.turns

    def advance(self, *, moved: bool) -> None:
        """Note that a step was taken, and forget samples that are too old by now.

        One that changed no weights, so that nothing ``moved``, makes none older.
        """
        # Of the steps before: what this one may go back to is still held then.
        self.held = worth_keeping(self._steps, self.held) | {self._version}
        if self._taken is not None:
            self._steps.append(self._taken)
        self._version += 1
        self.held.add(self._version)
        self._moves.append(self._moves[-1] + moved)
        most = self._parts.config.trainer.max_staleness
        self._ready = [one for one in self._ready if self._distance(one[1].oldest_version) <= most]

    @property
    def version(self) -> int:
        """The newest one."""
        return self._version

    @property
    def may_go_back(self) -> bool:
        """Whether it is to go back where its answers please far less."""
        return self._parts.config.trainer.auto_rollback and self._parts.judge is not None

    def relapse(self) -> Relapse | None:
        """Return how the answers have become worse; None if they have not.

        Going back makes a version, so that after the last update none is gone back from.
        """
        if self._version >= self._parts.updates:
            return None
        return find_relapse(self._steps, self.held)

    def go_back(self, version: int) -> None:
        """Note that an earlier version's weights are those of a new version now.

        Unlike in a whole system, where it has its old number, which measurements would mix up.
        """
        self.rollbacks += 1
        self._rejected |= set(range(version + 1, self._version + 1))
        self._version += 1
        self._moves.append(self._moves[version])
        self._steps, self.held = [], {self._version}
        self._ready = [one for one in self._ready if one[1].oldest_version <= version]

    def _distance(self, version: int) -> int:
        """Return how many steps that changed weights lie between a version and the newest."""
        return self._moves[-1] - self._moves[version]

    async def progress(self) -> Progress:
        """See ``Learner``."""
        return Progress(self._version, self._trained, len(self._ready), rollbacks=self.rollbacks)

    @asynccontextmanager
    async def serving(self, version: int) -> AsyncIterator[str]:
        """See ``Learner``. There is only the newest version: no step is taken meanwhile.

        Raises:
            RejoinderError: it is another one.
        """
        if version != self._version:
            raise RejoinderError(f"version {version} is gone; there is {self._version}")
        self._held += 1
        try:
            yield f"{self._parts.config.model.policy}@{version}"
        finally:
            self._held -= 1

    async def divergence(self, completions: Sequence[str], temperature: float) -> float | None:
        """See ``Learner``. Answers given before are forgotten then."""
        sampled = [self._sampled[one] for one in completions]
        self._sampled.clear()
        if not any(ids.answer for ids in sampled):
            return None
        policy = self._parts.config.model.policy
        return await start_divergence(self._parts.engine, policy, sampled, temperature)

    async def judged(self) -> dict[str, int | None]:
        """See ``Learner``."""
        return self._judged
