"""A model's tokenizer without PyTorch or transformers, for processes that must start fast."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from rejoinder.errors import ConfigError
from rejoinder.types import Json

_TEMPLATE_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


@dataclass(frozen=True)
class ModelTokenizer:
    """What a model directory says about its text side."""

    path: Path
    tokenizer: Tokenizer
    chat_template: str | None
    """Jinja source; None where the model has none."""
    special_tokens: dict[str, str]
    """``bos_token``, ``eos_token``, ...: their texts, which chat templates use by these names."""
    eos_ids: tuple[int, ...]
    """Ids that end an answer, ascending."""
    context_length: int
    """Most tokens of prompt and answer together."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; special tokens written out in it become their ids."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_document(self, text: str) -> list[int]:
        """Return the ids of a text that stands alone: with the opening token, if the model has one.

        Releases the interpreter lock, for the text may be long.
        """
        opening = self.special_tokens.get("bos_token")
        opened = bool(opening and text.startswith(opening))
        (encoding,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=not opened)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, ids: list[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of ``ids``; incomplete UTF-8 at the end becomes U+FFFD."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def token_to_id(self, token: str) -> int | None:
        """Return the id of one vocabulary entry, or None."""
        found: int | None = self.tokenizer.token_to_id(token)
        return found

    @cached_property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        size: int = self.tokenizer.get_vocab_size(with_added_tokens=True)
        return size

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the added tokens marked special: they have no text in an answer."""
        added = self.tokenizer.get_added_tokens_decoder()
        return frozenset(id_ for id_, token in added.items() if token.special)

    @cached_property
    def special_texts(self) -> tuple[str, ...]:
        """The texts that become special ids, in the order of their ids."""
        return tuple(
            self.decode([id_], skip_special_tokens=False) for id_ in sorted(self.special_ids)
        )

    @cached_property
    def hash(self) -> str:
        """Hash of vocabulary and special tokens: equal exactly where ids mean the same."""
        digest = hashlib.sha256()
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=True)
        for token, id_ in sorted(vocabulary.items(), key=lambda item: item[1]):
            digest.update(f"{id_}\0{token}\0".encode("utf-8", "surrogatepass"))
        for id_ in sorted(self.special_ids):
            digest.update(f"special\0{id_}\0".encode())
        return digest.hexdigest()[:32]


def load_tokenizer(path: Path) -> ModelTokenizer:
    """Read the tokenizer of a model directory (some 50 ms).

    Raises:
        ConfigError: the directory has no ``tokenizer.json`` or no context length.
    """
    file = path / "tokenizer.json"
    if not file.is_file():
        raise ConfigError(
            f"{path} has no tokenizer.json; save it there with "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    tokenizer = Tokenizer.from_file(str(file))
    # Files may carry the truncation and padding of their training; both would change ids.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    settings = _read_json(path / "tokenizer_config.json")
    special = _special_tokens(settings, _read_json(path / "special_tokens_map.json"))
    return ModelTokenizer(
        path=path,
        tokenizer=tokenizer,
        chat_template=_chat_template(path, settings),
        special_tokens=special,
        eos_ids=_eos_ids(path, tokenizer, special.get("eos_token")),
        context_length=context_length(path),
    )


def tokenizer_hash(path: Path) -> str:
    """Return the hash of a directory's vocabulary and special tokens (see ``EngineInfo``)."""
    return load_tokenizer(path).hash


def context_length(path: Path) -> int:
    """Return ``max_position_embeddings`` of a model directory.

    Raises:
        ConfigError: its configuration does not say.
    """
    config = _read_json(path / "config.json")
    config = config.get("text_config") or config
    length = config.get("max_position_embeddings")
    if not isinstance(length, int):
        raise ConfigError(f"{path / 'config.json'} lacks max_position_embeddings")
    return length


def _read_json(file: Path) -> Json:
    if not file.is_file():
        return {}
    data: Json = json.loads(file.read_text("utf-8"))
    return data


def _token_text(value: object) -> str | None:
    """Special tokens are written as text or as an object with ``content``."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _special_tokens(*files: Json) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _TEMPLATE_TOKENS:
        for file in files:
            text = _token_text(file.get(name))
            if text is not None:
                found.setdefault(name, text)
    return found


def _chat_template(path: Path, settings: Json) -> str | None:
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several named templates
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template if isinstance(template, str) else None


def _eos_ids(path: Path, tokenizer: Tokenizer, eos_token: str | None) -> tuple[int, ...]:
    """Return every id that any of the model's files calls the end.

    Base models often name only the end of a document in ``config.json``, while the tokenizer
    names the end of a chat message; an answer ends at either.
    """
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = _read_json(path / name).get("eos_token_id")
        ids.update([value] if isinstance(value, int) else value or [])
    if eos_token is not None and (id_ := tokenizer.token_to_id(eos_token)) is not None:
        ids.add(id_)
    return tuple(sorted(ids))
