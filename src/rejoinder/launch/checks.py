"""Refuse early: configurations that cannot learn or cannot work do not start (rule 10).

Only what the configuration and the environment say is looked at, and the modules of the user's own
functions are imported: no model is loaded and nobody is called, so ``config show`` answers at once.
``doctor`` tries the rest.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from operator import attrgetter

from rejoinder.config import (
    CallableJudgeConfig,
    Config,
    LlmHintsConfig,
    LlmJudgeConfig,
    PluginJudgeConfig,
    ScriptedEngineConfig,
    TorchEngineConfig,
)
from rejoinder.errors import ConfigError, RejoinderError
from rejoinder.net import is_local
from rejoinder.paths import expanded


def faults(config: Config) -> list[str]:
    """Return why a configuration cannot learn or work, one line each; empty if it can."""
    return [fault for check in _CHECKS for fault in check(config)]


def refuse_faults(config: Config) -> None:
    """Raise what ``faults`` finds.

    Raises:
        ConfigError: all faults, a line each.
    """
    found = faults(config)
    if found:
        raise ConfigError("this configuration cannot work:\n" + "\n".join(f"  {f}" for f in found))


def _gateway(config: Config) -> Iterator[str]:
    from rejoinder.gateway.auth import load_keys

    yield from _refusal(lambda: load_keys(config.gateway))
    engine = config.engine
    if (
        isinstance(engine, TorchEngineConfig)
        and config.gateway.port == engine.port != 0
        and config.gateway.host == engine.host
    ):
        yield f"gateway.port and engine.port are both {engine.port}: change one of them"


def _engine(config: Config) -> Iterator[str]:
    if isinstance(config.engine, ScriptedEngineConfig):
        yield (
            "engine.kind = 'scripted' answers with fixed text, so nothing can be learnt: set it to "
            "'torch' (`rejoinder gateway` alone serves a scripted engine, for tests)"
        )
        return
    host = config.engine.host
    if not is_local(host):
        from rejoinder.engine.server import refuse_other_hosts

        yield from _refusal(lambda: refuse_other_hosts(host))
    if config.engine.cache_slots < config.engine.max_running:
        yield (
            f"engine.cache_slots = {config.engine.cache_slots} cannot hold engine.max_running = "
            f"{config.engine.max_running} sequences: raise cache_slots"
        )


def _model(config: Config) -> Iterator[str]:
    from rejoinder.models.embedded import EMBEDDED, refuse_missing

    if config.model.path != EMBEDDED:
        yield from _refusal(lambda: refuse_missing(config.model.path))


def _journal(config: Config) -> Iterator[str]:
    from rejoinder.journal.database import database_file

    yield from _refusal(lambda: database_file(config.journal_url))


def _judge(config: Config) -> Iterator[str]:
    judge = config.judge
    if not _judge_is_asked(config):
        return
    if isinstance(judge, LlmJudgeConfig):
        if judge.quorum is not None and judge.quorum > judge.votes:
            yield (
                f"judge.quorum = {judge.quorum} can never be reached with judge.votes = "
                f"{judge.votes}: lower the quorum"
            )
        if judge.base_url is not None:
            from rejoinder.judge.endpoint import EndpointCompleter

            yield from _refusal(lambda: EndpointCompleter(judge))
    elif isinstance(judge, CallableJudgeConfig):
        yield from _importable("judge.target", judge.target)
    elif isinstance(judge, PluginJudgeConfig):
        from importlib.metadata import entry_points

        from rejoinder.judge.factory import ENTRY_POINTS

        if judge.name not in entry_points(group=ENTRY_POINTS).names:
            yield f"judge.name: no installed package offers the judge {judge.name!r}"


def _judge_is_asked(config: Config) -> bool:
    """Whether the algorithm learns from verdicts; so it is said of one that cannot be built."""
    from rejoinder.algorithms.registry import build_algorithm

    try:
        return build_algorithm(config.trainer).needs_verdicts
    except ConfigError:  # a fault of the trainer, told there
        return True


def _hints(config: Config) -> Iterator[str]:
    hints = config.hints
    if isinstance(hints, LlmHintsConfig) and hints.base_url is not None:
        from rejoinder.judge.endpoint import EndpointCompleter

        yield from _refusal(lambda: EndpointCompleter(hints, section="hints"))


def _trainer(config: Config) -> Iterator[str]:
    from rejoinder.algorithms.registry import build_algorithm
    from rejoinder.judge.hints.factory import refuse_missing_hints
    from rejoinder.trainer.checks import training_faults
    from rejoinder.trainer.trackers import missing_packages

    trainer = config.trainer
    yield from _refusal(lambda: refuse_missing_hints(build_algorithm(trainer), config))
    yield from training_faults(trainer)
    yield from missing_packages(trainer.trackers)


def _evaluation(config: Config) -> Iterator[str]:
    evaluation = config.evaluation
    if not evaluation.every:
        return
    if evaluation.prompts and not expanded(evaluation.prompts).is_file():
        yield f"evaluation.prompts: there is no file {evaluation.prompts}"
    if evaluation.scorer:
        yield from _importable("evaluation.scorer", evaluation.scorer)


def _importable(key: str, target: str) -> Iterator[str]:
    module, _, name = target.partition(":")
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        found = False
    if not found:
        yield (
            f"{key}: there is no module {module!r}: start from the directory that holds it, or "
            "install its package"
        )
        return
    try:
        function = attrgetter(name)(importlib.import_module(module))
    except AttributeError:
        yield f"{key}: the module {module!r} has no {name!r}: name a function of it"
    except Exception as error:  # noqa: BLE001 - code of the user's, which may fail in any way
        yield f"{key}: importing {module!r} fails: {type(error).__name__}: {error}"
    else:
        if not callable(function):
            yield f"{key}: {target!r} is not callable: name a function"


def _refusal(attempt: Callable[[], object]) -> Iterator[str]:
    """Yield what a room's own check says, so that each rule is written once."""
    try:
        attempt()
    except RejoinderError as error:
        yield str(error)


_CHECKS: tuple[Callable[[Config], Iterator[str]], ...] = (
    _gateway,
    _engine,
    _model,
    _journal,
    _judge,
    _hints,
    _trainer,
    _evaluation,
)
