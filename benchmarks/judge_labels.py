"""Merges the labels of two independent readers into ``labels.jsonl`` (run once, before any judge).

Usage: python benchmarks/judge_labels.py READER_A.jsonl READER_B.jsonl

The last line printed is one JSON object with the agreement of the readers and the split.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter, defaultdict
from pathlib import Path

import rejoinder.judge

DATA = Path(rejoinder.judge.__file__).parent / "data"
HELD_OUT_SHARE = 1 / 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("reader_a", type=Path)
    parser.add_argument("reader_b", type=Path)
    arguments = parser.parse_args()
    items = _read(DATA / "next_states.jsonl")
    reader_a, reader_b = (
        {row["id"]: row for row in _read(path)} for path in (arguments.reader_a, arguments.reader_b)
    )
    split = choose_split(items)
    rows = [merge(item["id"], reader_a, reader_b, split) for item in items]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (DATA / "labels.jsonl").write_text(lines, "utf-8")
    print(json.dumps(agreement(rows)))


def choose_split(items: list[dict]) -> dict[str, str]:
    """Hold out the third of each kind whose ids have the smallest hashes."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for item in items:
        kinds[item["kind"]].append(item["id"])
    split = {}
    for ids in kinds.values():
        ids.sort(key=lambda id_: hashlib.sha256(id_.encode()).hexdigest())
        held_out = round(len(ids) * HELD_OUT_SHARE)
        split |= dict.fromkeys(ids[:held_out], "held_out") | dict.fromkeys(ids[held_out:], "dev")
    return split


def merge(id_: str, reader_a: dict, reader_b: dict, split: dict[str, str]) -> dict:
    """Clear: both readers are sure, agree, and see something (label 0 sees nothing)."""
    a, b = (
        {key: reader[id_][key] for key in ("label", "clear")} for reader in (reader_a, reader_b)
    )
    for vote in (a, b):
        if vote["label"] not in (-1, 0, 1) or not isinstance(vote["clear"], bool):
            raise SystemExit(f"{id_}: not a label: {vote}")
    clear = a["clear"] and b["clear"] and a["label"] == b["label"] != 0
    return {"id": id_, "reader_a": a, "reader_b": b, "clear": clear, "split": split[id_]}


def agreement(rows: list[dict]) -> dict:
    """Raw agreement and Cohen's kappa (Cohen 1960) over the three labels, and what is clear."""
    pairs = [(row["reader_a"]["label"], row["reader_b"]["label"]) for row in rows]
    observed = sum(a == b for a, b in pairs) / len(pairs)
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    chance = sum(first[label] * second[label] for label in (-1, 0, 1)) / len(pairs) ** 2
    clear = Counter(f"{row['split']} {row['reader_a']['label']:+d}" for row in rows if row["clear"])
    return {
        "items": len(rows),
        "agreement": round(observed, 4),
        "cohens_kappa": round((observed - chance) / (1 - chance), 4),
        "clear": sum(row["clear"] for row in rows),
        "clear_by_split_and_label": dict(sorted(clear.items())),
        "held_out": sum(row["split"] == "held_out" for row in rows),
    }


def _read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


if __name__ == "__main__":
    main()
