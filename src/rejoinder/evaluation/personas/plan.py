"""What runs of the persona benchmark are to be made, and what cannot work about it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from rejoinder.config import Config
from rejoinder.errors import RejoinderError
from rejoinder.evaluation.client import ChatClient
from rejoinder.evaluation.personas.persona import Persona
from rejoinder.evaluation.personas.settings import DEFAULT, BenchmarkSettings
from rejoinder.net import is_local

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_NAMES = 150
"""Beside a method of 64 characters, seed and suffixes: file systems take 255 bytes."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to learn that runs are made of."""

    name: str
    """What reports and files call it."""
    algorithm: str
    config: Config
    """What it sets stands; see ``system_config``."""

    @classmethod
    def of(cls, name: str, config: Config) -> Method:
        """Return the method that a configuration is."""
        return cls(name, config.trainer.algorithm, config)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An HTTP API and its key."""

    url: str
    """``http://host:port``, or with a path, as in ``https://host/api``; ``/v1`` may follow."""
    key: str | None = field(default=None, repr=False)
    model: str | None = None

    @property
    def root(self) -> str:
        """The address without ``/v1``.

        Raises:
            RejoinderError: it is no such address.
        """
        root = self.url.rstrip("/").removesuffix("/v1")
        parts = urlsplit(root)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
            raise RejoinderError(f"{self.url!r} is not of the form http://host:port/v1")
        if "@" in parts.netloc:  # it would be kept with every run
            raise RejoinderError("give the address of an endpoint without a key or password in it")
        return root

    def client(self) -> ChatClient:
        """Return a client for it, to be entered."""
        return ChatClient(self.root, self.key)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which runs to make: every group of personas with every method and seed."""

    groups: tuple[tuple[Persona, ...], ...]
    """Personas of a group talk to one system, mixed."""
    methods: tuple[Method, ...]
    """Reports compare the others with the first."""
    seeds: tuple[int, ...] = (0,)
    settings: BenchmarkSettings = DEFAULT
    gateway: Endpoint | None = None
    """A running one; None: each run starts a system of its own."""
    voice: Endpoint | None = None
    """A model that plays the people; None: phrasebooks speak."""
    external_voice: bool = False
    """Whether ``voice`` may be off this machine, where conversations go then."""
    packed: int = 0
    """Runs made at one time, side by side on one device; 0: one by one, each with a whole system
    of its own."""

    def check(self) -> None:
        """Refuse what cannot work, before anything is started.

        Raises:
            RejoinderError: with what to change.
        """
        if not self.groups:
            raise RejoinderError("name at least one persona")
        for group in self.groups:
            names = [persona.name for persona in group]
            if len(set(names)) < len(names):
                raise RejoinderError(
                    f"personas of one run need different names: {', '.join(names)}"
                )
            if len("+".join(names)) > _LONGEST_NAMES:
                raise RejoinderError(
                    f"the names of a run's personas name its file, and have {_LONGEST_NAMES} "
                    "characters together at most: let fewer talk to one system, or shorten names"
                )
        self._check_names()
        if self.packed and (self.gateway is not None or self.voice is not None):
            raise RejoinderError(
                "packed runs are made inside this process: leave out the running gateway and the "
                "model that plays the people"
            )
        if self.gateway is not None:
            self._check_gateway(self.gateway)
        if self.voice is not None:
            host = urlsplit(self.voice.root).hostname or ""
            if not is_local(host) and not self.external_voice:
                raise RejoinderError(
                    f"{host} is not this machine, and the people's conversations would go there; "
                    "allow it on purpose if that is wanted"
                )

    def _check_names(self) -> None:
        for name, count in Counter(method.name for method in self.methods).items():
            if count > 1:
                raise RejoinderError(f"{count} methods are called {name!r}: give each its own name")
            if not _NAME.fullmatch(name):
                raise RejoinderError(f"the name {name!r} names files: use letters, digits, - and _")

    def _check_gateway(self, gateway: Endpoint) -> None:
        _ = gateway.root
        runs = len(self.groups) * len(self.methods) * len(self.seeds)
        if runs > 1:
            raise RejoinderError(
                f"a running gateway keeps what it has learnt, so it can serve one run and not "
                f"{runs}: give one persona (or a joint run), one method and one seed"
            )
