"""SecureHamming: the server learns all pairwise Hamming distances, and nobody anything else.

A back end is a class with the members below, registered under its name in
`xclp_crypto.protocols.hamming`; what it costs is in `costs`. What all of them share is here:
distances within one client are computed by that client; for every pair of clients the two hold
shares that the server combines; a client whose upload is missing is left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.apart import Apart, told, without_pairs
from xclp_crypto.errors import FaultyPeer, TooFewParties
from xclp_crypto.fields import Bits, Packed
from xclp_crypto.params import MIN_CLIENTS, residue_width
from xclp_crypto.protocols.hamming.checks import require_bit_vectors
from xclp_crypto.protocols.hamming.distance import upper_distances
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng
from xclp_crypto.role import OnProgress, recorded
from xclp_crypto.wire import Message, sent

_REPORTED = 1 << 22  # distances between two reports

Trust = Literal["none", "non-colluding", "2pc"]
"""Who may collude: ``2pc`` the server with any clients; ``non-colluding`` the server with no
client; ``none`` the server sees the bits themselves."""


@dataclass(frozen=True)
class Distances:
    """What the server holds after SecureHamming.

    Attributes:
        matrix: (n, n) uint16, symmetric Hamming distances, 0 on the diagonal; rows in the order
            of `sizes`.
        sizes: number of rows by client that took part to the end.
        apart: pairs of which one was left out for want of shares; see `xclp_crypto.apart`.
    """

    matrix: NDArray[np.uint16]
    sizes: dict[str, int]
    apart: Apart = ()


class HammingBackend(ABC):
    """One way to compute Hamming distances across clients.

    Attributes:
        name: how the back end is chosen.
        trust: see `Trust`.
        needs_common_secret: whether clients must share a secret that the server lacks.
    """

    name: ClassVar[str]
    trust: ClassVar[Trust]
    needs_common_secret: ClassVar[bool] = False

    def require(self, sizes: Mapping[str, int], n_bits: int) -> None:  # noqa: B027
        """Refuse sizes that `client` and `server` would refuse; by default none.

        Args:
            sizes: number of rows by client.
            n_bits: L.

        Raises:
            ParameterError: names the bound that is missed.
        """

    @abstractmethod
    async def client(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> None:
        """Take part as a client.

        Args:
            session: the session, with the sizes of its clients and, where `needs_common_secret`,
                the secret that they share; its `clients` fix the order of rows.
            bits: (n_j, L) of 0 and 1.
            rng: source of this client's own randomness.
        """

    @abstractmethod
    async def server(self, session: Session, n_bits: int, at_least: int = MIN_CLIENTS) -> Distances:
        """Take part as the server, which gets the distances of the clients that finished.

        Args:
            session: the session, with the sizes of its clients, which fix the order of rows.
            n_bits: L.
            at_least: fewest clients to go on with.

        Returns:
            The distances between all rows of the clients that finished.

        Raises:
            TooFewParties: fewer than `at_least` clients finished.
            FaultyPeer: shares of two clients give no distance, or no bit vectors have all of them.
        """


Shares: TypeAlias = dict[str, NDArray[np.uint16]]
"""By peer, (own rows, its rows) modulo 2^w; peers that dropped out are missing."""


class SharingBackend(HammingBackend):
    """A back end in which two clients end with T and R, and T − R modulo 2^w is the distance.

    The server gets both. Two programs that go on with the shares themselves need no server.
    """

    @abstractmethod
    async def shares(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> Shares:
        """Take part as a client, and return T or R for every peer.

        Args:
            session: see `HammingBackend.client`.
            bits: (n_j, L) of 0 and 1.
            rng: source of this client's own randomness.
        """

    @abstractmethod
    def minuend(self, low: str, high: str, sizes: Mapping[str, int]) -> str:
        """Return which of client j and client k > j has T."""

    async def client(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> None:
        """See `HammingBackend.client`."""
        await send_shares(session, bits, await self.shares(session, bits, rng))

    async def server(self, session: Session, n_bits: int, at_least: int = MIN_CLIENTS) -> Distances:
        """See `HammingBackend.server`."""
        sizes, modulo = session.sizes, low_bits(n_bits)

        def combine(
            low: str, high: str, first: NDArray[np.uint16], second: NDArray[np.uint16]
        ) -> NDArray[np.uint16]:
            has_first = self.minuend(low, high, sizes) == low
            return (first - second if has_first else second - first) & modulo

        return await receive_shares(session, n_bits, at_least, combine)


def own_pairs(rows: int) -> int:
    """Return the number of pairs of one client's rows."""
    return rows * (rows - 1) // 2


