"""The judge of those who want explicit feedback only: next states are recorded, not judged."""

from __future__ import annotations

from collections.abc import Sequence

from rejoinder.judge.base import JudgeSetting, fingerprint_of
from rejoinder.types import Fate, Judgement, Message


class FeedbackJudge:
    """Never gives a verdict; ``/v1/feedback`` does. See ``Judge``."""

    fingerprint = fingerprint_of("feedback")

    async def judge(
        self,
        context: Sequence[Message],  # noqa: ARG002 - the protocol's signature
        answer: Message,  # noqa: ARG002
        next_state: Sequence[Message],  # noqa: ARG002
    ) -> Judgement:
        """Return *no verdict* for the reason ``no_signal``."""
        return Judgement(score=None, votes=(), fingerprint=self.fingerprint, why=Fate.NO_SIGNAL)

    async def check(self) -> None:
        """It needs nothing."""

    async def close(self) -> None:
        """It holds nothing."""


def build(setting: JudgeSetting) -> FeedbackJudge:  # noqa: ARG001 - the builders' signature
    """Return the judge."""
    return FeedbackJudge()
