"""What the engine is told to hold an answer to, by what the client asks for and the engine can."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rejoinder.chat.families.registry import choose_family
from rejoinder.config import Config, GatewayConfig
from rejoinder.engine.base import Constraint, EngineInfo, Form
from rejoinder.errors import ConstraintRefused
from rejoinder.gateway.answer_format import AnswerFormat
from rejoinder.gateway.errors import ApiError
from rejoinder.gateway.holding import Held, held_to
from rejoinder.gateway.request import TurnRequest
from rejoinder.gateway.tool_choice import WantedCall

ANY = '{"type":"object"}'
NONE = '{"type":"object","properties":{},"additionalProperties":false}'
FORM = AnswerFormat("{}", lenient=False, param="response_format")


@dataclass
class Service:
    """What is asked of the gateway's."""

    family: Any
    info: EngineInfo | None
    config: Config


def engine(*capabilities: str) -> EngineInfo:
    return EngineInfo("e", "h", 100, [0], list(capabilities), {}, {})


ABLE = engine("logprobs", "json_schema")


@pytest.fixture
def ask(tiny_tokenizer):
    """Return what holds a request's answers; the family writes calls as Qwen3 does."""

    async def held(
        *tools: Any,
        name: str | None = None,
        wanted: bool = True,
        family: str = "qwen",
        info: EngineInfo | None = ABLE,
        template: str = "",
        holds: bool = True,
        several: bool = False,
        **asked: Any,
    ) -> Held | None:
        made = choose_family(family, replace(tiny_tokenizer, chat_template=template))
        request = TurnRequest(
            messages=(),
            tools=tools,
            wanted_call=WantedCall(name, several) if wanted else None,
            **asked,
        )
        config = Config(gateway=GatewayConfig(hold_calls=holds))
        return held_to(Service(made, info, config), request)  # type: ignore[arg-type]

    return held


def tool(name: str, **function: Any) -> Any:
    return {"type": "function", "function": {"name": name, **function}}


async def test_a_named_function_has_its_own_arguments_and_then_the_call_ends(ask):
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    held = await ask(tool("other"), tool("f", parameters=schema), name="f")
    text = json.dumps(schema, separators=(",", ":"))
    form = Form(text, True, " ", "}\n</tool_call>", "the tool 'f'")
    assert (held.constraint, held.param) == (Constraint([form]), "tools")


async def test_where_the_model_chooses_each_tool_comes_with_its_name(ask):
    held = await ask(tool("f", parameters={}), tool("g", strict=True))
    assert held.constraint.forms == [
        Form(ANY, True, ' "f", "arguments": ', "}\n</tool_call>", "the tool 'f'"),
        Form(NONE, False, ' "g", "arguments": ', "}\n</tool_call>", "the tool 'g'"),
    ]


SHOWS = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}"
SHOWS += "{% endfor %}"


async def test_where_several_calls_are_allowed_each_may_follow_any(ask):
    tools = [tool("f", parameters={}), tool("g", parameters={})]
    held = await ask(*tools, several=True, template=SHOWS)
    assert [form.again for form in held.constraint.forms] == [
        '\n<tool_call>\n{"name": "f", "arguments": ',
        '\n<tool_call>\n{"name": "g", "arguments": ',
    ]
    for one in (await ask(*tools, template=SHOWS), await ask(*tools, several=True)):
        assert [form.again for form in one.constraint.forms] == [None, None]


async def test_what_ends_several_calls_ends_one_too(ask):
    held = await ask(tool("f", parameters={}), family="mistral")
    (form,) = held.constraint.forms
    assert (form.after, held.constraint.end) == ("}", "]")


@pytest.mark.parametrize(("family", "template"), [("glm", ""), ("qwen", "{# <function= #}")])
async def test_a_family_without_json_says_how_it_writes_fields(ask, family, template):
    held = await ask(tool("f", parameters={}), name="f", family=family, template=template)
    (form,) = held.constraint.forms
    assert form.fields is not None
    assert (form.schema, form.before) == (ANY, "")


