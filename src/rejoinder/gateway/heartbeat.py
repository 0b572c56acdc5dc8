"""What a gateway process does beside serving: reports, engine watch, ends of idle sessions."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterable

import structlog

from rejoinder.gateway.health import problems
from rejoinder.gateway.service import Service
from rejoinder.journal.records import RoleReport
from rejoinder.processes import runs

log = structlog.get_logger(__name__)

HEARTBEAT_S = 5.0
PROBE_EVERY_S = 2.0
ROLE = "gateway"


def owner_prefix() -> str:
    """Return what the owner ids of all gateway processes of this machine begin with."""
    return f"{ROLE}:{socket.gethostname()}:"


def new_owner() -> str:
    """Return an id for a process that no other process ever has."""
    return f"{owner_prefix()}{os.urandom(8).hex()}"


def living(reports: Iterable[RoleReport]) -> list[str]:
    """Return the owner ids of this machine's gateway processes that still run.

    One had begun when it reported last. When it says it started is no better a measure: where the
    clock has been set forward since then, a living one would pass for a younger process.
    """
    prefix = owner_prefix()
    return [
        report.instance
        for report in reports
        if report.role == ROLE
        and report.instance.startswith(prefix)
        and runs(report.pid, max(report.seen_at, report.started_at + 1.0))
    ]


def report(service: Service, state: str) -> None:
    """Queue this process's heartbeat and counters."""
    error, at = service.last_error or (None, None)
    service.journal.report(
        RoleReport(
            role=ROLE,
            instance=service.owner,
            pid=os.getpid(),
            state=state,
            detail={
                "host": service.config.gateway.host,
                "port": service.config.gateway.port,
                "active": service.admission.active,
                "missing": problems(service),
            },
            last_error=error,
            last_error_at=at,
            started_at=service.started_at,
            seen_at=time.time(),
        )
    )
    service.recorder.flush_counts()


async def announce(service: Service, siblings: Iterable[str] = ()) -> None:
    """Report this process, then end the turns that dead ones left open.

    Waits until both are durable: nobody may take this process's own turns for left over.
    """
    loop = asyncio.get_running_loop()
    report(service, "starting")
    reports = await loop.run_in_executor(None, service.journal.reports)
    alive = {service.owner, *siblings, *living(reports)}
    ended = await asyncio.wrap_future(
        service.journal.abort_open_turns(owner_prefix(), sorted(alive))
    )
    if ended:
        log.warning("ended turns that a killed gateway left open", turns=ended)


async def watch_engine(service: Service) -> None:
    """Ask the engine for its state, for ever."""
    while True:
        before, never_answered = service.engine_problem, service.info is None
        await service.probe_engine()
        if service.engine_problem != before and before != "not asked yet":
            log.warning("engine", problem=service.engine_problem or "none any more")
        if service.engine_problem is not None:
            service.note_error(service.engine_problem)
        elif never_answered:
            service.forget_error(before)  # this was a start: to load a model is no failure
        await asyncio.sleep(PROBE_EVERY_S)


async def beat(service: Service) -> None:
    """Report, end idle sessions and see whether the journal takes writes, for ever."""
    while True:
        failures = service.recorder.failures
        state = "draining" if service.draining else "ready" if not problems(service) else "waiting"
        try:
            service.journal.check_file()
            report(service, state)
            idle_s = service.config.gateway.session_idle_s
            while await asyncio.wrap_future(service.journal.close_idle_sessions(idle_s)):
                pass  # some are closed at a time, so that serving is not held up
        except Exception as error:  # noqa: BLE001 - any journal's failure; tried again next time
            service.recorder.failed(f"heartbeat: {error}")
            service.note_error(f"journal: {error}")
            log.error("heartbeat failed", error=str(error))  # noqa: TRY400 - one line is enough
        else:
            service.recorder.succeeded(failures)
        await asyncio.sleep(HEARTBEAT_S)
