"""Checks of the system: configuration, ports, keys, database, engine, judge."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from rejoinder.algorithms.registry import build_algorithm
from rejoinder.cli.checkup import Check, Finding, fail, ok, warn
from rejoinder.cli.journal import journal_file, open_journal
from rejoinder.config import LOOPBACK, Config, LlmJudgeConfig, LlmVotesConfig, TorchEngineConfig
from rejoinder.engine.base import Engine
from rejoinder.engine.connect import connect_engine
from rejoinder.errors import EngineError, JudgeError, RejoinderError
from rejoinder.gateway.auth import KEYS_VARIABLE, load_keys
from rejoinder.journal.learning import is_alive
from rejoinder.judge.base import Judge
from rejoinder.judge.factory import build_judge, build_judges
from rejoinder.judge.hints.factory import build_hint_judge
from rejoinder.judge.role import judge_setting
from rejoinder.launch.checks import faults
from rejoinder.launch.home import exposure, starter
from rejoinder.launch.ports import PortTaken, bind_port
from rejoinder.types import Fate, Judgement, Message

_QUESTION = (Message("user", "What is the capital of France?"),)
_ANSWER = Message("assistant", "The capital of France is Paris.")
_PRAISE = (Message("user", "Perfect, thank you! That is exactly what I wanted to know."),)
_NEEDS_ENGINE = "it needs the engine: start `rejoinder up`"


def configuration(config: Config) -> Iterator[Finding]:
    """Rule by rule: can this configuration learn?"""
    found = faults(config)
    for fault in found:
        yield fail("configuration", "cannot learn or work", fault)
    if not found:
        yield ok("configuration", "can serve, judge and train")


def keys(config: Config) -> Iterator[Finding]:
    """Who may call, and who could."""
    count = len(load_keys(config.gateway))
    host = config.gateway.host
    if count:
        yield ok("keys", f"{count} keys; gateway on {host}")
    elif host in LOOPBACK:
        yield ok("keys", f"none needed: the gateway is on {host}, which only this machine reaches")
    else:
        yield fail("keys", f"{host} without keys", f"set {KEYS_VARIABLE}=tenant:name:key")


def home(config: Config) -> Iterator[Finding]:
    """Nobody else reads conversations."""
    problem = exposure(config)
    if problem is None:
        yield ok("home", f"{config.home_path} is its owner's only")
    else:
        yield warn("home", str(config.home_path), problem)


def ports(config: Config) -> Iterator[Finding]:
    """The gateway's and the engine's port are free, or this home's own system has them."""
    wanted = [("gateway.port", config.gateway.host, config.gateway.port)]
    if isinstance(config.engine, TorchEngineConfig):
        wanted.append(("engine.port", config.engine.host, config.engine.port))
    ours = _ports_in_use(config)
    for key, host, port in wanted:
        try:
            bind_port(host, port, key).close()
        except PortTaken as error:
            if (key, port) in ours:
                yield ok(key, f"{port} on {host} is in use by the running system")
            elif starter(config) is not None and not ours:
                remedy = "the system of this home is starting and may have it: try again in a while"
                yield warn(key, f"{port} on {host} is taken", remedy)
            else:
                yield fail(key, f"{port} on {host}", str(error))
        else:
            yield ok(key, f"{port or 'any'} on {host} is free")


def _ports_in_use(config: Config) -> set[tuple[str, int]]:
    """Return key and number of each port that a living role of this home reports as its own.

    What answers on a port says nothing of whose it is: another home's gateway answers as well.
    """
    if not journal_file(config).is_file():
        return set()
    with open_journal(config) as journal:
        roles = journal.status(config.model.policy, config.trainer.max_staleness)["roles"]
    return {
        (f"{role['role']}.port", role["detail"]["port"])
        for role in roles
        if is_alive(role) and "port" in role["detail"]
    }


def database(config: Config) -> Iterator[Finding]:
    """The journal opens and its file is sound."""
    from rejoinder.journal.sql import SqlJournal

    if not journal_file(config).is_file():
        yield ok("database", f"{config.journal_url} will be made at the first start")
        return
    with SqlJournal(config.journal_url) as journal, journal.database.connect() as connection:
        said = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
    if said == "ok":
        yield ok("database", f"{config.journal_url} is sound")
    else:
        remedy = "stop the system, keep a copy of the file, and restore it from a backup"
        yield fail("database", str(said), remedy)


