"""Simulated people with a wish: what they ask, when they are content, and what a system learns."""
