"""Rejoinder: train an agent from the replies it gets, while people use it."""

__version__ = "0.1.0"