class DistanceShares(Message):
    """A client's own distances, and its shares of the distances to every other client's rows.

    `local` are the n_j(n_j−1)/2 distances above the diagonal, row by row. `shares` is
    (n_j, n_others) modulo 2^w, columns in the order of clients. `complete` tells, for every client,
    whether the shares with it are valid (false where that client dropped out).

    Size: ⌈p/8⌉ + ⌈n_j(n_j−1)/2·w/8⌉ + ⌈n_j·n_others·w/8⌉ bytes.
    """

    TAG = 0x0201
    complete: NDArray[np.bool_] = sent(Bits("clients"))
    local: NDArray[np.uint16] = sent(Packed(own_pairs, width="width"))
    shares: NDArray[np.uint16] = sent(Packed("rows", "others", width="width"))
    width: int


class Completed(Protocol):
    """What all messages have in common with which clients end their part."""

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Return, for every client, whether the shares with it are valid."""


class Upload(Completed, Protocol):
    """Those of them that have the distances between the client's own rows."""

    @property
    def local(self) -> NDArray[np.uint16]:
        """Return the distances between the client's own rows, above the diagonal."""


def low_bits(n_bits: int) -> np.uint16:
    """Return t − 1 = 2^w − 1: the bits of residues modulo t."""
    return np.uint16((1 << residue_width(n_bits)) - 1)


def cross_pairs(sizes: Mapping[str, int]) -> int:
    """Return the number of pairs of rows of different clients."""
    n = sum(sizes.values())
    return (n * n - sum(rows * rows for rows in sizes.values())) // 2


def column_ranges(sizes: Mapping[str, int], me: str | None = None) -> dict[str, slice]:
    """Return where each client's rows lie when all clients', or all others', are stacked."""
    ranges: dict[str, slice] = {}
    start = 0
    for client, rows in sizes.items():
        if client != me:
            ranges[client] = slice(start, start + rows)
            start += rows
    return ranges


