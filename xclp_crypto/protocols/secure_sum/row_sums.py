"""SecureRowSums with fresh-mask restart (paper §4.2; after Bonawitz et al. 2017).

::

    client k                                                       server
                     ◀────────────────────── RowSumsRound(who takes part, done?)
    RowSumsUpload(Z_k + Σ_m ±PRG(s_km), without the rows of k) ──▶
                     ◀────────────────────── RowSumsBlock(Σ_{k≠j} uploads, rows of j)

Client j subtracts the masks it shares with each k from its block, adds its own Z_j and holds the
sum over all clients, for its rows only. For m ≠ j the masks of pairs (k, m) cancel in block j.

If a client that takes part does not upload, the server starts again with those that did: another
`RowSumsRound`, whose number and participants enter every mask, so no mask is used twice. Recovery
without repeating the work would need secret shares of the masks, which there are not.

*Server learns* nothing: in every upload the row of owner j carries the mask shared with j, which j
never uploads; this holds for the uploads of abandoned rounds and for late ones too, because no
key is ever handed out. *Client j learns* the sum of the others' rows R_j, not its parts. With two
clients that sum *is* the other's part: `PrivacyWarning`.

*A server that colludes with clients* learns, for the rows of those clients, the sum over the honest
ones of every attempt that all of its participants uploaded to. Without restarts that hides each of
two or more honest clients; against all but one it is that one's values. A restart weakens this: if
an upload arrives late, or the server pretends that it did, the sums of two attempts differ by the
late client's values. Only secret-shared self masks would close that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.prg import expand
from xclp_crypto.algebra.ring import Residues
from xclp_crypto.errors import Excluded, FaultyPeer, ParameterError
from xclp_crypto.params import MIN_CLIENTS
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.protocols.setup.channel import sealed_size
from xclp_crypto.wire import Message, Reader, ResidueFields, Writer

RING = 1 << 64
Rows = Mapping[str, NDArray[np.intp]]
"""By client, the sorted indices of its rows, disjoint."""


@dataclass(frozen=True, repr=False)
class RowSumsRound(Message):
    """Which clients take part in an attempt, or took part in the one that is done.

    Size: 1 + ⌈p/8⌉ bytes.
    """

    TAG = 0x0401
    done: bool
    clients: NDArray[np.bool_]

    @staticmethod
    def size(*, clients: int) -> int:
        """Return 1 + ⌈p/8⌉."""
        return 1 + (clients + 7) // 8

    def write(self, out: Writer) -> None:
        """See `Message.write`."""
        out.bits(np.array([self.done]))
        out.bits(self.clients)

    @classmethod
    def read(cls, data: Reader, *, clients: int) -> RowSumsRound:
        """See `Message.read`."""
        return cls(bool(data.bits(1)[0]), data.bits(clients))


@dataclass(frozen=True, repr=False)
class RowSumsUpload(ResidueFields, Message):
    """Masked values for the rows of all other participants. Size: 8·rows·c bytes."""

    TAG = 0x0402
    values: Residues
    modulus: int


@dataclass(frozen=True, repr=False)
class RowSumsBlock(ResidueFields, Message):
    """The masked sum over the other participants, for the receiver's rows. Size: 8·rows·c bytes."""

    TAG = 0x0403
    values: Residues
    modulus: int


def rows_of_others(rows: Rows, clients: Sequence[str], me: str) -> NDArray[np.intp]:
    """Return the sorted rows of all participants but `me`: what `me` uploads."""
    others = [rows[c] for c in clients if c != me]
    return np.sort(np.concatenate(others)) if others else np.zeros(0, dtype=np.intp)


def check_rows(rows: Rows) -> int:
    """Return n; refuse rows that are not a partition of 0 … n−1.

    Raises:
        ParameterError: a row belongs to two clients or to none.
    """
    stacked = np.concatenate(list(rows.values())) if rows else np.zeros(0, dtype=np.intp)
    owners, counts = np.unique(stacked, return_counts=True)
    if (counts > 1).any():
        raise ParameterError(f"row {int(owners[counts > 1][0])} belongs to more than one client")
    n = len(stacked)
    if n and (int(owners[0]) < 0 or int(owners[-1]) >= n):
        raise ParameterError(f"the clients' rows must be a partition of 0 … {n - 1}")
    return n


def check_codec(codec: FixedPoint) -> None:
    """Refuse a codec of another modulus than 2^64, the one that all parties compute with.

    Raises:
        ParameterError: another modulus.
    """
    if codec.modulus != RING:
        raise ParameterError(f"row sums are computed modulo 2^64, got modulus {codec.modulus}")


def pair_masks(
    session: Session, clients: Sequence[str], lab: bytes, shape: tuple[int, int]
) -> dict[str, Residues]:
    """Return this client's masks with every other participant, signed as it adds them.

    The client that comes first adds the mask and the other one subtracts it.
    """
    me = session.io.name
    masks = {}
    for peer in clients:
        if peer != me:
            mask = expand(session.pair_key(peer, lab), lab, RING, shape).astype(np.uint64)
            first = clients.index(me) < clients.index(peer)
            masks[peer] = mask if first else np.uint64(0) - mask
    return masks


def mask_upload(
    encoded: Residues, masks: Mapping[str, Residues], keep: NDArray[np.intp]
) -> Residues:
    """Return the rows `keep` of the values plus all masks, modulo 2^64."""
    total = encoded[keep]
    for mask in masks.values():
        total += mask[keep]
    return total


