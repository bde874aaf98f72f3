"""``shade``: the paper's OT-based protocol, literally (§4.2; SHADE, Bringer et al. 2013).

::

    client j (rows b)                                 client k > j (rows b')
    r_l uniform in Z_t, for every pair and bit
    OT of (r_l + b_l, r_l + 1 − b_l) ───────────────▶ t_l = r_l + (b_l ⊕ b'_l), choice b'_l
    R = Σ r_l ──▶ server: h(b, b') = T − R mod t ◀─── T = Σ t_l

One oblivious transfer per pair of rows and bit: n_j·n_k·L transfers with public-key operations.
That is the reference to compare with, for small sizes; it is not meant to be fast. The transfers
run in batches that all parties derive from the public sizes, so memory is bounded whatever the
sizes are.

Corrected from the paper: it works modulo L, where opposite vectors (distance L) look identical
(distance 0). Here t = 2^w with w = ⌈log2(L+1)⌉.

*Server learns* H only: (R, T) is uniform subject to T − R = h. *Client k learns* nothing: every t_l
is masked by a fresh r_l. *Client j learns* nothing, by the receiver's privacy of the transfers.
The server may collude with any clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.params import residue_width
from xclp_crypto.protocols.hamming.interface import (
    Shares,
    SharingBackend,
    low_bits,
)
from xclp_crypto.protocols.ot.interface import Choices, ObliviousTransfer
from xclp_crypto.protocols.ot.naor_pinkas import naor_pinkas
from xclp_crypto.protocols.setup import Session
from xclp_crypto.rng import Rng, require_rng

RESIDUE_BYTES = 2
"""Bytes of one transferred residue; w ≤ 16 bits."""

CLIENT_TRANSFERS: Final = 1 << 16
"""Most transfers that one client has at work, with all others together. All parties derive the
batches from it, so it is part of the protocol."""


def batch_size(clients: int) -> int:
    """Return how many transfers two of so many clients make at a time."""
    return max(1, CLIENT_TRANSFERS // max(1, clients - 1))


def transfers(sizes: Mapping[str, int], n_bits: int) -> dict[tuple[str, str], int]:
    """Return the number of transfers by (sender, receiver): one per pair of rows and bit.

    They are numbered sender's row by sender's row, then by receiver's row, then by bit.
    """
    return {
        (sender, receiver): sizes[sender] * sizes[receiver] * n_bits
        for sender, receiver in combinations(sizes, 2)
        if sizes[sender] and sizes[receiver]
    }


def offers(bits: NDArray[np.uint8], masks: NDArray[np.uint16], n_bits: int) -> NDArray[np.uint8]:
    """Return the messages (r_l + b_l, r_l + 1 − b_l) mod t of some transfers as bytes, (m, 2, 2).

    Args:
        bits: (m,), the sender's.
        masks: (m,), uniform modulo t.
        n_bits: L.
    """
    b = bits.astype(np.uint16)
    both = np.stack([masks + b, masks + (1 - b)], axis=-1) & low_bits(n_bits)
    both_as_bytes: NDArray[np.uint8] = both.astype("<u2").view(np.uint8)
    return both_as_bytes.reshape(-1, 2, RESIDUE_BYTES)


class Shade(SharingBackend):
    """SHADE with one transfer per pair and bit, as `transfer` does it. See the module."""

    name = "shade"
    trust = "2pc"

    def __init__(self, transfer: ObliviousTransfer = naor_pinkas) -> None:
        self._transfer = transfer

    async def shares(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> Shares:
        """See `SharingBackend.shares`."""
        io, me, sizes = session.io, session.io.name, session.sizes
        rows, n_bits = bits.shape
        modulus, size = 1 << residue_width(n_bits), batch_size(len(sizes))
        links = transfers(sizes, n_bits)
        sending = {receiver: count for (sender, receiver), count in links.items() if sender == me}
        receiving = {sender: count for (sender, receiver), count in links.items() if receiver == me}
        # One for each pair of rows, in the order in which `transfers` numbers them.
        sums = {p: np.zeros(rows * n, dtype=np.uint16) for p, n in sizes.items() if p != me}

        sid = session.once("shade")
        most = max((*sending.values(), *receiving.values()), default=0)
        for index, start in enumerate(range(0, most, size)):
            numbers = np.arange(start, start + size)
            out, into = (
                {p: np.divmod(numbers[: n - start], n_bits) for p, n in links.items() if n > start}
                for links in (sending, receiving)
            )
            messages = {}
            for peer, (pair, bit) in out.items():
                masks = require_rng(rng).residues(modulus, pair.shape).astype(np.uint16)
                np.add.at(sums[peer], pair, masks)
                own = bits[pair // sizes[peer], bit]
                messages[peer] = await io.compute(offers, own, masks, n_bits)
            requests = {
                peer: Choices(bits[pair % rows, bit].astype(bool), RESIDUE_BYTES)
                for peer, (pair, bit) in into.items()
            }
            batch = domain_tag("shade batch", sid, index)
            received = await self._transfer(io, messages, requests, batch, rng, at_least=0)
            for peer, (pair, _) in into.items():
                if peer in received:
                    np.add.at(sums[peer], pair, received[peer].view("<u2").reshape(-1))
                else:
                    del receiving[peer], sums[peer]
        shares = {
            peer: total.reshape(sizes[peer], rows).T
            if peer in receiving
            else total.reshape(rows, sizes[peer])
            for peer, total in sums.items()
        }
        return {peer: share & low_bits(n_bits) for peer, share in shares.items()}

    def minuend(self, low: str, high: str, sizes: Mapping[str, int]) -> str:
        """See `SharingBackend.minuend`."""
        return high
