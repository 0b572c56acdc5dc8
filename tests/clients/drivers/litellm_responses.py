"""LiteLLM as a client of the responses API."""

import litellm
from talk import Json, responses_result, responses_shown, responses_tool, talk


def ask(task: Json, items: list) -> tuple[list, Json]:
    options = dict(task["options"])
    options["max_output_tokens"] = options.pop("max_tokens", None)
    answer = litellm.responses(
        model="openai/default",
        api_base=task["url"] + "/v1",
        api_key="none",
        input=[one for given in items for one in (given if isinstance(given, list) else [given])],
        stream=task["stream"],
        tools=[responses_tool(tool) for tool in options.pop("tools", ())],
        **options,
    )
    if task["stream"]:
        answer = list(answer)[-1].response
    output = [item if isinstance(item, dict) else item.model_dump() for item in answer.output]
    return output, responses_shown(output)


talk(ask, lambda text: {"role": "user", "content": text}, responses_result)
