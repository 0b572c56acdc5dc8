"""Calls that are asked for and held to the schemas of their functions, in every API."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest
from anthropic import AsyncAnthropic
from gateway_kit import THINKING_TEMPLATE, Running, running, user
from openai import AsyncOpenAI, pydantic_function_tool
from pydantic import BaseModel, ConfigDict, Field

from rejoinder.engine.base import Constraint, Form
from rejoinder.errors import ConstraintRefused
from rejoinder.journal.columns import decode_ids, decode_sampling
from rejoinder.models.embedded import resolve_model
from rejoinder.models.tokenizer import load_tokenizer
from tiny_model import save_random_model, torch_engine


class Weather(BaseModel):
    """Arguments of one function; nothing in them is as long as the model likes."""

    model_config = ConfigDict(extra="forbid")
    city: str = Field(max_length=12)
    days: int = Field(ge=1, le=14)
    unit: Literal["C", "F"] | None


class Light(BaseModel):
    """Arguments of another function."""

    model_config = ConfigDict(extra="forbid")
    room: Literal["kitchen", "cellar"]
    on: bool


FUNCTIONS: dict[str, type[BaseModel]] = {"get_weather": Weather, "get_light": Light}
SCHEMAS = {name: model.model_json_schema() for name, model in FUNCTIONS.items()}
CHAT: Any = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
RESPONSES: Any = [
    {"type": "function", "name": name, "parameters": schema} for name, schema in SCHEMAS.items()
]
MESSAGES: Any = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
ASKED: Any = [user("What is the weather in Bern?")]
ROOM = 700
"""Tokens: enough for each argument with all the white space that may stand around it."""

Call = tuple[str, str, str]
"""Name, arguments, and why the answer ended."""


async def chat(url: str, name: str | None, seed: int, *, stream: bool, **more: Any) -> Call:
    choice: Any = "required" if name is None else {"type": "function", "function": {"name": name}}
    asked: Any = {
        "model": "default", "messages": ASKED, "tools": CHAT, "tool_choice": choice,
        "max_tokens": ROOM, "temperature": 1.0, "seed": seed, "parallel_tool_calls": False, **more,
    }  # fmt: skip
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        if stream:
            async with client.chat.completions.stream(**asked) as events:
                made: Any = await events.get_final_completion()
        else:
            made = await client.chat.completions.create(**asked)
    (found,) = made.choices
    (call,) = found.message.tool_calls
    assert not found.message.content
    return call.function.name, call.function.arguments, found.finish_reason


async def responses(url: str, name: str | None, seed: int, *, stream: bool) -> Call:
    del seed  # the API has none
    choice: Any = "required" if name is None else {"type": "function", "name": name}
    asked: Any = {
        "model": "default", "input": ASKED, "tools": RESPONSES, "tool_choice": choice,
        "max_output_tokens": ROOM, "temperature": 1.0, "parallel_tool_calls": False,
    }  # fmt: skip
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        if stream:
            async with client.responses.stream(**asked) as events:
                made: Any = await events.get_final_response()
        else:
            made = await client.responses.create(**asked)
    (item,) = made.output
    return item.name, item.arguments, "tool_calls" if made.status == "completed" else made.status


async def messages(url: str, name: str | None, seed: int, *, stream: bool, **more: Any) -> Call:
    del seed  # the API has none, and its client no temperature: 1.0 is the default
    choice: Any = {"type": "any", "disable_parallel_tool_use": True}
    if name is not None:
        choice = {"type": "tool", "name": name}
    asked: Any = {
        "model": "default", "messages": ASKED, "tools": MESSAGES, "tool_choice": choice,
        "max_tokens": ROOM, **more,
    }  # fmt: skip
    async with AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
        if stream:
            async with client.messages.stream(**asked) as events:
                made: Any = await events.get_final_message()
        else:
            made = await client.messages.create(**asked)
    (block,) = made.content
    why = "tool_calls" if made.stop_reason == "tool_use" else made.stop_reason
    return block.name, json.dumps(block.input), why


APIS = [chat, responses, messages]


@contextlib.asynccontextmanager
async def with_calls(path: Path, journal_url: str) -> AsyncIterator[Running]:
    """A model behind a gateway that takes it for one with Qwen3's calls."""
    texts = replace(load_tokenizer(path), chat_template=THINKING_TEMPLATE)
    async with (
        torch_engine(path, context_length=2048, max_running=1) as engine,
        running(texts, journal_url, served_by=engine) as g,
    ):
        yield g


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture
async def small(random_model: Path, journal_url: str) -> AsyncIterator[Running]:
    async with with_calls(random_model, journal_url) as g:
        yield g


@pytest.fixture
async def real(journal_url: str) -> AsyncIterator[Running]:
    async with with_calls(resolve_model("embedded"), journal_url) as g:
        yield g


@pytest.mark.model
@pytest.mark.parametrize("api", APIS)
async def test_a_small_model_at_full_temperature_writes_calls_that_fit(small, api):
    for stream, name in product((False, True), ("get_weather", None)):
        called, arguments, why = await api(small.base_url, name, 1, stream=stream)
        assert name in (None, called)
        FUNCTIONS[called].model_validate_json(arguments)
        assert why == "tool_calls"


