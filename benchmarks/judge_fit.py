"""Fits the embedded model's readout for the likelihood judge, on examples and dev only.

Usage: python benchmarks/judge_fit.py [--threads N] [--features CACHE.npz] [--write]

Features are what the judge itself reads, through the engine. The held-out split is never loaded.
The last line printed is one JSON object with cross-validated accuracy on the development split.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import numpy as np

import rejoinder.judge
from judge_engine import judge_setting
from rejoinder.config import LikelihoodJudgeConfig
from rejoinder.judge.echo import echo
from rejoinder.judge.labelled import load_labelled
from rejoinder.judge.likelihood import LikelihoodJudge
from rejoinder.judge.readout import FITTED, Readout
from rejoinder.models.embedded import EMBEDDED
from rejoinder.types import Message

DATA = Path(rejoinder.judge.__file__).parent / "data"
RIDGE = 200.0
FOLDS = 10
COVERAGE = 0.92
OPINION = """
 good bad great wrong right poor excellent useless helpful correct incorrect positive negative ok
 not yes no happy unhappy success failure neutral better worse perfect terrible fine false true very
 mixed error complaint praise question thanks angry sad funny rude boring clear confused nice love
 hate fail pass missing done
"""
BEGIN = """
 I You Thank Sure Here Great That The Sorry My Yes No It Gl This To Of Absolutely Certainly Thanks
 Ap Oh Dear What There In A Let As Please We If Yeah Wow Good Ok Error Based Well Perfect
"""
BEGUN = """
 glad sorry happy not really so afraid pleased delighted here a ready excited unable just an trying
 very sure having going looking thrilled doing confused using currently
"""
WORDS = {
    "opinion": [f" {word}" for word in OPINION.split()],
    "begin": BEGIN.split(),
    "begun": [f" {word}" for word in BEGUN.split()],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--features", type=Path, default=None, help="keep features in this file")
    parser.add_argument("--write", action="store_true", help="replace the readout in the package")
    arguments = parser.parse_args()
    items = examples() + development()
    if arguments.features and arguments.features.is_file():
        words = np.load(arguments.features)["words"]
    else:
        words = asyncio.run(read_words(items, arguments.threads))
        if arguments.features:
            np.savez(arguments.features, words=words)
    labels = np.array([item["label"] for item in items])
    dev = np.array([item["dev"] for item in items])
    design, usual_echo = design_matrix(items, words)
    report = cross_validate(design, labels, dev)
    if arguments.write:
        write(fit(design, labels), usual_echo)
    print(json.dumps(report))


def examples() -> list[dict]:
    rows = map(json.loads, (DATA / "examples.jsonl").read_text("utf-8").splitlines())
    return [
        {
            "label": row["label"],
            "dev": False,
            "context": [Message("user", row["request"])] if "request" in row else [],
            "answer": Message("assistant", row.get("answer", "")),
            "next_state": [Message(row["role"], row["text"])],
        }
        for row in rows
    ]


def development() -> list[dict]:
    return [
        {
            "label": item.labels[0],
            "dev": True,
            "context": item.context,
            "answer": item.answer,
            "next_state": item.next_state,
        }
        for item in load_labelled("dev")
        if item.clear
    ]


async def read_words(items: list[dict], threads: int | None) -> np.ndarray:
    """Return [items, words] log-probabilities, read as the judge reads them."""
    zeros = Readout({place: dict.fromkeys(words, 0.0) for place, words in WORDS.items()})
    slots = asyncio.Semaphore(8)
    async with judge_setting(LikelihoodJudgeConfig(), EMBEDDED, threads) as setting:
        judge = LikelihoodJudge(setting, zeros)

        async def read(item: dict) -> list[float]:
            async with slots:
                found = await judge.word_logprobs(item["next_state"])
            return [found[place][word] for place, words in WORDS.items() for word in words]

        return np.array(await asyncio.gather(*map(read, items)))


def design_matrix(items: list[dict], words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return [items, words + 3]: words, two echo shares, tool; and the usual echo."""
    echoes = [echo(item["context"], item["answer"], item["next_state"]) for item in items]
    usual = np.mean([value for value in echoes if value is not None], axis=0)
    tool = [[item["next_state"][-1].role == "tool"] for item in items]
    filled = np.array([usual if value is None else value for value in echoes])
    return np.hstack([words, filled, np.array(tool, float)]), usual


def fit(design: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return [features + 1] weights of a ridge logistic regression on standardised features.

    Newton's method; the ridge spares the intercept. The weights are for the raw features.
    """
    mean, scale = design.mean(0), design.std(0) + 1e-9
    inputs = np.hstack([(design - mean) / scale, np.ones((len(design), 1))])
    ridge = np.diag([RIDGE] * design.shape[1] + [1e-6])
    weights = np.zeros(inputs.shape[1])
    for _ in range(50):
        good = 1 / (1 + np.exp(-inputs @ weights))
        gradient = inputs.T @ (good - (labels > 0)) + ridge @ weights
        hessian = (inputs * (good * (1 - good))[:, None]).T @ inputs + ridge
        step = np.linalg.solve(hessian, gradient)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    raw = weights[:-1] / scale
    return np.append(raw, weights[-1] - raw @ mean)


def cross_validate(design: np.ndarray, labels: np.ndarray, dev: np.ndarray) -> dict:
    """Score each dev item by weights fitted without its fold (and with all examples)."""
    order = np.flatnonzero(dev)
    folds = np.random.default_rng(0).permutation(len(order)) % FOLDS
    values = np.zeros(len(order))
    for fold in range(FOLDS):
        train = np.ones(len(labels), bool)
        train[order[folds == fold]] = False
        weights = fit(design[train], labels[train])
        values[folds == fold] = design[order[folds == fold]] @ weights[:-1] + weights[-1]
    right = np.sign(values) == labels[order]
    margin = float(np.quantile(np.abs(values), 1 - COVERAGE))
    sure = np.abs(values) >= margin
    return {
        "examples": int((~dev).sum()),
        "dev": len(order),
        "features": design.shape[1],
        "accuracy": round(float(right.mean()), 4),
        "margin": round(margin, 3),
        "coverage": round(float(sure.mean()), 4),
        "accuracy_of_covered": round(float(right[sure].mean()), 4),
    }


def write(weights: np.ndarray, usual_echo: np.ndarray) -> None:
    values = iter(weights.tolist())
    readout = {
        "words": {
            place: {word: round(next(values), 5) for word in words}
            for place, words in WORDS.items()
        },
        "echo": [round(next(values), 5), round(next(values), 5)],
        "usual_echo": [round(float(value), 5) for value in usual_echo],
        "tool": round(next(values), 5),
        "bias": round(next(values), 5),
    }
    text = json.dumps(readout, indent=1, ensure_ascii=False)
    (DATA / FITTED[EMBEDDED]).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
