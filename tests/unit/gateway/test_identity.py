"""Session and kind of a request: from header, body, or metadata."""

from __future__ import annotations

import pytest

from rejoinder.config import GatewayConfig
from rejoinder.gateway.body import ChatBody
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.identity import read_identity
from rejoinder.types import TurnType


def identity(headers: dict[str, str] | None = None, **fields: object):
    raw = {name.encode(): value.encode("latin-1") for name, value in (headers or {}).items()}
    return read_identity(raw, ChatBody(messages=[], **fields), (), GatewayConfig())


def test_a_request_that_says_nothing_is_a_main_turn_of_a_derived_session():
    found = identity()
    assert (found.session, found.turn_type, found.done, found.retried) == (
        None, TurnType.MAIN, False, False,
    )  # fmt: skip


def test_empty_and_blank_names_are_no_names():
    assert (
        identity({"x-session-id": " "}, session_id="", metadata={"session_id": ""}).session is None
    )


@pytest.mark.parametrize(
    ("value", "done"), [("1", True), ("Yes", True), ("on", True), ("0", False), ("no", False)]
)
def test_the_end_mark_takes_the_usual_words(value, done):
    assert identity({"x-session-done": value}).done is done


@pytest.mark.parametrize(("value", "retried"), [("0", False), ("1", True), ("2", True)])
def test_the_retry_count_of_official_clients_marks_a_retry(value, retried):
    assert identity({"x-stainless-retry-count": value}).retried is retried


@pytest.mark.parametrize("metadata", [{"session_id": 5}, {"session_id": "x" * 257}])
def test_a_session_id_that_is_no_short_string_is_refused(metadata):
    with pytest.raises(ApiError) as caught:
        identity(metadata=metadata)
    assert caught.value.param == "session_id"
