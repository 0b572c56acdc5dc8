"""The page of protocols says of Rejoinder nothing that no test shows.

That the page is made of its data is in ``tests/unit/cli/test_reference_pages.py``.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]
TESTS = REPOSITORY / "tests"
TABLES: list[dict[str, Any]] = tomllib.loads(
    (REPOSITORY / "docs" / "reference" / "protocols.toml").read_text("utf-8")
)["tables"]
ROWS = [
    pytest.param(table, row, id=f"{table['title']}: {row['feature']}")
    for table in TABLES
    for row in table["rows"]
]
CELL = re.compile(r"(yes|partly|no|passed on|\?|–)(, \S[^|\n]*)?")


def names_in(path: str) -> set[str]:
    """The names of a file's test functions, which is read and not imported."""
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, functions)}


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_every_row_has_a_cell_of_known_words_in_each_column(table, row):
    assert len(row["others"]) == len(table["columns"])
    for cell in (*row["others"], row["rejoinder"]):
        assert CELL.fullmatch(cell), cell


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_what_is_said_of_rejoinder_names_tests_that_there_are(table, row):
    """A bare "no" claims nothing; what is refused or tolerated is behaviour, and has its test."""
    assert row["rejoinder"] in ("no", "–") or row["tests"], "no test shows it"
    for named in row["tests"]:
        path, _, name = named.partition("::")
        assert name in names_in(path), named


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_nothing_is_unknown_or_left_to_others_in_rejoinders_own_column(table, row):
    assert not row["rejoinder"].startswith(("?", "passed on"))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["title"])
def test_no_feature_stands_twice_in_a_table(table):
    features = [row["feature"] for row in table["rows"]]
    assert len(features) == len(set(features))
