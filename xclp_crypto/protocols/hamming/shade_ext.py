"""``shade-ext``: SHADE over OT extension, one transfer per bit of the receiver.

SHADE (Bringer et al. 2013) in the batched form of GSHADE (Bringer et al. 2014), over the correlated
transfers of `xclp_crypto.protocols.ot.extension`::

    sender (rows b_i, i < n)                          receiver (rows b', fewer of them)
    128 base transfers, then for every block of bits l of rows b':
    pads H(q_l), H(q_l ⊕ s) ◀────────────────────     OtColumns, choice b'_l
    OtCorrections c_l ──────────────────────────▶     t_l in Z_t^n
    R = Σ r_l ──▶ server: h(b_i, b') = T − R mod t ◀── T = Σ t_l

*Derivation.* The receiver is to get t_{l,i} = r_{l,i} + (b_{i,l} ⊕ b'_l) mod t, t = 2^w,
w = ⌈log2(L+1)⌉, for all i at once, in one transfer whose choice is b'_l. Its two messages are
m_0 = r_l + b_l and m_1 = r_l + 1 − b_l = m_0 + Δ_l with Δ_{l,i} = 1 − 2·b_{i,l}. In a correlated
transfer m_0 is the sender's pad H(q_l), so c_l = H(q_l) + Δ_l − H(q_l ⊕ s) is all that travels: a
receiver with choice 0 has H(q_l) = m_0 itself, one with choice 1 adds c_l to its H(q_l ⊕ s) and has
m_1. Hence r_l = H(q_l) − b_l, so R_i = Σ_l H(q_l)_i − |b_i| and T_i = R_i + h(b_i, b').

The side with fewer rows receives, the later client if there is no such side: n_r·L transfers of
n_s residues instead of n_r·n_s·L. About n_r·L·(128 + n_s·w) bits.

*Server learns* H only: R is a sum of pads, T − R = h. *Receiver learns* nothing: every t_{l,i} is
masked by an r_{l,i} that only the sender knows, or would be told by the pad of the other choice.
*Sender learns* nothing: the columns are masked by G. The server may collude with any clients.
Against semi-honest parties; the assumptions are those of the extension and its base transfers.
Receivers are not checked (`check_receiver` needs whole batches, and here columns are sent ahead):
one whose columns hide different choices can read the sender's bits together with the server.

The payload streams in blocks that all parties derive from the public sizes, so memory is bounded
whatever the sizes are. Columns of the next block are sent ahead, so both sides work at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.params import MIN_CLIENTS, residue_width
from xclp_crypto.protocols.hamming.interface import (
    Distances,
    HammingBackend,
    low_bits,
    receive_differences,
    send_shares,
)
from xclp_crypto.protocols.ot.bits import BLOCK_LANES, LANE, HashPoints, lane_groups
from xclp_crypto.protocols.ot.extension import Extension, OtCorrections, base_transfers
from xclp_crypto.protocols.ot.interface import ObliviousTransfer
from xclp_crypto.protocols.ot.link import SenderPads
from xclp_crypto.protocols.ot.naor_pinkas import naor_pinkas
from xclp_crypto.protocols.setup import Session
from xclp_crypto.rng import Rng

MESSAGE_BYTES: Final = 1 << 22
"""Most bytes of one OtCorrections, unless one byte of choices needs more. All parties derive the
blocks from it, so it is part of the protocol."""

CLIENT_BYTES: Final = 1 << 24
"""Most bytes of the OtCorrections that one client exchanges at a time with all others."""


@dataclass(frozen=True)
class Block:
    """Bits `first_bit` … `stop_bit`−1 of rows `first_row` … `stop_row`−1 of the receiver."""

    first_row: int
    stop_row: int
    first_bit: int
    stop_bit: int

    @property
    def rows(self) -> slice:
        """Return the rows."""
        return slice(self.first_row, self.stop_row)

    @property
    def bits(self) -> slice:
        """Return the bits."""
        return slice(self.first_bit, self.stop_bit)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and bits."""
        return self.stop_row - self.first_row, self.stop_bit - self.first_bit

    @property
    def count(self) -> int:
        """Return the number of transfers."""
        return self.shape[0] * self.shape[1]


