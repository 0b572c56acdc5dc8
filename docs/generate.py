# ruff: noqa: INP001 - a script, not a package
"""Writes the reference pages that come from the code: ``make docs``; a test keeps them current."""

from __future__ import annotations

import ast
import inspect
import tomllib
import types
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import rejoinder.config
from rejoinder.cli.main import EXIT_CODES, app
from rejoinder.config import Config

REFERENCE = Path(__file__).parent / "reference"
PROTOCOLS = REFERENCE / "protocols.toml"
_NOTE = "<!-- Written by docs/generate.py: change the code and run `make docs`. -->\n"


def pages() -> dict[Path, str]:
    """Return the generated pages by their path."""
    return {
        REFERENCE / "cli.md": cli_page(),
        REFERENCE / "configuration.md": configuration_page(),
        REFERENCE / "protocols.md": protocols_page(),
    }


# --- commands --------------------------------------------------------------------------------


def cli_page() -> str:
    """Return the reference of all commands."""
    lines = [_NOTE, "# Commands", ""]
    root = typer.main.get_command(app)
    lines += ["Options of every command, given before its name:", "", *_options(root), ""]
    for path, command in _commands(root, ""):
        lines += [f"## `rejoinder {path}{_arguments(command)}`", ""]
        lines += [_plain(inspect.cleandoc(command.help or "")), ""]
        options = list(_options(command))
        lines += [*options, ""] if options else []
    lines += ["## Exit codes", "", "| code | of every command |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join([*lines, ""])


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _arguments(command: Any) -> str:
    names = [_shown(p) for p in command.params if p.param_type_name == "argument"]
    return "".join(f" {name}" for name in names)


def _shown(argument: Any) -> str:
    name: str = argument.metavar or argument.name.upper()
    return name


def _options(command: Any) -> Iterator[str]:
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    shown = [p for p in shown if p.name not in ("help", "install_completion", "show_completion")]
    if not shown:
        return
    yield "| option | meaning |"
    yield "|---|---|"
    for parameter in shown:
        names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
        if parameter.param_type_name == "argument":
            names = f"`{_shown(parameter)}`"
        default = parameter.default
        ends = (
            "" if default in (None, False, ...) or callable(default) else f" Default: `{default}`."
        )
        yield f"| {names} | {_plain(parameter.help or '')}{ends} |"


def _plain(text: str) -> str:
    """Turn the terminal's markup into Markdown."""
    return text.replace("[bold]", "`").replace("[/bold]", "`").replace("|", "\\|")


# --- configuration ---------------------------------------------------------------------------


def configuration_page() -> str:
    """Return the reference of all keys."""
    lines = [_NOTE, "# Configuration", ""]
    lines += [
        "A TOML file, given by `--config` or found as `rejoinder.toml` in the working directory.",
        "Unknown keys are refused. `rejoinder config show` prints all values in effect.",
        "",
        "Environment variables hold secrets and paths only: `REJOINDER_HOME` (data directory),",
        "`REJOINDER_CACHE` (converted models), `REJOINDER_API_KEYS` (`tenant:name:key`, comma",
        "separated), and the variables that `api_key_env` of `[judge]` and `[hints]` name.",
        "",
    ]
    for title, section in _sections(Config, ""):
        lines += [f"## {title}", "", inspect.cleandoc(section.__doc__ or ""), ""]
        rows = list(_keys(section))
        if rows:
            lines += ["| key | values | default | meaning |", "|---|---|---|---|", *rows]
        lines.append("")
    return "\n".join(lines)


def _sections(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield headings and sections; a section of several kinds comes once for each.

    A list of sections is headed as its file writes it, in double brackets.
    """
    yield (f"`[{prefix}]`" if prefix else "Top level", section)
    for name, field in section.model_fields.items():
        inner = _models(field.annotation)
        path = f"{prefix}.{name}".strip(".")
        for one in inner:
            kind = one.model_fields.get("kind")
            if get_origin(field.annotation) is tuple:
                yield f"`[[{path}]]`", one
            elif kind is None or len(get_args(kind.annotation)) > 1:
                yield from _sections(one, path)
            else:
                yield f'`[{path}]` with `kind = "{kind.default}"`', one


def _models(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _keys(section: type[BaseModel]) -> Iterator[str]:
    texts = _field_texts(section)
    for name, field in section.model_fields.items():
        names_the_section = name == "kind" and len(get_args(field.annotation)) == 1
        if names_the_section or (_models(field.annotation) and not _optional(field.annotation)):
            continue
        meaning = " ".join(texts.get(name, "").split()).replace("``", "`").replace("|", "\\|")
        yield f"| `{name}` | {_values(field)} | {_default(field)} | {meaning} |"


def _field_texts(section: type[BaseModel]) -> dict[str, str]:
    """Return the text under each field, those of base sections included."""
    texts: dict[str, str] = {}
    for base in reversed(section.__mro__):
        for field, text in pairwise(_body(base)):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                texts[field.target.id] = inspect.cleandoc(text.value.value)
    return texts


def _body(section: type) -> list[ast.stmt]:
    """Return the statements of a section's class, none of a class that is no section."""
    if not section.__module__.startswith(rejoinder.config.__name__):
        return []
    (found,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(found, ast.ClassDef)
    return found.body


def _optional(annotation: Any) -> bool:
    return type(None) in get_args(annotation)


def _values(field: FieldInfo) -> str:
    limits = [
        f"{sign} {bound}"
        for item in field.metadata
        for attribute, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
        if (bound := getattr(item, attribute, None)) is not None
    ]
    return ", ".join([_type(field.annotation), *limits])


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return " \\| ".join(f'`"{value}"`' for value in arguments)
    if origin in (Union, types.UnionType):
        return ", or ".join(_type(part) for part in arguments if part is not type(None))
    if origin is tuple:
        kinds = {_type(part) for part in arguments if part is not Ellipsis}
        return f"list of {' and '.join(sorted(kinds))}"
    if origin is dict:
        return "table"
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "section"
    return {str: "text", int: "integer", float: "number", bool: "true or false"}[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value == {}:
        return "not set"
    if isinstance(value, tuple):
        return f"`[{', '.join(_toml(part) for part in value)}]`"
    return f"`{_toml(value)}`"


def _toml(value: object) -> str:
    from rejoinder.launch.toml import toml_value

    return toml_value(value)


# --- protocols -------------------------------------------------------------------------------


def protocols_page() -> str:
    """Return the tables of what each API has, here and at other servers."""
    page = tomllib.loads(PROTOCOLS.read_text("utf-8"))
    lines = [_NOTE.replace("the code", PROTOCOLS.name), "# Protocols", "", page["before"]]
    for table in page["tables"]:
        columns = ["", *table["columns"], "Rejoinder"]
        lines += [f"## {table['title']}", "", _row(columns), "|---" * len(columns) + "|"]
        lines += [_row([row["feature"], *row["others"], row["rejoinder"]]) for row in table["rows"]]
        lines.append("")
    return "\n".join([*lines, page["after"].lstrip("\n")])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
