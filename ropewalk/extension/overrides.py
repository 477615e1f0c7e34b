"""Where an extension differs: numbers of layers, or of the key heads of a layer, each with what is in force there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue

Stated = TypeVar("Stated")
HIGHEST_NUMBER = 10**9  # numbers of layers, and of heads, in JSON too
COUNTED = {"layer": "", "head": " key heads"}


def pairs_of(kind: str, overrides: Any) -> tuple[tuple[Any, Any], ...]:
    """Pairs of a number and what is stated for it, in order."""
    pairs = tuple(overrides.items()) if isinstance(overrides, Mapping) else overrides
    if not isinstance(pairs, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidValue(kind, f"a mapping from {kind} to extensions", overrides)
    for key, _ in pairs:
        if isinstance(key, bool) or not isinstance(key, int) or abs(key) >= HIGHEST_NUMBER:
            raise InvalidValue(kind, "keyed by whole numbers", key)
    if len({key for key, _ in pairs}) < len(pairs):
        raise Conflict.because(kind, f"{kind} repeats one of {[key for key, _ in pairs]}")
    return tuple(sorted(pairs, key=lambda pair: int(pair[0])))


def by_index(kind: str, overrides: tuple[tuple[int, Stated], ...], count: int) -> dict[int, Stated]:
    """What is stated of layers, or of key heads, counted from the first; `count` is how many there are."""
    indexed = {index_of(kind, key, count): stated for key, stated in overrides}
    if len(indexed) < len(overrides):
        keys = [key for key, _ in overrides]
        raise DoesNotFit(f"{kind}s", f"different {kind}s of a model with {count}{COUNTED[kind] or ' layers'}", keys)
    return indexed


def index_of(kind: str, key: int, count: int) -> int:
    """The number counted from the first; below 0 it counts from the last."""
    if isinstance(key, bool) or not isinstance(key, int) or not -count <= key < count:
        raise DoesNotFit(kind, f"one of the model's {count}{COUNTED[kind]}, from {-count} to {count - 1}", key)
    return key % count


def merge(kind: str, mine: dict[int, Stated], theirs: dict[int, Stated]) -> dict[int, Stated]:
    """Both together; refused where they differ."""
    both = [key for key in mine if key in theirs and mine[key] != theirs[key]]
    if both:
        raise Conflict.because(kind, f"both have {kind} {both}", remedy=f"keep one extension per {kind[:-1]}")
    return {**mine, **theirs}
