"""Logs: one form for all, and no secret in them."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from rejoinder.config import Config, LlmHintsConfig, LlmJudgeConfig
from rejoinder.log import secrets_of, set_up_logging

SECRET = "sk-TEST-123"


@pytest.fixture
def output():
    """A stream that collects the log; what was set up before is restored."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_lines_are_json_objects_with_event_level_and_time(output):
    set_up_logging("info", as_json=True, stream=output)
    structlog.get_logger("rejoinder.test").info("hello", turns=3)
    logging.getLogger("library").warning("old %s", "style")
    first, second = map(json.loads, output.getvalue().splitlines())
    assert (first["event"], first["level"], first["turns"]) == ("hello", "info", 3)
    assert first["logger"] == "rejoinder.test"
    assert (second["event"], second["level"]) == ("old style", "warning")


def test_the_level_holds_for_both_kinds_of_loggers(output):
    set_up_logging("warning", as_json=True, stream=output)
    structlog.get_logger("a").info("quiet")
    logging.getLogger("b").info("quiet")
    assert output.getvalue() == ""


@pytest.mark.parametrize("as_json", [True, False])
def test_no_key_appears_in_any_line_whatever_way_it_takes(output, as_json):
    set_up_logging("debug", as_json=as_json, secrets=["open-sesame"], stream=output)
    log = structlog.get_logger("a")
    log.info("request", authorization=f"Bearer {SECRET}", headers={"Authorization": SECRET})
    log.info("nested", config={"judge": {"api_key": SECRET}})
    log.debug("calling with %s", f"Bearer {SECRET}")
    log.warning("REJOINDER_API_KEYS=acme:alice:open-sesame is set")
    logging.getLogger("uvicorn.error").error("header %s", {"authorization": f"Bearer {SECRET}"})
    log.info("database", url="postgresql://user:open-sesame2@host/db")
    try:
        raise ValueError(f"refused key {SECRET} and open-sesame")
    except ValueError:
        log.exception("failed")
    text = output.getvalue()
    assert SECRET not in text
    assert "TEST-123" not in text
    assert "open-sesame" not in text
    assert "refused key [redacted]" in text


def test_secrets_come_from_the_variables_the_configuration_names(monkeypatch):
    monkeypatch.setenv("REJOINDER_API_KEYS", "acme:alice:key-one,other:bob:key:two")
    monkeypatch.setenv("JUDGE_KEY", "key-three")
    monkeypatch.setenv("HINTS_KEY", "key-four")
    config = Config(judge=LlmJudgeConfig(api_key_env="JUDGE_KEY"))
    assert secrets_of(config) == ["key-one", "key:two", "key-three"]
    config = Config(
        judge=LlmJudgeConfig(api_key_env="JUDGE_KEY"), hints=LlmHintsConfig(api_key_env="HINTS_KEY")
    )
    assert secrets_of(config) == ["key-one", "key:two", "key-three", "key-four"]
