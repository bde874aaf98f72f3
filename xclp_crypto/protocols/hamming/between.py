"""Distances between rows and columns: of rows that come later to those that were there before.

Every client has *rows* and *columns*, bit vectors both, of which everybody knows the numbers. The
server learns the distances of all rows to all columns, and none among rows or among
columns. It is the protocol of the back end, in which a client acts for its rows and for its columns
as if they were two clients: towards every other client, once with rows of its own and the other's
columns, once the other way round. Distances of a client's rows to its own columns are computed by
that client.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.apart import Apart
from xclp_crypto.fields import Bits, Packed
from xclp_crypto.params import MIN_CLIENTS, residue_width
from xclp_crypto.protocols.hamming.checks import require_parities
from xclp_crypto.protocols.hamming.distance import distances_between
from xclp_crypto.protocols.hamming.interface import (
    HammingBackend,
    by_dimension,
    column_ranges,
    complete_uploads,
    require_distances,
    stacked_shares,
)
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng
from xclp_crypto.wire import Message, sent

Shares = Mapping[str, NDArray[np.uint16]]
"""By peer, (own rows, its columns) or (own columns, its rows) modulo 2^w."""


@dataclass(frozen=True)
class Between:
    """What the server holds of rows and columns.

    Attributes:
        matrix: (m, n) uint16, the distances of all rows to all columns, in the order of `rows`.
        rows: number of rows by client that took part to the end.
        columns: number of columns by the same clients.
        apart: as of `Distances`.
    """

    matrix: NDArray[np.uint16]
    rows: dict[str, int]
    columns: dict[str, int]
    apart: Apart = ()


class Sizes(NamedTuple):
    """How many rows and columns each client has, in the order of clients."""

    rows: Mapping[str, int]
    columns: Mapping[str, int]

    def of(self, clients: Collection[str]) -> tuple[dict[str, int], dict[str, int]]:
        """Return the numbers of rows and of columns of these clients."""
        rows, columns = ({c: n for c, n in own.items() if c in clients} for own in self)
        return rows, columns


class BetweenBackend(HammingBackend):
    """A back end that can also compute distances between rows and columns only."""

    @abstractmethod
    async def client_between(
        self,
        session: Session,
        sizes: Sizes,
        rows: NDArray[np.uint8],
        columns: NDArray[np.uint8],
        rng: Rng,
    ) -> None:
        """Take part as a client.

        Args:
            session: the session.
            sizes: numbers of rows and columns, as everybody knows them.
            rows: (m_j, L) of 0 and 1.
            columns: (n_j, L) of 0 and 1.
            rng: source of this client's own randomness.
        """

    @abstractmethod
    async def server_between(
        self, session: Session, sizes: Sizes, n_bits: int, at_least: int = MIN_CLIENTS
    ) -> Between:
        """Take part as the server, which gets the distances of the clients that finished.

        Args and errors are those of `HammingBackend.server`, and the same sizes as for clients.
        """


class BlockShares(Message):
    """A client's rows against its own columns, and its shares of those with other clients.

    `own` are (m, n) distances. `rows` are shares of its rows with the columns of all others,
    in the order of clients, `columns` those of its columns with the rows of all others, modulo 2^w.
    `complete` is as in `DistanceShares`.

    Size: ⌈p/8⌉ + ⌈m·n·w/8⌉ + ⌈m·n_others·w/8⌉ + ⌈n·m_others·w/8⌉ bytes.
    """

    TAG = 0x0202
    complete: NDArray[np.bool_] = sent(Bits("clients"))
    own: NDArray[np.uint16] = sent(Packed("m", "n", width="width"))
    rows: NDArray[np.uint16] = sent(Packed("m", "n_others", width="width"))
    columns: NDArray[np.uint16] = sent(Packed("n", "m_others", width="width"))
    width: int


def block_sizes(sizes: Sizes, n_bits: int) -> dict[str, dict[str, int]]:
    """Return the sizes of every client's `BlockShares`."""
    rows, columns = sizes
    m, n, width = sum(rows.values()), sum(columns.values()), residue_width(n_bits)
    return {
        c: {
            "clients": len(rows),
            "m": rows[c],
            "n": columns[c],
            "m_others": m - rows[c],
            "n_others": n - columns[c],
            "width": width,
        }
        for c in rows
    }


async def send_block_shares(
    session: Session,
    sizes: Sizes,
    rows: NDArray[np.uint8],
    columns: NDArray[np.uint8],
    of_rows: Shares,
    of_columns: Shares,
) -> None:
    """Send the server this client's block and shares; absent peers count as incomplete."""
    me, io = session.io.name, session.io
    complete = np.array([c == me or (c in of_rows and c in of_columns) for c in session.clients])
    local = await io.compute(distances_between, rows, columns)
    stacked_rows = stacked_shares(len(rows), of_rows, sizes.columns, me)
    stacked_columns = stacked_shares(len(columns), of_columns, sizes.rows, me)
    width = residue_width(rows.shape[1])
    await io.send(SERVER, BlockShares(complete, local, stacked_rows, stacked_columns, width))


async def receive_block_shares(
    session: Session,
    sizes: Sizes,
    n_bits: int,
    at_least: int,
    combine: Callable[[str, str, NDArray[np.uint16], NDArray[np.uint16]], NDArray[np.uint16]],
    uploaders: tuple[str, ...] | None = None,
) -> Between:
    """Gather every client's shares and put the matrix together.

    Args:
        session: the server's session.
        sizes: numbers of rows and columns.
        n_bits: L.
        at_least: fewest clients to go on with.
        combine: takes client j, client k ≠ j, the shares (m_j, n_k) that j has of its rows and
            those that k has of its columns; returns the distances modulo 2^w.
        uploaders: clients to expect, by default all.

    Raises:
        TooFewParties: fewer than `at_least` are left.
        FaultyPeer: a combined value is above L, or no bit vectors have such parities.
    """
    io, (rows, columns) = session.io, sizes
    clients, dims = uploaders or session.clients, block_sizes(sizes, n_bits)
    uploads = await io.gather(BlockShares, clients, at_least, **by_dimension(dims))
    keep, apart = complete_uploads(io.current_step, uploads, session.clients, at_least)

    def block(j: str, k: str) -> NDArray[np.uint16]:
        if j == k:
            return uploads[j].own
        shares = uploads[j].rows[:, column_ranges(columns, j)[k]]
        return combine(j, k, shares, uploads[k].columns[:, column_ranges(rows, k)[j]].T)

    kept_rows, kept_columns = sizes.of(keep)
    matrix = await io.compute(_assembled, kept_rows, kept_columns, n_bits, block)
    down, across = column_ranges(kept_rows), column_ranges(kept_columns)
    await io.compute(require_parities, matrix, down, across)
    return Between(matrix, kept_rows, kept_columns, apart)


def _assembled(
    rows: Mapping[str, int],
    columns: Mapping[str, int],
    n_bits: int,
    block: Callable[[str, str], NDArray[np.uint16]],
) -> NDArray[np.uint16]:
    """Put the blocks of all pairs of clients together."""
    down, across = column_ranges(rows), column_ranges(columns)
    matrix = np.empty((sum(rows.values()), sum(columns.values())), dtype=np.uint16)
    for j, k in product(rows, columns):
        found = block(j, k)
        require_distances(found, n_bits, j if j == k else (j, k))
        matrix[down[j], across[k]] = found
    return matrix
