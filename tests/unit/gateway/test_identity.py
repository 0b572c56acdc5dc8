"""Session and kind of a request: from header, body, or metadata."""

from __future__ import annotations

import pytest

from rejoinder.config import GatewayConfig, SessionRule
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.identity import URL_SESSION, read_identity
from rejoinder.gateway.request import TurnRequest
from rejoinder.types import Message, ToolCall, TurnType


def identity(
    headers: dict[str, str] | None = None, messages: tuple[Message, ...] = (), **fields: object
):
    raw = {name.encode(): value.encode("latin-1") for name, value in (headers or {}).items()}
    return read_identity(raw, TurnRequest(messages=messages, **fields), GatewayConfig())


def test_a_request_that_says_nothing_is_a_main_turn_of_a_derived_session():
    found = identity()
    assert (found.session, found.turn_type, found.done, found.retried) == (
        None, TurnType.MAIN, False, False,
    )  # fmt: skip


def test_empty_and_blank_names_are_no_names():
    assert (
        identity({"x-session-id": " "}, session_id="", metadata={"session_id": ""}).session is None
    )


def in_bytes(headers: dict[bytes, bytes]):
    return read_identity(headers, TurnRequest(messages=()), GatewayConfig())


def test_a_session_has_one_name_whether_header_url_or_body_give_it():
    written = "grüße-\u00e0".encode()  # its last byte alone would be a space that does not break
    in_header = in_bytes({b"x-session-id": b" " + written + b"\t"}).session
    assert in_header == written.decode() == in_bytes({URL_SESSION: written}).session
    assert in_header == identity(session_id=written.decode()).session


def test_names_that_differ_in_their_last_letter_are_two_sessions():
    # Read as Latin-1 and stripped, each of these lost its last byte to white space.
    names = [name.encode() for name in ("gr\u00c5", "gr\u00e0", "gr\u00c3")]
    assert len({in_bytes({b"x-session-id": name}).session for name in names}) == len(names)


def test_a_header_that_is_no_utf_8_is_latin_1():
    assert in_bytes({b"x-session-id": b"caf\xe9"}).session == "caf\u00e9"


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


def openclaw(session: str) -> Message:
    return Message("user", f"Hi\n\nRuntime: agent=main | session=a:b | sessionId={session} | os=x")


def ruled(*rules: dict, messages: tuple[Message, ...] = (), **body: object):
    config = GatewayConfig(session_rules=tuple(SessionRule(**rule) for rule in rules))
    headers = {b"x-conversation-id": b"conv 7"}
    return read_identity(headers, TurnRequest(messages=tuple(messages), **body), config)


@pytest.mark.parametrize(
    ("rule", "session"),
    [
        ({"look_in": "header.X-Conversation-Id"}, "conv 7"),
        ({"look_in": "header.X-Conversation-Id", "after": ("conv ",)}, "7"),
        ({"look_in": "header.X-Other"}, None),
        ({"look_in": "prompt_cache_key"}, "cache-1"),
        ({"look_in": "metadata.user_id", "after": ("_session_",)}, "5f3"),
        ({"look_in": "metadata.number"}, None),
        ({"look_in": "system", "after": ('"chat_id": "',)}, "c/1"),
        ({"look_in": "first_user", "after": ("Runtime:", "sessionId=")}, "e18"),
        ({"look_in": "first_user", "after": ("sessionId=", "Runtime:")}, None),
        ({"look_in": "first_user", "after": ("Hi",)}, None),
    ],
)
def test_a_rule_finds_an_id_where_it_is_told_to_look(rule, session):
    messages = (Message("system", '{"chat_id": "c/1"}'), openclaw("e18"), openclaw("later"))
    found = ruled(
        {"name": "r", **rule},
        messages=messages,
        prompt_cache_key="cache-1",
        metadata={"user_id": "user_1_session_5f3", "number": 5},
    )
    assert found.session == session
    assert found.session_by == (session and "rule r")


def test_the_first_rule_that_finds_an_id_decides():
    rules = [{"name": name, "look_in": f"metadata.{name}"} for name in ("a", "b", "c")]
    assert ruled(*rules, metadata={"b": "2", "c": "3"}).session_by == "rule b"


def test_an_id_that_is_too_long_is_none_and_not_cut_to_another():
    assert identity(messages=(openclaw("x" * 257),)).session is None
    assert identity(messages=(openclaw("x" * 256),)).session == "x" * 256


def test_openclaws_session_is_known_without_any_setting():
    assert identity(messages=(openclaw("e18-c1"),)).session == "e18-c1"
    assert identity(messages=(Message("user", "What is | sessionId=5 ?"),)).session is None


def test_marks_without_an_end_cost_no_more_than_the_length_of_the_text():
    """A pattern would begin anew at each of them: minutes for this text."""
    text = "\n\nRuntime: agent=" * 200_000
    assert identity(messages=(Message("user", text),)).session is None


@pytest.mark.parametrize(
    ("sent", "trace"),
    [
        (f"00-{'ab' * 16}-{'0' * 15}1-01", b"\xab" * 16),
        (f"01-{'ab' * 16}-{'0' * 15}1-01-more", b"\xab" * 16),
        (f"00-{'0' * 32}-{'0' * 15}1-01", None),
        (f"00-{'ab' * 16}-{'0' * 16}-01", None),
        (f"ff-{'ab' * 16}-{'0' * 15}1-01", None),
        (f"00-{'AB' * 16}-{'0' * 15}1-01", None),
        ("nonsense", None),
        ("", None),
    ],
)
def test_only_a_well_formed_traceparent_is_a_hint(sent, trace):
    assert identity({"traceparent": sent}).trace == trace


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        ((Message("user", "  Read HEARTBEAT.md if it exists"),), TurnType.SIDE),
        (
            (
                Message("user", "Read HEARTBEAT.md"),
                Message("assistant", "", tool_calls=(ToolCall("c", "read", "{}"),)),
                Message("tool", "empty", tool_call_id="c"),
            ),
            TurnType.SIDE,
        ),
        ((Message("user", "<conversation>\n[User]: Hi\n</conversation>"),), TurnType.SIDE),
        (
            (
                Message(
                    "user",
                    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n"
                    "- Do NOT use Read, Bash, Grep, Glob, Edit, Write, or ANY other tool.",
                ),
            ),
            TurnType.SIDE,
        ),
        (
            (
                Message(
                    "user",
                    "You are performing a CONTEXT CHECKPOINT COMPACTION. Create",
                ),
            ),
            TurnType.SIDE,
        ),
        ((Message("user", "An async command you ran earlier has completed."),), TurnType.SIDE),
        ((Message("user", "An async command in Python?"),), TurnType.MAIN),
        ((Message("user", "Read HEARTBEAT.md"), Message("user", "Hello")), TurnType.MAIN),
        ((Message("user", "What does 'Read HEARTBEAT.md' mean?"),), TurnType.MAIN),
        ((Message("system", "Read HEARTBEAT.md"),), TurnType.MAIN),
    ],
    ids=[
        "heartbeat",
        "its tool loop",
        "summary",
        "summary of Claude Code",
        "summary of Codex",
        "ended command",
        "a question about commands",
        "a person after it",
        "quoted",
        "no user",
    ],
)
def test_a_programs_own_request_is_known_by_its_opening(messages, kind):
    assert identity(messages=messages).turn_type is kind
