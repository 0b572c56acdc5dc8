"""The official clients' own parsing of structured answers, with the whole system behind it.

Its model is random: the grammar alone is what makes its answers any.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel
from running import Running

from tiny_model import save_random_model

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.xdist_group("structured answers")]

CONFIG = """
[model]
path = "model"

[gateway]
port = 0

[engine]
kind = "torch"
port = 0
threads = 1
max_running = 4

[judge]
kind = "feedback"
"""
ASKED: Any = [{"role": "user", "content": "Name a small animal and what it eats."}]
ROOM = 700
"""Tokens: enough for an answer with all the white space that may stand in it."""
HANGS = {"type": "integer", "multipleOf": 99999989}
"""Compiling it takes minutes."""


class Animal(BaseModel):
    """What the answer has to be: nothing in it is as long as the model likes."""

    kind: Literal["mouse", "snail", "frog"]
    legs: Literal[0, 4]
    eats: Literal["seeds", "leaves", "flies"]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("home")
    save_random_model(home / "model")
    made = Running(home, CONFIG)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def client(system: Running) -> OpenAI:
    return OpenAI(base_url=f"{system.url}/v1", api_key="any", max_retries=0, timeout=120)


def schema_of(model: type[BaseModel]) -> Any:
    return {"name": "x", "schema": model.model_json_schema(), "strict": True}


def test_a_chat_completion_parses(client: OpenAI) -> None:
    made = client.chat.completions.parse(
        model="default", messages=ASKED, response_format=Animal, max_tokens=ROOM
    )
    (choice,) = made.choices
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, Animal)


def test_a_streamed_chat_completion_parses(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="default", messages=ASKED, response_format=Animal, max_tokens=ROOM
    ) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        parsed = stream.get_final_completion().choices[0].message.parsed
    assert isinstance(parsed, Animal)
    assert len(pieces) > 1
    assert Animal.model_validate_json("".join(pieces)) == parsed


def test_a_response_parses(client: OpenAI) -> None:
    made = client.responses.parse(
        model="default", input=ASKED, text_format=Animal, max_output_tokens=ROOM
    )
    assert made.status == "completed"
    assert isinstance(made.output_parsed, Animal)


def test_a_streamed_response_parses(client: OpenAI) -> None:
    with client.responses.stream(
        model="default", input=ASKED, text_format=Animal, max_output_tokens=ROOM
    ) as stream:
        assert sum(event.type == "response.output_text.delta" for event in stream) > 1
        assert isinstance(stream.get_final_response().output_parsed, Animal)


def test_a_message_parses(system: Running) -> None:
    client = anthropic.Anthropic(base_url=system.url, api_key="any", max_retries=0)
    made = client.messages.parse(
        model="default", max_tokens=ROOM, messages=ASKED, output_format=Animal
    )
    assert made.stop_reason == "end_turn"
    assert isinstance(made.parsed_output, Animal)


def test_any_object_is_json_whatever_the_temperature(client: OpenAI) -> None:
    made = client.chat.completions.create(
        model="default",
        messages=ASKED,
        response_format={"type": "json_object"},
        max_tokens=300,
        temperature=0,
    )
    text = made.choices[0].message.content or ""
    assert text.startswith("{")
    if made.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


def test_an_answer_that_is_cut_says_so(client: OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model="default", messages=ASKED, response_format=Animal, max_tokens=3
        )


def test_a_schema_that_would_hang_the_engine_is_refused_and_the_engine_goes_on(
    client: OpenAI,
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model="default",
            messages=ASKED,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": HANGS, "strict": True},
            },
        )
    assert caught.value.param == "response_format.json_schema"
    assert caught.value.code == "invalid_schema"
    made = client.chat.completions.create(model="default", messages=ASKED, max_tokens=2)
    assert made.choices[0].finish_reason in ("stop", "length")


def test_none_of_these_turns_trains_and_each_says_why(system: Running, client: OpenAI) -> None:
    client.chat.completions.create(
        model="default",
        messages=ASKED,
        response_format={"type": "json_schema", "json_schema": schema_of(Animal)},
        max_tokens=ROOM,
    )
    with sqlite3.connect(system.home / "journal.db") as journal:
        fates = journal.execute(
            "SELECT t.fate FROM turns t JOIN prompts p USING (turn_id) "
            "WHERE CAST(p.sampling AS TEXT) LIKE '%\"constrained\":true%' AND t.state != 'aborted'"
        ).fetchall()
    assert set(fates) == {("sampling_not_trainable",)}
