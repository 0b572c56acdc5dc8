"""Evaluation: simulated people, rules and the demonstration."""
