"""The APIs that clients speak. Each reads and writes the one internal turn in its own form."""
