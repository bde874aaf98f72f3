"""Inner products, similarities and masked distances of several clients, all in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError
from xclp_crypto.front import client_names, columns_of, per_client, rows_by_client, run_hamming
from xclp_crypto.params import Agreement, residue_width
from xclp_crypto.protocols.hamming import (
    BitRows,
    HammingBackend,
    between_backend,
    get_backend,
)
from xclp_crypto.protocols.hamming.integers import (
    integer_rows,
    integers_client,
    integers_server,
)
from xclp_crypto.protocols.hamming.products import (
    MaskedDistances,
    Measure,
    check_measure,
    masked_client,
    masked_server,
    products_client,
    products_server,
    similarities,
    valid_bits,
)
from xclp_crypto.protocols.setup import Session
from xclp_crypto.rng import Rng
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Faults


def secure_inner_products(
    rows: Sequence[BitRows],
    backend: str | HammingBackend = "rlwe",
    *,
    magnitude: int | None = None,
    packed: int | None = None,
    names: Sequence[str] | None = None,
    rng: Rng | None = None,
    faults: Faults | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[NDArray[np.int32], Cost]:
    """Compute the inner products of the rows of several clients, for all pairs.

    Of bits that is how many ones they have in common. The server learns these numbers, of each row
    with itself too, and clients nothing; see `xclp_crypto.protocols.hamming.products`, and for
    integers `xclp_crypto.protocols.hamming.integers`.

    Args:
        rows: one array per client, (n_j, L) of 0/1, such as sets or Bloom filters, the same L for
            all; n_j may be 0. Or packed rows. Or, with `magnitude`, integers.
        backend: see `xclp_crypto.secure_hamming`; for integers ``rlwe``, ``masked`` or ``plain``.
        magnitude: B, if rows are integers in −B … B; B²·L is at most 8192. Costs are those of rows
            of 4·B²·L bits.
        packed: see `xclp_crypto.secure_hamming`.
        names: the clients' names, for errors and costs.
        rng: randomness; the operating system's by default, `SeededRng` in tests.
        faults: what goes wrong, for tests.
        progress: called before each computation.

    Returns:
        (n, n) int32 with n = Σ n_j, exact and in the order of the clients; and the cost.

    Raises:
        DataError: an array does not hold such rows, or has another number of columns.
        ParameterError: fewer than two clients, unknown back end or one that does not multiply
            integers, L or B out of range.

    Examples:
        >>> from xclp_crypto import secure_inner_products
        >>> G, cost = secure_inner_products([[[0, 1, 1]], [[0, 1, 0], [1, 1, 1]]], "masked")
        >>> G.tolist()
        [[2, 1, 2], [1, 1, 1], [2, 1, 3]]
        >>> secure_inner_products([[[3, -2]], [[1, 3]]], "masked", magnitude=3)[0].tolist()
        [[13, -3], [-3, 10]]
    """
    if magnitude is not None:
        clients = client_names(len(per_client("rows", rows)), names)
        vectors = {
            c: integer_rows(r, c, magnitude, packed) for c, r in zip(clients, rows, strict=True)
        }
        return _integer_products(vectors, backend, magnitude, rng, faults, progress)
    arrays = rows_by_client(rows, packed, names)
    method, n_bits = get_backend(backend), columns_of(arrays, "bits")

    async def client(session: Session, rng: Rng) -> None:
        await products_client(session, arrays[session.io.name], method, rng)

    async def server(session: Session) -> NDArray[np.int32]:
        return (await products_server(session, n_bits, method))[0]

    terms = Agreement(n_bits=n_bits, hamming=method.name, call="secure_inner_products")
    return run_hamming(arrays, method, terms, client, server, rng, faults, progress)


def _integer_products(
    vectors: Mapping[str, NDArray[np.int64]],
    backend: str | HammingBackend,
    magnitude: int,
    rng: Rng | None,
    faults: Faults | None,
    progress: Callable[[Progress], None] | None,
) -> tuple[NDArray[np.int32], Cost]:
    """Compute inner products of integers; see `secure_inner_products`."""
    method, length = between_backend(backend), columns_of(vectors, "numbers")

    async def client(session: Session, rng: Rng) -> None:
        await integers_client(session, vectors[session.io.name], magnitude, method, rng)

    async def server(session: Session) -> NDArray[np.int32]:
        return (await integers_server(session, length, magnitude, method))[0]

    terms = Agreement(
        length=length, magnitude=magnitude, hamming=method.name, call="secure_inner_products"
    )
    return run_hamming(vectors, method, terms, client, server, rng, faults, progress)


def secure_similarities(
    bits: Sequence[BitRows],
    backend: str | HammingBackend = "rlwe",
    *,
    measure: Measure = "dice",
    packed: int | None = None,
    names: Sequence[str] | None = None,
    rng: Rng | None = None,
    faults: Faults | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[NDArray[np.float64], Cost]:
    """Compute how similar the sets of several clients are, as record linkage does.

    The server learns the inner products (`secure_inner_products`), and so the sizes of all sets,
    from which it computes Dice, 2·|x∩y| / (|x|+|y|), or Jaccard, |x∩y| / |x∪y|; of two empty sets
    both are 0.

    Args:
        bits: see `secure_inner_products`.
        backend: see `xclp_crypto.secure_hamming`.
        measure: ``dice`` or ``jaccard``.
        packed: see `xclp_crypto.secure_hamming`.
        names: see `secure_inner_products`.
        rng: see `secure_inner_products`.
        faults: see `secure_inner_products`.
        progress: see `secure_inner_products`.

    Returns:
        Similarities in 0 … 1, (n, n) float64 in the order of the clients; and the cost.

    Raises:
        DataError: as for `secure_inner_products`.
        ParameterError: as for `secure_inner_products`, or another measure.

    Examples:
        >>> from xclp_crypto import secure_similarities
        >>> secure_similarities([[[0, 1, 1]], [[0, 1, 0]]], "masked", measure="jaccard")[0].tolist()
        [[1.0, 0.5], [0.5, 1.0]]
    """
    check_measure(measure)
    common, cost = secure_inner_products(
        bits, backend, packed=packed, names=names, rng=rng, faults=faults, progress=progress
    )
    sizes = np.diagonal(common)
    return similarities(common, sizes, sizes, measure), cost


def secure_masked_distances(
    bits: Sequence[BitRows],
    masks: Sequence[BitRows],
    backend: str | HammingBackend = "rlwe",
    *,
    packed: int | None = None,
    names: Sequence[str] | None = None,
    rng: Rng | None = None,
    faults: Faults | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[MaskedDistances, Cost]:
    """Compute Hamming distances over the bits that are valid in both rows, as for iris codes.

    The server learns, for all pairs of rows, how many bits are valid in both and in how many of
    these they differ, and so how many of each row are valid. Clients learn nothing. See
    `xclp_crypto.protocols.hamming.products`.

    Args:
        bits: one array per client, (n_j, L) of 0/1, the same L for all; n_j may be 0. Or packed.
        masks: which of their bits are valid, in the same form.
        backend: see `xclp_crypto.secure_hamming`.
        packed: see `xclp_crypto.secure_hamming`; of bits and masks.
        names: the clients' names, for errors and costs.
        rng: randomness; the operating system's by default, `SeededRng` in tests.
        faults: what goes wrong, for tests.
        progress: called before each computation.

    Returns:
        `MaskedDistances`, (n, n) uint16 each with n = Σ n_j, exact and in the order of the clients;
        and the cost.

    Raises:
        DataError: an array does not hold rows of bits, has another number of columns, or its masks
            another shape.
        ParameterError: fewer than two clients, unknown back end, or L is above 2^14.

    Examples:
        >>> from xclp_crypto import secure_masked_distances
        >>> bits, masks = [[[0, 1, 1]], [[1, 1, 0]]], [[[1, 1, 1]], [[1, 1, 0]]]
        >>> found, cost = secure_masked_distances(bits, masks, backend="masked")
        >>> int(found.differing[0, 1]), int(found.valid[0, 1])
        (1, 2)
    """
    arrays = rows_by_client(bits, packed, names)
    method, n_bits = get_backend(backend), columns_of(arrays, "bits")
    residue_width(2 * n_bits)
    if len(per_client("masks", masks)) != len(arrays):
        raise DataError(f"{len(masks)} arrays of masks for {len(arrays)} clients")
    valid = {
        c: valid_bits(m, rows, c, packed)
        for (c, rows), m in zip(arrays.items(), masks, strict=True)
    }

    async def client(session: Session, rng: Rng) -> None:
        me = session.io.name
        await masked_client(session, arrays[me], valid[me], method, rng)

    async def server(session: Session) -> MaskedDistances:
        return (await masked_server(session, n_bits, method))[0]

    terms = Agreement(n_bits=n_bits, hamming=method.name, call="secure_masked_distances")
    return run_hamming(arrays, method, terms, client, server, rng, faults, progress)
