"""What is wrong in a configuration file, in the words and paths of that file."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def describe_fault(root: type[BaseModel], fault: ErrorDetails) -> str:
    """Return one line: the key as the file has it, and what to change about it."""
    path, section, kind = _place(root, fault["loc"])
    key, context = ".".join(path), fault.get("ctx", {})
    with_kind = "" if kind is None else f" with kind = {kind!r}"
    match fault["type"]:
        case "extra_forbidden":
            return f"{key}: no such key{with_kind}{_hint(path[-1], section)}"
        case "missing":
            return f"{key} is required{with_kind}"
        case "union_tag_invalid":
            return f"{key}.kind: {context['tag']!r} is not one of {context['expected_tags']}"
        case "literal_error":
            return f"{key}: {fault['input']!r} is not one of {context['expected']}"
        case _:
            return f"{key}: {fault['msg'].removeprefix('Value error, ')}"


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


def _hint(key: str, section: type[BaseModel] | None) -> str:
    known = [] if section is None else list(section.model_fields)
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
