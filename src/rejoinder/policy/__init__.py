"""The policy registry: versions, their files, and how they reach engines."""
