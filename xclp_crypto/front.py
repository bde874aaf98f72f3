"""The front door: the functions without the federation.

All run every party in this process, through the real messages.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import DataError, Excluded, ParameterError, PrivacyWarning, Stalled
from xclp_crypto.params import FRACTION_BITS, MIN_CLIENTS, Agreement, residue_width
from xclp_crypto.primitives.fixed_point import FixedPoint, as_array
from xclp_crypto.protocols.hamming import BitRows, HammingBackend, bit_rows, get_backend
from xclp_crypto.protocols.secure_sum import (
    MaskGraph,
    Mode,
    SecureSum,
    SumRecord,
    check_mode,
    check_rows,
    secure_row_sums_client,
    secure_row_sums_server,
    secure_sum_client,
    secure_sum_server,
)
from xclp_crypto.protocols.secure_sum.costs import sum_bytes
from xclp_crypto.protocols.secure_sum.terms import graph_and_codec
from xclp_crypto.protocols.setup import (
    SERVER,
    Session,
    key_exchange_client,
    key_exchange_server,
    seed_agreement_client,
    seed_agreement_server,
)
from xclp_crypto.protocols.setup.costs import key_exchange_bytes
from xclp_crypto.rng import Rng, require_rng, rng_or_system
from xclp_crypto.role import RoleIO
from xclp_crypto.transport.driver import Progress, Role
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Faults, Outcome, Simulation

R = TypeVar("R")

RING: Final = 1 << 64
"""Modulus of sums unless another is asked for."""


def client_names(count: int, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the clients' names: those given, or client-0, client-1 and so on.

    Raises:
        ParameterError: fewer than two clients; a name is missing, empty, repeated or reserved.
    """
    if count < MIN_CLIENTS:
        raise ParameterError(
            f"at least {MIN_CLIENTS} clients are needed, got {count}: a secure computation hides "
            "each client's data among the others'"
        )
    if names is None:
        return tuple(f"client-{i}" for i in range(count))
    if isinstance(names, str | Set | Mapping) or not isinstance(names, Iterable):
        raise ParameterError(f"names must be a list with one name per client, got {names!r}")
    names = tuple(str(n) if isinstance(n, str) else n for n in names)
    if len(names) != count:
        raise ParameterError(f"{len(names)} names for {count} clients")
    for name in names:
        if not isinstance(name, str) or not name or name == SERVER:
            raise ParameterError(f"{name!r} cannot be the name of a client")
        if names.count(name) > 1:
            raise ParameterError(f"two clients are called {name!r}")
    return names


def warn_if_two(count: int, *, server_learns: bool = False, stacklevel: int = 3) -> None:
    """Warn that with two clients whoever has a sum and one part of it has the other part.

    Args:
        count: number of clients.
        server_learns: whether the sum is the server's, and no client receives it.
        stacklevel: whose call is warned of, as for `warnings.warn`: that of the caller's caller.
    """
    if count == MIN_CLIENTS:
        what = (
            "the server, which alone receives the sum, knows one's part once the other tells it "
            "its own (the sum minus that part)"
            if server_learns
            else "each learns the other's part of every sum it receives (the sum minus its own "
            "part)"
        )
        message = f"with two clients, {what}; this is unavoidable"
        warnings.warn(message, PrivacyWarning, stacklevel=stacklevel)


def warn_if_two_left(contributors: Collection[str], clients: Collection[str]) -> None:
    """Warn that only two of more clients contributed to row sums, after others dropped out."""
    if len(contributors) == MIN_CLIENTS < len(clients):
        one, other = contributors
        warnings.warn(
            f"only {one!r} and {other!r} are left in the row sums, so each of the two learns the "
            "other's part of its own rows (their sum minus its own part); a threshold of three "
            "would have stopped the run",
            PrivacyWarning,
            stacklevel=3,
        )


