"""Algorithms: verdicts become samples, and samples become a signal for each token."""

from rejoinder.algorithms.base import Algorithm, TokenSignal
from rejoinder.algorithms.registry import build_algorithm

__all__ = ["Algorithm", "TokenSignal", "build_algorithm"]
