"""Sums and means of clients on machines of their own: a server, and clients that join it over TLS.

Every party calls one function with the same clients and options, which are compared before anything
else; see `xclp_crypto.transport.network` for how connections, restarts and deadlines are treated.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import (
    FaultyPeer,
    FaultyPeerOrServer,
    NetworkError,
    ParameterError,
    XclpError,
)
from xclp_crypto.front import SumResult, warn_if_two
from xclp_crypto.mean import Clipped, addend, mean_of, total_of, weighted_addend
from xclp_crypto.primitives.fixed_point import as_array
from xclp_crypto.protocols.setup import SERVER, Identities
from xclp_crypto.rng import Rng
from xclp_crypto.sum_plans import SumOptions, SumPlan, mean_terms, sum_terms
from xclp_crypto.transport import network
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.log import Log, NoLog
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.network import Limits
from xclp_crypto.transport.replay import DurableRole, SeededRole
from xclp_crypto.updates import Update, layout


@dataclass(frozen=True, repr=False)
class Connection:
    """How a party reaches the others, or is reached.

    Attributes:
        address: host and port, of the server.
        tls: from `xclp_crypto.transport.tls.tls_context`.
        identities: this party's key and the identities that it pins. None trusts the server with
            everybody's values, since it could sit between any two clients.
        limits: how long is waited.
        log: where this party's role can be rebuilt from after it was stopped; None keeps nothing.
        rng: randomness; the operating system's by default.
        progress: called before each computation.

    Raises:
        ParameterError: `tls` is of another type.
    """

    address: tuple[str, int]
    tls: ssl.SSLContext
    identities: Identities | None
    limits: Limits | None = None
    log: Log | None = None
    rng: Rng | None = None
    progress: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tls, ssl.SSLContext):
            raise ParameterError(
                "tls must be a context from xclp_crypto.transport.tls.tls_context, got "
                f"{type(self.tls).__name__}"
            )


@dataclass(frozen=True)
class JoinedMean:
    """What a client of a mean has.

    Attributes:
        mean: the weighted mean in the structure and dtypes of its own update, None if the server
            does not tell.
        total_weight: the sum of weights, or None.
        error: see `xclp_crypto.mean.MeanResult`, or None.
        survivors: clients whose updates are in it, as enough of them have signed.
        clipped: what was done to this client's update, None if nothing.
        cost: of this client's messages.
    """

    mean: Update | None
    total_weight: float | None
    error: float | None
    survivors: tuple[str, ...]
    clipped: Clipped | None
    cost: Cost


@dataclass(frozen=True)
class JoinedSum:
    """What a client of a sum of updates has.

    Attributes:
        total: the sum, of float64 and int64, in the structure of its own update; None if the server
            does not tell.
        survivors: clients whose updates are in it, as enough of them have signed.
        cost: of this client's messages.
    """

    total: Update | None
    survivors: tuple[str, ...]
    cost: Cost


@dataclass(frozen=True)
class ServedMean:
    """What the server of a mean has; see `xclp_crypto.mean.MeanResult`."""

    mean: Update
    total_weight: float
    error: float
    survivors: tuple[str, ...]
    dropouts: Mapping[str, str]
    cost: Cost


class _Served(SumPlan):
    """A sum of parties on machines of their own."""

    def run(
        self,
        me: str,
        connection: Connection,
        role: SeededRole,
        start: Callable[[DurableRole, ssl.SSLContext, Limits | None], Any],
        own: bytes = b"",
    ) -> tuple[Any, Cost]:
        """Run a party's role, whose log is bound to its `own` data; return result and cost."""
        warn_if_two(len(self.clients), server_learns=not self.tell, stacklevel=4)
        durable = DurableRole(
            me,
            role,
            connection.log or NoLog(),
            peers=[p for p in (*self.clients, SERVER) if p != me],
            rng=connection.rng,
            binding=domain_tag("sum binding", self.agreement.encode(), own),
            progress=connection.progress,
        )
        try:
            return start(durable, connection.tls, connection.limits), durable.cost
        finally:
            durable.close()

    def serve(self, connection: Connection, listening: Callable[[int], None] | None) -> SumResult:
        """Run the server's part."""
        found, cost = self.run(
            SERVER,
            connection,
            self.server_role(connection.identities),
            lambda durable, tls, limits: network.serve(
                *(durable, self.clients, self.agreement, connection.address, tls),
                limits=limits,
                listening=listening,
            ),
        )
        return SumResult(found.total, found.record.survivors, found.record.dropouts, cost)

    @contextmanager
    def declining(self, connection: Connection) -> Iterator[None]:
        """Tell the server if values inside cannot be summed, so that nobody waits for them."""
        try:
            yield
        except XclpError:
            with suppress(NetworkError):
                network.decline(
                    self.agreement, connection.address, connection.tls, limits=connection.limits
                )
            raise

    def join(
        self, me: str, values: NDArray[Any], connection: Connection
    ) -> tuple[NDArray[Any] | None, tuple[str, ...], Cost]:
        """Run a client's part; return the sum, if the server tells, and who is in it."""
        with self.declining(connection):
            self.check(me, values)
        (total, survivors), cost = self.run(
            me,
            connection,
            self.client_role(values, connection.identities),
            lambda durable, tls, limits: network.join(
                *(durable, self.clients, SERVER, self.agreement, connection.address, tls),
                limits=limits,
            ),
            hashlib.sha256(values.tobytes()).digest(),
        )
        return total, survivors, cost


