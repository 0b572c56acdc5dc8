"""Taking a version along: a plain Hugging Face directory or PEFT adapter, without this package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from rejoinder.errors import RejoinderError
from rejoinder.journal.records import PolicyVersion
from rejoinder.models.embedded import local_path, resolve_model
from rejoinder.paths import expanded
from rejoinder.policy.durable import MARKER, durable_directory
from rejoinder.policy.files import is_base
from rejoinder.types import WeightsKind

_TEXT_SIDE = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
)
"""Files of the start weights that a version shares."""


def export_version(version: PolicyVersion, target: Path) -> None:
    """Write a version so that ``from_pretrained`` of transformers or peft loads it.

    Full weights come with tokenizer and chat template; an adapter names the directory of the
    model it extends. The directory appears when it is complete.

    Args:
        version: a registry row.
        target: a new or empty directory.

    Raises:
        RejoinderError: the version's files are gone, or the target is in use; the message says
            what to change.
    """
    target = expanded(target).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RejoinderError(f"{target} is in use: name a new or empty directory")
    base = resolve_model(version.base_uri)
    source = base if is_base(version) else local_path(version.uri)
    if not version.files or not source.is_dir():
        raise RejoinderError(
            f"the weights of version {version.version} of {version.policy!r} are not on disk any "
            "more: choose one that `rejoinder policy list` shows with files"
        )
    origin = {"policy": version.policy, "version": version.version, "step": version.step}
    with durable_directory(target, origin) as made:
        shared = _TEXT_SIDE if version.kind is WeightsKind.FULL else ()
        for file in (base / name for name in shared):
            if file.is_file():
                shutil.copy(file, made)
        for file in source.iterdir():
            if file.is_file() and file.name != MARKER:
                shutil.copy(file, made)
        if version.kind is WeightsKind.LORA:
            _name_base(made / "adapter_config.json", base)


def _name_base(file: Path, base: Path) -> None:
    """Make an adapter name the model it extends, as this machine finds it."""
    settings = json.loads(file.read_text("utf-8"))
    settings["base_model_name_or_path"] = str(base)
    file.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")
