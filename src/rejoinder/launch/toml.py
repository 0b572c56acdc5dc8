"""Configuration as TOML text: what ``config show`` prints and what roles are handed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rejoinder.config import Config


def config_toml(config: Config, notes: Mapping[str, str] | None = None) -> str:
    """Return all sections with all keys; what is not set stands there as a comment.

    Args:
        config: to be written; ``load_config`` of the result equals it.
        notes: comment by dotted key, put behind its line.
    """
    return "\n".join(_table("", config.model_dump(mode="json"), notes or {})).strip() + "\n"


def _table(prefix: str, values: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[str]:
    inner = {key: value for key, value in values.items() if isinstance(value, dict)}
    for key, value in values.items():
        if key in inner:
            continue
        note = notes.get(f"{prefix}{key}")
        behind = "" if note is None else f"  # {note}"
        line = f"# {key} is not set" if value is None else f"{_key(key)} = {toml_value(value)}"
        yield line + behind
    for key, value in inner.items():
        name = f"{prefix}{_key(key)}"
        yield ""
        yield f"[{name}]"
        yield from _table(f"{name}.", value, notes)


def toml_value(value: Any) -> str:
    """Return one value; JSON's text is TOML's for all types of the configuration but one case.

    TOML has no null: keys of an inner table that are not set are left out.
    """
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        pairs = (
            f"{_key(key)} = {toml_value(inner)}"
            for key, inner in value.items()
            if inner is not None
        )
        return "{ " + ", ".join(pairs) + " }"
    # TOML wants DEL escaped, JSON does not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)
