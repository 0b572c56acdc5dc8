"""Hints: what an answer should have done, drawn from what came after it."""