def unmask_block(
    block: Residues,
    encoded: Residues,
    masks: Mapping[str, Residues],
    own: NDArray[np.intp],
) -> Residues:
    """Return the sum over all participants for the own rows, modulo 2^64.

    The peers added the negative of this client's masks, so adding them strips the block.
    """
    total = block + encoded[own]
    for mask in masks.values():
        total += mask[own]
    return total


def sum_uploads(uploads: Mapping[str, Residues], rows: Rows, n: int, columns: int) -> Residues:
    """Return, per row, the sum of all uploads that contain it, (n, c) modulo 2^64."""
    total = np.zeros((n, columns), dtype=np.uint64)
    clients = tuple(uploads)
    for client, values in uploads.items():
        total[rows_of_others(rows, clients, client)] += values
    return total


async def secure_row_sums_client(
    session: Session,
    values: NDArray[np.float64],
    rows: Rows,
    codec: FixedPoint,
    purpose: str = "row sums",
) -> NDArray[np.float64]:
    """Return this client's rows of the sum over all clients that took part.

    Args:
        session: the session.
        values: (n, c), this client's contribution to every row.
        rows: by client of the session that may take part, its rows; a partition of 0 … n−1.
        codec: the fixed-point code modulo 2^64, for as many parties as there are clients.
        purpose: tells several sums of one session apart.

    Returns:
        (len(rows[me]), c) float64, off by at most `codec.error_bound` per entry.

    Raises:
        ParameterError: a codec of another modulus; nothing was sent.
        DataError, EncodingOverflow: a value cannot be encoded; nothing was sent.
        Excluded: the others went on without this client.
    """
    io, me, shape = session.io, session.io.name, (values.shape[0], values.shape[1])
    check_codec(codec)
    encoded = np.asarray(codec.encode(values, client=me), dtype=np.uint64)
    order = tuple(rows)
    known = set(session.clients)
    masks: dict[str, Residues] = {}
    taking_part: tuple[str, ...] = ()
    attempt = 0
    while True:
        status = await io.recv(RowSumsRound, SERVER, clients=len(order))
        clients = tuple(c for c, here in zip(order, status.clients, strict=True) if here)
        if me not in clients:
            raise Excluded(me, io.current_step)
        if status.done:
            break
        allowed = set(clients) < set(taking_part) if attempt else set(clients) <= known
        if len(clients) < MIN_CLIENTS or not allowed:
            raise FaultyPeer(SERVER, f"asks {len(clients)} clients for attempt {attempt}")
        taking_part = clients
        lab = session.once(purpose, attempt, *clients)
        masks = await io.compute(pair_masks, session, clients, lab, shape)
        keep = rows_of_others(rows, clients, me)
        upload = await io.compute(mask_upload, encoded, masks, keep)
        await io.send(SERVER, RowSumsUpload(upload, RING))
        attempt += 1
    if clients != taking_part:
        raise FaultyPeer(SERVER, "sums over other clients than those that it asked")
    own = rows[me]
    block = await io.recv(RowSumsBlock, SERVER, rows=len(own), columns=shape[1], modulus=RING)
    return codec.decode(await io.compute(unmask_block, block.values, encoded, masks, own))


async def secure_row_sums_server(
    session: Session,
    rows: Rows,
    columns: int,
    clients: Sequence[str] | None = None,
    at_least: int = MIN_CLIENTS,
) -> tuple[str, ...]:
    """Sum the masked uploads, hand out the blocks, and return the clients that took part.

    Args:
        session: the server's session.
        rows: by client, its rows; a partition of 0 … n−1.
        columns: c.
        clients: those to ask first, by default all in `rows`.
        at_least: fewest clients to go on with.

    Raises:
        TooFewParties: fewer than `at_least` uploaded.
    """
    io = session.io
    order = tuple(rows)
    n = check_rows(rows)
    asked = order if clients is None else tuple(c for c in order if c in clients)
    informed = asked
    while True:
        here = np.array([c in asked for c in order])
        await io.send(informed, RowSumsRound(False, here))
        sizes = {c: len(rows_of_others(rows, asked, c)) for c in asked}
        got = await io.gather(
            RowSumsUpload, asked, at_least, rows=sizes, columns=columns, modulus=RING
        )
        if len(got) == len(asked):
            break
        asked = tuple(c for c in asked if c in got)
    await io.send(informed, RowSumsRound(True, here))
    total = await io.compute(sum_uploads, {c: m.values for c, m in got.items()}, rows, n, columns)
    for client in asked:
        await io.send(client, RowSumsBlock(total[rows[client]], RING))
    return asked


def bytes_per_link(rows: Rows, columns: int) -> dict[tuple[str, str], int]:
    """Return the bytes of all messages without dropouts, sealing included, by (from, to)."""
    order = tuple(rows)
    status = sealed_size(RowSumsRound.size(clients=len(order)))
    links: dict[tuple[str, str], int] = {}
    for client in order:
        others = len(rows_of_others(rows, order, client))
        links[client, SERVER] = sealed_size(
            RowSumsUpload.size(rows=others, columns=columns, modulus=RING)
        )
        links[SERVER, client] = 2 * status + sealed_size(
            RowSumsBlock.size(rows=len(rows[client]), columns=columns, modulus=RING)
        )
    return links
