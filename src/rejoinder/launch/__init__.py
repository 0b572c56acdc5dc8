"""Launchers: start, watch and restart roles."""
