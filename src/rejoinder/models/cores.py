"""Sharing few cores between processes that all compute."""

from __future__ import annotations

import os
import sys

import structlog

log = structlog.get_logger(__name__)

_SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


def share_cores() -> None:
    """Let PyTorch's idle worker threads sleep instead of spinning.

    By default threads spin at every barrier, which is fastest on an idle machine. Where a trainer
    and an engine share the cores, spinning threads keep the working ones of the other process
    waiting: decoding steps then take ten times as long. Must run before PyTorch is imported;
    variables already set in the environment win.
    """
    if "torch" in sys.modules and any(name not in os.environ for name in _SETTINGS):
        log.warning("share_cores has no effect: PyTorch is already imported")
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
