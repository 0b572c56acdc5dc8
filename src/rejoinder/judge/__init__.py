"""Judges: what came after an answer becomes a verdict."""