def engine_and_judge(config: Config) -> Iterator[Finding]:
    """The engine answers, and the judge judges one plain answer."""
    yield from asyncio.run(_engine_and_judge(config))


async def _engine_and_judge(config: Config) -> list[Finding]:
    if not isinstance(config.engine, TorchEngineConfig):
        return []
    engine = connect_engine(config)
    try:
        info = await engine.info()
        live = ", ".join(f"{policy}@{version}" for policy, version in info.live.items())
        findings = [ok("engine", f"serves {live}")]
    except EngineError:
        findings = [warn("engine", "does not run", "start the system with `rejoinder up`")]
    try:
        engine_runs = findings[0].state == "ok"
        findings.append(await _judge(config, engine, engine_runs=engine_runs))
        findings += await _try_hints(config, engine, engine_runs=engine_runs)
    finally:
        await engine.close()
    return findings


async def _judge(config: Config, engine: Engine, *, engine_runs: bool) -> Finding:
    try:
        if not build_algorithm(config.trainer).needs_verdicts:
            name = config.trainer.algorithm
            return ok("judge", f"not asked: {name!r} learns from hints, not from verdicts")
        judge = _build_judge(config, engine)
        try:
            return await _try_judge(config, judge, engine_runs=engine_runs)
        finally:
            await judge.close()
    except RejoinderError as error:
        return fail("judge", config.judge.kind, str(error))


def _build_judge(config: Config, engine: Engine) -> Judge:
    """Return the judge as its process would build it: with a hint beside each score, or not."""
    setting = judge_setting(config, engine)
    if config.hints.kind != "judge":
        return build_judge(setting)
    judge, _ = build_judges(setting, config.hints, needs_verdicts=True)
    assert judge is not None
    return judge


async def _try_hints(config: Config, engine: Engine, *, engine_runs: bool) -> list[Finding]:
    kind = config.hints.kind
    asked = config.judge if kind == "judge" else config.hints
    on_engine = isinstance(asked, LlmVotesConfig) and asked.base_url is None
    try:
        hints = build_hint_judge(judge_setting(config, engine), config.hints)
        if hints is None:
            return []
        try:
            if on_engine and not engine_runs:
                return [warn("hints", f"{kind}: not tried", _NEEDS_ENGINE)]
            await hints.check()
        finally:
            await hints.close()
    except RejoinderError as error:
        return [fail("hints", kind, str(error))]
    return [ok("hints", f"{kind}: drawn from what replies say")]


async def _try_judge(config: Config, judge: Judge, *, engine_runs: bool) -> Finding:
    kind = config.judge.kind
    remote = isinstance(config.judge, LlmJudgeConfig) and config.judge.base_url is not None
    if kind == "feedback":
        return ok("judge", "only explicit feedback scores answers")
    if not engine_runs and not remote and kind != "callable":
        return warn("judge", f"{kind}: not tried", _NEEDS_ENGINE)
    try:
        await judge.check()
        judgement = await judge.judge(_QUESTION, _ANSWER, _PRAISE)
    except (EngineError, JudgeError) as error:
        return fail("judge", kind, str(error))
    return _judged(kind, judgement)


def _judged(kind: str, judgement: Judgement) -> Finding:
    if judgement.score is None:
        said = judgement.votes[-1].reason if judgement.votes else "no votes"
        unsure = judgement.why is Fate.JUDGE_UNSURE
        remedy = "a praised answer should get +1: try another judge or model" if unsure else said
        return fail("judge", f"{kind}: no verdict ({judgement.why})", remedy)
    text = f"{kind}: scores a praised answer {judgement.score:+d} in {judgement.seconds:.1f} s"
    if judgement.score > 0:
        return ok("judge", text)
    return warn("judge", text, "a good answer should get +1: try another judge or model")


CHECKS: dict[str, Check] = {
    "configuration": configuration,
    "keys": keys,
    "home": home,
    "ports": ports,
    "database": database,
    "engine": engine_and_judge,
}
