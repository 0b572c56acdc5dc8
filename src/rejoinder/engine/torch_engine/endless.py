"""Finds what of a schema no finite text fits, for it needs itself again.

A grammar takes its first bytes all the same, and an answer that has begun it never ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_ONES = ("items", "additionalProperties", "additionalItems")
_SHARED = ("$defs", "definitions")


def endless_part(schema: object) -> str | None:
    """Return the place of a part that no finite text fits and an answer may begin; None: none is.

    Only what needs itself is found; what nothing fits for other reasons is the library's to say.
    """
    return _Search(schema).found()


class _Search:
    def __init__(self, root: object) -> None:
        self._root = root
        self._places: dict[int, str] = {}
        self._nodes: list[dict[str, object]] = []
        self._ends: set[int] = set()
        """Parts that some finite text fits, as far as is known."""

    def found(self) -> str | None:
        self._visit()
        nodes, known = self._nodes[::-1], -1  # inner parts first: each mostly needs those before it
        while len(self._ends) > known:
            known = len(self._ends)
            for node in nodes:
                if self._can_end(node):
                    self._ends.add(id(node))
            nodes = [node for node in nodes if id(node) not in self._ends]
        # What stands nearest to the root says most.
        return None if not nodes else self._places[id(nodes[-1])]

    def _visit(self) -> None:
        """Find all parts that an answer may come to."""
        left = [(self._root, "#")]
        while left:
            nodes, left = left, []
            for node, place in nodes:
                if isinstance(node, dict) and id(node) not in self._places:
                    self._places[id(node)] = place
                    self._nodes.append(node)
                    left += self._inner(node, place)

    def _inner(self, node: dict[str, object], place: str) -> Iterator[tuple[object, str]]:
        for key in (*_LISTS, *_ONES):
            value = node.get(key)
            for at, one in enumerate(value if isinstance(value, list) else ()):
                yield one, f"{place}/{key}/{at}"
            if isinstance(value, dict):
                yield value, f"{place}/{key}"
        for key in _MAPS:
            value = node.get(key)
            if key not in _SHARED and isinstance(value, dict):
                yield from ((one, f"{place}/{key}/{name}") for name, one in value.items())
        target = self._target(node)
        if target is not None:
            yield target, str(node["$ref"])

    def _target(self, node: dict[str, object]) -> object:
        """Return the part to which another one refers; None where that is not known."""
        ref = node.get("$ref")
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            return None
        at = self._root
        for step in unquote(ref).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(at, dict):
                at = at.get(key)
            elif isinstance(at, list) and key.isdecimal() and int(key) < len(at):
                at = at[int(key)]
            else:
                return None
        return at

    def _can_end(self, node: dict[str, object]) -> bool:
        if "const" in node or "enum" in node:
            return True
        if not self._ended(self._target(node)) or not all(map(self._ended, _list(node, "allOf"))):
            return False
        for key in ("anyOf", "oneOf"):
            if (branches := _list(node, key)) and not any(map(self._ended, branches)):
                return False
        kinds = node.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        ends = {"object": self._object_ends, "array": self._array_ends}
        # A type that is not said, or is neither, has short values.
        return any(kind not in ends or ends[kind](node) for kind in kinds)

    def _object_ends(self, node: dict[str, object]) -> bool:
        known, patterns = _dict(node, "properties"), _dict(node, "patternProperties")
        more = node.get("additionalProperties")
        # Which pattern a name has is not looked at: its value may be what any of them asks for.
        others = any(one is not False and self._ended(one) for one in (*patterns.values(), more))
        names = [name for name in _list(node, "required") if isinstance(name, str)]
        ends = (self._ended(known[n]) if n in known else others or more is False for n in names)
        if not all(ends):
            return False
        least = node.get("minProperties")
        if others or not isinstance(least, int):
            return True  # of those that are not named there may be any number
        return least <= sum(map(self._ended, known.values()))

    def _array_ends(self, node: dict[str, object]) -> bool:
        least = node.get("minItems")
        if not isinstance(least, int) or least < 1:
            return True
        first = _list(node, "prefixItems")[:least]
        rest = [node.get("items")] if least > len(first) else []
        return all(map(self._ended, [*first, *rest]))

    def _ended(self, part: object) -> bool:
        return not isinstance(part, dict) or id(part) in self._ends


def _list(node: dict[str, object], key: str) -> list[object]:
    value = node.get(key)
    return value if isinstance(value, list) else []


def _dict(node: dict[str, object], key: str) -> dict[str, object]:
    value = node.get(key)
    return value if isinstance(value, dict) else {}
