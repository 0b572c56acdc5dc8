"""Who draws hints follows from the algorithm, so that methods can be compared with one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rejoinder.config import Config, ExtractiveHintsConfig, LlmHintsConfig
from rejoinder.evaluation.personas.settings import DEFAULT, system_config
from rejoinder.launch.checks import faults

LLM = LlmHintsConfig(base_url="http://127.0.0.1:9/v1", model="m")


@pytest.mark.parametrize(
    ("base", "algorithm", "kind"),
    [
        (Config(), "binary", "off"),
        (Config(), "combine", "extractive"),
        (Config(hints=ExtractiveHintsConfig()), "binary", "off"),
        (Config(hints=LLM), "opd", "llm"),
    ],
)
def test_every_algorithm_gets_what_it_learns_from(
    base: Config, algorithm: str, kind: str, tmp_path: Path
) -> None:
    found = system_config(base, DEFAULT, algorithm, 0, tmp_path)
    assert found.hints.kind == kind
    assert faults(found) == []
