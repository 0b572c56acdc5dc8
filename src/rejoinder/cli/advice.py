"""What to do next, from the status document: one short sentence each, most urgent first."""

from __future__ import annotations

from rejoinder.cli.terminal import counted
from rejoinder.journal.learning import is_alive
from rejoinder.models.embedded import local_path
from rejoinder.types import Fate, Json

UNTRAINABLE_SHARE = 0.5
"""From here on, the share of turns served only because of their sampling is worth a word."""
ENOUGH_TURNS = 8
ALL_TURNS = 3
"""Enough where all are alike."""


def next_steps(document: Json) -> list[str]:
    """Return what a person could do now; empty where the next step comes by itself."""
    word = document["learning"]["word"]
    steps = [*_roles(document), *_unloaded(document), *_alike(document), *_turns(document)]
    if word == "no traffic":
        steps.append("talk to it: `rejoinder chat`, or point an OpenAI client at the gateway")
    if word == "collecting" and not steps:
        missing = document["samples"]["missing"]
        if missing:
            steps.append(f"go on talking: {_missing(document, missing)} until the next step")
    return steps


def _missing(document: Json, count: int) -> str:
    if document["judge"]["asked"] is not False:
        return counted(count, "more judged answer")
    return f"{counted(count, 'more answer')} whose reply says how it should have been"


def _roles(document: Json) -> list[str]:
    alive = {role["role"] for role in document["roles"] if is_alive(role)}
    away = [name for name in ("gateway", "engine", "judge", "trainer") if name not in alive]
    if len(away) == 4:  # the headline's reason says so already
        return []
    return [f"the {name} does not run: see its log, or start `rejoinder {name}`" for name in away]


def _unloaded(document: Json) -> list[str]:
    """Say what to do where the engine cannot load what it should serve."""
    policy, live = document["policy"], document["live"]
    engine = next(
        (one for one in document["roles"] if one["role"] == "engine" and is_alive(one)), None
    )
    if engine is None or live is None:
        return []
    failed = engine["detail"].get("not_taken_up", {}).get(policy)
    served = engine["detail"].get("live", {}).get(policy)
    wanted = live["version"]
    if failed is None or served is None or not failed["version"] == wanted != served:
        return []
    place = local_path(live["uri"])
    return [
        (
            f"the engine cannot load version {wanted} and serves version {served} instead: restore "
            f"{place}, or go on from the other with `rejoinder policy rollback {served}`"
        )
    ]


def _alike(document: Json) -> list[str]:
    """Say what teaches where everybody complains, and complaints count by how they differ."""
    last, learning = document["training"]["last"], document["learning"]
    reasons = {} if last is None else last.get("untrained", {})
    if learning["word"] != "stalled" or set(reasons) != {Fate.ALL_ALIKE}:
        return []
    wish = "say in your replies what you want and let hints teach (docs/how-to/learn-from-hints.md)"
    return [f'{wish}, or let complaints count by themselves: trainer.baseline = "none"']


def _turns(document: Json) -> list[str]:
    """Say what keeps the newest turns from training; older ones are past."""
    newest = document["turns"]["newest"]
    main, fates = newest["main"], newest["fates"]
    found = []
    untrainable = fates.get("sampling_not_trainable", 0)
    if main < (ALL_TURNS if untrainable == main else ENOUGH_TURNS):
        return []
    if fates.get("sampling_not_trainable", 0) >= UNTRAINABLE_SHARE * main:
        found.append(
            "most turns are served only, because clients set temperature 0, top_p, top_k or "
            "penalties (set gateway.main_temperature), or the form of answers and calls "
            "(change the clients, or set gateway.hold_calls)"
        )
    if fates.get("no_next_state", 0) >= UNTRAINABLE_SHARE * main:
        # Where hints alone teach, a score without words teaches nothing.
        scores = ", or send POST /v1/feedback" if document["judge"]["asked"] is not False else ""
        found.append(
            "most answers never get a reply, so nothing can be judged: continue conversations"
            + scores
        )
    if newest["side"] > main:
        found.append("most turns are marked as side turns (X-Turn-Type), which never train")
    return found
