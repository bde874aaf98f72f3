"""Inner products of vectors of small integers, as distances of rows to columns.

For integers x_l, y_l in −B … B a *row* of x and a *column* of y have (2B)² bits for each l: bit
(i, j) is [i < x_l + B] in the row and [j < y_l + B] in the column. They differ in u·(2B − v) +
(2B − u)·v of them for u = x_l + B, v = y_l + B, and that is 2B² − 2·x_l·y_l. So, with L' = 4B²·L
bits,

    h(row of x, column of y) = 2B²·L − 2·⟨x, y⟩

*Exactness*: h is exact for L' ≤ 2^15 bits, see `params.MAX_HASH_BITS`, so B²·L ≤ 2^13 is required.
*Who learns h learns* ⟨x, y⟩ and nothing else, since each follows from the other. With a back end
that knows rows and columns (`between`) the server learns the inner products of all vectors of all
clients, of each with itself too, each twice, and refuses those that are not the same both times.
What the server and some clients learn together, and what it rests on, is that of the back end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.params import MAX_HASH_BITS, MIN_CLIENTS
from xclp_crypto.primitives.fixed_point import as_array
from xclp_crypto.protocols.hamming.between import BetweenBackend, Sizes
from xclp_crypto.protocols.hamming.products import require_possible
from xclp_crypto.protocols.hamming.rows import BitRows
from xclp_crypto.protocols.setup import Session
from xclp_crypto.rng import Rng


def integer_rows(
    values: BitRows, client: str, magnitude: int, packed: int | None
) -> NDArray[np.int64]:
    """Return vectors of small integers as (n, L) int64.

    Args:
        values: (n, L) integers.
        client: whose they are, for the errors.
        magnitude: B.
        packed: None; what it is for bits is refused.

    Raises:
        DataError: not a matrix of integers, or an entry that is not in −B … B; names the client and
            the entry.
        ParameterError: packed rows, or see `row_bits`.
    """
    if packed is not None:
        raise ParameterError("rows are packed bits or, with magnitude, integers, and not both")
    array = as_array(values, client)
    if array.ndim != 2:
        raise DataError(f"client {client!r}: must have shape (rows, numbers), got {array.shape}")
    if array.dtype.kind not in "biu":
        raise DataError(f"client {client!r}: must be integers, got {array.dtype}")
    row_bits(array.shape[1], magnitude)
    wrong = np.argwhere((array < -magnitude) | (array > magnitude))
    if len(wrong):
        row, column = (int(i) for i in wrong[0])
        raise DataError(
            f"client {client!r}, row {row}, column {column}: must be in −{magnitude} … {magnitude}"
        )
    return array.astype(np.int64)


def row_bits(length: int, magnitude: int) -> int:
    """Return L' of vectors of L integers in −B … B.

    Raises:
        ParameterError: B is not an integer of at least 1, or L' is out of range.
    """
    number = isinstance(magnitude, int | np.integer) and not isinstance(magnitude, bool)
    if not number or magnitude < 1:
        raise ParameterError(f"magnitude must be an integer of at least 1, got {magnitude!r}")
    n_bits = 4 * int(magnitude) ** 2 * length
    if not 1 <= n_bits <= MAX_HASH_BITS:
        raise ParameterError(
            f"the squared magnitude times the length of rows must be in 1 … {MAX_HASH_BITS // 4}, "
            f"so that inner products are exact; got {magnitude}² · {length} = {n_bits // 4}"
        )
    return n_bits


def rows_of(values: NDArray[np.int64], magnitude: int) -> NDArray[np.uint8]:
    """Return the rows of some vectors, (n, L') uint8; see the module."""
    repeated = np.repeat(_unary(values, magnitude), 2 * magnitude, axis=2)
    return repeated.reshape(len(values), row_bits(values.shape[1], magnitude))


def columns_of(values: NDArray[np.int64], magnitude: int) -> NDArray[np.uint8]:
    """Return the columns of some vectors, (n, L') uint8; see the module."""
    repeated = np.tile(_unary(values, magnitude), (1, 1, 2 * magnitude))
    return repeated.reshape(len(values), row_bits(values.shape[1], magnitude))


def _unary(values: NDArray[np.int64], magnitude: int) -> NDArray[np.uint8]:
    """Return [i < x + B] for i < 2B, (n, L, 2B)."""
    return (np.arange(2 * magnitude) < values[..., None] + magnitude).astype(np.uint8)


def products_of(distances: NDArray[np.uint16], length: int, magnitude: int) -> NDArray[np.int32]:
    """Return ⟨x, y⟩ of the distances of rows to columns."""
    products: NDArray[np.int32] = (2 * magnitude**2 * length - distances.astype(np.int32)) >> 1
    return products


async def integers_client(
    session: Session, values: NDArray[np.int64], magnitude: int, method: BetweenBackend, rng: Rng
) -> None:
    """Take part as a client whose vectors are multiplied with all others'.

    Args:
        session: see `HammingBackend.client`.
        values: (n_j, L) in −B … B.
        magnitude: B.
        method: the back end.
        rng: source of this client's own randomness.
    """
    rows, columns = rows_of(values, magnitude), columns_of(values, magnitude)
    await method.client_between(session, _sizes(session), rows, columns, rng)


async def integers_server(
    session: Session,
    length: int,
    magnitude: int,
    method: BetweenBackend,
    at_least: int = MIN_CLIENTS,
) -> tuple[NDArray[np.int32], dict[str, int]]:
    """Take part as the server, which gets the inner products of the clients that finished.

    Args:
        session: see `HammingBackend.server`.
        length: L.
        magnitude: B.
        method: the back end.
        at_least: fewest clients to go on with.

    Returns:
        (n, n) inner products, and the number of rows by client that finished, in their order.

    Raises:
        TooFewParties: fewer than `at_least` clients finished.
        FaultyPeer: as for the back end; or ⟨x, y⟩ is not ⟨y, x⟩, or is no integer.
    """
    n_bits = row_bits(length, magnitude)
    found = await method.server_between(session, _sizes(session), n_bits, at_least)
    h = found.matrix
    require_possible((h == h.T) & (h & 1 == 0), found.rows, "another product the other way round")
    return await session.io.compute(products_of, h, length, magnitude), found.rows


def _sizes(session: Session) -> Sizes:
    return Sizes(session.sizes, session.sizes)
