"""The policy registry and how versions reach engines."""
