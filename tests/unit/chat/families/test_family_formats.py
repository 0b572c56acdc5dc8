"""What each family writes, read as thoughts, content and calls."""

from __future__ import annotations

import pytest
from family_kit import TOOLS, Read, read

DS_BEGIN, DS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
DS_CALL, DS_SEP, DS_CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
WRITTEN = "<tool_call>\n<function=f>\n<parameter=s>\n"
NEXT = "<|start|>assistant"

CASES = {
    "qwen, plain": ("qwen", "Hello.\n", "Hello.\n", None, []),
    "qwen, thoughts": ("qwen", "<think>\nHm.\n\nSo.\n</think>\n\nYes.", "Yes.", "Hm.\n\nSo.", []),
    "qwen, no thoughts": ("qwen", "<think>\n\n</think>\n\nYes.", "Yes.", None, []),
    "qwen, a call": (
        "qwen",
        'Let me see.\n<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>',
        "Let me see.",
        None,
        [("f", '{"n": 1}')],
    ),
    "qwen, two calls": (
        "qwen",
        (
            '<think>\na\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n'
            '<tool_call>\n{"arguments": {"s": "}"}, "name": "f"}\n</tool_call>\n'
        ),
        "",
        "a",
        [("f", "{}"), ("f", '{"s": "}"}')],
    ),
    "qwen, a call without arguments": (
        "qwen", '<tool_call>{"name": "f"}</tool_call>', "", None, [("f", "{}")],
    ),
    "qwen, a call among thoughts that are not closed": (
        "qwen",
        '<think>\nHm.\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
        "",
        "Hm.",
        [("f", "{}")],
    ),
    "qwen, a last bracket is missing": (
        "qwen", '<tool_call>{"name": "f", "arguments": {"n": 1}</tool_call>', "", None,
        [("f", '{"n": 1}')],
    ),
    "qwen, a bracket too many": (
        "qwen", '<tool_call>{"name": "f", "arguments": {}}}</tool_call>', "}", None, [("f", "{}")],
    ),
    "qwen, a marker inside a string": (
        "qwen",
        '<tool_call>{"name": "f", "arguments": {"s": "</tool_call>\\"<think>"}}</tool_call>!',
        "!",
        None,
        [("f", '{"s": "</tool_call>\\"<think>"}')],
    ),
    "qwen, cut off": (
        "qwen", '<tool_call>{"name": "f", "arguments": {"s": "ab', "", None, [("f", '{"s": "ab')],
    ),
    "qwen, cut off before the arguments": (
        "qwen", 'A\n<tool_call>\n{"name": "f"', 'A\n<tool_call>\n{"name": "f"', None, [],
    ),
    "qwen, no call": (
        "qwen", "A\n<tool_call>{broken}</tool_call>\nB", "A\n<tool_call>{broken}</tool_call>\nB",
        None, [],
    ),
    "qwen, text after a call": (
        "qwen", '<tool_call>{"name": "f", "arguments": {}}</tool_call>\nDone.\n', "\nDone.\n", None,
        [("f", "{}")],
    ),
    "qwen, written parameters": (
        "qwen",
        (
            "<tool_call>\n<function=f>\n<parameter=s>\n12\n</parameter>\n"
            "<parameter=n>\n12\n</parameter>\n"
            '<parameter=x>\na < b\n\n"c"\n</parameter>\n</function>\n</tool_call>'
        ),
        "",
        None,
        [("f", '{"s": "12", "n": 12, "x": "a < b\\n\\n\\"c\\""}')],
    ),
    "qwen, written parameters that are cut off": (
        "qwen", f"{WRITTEN}12", f"{WRITTEN}12", None, [],
    ),
    "llama, bare": (
        "llama", '{"name": "f", "parameters": {"n": 1}}', "", None, [("f", '{"n": 1}')],
    ),
    "llama, tagged": (
        "llama", '<|python_tag|>{"name": "g", "parameters": {}}; {"name": "f", "arguments": {}}',
        "", None, [("g", "{}"), ("f", "{}")],
    ),
    "llama, JSON that is no call": (
        "llama", '{"name": "Bob", "parameters": {}}', '{"name": "Bob", "parameters": {}}', None, [],
    ),
    "llama, code": ("llama", "<|python_tag|>print(1)", "<|python_tag|>print(1)", None, []),
    "llama, JSON inside an answer": (
        "llama", 'Use {"name": "f", "parameters": {}}', 'Use {"name": "f", "parameters": {}}', None,
        [],
    ),
    "mistral, list": (
        "mistral",
        'Sure.[TOOL_CALLS] [{"name": "f", "arguments": {"n": [1]}}, {"name": "g"}]',
        "Sure.",
        None,
        [("f", '{"n": [1]}'), ("g", "{}")],
    ),
    "mistral, named": (
        "mistral", '[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"n": 1}[TOOL_CALLS]g{}', "", None,
        [("f", '{"n": 1}'), ("g", "{}")],
    ),
    "mistral, thoughts": ("mistral", "[THINK]Hm.[/THINK]Yes.", "Yes.", "Hm.", []),
    "mistral, no call": ("mistral", "[TOOL_CALLS] none", "[TOOL_CALLS] none", None, []),
    "glm": (
        "glm",
        (
            "\n<think>Hm.</think>\nOn it.\n<tool_call>f\n"
            "<arg_key>s</arg_key>\n<arg_value>1</arg_value>\n"
            "<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n"
            "<arg_key>l</arg_key>\n<arg_value>[1.50, true]</arg_value>\n</tool_call>\n"
        ),
        "On it.",
        "Hm.",
        [("f", '{"s": "1", "n": 1, "l": [1.50, true]}')],
    ),
    "glm, two calls": (
        "glm", "<tool_call>f</tool_call>\n<tool_call>weather\n</tool_call>", "", None,
        [("f", "{}"), ("weather", "{}")],
    ),
    "glm, no call": (
        "glm", "<tool_call>f\n<arg_key>s</arg_key></tool_call>",
        "<tool_call>f\n<arg_key>s</arg_key></tool_call>", None, [],
    ),
    "deepseek, fenced": (
        "deepseek",
        (
            f'See:{DS_BEGIN}{DS_CALL}function{DS_SEP}f\n```json\n{{"n": 1}}\n```{DS_CALL_END}\n'
            f"{DS_CALL}function{DS_SEP}g\n```json\n{{}}\n```{DS_CALL_END}{DS_END}"
        ),
        "See:",
        None,
        [("f", '{"n": 1}'), ("g", "{}")],
    ),
    "deepseek, plain": (
        "deepseek",
        f'<think>A</think>{DS_BEGIN}{DS_CALL}f{DS_SEP}{{"s": "`"}}{DS_CALL_END}{DS_END}',
        "",
        "A",
        [("f", '{"s": "`"}')],
    ),
    "deepseek, a draft among thoughts": (
        "deepseek", f"<think>{DS_BEGIN}{DS_CALL}f{DS_SEP}{{}}{DS_CALL_END}{DS_END}</think>No.",
        "No.", f"{DS_BEGIN}{DS_CALL}f{DS_SEP}{{}}{DS_CALL_END}{DS_END}", [],
    ),
    "deepseek, no call": (
        "deepseek", f"{DS_BEGIN}{DS_CALL}f{DS_SEP}nothing{DS_CALL_END}{DS_END}",
        f"{DS_BEGIN}{DS_CALL}f{DS_SEP}nothing{DS_CALL_END}{DS_END}", None, [],
    ),
    "gpt-oss": (
        "gpt-oss",
        f"<|channel|>analysis<|message|>Hm.<|end|>{NEXT}<|channel|>final<|message|>Yes.\n<|return|>",
        "Yes.\n",
        "Hm.",
        [],
    ),
    "gpt-oss, a call": (
        "gpt-oss",
        (
            f"<|channel|>analysis<|message|>A<|end|>{NEXT}<|channel|>analysis<|message|>B<|end|>"
            f"{NEXT}<|channel|>commentary<|message|>One moment.<|end|>"
            f"{NEXT}<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
            '{"n": 1}<|call|>'
        ),
        "One moment.",
        "A\n\nB",
        [("f", '{"n": 1}')],
    ),
    "gpt-oss, the recipient first": (
        "gpt-oss", " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "", None,
        [("f", "{}")],
    ),
    "gpt-oss, without a channel": ("gpt-oss", "Yes. to=me", "Yes. to=me", None, []),
    "gpt-oss, an unknown channel": (
        "gpt-oss", "<|channel|>song<|message|>A<|return|>", "<|channel|>song<|message|>A", None, [],
    ),
    "generic": (
        "generic", "<think>\na</think>\n\n<tool_call>{}", "<think>\na</think>\n\n<tool_call>{}",
        None, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("with_tokens", [True, False], ids=["tokens", "letters"])
@pytest.mark.parametrize(
    ("family", "text", "content", "reasoning", "calls"), CASES.values(), ids=CASES.keys()
)
def test_an_answer_is_read_as_its_family_writes_it(
    family, text, content, reasoning, calls, with_tokens
):
    found = read(family, text, cuts=range(0, 999, 3), with_tokens=with_tokens)
    assert (found.content, found.reasoning, found.calls) == (content, reasoning, calls)


@pytest.mark.parametrize(
    ("family", "prompt"),
    [
        ("qwen", "assistant\n<think>\n"),
        ("deepseek", "assistant<think>\n"),
        ("glm", "assistant<think>"),
        ("mistral", "[THINK]"),
    ],
)
def test_thoughts_may_have_been_opened_by_the_prompt(family, prompt):
    closing = "[/THINK]" if family == "mistral" else "</think>"
    found = read(family, f"\nHm.\n{closing}\n\nYes.", prompt=prompt)
    assert (found.reasoning, found.content) == ("Hm.", "Yes.")
    unfinished = read(family, "Hm.\n", prompt=prompt)
    assert (unfinished.reasoning, unfinished.content) == ("Hm.\n", "")


def test_a_prompt_that_has_closed_its_thoughts_opens_none():
    assert read("qwen", "Yes.", prompt="<think>\n\n</think>\n\n").content == "Yes."


def test_thoughts_begin_at_the_start_only_and_later_markers_are_text():
    text = "Write <think> and </think>."
    assert read("qwen", text) == Read([("ContentDelta", text)], text, None, [])


def test_without_tools_nothing_is_a_call():
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert read("qwen", text, tools=None, with_tokens=False).content == text
    assert read("llama", '{"name": "f", "parameters": {}}', tools=[]).calls == []


def test_a_tool_that_nobody_offered_is_called_all_the_same_where_a_marker_says_so():
    """Its caller answers that there is none, and the model can learn from that."""
    assert read("qwen", '<tool_call>{"name": "h", "arguments": {}}</tool_call>', tools=TOOLS).calls


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("gpt-oss", f"<|channel|>final{' ' * 500}!<|message|>"),
        ("mistral", f"[TOOL_CALLS]f[CALL_ID]{' ' * 50_000}!{{"),
        ("qwen", f"<tool_call><function=f><parameter=s>{'</parameter> ' * 5_000}!</tool_call>"),
    ],
)
def test_long_runs_of_one_thing_take_no_longer_than_other_text(family, text):
    """A pattern that tries every way to share a run of spaces would need hours for the first."""
    assert read(family, text).content == text
