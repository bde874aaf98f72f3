"""Sums and means of clients on machines of their own: a server, and clients that join it over TLS.

Every party calls one function with the same clients and options, which are compared before anything
else; see `xclp_crypto.transport.network` for how connections, restarts and deadlines are treated.
"""

from __future__ import annotations

import hashlib
import math
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import NetworkError, ParameterError, XclpError
from xclp_crypto.fields import Bits, Modular
from xclp_crypto.front import RING, SumResult, client_names, warn_if_two
from xclp_crypto.mean import MEAN_FRACTION_BITS, Clipped, clip, mean_of, weighted
from xclp_crypto.params import FRACTION_BITS, MIN_CLIENTS, Agreement
from xclp_crypto.primitives.fixed_point import FixedPoint, as_array
from xclp_crypto.protocols.secure_sum import (
    MaskGraph,
    SecureSum,
    secure_sum_client,
    secure_sum_server,
)
from xclp_crypto.protocols.secure_sum.mask_graph import MAX_COMPLETE
from xclp_crypto.protocols.secure_sum.secure_sum import check_shape
from xclp_crypto.protocols.secure_sum.survivors import client_set, members
from xclp_crypto.protocols.secure_sum.terms import graph_and_codec
from xclp_crypto.protocols.setup import (
    SERVER,
    Identities,
    key_exchange_client,
    key_exchange_server,
)
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.transport import network
from xclp_crypto.transport.log import Log, NoLog
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.network import Limits
from xclp_crypto.transport.replay import DurableRole, SeededRole
from xclp_crypto.updates import Leaf, Update, floats_of, layout, to_vector
from xclp_crypto.wire import Message, sent

SHOWN: Final = 6
"""Leaves of an update that are named where parties have others."""


class SumTotal(Message):
    """The sum, as the server tells it to the clients, and whose values it has.

    Size: ⌈p/8⌉ + b·count bytes, b those of a residue.
    """

    TAG = 0x0428
    clients: NDArray[np.bool_] = sent(Bits("clients"))
    values: NDArray[Any] = sent(Modular("count"))
    modulus: int


@dataclass(frozen=True)
class SumOptions:
    """What all parties of a sum must have in common, beside its clients and shape.

    Attributes:
        threshold: fewest clients whose values the sum may have, by default a majority and at least
            three; two clients sum only with ``threshold=2``.
        sparse: see `xclp_crypto.secure_sum`.
        fraction_bits: f; None for 40 in sums, 30 in means.
        modulus: of the ring in which the sum is computed.
        tell: whether the clients are told the sum, or the server alone has it.
    """

    threshold: int | None = None
    sparse: bool | None = None
    fraction_bits: int | None = None
    modulus: int = RING
    tell: bool = True


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

    Raises:
        ParameterError: `tls` is of another type.
    """

    address: tuple[str, int]
    tls: ssl.SSLContext
    identities: Identities | None
    limits: Limits | None = None
    log: Log | None = None
    rng: Rng | None = None

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
        survivors: clients whose updates are in it, or None.
        clipped: what was done to this client's update, None if nothing.
        cost: of this client's messages.
    """

    mean: Update | None
    total_weight: float | None
    survivors: tuple[str, ...] | None
    clipped: Clipped | None
    cost: Cost


@dataclass(frozen=True)
class ServedMean:
    """What the server of a mean has; see `xclp_crypto.mean.MeanResult`."""

    mean: Update
    total_weight: float
    survivors: tuple[str, ...]
    dropouts: Mapping[str, str]
    cost: Cost


