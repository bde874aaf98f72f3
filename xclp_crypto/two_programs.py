"""What two programs that compare their rows over one connection have in common."""

from __future__ import annotations

import math
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError, PrivacyWarning, TooFewParties
from xclp_crypto.params import Agreement, residue_width
from xclp_crypto.protocols.hamming import (
    BACKENDS,
    BitRows,
    HammingBackend,
    bit_rows,
    get_backend,
)
from xclp_crypto.protocols.hamming.interface import SharingBackend
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
from xclp_crypto.transport.duplex import Connected
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


def private_backend(backend: str | HammingBackend) -> HammingBackend:
    """Return the back end; refuse one that a server which colludes with a client sees through.

    Raises:
        ParameterError: see above; lists those that are private.
    """
    method = get_backend(backend)
    if method.trust != "2pc":
        raise ParameterError(
            f"back end {method.name!r} is not private between two programs; use one of "
            f"{', '.join(sorted(b.name for b in BACKENDS.values() if b.trust == '2pc'))}"
        )
    return method


@dataclass(frozen=True, repr=False)
class Program:
    """This program's side: what all doors take; see `cross_distances`."""

    bits: NDArray[np.uint8]
    sock: Connected
    receives: bool
    rng: Rng
    at_most_rows: int | None
    identities: Identities | None
    timeout: float
    progress: Callable[[Progress], None] | None

    @property
    def name(self) -> str:
        """Return which of `CLIENTS` this program is."""
        return CLIENTS[0] if self.receives else CLIENTS[1]

    def check_rows(self, others: int, solvable: int) -> None:
        """Refuse more rows of the other program than allowed; warn if they tell this one's.

        Raises:
            ParameterError: there are more.
        """
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
        server: Callable[[Session], Awaitable[Any]] | None = None,
    ) -> tuple[Mapping[str, Any], Cost]:
        """Exchange keys, and run this program's part; the receiver is the server as well.

        Args:
            terms: what both programs agree on.
            solvable: from how many rows of the receiver on the sender is warned of them.
            client: a client's part after the key exchange.
            server: the server's; None where the two clients need none once keys are exchanged.

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
            return None if server is None else await server(session)

        roles: dict[str, Role] = {me: client_role}
        if self.receives:
            roles[SERVER] = server_role
        driver = SocketDriver(
            self.sock, (*CLIENTS, SERVER), timeout=self.timeout, progress=self.progress
        )
        outcome = driver.run(roles).raise_errors()
        return outcome.results, outcome.cost


def program_of(
    bits: BitRows,
    sock: Connected,
    receives: bool,
    packed: int | None,
    rng: Rng | None,
    *options: Any,
) -> Program:
    """Check the arguments that all doors take; the options are the last fields of `Program`.

    Raises:
        DataError, ParameterError: an argument is wrong; see `cross_distances`.
    """
    me = CLIENTS[0] if receives else CLIENTS[1]
    array = bit_rows(bits, me, packed)
    residue_width(array.shape[1])
    at_most_rows, *_ = options
    number = isinstance(at_most_rows, int | np.integer) and not isinstance(at_most_rows, bool)
    if at_most_rows is not None and not (number and at_most_rows >= 0):
        raise ParameterError(f"at_most_rows must be an integer ≥ 0 or None, got {at_most_rows!r}")
    return Program(array, sock, receives, rng_or_system(rng), *options)


def terms_of(n_bits: int, method: HammingBackend, call: str, asked: str = "") -> Agreement:
    """Return what both programs must have in common, under the same names for all doors.

    Args:
        n_bits: L.
        method: the back end.
        call: the function that both call.
        asked: what it was asked for beside rows, such as ``at_most=3``.
    """
    return Agreement(n_bits=n_bits, hamming=method.name, cross_only=True, call=call, asked=asked)


def sharing_backend(backend: str | HammingBackend) -> SharingBackend:
    """Return the back end; refuse one that leaves the two programs no shares to go on with.

    Raises:
        ParameterError: see above; lists those that do.
    """
    method = private_backend(backend)
    if not isinstance(method, SharingBackend):
        able = sorted(b.name for b in BACKENDS.values() if isinstance(b, SharingBackend))
        raise ParameterError(
            f"back end {method.name!r} leaves no shares to go on with; use one of {', '.join(able)}"
        )
    return method


async def additive_shares(
    session: Session, bits: NDArray[np.uint8], method: SharingBackend, rng: Rng
) -> NDArray[np.uint16]:
    """Return this client's addends of the distances modulo 2^w, (sender's rows, receiver's rows).

    Args:
        session: of the two.
        bits: this client's rows.
        method: the back end.
        rng: source of this client's randomness.

    Raises:
        TooFewParties: the other client dropped out.
    """
    io = session.io
    (peer,) = (c for c in CLIENTS if c != io.name)
    with io.step("hamming"):
        shares = await method.shares(session, bits, rng)
        if peer not in shares:
            raise TooFewParties(io.current_step, 1, len(CLIENTS), missing=(peer,))
    share = shares[peer]
    if method.minuend(*CLIENTS, session.sizes) != io.name:
        share = -share
    return np.ascontiguousarray(share.T if io.name == CLIENTS[0] else share)


def open_distances(
    program: Program, method: HammingBackend, terms: Agreement, solvable: int
) -> tuple[NDArray[np.uint16] | None, Cost]:
    """Tell the receiver the distances between its rows and the sender's.

    Args:
        program: this one.
        method: the back end.
        terms: see `Program.run`.
        solvable: see `Program.run`.

    Returns:
        (own rows, other's rows) to the receiver, None to the sender; and the cost of this side.
    """

    async def client(session: Session, rng: Rng) -> None:
        with session.io.step("hamming"):
            await method.client(session, program.bits, rng)

    async def server(session: Session) -> NDArray[np.uint16]:
        own, n_bits = program.bits.shape
        with session.io.step("hamming"):
            found = await method.server(session, n_bits)
        return found.matrix[:own, own:]

    found, cost = program.run(terms, solvable, client, server)
    return found.get(SERVER), cost
