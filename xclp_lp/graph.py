"""The neighbour graph of hashed points (paper, Algorithm 1, lines "A" to "𝒲")."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from xclp_crypto.errors import DataError, ParameterError, ProtocolError
from xclp_crypto.params import MAX_HASH_BITS
from xclp_crypto.role import OnProgress
from xclp_lp.machine import require_available

Ties = Literal["all", "lowest-index"]

WORKERS = os.cpu_count() or 1
"""Threads over blocks; NumPy and SciPy release the lock in everything that takes long here."""

ENTRY_BYTES = 24
"""Memory of an entry of the graph while labels propagate: of 𝒲 and of I − α𝒲."""

_FLOOR = 1e-100  # smaller weights count as 0: their square roots' products would lose precision
_BLOCK_ENTRIES = 1 << 21  # uint16 entries of one block of rows: 4 MiB, about a core's cache
_STRIP_ENTRIES = 1 << 27  # uint16 entries of the distances that exist at once: 256 MiB
_TILE_ENTRIES = 1 << 22  # float32 entries of the vectors multiplied at once: 16 MiB
_NEVER = np.uint16(0xFFFF)  # beyond every distance


def neighbour_graph(
    H: NDArray[np.uint16],
    n_bits: int,
    k: int,
    *,
    gamma: float = 1.0,
    include_self: bool = False,
    ties: Ties = "all",
    progress: OnProgress | None = None,
) -> sparse.csr_array:
    """Build the normalised adjacency 𝒲 = D^-½ W D^-½, where W = B + Bᵀ.

    B holds cos(πh/L)^γ for the k nearest points of each row. Points at 90° or more are never
    neighbours, so a row may have fewer than k, or none: an isolated point has a zero row.

    Args:
        H: shape (n, n), uint16: symmetric Hamming distances in 0..L; not modified.
        n_bits: L, in 1..32768.
        k: neighbours per point, in 1..n-1.
        gamma: exponent γ > 0 of the similarity; larger values favour near points.
        include_self: whether the point itself may be one of the k.
        ties: "all" also keeps every point that is as near as the k-th, so that the result does
            not depend on the order of rows (n² entries when all points are equal);
            "lowest-index" keeps exactly k.
        progress: called after each strip of rows.

    Returns:
        Shape (n, n), float64, exactly symmetric, entries ≥ 0, spectral radius ≤ 1.

    Raises:
        ParameterError: a parameter is out of range, or so many ties do not fit into memory.
        ProtocolError: a distance exceeds L.

    Source: paper §4.1, Algorithm 1; permutation-invariant tie rule ours.
    """
    table = similarity_table(n_bits, gamma)
    if ties != "all":
        chosen = top_k(H, n_bits, k, include_self=include_self, ties=ties, progress=progress)
        return _normalised(chosen, table)
    _check_distances(H, n_bits, k, ties)
    return _within_limits(H, k, table, include_self, progress)


def neighbour_graph_from_bits(
    bits: ArrayLike,
    k: int,
    *,
    gamma: float = 1.0,
    include_self: bool = False,
    ties: Ties = "all",
    progress: OnProgress | None = None,
) -> sparse.csr_array:
    """Build the same matrix as `neighbour_graph` from the hashes, without holding all distances.

    Takes 2·n²·L floating-point operations, and n·L bytes, 0.4 GB and the graph as memory.

    Args:
        bits: shape (n, L), 0 or 1, L in 1..32768.
        k: neighbours per point, in 1..n-1.
        gamma: see `neighbour_graph`.
        include_self: see `neighbour_graph`.
        ties: see `neighbour_graph`.
        progress: called after each strip of rows.

    Returns:
        Shape (n, n), float64: equal in every bit to that of all distances.

    Raises:
        ParameterError: a parameter or the shape is out of range.
        DataError: an entry is neither 0 nor 1.

    Source: paper §4.1, Algorithm 1.
    """
    rows = checked_bits(bits)
    n, n_bits = rows.shape
    table = similarity_table(n_bits, gamma)
    _check_choice(n, n_bits, k, ties)
    choose = partial(_choose, n_bits=n_bits, k=k, include_self=include_self, ties=ties)
    height = max(1, min(n, _STRIP_ENTRIES // n))
    width = max(1, min(n, _TILE_ENTRIES // n_bits))
    strip = np.empty((height, n), dtype=np.uint16)
    chosen: list[_Chosen] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for start in range(0, n, height):
            own = rows[start : start + height]
            distances = strip[: len(own)]
            signs = np.subtract(1, 2 * own, dtype=np.float32)
            for left in range(0, n, width):
                # ⟨±1, ±½⟩ = L/2 − h, exact in float32: every partial sum is a multiple of ½ ≤ 2^14.
                halves = np.subtract(0.5, rows[left : left + width], dtype=np.float32)
                products = signs @ halves.T
                blocks = _blocks(len(own), width)
                fill = partial(_fill, distances[:, left : left + width], products, n_bits)
                list(pool.map(fill, blocks))
            blocks = _blocks(len(own), n)
            chosen += pool.map(lambda b: choose(distances[b], start + b.start), blocks)  # noqa: B023
            if progress is not None:
                progress("distances and neighbours", start + len(own), n)
    return _normalised(_assembled(chosen, n), table)


def nearest_weights(
    H: NDArray[np.uint16], n_bits: int, k: int, *, gamma: float = 1.0, ties: Ties = "all"
) -> sparse.csr_array:
    """Return how much each old row counts for each new row: cos(πh/L)^γ of its k nearest.

    Old rows at 90° or more never count, so a new row may have fewer than k, or none.

    Args:
        H: shape (m, n), uint16: distances in 0..L of m new rows to n old ones.
        n_bits: L, in 1..32768.
        k: old rows for each new one; all of them where there are fewer.
        gamma: exponent γ > 0 of the similarity.
        ties: see `neighbour_graph`.

    Returns:
        Shape (m, n), float64; the weights of a new row sum to 1, or there are none.

    Raises:
        ParameterError: a parameter is out of range.
        ProtocolError: a distance exceeds L.
    """
    table = similarity_table(n_bits, gamma)
    m, n = H.shape
    if not H.size:
        return sparse.csr_array((m, n))

    def choose(rows: slice) -> _Chosen:
        block, most = H[rows], min(k, n)
        return _choose(block, rows.start, n_bits=n_bits, k=most, include_self=True, ties=ties)

    with ThreadPoolExecutor(WORKERS) as pool:
        weights = _assembled(list(pool.map(choose, _blocks(m, n))), n)
    weights.data = table[weights.data]
    weights.eliminate_zeros()
    sums = np.asarray(weights.sum(axis=1), dtype=np.float64)
    weights.data /= np.repeat(sums, np.diff(weights.indptr))
    return weights


def cosine_graph(vectors: NDArray[np.float64], k: int, *, gamma: float = 1.0) -> sparse.csr_array:
    """Build 𝒲 from the cosines themselves, without hashing: what many bits tend to.

    Args:
        vectors: shape (n, d), finite.
        k: neighbours per point, in 1..n-1; exactly so many, less those at 90° or more.
        gamma: exponent γ > 0 of the similarity.

    Returns:
        Shape (n, n), float64, like that of `neighbour_graph`; a zero vector has a zero row.

    Raises:
        ParameterError: a parameter is out of range.
    """
    if not (gamma > 0 and np.isfinite(gamma)):
        raise ParameterError(f"gamma is {gamma}; it must be finite and > 0")
    n = len(vectors)
    _check_choice(n, MAX_HASH_BITS, k, "all")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    nearest, weights = np.empty((n, k), dtype=np.int32), np.empty((n, k))
    for rows in _blocks(n, n):
        cosines = unit[rows] @ unit.T
        own = np.arange(rows.start, rows.stop)
        cosines[own - rows.start, own] = -1.0
        nearest[rows] = np.argpartition(cosines, n - k, axis=1)[:, n - k :]
        weights[rows] = np.take_along_axis(cosines, nearest[rows].astype(np.intp), axis=1)
    with np.errstate(under="ignore"):
        weights = weights.clip(0.0, 1.0) ** gamma
    weights[weights < _FLOOR] = 0.0
    indptr = np.arange(n + 1) * k
    return _symmetric(sparse.csr_array((weights.ravel(), nearest.ravel(), indptr), shape=(n, n)))


def _fill(
    distances: NDArray[np.uint16], products: NDArray[np.float32], n_bits: int, rows: slice
) -> None:
    """Write h = L/2 − ⟨±1, ±½⟩ into some rows."""
    np.subtract(np.float32(n_bits / 2), products[rows], out=distances[rows], casting="unsafe")


def _normalised(B: sparse.csr_array, table: NDArray[np.float64]) -> sparse.csr_array:
    """Turn the chosen distances into 𝒲."""
    B.data = table[B.data]
    return _symmetric(B)


def _symmetric(B: sparse.csr_array) -> sparse.csr_array:
    """Return D^-½ (B + Bᵀ) D^-½."""
    B.eliminate_zeros()
    W = sparse.csr_array(B + B.T)
    W.sort_indices()
    _divide_by_degrees(W)
    return W


def _divide_by_degrees(W: sparse.csr_array) -> None:
    """Replace W by D^-½ W D^-½, some rows at a time."""
    # Every stored weight is at least _FLOOR, so rows with entries have a positive sum.
    root = np.sqrt(np.asarray(W.sum(axis=1), dtype=np.float64))
    for rows in _blocks(*W.shape):
        own = slice(W.indptr[rows.start], W.indptr[rows.stop])
        degrees = np.diff(W.indptr[rows.start : rows.stop + 1])
        W.data[own] /= np.repeat(root[rows], degrees) * root[W.indices[own]]


def _within_limits(
    H: NDArray[np.uint16],
    k: int,
    table: NDArray[np.float64],
    include_self: bool,
    progress: OnProgress | None,
) -> sparse.csr_array:
    """Return 𝒲 where all ties are kept; takes little more memory than its own 12 bytes per entry.

    Whom a row chooses is then said by a number, its limit: all that are no farther. So entries are
    counted first, and each is written into its place.
    """
    n, n_bits = len(H), len(table) - 1
    last = np.count_nonzero(table) - 1  # the largest distance with a weight
    limits = np.empty(n, dtype=np.uint16)
    counts = np.empty(n, dtype=np.int64)

    def limit(rows: slice) -> None:
        kth = _kth_distances(H[rows], rows.start, n_bits, k, include_self)
        limits[rows] = np.minimum(kth, last)

    def near(rows: slice) -> NDArray[np.bool_]:
        found = H[rows] <= np.maximum(limits[rows, None], limits)
        if not include_self:
            np.fill_diagonal(found[:, rows.start :], False)
        return found

    def count(rows: slice) -> None:
        counts[rows] = np.count_nonzero(near(rows), axis=1)

    def fill(rows: slice) -> None:
        own = slice(indptr[rows.start], indptr[rows.stop])
        of_row = np.repeat(np.arange(rows.start, rows.stop), counts[rows])
        indices[own] = columns = np.flatnonzero(near(rows)) - (of_row - rows.start) * n
        h = H[of_row, columns]
        both = (h <= limits[of_row]) & (h <= limits[columns])
        data[own] = table[h] * (1.0 + both)

    blocks = _blocks(n, n)
    with ThreadPoolExecutor(WORKERS) as pool:
        for done, _ in zip(blocks, pool.map(limit, blocks), strict=True):
            if progress is not None:
                progress("neighbours", done.stop, n)
        list(pool.map(count, blocks))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        require_available(
            ENTRY_BYTES * int(indptr[-1]),
            f"{n:,} rows with {int(indptr[-1]):,} neighbours, since all that are equally near are "
            "kept,",
            "use ties = 'lowest-index'",
        )

        data = np.empty(indptr[-1])
        indices = np.empty(indptr[-1], dtype=np.int32)
        list(pool.map(fill, blocks))
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    W = sparse.csr_array((data, indices, indptr), shape=(n, n))
    _divide_by_degrees(W)
    return W


def similarity_table(n_bits: int, gamma: float = 1.0) -> NDArray[np.float64]:
    """Tabulate cos(πh/L)^γ, and 0 from 90° on, for every distance.

    Args:
        n_bits: L, in 1..32768.
        gamma: γ, finite and > 0.

    Returns:
        Shape (L+1,), float64, in [0, 1], not increasing; values below 1e-100 are 0.

    Raises:
        ParameterError: a parameter is out of range.
    """
    _check_bits(n_bits)
    if not (gamma > 0 and np.isfinite(gamma)):
        raise ParameterError(f"gamma is {gamma}; it must be finite and > 0")
    h = np.arange(n_bits + 1)
    table = np.zeros(n_bits + 1)
    acute = 2 * h < n_bits
    with np.errstate(under="ignore"):
        table[acute] = np.cos(np.pi * h[acute] / n_bits) ** gamma
    table[table < _FLOOR] = 0.0
    return table


def top_k(
    H: NDArray[np.uint16],
    n_bits: int,
    k: int,
    *,
    include_self: bool = False,
    ties: Ties = "all",
    progress: OnProgress | None = None,
) -> sparse.csr_array:
    """Select the k nearest points of each row, among those nearer than 90°.

    Args:
        H: shape (n, n), uint16: distances in 0..L; not modified.
        n_bits: L, in 1..32768.
        k: in 1..n-1.
        include_self: whether the diagonal takes part.
        ties: see `neighbour_graph`.
        progress: see `neighbour_graph`.

    Returns:
        Shape (n, n), uint16: the distances of the selected points (stored zeros are meant).

    Raises:
        ParameterError: a parameter is out of range.
        ProtocolError: a distance exceeds L.
    """
    _check_distances(H, n_bits, k, ties)
    n = len(H)
    choose = partial(_choose, n_bits=n_bits, k=k, include_self=include_self, ties=ties)
    blocks = _blocks(n, n)
    strip = max(1, _STRIP_ENTRIES // _BLOCK_ENTRIES)
    chosen: list[_Chosen] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for first in range(0, len(blocks), strip):
            own = blocks[first : first + strip]
            chosen += pool.map(lambda b: choose(H[b], b.start), own)
            if progress is not None:
                progress("neighbours", own[-1].stop, n)
    return _assembled(chosen, n)


_Chosen = tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.uint16]]


def _blocks(rows: int, columns: int) -> list[slice]:
    """Cut the rows of a matrix into blocks for one thread each."""
    step = max(1, _BLOCK_ENTRIES // columns)
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _choose(
    block: NDArray[np.uint16], start: int, *, n_bits: int, k: int, include_self: bool, ties: Ties
) -> _Chosen:
    """Select from the rows from `start` on: counts by row, columns, distances."""
    rows = np.arange(len(block))
    kth = _kth_distances(block, start, n_bits, k, include_self)[:, None]
    farthest = np.uint16((n_bits - 1) // 2)  # the largest h with 2h < L
    keep = block <= np.minimum(kth, farthest)
    if not include_self:
        keep[rows, start + rows] = False
    counts = np.count_nonzero(keep, axis=1)
    # A flat search is several times faster than one by rows and columns.
    places = np.flatnonzero(keep)
    of_row = np.repeat(rows, counts)
    columns = (places - of_row * block.shape[1]).astype(np.int32)
    distances = block[of_row, columns]
    if ties == "lowest-index" and (counts > k).any():
        # Only in rows with more than k: all nearer points, and the first of those at the k-th.
        tied = distances == kth[of_row, 0]
        total = np.cumsum(tied)
        ends = np.cumsum(counts)
        before = np.concatenate([[0], total])[ends - counts]
        room = k - (counts - np.bincount(of_row[tied], minlength=len(rows)))
        stay = ~tied | (total - before[of_row] <= room[of_row])
        counts = np.bincount(of_row[stay], minlength=len(rows))
        columns, distances = columns[stay], distances[stay]
    return counts, columns, distances


def _kth_distances(
    block: NDArray[np.uint16], start: int, n_bits: int, k: int, include_self: bool
) -> NDArray[np.uint16]:
    """Return the k-th smallest distance of each of the rows from `start` on."""
    if block.max() > n_bits:
        i, j = (int(x) for x in np.argwhere(block > n_bits)[0])
        raise ProtocolError(
            f"distance {block[i, j]} between points {start + i} and {j} exceeds {n_bits} bits: "
            "some party did not follow the protocol"
        )
    ordered = block.copy()
    if not include_self:
        rows = np.arange(len(block))
        ordered[rows, start + rows] = _NEVER
    ordered.partition(k - 1, axis=1)
    return ordered[:, k - 1]


def _assembled(chosen: list[_Chosen], n: int) -> sparse.csr_array:
    """Put the blocks of rows together, of n columns."""
    counts, columns, distances = (np.concatenate(part) for part in zip(*chosen, strict=True))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return sparse.csr_array((distances, columns, indptr), shape=(len(counts), n))


def checked_bits(bits: ArrayLike) -> NDArray[np.uint8]:
    """Turn hashes into a matrix of bytes.

    Args:
        bits: shape (n, L), 0 or 1, L in 1..32768.

    Returns:
        Shape (n, L), uint8.

    Raises:
        ParameterError: another shape.
        DataError: an entry is neither 0 nor 1.
    """
    b = np.asarray(bits)
    if b.ndim != 2 or not 1 <= b.shape[1] <= MAX_HASH_BITS:
        raise ParameterError(
            f"bits have shape {b.shape}; (n, L) with L in 1..{MAX_HASH_BITS} is needed"
        )
    if b.dtype.kind not in "buif" or not ((b == 0) | (b == 1)).all():
        raise DataError("bits have an entry that is neither 0 nor 1")
    return b.astype(np.uint8, copy=False)


def _check_distances(H: NDArray[np.uint16], n_bits: int, k: int, ties: Ties) -> None:
    if H.ndim != 2 or H.shape[0] != H.shape[1]:
        raise ParameterError(f"H has shape {H.shape}; it must be square")
    if H.dtype != np.uint16:
        raise ParameterError(f"H has dtype {H.dtype}; it must be uint16")
    _check_choice(len(H), n_bits, k, ties)


def _check_choice(n: int, n_bits: int, k: int, ties: Ties) -> None:
    _check_bits(n_bits)
    if not isinstance(k, int | np.integer) or not 1 <= k < n:
        raise ParameterError(f"k is {k}; with {n} points it must be an integer in 1..{n - 1}")
    if ties not in get_args(Ties):
        raise ParameterError(f"ties is {ties!r}; it must be one of {get_args(Ties)}")


def _check_bits(n_bits: int) -> None:
    if not isinstance(n_bits, int | np.integer) or not 1 <= n_bits <= MAX_HASH_BITS:
        raise ParameterError(f"n_bits is {n_bits}; it must be an integer in 1..{MAX_HASH_BITS}")
