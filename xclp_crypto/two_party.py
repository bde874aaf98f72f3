"""Two programs compare their rows over a connection: distances, or what follows from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_crypto.params import residue_width
from xclp_crypto.protocols import boolean
from xclp_crypto.protocols.boolean import Gates, StoredTriples, costs
from xclp_crypto.protocols.boolean.costs import CircuitCost
from xclp_crypto.protocols.boolean.words import Words, words_for, words_to_bits
from xclp_crypto.protocols.hamming import BitRows, HammingBackend
from xclp_crypto.protocols.hamming.interface import SharingBackend
from xclp_crypto.protocols.ot import Extension, base_transfers, bit_triples
from xclp_crypto.protocols.setup import Identities, Session
from xclp_crypto.rng import Rng
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.duplex import Connected
from xclp_crypto.transport.meter import Cost
from xclp_crypto.two_programs import (
    CLIENTS,
    Program,
    additive_shares,
    open_distances,
    private_backend,
    program_of,
    sharing_backend,
    solvable_rows,
    terms_of,
)

FIELD_BITS: Final = 4
"""Of the transfers that triples are made of: 8 bytes a triple; part of the protocol."""


def cross_distances(
    bits: BitRows,
    sock: Connected,
    *,
    receives: bool,
    packed: int | None = None,
    backend: str | HammingBackend = "rlwe",
    rng: Rng | None = None,
    at_most_rows: int | None = None,
    identities: Identities | None = None,
    timeout: float = 60.0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[NDArray[np.uint16] | None, Cost]:
    """Compute the Hamming distances between the rows of two programs, and nothing else.

    One program receives, the other one does not; both call this on their ends of one connection.
    The receiving program plays the server as well, so only back ends that stay private when the
    server colludes with a client are allowed. Distances within a program are not revealed.

    **The distances themselves reveal rows**: a receiver that has, or makes up, as many rows as
    there are bits can solve for the other's rows exactly, and 2·L/log2(L) well-chosen ones are
    enough. No protocol changes that. The sender gets a `PrivacyWarning` when the receiver has that
    many, and can refuse with `at_most_rows`; repeated runs add up.

    Args:
        bits: this program's rows, (n, L) of 0/1, or packed.
        sock: a connected stream socket, or as `xclp_crypto.aio` takes it, streams of asyncio; where
            the network is not trusted, wrap it by `ssl` or give `identities`.
        receives: whether this program gets the distances; exactly one of the two must.
        packed: L, if rows are packed: `bytes`, or words of unsigned integers with the most
            significant bit first; see `xclp_crypto.protocols.hamming.rows.bit_rows`.
        backend: name of a back end with trust ``2pc``, the same for both.
        rng: randomness; the operating system's by default.
        at_most_rows: refuse to take part if the other program has more rows.
        identities: this program's key, and the identities pinned for ``receiver`` and ``sender``;
            both programs give the same two, or none. Without them nothing says who is at the other
            end of the connection.
        timeout: seconds without a byte from or to the other program before it counts as gone;
            longer than its longest computation.
        progress: called before each computation.

    Returns:
        The distances, (own rows, other's rows) uint16, or None for the program that does not
        receive; and the cost of this program's side.

    Raises:
        DataError: `bits` are not rows of bits.
        ParameterError: the back end is not safe for two parties, L is out of range, the other
            program has more rows than `at_most_rows`, an identity is missing, or the own key is not
            the one that is pinned.
        FaultyPeer: with identities, somebody else answers or sits between. It names ``sender``
            or, for the receiving program, ``receiver`` or ``server``.
        ProtocolError: the other program failed or fell silent; the text says which.

    Examples:
        >>> import socket
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import numpy as np
        >>> from xclp_crypto import cross_distances
        >>> mine, theirs = np.eye(3, 64, dtype=int), np.eye(2, 64, dtype=int)
        >>> here, there = socket.socketpair()
        >>> with here, there, ThreadPoolExecutor() as other:  # the other program, by a thread
        ...     _ = other.submit(cross_distances, theirs, there, receives=False)
        ...     found, cost = cross_distances(mine, here, receives=True)
        >>> found.tolist()
        [[0, 2], [2, 0], [2, 2]]
    """
    program = program_of(
        bits, sock, receives, packed, rng, at_most_rows, identities, timeout, progress
    )
    method, n_bits = private_backend(backend), program.bits.shape[1]
    terms = terms_of(n_bits, method, "cross_distances")
    return open_distances(program, method, terms, solvable_rows(n_bits))


def cross_matches(
    bits: BitRows,
    sock: Connected,
    *,
    receives: bool,
    at_most: int,
    packed: int | None = None,
    backend: str | HammingBackend = "rlwe",
    rng: Rng | None = None,
    at_most_rows: int | None = None,
    identities: Identities | None = None,
    timeout: float = 60.0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[NDArray[np.bool_] | None, Cost]:
    """Find which rows of two programs are within a Hamming distance, and nothing else.

    As `cross_distances`, but the distances stay in shares, and boolean circuits compare them
    (`xclp_crypto.protocols.boolean`, with triples from oblivious transfers): the receiver learns
    one bit for each pair. That is still something: a receiver with more rows than there are bits
    may solve for the other's, of which the sender gets a `PrivacyWarning`.

    Args:
        bits: this program's rows, (n, L) of 0/1, or packed.
        sock: see `cross_distances`.
        receives: whether this program gets the matches; exactly one of the two must.
        at_most: τ, the largest distance of a match, 0 … L; the same for both.
        packed: see `cross_distances`.
        backend: ``rlwe``, ``shade-ext`` or ``shade``, the same for both.
        rng: randomness; the operating system's by default.
        at_most_rows: refuse to take part if the other program has more rows.
        identities: see `cross_distances`.
        timeout: see `cross_distances`.
        progress: called before each computation.

    Returns:
        [distance ≤ τ], (own rows, other's rows) bool, or None for the program that does not
        receive; and the cost of this program's side.

    Raises:
        DataError: `bits` are not rows of bits.
        ParameterError: as for `cross_distances`, or τ is out of range.
        FaultyPeer: as for `cross_distances`.
        ProtocolError: the other program failed or fell silent; the text says which.

    Examples:
        >>> import socket
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import numpy as np
        >>> from xclp_crypto import cross_matches
        >>> mine, theirs = np.eye(3, 64, dtype=int), np.eye(2, 64, dtype=int)
        >>> here, there = socket.socketpair()
        >>> with here, there, ThreadPoolExecutor() as other:  # the other program, by a thread
        ...     _ = other.submit(cross_matches, theirs, there, receives=False, at_most=1)
        ...     found, cost = cross_matches(mine, here, receives=True, at_most=1)
        >>> found.tolist()
        [[True, False], [False, True], [False, False]]
    """
    program = program_of(
        bits, sock, receives, packed, rng, at_most_rows, identities, timeout, progress
    )
    n_bits = program.bits.shape[1]
    if (
        isinstance(at_most, bool)
        or not isinstance(at_most, int | np.integer)
        or not 0 <= at_most <= n_bits
    ):
        raise ParameterError(f"at_most must be a distance in 0 … {n_bits}, got {at_most!r}")
    width = residue_width(n_bits)

    def cost_of(rows: int, others: int) -> CircuitCost:
        return costs.at_most(int(at_most), n_bits, width, words_for(rows * others))

    async def judge(gates: Gates, addend: NDArray[np.uint16]) -> Words:
        flat = addend.reshape(-1)
        return await boolean.at_most(gates, flat, width, bound=int(at_most), largest=n_bits)

    asked = Judge("cross_matches", f"at_most={at_most}", cost_of, judge)
    return judged(program, sharing_backend(backend), asked)


def cross_nearest(
    bits: BitRows,
    sock: Connected,
    *,
    receives: bool,
    k: int,
    packed: int | None = None,
    backend: str | HammingBackend = "rlwe",
    rng: Rng | None = None,
    at_most_rows: int | None = None,
    identities: Identities | None = None,
    timeout: float = 60.0,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[NDArray[np.bool_] | None, Cost]:
    """Find which k rows of the sender are nearest to each row of the receiver, and nothing else.

    Rows that are as near as the k-th are among them. See `cross_matches`; it takes about five times
    as many conjunctions, because nobody learns how near the k-th is.

    Args:
        bits: this program's rows, (n, L) of 0/1, or packed.
        sock: see `cross_distances`.
        receives: whether this program gets the result; exactly one of the two must.
        k: how many, at least 1; the same for both.
        packed: see `cross_distances`.
        backend: ``rlwe``, ``shade-ext`` or ``shade``, the same for both.
        rng: randomness; the operating system's by default.
        at_most_rows: refuse to take part if the other program has more rows.
        identities: see `cross_distances`.
        timeout: see `cross_distances`.
        progress: called before each computation.

    Returns:
        [the other's row is among the k nearest], (own rows, other's rows) bool, or None for the
        program that does not receive; and the cost of this program's side.

    Raises:
        DataError: `bits` are not rows of bits.
        ParameterError: as for `cross_distances`, or k is below 1.
        FaultyPeer: as for `cross_distances`.
        ProtocolError: the other program failed or fell silent; the text says which.

    Examples:
        >>> import socket
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import numpy as np
        >>> from xclp_crypto import cross_nearest
        >>> mine, theirs = np.eye(3, 64, dtype=int), np.eye(2, 64, dtype=int)
        >>> here, there = socket.socketpair()
        >>> with here, there, ThreadPoolExecutor() as other:  # the other program, by a thread
        ...     _ = other.submit(cross_nearest, theirs, there, receives=False, k=1)
        ...     found, cost = cross_nearest(mine, here, receives=True, k=1)
        >>> found.tolist()  # those that are as near as the k-th are in it
        [[True, False], [False, True], [True, True]]
    """
    program = program_of(
        bits, sock, receives, packed, rng, at_most_rows, identities, timeout, progress
    )
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ParameterError(f"k must be at least 1, got {k!r}")
    width = residue_width(program.bits.shape[1])

    def cost_of(rows: int, others: int) -> CircuitCost:
        words = words_for(rows)
        return costs.adding(width, words * others) + costs.selecting(
            width, others, words, int(k), "shared"
        )

    async def judge(gates: Gates, addend: NDArray[np.uint16]) -> Words:
        distances = await boolean.to_boolean(gates, addend, width)
        return await boolean.smallest(gates, distances, int(k), bounds="shared")

    asked = Judge("cross_nearest", f"k={k}", cost_of, judge)
    return judged(program, sharing_backend(backend), asked)


@dataclass(frozen=True)
class Judge:
    """What is asked of distances, or products, in shares.

    Attributes:
        call: the function that both programs call.
        asked: what it was asked for.
        cost: takes the numbers of the receiver's rows and of the sender's.
        judge: takes gates and a share, (…, sender's rows, receiver's rows); returns shares of bits
            in that order, either packed as a whole or row by row.
        share: returns that share; of the distances, modulo 2^w, if there is none.
    """

    call: str
    asked: str
    cost: Callable[[int, int], CircuitCost]
    judge: Callable[[Gates, NDArray[np.uint16]], Awaitable[Words]]
    share: Callable[[Session, Rng], Awaitable[NDArray[np.uint16]]] | None = None


def judged(
    program: Program, method: SharingBackend, judge: Judge
) -> tuple[NDArray[np.bool_] | None, Cost]:
    """Run this program's part of what is asked.

    Returns:
        (own rows, other's rows) to the receiver, None to the sender; and the cost of this side.
    """
    n_bits = program.bits.shape[1]

    async def client(session: Session, rng: Rng) -> NDArray[np.bool_] | None:
        addend = await (
            judge.share(session, rng)
            if judge.share
            else additive_shares(session, program.bits, method, rng)
        )
        return await _compare(session, addend, judge, rng)

    found, cost = program.run(terms_of(n_bits, method, judge.call, judge.asked), n_bits, client)
    return found[program.name], cost


async def _compare(
    session: Session, addend: NDArray[np.uint16], judge: Judge, rng: Rng
) -> NDArray[np.bool_] | None:
    """Tell the receiver what is asked of what is shared."""
    io, sizes = session.io, session.sizes
    (peer,) = (c for c in CLIENTS if c != io.name)
    rows, others = (sizes[c] for c in CLIENTS)
    with io.step("triples"):
        words = judge.cost(rows, others).triples
        sid = session.once("cross triples")
        base = await base_transfers(io, (peer,), (peer,), sid, rng, field_bits=FIELD_BITS)
        triples = await bit_triples(io, peer, words, Extension(base, sid, rng), rng)
    with io.step("circuit"):
        gates = Gates(io, peer, StoredTriples(triples))
        opened = await gates.open_to(CLIENTS[0], await judge.judge(gates, addend))
    if opened is None:
        return None
    lanes = rows * others if opened.ndim == 1 else rows
    return words_to_bits(opened, lanes).reshape(others, rows).T