def both_apis(url: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return bodies that ask for calls in each API."""
    return [
        (f"{url}/v1/chat/completions",
         {"messages": ASKED, "tools": CHAT, "tool_choice": "required", "max_tokens": ROOM} | more),
        (f"{url}/v1/responses",
         {"input": ASKED, "tools": RESPONSES, "tool_choice": "required",
          "max_output_tokens": ROOM} | more),
        (f"{url}/v1/messages",
         {"messages": ASKED, "tools": MESSAGES, "max_tokens": ROOM, "model": "default",
          "tool_choice": {"type": "any",
                          "disable_parallel_tool_use": more.get("parallel_tool_calls") is False}}),
    ]  # fmt: skip


def calls_of(made: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the calls of an answer in any API, which has nothing else."""
    if "choices" in made:
        message = made["choices"][0]["message"]
        assert not message["content"]
        return [
            (one["function"]["name"], json.loads(one["function"]["arguments"]))
            for one in message["tool_calls"]
        ]
    if "output" in made:
        return [(one["name"], json.loads(one["arguments"])) for one in made["output"]]
    return [(one["name"], one["input"]) for one in made["content"]]


@pytest.mark.model
async def test_several_calls_each_fit_the_schema_of_their_function(small):
    asked = [
        small.client.post(url, json=body | ({"seed": seed} if "chat" in url else {}), timeout=120)
        for seed in range(2)
        for url, body in both_apis(small.base_url, temperature=1.0)
    ]
    counts = []
    for response in await asyncio.gather(*asked):
        assert response.status_code == 200, response.text
        if any(word in response.text for word in ('"length"', '"incomplete"', '"max_tokens"')):
            continue  # its last call may be cut
        calls = calls_of(response.json())
        counts.append(len(calls))
        for name, arguments in calls:
            FUNCTIONS[name].model_validate(arguments)
    assert counts


async def test_several_calls_are_held_unless_the_client_wants_one(tools_gateway):
    first = ' "get_light", "arguments": {"room": "cellar", "on": true}}\n</tool_call>'
    second = '\n<tool_call>\n{"name": "get_light", "arguments": {"room": "kitchen", "on": false}}'
    rooms = [("get_light", {"room": "cellar", "on": True})]
    async with tools_gateway() as g:
        g.engine.say(f"{first}{second}\n</tool_call>")
        for url, body in both_apis(g.base_url):
            made = (await g.client.post(url, json=body)).json()
            assert calls_of(made) == [*rooms, ("get_light", {"room": "kitchen", "on": False})]
            assert made.get("parallel_tool_calls", True) is True
        g.engine.say(first)
        for url, body in both_apis(g.base_url, parallel_tool_calls=False):
            made = (await g.client.post(url, json=body)).json()
            assert calls_of(made) == rooms
            assert made.get("parallel_tool_calls", False) is False
        again = [request.constraint.forms[1].again for request in g.engine.requests]
        opening = '\n<tool_call>\n{"name": "get_light", "arguments": '
        assert again == [opening] * 3 + [None] * 3


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_what_is_cut_between_two_calls_leaves_no_content(tools_gateway, stream):
    """Pieces of a marker, or of a further call that has not begun, are no answer to anyone."""
    whole = ' "get_light", "arguments": {"on": true}}\n</tool_call>\n<tool_call>\n{"name": "get_li'
    ids: list[list[int]] = []
    async with tools_gateway() as g:
        every = len(g.engine.tokenizer.encode(whole))
        for size in range(1, every, 3):
            g.engine.say(whole)
            body = {"tools": CHAT, "tool_choice": "required", "max_tokens": size}
            if stream:
                *told, _ = await g.events(*ASKED, **body)
                events = [event.json for event in told]
                deltas = [one["choices"][0]["delta"] for one in events if one["choices"]]
                assert not any(delta.get("content") for delta in deltas)
                reasons = [one["choices"][0]["finish_reason"] for one in events if one["choices"]]
                assert reasons[-1] == "length"
            else:
                (choice,) = (await g.answer(*ASKED, **body))["choices"]
                assert not choice["message"]["content"]
                assert choice["finish_reason"] == "length"
            row = g.rows("SELECT answer_ids FROM answers ORDER BY rowid DESC LIMIT 1")[0]
            ids.append(decode_ids(row["answer_ids"]))
        assert ids == [g.engine.tokenizer.encode(whole)[: len(one)] for one in ids]
        assert [len(one) for one in ids] == list(range(1, every, 3))


@pytest.mark.model
async def test_the_official_client_parses_the_arguments_of_a_strict_tool(real):
    tool: Any = pydantic_function_tool(Weather, name="get_weather")
    choice: Any = {"type": "function", "function": {"name": "get_weather"}}
    async with AsyncOpenAI(base_url=f"{real.base_url}/v1", api_key="any") as client:
        made = await client.chat.completions.parse(
            model="default", messages=ASKED, tools=[tool], tool_choice=choice, max_tokens=ROOM
        )
    (call,) = made.choices[0].message.tool_calls or ()
    assert isinstance(call.function.parsed_arguments, Weather)


@pytest.mark.model
async def test_what_is_kept_is_what_was_sampled_and_no_such_turn_trains(real):
    _, arguments, _ = await chat(real.base_url, "get_light", 1, stream=False)
    (turn,) = real.turns()
    assert turn["fate"] == "sampling_not_trainable"
    (row,) = real.rows("SELECT answer_ids, sampling FROM answers JOIN prompts USING (turn_id)")
    texts = real.service.tokenizer
    *ids, end = decode_ids(row["answer_ids"])
    assert texts.decode(ids) == f" {arguments}}}\n</tool_call>"
    assert end in texts.eos_ids
    assert decode_sampling(row["sampling"]).constrained


@pytest.mark.model
async def test_a_call_that_is_cut_ends_for_length(small):
    body = {"tools": CHAT, "tool_choice": CHAT[0], "max_tokens": 6}
    (choice,) = (await small.answer(*ASKED, **body))["choices"]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"


@pytest.mark.model
@pytest.mark.parametrize("choice", ["required", CHAT[1]], ids=["any", "by its name"])
async def test_a_schema_that_cannot_be_enforced_is_a_400_that_names_its_tool(small, choice):
    bad = {"type": "object", "properties": {"x": {"type": "string", "not": {}}}}
    tools = [CHAT[0], {"function": {**CHAT[1]["function"], "parameters": bad, "strict": True}}]
    response = await small.chat(*ASKED, tools=tools, tool_choice=choice)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_schema", "tools")
    assert "the tool 'get_light' cannot be enforced" in error["message"]
    assert "not" in error["message"]
    assert "tool_choice" in error["message"]
    lenient = [CHAT[0], {"function": {**CHAT[1]["function"], "parameters": bad}}]
    cut = {"max_tokens": 5, "tool_choice": choice}
    assert (await small.chat(*ASKED, tools=lenient, **cut)).status_code == 200
    free = {"max_tokens": 5, "tool_choice": "auto"}
    assert (await small.chat(*ASKED, tools=tools, **free)).status_code == 200


def forms(schema: str) -> list[Form]:
    return [Form(schema, True, " ", "}\n</tool_call>", "the tool 'get_light'")]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_every_api_tells_the_engine_the_schema_of_the_function(tools_gateway, api, stream):
    async with tools_gateway() as g:
        g.engine.say(' {"room": "cellar", "on": true}}\n</tool_call>')
        name, arguments, why = await api(g.base_url, "get_light", 1, stream=stream)
        assert (name, json.loads(arguments)) == ("get_light", {"room": "cellar", "on": True})
        assert why == "tool_calls"
        (request,) = g.engine.requests
        text = json.dumps(SCHEMAS["get_light"], separators=(",", ":"))
        assert request.constraint == Constraint(forms(text))
        assert g.turns()[0]["fate"] == "sampling_not_trainable"


@pytest.mark.parametrize(
    ("api", "stops"),
    [(chat, {"stop": ["cell", "\n", '"']}), (messages, {"stop_sequences": ["cell", '"']})],
    ids=["chat", "messages"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_no_stop_string_cuts_a_call_that_is_held(tools_gateway, api, stops, stream):
    """It is whole, or it is none: clients run what is told as a call."""
    async with tools_gateway() as g:
        g.engine.say(' {"room": "cellar", "on": true}}\n</tool_call>')
        _, arguments, why = await api(g.base_url, "get_light", 1, stream=stream, **stops)
        assert (json.loads(arguments), why) == ({"room": "cellar", "on": True}, "tool_calls")


@pytest.mark.parametrize("api", APIS)
async def test_an_engine_that_cannot_hold_a_call_writes_it_free(tools_gateway, api):
    async with tools_gateway() as g:
        g.engine.capabilities = ["logprobs"]
        await g.service.probe_engine()
        g.engine.say(' {"room": "attic"}}\n</tool_call>')
        name, arguments, _ = await api(g.base_url, "get_light", 1, stream=False)
        assert (name, json.loads(arguments)) == ("get_light", {"room": "attic"})
        assert g.engine.requests[0].constraint is None
        assert g.turns()[0]["fate"] is None


async def test_a_call_that_the_model_may_choose_is_free(tools_gateway):
    async with tools_gateway() as g:
        for choice in ("auto", "none", None):
            await g.answer(*ASKED, tools=CHAT, tool_choice=choice)
        assert [request.constraint for request in g.engine.requests] == [None] * 3
        assert {turn["fate"] for turn in g.turns()} == {None}


async def test_a_schema_that_turns_out_too_dear_ends_the_stream_with_an_error(tools_gateway):
    async with tools_gateway() as g:
        fault = ConstraintRefused("the schema is too complex for this answer")
        g.engine.say(' {"room"', error=fault, error_after=3)
        *_, last = await g.events(*ASKED, tools=CHAT, tool_choice="required")
        assert last.json["error"]["param"] == "tools"
        assert "tool_choice" in last.json["error"]["message"]
        assert g.turns()[0]["fate"] == "refused"
