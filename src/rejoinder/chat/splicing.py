"""Earlier answers stand in a prompt as they were sampled, not as their text would be tokenised.

One text has many tokenisations, and a model may sample another one than the tokenizer makes. A
prompt that is rendered from text alone then parts from the ids that the engine has computed, at
that answer, and so does every later prompt of the conversation. A spliced prompt has the ids of an
earlier turn (its prompt and its answer) for as long as they say what the rendering says, and those
of the rendering from there on. Its text is that of the rendering, byte for byte, in every case;
where a template writes history anew, or a client has edited it, the rendering stands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class SpliceOutcome(StrEnum):
    """How a prompt continues an earlier turn."""

    SAME = "same"
    """The rendering has all ids of the turn's prompt and answer anyway."""
    SPLICED = "spliced"
    """It has them now."""
    PROMPT_DIFFERS = "prompt_differs"
    """What stands before the turn's answer is rendered otherwise than it was then."""
    ANSWER_DIFFERS = "answer_differs"
    """The answer is rendered otherwise than it was sampled."""
    NO_ROOM = "no_room"
    """The sampled ids are more than those of the rendering, and too many for the context."""
    UNREAD = "unread"
    """The ids of the turn could not be read."""
    NO_TURN = "no_turn"
    """No answer of the history is known to be that of one turn."""


@dataclass(frozen=True, slots=True)
class KnownTurn:
    """The exact ids of an earlier turn, as tuples: no garbage collection walks through those."""

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    """As sampled, an end token included."""
    rendered_ids: tuple[int, ...] | None = None
    """Other ids of the prompt's text: what was rendered then, where that is still known."""


@dataclass(frozen=True, slots=True)
class SplicedPrompt:
    """A prompt with the text of its rendering."""

    ids: list[int]
    outcome: SpliceOutcome
    kept: int = 0
    """Leading ids that are those of the earlier turn."""


def splice(
    turn: KnownTurn,
    rendered: list[int],
    token_bytes: Mapping[int, bytes],
    eos_ids: Collection[int],
    special_ids: Collection[int],
) -> SplicedPrompt:
    """Return a rendered prompt that begins as an earlier turn did.

    Args:
        turn: what the prompt continues.
        rendered: [R] the prompt as it is rendered from text.
        token_bytes: the bytes that each id stands for.
        eos_ids: end tokens; in history another token than the sampled one may end an answer.
        special_ids: tokens that no text has, and that therefore end an answer in a rendering.
    """
    known = turn.prompt_ids + turn.answer_ids
    fresh = tuple(rendered)
    if fresh[: len(known)] == known:
        return SplicedPrompt(rendered, SpliceOutcome.SAME, len(known))
    start, then = (0, 0), turn.rendered_ids
    if then is not None and fresh[: len(then)] == then:
        start = len(turn.prompt_ids), len(then)
    kept, at = last_shared_border(known, fresh, token_bytes, start)
    ids = [*known[:kept], *fresh[at:]]
    if kept < len(turn.prompt_ids):
        return SplicedPrompt(ids, SpliceOutcome.PROMPT_DIFFERS, kept)
    missing = known[kept:]
    other_end = (
        len(missing) == 1 and missing[0] in eos_ids and at < len(fresh) and fresh[at] in special_ids
    )
    if missing and not other_end:
        return SplicedPrompt(ids, SpliceOutcome.ANSWER_DIFFERS, kept)
    outcome = SpliceOutcome.SAME if ids == rendered else SpliceOutcome.SPLICED
    return SplicedPrompt(ids, outcome, kept)


def text_end(own: list[int], rendered: list[int], token_bytes: Mapping[int, bytes]) -> int | None:
    """Return how many ids of a prompt say what a rendering says; None where it says another thing.

    More ids may follow: a prompt can begin the answer.
    """
    if own[: len(rendered)] == rendered:
        return len(rendered)
    end, at = last_shared_border(own, rendered, token_bytes)
    return end if at == len(rendered) else None


def changed_after(
    own: list[int], rendered: list[int], changed: list[int], token_bytes: Mapping[int, bytes]
) -> list[int]:
    """Return a prompt for a conversation that was changed, spliced as the original one was.

    Args:
        own: the original prompt.
        rendered: the same text as it is rendered.
        changed: the changed conversation as it is rendered; where it has the text of ``rendered``,
            the result is ``own``.
        token_bytes: the bytes that each id stands for.
    """
    if own == rendered:
        return changed
    unchanged = _run(rendered, 0, changed, 0)
    kept, at = last_shared_border(own, rendered[:unchanged], token_bytes)
    return own[:kept] + changed[at:]


def last_shared_border(
    left: Sequence[int],
    right: Sequence[int],
    token_bytes: Mapping[int, bytes],
    start: tuple[int, int] = (0, 0),
) -> tuple[int, int]:
    """Return the largest (i, j) for which ``left[:i]`` and ``right[:j]`` stand for the same bytes.

    Takes time in proportion to what differs; what is equal is compared in blocks. An id without
    bytes (of another vocabulary) equals itself only.

    Args:
        left: ids of a text.
        right: other ids of a text that begins alike.
        token_bytes: the bytes that each id stands for.
        start: a border that is known to be shared.
    """
    i, j = start
    while True:
        run = _run(left, i, right, j)
        i, j = i + run, j + run
        following = _next_shared_border(left, i, right, j, token_bytes)
        if following is None:
            return i, j
        i, j = following


def _run(left: Sequence[int], i: int, right: Sequence[int], j: int) -> int:
    """Return how many ids from ``left[i]`` and ``right[j]`` on are equal.

    By growing blocks, and by halves in the one that is not: most runs are short or reach the end.
    """
    most = min(len(left) - i, len(right) - j)
    low, size = 0, 1
    while low < most:
        high = min(low + size, most)
        if left[i + low : i + high] != right[j + low : j + high]:
            break
        low, size = high, 2 * size
    else:
        return most
    while high - low > 1:
        middle = (low + high) // 2
        if left[i + low : i + middle] == right[j + low : j + middle]:
            low = middle
        else:
            high = middle
    return low


def _next_shared_border(
    left: Sequence[int],
    i: int,
    right: Sequence[int],
    j: int,
    token_bytes: Mapping[int, bytes],
) -> tuple[int, int] | None:
    """Return the next (i, j) at which both have said the same bytes; None where there is none."""
    ahead_left = ahead_right = b""  # what one of them has said and the other has not yet
    while True:
        if not ahead_left:
            if i == len(left) or not (piece := token_bytes[left[i]]):
                return None
            ahead_left += piece
            i += 1
        else:
            if j == len(right) or not (piece := token_bytes[right[j]]):
                return None
            ahead_right += piece
            j += 1
        size = min(len(ahead_left), len(ahead_right))
        if ahead_left[:size] != ahead_right[:size]:
            return None
        ahead_left, ahead_right = ahead_left[size:], ahead_right[size:]
        if not ahead_left and not ahead_right:
            return i, j
