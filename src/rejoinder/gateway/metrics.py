"""Prometheus metrics of the gateway, right with one worker and with several.

With several workers each writes its figures into files that prometheus-client merges on a scrape;
the directory must be in the environment before that library is imported (``server.py`` sees to it).
"""

from __future__ import annotations

import os
from functools import cache

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)


class GatewayMetrics:
    """All of them; names are stable, documented in ``docs/reference/http-api.md``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            made = Counter(f"rejoinder_gateway_{name}", text, labels, registry=self.registry)
            # The library keeps one child per set of labels, and looks for it under a lock.
            made.labels = cache(made.labels)  # type: ignore[method-assign]
            return made

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(
                f"rejoinder_gateway_{name}", text, registry=self.registry, buckets=_SECONDS
            )

        self.requests = counter("requests_total", "Requests for turns by end", "end")
        self.errors = counter("errors_total", "Error responses", "status", "code")
        self.tokens = counter("tokens_total", "Tokens served", "kind")
        self.turns = counter("turns_total", "Turns by type and end", "type", "end")
        self.links = counter("links_total", "How requests were linked", "outcome")
        self.splices = counter("splices_total", "How prompts continue earlier turns", "outcome")
        self.ignored = counter("ignored_fields_total", "Body fields without effect", "field")
        self.unrecorded = counter("unrecorded_turns_total", "Answers that no journal row confirms")
        self.feedback = counter("feedback_total", "Explicit feedback", "outcome")
        self.request_seconds = seconds("request_seconds", "Arrival to last byte")
        self.first_token_seconds = seconds("first_token_seconds", "Arrival to first token")
        self.active = Gauge(
            "rejoinder_gateway_active_requests",
            "Requests in progress",
            registry=self.registry,
            multiprocess_mode="livesum",
        )

    def render(self) -> bytes:
        """Return the exposition text, of all workers where there are several."""
        registry = self.registry
        if os.environ.get(MULTIPROCESS_VARIABLE):
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
