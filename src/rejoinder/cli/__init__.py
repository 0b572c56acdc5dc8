"""Commands only; every one is a thin call into a role."""
