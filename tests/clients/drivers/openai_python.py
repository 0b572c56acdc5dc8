"""The official Python client."""

from openai import OpenAI
from openai.types.chat import ChatCompletionMessage
from talk import Json, openai_result, openai_user, shown, talk


def ask(task: Json, messages: list[Json]) -> tuple[Json, Json]:
    client = OpenAI(base_url=task["url"] + "/v1", api_key="none", max_retries=0)
    request = {"model": "default", "messages": messages, **task["options"]}
    if task["stream"]:
        message = put_together(client.chat.completions.create(**request, stream=True))
    else:
        message = client.chat.completions.create(**request).choices[0].message
    return message.to_dict(), shown(message)


def put_together(stream) -> ChatCompletionMessage:
    """Join deltas; the client's own helper refuses answers that were cut by their length."""
    content, calls = "", []
    for chunk in stream:
        delta = chunk.choices[0].delta
        content += delta.content or ""
        for part in delta.tool_calls or []:
            if part.index == len(calls):
                calls.append({"id": part.id, "type": "function", "function": {"arguments": ""}})
                calls[-1]["function"]["name"] = part.function.name
            calls[part.index]["function"]["arguments"] += part.function.arguments or ""
    return ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": content or None} | ({"tool_calls": calls} if calls else {})
    )


talk(ask, openai_user, openai_result)