def blocks(rows: int, lanes: int, n_bits: int, clients: int) -> list[Block]:
    """Cut the transfers of one pair into blocks: whole rows if they fit, or else parts of a row.

    There are `rows` of the receiver and `lanes` of the sender, in a session of so many clients.
    """
    limit = min(MESSAGE_BYTES, CLIENT_BYTES // max(1, clients - 1))
    fit = 8 * limit // max(1, lanes * residue_width(n_bits))
    row_step, bit_step = max(1, fit // n_bits), min(n_bits, max(8, fit // 8 * 8))
    return [
        Block(row, min(row + row_step, rows), bit, min(bit + bit_step, n_bits))
        for row in range(0, rows, row_step)
        for bit in range(0, n_bits, bit_step)
    ]


def ends(low: str, high: str, sizes: Mapping[str, int]) -> tuple[str, str]:
    """Return sender and receiver of two clients, of which `low` is the earlier one."""
    return (high, low) if sizes[low] < sizes[high] else (low, high)


def pairs(sizes: Mapping[str, int], n_bits: int) -> list[tuple[str, str, list[Block]]]:
    """Return sender, receiver and blocks of all pairs of clients that have rows."""
    order = [client for client, rows in sizes.items() if rows]
    both = [ends(low, high, sizes) for i, low in enumerate(order) for high in order[i + 1 :]]
    return [(s, r, blocks(sizes[r], sizes[s], n_bits, len(sizes))) for s, r in both]


def _choices(
    bits: NDArray[np.uint8], into: Mapping[str, list[Block]], step: int
) -> dict[str, NDArray[np.bool_]]:
    """Return the choices of this step's blocks, by sender."""
    due = {p: blocks[step] for p, blocks in into.items() if step < len(blocks)}
    return {p: bits[block.rows, block.bits].astype(bool).reshape(-1) for p, block in due.items()}


def lane_offsets(bits: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return Δ = 1 − 2b of all rows (n, L) as (⌈n/8⌉, L, 8), in the order of the hash output."""
    n, n_bits = bits.shape
    padded = np.zeros((-(-n // BLOCK_LANES) * BLOCK_LANES, n_bits), LANE)
    padded[:n] = 1 - 2 * bits.astype(LANE)
    return np.ascontiguousarray(padded.reshape(-1, BLOCK_LANES, n_bits).transpose(0, 2, 1))


def _sum_bits(values: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return the sums over axis 2 of (groups, rows, bits, lanes) modulo 2^16; destroys `values`.

    Halving keeps the additions long and contiguous, unlike NumPy's sum of a middle axis.
    """
    while (n := values.shape[2]) > 1:
        half = (n + 1) // 2
        values[:, :, : n - half] += values[:, :, half:]
        values = values[:, :, :half]
    return values[:, :, 0]


def _into(sums: NDArray[np.uint16], first: int, part: NDArray[np.uint16]) -> None:
    """Write the sums (groups, rows, lanes) of a lane group into (rows, n)."""
    groups, rows, lanes = part.shape
    start = first * BLOCK_LANES
    sums[:, start : start + groups * lanes] = part.transpose(1, 0, 2).reshape(rows, -1)


def offer_block(
    pads: SenderPads, offsets: NDArray[np.uint16], shape: tuple[int, int], lanes: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return Σ_l H(q_l) (rows, n) modulo 2^16, and the corrections in sending order.

    Args:
        pads: of rows·bits transfers, row by row.
        offsets: (⌈n/8⌉, bits, 8), of these bits.
        shape: (rows, bits) of the block.
        lanes: n.
    """
    sums = np.empty((shape[0], lanes), LANE)
    corrections = np.empty(shape[0] * shape[1] * lanes, LANE)
    for first, stop, part in lane_groups(corrections, shape[0] * shape[1], lanes):
        zero, one = pads.zero.lanes(first, stop), pads.one.lanes(first, stop)
        np.subtract(zero, one, out=one)
        by_bit = one.reshape(stop - first, *shape, BLOCK_LANES)
        by_bit += offsets[first:stop, None]
        part[:] = one[:, :, : part.shape[2]]
        sums_here = _sum_bits(zero.reshape(by_bit.shape))
        _into(sums, first, sums_here[:, :, : part.shape[2]])
    return sums, corrections


def take_block(
    pads: HashPoints, corrections: NDArray[np.uint16], bits: NDArray[np.uint8], lanes: int
) -> NDArray[np.uint16]:
    """Return Σ_l t_l (rows, n) modulo t in the low bits.

    Args:
        pads: of rows·bits transfers, row by row.
        corrections: in sending order.
        bits: (rows, bits), the choices.
        lanes: n.
    """
    sums = np.empty((len(bits), lanes), LANE)
    chosen = np.repeat(-bits.reshape(-1).astype(LANE), BLOCK_LANES).reshape(-1, BLOCK_LANES)
    for first, stop, part in lane_groups(corrections, bits.size, lanes):
        value = pads.lanes(first, stop)
        value[:, :, : part.shape[2]] += part & chosen[:, : part.shape[2]]
        by_bit = value.reshape(stop - first, *bits.shape, BLOCK_LANES)
        _into(sums, first, _sum_bits(by_bit)[:, :, : part.shape[2]])
    return sums


class ShadeExt(HammingBackend):
    """SHADE with one correlated transfer per bit of the receiver, over `base`. See the module."""

    name = "shade-ext"
    trust = "2pc"

    def __init__(self, base: ObliviousTransfer = naor_pinkas) -> None:
        self._base = base

    async def client(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> None:
        """See `HammingBackend.client`."""
        io, me, sizes = session.io, session.io.name, session.sizes
        rows, n_bits = bits.shape
        width = residue_width(n_bits)
        cut = pairs(sizes, n_bits)
        out, into = {r: b for s, r, b in cut if s == me}, {s: b for s, r, b in cut if r == me}
        shares = {p: np.zeros((rows, n), LANE) for p, n in sizes.items() if p != me}

        sid = session.once("shade-ext")
        base = await base_transfers(io, tuple(out), tuple(into), sid, rng, self._base)
        extension = Extension(base, sid, rng)
        offsets = await io.compute(lane_offsets, bits)
        ahead = await extension.ask(io, _choices(bits, into, 0))
        for step in range(max(map(len, [*out.values(), *into.values()]), default=0)):
            asked, ahead = ahead, await extension.ask(io, _choices(bits, into, step + 1))
            due = {p: blocks[step] for p, blocks in out.items() if step < len(blocks)}
            pads = await extension.answer(io, {p: block.count for p, block in due.items()})
            for p, block in due.items():
                if p in pads:
                    part, corrections = await io.compute(
                        offer_block, pads[p], offsets[:, block.bits], block.shape, rows
                    )
                    await io.send(p, OtCorrections(corrections, width))
                    shares[p][:, block.rows] += part.T
                else:
                    del out[p], shares[p]
            due = {p: blocks[step] for p, blocks in into.items() if step < len(blocks)}
            counts = {p: block.count for p, block in due.items()}
            lanes = {p: sizes[p] for p in due}
            got = await io.gather(
                OtCorrections, tuple(due), 0, count=counts, lanes=lanes, width=width
            )
            for p, block in due.items():
                if p in got:
                    chosen = bits[block.rows, block.bits]
                    shares[p][block.rows] += await io.compute(
                        take_block, asked[p], got[p].residues, chosen, sizes[p]
                    )
                else:
                    del into[p], shares[p]
        weights = bits.sum(axis=1, dtype=LANE)[:, None]
        modulo = low_bits(n_bits)
        shares = {p: (s - weights if p in out else s) & modulo for p, s in shares.items()}
        await send_shares(session, bits, shares)

    async def server(self, session: Session, n_bits: int, at_least: int = MIN_CLIENTS) -> Distances:
        """See `HammingBackend.server`."""
        sizes = session.sizes
        return await receive_differences(
            session, n_bits, at_least, lambda low, high: ends(low, high, sizes)[1]
        )
