"""LangChain: it parses the arguments of calls and writes them anew when it sends them back."""

import json

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from talk import Json, talk


def ask(task: Json, messages: list) -> tuple[AIMessage, Json]:
    options = dict(task["options"])
    tools = options.pop("tools", None)
    model = ChatOpenAI(
        base_url=task["url"] + "/v1", api_key="none", model="default", max_retries=0, **options
    )
    if tools:
        model = model.bind_tools(tools)
    if task["stream"]:
        chunks = list(model.stream(messages))
        message = chunks[0]
        for chunk in chunks[1:]:
            message += chunk
    else:
        message = model.invoke(messages)
    calls = [
        {"id": call["id"], "name": call["name"], "arguments": json.dumps(call["args"])}
        for call in message.tool_calls
    ]
    return message, {"content": message.text, "calls": calls}


def result(call: Json, text: str) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call["id"])


talk(ask, HumanMessage, result)
