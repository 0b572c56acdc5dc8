from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.errors import JournalError
from rejoinder.journal import columns
from rejoinder.types import Message, Sampling, ToolCall, VersionRun, Vote

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=700)
calls = st.builds(ToolCall, texts, texts, texts)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts,
    name=st.none() | texts,
    tool_call_id=st.none() | texts,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    reasoning=st.none() | texts,
)


@given(st.lists(st.integers(0, 2**31 - 1)))
def test_ids_come_back_in_four_bytes_each(ids: list[int]) -> None:
    data = columns.encode_ids(ids)
    assert len(data) == 4 * len(ids)
    assert columns.decode_ids(data) == ids


def test_arrays_are_little_endian() -> None:
    assert columns.encode_ids([1, 256]) == b"\x01\0\0\0\0\x01\0\0"
    assert columns.encode_logprobs([-0.5]) == b"\0\0\0\xbf"


@given(st.lists(st.floats(-100, 0)))
def test_logprobs_come_back_far_within_the_parity_bound(logprobs: list[float]) -> None:
    found = columns.decode_logprobs(columns.encode_logprobs(logprobs))
    assert found == pytest.approx(logprobs, rel=1e-6, abs=1e-6)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(JournalError, match="fit a column"):
        columns.encode_ids([2**31])


def test_version_runs_come_back() -> None:
    runs = (VersionRun(3, 10), VersionRun(4, 2))
    assert columns.decode_versions(columns.encode_versions(runs)) == runs


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_is_noticed(bad: float) -> None:
    assert columns.all_finite([-0.5, -1.0])
    assert not columns.all_finite([-0.5, bad, -1.0])


def test_infinities_do_not_cancel_out() -> None:
    assert not columns.all_finite([math.inf, -math.inf])


@given(st.lists(messages, max_size=4))
def test_messages_come_back_with_long_contents_stored_apart(found: list[Message]) -> None:
    stored: dict[bytes, bytes] = {}

    def store(data: bytes) -> bytes:
        stored[columns.digest_of(data)] = data
        return columns.digest_of(data)

    data = columns.encode_messages(found, store)
    assert columns.decode_messages(data, stored.__getitem__) == tuple(found)
    assert len(stored) == len({m.content for m in found if len(m.content) >= columns.LARGE_BYTES})


def test_sampling_and_votes_come_back() -> None:
    sampling = Sampling(8, 0.5, 0.9, 3, 0.1, 7, ("a", "b"), 0.1, 0.2, {5: -1.0})
    assert columns.decode_sampling(columns.encode_sampling(sampling)) == sampling
    votes = (Vote(1, "fine", 0.25), Vote(None, "timeout"))
    assert columns.decode_votes(columns.encode_votes(votes)) == votes


def test_scopes_that_join_to_the_same_text_stay_apart() -> None:
    assert columns.scope_digest("a", "b", "") != columns.scope_digest("ab", "", "")


def test_metrics_that_are_not_finite_become_null() -> None:
    assert columns.decode_json(columns.encode_json({"loss": math.nan})) == {"loss": None}