def serve_sum(
    clients: Sequence[str],
    shape: tuple[int, ...],
    connection: Connection,
    options: SumOptions | None = None,
    *,
    listening: Callable[[int], None] | None = None,
) -> SumResult:
    """Run the server of a sum, which clients join by `join_sum`, and return the sum.

    Args:
        clients: their names, in the order that all parties give.
        shape: of every client's values.
        connection: where to listen, and the server's certificate and identity.
        options: the same for all parties.
        listening: called with the port when clients can join.

    Returns:
        The sum, whose values are in it, who dropped out, and the cost; see
        `xclp_crypto.front.SumResult`.

    Raises:
        AddressInUse: nobody can listen there.
        TooFewParties: fewer clients than the threshold are left; nothing was revealed.
        ParameterError: a parameter is out of range.
        ProtocolError: a client does not follow the protocol.

    Warns:
        PrivacyWarning: there are two clients, each of which knows the other's values from the sum.

    Examples:
        >>> import tempfile
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from pathlib import Path
        >>> from xclp_crypto import join_sum, serve_sum
        >>> from xclp_crypto.served_sums import Connection
        >>> from xclp_crypto.transport.tls import make_authority, tls_context
        >>> clients, certs = ["north", "south", "west"], Path(tempfile.mkdtemp())
        >>> _ = make_authority(certs, clients, ["localhost"])
        >>> def connection(name, port):
        ...     files = (certs / file for file in ("authority.pem", f"{name}.pem", f"{name}.key"))
        ...     tls = tls_context(*files, server=name == "server")
        ...     return Connection(("localhost", port), tls, identities=None)  # trusts the server
        >>> def join(name, port):
        ...     return join_sum([1, 2], name, clients, connection(name, port))
        >>> with ThreadPoolExecutor() as machines:
        ...     started = lambda port: [machines.submit(join, name, port) for name in clients]
        ...     served = serve_sum(clients, (2,), connection("server", 0), listening=started)
        >>> served.total.tolist()
        [3.0, 6.0]
    """
    return _Served(clients, shape, options, "values").serve(connection, listening)


def join_sum(
    values: ArrayLike,
    name: str,
    clients: Sequence[str],
    connection: Connection,
    options: SumOptions | None = None,
) -> NDArray[np.float64 | np.int64] | None:
    """Add this client's values to the sum of a server that runs `serve_sum`.

    Args:
        values: numbers, of the shape that all parties give.
        name: of this client.
        clients: names of all, in the order that all parties give.
        connection: where the server is, and this client's certificate and identity.
        options: the same for all parties.

    Returns:
        The sum over the clients that stayed, None if the server does not tell.

    Raises:
        DataError, EncodingOverflow: a value cannot be encoded; nothing was sent.
        NetworkError: the server cannot be reached, or is the wrong one.
        Excluded: the others went on without this client.
        ParameterError: a parameter is out of range, or differs from the server's; names it.
        ProtocolError: another party does not follow the protocol, or the server ended the session,
            since too few clients are left: then nothing was revealed.

    Warns:
        PrivacyWarning: there are two clients, each of which knows the other's values from the sum.

    Examples:
        That of `serve_sum`.
    """
    array = as_array(values, name)
    plan = _Served(clients, array.shape, options, "values")
    return plan.join(name, array, connection)[0]


