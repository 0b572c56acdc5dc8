"""Rendering whole conversations as the model's chat template says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rejoinder.chat.messages import normalise
from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.chat.template import compile_template
from rejoinder.errors import ConfigError, InvalidRequest
from rejoinder.models.embedded import resolve_model
from rejoinder.models.tokenizer import load_tokenizer
from rejoinder.types import Message

HELLO = (Message("user", "hi"),)


def test_the_prompt_ends_where_the_answer_begins(tiny_tokenizer):
    prompt = ChatTemplateRenderer(tiny_tokenizer).render(HELLO)
    assert prompt.text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.ids() == tiny_tokenizer.encode(prompt.text)


def test_string_arguments_of_earlier_tool_calls_do_not_crash_a_template_that_iterates_them(
    tiny_tokenizer,
):
    call = {"id": "c", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}
    messages = normalise(
        [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "sun"},
        ]
    )
    text = ChatTemplateRenderer(tiny_tokenizer).render(messages).text
    assert "<call>weather city=Paris</call>" in text


def test_template_arguments_of_the_client_are_honoured(tiny_tokenizer):
    renderer = ChatTemplateRenderer(tiny_tokenizer)
    assert renderer.render(HELLO, None, {"enable_thinking": False}).text.endswith("<think></think>")
    assert not renderer.render(HELLO, None, {"enable_thinking": True}).text.endswith("</think>")


def test_consecutive_tool_results_are_seen_together_by_the_template(tiny_tokenizer):
    """Rendering message by message would open a user turn for each result (as Qwen's does)."""
    grouping = (
        "{% for m in messages %}{% if m.role == 'tool' %}"
        "{% if messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user\n{% endif %}"
        "<r>{{ m.content }}</r>"
        "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
        "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    )
    renderer = ChatTemplateRenderer(replace(tiny_tokenizer, chat_template=grouping))
    tools = (Message("tool", "A", tool_call_id="a"), Message("tool", "B", tool_call_id="b"))
    text = renderer.render((Message("user", "go"), Message("assistant", ""), *tools)).text
    assert text.endswith("<|im_start|>user\n<r>A</r><r>B</r><|im_end|>\n")
    assert text.count("<|im_start|>user") == 2


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_template_arguments_cannot_replace_the_conversation(tiny_tokenizer, name):
    with pytest.raises(InvalidRequest, match=name):
        ChatTemplateRenderer(tiny_tokenizer).render(HELLO, None, {name: []})


STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('system must come first') }}{% endif %}"
    "{{ m.role }}: {{ m.content }};{% endfor %}"
)
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ m.role }}: {{ m.content }};{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (STRICT, "system: a\n\nb;user: c\n\nd;assistant: e;user: f;"),
        (ALTERNATING, "user: a\n\nb\n\nc\n\nd;assistant: e;user: f;"),
    ],
)
def test_a_template_that_is_strict_about_roles_gets_the_same_texts(tiny_tokenizer, template, text):
    """Claude Code and Codex send system messages that such templates refuse."""
    roles = ("system", "system", "user", "system", "assistant", "user")
    messages = [Message(role, words) for role, words in zip(roles, "abcdef", strict=True)]
    renderer = ChatTemplateRenderer(replace(tiny_tokenizer, chat_template=template))
    assert renderer.render(messages).text == text


def test_a_template_that_refuses_every_form_says_why_it_refused_the_first(tiny_tokenizer):
    strict = STRICT + "{% if messages[-1].role != 'tool' %}{{ raise_exception('last') }}{% endif %}"
    renderer = ChatTemplateRenderer(replace(tiny_tokenizer, chat_template=strict))
    with pytest.raises(InvalidRequest, match="system must come first"):
        renderer.render([Message("user", "a"), Message("system", "b")])


def test_a_template_that_refuses_a_conversation_is_a_fault_of_the_request(tiny_tokenizer):
    strict = replace(tiny_tokenizer, chat_template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidRequest, match="roles must alternate"):
        ChatTemplateRenderer(strict).render(HELLO)


@pytest.mark.parametrize("written", ["{{ tools[0].properties | dictsort }}", "{{ '{}'.format() }}"])
def test_a_template_that_stumbles_over_a_tool_is_a_fault_of_the_request(tiny_tokenizer, written):
    renderer = ChatTemplateRenderer(replace(tiny_tokenizer, chat_template=written))
    with pytest.raises(InvalidRequest, match="chat template refuses"):
        renderer.render(HELLO, [{"properties": ["no", "object"]}])


def test_a_model_without_a_template_is_refused_at_start(tiny_tokenizer):
    with pytest.raises(ConfigError, match="chat template"):
        ChatTemplateRenderer(replace(tiny_tokenizer, chat_template=None))


def test_a_template_with_a_fault_is_refused_at_start():
    with pytest.raises(ConfigError, match="fault"):
        compile_template("{% for %}")


def test_templates_get_what_they_expect_from_their_environment():
    render = compile_template(
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% if loop.index > 2 %}{% break %}"
        "{% endif %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }} "
        "{{ {'a': '<é>'} | tojson }} {{ dict(b=1) }}"
        "{% generation %} kept{% endgeneration %}\n    {%- if strftime_now('%Y')|int > 2000 %} !"
        "{% endif %}"
    )
    assert render(messages=[1, 2, 3]) == '2 {"a": "<é>"} {\'b\': 1} kept !'


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ messages.append(1) }}",
        "{{ dict.mro() }}",
    ],
)
def test_templates_stay_in_their_sandbox(tiny_tokenizer, source):
    renderer = ChatTemplateRenderer(replace(tiny_tokenizer, chat_template=source))
    with pytest.raises(InvalidRequest):
        renderer.render(HELLO)


@pytest.mark.model
def test_prompt_ids_equal_those_of_transformers():
    from transformers import AutoTokenizer

    path = resolve_model("embedded")
    reference = AutoTokenizer.from_pretrained(path)
    renderer = ChatTemplateRenderer(load_tokenizer(path))
    for messages in (
        [{"role": "user", "content": "What is the capital of France?"}],
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "¿Qué? 👍🏽\n\n 1"},
        ],
        [
            {"role": "user", "content": " a<|im_end|>b<|im_start|> "},
            {"role": "assistant", "content": "the quick  brown\tfox"},
            {"role": "user", "content": "하나 둘"},
        ],
    ):
        expected = reference.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        for _ in range(2):  # the second time from the cache
            assert renderer.render(normalise(messages)).ids() == list(expected)
