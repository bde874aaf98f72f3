"""The front door: the functions without the federation.

Both run every party in this process, through the real messages.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import DataError, ParameterError, PrivacyWarning
from xclp_crypto.params import FRACTION_BITS, MIN_CLIENTS, Agreement, residue_width
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.hamming import HammingBackend, check_bits, get_backend
from xclp_crypto.protocols.secure_sum import (
    check_rows,
    secure_row_sums_client,
    secure_row_sums_server,
)
from xclp_crypto.protocols.setup import (
    SERVER,
    key_exchange_client,
    key_exchange_server,
    seed_agreement_client,
    seed_agreement_server,
)
from xclp_crypto.rng import Rng, SystemRng
from xclp_crypto.role import RoleIO
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Faults, Progress, Role, Simulation


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
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ParameterError(f"names must be a list with one name per client, got {names!r}")
    names = tuple(names)
    if len(names) != count:
        raise ParameterError(f"{len(names)} names for {count} clients")
    for name in names:
        if not isinstance(name, str) or not name or name == SERVER:
            raise ParameterError(f"{name!r} cannot be the name of a client")
        if names.count(name) > 1:
            raise ParameterError(f"two clients are called {name!r}")
    return names


def warn_if_two(count: int) -> None:
    """Warn that with two clients each learns the other's part of a sum."""
    if count == MIN_CLIENTS:
        warnings.warn(
            "with two clients, each learns the other's part of every sum it receives "
            "(the sum minus its own part); this is unavoidable",
            PrivacyWarning,
            stacklevel=3,
        )


def secure_hamming(
    bits: Sequence[ArrayLike],
    backend: str | HammingBackend = "rlwe",
    *,
    names: Sequence[str] | None = None,
    rng: Rng | None = None,
    faults: Faults | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[NDArray[np.uint16], Cost]:
    """Compute all pairwise Hamming distances between the rows of several clients.

    Args:
        bits: one array per client, (n_j, L) of 0/1 integers or booleans, the same L for all;
            n_j may be 0.
        backend: name of a back end, see `xclp_crypto.protocols.hamming.BACKENDS`.
        names: the clients' names, for errors and costs.
        rng: randomness; the operating system's by default, `SeededRng` in tests.
        faults: what goes wrong, for tests.
        progress: called before each computation.

    Returns:
        H, (n, n) uint16 with n = Σ n_j, exact and in the order of the clients; and the cost.

    Raises:
        DataError: an array is not a 0/1 matrix or has another number of columns.
        ParameterError: fewer than two clients, unknown back end, L out of range.
    """
    clients = client_names(len(bits), names)
    arrays = {c: check_bits(np.asarray(b), c) for c, b in zip(clients, bits, strict=True)}
    n_bits = arrays[clients[0]].shape[1]
    for client, array in arrays.items():
        if array.shape[1] != n_bits:
            raise DataError(
                f"client {client!r} has rows of {array.shape[1]} bits, {clients[0]!r} of {n_bits}"
            )
    residue_width(n_bits)
    method = get_backend(backend)
    agreement = Agreement(n_bits=n_bits, hamming=method.name)
    source = rng or SystemRng()

    async def client_role(io: RoleIO) -> None:
        own = source.child(io.name)
        with io.step("setup"):
            session = await key_exchange_client(io, clients, agreement, [len(arrays[io.name])], own)
            secret = (
                await seed_agreement_client(session, own) if method.needs_common_secret else None
            )
        sizes = session.sizes
        with io.step("hamming"):
            await method.client(session, arrays[io.name], sizes, secret, own)

    async def server_role(io: RoleIO) -> NDArray[np.uint16]:
        with io.step("setup"):
            session = await key_exchange_server(io, clients, agreement, 1, source.child(SERVER))
            if method.needs_common_secret:
                await seed_agreement_server(session)
        sizes = session.sizes
        with io.step("hamming"):
            return (await method.server(session, n_bits, sizes)).matrix

    roles: dict[str, Role] = dict.fromkeys(clients, client_role)
    roles[SERVER] = server_role
    outcome = Simulation(faults=faults, progress=progress).run(roles)
    outcome.raise_errors()
    return outcome.results[SERVER], outcome.cost


def secure_row_sums(
    values: Sequence[ArrayLike],
    rows: Sequence[ArrayLike],
    *,
    fraction_bits: int = FRACTION_BITS,
    names: Sequence[str] | None = None,
    rng: Rng | None = None,
    faults: Faults | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[list[NDArray[np.float64]], Cost]:
    """Add up the matrices of several clients so that each gets its own rows of the sum only.

    Args:
        values: one array per client, (n, c) numbers, the same shape for all.
        rows: one array per client, the indices of the rows that it owns; together 0 … n−1.
        fraction_bits: f; each sum is off by at most p·2^-(f+1).
        names: the clients' names, for errors and costs.
        rng: randomness; the operating system's by default, `SeededRng` in tests.
        faults: what goes wrong, for tests.
        progress: called before each computation.

    Returns:
        Blocks, (len(rows[j]), c) float64 in the order of `rows[j]`; and the cost.

    Raises:
        DataError: NaN, infinity, or shapes that differ; names client, row and column.
        EncodingOverflow: the sum might not fit; nothing was sent.
        ParameterError: fewer than two clients, or `rows` is not a partition.
    """
    clients = client_names(len(values), names)
    if len(rows) != len(clients):
        raise ParameterError(f"{len(rows)} row sets for {len(clients)} clients")
    owned = {c: _row_indices(c, r) for c, r in zip(clients, rows, strict=True)}
    n = check_rows(owned)
    arrays = {c: np.asarray(v) for c, v in zip(clients, values, strict=True)}
    columns = arrays[clients[0]].shape[1] if arrays[clients[0]].ndim == 2 else 0
    for client, array in arrays.items():
        if array.shape != (n, columns):
            raise DataError(
                f"client {client!r}: values have shape {array.shape}, expected ({n}, "
                f"{columns or 'columns'}) because the clients own {n} rows together"
            )
    codec = FixedPoint(fraction_bits, parties=len(clients))
    for name, array in arrays.items():  # refuse what cannot be encoded before anything is sent
        codec.encode(array, client=name)
    warn_if_two(len(clients))
    agreement = Agreement(rows=n, columns=columns, fraction_bits=fraction_bits)
    source = rng or SystemRng()

    async def client_role(io: RoleIO) -> NDArray[np.float64]:
        with io.step("setup"):
            session = await key_exchange_client(
                io, clients, agreement, [len(owned[io.name])], source.child(io.name)
            )
        with io.step("row sums"):
            return await secure_row_sums_client(session, arrays[io.name], owned, codec)

    async def server_role(io: RoleIO) -> None:
        with io.step("setup"):
            session = await key_exchange_server(io, clients, agreement, 1, source.child(SERVER))
        with io.step("row sums"):
            await secure_row_sums_server(session, owned, columns, session.clients)

    roles: dict[str, Role] = dict.fromkeys(clients, client_role)
    roles[SERVER] = server_role
    outcome = Simulation(faults=faults, progress=progress).run(roles)
    outcome.raise_errors()
    return [outcome.results[c] for c in clients], outcome.cost


def _row_indices(client: str, rows: ArrayLike) -> NDArray[np.intp]:
    indices = np.asarray(rows)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ParameterError(f"client {client!r}: rows must be a vector of integers")
    return indices.astype(np.intp)
