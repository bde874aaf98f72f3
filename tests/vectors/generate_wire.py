"""Write wire_baseline.json: `python tests/vectors/generate_wire.py`.

The file holds a digest per protocol, message type and direction of everything that is sent under
fixed randomness. An unchanged file means that two versions are compatible byte for byte; a changed
one is a change of format, and its diff names the messages. ``sealed`` digests the bytes that
travel, ``opened`` the messages inside, which a change of another message leaves alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from xclp_crypto.testing import Factory, transcript_digest

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
import protocol_runs as runs

from xclp_crypto.params import INSECURE_TEST_512
from xclp_crypto.protocols.hamming.paillier import Paillier
from xclp_crypto.protocols.hamming.paillier_packed import PaillierPacked
from xclp_crypto.protocols.hamming.shade import Shade
from xclp_crypto.protocols.ot import (
    Choices,
    bit_triples,
    extended_ot,
    ideal_ot,
    naor_pinkas,
    ring_triples,
)
from xclp_crypto.protocols.secure_sum import (
    MaskGraph,
    ideal_row_sums_client,
    ideal_row_sums_server,
    ideal_sum_client,
    ideal_sum_server,
)

FILE = Path(__file__).with_name("wire_baseline.json")

# Written out, so that no generator of random numbers is part of the format.
BITS = {
    "a": np.array([[i * j % 3 % 2 for j in range(21)] for i in range(3)], dtype=np.uint8),
    "b": np.zeros((0, 21), dtype=np.uint8),
    "c": np.array([[(i + j) % 2 for j in range(21)] for i in range(2)], dtype=np.uint8),
}
ROWS_LATER = {c: b[::2] for c, b in BITS.items()}
SHORT = {c: b[:, :5] for c, b in BITS.items()}
VALUES = {c: np.arange(12.0).reshape(6, 2) * (k + 0.375) for k, c in enumerate("abc")}
ROWS = {"a": [0, 4], "b": [5], "c": [1, 3, 2]}
SPARSE = MaskGraph(tuple("abcdefg"), threshold=5, degree=4, share_threshold=3)
FEW = {c: np.arange(3.0) * (k - 2.5) for k, c in enumerate(SPARSE.clients)}
MESSAGES = np.arange(5 * 2 * 7, dtype=np.uint8).reshape(5, 2, 7)
NUMBERS = np.arange(12, dtype=np.uint64).reshape(3, 4) * np.uint64(7) % np.uint64(16)
CHOICES = np.array([True, False, False, True, True])


def _transfer(construction: object) -> Factory:
    return runs.oblivious_transfer(
        construction,
        {"client-s": {"client-r": MESSAGES}},
        {"client-r": {"client-s": Choices(CHOICES, 7)}},
    )


PROTOCOLS: dict[str, Callable[[], Factory]] = {
    "setup": runs.setup,
    "setup, signed": lambda: runs.setup(identities=runs.identities(("a", "b", "c", "server"))),
    "hamming plain": lambda: runs.hamming("plain", BITS),
    "hamming masked": lambda: runs.hamming("masked", BITS),
    "hamming rlwe": lambda: runs.hamming("rlwe", BITS),
    **{
        f"between {name}": partial(runs.between, name, ROWS_LATER, BITS)
        for name in ("plain", "masked", "rlwe")
    },
    "hamming shade-ext": lambda: runs.hamming("shade-ext", BITS),
    "hamming paillier": lambda: runs.hamming(Paillier(INSECURE_TEST_512), SHORT),
    "hamming paillier-packed": lambda: runs.hamming(PaillierPacked(INSECURE_TEST_512), SHORT),
    "hamming shade": lambda: runs.hamming("shade", BITS),
    "hamming shade, ideal transfer": lambda: runs.hamming(Shade(ideal_ot), BITS),
    "ot naor_pinkas": lambda: _transfer(naor_pinkas),
    "ot extension": lambda: _transfer(extended_ot),
    "ot extension, checked": lambda: _transfer(partial(extended_ot, check_receiver=True)),
    "ot extension, k = 4": lambda: _transfer(partial(extended_ot, field_bits=4)),
    "ot triples of bits": lambda: runs.triples(bit_triples, 2),
    "ot triples modulo 2^64": lambda: runs.triples(ring_triples, 2),
    "ot ideal": lambda: _transfer(ideal_ot),
    "boolean smallest": lambda: runs.boolean(runs.two_smallest, (NUMBERS,), 4, budget=50),
    "sum": lambda: runs.secure_sum(VALUES),
    "sum, sparse, modulo 2^32": lambda: runs.secure_sum(
        FEW, graph=SPARSE, fraction_bits=8, modulus=1 << 32
    ),
    "sum, ideal": lambda: runs.secure_sum(VALUES, client=ideal_sum_client, server=ideal_sum_server),
    "row sums": lambda: runs.row_sums(VALUES, ROWS),
    "row sums, restart": lambda: runs.row_sums(VALUES, ROWS, mode="restart"),
    "row sums, ideal": lambda: runs.row_sums(
        VALUES, ROWS, client=ideal_row_sums_client, server=ideal_row_sums_server
    ),
}


def _kind(party: str) -> str:
    return {"client-s": "sender", "client-r": "receiver", "server": "server"}.get(party, "client")


def digests(name: str) -> dict[str, dict[str, str]]:
    """Return the digests of a protocol, by form and message."""
    return {
        form: transcript_digest(PROTOCOLS[name](), _kind, opened=form == "opened")
        for form in ("opened", "sealed")
    }


if __name__ == "__main__":
    found = {name: digests(name) for name in PROTOCOLS}
    FILE.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
