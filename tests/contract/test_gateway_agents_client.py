"""The OpenAI Agents SDK over responses, its default, and chat completions: with a tool call."""

from __future__ import annotations

from typing import Any

import agents
import pytest
from gateway_kit import Script
from openai import AsyncOpenAI

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
ANSWERS = (
    f"<think>\nHm.\n</think>\n\nLet me see.\n{CALL}",
    "<think>\nI know.\n</think>\n\nRain. ☂",
    "You are welcome.",
)


def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


async def run(agent: Any, said: Any, *, stream: bool, **more: Any) -> Any:
    if not stream:
        return await agents.Runner.run(agent, said, **more)
    result = agents.Runner.run_streamed(agent, said, **more)
    async for _ in result.stream_events():
        pass
    return result


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("model", "by_id"),
    [
        ("OpenAIResponsesModel", False),
        ("OpenAIResponsesModel", True),
        ("OpenAIChatCompletionsModel", False),
    ],
    ids=["responses", "responses by id", "chat"],
)
async def test_an_agent_talks_calls_a_tool_and_is_linked(
    tools_gateway, thinker, stream, model, by_id
):
    agents.set_tracing_disabled(True)
    async with (
        tools_gateway() as g,
        AsyncOpenAI(base_url=f"{g.base_url}/v1", api_key="any") as client,
    ):
        g.engine.script = lambda request: Script(
            ANSWERS[
                thinker.decode(request.prompt_ids, skip_special_tokens=False).count(
                    "<|im_start|>assistant\n"
                )
                - 1
            ]
        )
        agent = agents.Agent(
            name="helper",
            instructions="Be brief.",
            tools=[agents.function_tool(weather)],
            model=getattr(agents, model)("default", client),
        )
        chained = {"auto_previous_response_id": True} if by_id else {}
        first = await run(agent, "Weather in Bern?", stream=stream, **chained)
        assert first.final_output == "Rain. ☂"
        if by_id:
            second = await run(
                agent, "Thanks!", stream=stream, previous_response_id=first.last_response_id
            )
        else:
            said = [*first.to_input_list(), {"role": "user", "content": "Thanks!"}]
            second = await run(agent, said, stream=stream)
        assert second.final_output == "You are welcome."
        turns = g.turns()
        assert [turn["parent_id"] for turn in turns] == [
            None, turns[0]["turn_id"], turns[1]["turn_id"],
        ]  # fmt: skip
        assert len({turn["session_id"] for turn in turns}) == 1
        states = g.rows("SELECT kind FROM next_states ORDER BY created_at")
        assert [state["kind"] for state in states] == ["tool", "user"]
