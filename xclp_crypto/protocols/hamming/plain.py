"""``plain``: no protection, for tests and simulation studies; the ideal twin of all back ends.

::

    client j                server
    PlainBits(X_j) ────────▶ h(x, x') = Σ x_l ⊕ x'_l

The server learns every bit vector.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.fields import Packed
from xclp_crypto.params import MIN_CLIENTS
from xclp_crypto.protocols.hamming.between import (
    Between,
    BetweenBackend,
    Sizes,
)
from xclp_crypto.protocols.hamming.distance import distances_between
from xclp_crypto.protocols.hamming.interface import Distances
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng
from xclp_crypto.wire import Message, sent


class PlainBits(Message):
    """Bit vectors in the clear. Size: ⌈n_j·L/8⌉ bytes."""

    TAG = 0x0210
    bits: NDArray[np.uint8] = sent(Packed("rows", "n_bits", width=1, dtype=np.uint8))


def _stacked_distances(bits: list[NDArray[np.uint8]]) -> NDArray[np.uint16]:
    """Return the distances of all rows of all clients."""
    stacked = np.concatenate(bits)
    return distances_between(stacked, stacked)


class Plain(BetweenBackend):
    """The server sees the bits. See the module."""

    name = "plain"
    trust = "none"

    async def client(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> None:
        """See `HammingBackend.client`."""
        await session.io.send(SERVER, PlainBits(bits))

    async def server(self, session: Session, n_bits: int, at_least: int = MIN_CLIENTS) -> Distances:
        """See `HammingBackend.server`."""
        sizes = session.sizes
        got = await session.io.gather(
            PlainBits, session.clients, at_least, rows=sizes, n_bits=n_bits
        )
        bits = [got[c].bits for c in sizes if c in got]
        matrix = await session.io.compute(_stacked_distances, bits)
        return Distances(matrix, {c: n for c, n in sizes.items() if c in got})

    async def client_between(
        self,
        session: Session,
        sizes: Sizes,
        rows: NDArray[np.uint8],
        columns: NDArray[np.uint8],
        rng: Rng,
    ) -> None:
        """See `BetweenBackend.client_between`."""
        await session.io.send(SERVER, PlainBits(np.concatenate([rows, columns])))

    async def server_between(
        self, session: Session, sizes: Sizes, n_bits: int, at_least: int = MIN_CLIENTS
    ) -> Between:
        """See `BetweenBackend.server_between`."""
        rows, columns = sizes
        both = {c: rows[c] + columns[c] for c in rows}
        got = await session.io.gather(
            PlainBits, session.clients, at_least, rows=both, n_bits=n_bits
        )
        kept = [c for c in rows if c in got]
        matrix = await session.io.compute(
            distances_between,
            np.concatenate([got[c].bits[: rows[c]] for c in kept]),
            np.concatenate([got[c].bits[rows[c] :] for c in kept]),
        )
        return Between(matrix, *sizes.of(kept))