async def own_distances(session: Session, bits: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return the distances above the diagonal of this client's rows, zeros if it hides them."""
    if session.cross_only:
        return np.zeros(len(bits) * (len(bits) - 1) // 2, dtype=np.uint16)
    return await session.io.compute(local_distances, bits, session.io.report)


@recorded
def local_distances(
    bits: NDArray[np.uint8], progress: OnProgress | None = None
) -> NDArray[np.uint16]:
    """Return the n(n−1)/2 distances above the diagonal of one client's own rows."""
    n = len(bits)
    found, at = np.empty(n * (n - 1) // 2, dtype=np.uint16), 0
    for start, rows in upper_distances(bits):
        for i, row in enumerate(rows):
            found[at : at + n - 1 - start - i] = row[i + 1 :]
            at += n - 1 - start - i
        if progress is not None:
            progress("own distances", at, len(found))
    return found


def stacks(sizes: Mapping[str, int], most: int) -> list[dict[str, int]]:
    """Put neighbouring clients together as long as they have at most so many rows.

    One product with the rows of many small clients is several times faster than many products.
    """
    found: list[dict[str, int]] = []
    room = 0
    for client, rows in sizes.items():
        if rows > room or not found:
            found.append({})
            room = most
        found[-1][client] = rows
        room -= rows
    return found


def share_sizes(sizes: Mapping[str, int], width: int) -> dict[str, dict[str, int]]:
    """Return the sizes of every client's `DistanceShares`."""
    total = sum(sizes.values())
    return {
        client: {"clients": len(sizes), "rows": n, "others": total - n, "width": width}
        for client, n in sizes.items()
    }


def by_dimension(sizes: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Turn the sizes of each client's message into those by name, as `RoleIO.gather` takes them."""
    names = next(iter(sizes.values()))
    return {name: {c: own[name] for c, own in sizes.items()} for name in names}


def stacked_shares(
    own: int, shares: Mapping[str, NDArray[np.uint16]], sizes: Mapping[str, int], me: str
) -> NDArray[np.uint16]:
    """Put the shares of `own` rows with all other clients side by side, zeros for absent ones."""
    ranges = column_ranges(sizes, me)
    stacked = np.zeros((own, sum(sizes.values()) - sizes[me]), dtype=np.uint16)
    for peer, share in shares.items():
        stacked[:, ranges[peer]] = share
    return stacked


async def send_shares(
    session: Session, bits: NDArray[np.uint8], shares: Mapping[str, NDArray[np.uint16]]
) -> None:
    """Send the server this client's distances and shares; absent peers count as incomplete."""
    me, sizes = session.io.name, session.sizes
    stacked = stacked_shares(len(bits), shares, sizes, me)
    complete = np.array([client == me or client in shares for client in sizes])
    local = await own_distances(session, bits)
    width = residue_width(bits.shape[1])
    await session.io.send(SERVER, DistanceShares(complete, local, stacked, width))


def _apart(uploads: Mapping[str, Completed], order: tuple[str, ...]) -> Apart:
    """Return the pairs of which the first says that its shares with the second are not valid."""
    return tuple(
        (one, other)
        for one in order
        if one in uploads
        for other, valid in zip(order, uploads[one].complete, strict=True)
        if other in uploads and not valid
    )


def complete_uploads(
    step: str, uploads: Mapping[str, Completed], order: tuple[str, ...], at_least: int
) -> tuple[tuple[str, ...], Apart]:
    """Return whose uploads fit together, and which pairs of clients have no shares together.

    Raises:
        FaultyPeer: a client says so of itself.
        TooFewParties: fewer than `at_least` are left.
    """
    apart = _apart(uploads, order)
    for one, other in apart:
        if one == other:
            raise FaultyPeer(one, "says that its shares with itself are not valid")
    keep = without_pairs((c for c in order if c in uploads), apart)
    if len(keep) < at_least:
        out = tuple(c for c in order if c not in uploads)
        raise TooFewParties(step, len(keep), at_least, told(apart), out)
    return keep, apart


async def receive_shares(
    session: Session,
    n_bits: int,
    at_least: int,
    combine: Callable[[str, str, NDArray[np.uint16], NDArray[np.uint16]], NDArray[np.uint16]],
    uploaders: tuple[str, ...] | None = None,
) -> Distances:
    """Gather every client's shares and put the matrix together.

    Args:
        session: the server's session.
        n_bits: L.
        at_least: fewest clients to go on with.
        combine: takes client j, client k > j, j's shares (n_j, n_k) and k's shares (n_j, n_k);
            returns the distances modulo 2^w.
        uploaders: clients to expect, by default all.

    Raises:
        TooFewParties: fewer than `at_least` are left.
        FaultyPeer: a combined value is above L, or no bit vectors have these distances.
    """
    sizes = session.sizes
    place = column_ranges(sizes)
    clients, dims = uploaders or session.clients, share_sizes(sizes, residue_width(n_bits))
    uploads = await session.io.gather(DistanceShares, clients, at_least, **by_dimension(dims))

    def block(low: str, high: str) -> NDArray[np.uint16]:
        return combine(
            low,
            high,
            # Among the rows of others, those after the own ones come earlier by so many.
            uploads[low].shares[:, place[high].start - sizes[low] : place[high].stop - sizes[low]],
            uploads[high].shares[:, place[low]].T,
        )

    return await assemble(session, n_bits, at_least, uploads, block)


async def assemble(
    session: Session,
    n_bits: int,
    at_least: int,
    uploads: Mapping[str, Upload],
    block: Callable[[str, str], NDArray[np.uint16]],
) -> Distances:
    """Put the matrix together, without the clients whose uploads do not fit together.

    `block` takes client j and client k > j, and returns their (n_j, n_k) distances modulo 2^w. The
    other arguments, and errors, are those of `receive_shares`.
    """
    io, sizes = session.io, session.sizes
    keep, apart = complete_uploads(io.current_step, uploads, tuple(sizes), at_least)
    kept = {c: sizes[c] for c in keep}
    matrix = await io.compute(_assemble, uploads, kept, n_bits, block, io.report)
    if not session.cross_only:
        await io.compute(require_bit_vectors, matrix, column_ranges(kept), n_bits)
    return Distances(matrix, kept, apart)


def _assemble(
    uploads: Mapping[str, Upload],
    kept: Mapping[str, int],
    n_bits: int,
    block: Callable[[str, str], NDArray[np.uint16]],
    progress: OnProgress,
) -> NDArray[np.uint16]:
    """Combine the shares of every pair of kept clients into the symmetric matrix."""
    n = sum(kept.values())
    done, reported, pairs = 0, 0, cross_pairs(kept)
    place = column_ranges(kept)
    matrix = np.zeros((n, n), dtype=np.uint16)
    clients = list(kept)
    for index, low in enumerate(clients):
        own, at = matrix[place[low], place[low]], 0
        for i in range(kept[low] - 1):
            above = uploads[low].local[at : at + kept[low] - 1 - i]
            own[i, i + 1 :], own[i + 1 :, i] = above, above
            at += len(above)
        require_distances(uploads[low].local, n_bits, low)
        for high in clients[index + 1 :]:
            across = block(low, high)
            require_distances(across, n_bits, (low, high))
            matrix[place[low], place[high]] = across
            matrix[place[high], place[low]] = across.T
            done += across.size
            if done - reported >= _REPORTED or done == pairs:
                progress("distances", done, pairs)
                reported = done
    return matrix


def require_distances(
    values: NDArray[np.uint16], n_bits: int, parties: str | tuple[str, ...]
) -> None:
    """Refuse distances above L.

    Raises:
        FaultyPeer: names these parties.
    """
    if values.size and int(values.max()) > n_bits:
        raise FaultyPeer(parties, f"a distance above L = {n_bits} comes out of the shares")
