"""People who talk to the system at the same time and reply to each answer; with token times."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp

from rejoinder.evaluation.questions import Split, load_questions

PRAISE = (
    "Thank you, that is exactly what I wanted to know.",
    "Perfect, that helps a lot, thanks!",
    "Great answer, thank you.",
    "Yes, that is right. Thanks!",
)
COMPLAINT = (
    "No, that is wrong. That does not answer my question.",
    "That is not what I asked. Try again, please.",
    "This is much too long and not helpful at all.",
    "I don't understand this, it makes no sense.",
)


@dataclass(slots=True)
class Answer:
    """One streamed answer."""

    started: float
    """``time.time()`` of the request."""
    completion_id: str = ""
    text: str = ""
    finish_reason: str | None = None
    max_tokens: int = 0
    """How many it was allowed to have."""
    tokens: int | None = None
    """How many it has, as its ``usage`` says; None where no usage came."""
    done: bool = False
    """``[DONE]`` has arrived."""
    error: str | None = None
    arrivals: list[float] = field(default_factory=list)
    """``time.time()`` of each event with text."""

    @property
    def whole(self) -> bool:
        """Whether it ended as an answer should: by itself, or with all tokens it may have."""
        if self.error is not None or not self.done:
            return False
        full = self.tokens is not None and self.tokens == self.max_tokens
        return self.finish_reason == "stop" or (self.finish_reason == "length" and full)

    @property
    def truncated(self) -> bool:
        """Whether it broke off and yet was given out as an answer that ended."""
        return self.error is None and self.done and not self.whole


class Talkers:
    """``count`` people; each asks, replies to the answer, and begins anew.

    Args:
        address: ``http://host:port``.
        count: how many talk at the same time.
        max_tokens: of each answer.
        heard: called with every answer, whole or not.
        seed: of questions and replies.
    """

    def __init__(
        self,
        address: str,
        count: int,
        max_tokens: int,
        heard: Callable[[Answer], None],
        seed: int = 0,
    ) -> None:
        self._address = address
        self._count = count
        self._max_tokens = max_tokens
        self._heard = heard
        self._random = random.Random(seed)
        questions = load_questions(Split.TRAINING)
        self._questions = itertools.cycle(self._random.sample(questions, len(questions)))
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Let everybody finish the answer that is being given."""
        self._stop.set()

    async def talk(self) -> None:
        """Talk until stopped."""
        timeout = aiohttp.ClientTimeout(total=600)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            await asyncio.gather(*(self._person(http) for _ in range(self._count)))

    async def _person(self, http: aiohttp.ClientSession) -> None:
        while not self._stop.is_set():
            messages = [{"role": "user", "content": next(self._questions).text}]
            answer = await self._ask(http, messages)
            if not answer.whole:
                await asyncio.sleep(0.5)  # a person waits before trying again
                continue
            messages.append({"role": "assistant", "content": answer.text})
            # The rule is simple on purpose: what is learnt is not what is measured here.
            pleased = "\n" not in answer.text.strip()
            reply = self._random.choice(PRAISE if pleased else COMPLAINT)
            messages.append({"role": "user", "content": reply})
            await self._ask(http, messages)

    async def _ask(self, http: aiohttp.ClientSession, messages: list[dict[str, str]]) -> Answer:
        answer = Answer(time.time(), max_tokens=self._max_tokens)
        body = {
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": self._max_tokens,
            "temperature": 0.8,
        }
        try:
            async with http.post(f"{self._address}/v1/chat/completions", json=body) as response:
                if response.status != 200:
                    answer.error = f"status {response.status}: {(await response.text())[:200]}"
                else:
                    async for line in response.content:
                        read_event(line, answer)
        except (aiohttp.ClientError, TimeoutError) as error:
            answer.error = f"{type(error).__name__}: {error}"
        self._heard(answer)
        return answer


def read_event(line: bytes, answer: Answer) -> None:
    """Take one line of an event stream into the answer."""
    if not line.startswith(b"data: "):
        return
    now = time.time()
    data = line[len(b"data: ") :].strip()
    if data == b"[DONE]":
        answer.done = True
        return
    event = json.loads(data)
    if "error" in event:
        answer.error = str(event["error"]["message"])
        return
    answer.completion_id = event["id"]
    if event.get("usage") is not None:
        answer.tokens = event["usage"]["completion_tokens"]
    if not event["choices"]:  # the event that tells the usage
        return
    choice = event["choices"][0]
    answer.finish_reason = choice["finish_reason"] or answer.finish_reason
    if text := choice["delta"].get("content"):
        answer.text += text
        answer.arrivals.append(now)
