"""Evaluation: simulated people, rules, the persona benchmark and the demonstration."""
