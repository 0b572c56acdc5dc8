"""Judges: what came after an answer becomes a verdict."""

from rejoinder.judge.base import Judge, JudgeSetting

__all__ = ["Judge", "JudgeSetting"]
