"""Files that the documents print can be used as they stand there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from rejoinder.config import Config, load_config
from rejoinder.evaluation.personas.persona import parse_persona

DOCS = Path(__file__).parents[3] / "docs"
_BLOCK = re.compile(r"^```toml\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[str]:
    return _BLOCK.findall((DOCS / page).read_text("utf-8"))


def test_the_persona_that_is_shown_is_a_whole_one() -> None:
    """It had its phrases left out, so that the commands above it refused it."""
    (text,) = blocks("how-to/write-a-persona.md")
    assert parse_persona(text, "the example", None).name == "whisperer"


@pytest.mark.parametrize(
    "page", [page.relative_to(DOCS).as_posix() for page in sorted(DOCS.rglob("*.md"))]
)
def test_configurations_that_are_shown_have_no_unknown_key(page: str, tmp_path: Path) -> None:
    for text in blocks(page):
        if not {*tomllib.loads(text)} <= {*Config.model_fields}:
            continue  # of another program, or a persona
        file = tmp_path / "rejoinder.toml"
        file.write_text(text)
        load_config(file)
