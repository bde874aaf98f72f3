"""``shade-ext``: SHADE over OT extension, one transfer per bit of the receiver.

SHADE (Bringer et al. 2013) in the batched form of GSHADE (Bringer et al. 2014), over the correlated
transfers of `xclp_crypto.protocols.ot.extension`::

    sender (rows b_i, i < n)                          receiver (rows b', fewer of them)
    128 base transfers, then for every group of blocks of bits l of rows b':
    pads H(q_l), H(q_l ⊕ s) ◀────────────────────     OtColumns, choice b'_l
    OtChallenge ────────────────────────────────▶
    check, or stop          ◀────────────────────     OtProof
    for every block: OtCorrections c_l ─────────▶     t_l in Z_t^n
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
The assumptions are those of the extension and its base transfers.

*Deviating receivers* are checked (`check_receiver`) before the first correction of a group leaves,
so each is bound to one bit per transfer, as if it followed the protocol; one that guesses g bits
of s is caught but for probability 2^-g. *Deviating senders* are not: what they can do is to offer
other messages, which the receiver's share shows to the server only.

The payload streams in blocks that all parties derive from the public sizes, so memory is bounded
whatever the sizes are. Columns are sent two groups ahead, challenges and proofs one, so that both
sides work at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.params import residue_width
from xclp_crypto.protocols.hamming.interface import (
    Shares,
    SharingBackend,
    low_bits,
)
from xclp_crypto.protocols.ot.base import base_transfers
from xclp_crypto.protocols.ot.bits import BLOCK_LANES, LANE, HashPoints, lane_groups
from xclp_crypto.protocols.ot.extension import Extension, OtCorrections
from xclp_crypto.protocols.ot.interface import ObliviousTransfer
from xclp_crypto.protocols.ot.link import Asked, SenderPads, Taken
from xclp_crypto.protocols.ot.naor_pinkas import naor_pinkas
from xclp_crypto.protocols.setup import Session
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.secret import Secret

T = TypeVar("T")

MESSAGE_BYTES: Final = 1 << 22
"""Most bytes of one OtCorrections, unless one byte of choices needs more. All parties derive the
blocks from it, so it is part of the protocol."""

CLIENT_BYTES: Final = 1 << 24
"""Most bytes of the OtCorrections that one client exchanges at a time with all others."""

GROUP_BLOCKS: Final = 4
"""Blocks whose columns are sent, and checked, together: a check takes 4.2 kB."""

AHEAD: Final = 2
"""Groups whose columns are sent before their corrections are due."""


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


Group = list[Block]
"""Blocks that follow each other in the numbering of transfers."""


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


def groups(rows: int, lanes: int, n_bits: int, clients: int) -> list[Group]:
    """Cut the blocks of one pair into groups."""
    cut = blocks(rows, lanes, n_bits, clients)
    return [cut[at : at + GROUP_BLOCKS] for at in range(0, len(cut), GROUP_BLOCKS)]


def pairs(sizes: Mapping[str, int], n_bits: int) -> list[tuple[str, str, list[Group]]]:
    """Return sender, receiver and groups of all pairs of clients that have rows."""
    order = [client for client, rows in sizes.items() if rows]
    both = [ends(low, high, sizes) for i, low in enumerate(order) for high in order[i + 1 :]]
    return [(s, r, groups(sizes[r], sizes[s], n_bits, len(sizes))) for s, r in both]


def transfers(group: Iterable[Block]) -> int:
    """Return how many transfers some blocks have."""
    return sum(block.count for block in group)


def _due(cut: Mapping[str, list[Group]], step: int) -> dict[str, Group]:
    """Return the groups of this step, by peer."""
    return {p: groups[step] for p, groups in cut.items() if 0 <= step < len(groups)}


def _parts(due: Mapping[str, Group], index: int) -> list[tuple[str, Block, tuple[int, int]]]:
    """Return the block of this number in each group, and which transfers of the group it has."""
    found = []
    for peer, group in due.items():
        for block in group[index : index + 1]:
            first = transfers(group[:index])
            found.append((peer, block, (first, first + block.count)))
    return found


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


class _Links(Secret):
    """One client's links with the peers that are left, and its shares with them so far."""

    def __init__(self, me: str, bits: NDArray[np.uint8], sizes: Mapping[str, int]) -> None:
        cut = pairs(sizes, bits.shape[1])
        self._bits, self._sizes = bits, sizes
        self.out = {r: groups for s, r, groups in cut if s == me}
        self.into = {s: groups for s, r, groups in cut if r == me}
        self.shares = {p: np.zeros((len(bits), n), LANE) for p, n in sizes.items() if p != me}

    @property
    def steps(self) -> int:
        """Return how many groups the longest link has."""
        return max(map(len, [*self.out.values(), *self.into.values()]), default=0)

    def left(self, due: Collection[str], present: Mapping[str, T]) -> dict[str, T]:
        """Forget peers that are due and not present; return those present that are left."""
        for gone in set(due) - set(present):
            for known in (self.out, self.into, self.shares):
                known.pop(gone, None)
        return {p: batch for p, batch in present.items() if p in self.shares}

    def choices(self, step: int) -> dict[str, NDArray[np.bool_]]:
        """Return the choices of all transfers of a step, by sender."""
        return {
            p: np.concatenate([self._bits[b.rows, b.bits].reshape(-1) for b in group]).astype(bool)
            for p, group in _due(self.into, step).items()
        }

    async def correct(
        self,
        io: RoleIO,
        step: int,
        offsets: NDArray[np.uint16],
        sent: Mapping[str, SenderPads],
        received: Mapping[str, HashPoints],
    ) -> None:
        """Send and receive the corrections of a step, block by block, and add to the shares."""
        rows, n_bits = self._bits.shape
        width = residue_width(n_bits)
        due_out, due_into = _due(self.out, step), _due(self.into, step)
        for index in range(max(map(len, [*due_out.values(), *due_into.values()]), default=0)):
            for p, block, part in _parts(due_out, index):
                sums, corrections = await io.compute(
                    offer_block,
                    sent[p].part(*part),
                    offsets[:, block.bits],
                    block.shape,
                    rows,
                )
                await io.send(p, OtCorrections(corrections, width))
                self.shares[p][:, block.rows] += sums.T
            due = [part for part in _parts(due_into, index) if part[0] in self.into]
            got = await io.gather(
                OtCorrections,
                tuple(p for p, _, _ in due),
                0,
                count={p: block.count for p, block, _ in due},
                lanes={p: self._sizes[p] for p, _, _ in due},
                width=width,
            )
            self.left([p for p, _, _ in due], got)
            for p, block, part in due:
                if p in got:
                    chosen = self._bits[block.rows, block.bits]
                    self.shares[p][block.rows] += await io.compute(
                        take_block, received[p].part(*part), got[p].residues, chosen, self._sizes[p]
                    )


