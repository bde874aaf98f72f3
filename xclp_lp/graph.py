"""The neighbour graph of hashed points (paper, Algorithm 1, lines "A" to "𝒲")."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xclp_crypto.errors import ParameterError, ProtocolError
from xclp_crypto.params import MAX_HASH_BITS

Ties = Literal["all", "lowest-index"]

_FLOOR = 1e-100  # smaller weights count as 0: their square roots' products would lose precision
_BLOCK_ENTRIES = 1 << 22  # uint16 entries of one block of rows: 8 MiB
_NEVER = np.uint16(0xFFFF)  # beyond every distance


def neighbour_graph(
    H: NDArray[np.uint16],
    n_bits: int,
    k: int,
    *,
    gamma: float = 1.0,
    include_self: bool = False,
    ties: Ties = "all",
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

    Returns:
        Shape (n, n), float64, exactly symmetric, entries ≥ 0, spectral radius ≤ 1.

    Raises:
        ParameterError: a parameter is out of range.
        ProtocolError: a distance exceeds L.

    Source: paper §4.1, Algorithm 1; permutation-invariant tie rule ours.
    """
    table = similarity_table(n_bits, gamma)
    B = top_k(H, n_bits, k, include_self=include_self, ties=ties)
    B.data = table[B.data]
    B.eliminate_zeros()
    W = sparse.csr_array(B + B.T)
    W.sort_indices()
    # Every stored weight is at least _FLOOR, so rows with entries have a positive sum.
    root = np.sqrt(np.asarray(W.sum(axis=1), dtype=np.float64))
    W.data /= np.repeat(root, np.diff(W.indptr)) * root[W.indices]
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
) -> sparse.csr_array:
    """Select the k nearest points of each row, among those nearer than 90°.

    Args:
        H: shape (n, n), uint16: distances in 0..L; not modified.
        n_bits: L, in 1..32768.
        k: in 1..n-1.
        include_self: whether the diagonal takes part.
        ties: see `neighbour_graph`.

    Returns:
        Shape (n, n), uint16: the distances of the selected points (stored zeros are meant).

    Raises:
        ParameterError: a parameter is out of range.
        ProtocolError: a distance exceeds L.
    """
    _check_bits(n_bits)
    if H.ndim != 2 or H.shape[0] != H.shape[1]:
        raise ParameterError(f"H has shape {H.shape}; it must be square")
    if H.dtype != np.uint16:
        raise ParameterError(f"H has dtype {H.dtype}; it must be uint16")
    n = len(H)
    if not isinstance(k, int | np.integer) or not 1 <= k < n:
        raise ParameterError(f"k is {k}; with {n} points it must be an integer in 1..{n - 1}")
    if ties not in get_args(Ties):
        raise ParameterError(f"ties is {ties!r}; it must be one of {get_args(Ties)}")

    farthest = np.uint16((n_bits - 1) // 2)  # the largest h with 2h < L
    counts: list[NDArray[np.intp]] = []
    indices: list[NDArray[np.intp]] = []
    distances: list[NDArray[np.uint16]] = []
    step = max(1, _BLOCK_ENTRIES // n)
    for start in range(0, n, step):
        block = H[start : start + step]
        if block.max() > n_bits:
            i, j = (int(x) for x in np.argwhere(block > n_bits)[0])
            raise ProtocolError(
                f"distance {block[i, j]} between points {start + i} and {j} exceeds {n_bits} bits: "
                "some party did not follow the protocol"
            )
        if not include_self:
            block = block.copy()
            rows = np.arange(len(block))
            block[rows, start + rows] = _NEVER
        keep = _nearest(block, k, farthest, ties)
        counts.append(keep.sum(axis=1))
        indices.append(np.nonzero(keep)[1])
        distances.append(block[keep])
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    parts = (np.concatenate(distances), np.concatenate(indices), indptr)
    return sparse.csr_array(parts, shape=(n, n))


def _nearest(
    block: NDArray[np.uint16], k: int, farthest: np.uint16, ties: Ties
) -> NDArray[np.bool_]:
    """Mark the k smallest entries of each row that do not exceed `farthest`."""
    kth = np.partition(block, k - 1, axis=1)[:, k - 1 : k]
    if ties == "all":
        everyone: NDArray[np.bool_] = block <= np.minimum(kth, farthest)
        return everyone
    nearer = block < kth
    tied = block == kth
    room = k - nearer.sum(axis=1, keepdims=True)
    chosen: NDArray[np.bool_] = nearer | (tied & (tied.cumsum(axis=1) <= room))
    return chosen & (block <= farthest)


def _check_bits(n_bits: int) -> None:
    if not isinstance(n_bits, int | np.integer) or not 1 <= n_bits <= MAX_HASH_BITS:
        raise ParameterError(f"n_bits is {n_bits}; it must be an integer in 1..{MAX_HASH_BITS}")
