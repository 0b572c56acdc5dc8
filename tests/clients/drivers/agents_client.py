"""The OpenAI Agents SDK: it calls the tools itself; over responses, or chat completions."""

import asyncio
import json
import sys
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from talk import Json

MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


def made_tool(tool: Json, results: Json) -> FunctionTool:
    async def invoke(_context: Any, _arguments: str) -> str:
        return results[tool["function"]["name"]]

    function = tool["function"]
    return FunctionTool(
        function["name"],
        function["description"],
        function["parameters"],
        invoke,
        strict_json_schema=False,
    )


def shown(response: Any) -> Json:
    texts, calls = [], []
    for item in response.output:
        if item.type == "message":
            texts += [part.text for part in item.content]
        elif item.type == "function_call":
            calls.append({"id": item.call_id, "name": item.name, "arguments": item.arguments})
    return {"content": "".join(texts), "calls": calls}


async def run(agent: Agent, said: list[Any], *, stream: bool) -> Any:
    if not stream:
        return await Runner.run(agent, said)
    result = Runner.run_streamed(agent, said)
    async for _ in result.stream_events():
        pass
    return result


async def converse(task: Json) -> list[Json]:
    options = dict(task["options"])
    tools = [made_tool(tool, task["results"]) for tool in options.pop("tools", ())]
    api = MODELS[options.pop("api")]
    client = AsyncOpenAI(base_url=task["url"] + "/v1", api_key="none", max_retries=0)
    settings = ModelSettings(**options)
    agent = Agent("helper", tools=tools, model=api("default", client), model_settings=settings)
    said: list[Any] = []
    answers: list[Json] = []
    for text in task["says"]:
        said.append({"role": "user", "content": text})
        result = await run(agent, said, stream=task["stream"])
        answers += map(shown, result.raw_responses)
        said = result.to_input_list()
    return answers


set_tracing_disabled(True)  # else it reports to OpenAI
print(json.dumps(asyncio.run(converse(json.load(sys.stdin)))))
