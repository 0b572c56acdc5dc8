"""The whole loop on the real model: people talk over HTTP, the system judges, trains and serves.

One system runs for all tests of this file, in their order.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from journal_story import holds
from openai import OpenAI
from running import Running, rejoinder, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.xdist_group("conversation")]

CONFIG = """
[gateway]
port = 0

[engine]
kind = "torch"
port = 0
threads = 1
max_running = 4

[judge]
kind = "likelihood"

[hints]
kind = "extractive"

[trainer]
algorithm = "combine"
batch_size = 2
checkpoint_every = 1
threads = 1
"""
ANSWER_TOKENS = 24
EXCHANGES = (
    ("Name a colour.", "Thank you, that is exactly what I wanted!"),
    ("What is a river?", "No, that is not good. Please answer in one short sentence."),
    ("Who wrote Hamlet?", "Perfect, thanks a lot, very helpful!"),
)
LEARN_S = 150.0
RESTART_S = 90.0


@dataclass
class Client:
    """Talks through the openai client and keeps what it saw."""

    url: str
    answers: dict[str, str] = field(default_factory=dict)
    """Text by completion id; complete ones only."""
    versions: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._api = OpenAI(base_url=f"{self.url}/v1", api_key="unused", max_retries=0, timeout=120)

    def ask(self, messages: list[dict[str, str]], session: str | None = None) -> tuple[str, str]:
        """Stream one answer; returns its completion id and text."""
        headers = {"X-Session-Id": session} if session else {}
        pieces, finish, id_ = [], None, ""
        try:
            stream = self._api.chat.completions.create(
                model="default",
                messages=messages,  # type: ignore[arg-type]
                stream=True,
                max_tokens=ANSWER_TOKENS,
                temperature=0.8,
                extra_headers=headers,
            )
            for chunk in stream:
                id_ = chunk.id
                pieces.append(chunk.choices[0].delta.content or "")
                finish = chunk.choices[0].finish_reason or finish
            self.versions.append(chunk.system_fingerprint or "")
        except Exception as error:  # whatever the client raises is a failed request
            self.failures.append(repr(error))
            raise
        if finish not in ("stop", "length"):
            self.failures.append(f"{id_} ended with {finish}")
        self.answers[id_] = "".join(pieces)
        return id_, self.answers[id_]

    def exchange(self, question: str, reply: str, session: str | None = None) -> tuple[str, str]:
        """Ask, and reply to the answer: what the judge reads. Returns both completion ids."""
        messages = [{"role": "user", "content": question}]
        first, text = self.ask(messages, session)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": reply}]
        second, _ = self.ask(messages, session)
        return first, second


@dataclass
class Talked:
    """What happened until a trained version answered."""

    system: Running
    client: Client
    scored: str
    """The completion that a person scored."""


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talked]:
    system = Running(tmp_path_factory.mktemp("home"), CONFIG)
    try:
        client = Client(system.url)
        for number, (question, reply) in enumerate(EXCHANGES):
            client.exchange(question, reply, session=f"s{number}" if number else None)
        scored, _ = client.ask([{"role": "user", "content": "Tell me about tea."}])
        told = httpx.post(
            f"{system.url}/v1/feedback", json={"completion_id": scored, "thumb": "up"}, timeout=30
        )
        assert told.json()["outcome"] == "accepted", told.text
        _talk_until_trained(system, client)
        yield Talked(system, client, scored)
    finally:
        system.close()


def _talk_until_trained(system: Running, client: Client) -> None:
    """Keep requests in flight over the take-up, until one is answered by a trained version."""
    deadline = time.monotonic() + LEARN_S
    while not any(version != "default@0" for version in client.versions):
        assert time.monotonic() < deadline, f"nothing was trained\n{system.story()}"
        talking = [
            threading.Thread(target=client.ask, args=([{"role": "user", "content": "Go on."}],))
            for _ in range(2)
        ]
        for thread in talking:
            thread.start()
        for thread in talking:
            thread.join()


def rows(talked: Talked, query: str) -> list[Any]:
    with sqlite3.connect(talked.system.home / "journal.db") as connection:
        return connection.execute(query).fetchall()


def test_a_trained_version_answers_the_next_request(talked: Talked) -> None:
    assert talked.client.versions[0] == "default@0"
    assert talked.client.versions[-1] != "default@0"


def test_no_request_failed_or_was_cut(talked: Talked) -> None:
    assert talked.client.failures == []
    assert all(talked.client.answers.values())


def test_the_embedded_judge_scored_the_replies(talked: Talked) -> None:
    wait_until(
        lambda: rows(talked, "SELECT 1 FROM verdicts WHERE source != 'feedback' LIMIT 1"),
        30,
        talked.system.story,
    )
    scores = rows(talked, "SELECT score FROM verdicts WHERE source != 'feedback'")
    assert all(score in (-1, 0, 1, None) for (score,) in scores)


def test_a_wish_became_a_hint_and_taught(talked: Talked) -> None:
    assert any("one short sentence" in text for (text,) in rows(talked, "SELECT text FROM hints"))
    metrics = [json.loads(found) for (found,) in rows(talked, "SELECT metrics FROM steps")]
    assert sum(step["hints"] for step in metrics) >= 1
    assert not any(step["hints_dropped"] for step in metrics)
    assert any(step["hinted_fraction"] > 0 for step in metrics)


def test_every_answer_a_client_got_is_in_the_journal(talked: Talked) -> None:
    recorded = {id_ for (id_,) in rows(talked, "SELECT completion_id FROM turns")}
    assert set(talked.client.answers) <= recorded


def test_nothing_trained_twice_and_every_step_is_whole(talked: Talked) -> None:
    consumed = rows(talked, "SELECT lineage_id, sample_id FROM consumption")
    assert len(set(consumed)) == len(consumed) > 0
    per_version = Counter(rows(talked, "SELECT version FROM consumption"))
    steps = dict(rows(talked, "SELECT version, samples FROM steps"))
    assert {version: count for (version,), count in per_version.items()} == steps
    assert set(steps.values()) == {2}


def test_status_counts_every_turn_once_and_says_that_it_learns(talked: Talked) -> None:
    document = talked.system.status()
    turns = document["turns"]
    assert sum(turns["states"].values()) == turns["total"] == len(talked.client.answers)
    assert document["learning"]["word"] == "learning", document["learning"]
    assert document["live"]["version"] >= 1
    assert document["training"]["last"]["samples"] == 2
    engine = next(one for one in document["roles"] if one["role"] == "engine" and one["fresh"])
    assert engine["detail"]["live"]["default"] >= 1


def test_the_screen_shows_the_same(talked: Talked) -> None:
    done = rejoinder(talked.system.home, "status")
    assert done.returncode == 0, done.stderr
    assert "LEARNING" in done.stdout
    assert "default@" in done.stdout


def test_a_trained_version_can_be_taken_along(talked: Talked, tmp_path: Path) -> None:
    listed = rejoinder(talked.system.home, "policy", "list", "--json")
    versions = {one["version"]: one for one in json.loads(listed.stdout)}
    assert versions[1]["parent"] == 0
    done = rejoinder(talked.system.home, "policy", "export", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template
    base = AutoModelForCausalLM.from_pretrained(versions[0]["uri"].removeprefix("file://"))
    changed = [
        bool((after != before).any())
        for after, before in zip(model.parameters(), base.parameters(), strict=True)
    ]
    assert any(changed)


def test_records_are_exported_with_verdicts_and_steps(talked: Talked) -> None:
    file = talked.system.home / "records.jsonl"
    done = rejoinder(talked.system.home, "records", "export", str(file))
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in file.read_text().splitlines()]
    turns = [one for one in records if one["type"] == "turn"]
    steps = [one for one in records if one["type"] == "step"]
    assert len(turns) >= len(talked.client.answers)
    assert any(turn["feedback"] for turn in turns)
    assert steps[0]["samples"] == 2
    assert steps[0]["mean_score"] is not None


@pytest.mark.parametrize("role", ["gateway", "judge", "trainer", "engine"])
def test_a_killed_role_comes_back(talked: Talked, role: str) -> None:
    before = talked.system.pids()[role]
    os.kill(before, signal.SIGKILL)
    if role == "gateway":  # its port stays open: the request waits instead of being refused
        talked.client.ask([{"role": "user", "content": "Are you there?"}])
    wait_until(
        lambda: talked.system.pids().get(role, before) != before, RESTART_S, talked.system.story
    )


def test_a_response_is_gone_on_from_after_its_gateway_was_killed(talked: Talked) -> None:
    wait_until(lambda: _ready(talked), RESTART_S, talked.system.story)
    asked: dict[str, Any] = {"model": "default", "max_output_tokens": ANSWER_TOKENS}
    with OpenAI(base_url=f"{talked.system.url}/v1", api_key="unused", timeout=120) as api:
        first = api.responses.create(input="Name a river.", **asked)
        before = talked.system.pids()["gateway"]
        os.kill(before, signal.SIGKILL)
        wait_until(
            lambda: talked.system.pids().get("gateway", before) != before,
            RESTART_S,
            talked.system.story,
        )
        with api.responses.stream(
            input="Where is it?", previous_response_id=first.id, **asked
        ) as events:
            kinds = [event.type for event in events]
        assert kinds[-1] in ("response.completed", "response.incomplete")
        assert api.responses.retrieve(first.id).output_text == first.output_text
    (linked,) = rows(
        talked,
        "SELECT before.completion_id FROM turns JOIN turns before "
        "ON before.turn_id = turns.parent_id WHERE turns.completion_id LIKE 'resp_%'",
    )
    assert linked == (first.id,)


def test_a_conversation_is_deleted_while_the_system_runs(talked: Talked) -> None:
    home, said = talked.system.home, EXCHANGES[1][0]
    wait_until(lambda: _ready(talked), RESTART_S, talked.system.story)
    assert holds(home, said)
    done = rejoinder(home, "records", "delete", "s1", "--yes")
    assert done.returncode == 0, done.stderr
    assert "1 session, 2 turns deleted" in done.stdout
    assert not holds(home, said)
    assert rows(talked, "SELECT * FROM sessions WHERE external = 's1'") == []
    completion, _ = talked.client.ask([{"role": "user", "content": said}], session="s1")
    (turn,) = rows(talked, f"SELECT parent_id FROM turns WHERE completion_id = '{completion}'")
    assert turn == (None,)
    assert _ready(talked), talked.system.story()


def test_a_rollback_is_served(talked: Talked) -> None:
    done = rejoinder(talked.system.home, "policy", "rollback", "0", "--yes")
    assert done.returncode == 0, done.stderr

    def serves_the_start_weights() -> bool:
        talked.client.versions.clear()
        talked.client.ask([{"role": "user", "content": "Which one are you?"}])
        return talked.client.versions == ["default@0"]

    wait_until(lambda: _ready(talked), RESTART_S, talked.system.story)
    wait_until(serves_the_start_weights, 60, talked.system.story)
    assert talked.client.failures == []


def test_ending_leaves_no_process_behind(talked: Talked) -> None:
    pids = talked.system.pids()
    assert set(pids) == {"gateway", "engine", "judge", "trainer"}
    assert talked.system.close() == 0, talked.system.story()
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _ready(talked: Talked) -> bool:
    return httpx.get(f"{talked.system.url}/readyz", timeout=30).status_code == httpx.codes.OK
