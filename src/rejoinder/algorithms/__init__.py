"""Algorithms: turns and verdicts become per-token signals and the name of a loss."""
