"""A conversation of three turns with a tool call, by each client, streamed and not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from client_kit import HERE, NODE, PYTHON, Json, System, Turn, run_driver

from rejoinder.engine.base import GenerateRequest
from rejoinder.engine.client import HttpEngine
from rejoinder.types import Message, Sampling

pytestmark = pytest.mark.clients

DRIVERS: dict[str, tuple[Path, str, Json]] = {
    "openai": (PYTHON / "python", "openai_python.py", {}),
    "litellm": (PYTHON / "python", "litellm_client.py", {}),
    "litellm-responses": (PYTHON / "python", "litellm_responses.py", {}),
    "langchain": (PYTHON / "python", "langchain_client.py", {}),
    "langchain-responses": (
        PYTHON / "python", "langchain_client.py", {"use_responses_api": True},
    ),
    "agents": (PYTHON / "python", "agents_client.py", {"api": "responses"}),
    "agents-chat": (PYTHON / "python", "agents_client.py", {"api": "chat"}),
    "openai-js": (NODE, "openai_js.mjs", {}),
}  # fmt: skip
"""By name: what runs it, the script, and its options."""
TAKES_NO_CUT = {"agents"}
"""To them a response that was cut by its length is a failure."""
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
ARGUMENTS = {"city": "Zürich", "days": 2}
SAYS = ("What will the weather be in Zürich?", "And the day after? 🌧", "Thank you!")
REPLAYED = (
    "<think>\nThey want the weather.\n</think>\n\nLet me look.\n<tool_call>\n"
    + json.dumps({"name": "weather", "arguments": ARGUMENTS}, ensure_ascii=False)
    + "\n</tool_call>",
    "Rain on both days, 7 °C. ☂",
    "No idea 🤷🏽: I can only see **two** days.\n\n- Try `later`.",
    "You are welcome!",
)
TEXTS = ("Let me look.", *REPLAYED[1:])
"""What a client shows of it."""
RESULT = "rain, 7 °C; rain, 6 °C"


def hold(
    system: System,
    client: str,
    *,
    stream: bool,
    says: tuple[str, ...] = SAYS,
    path: str = "",
    **options: object,
) -> list[Json]:
    """Let a client talk; returns the answers that it showed."""
    runs, script, own_options = DRIVERS[client]
    task = {
        "url": system.url + path,
        "stream": stream,
        "says": says,
        "results": {"weather": RESULT},
        "options": own_options | options,
    }
    return run_driver([runs, HERE / "drivers" / script], task)


def check_captured(system: System, turns: list[Turn]) -> None:
    """Every turn has the ids that the engine sampled for it, all of them."""
    sampled = {one.turn_id: one.ids for one in system.sampled()}
    assert {turn.turn_id: turn.ids for turn in turns} == {
        turn.turn_id: sampled[turn.turn_id] for turn in turns
    }


def check_linked(turns: list[Turn], said: list[str]) -> None:
    """Each turn is the parent of the next, and its next state is what the client said to it."""
    assert [turn.parent_id for turn in turns] == [None, *(turn.turn_id for turn in turns[:-1])]
    assert len({turn.session_id for turn in turns}) == 1
    states = [tuple(_words(one) for one in turn.next_state) for turn in turns]
    assert states == [*((text,) for text in said), ()]


def _words(message: Message) -> str:
    return f"{message.role}: {message.content}"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", DRIVERS)
def test_a_conversation_with_a_tool_call_reads_as_sampled_and_is_captured_and_linked(
    replaying: Callable[..., System], installed: Callable[[Path], Path], client: str, stream: bool
) -> None:
    installed(DRIVERS[client][0])
    system = replaying([{"when": "", "answers": REPLAYED}])
    answers = hold(system, client, stream=stream, tools=[TOOL])
    assert tuple(answer["content"] for answer in answers) == TEXTS
    (call,) = answers[0]["calls"]
    assert (call["name"], json.loads(call["arguments"])) == ("weather", ARGUMENTS)
    turns = system.turns()
    assert len(turns) == len(REPLAYED)
    check_captured(system, turns)
    check_linked(turns, [f"tool: {RESULT}", *(f"user: {text}" for text in SAYS[1:])])


@pytest.mark.parametrize(
    ("client", "path", "options"),
    [
        ("openai", "", {"extra_headers": {"X-Session-Id": "rivers 1"}}),
        ("litellm", "", {"extra_headers": {"X-Session-Id": "rivers 1"}}),
        ("langchain", "", {"default_headers": {"X-Session-Id": "rivers 1"}}),
        ("litellm", "/s/rivers%201", {}),
        ("langchain", "/s/rivers%201", {}),
        ("openai-js", "/s/rivers%201", {}),
        ("agents", "", {"extra_headers": {"X-Session-Id": "rivers 1"}}),
    ],
)
def test_a_session_is_named_as_the_guides_say(
    replaying: Callable[..., System],
    installed: Callable[[Path], Path],
    client: str,
    path: str,
    options: Json,
) -> None:
    installed(DRIVERS[client][0])
    system = replaying([{"when": "", "answers": TEXTS}])
    hold(system, client, stream=False, says=SAYS[:2], path=path, **options)
    turns = system.turns()
    assert {turn.external for turn in turns} == {"rivers 1"}
    assert turns[1].parent_id == turns[0].turn_id


@pytest.mark.model
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", sorted(DRIVERS.keys() - TAKES_NO_CUT))
def test_the_real_model_says_through_the_gateway_what_it_says_directly(
    real_model: Callable[[], System], installed: Callable[[Path], Path], client: str, stream: bool
) -> None:
    installed(DRIVERS[client][0])
    system = real_model()
    before = len(system.turns())
    greets = f"I am {client}, streaming: {stream}."  # equal conversations cannot be told apart
    answers = hold(
        system,
        client,
        stream=stream,
        says=(greets, *SAYS[1:]),
        temperature=0.0,
        max_tokens=12,
    )
    turns = system.turns(before)
    assert len(turns) == len(SAYS)
    check_captured(system, turns)
    check_linked(turns, [f"user: {text}" for text in SAYS[1:]])
    tokenizer = system.tokenizer()
    sampled = {one.turn_id: one for one in system.sampled()}
    for turn, answer in zip(turns, answers, strict=True):
        prompt_ids = sampled[turn.turn_id].prompt_ids
        ids = asyncio.run(ask_directly(system, prompt_ids, len(turn.ids)))
        assert ids == turn.ids
        assert tokenizer.decode(ids) == answer["content"]


async def ask_directly(system: System, prompt_ids: list[int], most: int) -> list[int]:
    """Return what the engine samples when nobody stands between."""
    engine = HttpEngine(f"http://127.0.0.1:{system.engine_port}")
    sampling = Sampling(max_tokens=most, temperature=0.0)
    request = GenerateRequest("direct", prompt_ids, sampling, "default")
    try:
        return [id_ async for chunk in engine.generate(request) for id_ in chunk.ids]
    finally:
        await engine.close()
