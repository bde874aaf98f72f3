"""Distances between the rows of two programs that share a connection."""

from __future__ import annotations

import math
import socket
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import ParameterError, PrivacyWarning
from xclp_crypto.params import Agreement, residue_width
from xclp_crypto.primitives.fixed_point import as_array
from xclp_crypto.protocols.hamming import BACKENDS, HammingBackend, check_bits, get_backend
from xclp_crypto.protocols.setup import SERVER, Identities, key_exchange_client, key_exchange_server
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


def _check_rows(others: int, n_bits: int, at_most_rows: int | None, receives: bool) -> None:
    """Refuse more rows of the other program than allowed; warn if they tell this one's."""
    other, own = ("sender", "receiver") if receives else ("receiver", "sender")
    if at_most_rows is not None and others > at_most_rows:
        raise ParameterError(
            f"the {other} has {others} rows, and the {own} says at_most_rows = {at_most_rows}",
            public=True,
        )
    if not receives and others >= solvable_rows(n_bits):
        warnings.warn(
            f"the other program receives distances to {others} rows; from about "
            f"{solvable_rows(n_bits)} on, {n_bits} bits of each of your rows can be solved for",
            PrivacyWarning,
            stacklevel=1,
        )


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
    me = "receiver" if receives else "sender"
    source = rng_or_system(rng)
    array = check_bits(as_array(bits, me), me)
    n_bits = array.shape[1]
    residue_width(n_bits)
    method = _private_backend(backend)
    pinned = None if identities is None else _with_server(identities)
    client = partial(_client, array, method, at_most_rows, receives)
    roles: dict[str, Role] = {me: partial(client, rng=source.child(me), identities=pinned)}
    if receives:
        server = partial(_server, n_bits, len(array), method)
        roles[SERVER] = partial(server, rng=source.child(SERVER), identities=pinned)
    driver = SocketDriver(sock, (*CLIENTS, SERVER), timeout=timeout, progress=progress)
    outcome = driver.run(roles).raise_errors()
    return outcome.results.get(SERVER), outcome.cost


def _agreement(n_bits: int, method: HammingBackend) -> Agreement:
    return Agreement(n_bits=n_bits, hamming=method.name, cross_only=True)


async def _client(
    bits: NDArray[np.uint8],
    method: HammingBackend,
    at_most_rows: int | None,
    receives: bool,
    io: RoleIO,
    rng: Rng,
    identities: Identities | None,
) -> None:
    """Take part with this program's rows."""
    agreement, rows = _agreement(bits.shape[1], method), len(bits)
    with io.step("setup"):
        session = await key_exchange_client(io, CLIENTS, agreement, [rows], rng, identities)
    session.cross_only = True
    _check_rows(sum(session.sizes.values()) - rows, bits.shape[1], at_most_rows, receives)
    with io.step("hamming"):
        await method.client(session, bits, rng)


async def _server(
    n_bits: int,
    rows: int,
    method: HammingBackend,
    io: RoleIO,
    rng: Rng,
    identities: Identities | None,
) -> NDArray[np.uint16]:
    """Return the distances of the receiver's rows, of which there are so many, to the sender's."""
    agreement = _agreement(n_bits, method)
    with io.step("setup"):
        session = await key_exchange_server(io, CLIENTS, agreement, 1, rng, identities=identities)
    session.cross_only = True
    with io.step("hamming"):
        found = await method.server(session, n_bits)
    return found.matrix[:rows, rows:]
