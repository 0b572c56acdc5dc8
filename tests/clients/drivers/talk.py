"""What the Python clients do: read a task, hold its conversation, print the answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Ask = Callable[[Json, list[Any]], tuple[Any, Json]]
"""(task, messages) -> (the answer as the client keeps it in its history, and as it shows it)."""


def talk(ask: Ask, user: Callable[[str], Any], result: Callable[[Json, str], Any]) -> None:
    """Say each of the task's messages, answering tool calls in between."""
    task = json.load(sys.stdin)
    messages: list[Any] = []
    shown: list[Json] = []
    for text in task["says"]:
        messages.append(user(text))
        while True:
            kept, answer = ask(task, messages)
            messages.append(kept)
            shown.append(answer)
            if not answer["calls"]:
                break
            messages += [result(call, task["results"][call["name"]]) for call in answer["calls"]]
    print(json.dumps(shown))


def openai_user(text: str) -> Json:
    return {"role": "user", "content": text}


def openai_result(call: Json, text: str) -> Json:
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def shown(message: Any) -> Json:
    """Return a message of the OpenAI form as a client shows it."""
    calls = [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in message.tool_calls or []
    ]
    return {"content": message.content or "", "calls": calls}


def responses_tool(tool: Json) -> Json:
    return {"type": "function", **tool["function"]}


def responses_result(call: Json, text: str) -> Json:
    return {"type": "function_call_output", "call_id": call["id"], "output": text}


def responses_shown(output: list[Json]) -> Json:
    """Return the items of a response as a client shows them."""
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    calls = [
        {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
        for item in output
        if item["type"] == "function_call"
    ]
    return {"content": "".join(part["text"] for part in parts), "calls": calls}
