"""Benchmarks are scripts, not a package: their directory has to be on the path."""

import sys
from pathlib import Path

# At the end: some of their names are common words.
sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
