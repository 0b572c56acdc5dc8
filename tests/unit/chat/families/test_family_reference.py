"""Well-formed answers read as the package ``renderers`` reads them, which sees them whole.

Line breaks and spaces at the ends of content and thoughts are left out of the comparison: that
package strips them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from family_kit import TOOLS, dump, read, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

reference = pytest.importorskip("renderers.parsing", reason="a development dependency")

_WORDS = st.text("ab é.", max_size=12).map(str.strip)
_ARGUMENTS = st.dictionaries(
    st.sampled_from(["s", "n", "x"]),
    st.integers(-9, 99) | st.text('ab }]\\"é', max_size=6).map(lambda text: f"a{text}b"),
    max_size=3,
)
_CALLS = st.lists(st.tuples(st.sampled_from(["f", "weather"]), _ARGUMENTS), max_size=3)
Calls = list[tuple[str, dict[str, Any]]]


class Tokens:
    """What ``renderers`` asks of a tokenizer."""

    def __init__(self, family: str) -> None:
        self._tokenizer = tokenizer(family)

    def encode(self, text: str, **_: Any) -> list[int]:
        return self._tokenizer.encode(text)

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False, **_: Any) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def convert_tokens_to_ids(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)


def _thoughts(thoughts: str) -> str:
    return f"<think>\n{thoughts}\n</think>\n\n" if thoughts else ""


def _write_qwen(thoughts: str, content: str, calls: Calls) -> str:
    blocks = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {dump(arguments)}}}\n</tool_call>'
        for name, arguments in calls
    ]
    return _thoughts(thoughts) + "\n".join([content, *blocks])


def _write_coder(thoughts: str, content: str, calls: Calls) -> str:
    blocks = []
    for name, arguments in calls:
        values = [f"<parameter={k}>\n{_plain(v)}\n</parameter>\n" for k, v in arguments.items()]
        blocks.append(f"<tool_call>\n<function={name}>\n{''.join(values)}</function>\n</tool_call>")
    return _thoughts(thoughts) + "\n".join([content, *blocks])


def _write_glm(thoughts: str, content: str, calls: Calls) -> str:
    blocks = []
    for name, arguments in calls:
        values = [
            f"<arg_key>{k}</arg_key>\n<arg_value>{_plain(v)}</arg_value>\n"
            for k, v in arguments.items()
        ]
        blocks.append(f"<tool_call>{name}\n{''.join(values)}</tool_call>")
    return _thoughts(thoughts) + "\n".join([content, *blocks])


def _write_deepseek(thoughts: str, content: str, calls: Calls) -> str:
    blocks = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{dump(arguments)}\n```"
        "<｜tool▁call▁end｜>"
        for name, arguments in calls
    ]
    section = f"<｜tool▁calls▁begin｜>{chr(10).join(blocks)}<｜tool▁calls▁end｜>" if blocks else ""
    return _thoughts(thoughts) + content + section


def _write_harmony(thoughts: str, content: str, calls: Calls) -> str:
    messages = [f"analysis<|message|>{thoughts}<|end|>", f"commentary<|message|>{content}<|end|>"]
    messages += [
        f"commentary to=functions.{name} <|constrain|>json<|message|>{dump(arguments)}<|call|>"
        for name, arguments in calls
    ]
    return "".join(f"<|start|>assistant<|channel|>{message}" for message in messages)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else dump(value)


def _reference(family: str, function: str, **names: str) -> Callable[[str], Any]:
    tokens = Tokens(family)
    ids = {key: tokens.convert_tokens_to_ids(name) for key, name in names.items()}
    more = {"tools": TOOLS} if function in ("parse_qwen35", "parse_glm") else {}
    if family != "gpt-oss":
        more["stop_ids"] = {tokens.convert_tokens_to_ids("<eos>")}
    return lambda text: getattr(reference, function)(tokens, tokens.encode(text), **ids, **more)


_CALL = {"tool_call_id": "<tool_call>", "tool_call_end_id": "</tool_call>"}
_THINK = {"think_id": "<think>", "think_end_id": "</think>"}
CASES = {
    "qwen": (
        "qwen", _write_qwen,
        _reference("qwen", "parse_qwen3", reasoning_end_id="</think>", **_CALL),
    ),
    "qwen coder": ("qwen", _write_coder, _reference("qwen", "parse_qwen35", **_CALL, **_THINK)),
    "glm": (
        "glm", _write_glm,
        _reference(
            "glm", "parse_glm", arg_key_id="<arg_key>", arg_key_end_id="</arg_key>",
            arg_value_id="<arg_value>", arg_value_end_id="</arg_value>", **_CALL, **_THINK,
        ),
    ),
    "deepseek": (
        "deepseek", _write_deepseek,
        _reference(
            "deepseek", "parse_deepseek_v3",
            tool_calls_begin_id="<｜tool▁calls▁begin｜>", tool_calls_end_id="<｜tool▁calls▁end｜>",
            tool_call_begin_id="<｜tool▁call▁begin｜>", tool_call_end_id="<｜tool▁call▁end｜>",
            tool_sep_id="<｜tool▁sep｜>",
        ),
    ),
    "gpt-oss": (
        "gpt-oss", _write_harmony,
        _reference(
            "gpt-oss", "parse_gpt_oss", return_id="<|return|>", call_id="<|call|>",
            start_id="<|start|>", end_id="<|end|>", channel_id="<|channel|>",
            message_id="<|message|>", constrain_id="<|constrain|>",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("family", "write", "expect"), CASES.values(), ids=CASES.keys())
@settings(deadline=None, max_examples=40)
@given(_WORDS, _WORDS, _CALLS)
def test_well_formed_answers_are_read_as_the_reference_reads_them(
    family, write, expect, thoughts, content, calls
):
    text = write(thoughts, content, calls)
    found, expected = read(family, text, cuts=range(0, 999, 2)), expect(text)
    assert found.content.strip() == expected.content.strip()
    assert (found.reasoning or "").strip() == (expected.reasoning_content or "").strip()
    assert [(name, json.loads(arguments)) for name, arguments in found.calls] == [
        (call.name, call.arguments) for call in expected.tool_calls
    ]
