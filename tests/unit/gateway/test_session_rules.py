"""The rules that the how-to shows are ones that the configuration takes and that find an id."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rejoinder.config import SessionRule, load_config
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.session_rules import find_session
from rejoinder.types import Message

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "clients-without-headers.md"


@pytest.fixture
def rules(tmp_path: Path) -> dict[str, SessionRule]:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "rejoinder.toml").write_text(example, "utf-8")
    found = load_config(tmp_path / "rejoinder.toml").gateway.session_rules
    return {rule.name: rule for rule in found}


@pytest.mark.parametrize(
    ("name", "id_"),
    [("chat-header", "h-1"), ("cache-key", "k 1"), ("user-id", "u-1"), ("prompt", "c-1")],
)
def test_each_rule_of_the_how_to_finds_its_id(
    rules: dict[str, SessionRule], name: str, id_: str
) -> None:
    request = TurnRequest(
        messages=(Message("system", "Be kind.\nConversation: c-1\n"), Message("user", "Hi")),
        prompt_cache_key="k 1",
        metadata={"user_id": "x_session_u-1"},
    )
    headers = {b"x-conversation-id": b"h-1"}
    assert find_session([rules[name]], headers, request) == (id_, name)