class SumPlan:
    """One sum as all parties see it, and their roles in it.

    Args:
        clients: their names, in the order that all parties give.
        shape: of every client's values.
        options: the same for all parties.
        content: what the values are.

    Raises:
        ParameterError: a parameter is out of range.
    """

    def __init__(
        self, clients: Sequence[str], shape: tuple[int, ...], options: SumOptions, content: str
    ) -> None:
        self.clients, self.shape = client_names(len(clients), clients), check_shape(shape)
        self.tell = options.tell
        if len(clients) == MIN_CLIENTS and options.threshold != MIN_CLIENTS:
            raise ParameterError(
                "two clients sum only with threshold=2: each knows the other's values from the sum"
            )
        threshold = options.threshold
        if threshold is None and options.sparse is not True and len(clients) <= MAX_COMPLETE:
            threshold = max(3, len(clients) // 2 + 1)
        self.graph = MaskGraph.choose(self.clients, threshold, sparse=options.sparse)
        bits = FRACTION_BITS if options.fraction_bits is None else options.fraction_bits
        self.codec = FixedPoint(bits, parties=len(clients), modulus=options.modulus)
        self.agreement = Agreement(
            **graph_and_codec(self.graph, self.codec),
            clients=", ".join(self.clients),
            shape=self.shape,
            tell=options.tell,
            content=content,
        )

    def server_role(self, identities: Identities | None) -> SeededRole:
        """Return the server's role, which returns a `SecureSum`."""

        async def role(io: RoleIO, rng: Rng) -> SecureSum:
            with io.step("setup"):
                session = await key_exchange_server(
                    io,
                    self.clients,
                    self.agreement,
                    0,
                    rng,
                    self.graph.threshold,
                    identities=identities,
                )
            found = await secure_sum_server(
                session, self.shape, self.codec, self.graph, clients=session.clients
            )
            if self.tell:
                with io.step("result"):
                    names = client_set(self.graph, found.record.survivors)
                    values = self._codec_of_totals.encode(found.total).reshape(-1)
                    message = SumTotal(names, values, self.codec.modulus)
                    await session.io.send(session.clients, message)
            return found

        return role

    def client_role(self, values: NDArray[Any], identities: Identities | None) -> SeededRole:
        """Return the role of a client, which returns the sum and its survivors, or None twice."""

        async def role(io: RoleIO, rng: Rng) -> Any:
            with io.step("setup"):
                session = await key_exchange_client(
                    io, self.clients, self.agreement, [], rng, identities
                )
            await secure_sum_client(session, values, self.codec, self.graph, rng)
            if not self.tell:
                return None, None
            with io.step("result"):
                sizes = {"clients": len(self.clients), "count": math.prod(self.shape)}
                got = await session.io.recv(SumTotal, SERVER, modulus=self.codec.modulus, **sizes)
            total = self._codec_of_totals.decode_numbers(got.values).reshape(self.shape)
            return total, members(self.graph, got.clients)

        return role

    def check(self, me: str, values: NDArray[Any]) -> None:
        """Refuse values that cannot be summed.

        Args:
            me: the client whose they are.
            values: of the shape of all.

        Raises:
            DataError: a value cannot be encoded.
            ParameterError: the client is none of the plan's.
        """
        if me not in self.clients:
            raise ParameterError(f"{me!r} is none of the clients {', '.join(self.clients)}")
        self.codec.check(values, client=me)

    @property
    def _codec_of_totals(self) -> FixedPoint:
        """The codec in which a total travels: of one value, which is a sum already."""
        return replace(self.codec, parties=1)


class _Served(SumPlan):
    """A sum of parties on machines of their own."""

    def run(
        self,
        me: str,
        connection: Connection,
        role: SeededRole,
        start: Callable[[DurableRole, ssl.SSLContext, Limits | None], Any],
    ) -> tuple[Any, Cost]:
        """Run a party's role over the network; return its result and cost."""
        warn_if_two(len(self.clients), server_learns=not self.tell, stacklevel=4)
        durable = DurableRole(
            me,
            role,
            connection.log or NoLog(),
            peers=[p for p in (*self.clients, SERVER) if p != me],
            rng=connection.rng,
            binding=self.agreement.encode(),
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
    ) -> tuple[NDArray[Any] | None, tuple[str, ...] | None, Cost]:
        """Run a client's part; return the sum and who is in it, if the server tells."""
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

    Example:
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
    return _Served(clients, shape, options or SumOptions(), "values").serve(connection, listening)


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

    Example:
        That of `serve_sum`.
    """
    array = as_array(values, name)
    plan = _Served(clients, array.shape, options or SumOptions(), "values")
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

    Example:
        The program in docs/learn/crypto/sums.md.
    """
    plan = _Served(clients, *mean_terms(layout(template, SERVER), options))
    found = plan.serve(connection, listening)
    mean, weight = mean_of(found.total, template)
    return ServedMean(mean, weight, found.survivors, found.dropouts, found.cost)


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
        XclpError: see `join_sum`.

    Example:
        The program in docs/learn/crypto/sums.md.
    """
    leaves = layout(update, name)
    plan = _Served(clients, *mean_terms(leaves, options))
    with plan.declining(connection):
        vector, clipped = clip(to_vector(update, name), clip_value, clip_norm, floats_of(leaves))
        values = weighted(vector, weight, plan.codec.fraction_bits, name)
    total, survivors, cost = plan.join(name, values, connection)
    if total is None:
        return JoinedMean(None, None, None, clipped, cost)
    mean, weights = mean_of(total, update)
    return JoinedMean(mean, weights, survivors, clipped, cost)


def mean_terms(
    leaves: tuple[Leaf, ...], options: SumOptions | None
) -> tuple[tuple[int, ...], SumOptions, str]:
    """Return what the plan of a mean of updates of this layout takes beside its clients.

    Args:
        leaves: of the updates.
        options: those of the mean.

    Returns:
        Shape, options and content of the sum of weighted updates and of their weights.
    """
    given = options or SumOptions()
    if given.fraction_bits is None:
        given = replace(given, fraction_bits=MEAN_FRACTION_BITS)
    lines = [str(leaf) for leaf in leaves]
    digest = hashlib.sha256(domain_tag("update layout", *lines)).hexdigest()
    content = f"{'; '.join(lines[:SHOWN])}{', …' * (len(lines) > SHOWN)}, in all {digest[:32]}"
    return (sum(leaf.size for leaf in leaves) + 1,), given, content
