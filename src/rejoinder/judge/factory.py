"""From configuration to a judge; other packages add theirs by entry points."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from rejoinder.config import HintsConfig, JudgeHintsConfig, PluginJudgeConfig
from rejoinder.errors import ConfigError
from rejoinder.judge.base import Judge, JudgeSetting
from rejoinder.judge.hints.base import HintJudge
from rejoinder.judge.hints.factory import build_hint_judge

ENTRY_POINTS = "rejoinder.judges"
_BUILT_IN = {
    "likelihood": "rejoinder.judge.likelihood",
    "llm": "rejoinder.judge.llm",
    "callable": "rejoinder.judge.callable",
    "feedback": "rejoinder.judge.feedback",
}
"""Module of each kind; imported when it is picked, so that none costs the others' imports."""


def build_judges(
    setting: JudgeSetting, hints: HintsConfig, *, needs_verdicts: bool
) -> tuple[Judge | None, HintJudge | None]:
    """Build the judge, where verdicts are needed, and the hint judge, where hints are on.

    With ``hints.kind = "judge"`` they are one object, which answers both questions in one pass.

    Raises:
        ConfigError: one of them cannot work as configured.
    """
    if isinstance(hints, JudgeHintsConfig):
        from rejoinder.judge.one_pass import build

        both = build(setting)
        return both, both
    return build_judge(setting) if needs_verdicts else None, build_hint_judge(setting, hints)


def build_judge(setting: JudgeSetting) -> Judge:
    """Build the judge that ``setting.config`` picks.

    Raises:
        ConfigError: it cannot work as configured, or the plugin is not installed.
    """
    if isinstance(setting.config, PluginJudgeConfig):
        return _plugin(setting, setting.config.name)
    module = importlib.import_module(_BUILT_IN[setting.config.kind])
    judge: Judge = module.build(setting)
    return judge


def _plugin(setting: JudgeSetting, name: str) -> Judge:
    found = entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        names = ", ".join(sorted(found.names)) or "none"
        raise ConfigError(
            f"judge.name: no installed package offers the judge {name!r} (entry points of the "
            f"group {ENTRY_POINTS}: {names}); install the package or correct the name"
        )
    judge: Judge = found[name].load()(setting)
    return judge
