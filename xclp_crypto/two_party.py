"""Two programs compare their rows over a connection: distances, or what follows from them."""

from __future__ import annotations

import math
import socket
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import ParameterError, PrivacyWarning, TooFewParties
from xclp_crypto.params import Agreement, residue_width
from xclp_crypto.primitives.fixed_point import as_array
from xclp_crypto.protocols import boolean
from xclp_crypto.protocols.boolean import Gates, StoredTriples, costs
from xclp_crypto.protocols.boolean.costs import CircuitCost
from xclp_crypto.protocols.boolean.words import Words, words_for, words_to_bits
from xclp_crypto.protocols.hamming import BACKENDS, HammingBackend, check_bits, get_backend
from xclp_crypto.protocols.hamming.interface import SharingBackend
from xclp_crypto.protocols.ot import Extension, base_transfers, bit_triples
from xclp_crypto.protocols.setup import (
    SERVER,
    Identities,
    Session,
    key_exchange_client,
    key_exchange_server,
)
from xclp_crypto.rng import Rng, rng_or_system
from xclp_crypto.role import RoleIO
from xclp_crypto.transport.driver import Progress, Role
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.stream import SocketDriver

CLIENTS = ("receiver", "sender")


def _with_server(identities: Identities) -> Identities:
    """Pin the receiver's identity for the server too, which runs in the same program."""
    pinned = {name: identities.of(name) for name in CLIENTS}
    return Identities(identities.own, pinned | {SERVER: pinned["receiver"]})


def solvable_rows(n_bits: int) -> int:
    """Return how many well-chosen rows determine any row of L bits by its distances to them.

    2·L/log2(L), the number of weighings that find the false ones among L coins (Lindström 1964).
    """
    return max(2, math.ceil(2 * n_bits / math.log2(max(n_bits, 2))))


def _private_backend(backend: str | HammingBackend) -> HammingBackend:
    """Return the back end; refuse one that a server which colludes with a client sees through."""
    method = get_backend(backend)
    if method.trust != "2pc":
        raise ParameterError(
            f"back end {method.name!r} is not private between two programs; use one of "
            f"{', '.join(sorted(b.name for b in BACKENDS.values() if b.trust == '2pc'))}"
        )
    return method


@dataclass(frozen=True, repr=False)
class _Program:
    """This program's side: what all doors take; see `cross_distances`."""

    bits: NDArray[np.uint8]
    sock: socket.socket
    receives: bool
    rng: Rng
    at_most_rows: int | None
    identities: Identities | None
    timeout: float
    progress: Callable[[Progress], None] | None

    @property
    def name(self) -> str:
        return CLIENTS[0] if self.receives else CLIENTS[1]

    def check_rows(self, others: int, solvable: int) -> None:
        """Refuse more rows of the other program than allowed; warn if they tell this one's."""
        if self.at_most_rows is not None and others > self.at_most_rows:
            other = next(c for c in CLIENTS if c != self.name)
            raise ParameterError(
                f"the {other} has {others} rows, and the {self.name} says at_most_rows = "
                f"{self.at_most_rows}",
                public=True,
            )
        if not self.receives and others >= solvable:
            warnings.warn(
                f"the other program compares {others} rows with yours; from about {solvable} on, "
                "every bit of each of your rows can be solved for",
                PrivacyWarning,
                stacklevel=1,
            )

    def run(
        self,
        terms: Agreement,
        solvable: int,
        client: Callable[[Session, Rng], Awaitable[Any]],
        server: Callable[[Session], Awaitable[Any]],
    ) -> tuple[Mapping[str, Any], Cost]:
        """Exchange keys, and run this program's part; the receiver is the server as well.

        Args:
            terms: what both programs agree on.
            solvable: from how many rows of the receiver on the sender is warned of them.
            client: a client's part after the key exchange.
            server: the server's.

        Returns:
            Results by party, and the cost.
        """
        me, rows = self.name, len(self.bits)
        pinned = None if self.identities is None else _with_server(self.identities)

        async def client_role(io: RoleIO) -> Any:
            own = self.rng.child(me)
            with io.step("setup"):
                session = await key_exchange_client(io, CLIENTS, terms, [rows], own, pinned)
            session.cross_only = True
            self.check_rows(sum(session.sizes.values()) - rows, solvable)
            return await client(session, own)

        async def server_role(io: RoleIO) -> Any:
            own = self.rng.child(SERVER)
            with io.step("setup"):
                session = await key_exchange_server(io, CLIENTS, terms, 1, own, identities=pinned)
            session.cross_only = True
            return await server(session)

        roles: dict[str, Role] = {me: client_role}
        if self.receives:
            roles[SERVER] = server_role
        driver = SocketDriver(
            self.sock, (*CLIENTS, SERVER), timeout=self.timeout, progress=self.progress
        )
        outcome = driver.run(roles).raise_errors()
        return outcome.results, outcome.cost