def per_client(what: str, arrays: Any) -> Sequence[Any]:
    """Refuse what is not a list with one entry per client.

    Raises:
        DataError: see above.
    """
    entries = isinstance(arrays, Sequence) and not isinstance(arrays, str | bytes)
    if not entries and not (isinstance(arrays, np.ndarray) and arrays.ndim):
        raise DataError(
            f"{what} must be a list with one array per client, got a value of type "
            f"{type(arrays).__name__}"
        )
    checked: Sequence[Any] = arrays
    return checked


def secure_hamming(
    bits: Sequence[BitRows],
    backend: str | HammingBackend = "rlwe",
    *,
    packed: int | None = None,
    names: Sequence[str] | None = None,
    rng: Rng | None = None,
    faults: Faults | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[NDArray[np.uint16], Cost]:
    """Compute all pairwise Hamming distances between the rows of several clients.

    Args:
        bits: one array per client, (n_j, L) of 0/1 integers or booleans, the same L for all;
            n_j may be 0. Or packed rows.
        backend: name of a back end, see `xclp_crypto.protocols.hamming.BACKENDS`.
        packed: L, if rows are packed: `bytes`, or words of unsigned integers with the most
            significant bit first; see `xclp_crypto.protocols.hamming.rows.bit_rows`.
        names: the clients' names, for errors and costs.
        rng: randomness; the operating system's by default, `SeededRng` in tests.
        faults: what goes wrong, for tests.
        progress: called before each computation.

    Returns:
        H, (n, n) uint16 with n = Σ n_j, exact and in the order of the clients; and the cost.

    Raises:
        DataError: an array does not hold rows of bits, or has another number of columns.
        ParameterError: fewer than two clients, unknown back end, L out of range.

    Examples:
        >>> from xclp_crypto import secure_hamming
        >>> H, cost = secure_hamming([[[0, 1, 1]], [[0, 0, 0], [1, 0, 0]]], backend="masked")
        >>> H.tolist()
        [[0, 2, 3], [2, 0, 1], [3, 1, 0]]
    """
    arrays = rows_by_client(bits, packed, names)
    method, n_bits = get_backend(backend), columns_of(arrays, "bits")

    async def client(session: Session, rng: Rng) -> None:
        await method.client(session, arrays[session.io.name], rng)

    async def server(session: Session) -> NDArray[np.uint16]:
        return (await method.server(session, n_bits)).matrix

    terms = Agreement(n_bits=n_bits, hamming=method.name)
    return run_hamming(arrays, method, terms, client, server, rng, faults, progress)


def rows_by_client(
    bits: Sequence[BitRows], packed: int | None, names: Sequence[str] | None
) -> dict[str, NDArray[np.uint8]]:
    """Return the clients' rows of bits by name; refuse rows of different lengths.

    Raises:
        DataError, ParameterError: see `secure_hamming`.
    """
    clients = client_names(len(per_client("bits", bits)), names)
    arrays = {c: bit_rows(b, c, packed) for c, b in zip(clients, bits, strict=True)}
    residue_width(columns_of(arrays, "bits"))
    return arrays


def columns_of(arrays: Mapping[str, NDArray[Any]], what: str) -> int:
    """Return how many columns the clients' arrays have.

    Raises:
        DataError: not all have as many as the first; names both clients.
    """
    first, *others = arrays
    columns: int = arrays[first].shape[1]
    for client in others:
        if arrays[client].shape[1] != columns:
            raise DataError(
                f"client {client!r} has rows of {arrays[client].shape[1]} {what}, {first!r} of "
                f"{columns}"
            )
    return columns


def run_hamming(
    arrays: Mapping[str, NDArray[Any]],
    method: HammingBackend,
    terms: Agreement,
    client: Callable[[Session, Rng], Awaitable[None]],
    server: Callable[[Session], Awaitable[R]],
    rng: Rng | None,
    faults: Faults | None,
    progress: Callable[[Progress], None] | None,
) -> tuple[R, Cost]:
    """Run all parties in this process, each with its part after the key exchange.

    Args:
        arrays: by client, one entry for each of its rows.
        method: the back end.
        terms: what all must have in common.
        client: a client's part.
        server: the server's.
        rng: see `secure_hamming`.
        faults: see `secure_hamming`.
        progress: see `secure_hamming`.

    Returns:
        What the server's part returned, and the cost.
    """
    source, clients = rng_or_system(rng), tuple(arrays)

    async def client_role(io: RoleIO) -> None:
        own = source.child(io.name)
        with io.step("setup"):
            session = await key_exchange_client(io, clients, terms, [len(arrays[io.name])], own)
            if method.needs_common_secret:
                await seed_agreement_client(session, own)
        with io.step("hamming"):
            await client(session, own)

    async def server_role(io: RoleIO) -> R:
        with io.step("setup"):
            session = await key_exchange_server(io, clients, terms, 1, source.child(SERVER))
            if method.needs_common_secret:
                await seed_agreement_server(session)
        with io.step("hamming"):
            return await server(session)

    roles: dict[str, Role] = dict.fromkeys(clients, client_role)
    roles[SERVER] = server_role
    outcome = Simulation(faults=faults, progress=progress).run(roles)
    outcome.raise_errors()
    return outcome.results[SERVER], outcome.cost


class SumResult(NamedTuple):
    """What `secure_sum` returns.

    Attributes:
        total: the sum over the survivors, in the shape of the values; int64 and exact with
            ``fraction_bits=0``, else float64.
        survivors: clients whose values are in it.
        dropouts: the other clients, and survivors that dropped out afterwards, with the stage.
        cost: measured bytes, rounds and seconds.
    """

    total: NDArray[np.float64 | np.int64]
    survivors: tuple[str, ...]
    dropouts: Mapping[str, str]
    cost: Cost


class RowSumsResult(NamedTuple):
    """What `secure_row_sums` returns.

    Attributes:
        blocks: per client, (len(rows[j]), c) in the order of `rows[j]`, int64 and exact with
            ``fraction_bits=0``, else float64; None for a client that dropped out before it had
            them.
        survivors: clients whose values are in the sums.
        dropouts: the other clients, and survivors that dropped out afterwards, with the stage.
        cost: measured bytes, rounds and seconds.
    """

    blocks: list[NDArray[np.float64 | np.int64] | None]
    survivors: tuple[str, ...]
    dropouts: Mapping[str, str]
    cost: Cost

    def __repr__(self) -> str:
        shapes = [None if block is None else block.shape for block in self.blocks]
        return (
            f"RowSumsResult(blocks of shapes {shapes}, survivors={self.survivors}, "
            f"dropouts={self.dropouts}, cost={self.cost!r})"
        )


Drop = Mapping[str | int, str] | Collection[str | int]
"""Clients, by name or position, that drop out; a mapping says in which stage, see `STAGES`."""

STAGES: Final = ("setup", "share", "upload", "reveal", "result")
"""Stages of a secure sum, in order: keys, secret shares, masked values, recovery, and the result,
which clients get of row sums only. Mode ``restart`` has no ``share`` and no ``reveal``."""


def secure_sum(
    values: Sequence[ArrayLike],
    *,
    threshold: int | None = None,
    drop: Drop = (),
    sparse: bool | None = None,
    fraction_bits: int = FRACTION_BITS,
    modulus: int = RING,
    names: Sequence[str] | None = None,
    rng: Rng | None = None,
    faults: Faults | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> SumResult:
    """Add up the arrays of several clients; the server learns the sum and nothing else.

    Args:
        values: one array per client, numbers of any shape, the same for all.
        threshold: fewest clients whose values the sum may have, by default a majority, or nine in
            ten if masks are sparse. Where all share masks, it is also how many would have to
            collude with the server to take one client's values from the sum; below a majority, a
            server that shows different clients different survivors may do that alone.
        drop: clients that drop out, by default in stage ``upload``, the worst moment: masks are
            agreed on, and the values do not come.
        sparse: whether each client shares masks with few others only; by default for more than
            100 clients. With so few clients that it would not be safe (below about 42), all share
            masks nevertheless.
        fraction_bits: f. Rounding the values takes the sum off by at most p·2^-(f+1), and rounding
            it to float64 by 2^-53 of its size. Sums of integers up to 2^53 are exact; with f = 0
            all are, because the sum is int64 then, and other values are rounded to integers.
        modulus: of the ring in which the sum is computed.
        names: the clients' names, for errors and costs.
        rng: randomness; the operating system's by default, `SeededRng` in tests.
        faults: what else goes wrong, for tests.
        progress: called before each computation.

    Returns:
        The sum, whose values are in it, who dropped out, and the cost; see `SumResult`.

    Raises:
        DataError: NaN, infinity, a masked value, or shapes that differ; names client, row and
            column.
        EncodingOverflow: the sum might not fit; says how many bits would do; nothing was sent.
        TooFewParties: fewer clients than the threshold are left; nothing was revealed.
        ParameterError: fewer than two clients, or another parameter is out of range.

    Warns:
        PrivacyWarning: two clients take part: the server and one of them know the other's values.

    Examples:
        >>> import numpy as np
        >>> from xclp_crypto import secure_sum
        >>> result = secure_sum([np.array([1, 2]), [10, 20], [100, 200]], drop={"client-1"})
        >>> result.total.tolist(), result.survivors
        ([101.0, 202.0], ('client-0', 'client-2'))
        >>> secure_sum([2**53 + 1, 0, 0], fraction_bits=0).total.tolist()
        9007199254740993
    """
    source = rng_or_system(rng)
    arrays = _same_shapes(values, names)
    clients = tuple(arrays)
    shape = arrays[clients[0]].shape
    codec = _codec_for(arrays, fraction_bits, modulus)
    warn_if_two(len(clients), server_learns=True)
    graph = MaskGraph.choose(clients, threshold, sparse=sparse)
    agreement = Agreement(**graph_and_codec(graph, codec), shape=shape)

    async def client_part(session: Session, rng: Rng) -> None:
        await secure_sum_client(session, arrays[session.io.name], codec, graph, rng)

    async def server_part(session: Session) -> SecureSum:
        return await secure_sum_server(session, shape, codec, graph, clients=session.clients)

    drops = _dropped(drop, clients, STAGES[:-1])
    outcome = _run_sum(graph, agreement, client_part, server_part, drops, source, faults, progress)
    found: SecureSum = outcome.results[SERVER]
    dropouts = _all_dropouts(found.record, outcome)
    return SumResult(found.total, found.record.survivors, dropouts, outcome.cost)


def secure_sum_bytes(
    graph: MaskGraph, shape: tuple[int, ...], codec: FixedPoint
) -> dict[tuple[str, str], int]:
    """Return the bytes of all messages of `secure_sum` if nobody drops out, by (from, to).

    They are those of `Cost.bytes_by_link` in its result, whose keys are ``from → to``.

    Args:
        graph: the clients, and who shares masks with whom; if sparse, the same number of bytes on
            other links than those of a run, whose graph is drawn.
        shape: of every client's values.
        codec: for its modulus.
    """
    agreement = Agreement(**graph_and_codec(graph, codec), shape=shape)
    links = sum_bytes(graph, math.prod(shape), codec.modulus)
    for link, size in key_exchange_bytes(graph.clients, agreement.size, 0).items():
        links[link] += size
    return links


def secure_row_sums(
    values: Sequence[ArrayLike],
    rows: Sequence[ArrayLike],
    *,
    threshold: int | None = None,
    drop: Drop = (),
    mode: Mode = "recover",
    sparse: bool | None = None,
    fraction_bits: int = FRACTION_BITS,
    modulus: int = RING,
    names: Sequence[str] | None = None,
    rng: Rng | None = None,
    faults: Faults | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RowSumsResult:
    """Add up the matrices of several clients so that each gets its own rows of the sum only.

    Args:
        values: one array per client, (n, c) numbers, the same shape for all.
        rows: one array per client, the indices of the rows that it owns; together 0 … n−1.
        threshold: see `secure_sum`.
        drop: clients that drop out, by default in stage ``upload``.
        mode: ``recover`` recovers the masks of dropouts from secret shares, ``restart``
            begins again without them.
        sparse: see `secure_sum`; only in mode ``recover``, in ``restart`` all share masks.
        fraction_bits: see `secure_sum`; with f = 0 all sums of integers are exact, as int64.
        modulus: of the ring in which the sums are computed.
        names: the clients' names, for errors and costs.
        rng: randomness; the operating system's by default, `SeededRng` in tests.
        faults: what else goes wrong, for tests.
        progress: called before each computation.

    Returns:
        Every client's rows of the sum, who is in it, who dropped out, and the cost; see
        `RowSumsResult`.

    Raises:
        DataError: NaN, infinity, a masked value, or shapes that differ; names client, row and
            column.
        EncodingOverflow: the sum might not fit; nothing was sent.
        TooFewParties: fewer clients than the threshold are left; nothing was revealed.
        ParameterError: fewer than two clients, or `rows` is not a partition of the values' rows.

    Warns:
        PrivacyWarning: two clients take part, or are left: each learns the other's part.

    Examples:
        >>> from xclp_crypto import secure_row_sums
        >>> values = [[[1, 10], [2, 20], [3, 30]]] * 3  # of each client, a row for every client
        >>> result = secure_row_sums(values, rows=[[0], [1], [2]], fraction_bits=0)
        >>> result.blocks[1].tolist()
        [[6, 60]]
    """
    source = rng_or_system(rng)
    arrays = _same_shapes(values, names, matrices=True)
    clients = tuple(arrays)
    check_mode(mode)
    if mode == "restart" and sparse:
        raise ParameterError("mode 'restart' has no sparse masks; use mode 'recover'")
    if len(per_client("rows", rows)) != len(clients):
        raise ParameterError(f"{len(rows)} row sets for {len(clients)} clients")
    owned = {c: _row_indices(c, r) for c, r in zip(clients, rows, strict=True)}
    n, columns = arrays[clients[0]].shape
    check_rows(owned, n)
    codec = _codec_for(arrays, fraction_bits, modulus)
    warn_if_two(len(clients))
    restart = mode == "restart"
    graph = MaskGraph.choose(clients, threshold, sparse=False if restart else sparse)
    agreement = Agreement(**graph_and_codec(graph, codec), shape=(n, columns), mode=mode)

    async def client_part(session: Session, rng: Rng) -> NDArray[Any]:
        own = arrays[session.io.name]
        sums = await secure_row_sums_client(session, own, owned, codec, graph, rng, mode=mode)
        return sums.values

    async def server_part(session: Session) -> SumRecord:
        return await secure_row_sums_server(
            session, owned, columns, codec, graph, clients=session.clients, mode=mode
        )

    stages = STAGES if mode == "recover" else ("setup", "upload", "result")
    drops = _dropped(drop, clients, stages)
    outcome = _run_sum(graph, agreement, client_part, server_part, drops, source, faults, progress)
    record: SumRecord = outcome.results[SERVER]
    warn_if_two_left(record.survivors, clients)
    blocks = [outcome.results.get(c) for c in clients]
    return RowSumsResult(blocks, record.survivors, _all_dropouts(record, outcome), outcome.cost)


def _same_shapes(
    values: Sequence[ArrayLike], names: Sequence[str] | None, *, matrices: bool = False
) -> dict[str, NDArray[Any]]:
    """Return the values by client; refuse those of another shape than the first client's."""
    clients = client_names(len(per_client("values", values)), names)
    arrays = {c: as_array(v, c) for c, v in zip(clients, values, strict=True)}
    first = clients[0]
    for client, array in arrays.items():
        if matrices and array.ndim != 2:
            raise DataError(
                f"client {client!r}: values have shape {array.shape}, expected (rows, columns)"
            )
        if array.shape != arrays[first].shape:
            raise DataError(
                f"client {client!r}: values have shape {array.shape}, {first!r} has "
                f"{arrays[first].shape}"
            )
    return arrays


def _codec_for(arrays: Mapping[str, NDArray[Any]], fraction_bits: int, modulus: int) -> FixedPoint:
    """Return the code of the sum; refuse what it cannot encode before anything is sent."""
    codec = FixedPoint(fraction_bits, parties=len(arrays), modulus=modulus)
    for name, array in arrays.items():
        codec.check(array, client=name)
    return codec


def _all_dropouts(record: SumRecord, outcome: Outcome) -> dict[str, str]:
    """Return by client the stage in which it was missing; the server cannot know of the last."""
    after = {c: "result" for c in (*outcome.dropouts, *outcome.errors) if c not in record.dropouts}
    return {**record.dropouts, **after}


def _run_sum(
    graph: MaskGraph,
    agreement: Agreement,
    client_part: Callable[[Session, Rng], Coroutine[Any, Any, Any]],
    server_part: Callable[[Session], Coroutine[Any, Any, Any]],
    drops: Mapping[str, str],
    source: Rng,
    faults: Faults | None,
    progress: Callable[[Progress], None] | None,
) -> Outcome:
    """Run all parties of a sum in this process, with key exchange first."""
    clients = graph.clients
    faults = faults or Faults()
    faults = replace(faults, dropouts={**faults.dropouts, **drops})

    async def client_role(io: RoleIO) -> Any:
        own = require_rng(source).child(io.name)
        with io.step("setup"):
            session = await key_exchange_client(io, clients, agreement, [], own)
        return await client_part(session, own)

    async def server_role(io: RoleIO) -> Any:
        with io.step("setup"):
            session = await key_exchange_server(
                io, clients, agreement, 0, require_rng(source).child(SERVER), graph.threshold
            )
        return await server_part(session)

    roles: dict[str, Role] = dict.fromkeys(clients, client_role)
    roles[SERVER] = server_role
    outcome = Simulation(faults=faults, progress=progress).run(roles)
    if SERVER in outcome.errors:  # it knows best why all stopped
        raise outcome.errors[SERVER]
    for error in outcome.errors.values():
        late = SERVER in outcome.results and isinstance(error, Excluded | Stalled)
        if not late:  # one that came too late is a dropout
            raise error
    return outcome


def _dropped(drop: Drop, clients: Sequence[str], possible: Sequence[str]) -> dict[str, str]:
    """Return the stage in which each dropped client drops out; refuse what is no such stage."""
    if isinstance(drop, str | bytes) or not isinstance(drop, Iterable):
        raise ParameterError(f"drop must be a set of clients or a mapping to stages, got {drop!r}")
    stages = drop.items() if isinstance(drop, Mapping) else [(c, "upload") for c in drop]
    found: dict[str, str] = {}
    for client, stage in stages:
        name: object = client
        position = isinstance(client, int | np.integer) and not isinstance(client, bool)
        if position and 0 <= int(client) < len(clients):
            name = clients[int(client)]
        if not isinstance(name, str) or name not in clients:
            raise ParameterError(f"cannot drop {client!r}: the clients are {', '.join(clients)}")
        if not isinstance(stage, str) or stage not in possible:
            raise ParameterError(f"{name!r} can drop out in {', '.join(possible)}, not {stage!r}")
        if found.setdefault(name, stage) != stage:
            raise ParameterError(f"{name!r} cannot drop out in both {found[name]!r} and {stage!r}")
    return found


def _row_indices(client: str, rows: ArrayLike) -> NDArray[np.intp]:
    indices = as_array(rows, client)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ParameterError(f"client {client!r}: rows must be a vector of integers")
    # What does not fit becomes −1, which is not a row either.
    return np.where(indices > np.iinfo(np.intp).max, -1, indices).astype(np.intp)
