"""How messages count, measure and list things, all in one line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any


def count(number: int, one: str, many: str | None = None) -> str:
    """Write a number of things: ``1 row``, ``1,000 rows``, ``2 classes``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(n_bytes: float) -> str:
    """Write a number of bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.1f} GB"


def duration(seconds: float) -> str:
    """Write the order of a duration for people."""
    if seconds < 1:
        return "a second or less"
    for unit, length, most in (("second", 1, 60), ("minute", 60, 60), ("hour", 3600, 48)):
        if round(seconds / length) < most:
            return count(round(seconds / length), unit)
    days = seconds / 86400
    return count(round(days), "day") if days < 1000 else count(round(days / 365), "year")


def listing(items: Collection[Any], most: int = 8) -> str:
    """List the first few things and say how many there are if there are more."""
    shown = ", ".join(repr(item) for item in islice(items, most))
    return shown if len(items) <= most else f"{shown}, … ({len(items):,} in all)"


def differences(own: Collection[Any], expected: Collection[Any]) -> str:
    """Say which names are missing and which are extra; nothing if they are the same."""
    missing = [name for name in expected if name not in own]
    extra = [name for name in own if name not in expected]
    told = [f"missing {listing(missing)}"] * bool(missing)
    told += [f"extra {listing(extra)}"] * bool(extra)
    return " and ".join(told)


def rows_called(rows: Sequence[int], names: Sequence[str] | None, most: int = 5) -> str:
    """Say which rows: ``row 3 (counted from 0)``, or what a file calls them: ``rows 4, 9``.

    Args:
        rows: indices, from 0.
        names: what each row of the client is called; None: by its index.
        most: how many are said, at most.
    """
    called = ", ".join(str(r) if names is None else names[r] for r in rows[:most])
    more = ", …" * (len(rows) > most)
    return f"row{'s' * (len(rows) != 1)} {called}{more}" + " (counted from 0)" * (names is None)


def shown(text: object, most: int = 60) -> str:
    """Return a name as a report shows it: at most so many characters, all of them visible.

    What is cut off becomes an ellipsis; control characters, which a picture cannot contain and
    which can turn around or hide what follows, become U+FFFD.
    """
    plain = "".join(c if c.isprintable() else "\ufffd" for c in str(text))
    return plain if len(plain) <= most else plain[: most - 1] + "…"
