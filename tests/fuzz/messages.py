"""The decoders of all messages on the wire."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from decoders import MAX_INPUT, Decoder, message_decoder

from xclp_crypto import wire
from xclp_crypto.rng import SeededRng
from xclp_lp.messages import (
    Geometry,
    Influence,
    Introduction,
    Labelled,
    Neighbours,
    Participants,
    Prepared,
    Reach,
    Recalled,
    Sensitivity,
    Weights,
)

sys.path.extend(str(Path(__file__).parents[1] / d) for d in ("helpers", "crypto"))
from test_wire import EXAMPLES, MODULI

VARIANTS = 12
"""Sizes of each message; small ones, since large ones only add more of the same."""

Example = tuple[dict[str, Any], wire.Message]


def _prepared(rng: np.random.Generator) -> Example:
    rows = int(rng.integers(0, 20))
    return {"rows": rows}, Prepared(rng.bytes(32), rng.integers(0, 2, rows).astype(bool))


def _participants(rng: np.random.Generator) -> Example:
    p = int(rng.integers(2, 20))
    return {"clients": p}, Participants(rng.integers(0, 2, p).astype(bool))


def _reach(rng: np.random.Generator) -> Example:
    rows, labelled = int(rng.integers(0, 20)), int(rng.integers(1, 9))
    groups = rng.integers(0, labelled + 1, rows).astype(np.uint16)
    return {"rows": rows, "labelled": labelled}, Reach(groups, labelled)


def _influence(rng: np.random.Generator) -> Example:
    n = int(rng.integers(0, 20))
    return {"values": n}, Influence(rng.random(n, dtype=np.float32))


def _geometry(rng: np.random.Generator) -> Example:
    rows = int(rng.integers(2, 20))
    return {"rows": rows}, Geometry(rows * float(rng.random()), float(rng.random()), rows)


def _introduction(rng: np.random.Generator) -> Example:
    d, n_classes = (int(n) for n in rng.integers(0, 5, 2))
    totals = rng.integers(0, 1 << 64, n_classes, dtype=np.uint64)
    known = Introduction(rng.bytes(32), rng.bytes(32), rng.normal(size=d), rng.random(d), totals)
    return {"features": d, "classes": n_classes}, known


def _neighbours(rng: np.random.Generator) -> Example:
    shape = rng.integers(0, 8, 2)
    near = rng.integers(0, 2, shape).astype(bool)
    return {"rows": int(shape[0]), "columns": int(shape[1])}, Neighbours(near)


def _weights(rng: np.random.Generator) -> Example:
    n = int(rng.integers(0, 20))
    return {"values": n}, Weights(1 - rng.random(n, dtype=np.float32))


OF_SESSIONS = {
    Prepared: _prepared,
    Participants: _participants,
    Reach: _reach,
    Geometry: _geometry,
    Influence: _influence,
    Recalled: lambda rng: ({}, Recalled(rng.bytes(32))),
    Introduction: _introduction,
    Neighbours: _neighbours,
    Weights: _weights,
    Labelled: lambda rng: ({}, Labelled()),
    Sensitivity: lambda rng: ({}, Sensitivity(float(rng.random()) + 1e-9)),
}
"""Examples of the messages of Algorithm 1, as `EXAMPLES` has them of all others."""


def _examples(kind: type[wire.Message]) -> list[Example]:
    """Return examples of different sizes, and of residues modulo different numbers."""
    make = (EXAMPLES | OF_SESSIONS)[kind]
    found: dict[str, Example] = {}
    for seed in range(60):
        dims, message = make(np.random.default_rng([kind.TAG, seed]))
        found.setdefault(repr(sorted(dims.items())), (dims, message))
    ordered = sorted(found.values(), key=lambda example: kind.size(**example[0]))
    sized = [e for e in ordered if kind.size(**e[0]) > 0] or ordered
    # The smallest ciphertexts of ring-LWE do not fit; their ends are zeros then.
    small = [e for e in sized if kind.size(**e[0]) < MAX_INPUT - 2] or sized[:1]
    if all(dims.keys() == {"rows", "columns", "modulus"} for dims, _ in small):
        rng = SeededRng(kind.TAG)
        for modulus in MODULI:
            dims = {"rows": 3, "columns": 2, "modulus": modulus}
            values = rng.residues(modulus, (3, 2))
            small.append((dims, kind(values, modulus)))
        return small[:3] + small[-len(MODULI) :]
    step = max(1, len(small) // VARIANTS)
    return small[::step][:VARIANTS]


def messages() -> Iterator[Decoder]:
    """Yield the decoder of every message type."""
    for kind in EXAMPLES | OF_SESSIONS:
        yield message_decoder(kind, _examples(kind))
