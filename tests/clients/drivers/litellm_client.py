"""LiteLLM as a client of an OpenAI-compatible server."""

import litellm
from talk import Json, openai_result, openai_user, shown, talk


def ask(task: Json, messages: list[Json]) -> tuple[Json, Json]:
    answer = litellm.completion(
        model="openai/default",
        api_base=task["url"] + "/v1",
        api_key="none",
        messages=messages,
        stream=task["stream"],
        **task["options"],
    )
    if task["stream"]:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    message = answer.choices[0].message
    return message.model_dump(), shown(message)


talk(ask, openai_user, openai_result)
