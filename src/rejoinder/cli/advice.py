"""What to do next, from the status document: one short sentence each, most urgent first."""

from __future__ import annotations

from rejoinder.cli.terminal import counted
from rejoinder.journal.learning import is_alive
from rejoinder.types import Json

UNTRAINABLE_SHARE = 0.5
"""From here on, the share of turns served only because of their sampling is worth a word."""
ENOUGH_TURNS = 8


def next_steps(document: Json) -> list[str]:
    """Return what a person could do now; empty where the next step comes by itself."""
    word = document["learning"]["word"]
    steps = [*_roles(document), *_turns(document)]
    if word == "no traffic":
        steps.append("talk to it: `rejoinder chat`, or point an OpenAI client at the gateway")
    if word == "collecting" and not steps:
        missing = document["samples"]["missing"]
        if missing:
            steps.append(
                f"go on talking: {counted(missing, 'more judged answer')} until the next step"
            )
    return steps


def _roles(document: Json) -> list[str]:
    alive = {role["role"] for role in document["roles"] if is_alive(role)}
    away = [name for name in ("gateway", "engine", "judge", "trainer") if name not in alive]
    if len(away) == 4:  # the headline's reason says so already
        return []
    return [f"the {name} does not run: see its log, or start `rejoinder {name}`" for name in away]


def _turns(document: Json) -> list[str]:
    main, fates = document["turns"]["main"], document["turns"]["fates"]
    if main < ENOUGH_TURNS:
        return []
    found = []
    if fates.get("sampling_not_trainable", 0) >= UNTRAINABLE_SHARE * main:
        found.append(
            "most turns are served only, because clients set temperature 0, top_p, top_k or "
            "penalties (set gateway.main_temperature), or the form of answers (change the clients)"
        )
    if fates.get("no_next_state", 0) >= UNTRAINABLE_SHARE * main:
        # Where hints alone teach, a score without words teaches nothing.
        scores = ", or send POST /v1/feedback" if document["judge"]["asked"] is not False else ""
        found.append(
            "most answers never get a reply, so nothing can be judged: continue conversations"
            + scores
        )
    if document["turns"]["side"] > main:
        found.append("most turns are marked as side turns (X-Turn-Type), which never train")
    return found