def serve_mean(
    template: Update,
    clients: Sequence[str],
    connection: Connection,
    options: SumOptions | None = None,
    *,
    listening: Callable[[int], None] | None = None,
) -> ServedMean:
    """Run the server of a mean of model updates, which clients join by `join_mean`.

    Args:
        template: an update of the same structure, shapes and dtypes, such as the model so far.
        clients: their names, in the order that all parties give.
        connection: where to listen, and the server's certificate and identity.
        options: the same for all parties.
        listening: called with the port when clients can join.

    Returns:
        The weighted mean and who is in it; see `ServedMean`.

    Raises:
        DataError: the template is not an update; or all weights in the sum are 0.
        XclpError: see `serve_sum`.

    Examples:
        The program in docs/learn/crypto/sums.md.
    """
    plan = _Served(clients, *mean_terms(layout(template, SERVER), options))
    found = plan.serve(connection, listening)
    faulty = partial(FaultyPeer, found.survivors)
    mean, weight, error = mean_of(found.total, template, plan.codec, faulty)
    return ServedMean(mean, weight, error, found.survivors, found.dropouts, found.cost)


def join_mean(
    update: Update,
    weight: float,
    name: str,
    clients: Sequence[str],
    connection: Connection,
    options: SumOptions | None = None,
    *,
    clip_value: float | None = None,
    clip_norm: float | None = None,
) -> JoinedMean:
    """Add this client's model update to the mean of a server that runs `serve_mean`.

    Args:
        update: arrays, tensors of PyTorch, numbers, and lists, tuples and mappings of these.
        weight: at least 0, such as the number of rows; nobody sees it.
        name: of this client.
        clients: names of all, in the order that all parties give.
        connection: where the server is, and this client's certificate and identity.
        options: the same for all parties.
        clip_value: see `xclp_crypto.secure_mean`.
        clip_norm: see `xclp_crypto.secure_mean`.

    Returns:
        The mean, if the server tells, and what was clipped; see `JoinedMean`.

    Raises:
        DataError: NaN, infinity, or a weight that is negative; names the path.
        FaultyPeerOrServer: the weights are less than this client's in all; names all others.
        XclpError: see `join_sum`.

    Examples:
        The program in docs/learn/crypto/sums.md.
    """
    leaves = layout(update, name)
    plan = _Served(clients, *mean_terms(leaves, options))
    with plan.declining(connection):
        values, clipped = weighted_addend(
            update, weight, name, leaves, plan.codec, clip_value, clip_norm
        )
    total, survivors, cost = plan.join(name, values, connection)
    if total is None:
        return JoinedMean(None, None, None, survivors, clipped, cost)
    faulty = partial(FaultyPeerOrServer, tuple(c for c in clients if c != name))
    least = values[-1] * (1 - 2.0**-50) - 2.0**-plan.codec.fraction_bits  # after rounding
    mean, weights, error = mean_of(total, update, plan.codec, faulty, least)
    return JoinedMean(mean, weights, error, survivors, clipped, cost)


def serve_update_sum(
    template: Update,
    clients: Sequence[str],
    connection: Connection,
    options: SumOptions | None = None,
    *,
    listening: Callable[[int], None] | None = None,
) -> SumResult:
    """Run the server of a sum of updates, which clients join by `join_update_sum`.

    Args:
        template: an update of the same structure, shapes and dtypes; its values are not used.
        clients: their names, in the order that all parties give.
        connection: where to listen, and the server's certificate and identity.
        options: the same for all parties.
        listening: called with the port when clients can join.

    Returns:
        As `serve_sum`; the total has the structure of the template, in float64 and int64.

    Raises:
        DataError: the template is not an update.
        XclpError: see `serve_sum`.

    Examples:
        As that of `serve_sum`, with ``{"cases": 0}`` in the place of ``(2,)``.
    """
    plan = _Served(clients, *sum_terms(layout(template, SERVER), options))
    found = plan.serve(connection, listening)
    return found._replace(total=total_of(found.total, template))


def join_update_sum(
    update: Update,
    name: str,
    clients: Sequence[str],
    connection: Connection,
    options: SumOptions | None = None,
) -> JoinedSum:
    """Add this client's update to the sum of a server that runs `serve_update_sum`.

    Args:
        update: arrays, tensors of PyTorch, numbers, and lists, tuples and mappings of these.
        name: of this client.
        clients: names of all, in the order that all parties give.
        connection: where the server is, and this client's certificate and identity.
        options: the same for all parties.

    Returns:
        The sum, if the server tells, and who is in it; see `JoinedSum`.

    Raises:
        DataError: NaN, infinity; names the path.
        XclpError: see `join_sum`.

    Examples:
        As that of `serve_sum`, with ``{"cases": 1}`` in the place of ``[1, 2]``.
    """
    leaves = layout(update, name)
    plan = _Served(clients, *sum_terms(leaves, options))
    with plan.declining(connection):
        values = addend(update, name, leaves, plan.codec)
    total, survivors, cost = plan.join(name, values, connection)
    return JoinedSum(None if total is None else total_of(total, update), survivors, cost)