def _keep_freed_memory() -> None:
    """Let the C library keep what one group's messages took for those of the next.

    glibc gives back freed memory beyond twice the largest block that was ever freed: here a message
    of 4 MB, less than a step needs. So it took 880,000 page faults, a fifth of all time, to get it
    again for 500 × 500 rows of 4096 bits. Freeing a larger block, never touched, raises that limit
    (mallopt(3), M_MMAP_THRESHOLD); other C libraries ignore it.
    """
    np.empty(CLIENT_BYTES, np.uint8)


class ShadeExt(SharingBackend):
    """SHADE with one correlated transfer per bit of the receiver, over `base`. See the module."""

    name = "shade-ext"
    trust = "2pc"

    def __init__(self, base: ObliviousTransfer = naor_pinkas) -> None:
        self._base = base

    async def shares(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> Shares:
        """See `SharingBackend.shares`."""
        _keep_freed_memory()
        io, n_bits = session.io, bits.shape[1]
        links = _Links(io.name, bits, session.sizes)
        sid = session.once("shade-ext")
        base = await base_transfers(
            io, tuple(links.out), tuple(links.into), sid, rng, self._base, at_least=0
        )
        extension = Extension(base, sid, rng, check_receiver=True, at_least=0)
        offsets = await io.compute(lane_offsets, bits)
        asked: dict[str, Asked] = {}
        taken: dict[str, Taken] = {}
        sent: dict[str, SenderPads] = {}
        received: dict[str, HashPoints] = {}
        for step in range(-AHEAD, links.steps):
            next_asked = await extension.ask(io, links.choices(step + AHEAD))
            next_received = await extension.prove(io, links.left((), asked))
            await links.correct(io, step, offsets, sent, received)
            received, asked = links.left(asked, next_received), next_asked
            due = {p: transfers(group) for p, group in _due(links.out, step + AHEAD).items()}
            next_taken = links.left(due, await extension.take(io, due))
            sent = links.left(taken, await extension.verify(io, links.left((), taken)))
            taken = next_taken
        weights = bits.sum(axis=1, dtype=LANE)[:, None]
        modulo = low_bits(n_bits)
        return {p: (s - weights if p in links.out else s) & modulo for p, s in links.shares.items()}

    def minuend(self, low: str, high: str, sizes: Mapping[str, int]) -> str:
        """See `SharingBackend.minuend`."""
        return ends(low, high, sizes)[1]
