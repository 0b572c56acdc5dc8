"""The official Python client."""

from openai import OpenAI
from talk import Json, openai_result, openai_user, shown, talk


def ask(task: Json, messages: list[Json]) -> tuple[Json, Json]:
    client = OpenAI(base_url=task["url"] + "/v1", api_key="none", max_retries=0)
    request = {"model": "default", "messages": messages, **task["options"]}
    if task["stream"]:
        with client.chat.completions.stream(**request) as stream:
            completion = stream.get_final_completion()
    else:
        completion = client.chat.completions.create(**request)
    message = completion.choices[0].message
    return message.to_dict(), shown(message)


talk(ask, openai_user, openai_result)
