"""What is wrong in a configuration file, in the words and paths of that file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


_TWICE = re.compile(r"Cannot declare \((?P<key>.*)\) twice(?P<place>.*)")
"""As ``tomllib`` tells of a section whose heading is there already."""


def describe_fault(root: type[BaseModel], fault: ErrorDetails) -> str:
    """Return one line: the key as the file has it, and what to change about it."""
    path, section, kind = _place(root, fault["loc"])
    key, context = ".".join(path), fault.get("ctx", {})
    with_kind = "" if kind is None else f" with kind = {kind!r}"
    match fault["type"]:
        case "extra_forbidden":
            # What a section of another kind has is no misplaced key.
            elsewhere = places_of(root, path[-1]) if kind is None else []
            return f"{key}: no such key{with_kind}{_hint(path[-1], section, elsewhere)}"
        case "missing":
            return f"{key} is required{with_kind}"
        case "union_tag_invalid":
            return f"{key}.kind: {context['tag']!r} is not one of {context['expected_tags']}"
        case "literal_error":
            return f"{key}: {fault['input']!r} is not one of {context['expected']}"
        case "tuple_type" if isinstance(fault["input"], dict):
            return f"{key}: there can be several, so its heading has two brackets: [[{key}]]"
        case "tuple_type":
            return f"{key}: should be a list, in brackets"
        case _:
            return f"{key}: {fault['msg'].removeprefix('Value error, ')}"


def told_toml_fault(error: ValueError | RecursionError) -> str:
    """Return what a file's text breaks, with the remedy where two pieces were put together."""
    twice = _TWICE.match(str(error))
    if twice is None:
        return str(error)
    section = ".".join(re.findall(r"'([^']*)'", twice["key"]))
    return f"[{section}] stands twice: put its keys under one heading{twice['place']}"


def places_of(root: type[BaseModel], key: str) -> list[str]:
    """Return where a file may have a key of this name, with dots, in the order of the sections."""
    found = [key] if key in root.model_fields else []
    for name, field in root.model_fields.items():
        for section in _sections(field.annotation):
            found += [f"{name}.{place}" for place in places_of(section, key)]
    return list(dict.fromkeys(found))


def _place(
    root: type[BaseModel], parts: Sequence[str | int]
) -> tuple[list[str], type[BaseModel] | None, str | None]:
    """Return a location without what only the validator knows, its section, and that one's kind."""
    path: list[str] = []
    choices: list[type[BaseModel]] = [root]
    section: type[BaseModel] | None = root
    kind: str | None = None
    below_value = False
    for part in parts:
        if len(choices) > 1:  # the validator names which form of the section it took
            choices, kind = [one for one in choices if _kind_of(one) == part], str(part)
            continue
        if not choices:
            # A list's index or a table's key is in the file; deeper parts name types it tried.
            if not below_value:
                path.append(str(part))
                below_value = True
            continue
        path.append(str(part))
        section = choices[0]
        field = section.model_fields.get(str(part))
        choices = [] if field is None else _sections(field.annotation)
        if choices:
            kind = None
    return path, section, kind


def _sections(annotation: Any) -> list[type[BaseModel]]:
    members = get_args(annotation) or (annotation,)
    return [one for one in members if isinstance(one, type) and issubclass(one, BaseModel)]


def _kind_of(section: type[BaseModel]) -> Any:
    return section.model_fields["kind"].default


def _hint(key: str, section: type[BaseModel] | None, elsewhere: Sequence[str]) -> str:
    """Say which key was meant: this one of another section, or one that is written alike."""
    known = [] if section is None else list(section.model_fields)
    meant = elsewhere or difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {' or '.join(meant)}?" if meant else ""
