"""Families with templates in their style, and answers in tokenisations that are not the usual one.

The templates are short, and do with history what those of the models do: leave thoughts out, write
calls anew, trim, and end messages with the family's own tokens.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from rejoinder.chat.families.base import ChatFamily
from rejoinder.chat.families.events import AnswerParts
from rejoinder.chat.families.registry import FORMATS, choose_family
from rejoinder.chat.token_bytes import TokenBytes
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Json, Message

TOOLS: list[Json] = [{"type": "function", "function": {"name": "f"}}]
_MERGES = [
    ("a", "b"), ("ab", "a"), ("Ġ", "a"), ("b", "b"), ("Ġ", "Ġ"), ("Ċ", "Ċ"), ("Ã", "©"),
    ('"', "a"), (":", "Ġ"), ("b", "Ġ"), ("Ġ", "b"), ("a", '"'), ("<", "|"),
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """How one family writes conversations and ends answers."""

    template: str
    specials: tuple[str, ...]
    """Its tokens beside the markers of its answers."""
    eos: tuple[str, ...]
    end: str
    """The end token that the model samples before a user speaks again."""
    call: str
    """A call of ``f`` with ``{"k": "ab a"}``, as the template writes it."""
    call_end: str
    plain: str = "{}"
    """An answer, as the model samples it."""
    thoughts: str | None = "<think>\n{}\n</think>\n\n{}"
    """Thoughts and an answer; None where the family has none."""


_CHATML_CALL = (
    "{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}"
)
_CHATML = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
    "{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.index0 > ns.last %}"
    "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}" + _CHATML_CALL + "<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)
_JSON_CALL = '<tool_call>\n{"name": "f", "arguments": {"k": "ab a"}}\n</tool_call>'
_IM = ("<|im_start|>", "<|im_end|>")

CASES: dict[str, Case] = {
    "generic": Case(_CHATML, _IM, ("<|im_end|>",), "<|im_end|>", "", "", thoughts=None),
    "qwen": Case(_CHATML, _IM, ("<|im_end|>",), "<|im_end|>", _JSON_CALL, "<|im_end|>"),
    "llama": Case(
        "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m.role }}"
        "<|end_header_id|>\n\n{{ m.content | trim }}{% for c in m.tool_calls or [] %}"
        '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}'
        "{% endfor %}<|eot_id|>{% endfor %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}",
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        ("<|eot_id|>",),
        "<|eot_id|>",
        '{"name": "f", "parameters": {"k": "ab a"}}',
        "<|eot_id|>",
        thoughts=None,
    ),
    "mistral": Case(
        "<s>{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
        "{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]"
        "{% else %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"
        "{% endfor %}</s>{% endif %}{% endfor %}",
        ("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        ("</s>",),
        "</s>",
        '[TOOL_CALLS]f[ARGS]{"k": "ab a"}',
        "</s>",
        thoughts="[THINK]{}[/THINK]{}",
    ),
    "glm": Case(
        "[gMASK]<sop>{% for m in messages %}<|{{ 'observation' if m.role == 'tool' else m.role }}|>"
        "\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
        "{% for k, v in c.function.arguments.items() %}{{ '\n<arg_key>' + k }}</arg_key>\n"
        "<arg_value>{{ v }}</arg_value>{% endfor %}{{ '\n</tool_call>' }}{% endfor %}{% endfor %}"
        "{{ '<|assistant|>\n' }}",
        ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|observation|>"),
        ("<|user|>", "<|observation|>"),
        "<|user|>",
        "<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>ab a</arg_value>\n</tool_call>",
        "<|observation|>",
    ),
    "deepseek": Case(
        "<｜begin▁of▁sentence｜>{% for m in messages %}{% if m.role == 'user' %}<｜User｜>"
        "{{ m.content }}{% elif m.role == 'tool' %}<｜tool▁output▁begin｜>{{ m.content }}"
        "{% else %}<｜Assistant｜>{{ m.content }}{% if m.tool_calls %}<｜tool▁calls▁begin｜>"
        "{% for c in m.tool_calls %}<｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>"
        "{{ c.function.arguments | tojson }}<｜tool▁call▁end｜>{% endfor %}"
        "<｜tool▁calls▁end｜>{% endif %}<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
        "<｜Assistant｜>",
        (
            "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",
            "<｜tool▁output▁begin｜>",
        ),
        ("<｜end▁of▁sentence｜>",),
        "<｜end▁of▁sentence｜>",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"k": "ab a"}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<｜end▁of▁sentence｜>",
    ),
    "gpt-oss": Case(
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% for c in m.tool_calls or [] %}<|start|>assistant<|channel|>commentary to=functions."
        "{{ c.function.name }}<|constrain|>json<|message|>"
        "{{ c.function.arguments | tojson }}<|call|>"
        "{% else %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% endfor %}"
        "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}"
        "{% endfor %}<|start|>assistant",
        (),
        ("<|return|>", "<|call|>"),
        "<|return|>",
        "<|channel|>commentary to=functions.f<|constrain|>json<|message|>"
        '{"k": "ab a"}',
        "<|call|>",
        plain="<|channel|>final<|message|>{}",
        thoughts="<|channel|>analysis<|message|>{}<|end|><|start|>assistant"
        "<|channel|>final<|message|>{}",
    ),
}  # fmt: skip


@cache
def tokenizer(name: str) -> ModelTokenizer:
    """Return a tokenizer with merges, in which nearly every text has several tokenisations."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = dict.fromkeys([*alphabet, *("".join(pair) for pair in _MERGES)])
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, _MERGES))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    case, form = CASES[name], FORMATS[name]
    tokens = dict.fromkeys((*case.specials, *case.eos, *form.markers, *form.call_markers))
    made.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    ids = tuple(sorted(made.token_to_id(token) for token in case.eos))
    return ModelTokenizer(Path("made"), made, case.template, {}, ids, 1 << 20)


@cache
def family(name: str) -> ChatFamily:
    return choose_family(name, tokenizer(name))


@cache
def token_bytes(name: str) -> TokenBytes:
    return TokenBytes(tokenizer(name).tokenizer)


def render(name: str, *messages: Message, tools: Sequence[Json] | None = None) -> list[int]:
    return family(name).renderer.render(messages, tools).ids()


def text_of(name: str, ids: Sequence[int]) -> bytes:
    return b"".join(token_bytes(name)[id_] for id_ in ids)


def sampled(name: str, text: str, noise: random.Random) -> list[int]:
    """Return ids of a text in a tokenisation that is drawn; markers and ends are their tokens."""
    made = tokenizer(name).tokenizer
    added = {token.content: id_ for id_, token in made.get_added_tokens_decoder().items()}
    pattern = "|".join(re.escape(token) for token in sorted(added, key=len, reverse=True))
    plain = {token_bytes(name)[id_]: id_ for id_ in range(len(made.get_vocab()) - len(added))}
    ids: list[int] = []
    for part in re.split(f"({pattern})", text):
        if part in added:
            ids.append(added[part])
            continue
        rest = part.encode()
        while rest:
            piece = noise.choice([rest[:size] for size in (1, 2, 3) if rest[:size] in plain])
            ids.append(plain[piece])
            rest = rest[len(piece) :]
    return ids


def answered(name: str, prompt: list[int], ids: list[int], tools: bool = False) -> Message:
    """Return the message that a client gets for sampled ids."""
    parts = AnswerParts()
    reader = family(name).reader(prompt, TOOLS if tools else None, ())
    for event in reader.feed(ids, last=True):
        parts.add(event)
    return parts.message()
