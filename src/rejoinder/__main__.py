"""``python -m rejoinder``: the same commands as the ``rejoinder`` script."""

from __future__ import annotations

from rejoinder.cli.main import app

if __name__ == "__main__":
    app()
