"""``shade``: the paper's OT-based protocol, literally (§4.2; SHADE, Bringer et al. 2013).

::

    client j (rows b)                                 client k > j (rows b')
    r_l uniform in Z_t, for every pair and bit
    OT of (r_l + b_l, r_l + 1 − b_l) ───────────────▶ t_l = r_l + (b_l ⊕ b'_l), choice b'_l
    R = Σ r_l ──▶ server: h(b, b') = T − R mod t ◀─── T = Σ t_l

One oblivious transfer per pair of rows and bit: n_j·n_k·L transfers with public-key operations.
That is the reference to compare with, for small sizes; it is not meant to be fast.

Corrected from the paper: it works modulo L, where opposite vectors (distance L) look identical
(distance 0). Here t = 2^w with w = ⌈log2(L+1)⌉.

*Server learns* H only: (R, T) is uniform subject to T − R = h. *Client k learns* nothing: every t_l
is masked by a fresh r_l. *Client j learns* nothing, by the receiver's privacy of the transfers.
The server may collude with any clients.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.params import MIN_CLIENTS, residue_width
from xclp_crypto.protocols.hamming.interface import (
    Distances,
    DistanceShares,
    HammingBackend,
    cross_pairs,
    own_distances,
    receive_shares,
    send_shares,
    share_sizes,
)
from xclp_crypto.protocols.ot.interface import Choices, ObliviousTransfer
from xclp_crypto.protocols.ot.naor_pinkas import OtChoices, OtOffers, OtSetup, naor_pinkas
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.protocols.setup.channel import sealed_size
from xclp_crypto.rng import Rng

RESIDUE_BYTES = 2
"""Bytes of one transferred residue; w ≤ 16 bits."""


def offers(bits: NDArray[np.uint8], masks: NDArray[np.uint16], n_bits: int) -> NDArray[np.uint8]:
    """Return the pairs (r_l + b_l, r_l + 1 − b_l) mod t as bytes, (n_j·n_k·L, 2, 2).

    Args:
        bits: (n_j, L) of the sender.
        masks: (n_j, n_k, L) uniform modulo t.
        n_bits: L.
    """
    modulo = np.uint16((1 << residue_width(n_bits)) - 1)
    b = bits.astype(np.uint16)[:, None, :]
    pairs = np.stack([masks + b, masks + (1 - b)], axis=-1) & modulo
    pairs_as_bytes: NDArray[np.uint8] = pairs.astype("<u2").view(np.uint8)
    return pairs_as_bytes.reshape(-1, 2, RESIDUE_BYTES)


def choices(bits: NDArray[np.uint8], peer_rows: int) -> Choices:
    """Return the receiver's choices: its bits, once for every row of the peer."""
    repeated = np.broadcast_to(bits.astype(bool), (peer_rows, *bits.shape))
    return Choices(np.ascontiguousarray(repeated).reshape(-1), RESIDUE_BYTES)


def sum_chosen(
    chosen: NDArray[np.uint8], peer_rows: int, rows: int, n_bits: int
) -> NDArray[np.uint16]:
    """Return T transposed, (n_k, n_j) modulo t, from the transferred bytes."""
    values = chosen.view("<u2").reshape(peer_rows, rows, n_bits)
    return sum_modulo(values, n_bits).T


def sum_modulo(values: NDArray[np.uint16], n_bits: int) -> NDArray[np.uint16]:
    """Return the sums over the last axis, modulo t."""
    total = values.sum(axis=-1, dtype=np.uint64) & np.uint64((1 << residue_width(n_bits)) - 1)
    return np.asarray(total, dtype=np.uint16)


def _combine(n_bits: int, r: NDArray[np.uint16], t: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return T − R modulo t."""
    return (t - r) & np.uint16((1 << residue_width(n_bits)) - 1)


class Shade(HammingBackend):
    """SHADE with one transfer per pair and bit. See the module.

    Args:
        transfer: the oblivious transfer to use.
    """

    name = "shade"
    trust = "2pc"
    needs_common_secret = False
    rounds = 4

    def __init__(self, transfer: ObliviousTransfer = naor_pinkas) -> None:
        self._transfer = transfer

    async def client(
        self,
        session: Session,
        bits: NDArray[np.uint8],
        sizes: Mapping[str, int],
        common_secret: bytes | None,
        rng: Rng,
    ) -> None:
        """See `HammingBackend.client`."""
        io = session.io
        rows, n_bits = bits.shape
        order = list(sizes)
        later = order[order.index(io.name) + 1 :]
        earlier = order[: order.index(io.name)]
        modulus = 1 << residue_width(n_bits)
        masks = {
            peer: rng.residues(modulus, (rows, sizes[peer], n_bits)).astype(np.uint16)
            for peer in later
        }
        received = await self._transfer(
            io,
            {peer: await io.compute(offers, bits, mask, n_bits) for peer, mask in masks.items()},
            {peer: choices(bits, sizes[peer]) for peer in earlier},
            session.once("shade"),
            rng,
        )
        shares = {peer: sum_modulo(mask, n_bits) for peer, mask in masks.items()}
        for peer, chosen in received.items():
            shares[peer] = await io.compute(sum_chosen, chosen, sizes[peer], rows, n_bits)
        await send_shares(io, sizes, n_bits, await own_distances(session, bits), shares)

    async def server(
        self, session: Session, n_bits: int, sizes: Mapping[str, int], at_least: int = MIN_CLIENTS
    ) -> Distances:
        """See `HammingBackend.server`."""
        return await receive_shares(
            session, n_bits, sizes, at_least, lambda low, high, r, t: _combine(n_bits, r, t)
        )

    def bytes_per_link(self, sizes: Mapping[str, int], n_bits: int) -> dict[tuple[str, str], int]:
        """See `HammingBackend.bytes_per_link`; for Naor–Pinkas transfers."""
        dims = share_sizes(sizes, residue_width(n_bits))
        links = {(c, SERVER): sealed_size(DistanceShares.size(**dims[c])) for c in sizes}
        order = list(sizes)
        for i, low in enumerate(order):
            for high in order[i + 1 :]:
                count = sizes[low] * sizes[high] * n_bits
                links[low, high] = sealed_size(OtSetup.size()) + sealed_size(
                    OtOffers.size(count=count, length=RESIDUE_BYTES)
                )
                links[high, low] = sealed_size(OtChoices.size(count=count))
        return links

    def operations(self, sizes: Mapping[str, int], n_bits: int) -> dict[str, int]:
        """See `HammingBackend.operations`: at the two ends of every transfer together."""
        transfers = cross_pairs(sizes) * n_bits
        return {
            "fixed-base multiplications": transfers,
            "variable-base multiplications": 2 * transfers,
        }

    def memory_bytes(self, sizes: Mapping[str, int], n_bits: int) -> int:
        """See `HammingBackend.memory_bytes`: about 500 bytes per transfer of one client."""
        n = sum(sizes.values())
        return 500 * n_bits * max(rows * (n - rows) for rows in sizes.values())