def _program(
    bits: ArrayLike, sock: socket.socket, receives: bool, rng: Rng | None, *options: Any
) -> _Program:
    """Check the arguments that all doors take; the options are the last fields of `_Program`."""
    me = CLIENTS[0] if receives else CLIENTS[1]
    array = check_bits(as_array(bits, me), me)
    residue_width(array.shape[1])
    return _Program(array, sock, receives, rng_or_system(rng), *options)


def cross_distances(
    bits: ArrayLike,
    sock: socket.socket,
    *,
    receives: bool,
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
        bits: this program's rows, (n, L) of 0/1.
        sock: a connected stream socket; where the network is not trusted, wrap it by `ssl` or give
            `identities`.
        receives: whether this program gets the distances; exactly one of the two must.
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
        DataError: `bits` is not a 0/1 matrix.
        ParameterError: the back end is not safe for two parties, L is out of range, the other
            program has more rows than `at_most_rows`, an identity is missing, or the own key is not
            the one that is pinned.
        FaultyPeer: with identities, somebody else answers or sits between. It names ``sender``
            or, for the receiving program, ``receiver`` or ``server``.
        ProtocolError: the other program failed; the children say how.
    """
    program = _program(bits, sock, receives, rng, at_most_rows, identities, timeout, progress)
    method, n_bits = _private_backend(backend), program.bits.shape[1]

    async def client(session: Session, rng: Rng) -> None:
        with session.io.step("hamming"):
            await method.client(session, program.bits, rng)

    async def server(session: Session) -> NDArray[np.uint16]:
        own = len(program.bits)
        with session.io.step("hamming"):
            found = await method.server(session, n_bits)
        return found.matrix[:own, own:]

    found, cost = program.run(_terms(n_bits, method), solvable_rows(n_bits), client, server)
    return found.get(SERVER), cost


def cross_matches(
    bits: ArrayLike,
    sock: socket.socket,
    *,
    receives: bool,
    at_most: int,
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
        bits: this program's rows, (n, L) of 0/1.
        sock: see `cross_distances`.
        receives: whether this program gets the matches; exactly one of the two must.
        at_most: τ, the largest distance of a match, 0 … L; the same for both.
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
        DataError: `bits` is not a 0/1 matrix.
        ParameterError: as for `cross_distances`, or τ is out of range.
        FaultyPeer: as for `cross_distances`.
        ProtocolError: the other program failed; the children say how.
    """
    program = _program(bits, sock, receives, rng, at_most_rows, identities, timeout, progress)
    n_bits = program.bits.shape[1]
    if not isinstance(at_most, int | np.integer) or not 0 <= at_most <= n_bits:
        raise ParameterError(f"at_most must be a distance in 0 … {n_bits}, got {at_most!r}")
    width = residue_width(n_bits)

    def cost_of(rows: int, others: int) -> CircuitCost:
        return costs.at_most(int(at_most), n_bits, width, words_for(rows * others))

    async def judge(gates: Gates, addend: NDArray[np.uint16]) -> Words:
        flat = addend.reshape(-1)
        return await boolean.at_most(gates, flat, width, bound=int(at_most), largest=n_bits)

    return _judged(program, backend, _Judge({"at_most": int(at_most)}, cost_of, judge))


def cross_nearest(
    bits: ArrayLike,
    sock: socket.socket,
    *,
    receives: bool,
    k: int,
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
        bits: this program's rows, (n, L) of 0/1.
        sock: see `cross_distances`.
        receives: whether this program gets the result; exactly one of the two must.
        k: how many, at least 1; the same for both.
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
        DataError: `bits` is not a 0/1 matrix.
        ParameterError: as for `cross_distances`, or k is below 1.
        FaultyPeer: as for `cross_distances`.
        ProtocolError: the other program failed; the children say how.
    """
    program = _program(bits, sock, receives, rng, at_most_rows, identities, timeout, progress)
    if not isinstance(k, int | np.integer) or k < 1:
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

    return _judged(program, backend, _Judge({"k": int(k)}, cost_of, judge))


@dataclass(frozen=True)
class _Judge:
    """What is asked of distances in shares.

    Attributes:
        terms: what both programs agree on.
        cost: takes the numbers of the receiver's rows and of the sender's.
        judge: takes gates and a share, (sender's rows, receiver's rows); returns shares of bits in
            that order, either packed as a whole or row by row.
    """

    terms: Mapping[str, int]
    cost: Callable[[int, int], CircuitCost]
    judge: Callable[[Gates, NDArray[np.uint16]], Awaitable[Words]]


def _judged(
    program: _Program, backend: str | HammingBackend, judge: _Judge
) -> tuple[NDArray[np.bool_] | None, Cost]:
    """Run both parts of what is asked, and return what this program learns of it."""
    method, n_bits = _private_backend(backend), program.bits.shape[1]
    if not isinstance(method, SharingBackend):
        able = sorted(b.name for b in BACKENDS.values() if isinstance(b, SharingBackend))
        raise ParameterError(
            f"back end {method.name!r} leaves no shares to go on with; use one of {', '.join(able)}"
        )

    async def client(session: Session, rng: Rng) -> NDArray[np.bool_] | None:
        return await _compare(session, program.bits, method, judge, rng)

    async def server(session: Session) -> None:
        """Do nothing: once keys are exchanged, the two clients need no server."""

    found, cost = program.run(_terms(n_bits, method, **judge.terms), n_bits, client, server)
    return found[program.name], cost


def _terms(n_bits: int, method: HammingBackend, **others: int) -> Agreement:
    return Agreement(n_bits=n_bits, hamming=method.name, cross_only=True, **others)


async def _compare(
    session: Session, bits: NDArray[np.uint8], method: SharingBackend, judge: _Judge, rng: Rng
) -> NDArray[np.bool_] | None:
    """Share the distances, and tell the receiver what is asked of them."""
    io, sizes = session.io, session.sizes
    (peer,) = (c for c in CLIENTS if c != io.name)
    rows, others = (sizes[c] for c in CLIENTS)
    with io.step("hamming"):
        shares = await method.shares(session, bits, rng)
        if peer not in shares:
            raise TooFewParties(io.current_step, 1, len(CLIENTS), missing=(peer,))
        share = shares[peer] if method.minuend(*CLIENTS, sizes) == io.name else -shares[peer]
        addend = np.ascontiguousarray(share.T if io.name == CLIENTS[0] else share)
    with io.step("triples"):
        words = judge.cost(rows, others).triples
        sid = session.once("cross triples")
        base = await base_transfers(io, (peer,), (peer,), sid, rng)
        triples = await bit_triples(io, peer, words, Extension(base, sid, rng), rng)
    with io.step("circuit"):
        gates = Gates(io, peer, StoredTriples(triples))
        opened = await gates.open_to(CLIENTS[0], await judge.judge(gates, addend))
    if opened is None:
        return None
    lanes = rows * others if opened.ndim == 1 else rows
    return words_to_bits(opened, lanes).reshape(others, rows).T
