"""All families, and which one a model is of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rejoinder.chat.families import deepseek, glm, harmony, llama, mistral, qwen
from rejoinder.chat.families.base import BeginCall, ChatFamily, Format, FrameCall, MakeParser
from rejoinder.chat.families.events import EventWriter, call_id
from rejoinder.chat.families.harmony import HarmonyParser
from rejoinder.chat.renderer import ChatTemplateRenderer, Renderer
from rejoinder.models.tokenizer import ModelTokenizer
from rejoinder.types import Json


def _harmony(out: EventWriter, tools: Sequence[Json], *, thinking: bool) -> HarmonyParser:
    del thinking  # the prompt opens a message, never thoughts
    return HarmonyParser(out, tools)


def _tagged(
    name: str,
    parser: MakeParser,
    begin_call: BeginCall,
    frame_call: FrameCall,
    thoughts: tuple[str, str],
    calls: tuple[str, ...],
    new_id: Callable[[], str] = call_id,
) -> Format:
    return Format(name, parser, thoughts, calls, *thoughts, begin_call, frame_call, new_id)


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format("generic"),
        _tagged("qwen", qwen.parser, qwen.begin_call, qwen.frame_call, qwen.THOUGHTS, qwen.CALL),
        _tagged(
            "llama", llama.parser, llama.begin_call, llama.frame_call, llama.THOUGHTS, (llama.TAG,)
        ),
        _tagged(
            "mistral",
            mistral.parser,
            mistral.begin_call,
            mistral.frame_call,
            mistral.THOUGHTS,
            mistral.MARKERS,
            mistral.call_id,
        ),
        _tagged(
            "glm",
            glm.parser,
            glm.begin_call,
            glm.frame_call,
            glm.THOUGHTS,
            (*glm.CALL, *glm.PAIRS),
        ),
        _tagged(
            "deepseek",
            deepseek.parser,
            deepseek.begin_call,
            deepseek.frame_call,
            deepseek.THOUGHTS,
            deepseek.MARKERS,
        ),
        Format(
            "gpt-oss",
            _harmony,
            harmony.MARKERS,
            begin_call=harmony.begin_call,
            frame_call=harmony.frame_call,
            begin_content=harmony.BEGIN_CONTENT,
        ),
    )
}

_SIGNS = (
    ("gpt-oss", (harmony.CHANNEL, harmony.MESSAGE)),
    ("deepseek", (deepseek.CALL[0], deepseek.SEPARATOR)),
    ("mistral", (mistral.CALLS,)),
    ("glm", (glm.PAIRS[0], glm.CALL[0])),
    ("qwen", (qwen.CALL[0],)),
    ("llama", ("<|start_header_id|>", '"parameters"')),
    ("qwen", qwen.THOUGHTS),
)
"""What only the template of a family has in it; the first that fits counts."""


def detect(template: str | None) -> str:
    """Return the name of the family that a chat template is of; ``generic`` where it is none's."""
    for name, signs in _SIGNS:
        if template is not None and all(sign in template for sign in signs):
            return name
    return "generic"


def choose_family(
    name: str, tokenizer: ModelTokenizer, renderer: Renderer | None = None
) -> ChatFamily:
    """Return a family by name; ``auto`` asks the model's chat template.

    Args:
        name: as in ``model.family``.
        tokenizer: the model's.
        renderer: None takes the model's chat template.

    Raises:
        ConfigError: the model has no chat template.
    """
    found = detect(tokenizer.chat_template) if name == "auto" else name
    return ChatFamily(FORMATS[found], renderer or ChatTemplateRenderer(tokenizer), tokenizer)
