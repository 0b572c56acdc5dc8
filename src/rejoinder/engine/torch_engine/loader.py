"""The thread that reads new versions and frees old ones beside the engine's thread."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog
import torch

from rejoinder.engine.base import VersionSource
from rejoinder.engine.torch_engine.build import Builder
from rejoinder.engine.torch_engine.versions import Weights
from rejoinder.errors import EngineUnavailable, UnknownVersion
from rejoinder.models.embedded import local_path, resolve_model
from rejoinder.types import WeightsKind

log = structlog.get_logger(__name__)

_NICE = 5
"""Lower priority than decoding; not below a trainer's, which else keeps new versions waiting."""
_LONGEST_PAUSE_S = 0.02


class Loader:
    """Builds and frees weights with one core, at low priority, in pieces with pauses between.

    ``is_busy`` says whether anybody waits for tokens; only then are there pauses.
    """

    def __init__(self, builder: Builder, is_busy: Callable[[], bool]) -> None:
        self._builder = builder
        self._is_busy = is_busy
        self._closed = False
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="engine-loader")
        self._executor.submit(_give_way).result()

    async def build(self, source: VersionSource) -> Weights:
        """Read and lay out a version.

        Raises:
            EngineUnavailable: the engine is closed, or is being closed meanwhile.
            UnknownVersion: it cannot be loaded.
        """
        if self._closed:
            raise EngineUnavailable("the engine is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._build, source)

    def free(self, weights: list[Weights]) -> None:
        """Drop the last references: returning memory takes a while."""
        self._executor.submit(_free, weights)

    def close(self) -> None:
        """End a build under way, and take no more."""
        self._closed = True
        self._executor.shutdown(wait=False)

    def _build(self, source: VersionSource) -> Weights:
        try:
            base = resolve_model(source.base_uri)
            adapter = source.kind is WeightsKind.LORA
            path = local_path(source.uri) if adapter else resolve_model(source.uri)
            return Weights(source, self._builder.build(path, base, self._pauses()))
        except EngineUnavailable:
            raise
        except Exception as error:
            # Readers of three libraries meet files that may be broken in any way; whatever they
            # raise concerns this version only, and must not end who follows the registry.
            log.warning("version cannot be loaded", version=source.version, exc_info=True)
            raise UnknownVersion(
                f"version {source.version} of {source.policy!r} cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _pauses(self) -> Callable[[], None]:
        """Return a function that sleeps as long as the work since its last call took.

        Loading thus takes at most half of one core while somebody waits for tokens.
        """
        worked_since = time.perf_counter()

        def pause() -> None:
            nonlocal worked_since
            if self._closed:
                raise EngineUnavailable("the engine was closed")
            if self._is_busy():
                time.sleep(min(time.perf_counter() - worked_since, _LONGEST_PAUSE_S))
            worked_since = time.perf_counter()

        return pause


def _give_way() -> None:
    """Use one core, at low priority (this thread only)."""
    # PyTorch gives a thread the number that was set last, by whichever thread, when it first needs
    # it, and what the thread itself had set is lost: asking makes that happen now.
    torch.get_num_threads()
    torch.set_num_threads(1)
    if sys.platform == "linux":  # elsewhere a priority is the whole process's
        thread = threading.get_native_id()
        wanted = max(_NICE, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, wanted)


def _free(weights: list[Weights]) -> None:
    weights.clear()
    _trim()


def _trim() -> None:
    """Give freed memory back to the system.

    glibc keeps blocks of this size for the next version, which by then finds them fragmented: a
    whole version stays resident beside those in use, and some megabytes more with every load.
    """
    if sys.platform == "linux" and _malloc_trim is not None:
        _malloc_trim(0)


_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
