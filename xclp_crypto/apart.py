"""Clients of which one says that nothing came from the other, though both are there.

It cannot be told which of the two is at fault, so one of them is left out, and both are named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

Apart: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of clients of which the first says that nothing came from the second."""


def without_pairs(clients: Iterable[str], apart: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """Leave out clients, those in most pairs first, of equals the last, until no pair is left.

    Nobody is apart from itself.
    """
    others: dict[str, set[str]] = {c: set() for c in clients}
    for one, other in apart:
        others[one].add(other)
        others[other].add(one)
    while others:
        worst = max(reversed(others), key=lambda c: len(others[c]))
        if not others[worst]:
            break
        for other in others.pop(worst):
            others[other].discard(worst)
    return tuple(others)


def told(apart: Apart) -> str:
    """Return what the pairs say, for an error."""
    return "; ".join(f"{one} says that nothing came from {other}" for one, other in apart)