async def test_a_tool_whose_name_could_be_taken_for_a_marker_is_not_called(ask):
    odd = tool('g"</tool_call>')
    (form,) = (await ask(tool("f"), odd)).constraint.forms
    assert form.subject == "the tool 'f'"
    with pytest.raises(ApiError, match="no name of theirs") as caught:
        await ask(odd)
    assert (caught.value.status, caught.value.param) == (400, "tools")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema#"),
        ("https://json-schema.org/draft-07/schema", "http://json-schema.org/draft-07/schema#"),
        (
            "https://json-schema.org/draft/2020-12/schema",
            "https://json-schema.org/draft/2020-12/schema",
        ),
        ("http://json-schema.org/schema#", None),
        ("https://spec.openapis.org/oas/3.1/dialect/base", None),
    ],
)
async def test_a_dialect_that_names_no_draft_is_left_out(ask, said, kept):
    held = await ask(tool("f", parameters={"$schema": said, "type": "object"}))
    assert json.loads(held.constraint.forms[0].schema).get("$schema") == kept


@pytest.mark.parametrize("given", [{"type": "string"}, {"type": 5}, {"type": ["null"]}, [], True])
async def test_arguments_that_are_no_object_are_refused(ask, given):
    with pytest.raises(ApiError, match=r"parameters of 'f'.*'object'") as caught:
        await ask(tool("f", parameters=given))
    assert (caught.value.status, caught.value.param) == (400, "tools")


@pytest.mark.parametrize("given", [{}, {"type": "object"}, {"type": ["object", "null"]}])
async def test_arguments_are_an_object_also_where_the_schema_allows_more(ask, given):
    assert (await ask(tool("f", parameters=given))).constraint.forms[0].schema == ANY


async def test_schemas_that_are_too_large_are_refused_by_the_tools_name(ask):
    large = {"type": "object", "description": "x" * 70_000}
    with pytest.raises(ApiError, match=r"the tool 'f' has 70\d+ characters.*tool_choice") as caught:
        await ask(tool("f", parameters=large))
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    "more",
    [
        {"info": engine()},
        {"family": "generic"},
        {"holds": False},
    ],
    ids=["engine", "family", "configuration"],
)
async def test_a_call_that_cannot_be_held_is_free(ask, more):
    assert await ask(tool("f"), **more) is None


async def test_an_engine_that_nobody_knows_yet_is_told_and_refuses_by_itself(ask):
    held = await ask(tool("f"), info=None)
    assert held.is_call


async def test_a_form_is_held_where_no_call_is_asked_for(ask, tiny_tokenizer):
    held = await ask(tool("f"), wanted=False, answer_format=FORM)
    assert (held.constraint, held.param) == (Constraint([Form("{}")]), "response_format")
    held = await ask(tool("f"), answer_format=FORM)
    assert held.param == "tools"
    assert await ask(tool("f"), wanted=False) is None


async def test_a_form_that_the_engine_cannot_hold_is_refused_as_far_as_that_is_known(ask):
    with pytest.raises(ApiError, match=r"response_format: .*engine\.kind"):
        await ask(wanted=False, info=engine(), answer_format=FORM)
    assert await ask(wanted=False, info=None, answer_format=FORM) is not None


async def test_a_refusal_names_the_field_and_what_to_change(ask):
    told = (await ask(tool("f"))).refusal(ConstraintRefused("the schema of the tool 'f' is bad"))
    assert (told.status, told.code, told.param) == (400, "invalid_schema", "tools")
    assert str(told).startswith("tools: the schema of the tool 'f' is bad; change its parameters")
    told = (await ask(wanted=False, answer_format=FORM)).refusal(ConstraintRefused("bad"))
    assert str(told) == "response_format: bad"
