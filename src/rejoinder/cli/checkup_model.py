"""Checks of the model's files: weights, tokenizer, chat template."""

from __future__ import annotations

from collections.abc import Iterator

from rejoinder.chat.renderer import ChatTemplateRenderer
from rejoinder.cli.checkup import Check, Finding, fail, ok, warn
from rejoinder.config import Config
from rejoinder.errors import InvalidRequest
from rejoinder.launch.prepare import weights_fingerprint
from rejoinder.models.embedded import resolve_model
from rejoinder.models.tokenizer import ModelTokenizer, load_tokenizer
from rejoinder.types import Message

_TEXTS = ("Hello, wörld!", "naïve café 你好 🙂", "    indented\n\tcode = {'a': 1}\n")


def model(config: Config) -> Iterator[Finding]:
    """The weights can be found."""
    path = resolve_model(config.model.path)
    yield ok("model", f"{path} ({weights_fingerprint(path)})")


def tokenizer(config: Config) -> Iterator[Finding]:
    """Text survives the way to ids and back, and answers can end."""
    loaded = load_tokenizer(resolve_model(config.model.path))
    text = f"{loaded.vocab_size} ids, context {loaded.context_length}, hash {loaded.hash[:8]}"
    lossy = [sample for sample in _TEXTS if loaded.decode(loaded.encode(sample)) != sample]
    if not loaded.eos_ids:
        remedy = "add eos_token_id to the model's generation_config.json: answers would never end"
        yield fail("tokenizer", text, remedy)
    elif lossy:
        remedy = f"it changes text ({lossy[0]!r}): use the tokenizer.json that came with the model"
        yield warn("tokenizer", text, remedy)
    else:
        yield ok("tokenizer", text)


def chat_template(config: Config) -> Iterator[Finding]:
    """Whether a turn's prompt begins with the ids of the turn before, answer included.

    Ids decide, not text: a template may end the last answer otherwise than earlier ones.
    """
    loaded = load_tokenizer(resolve_model(config.model.path))
    renderer = ChatTemplateRenderer(loaded)
    try:
        extends = next_turn_extends(renderer, loaded)
    except InvalidRequest as error:
        yield fail("chat template", str(error), "use the template of the model's instruct variant")
        return
    if extends:
        yield ok("chat template", "each turn extends the one before, so its work is reused")
    else:
        yield warn(
            "chat template",
            "a turn does not extend the one before (reasoning or end marks are changed)",
            "nothing to do: turns train from their own ids; only prefix reuse is lost",
        )


def next_turn_extends(renderer: ChatTemplateRenderer, tokenizer: ModelTokenizer) -> bool:
    """Return whether prompt ids + answer ids of one turn begin the next turn's prompt ids."""
    first = [Message("user", "Name a colour.")]
    answer = "Blue, like the sea."
    second = [*first, Message("assistant", answer), Message("user", "Another one?")]
    begun = renderer.render(first).ids() + tokenizer.encode(answer)
    return renderer.render(second).ids()[: len(begun)] == begun


CHECKS: dict[str, Check] = {
    "model": model,
    "tokenizer": tokenizer,
    "chat template": chat_template,
}
