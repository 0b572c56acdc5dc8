"""The one word that answers "is it learning?", from the numbers of the status document."""

from __future__ import annotations

from rejoinder.types import Fate, Json

STALLED_S = 120.0
"""A full batch that waits longer than this, or than five steps take, means a stall."""
RECENT_S = 600.0
"""A step within this time counts as learning even while the next batch fills."""
FAILING_JUDGEMENTS = 10
"""So many recent judgements without a single verdict are a fault, not chance."""


def judge_learning(document: Json) -> Json:
    """Return ``word`` and a one-line ``reason``.

    Words: ``stopped``, ``no traffic``, ``no judge``, ``no trainer``, ``stalled``, ``learning``,
    ``collecting``.
    """
    word, reason = _word(document)
    return {"word": word, "reason": reason}


def is_alive(role: Json) -> bool:
    """Whether an entry of ``roles`` works now: it reports, and has not said that it ends."""
    return bool(role["fresh"]) and role["state"] != "stopped"


def _word(document: Json) -> tuple[str, str]:
    turns, samples, queue = document["turns"], document["samples"], document["judge"]
    if not any(is_alive(role) for role in document["roles"]):
        return "stopped", "nothing runs: start it with `rejoinder up`"
    if not turns["main"]:
        return "no traffic", "no main turn has been recorded for this policy yet"
    if not _alive(document, "judge"):
        return "no judge", f"no judge is at work; {queue['queued']} turns wait for one"
    fault = _judge_fault(document)
    if fault is not None:
        return "stalled", fault
    if not _alive(document, "trainer"):
        return "no trainer", f"no trainer is at work; {samples['ready']} samples wait"
    return _training_word(document)


def _training_word(document: Json) -> tuple[str, str]:
    samples, last = document["samples"], document["training"]["last"]
    trainer = _newest(document, "trainer")
    since_step = None if last is None else last["ago_s"]
    if _stands_in_the_way(trainer["last_error_s"], since_step, samples["full_s"]):
        return "stalled", f"trainer: {trainer['last_error']}"
    needed, ready = samples["needed"], samples["ready"]
    progress = f"{ready} of {needed if needed is not None else '?'} samples for the next step"
    if trainer["state"] == "training":
        return "learning", f"step {document['training']['next_step']} is being taken"
    patience = STALLED_S if last is None else max(STALLED_S, 5 * last["seconds"])
    if samples["full_s"] is not None and samples["full_s"] > patience:
        return "stalled", f"{progress}, and no step since {samples['full_s']:.0f} s"
    head = document["training"]["head_version"]
    if last is not None and head is not None and last["version"] > head:  # rolled back since then
        return "collecting", f"learning goes on from version {head}; {progress}"
    if since_step is not None and since_step < RECENT_S:
        if last["metrics"].get("skipped"):
            word, why = _why_nothing(last)
            return word, f"step {last['step']} changed nothing: {why}; {progress}"
        return "learning", f"step {last['step']} was {since_step:.0f} s ago; {progress}"
    queue = document["judge"]
    if queue["oldest_s"] is not None and queue["oldest_s"] > patience:
        waiting = f"{queue['queued']} turns wait for the judge"
        late = f"the oldest since {queue['oldest_s']:.0f} s"
        return "stalled", f"{waiting}, {late}: it does not keep up; {progress}"
    return "collecting", progress


def _why_nothing(last: Json) -> tuple[str, str]:
    """Return the word for a step that left the weights as they were, and why it did."""
    reasons = last["untrained"]
    # What is not finite is a fault, whatever else the step held.
    ordered = sorted(reasons, key=lambda one: (one.startswith("non_finite"), reasons[one]))
    reason = ordered[-1] if ordered else "no_signal"
    if reason != Fate.ALL_ALIKE:
        return "stalled", f"{reasons.get(reason, 0)} of its samples by {reason}"
    if last["mean_score"] == 1:  # everybody was pleased
        return "collecting", "all its verdicts were good, and they count by how they differ"
    return "stalled", "all its verdicts were bad, and they count by how they differ"


def _stands_in_the_way(
    failed_s: float | None, since_step_s: float | None, full_s: float | None
) -> bool:
    """Whether the trainer's last error still matters: no step came after it, and one could have.

    An error of long ago with a batch that is still filling was got over, or will show again.
    """
    if failed_s is None or (since_step_s is not None and since_step_s < failed_s):
        return False
    return failed_s < STALLED_S or full_s is not None


def _judge_fault(document: Json) -> str | None:
    recent = document["verdicts"]["last_100"]
    if recent["none"] >= FAILING_JUDGEMENTS and recent["none"] == sum(recent.values()):
        reasons = document["verdicts"]["no_verdict"]
        worst = max(reasons, key=lambda reason: reasons[reason])
        return f"the last {recent['none']} judgements gave no verdict, mostly {worst}"
    return _hints_fault(document)


def _hints_fault(document: Json) -> str | None:
    """Return what is wrong where hints alone teach, and none has been drawn yet."""
    failed = document["turns"]["fates"].get(Fate.HINT_FAILED, 0)
    has_any = document["verdicts"]["hints"] or document["training"]["last"] is not None
    if document["judge"]["asked"] is not False or has_any or failed < FAILING_JUDGEMENTS:
        return None
    return f"the hint judge has failed on {failed} replies and drawn no hint yet"


def _newest(document: Json, role: str) -> Json:
    found: Json = next(one for one in document["roles"] if one["role"] == role and is_alive(one))
    return found


def _alive(document: Json, role: str) -> bool:
    return any(one["role"] == role and is_alive(one) for one in document["roles"])
