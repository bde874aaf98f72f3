"""What attackers attack: every protocol of the wire baseline, and a session; and what is right.

To put another protocol under attack, add one entry to `PROTOCOLS` in tests/vectors/generate_wire.py
and, unless its name begins like one of those here, what its results must be to `SUBJECTS`.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import session_runs as sessions
from carriers import Ending
from sum_checks import exact, same

from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.boolean.words import words_to_bits
from xclp_crypto.protocols.hamming import distances_between
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import Factory

WIRE = runpy.run_path(str(Path(__file__).parents[1] / "vectors" / "generate_wire.py"))

T = TypeVar("T")
Right = Callable[[str, Ending], bool]
"""Takes a party and how the run ended for the honest ones, and says whether its result is right."""


@dataclass(frozen=True)
class Subject:
    """A protocol under attack.

    Attributes:
        make: the factory of its honest run.
        right: says whether a result is right, over those clients that it names.
        inputs: by client, how its inputs look as bytes, where nobody else may receive them.
    """

    make: Callable[[], Factory]
    right: Right
    inputs: Mapping[str, list[bytes]]


def _setup(party: str, ending: Ending) -> bool:
    """Clients have one secret, or the server stops; and it knows that at least two have it."""
    found = ending.results
    if party == SERVER:
        return 2 <= len(found[party]) <= 3
    same = all(found[party] == secret for other, secret in found.items() if other != SERVER)
    return same or SERVER in ending.errors


def _matrix(bits: Mapping[str, Any], party: str, ending: Ending) -> bool:
    if party != SERVER:
        return ending.results[party] is None
    found = ending.results[party]
    stacked = np.concatenate([bits[c] for c in found.sizes])
    return np.array_equal(found.matrix, distances_between(stacked, stacked))


def _between(party: str, ending: Ending) -> bool:
    if party != SERVER:
        return ending.results[party] is None
    found = ending.results[party]
    rows = np.concatenate([WIRE["ROWS_LATER"][c] for c in found.rows])
    columns = np.concatenate([WIRE["BITS"][c] for c in found.columns])
    return np.array_equal(found.matrix, distances_between(rows, columns))


def _transfers(party: str, ending: Ending) -> bool:
    if party == "client-s":
        return ending.results[party] == {}
    found = ending.results[party].get("client-s")
    messages, choices = WIRE["MESSAGES"], WIRE["CHOICES"].astype(int)
    return found is None or np.array_equal(found, messages[np.arange(len(choices)), choices])


def _triples(party: str, ending: Ending) -> bool:
    """One party's shares are right by themselves: what they say is in what the other has."""
    return all(len(share) == 2 for share in ending.results[party])


def _sum(values: Mapping[str, Any], codec: FixedPoint, party: str, ending: Ending) -> bool:
    found, server = ending.results[party], ending.results.get(SERVER)
    if party != SERVER:
        return server is None or found == server.record.survivors
    return same(found.total, exact(values, found.record.survivors, codec))


def _row_sums(party: str, ending: Ending) -> bool:
    if party == SERVER:
        return True  # it only names who contributed, which the clients compare
    found, values = ending.results[party], WIRE["VALUES"]
    codec = FixedPoint(20, len(values))
    right = exact(values, found.contributors, codec)[WIRE["ROWS"][party]]
    server = ending.results.get(SERVER)
    named = server is None or found.contributors == server.survivors
    return named and same(found.values, right)


DATA = sessions.blobs({"a": 3, "b": 2, "c": 2, "d": 2}, labelled=1, seed=5)


def _boolean(party: str, ending: Ending) -> bool:
    if party == "dealer":
        return ending.results[party] is None
    numbers, (planes, _) = WIRE["NUMBERS"], ending.results[party]
    return np.array_equal(
        words_to_bits(planes[0], numbers.shape[1]), numbers <= np.sort(numbers, axis=0)[1]
    )


def _session(party: str, ending: Ending) -> bool:
    """Labels are those of the plain computation over some clients, of whom this one is told."""
    if party == SERVER:
        return True
    found = ending.results[party].class_ids.tolist()
    return any(labels[party].tolist() == found for labels in _all_labels() if party in labels)


@cache
def _all_labels() -> list[Mapping[str, Any]]:
    """Return the labels over all sets of clients and of contributors among them."""
    return [
        sessions.expected_labels(DATA, sessions.SMALL, present, contributors)
        for present in sessions.subsets(tuple(DATA))
        for contributors in sessions.subsets(present)
    ]


_RIGHT: Mapping[str, Right] = {
    "setup": _setup,
    "hamming paillier": partial(_matrix, WIRE["SHORT"]),
    "hamming": partial(_matrix, WIRE["BITS"]),
    "between": _between,
    "ot triples": _triples,
    "ot": _transfers,
    "boolean": _boolean,
    "sum, sparse": partial(_sum, WIRE["FEW"], FixedPoint(8, len(WIRE["FEW"]), 1 << 32)),
    "sum": partial(_sum, WIRE["VALUES"], FixedPoint(20, len(WIRE["VALUES"]))),
    "row sums": _row_sums,
}
"""By how the names of protocols begin, the more special first."""


def _bits(rows: Mapping[str, Any]) -> dict[str, list[bytes]]:
    """Return bits as bytes, and packed in both orders, if these are too many to come by chance."""
    orders: tuple[Literal["big", "little"], ...] = ("big", "little")
    packed = {c: [np.packbits(b, axis=1, bitorder=o) for o in orders] for c, b in rows.items()}
    found = {c: [rows[c].tobytes(), *(p.tobytes() for p in packed[c])] for c in rows}
    return {c: [data for data in forms if len(data) >= 6] for c, forms in found.items()}


def _values(values: Mapping[str, Any], codec: FixedPoint) -> dict[str, list[bytes]]:
    """Return numbers as such and as residues, in both orders of bytes."""
    forms = {c: (v.astype(float), codec.encode(v, client=c)) for c, v in values.items()}
    return {
        c: [a.astype(a.dtype.newbyteorder(o)).tobytes() for a in arrays for o in "<>"]
        for c, arrays in forms.items()
    }


_INPUTS: Mapping[str, Mapping[str, list[bytes]]] = {
    "hamming plain": {},  # which hides nothing
    "between plain": {},
    "hamming paillier": _bits(WIRE["SHORT"]),
    "hamming": _bits(WIRE["BITS"]),
    "between": _bits(WIRE["BITS"]),
    "sum, sparse": _values(WIRE["FEW"], FixedPoint(8, len(WIRE["FEW"]), 1 << 32)),
    "sum": _values(WIRE["VALUES"], FixedPoint(20, len(WIRE["VALUES"]))),
    "row sums": _values(WIRE["VALUES"], FixedPoint(20, len(WIRE["VALUES"]))),
    "": {},
}
"""As `_RIGHT`."""


def _of(name: str, table: Mapping[str, T]) -> T:
    return next(entry for begins, entry in table.items() if name.startswith(begins))


SUBJECTS: dict[str, Subject] = {
    name: Subject(make, _of(name, _RIGHT), _of(name, _INPUTS))
    for name, make in WIRE["PROTOCOLS"].items()
    if not name.endswith(("ideal", "ideal transfer"))  # twins for tests, which nobody runs
} | {
    "session": Subject(
        lambda: sessions.federation(DATA, sessions.SMALL),
        _session,
        {c: [row.tobytes() for row in own.vectors] for c, own in DATA.items()},
    )
}
