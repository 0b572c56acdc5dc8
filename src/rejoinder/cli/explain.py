"""``rejoinder explain turn``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rejoinder.cli.journal import open_journal
from rejoinder.cli.settings import settings_of
from rejoinder.cli.terminal import counted, out
from rejoinder.errors import RejoinderError
from rejoinder.plain_text import plain, shortened
from rejoinder.types import Fate

if TYPE_CHECKING:
    from rejoinder.types import Json

app = typer.Typer(no_args_is_help=True, help="Say why something is as it is.")


_TEXT = 200
"""Characters of a question or an answer that are shown."""
_SIMILAR = 3
"""Ids that are named at most in place of an unknown one."""
_WHOLE = re.compile("([a-z]+[-_])?[0-9a-f]{32}")


@app.callback()
def explain() -> None:
    """Keep ``turn`` a command of its own while it is the only one."""


@app.command()
def turn(
    ctx: typer.Context,
    any_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Id of a turn (X-Rejoinder-Turn-Id), or of a completion."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead.")] = False,
) -> None:
    """Say why a turn was linked to an earlier one or not, and what became of it.

    Question and answer are shown by their beginnings, and whole with --json.
    """
    config = settings_of(ctx).config
    with open_journal(config) as journal:
        found = journal.explain_turn(any_id)
        if not found:
            raise RejoinderError(_unknown(any_id, journal.similar_ids(any_id, _SIMILAR + 1)))
        for entry in found:
            if entry["sample"] is not None and entry["sample"]["waits"]:
                batch = journal.status(entry["policy"], config.trainer.max_staleness)["samples"]
                entry["sample"]["batch"] = {name: batch[name] for name in ("ready", "needed")}
    if as_json:
        out().print_json(json.dumps(found), ensure_ascii=True)  # nothing in it commands a terminal
        return
    from rich.table import Table
    from rich.text import Text

    for number, entry in enumerate(found):
        if number:
            typer.echo()
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, value in _rows(entry):
            table.add_row(name, Text(plain(value)))
        out().print(table)


def _unknown(any_id: str, similar: Sequence[str]) -> str:
    """Say of an id that is not in the journal what can be known."""
    told = f"no turn or completion {any_id!r} is in the journal"
    if len(similar) > _SIMILAR:
        return f"{told}, and more than {_SIMILAR} ids begin like it: give the whole id"
    if similar:
        return f"{told}; did you mean {' or '.join(similar)}?"
    if _WHOLE.fullmatch(any_id):
        return f"{told}: it is mistyped, of another --home, or of a deleted conversation"
    return (
        f"{told}, nor can it be: an id has 32 digits of 0 to 9 and a to f, that of a completion "
        "with a word before them (chatcmpl-)"
    )


def _rows(entry: Json) -> Iterator[tuple[str, str]]:
    link = entry["link"] or {}
    yield "turn", entry["turn"]
    yield "completion", f"{entry['completion']}, answer {entry['choice']}"
    yield from _texts(entry)
    yield "type", _with(entry["turn_type"], link.get("type_by"))
    yield "session", entry["session"]
    if "session" in link:
        yield "", _rule(link["session"])
    if entry["external_session"] is not None:
        yield "named", _by(repr(entry["external_session"]), link.get("named_by"))
    yield "parent", entry["parent"] or "none"
    yield "", _rule(link["parent"]) if "parent" in link else entry["reason"]
    if "repeat" in link:
        yield "repeats", _rule(link["repeat"])
    if "next_state" in link:
        said = link["next_state"]
        left_out = f"{said['left_out']} left out as client context"
        yield "brings", f"{said['messages']} message(s) of the parent's next state; {left_out}"
    if "prompt" in link:
        yield "prompt", _rule(link["prompt"])
        if link["prompt"].get("turns"):
            kept, turns = link["prompt"]["ids"], ", ".join(link["prompt"]["turns"])
            yield "", f"its first {kept} ids are those of {turns}"
    if "begun" in link:
        yield "begins", f"with a call: the last {link['begun']} ids of its prompt"
    if entry["trace"]:
        yield "trace", entry["trace"]
    yield from _ending(entry)
    yield from _afterwards(entry)


def _texts(entry: Json) -> Iterator[tuple[str, str]]:
    if (asked := entry["question"]) is not None:
        by = "" if asked["role"] == "user" else f"{asked['role']}: "
        yield "question", by + shortened(asked["text"], _TEXT)
    if (said := entry["answer"]) is not None:
        calls = [f"calls {shortened(name, _TEXT)}" for name in said["calls"]]
        text = [shortened(said["text"], _TEXT)] if said["text"] or not calls else []
        yield "answer", "; ".join([*text, *calls])


def _ending(entry: Json) -> Iterator[tuple[str, str]]:
    yield "state", _with(entry["state"], entry["fate"])
    if entry["fate"] == Fate.SAMPLING_NOT_TRAINABLE:
        yield "", f"served only, because of: {entry['served_only_for']}"
    if entry["error"]:
        yield "", entry["error"]
    if entry["superseded_by"]:
        yield "superseded by", entry["superseded_by"]


def _afterwards(entry: Json) -> Iterator[tuple[str, str]]:
    for reply in entry["replies"]:
        said = f"{reply['messages']} message(s), {reply['kind']}"
        yield "reply", f"{reply['child']}: {said}; {reply['outcome']}"
        if reply["no_hint"] is not None:
            yield "", f"no hint: {reply['no_hint']}"
    for child in entry["branches"]:
        yield "goes on in", f"{child}: brought no next state of its own"
    for verdict in entry["verdicts"]:
        score = "none" if verdict["score"] is None else f"{verdict['score']:+d}"
        yield "verdict", _with(f"{score} by {verdict['source']}", verdict["why"])
    for hint in entry["hints"]:
        yield "hint", _with(hint["text"], _maker(hint["hinted_by"]))
    if (sample := entry["sample"]) is not None:
        uses = [_use(one) for one in sample["consumed_by"]]
        if sample["waits"]:
            uses.append(_wait(**sample["batch"]))
        yield "sample", _with("; ".join(uses or ["not trained"]), sample["fate"])


def _use(used: Json) -> str:
    if used["untrained"] is None:
        return f"trained version {used['version']}"
    return f"used up by version {used['version']}, changed no weights: {used['untrained']}"


def _wait(ready: int, needed: int | None) -> str:
    there = f"{counted(ready, 'sample')} {'is' if ready == 1 else 'are'} there"
    if needed is None:
        return f"waits: {there}, and no trainer runs"
    if ready < needed:
        return f"waits for a full step: {ready} of {needed} samples are there"
    return f"waits for a step, which takes {needed}: {there}"


def _maker(hinted_by: Json) -> str | None:
    """Return who drew a hint; None where that was not kept."""
    if hinted_by["kind"] is None:
        return None
    by = f"{hinted_by['kind']}, {hinted_by['fingerprint']}"
    return by if hinted_by["model"] is None else f"{by}, {hinted_by['model']}"


def _with(text: str, remark: str | None) -> str:
    return text if remark is None else f"{text} ({remark})"


def _by(text: str, where: str | None) -> str:
    return text if where is None else f"{text} by {where}"


def _rule(decided: Json) -> str:
    """Return what a rule says, and the turns that it looked at where there are several."""
    text = f"{decided['rule']}: {decided['why']}"
    turns = decided.get("turns", ())
    return f"{text}: {', '.join(turns)}" if len(turns) > 1 else text
