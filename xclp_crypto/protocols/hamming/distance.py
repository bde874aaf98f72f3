"""Hamming distances in the clear: the ideal functionality that every back end must equal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.products import exact_product

BLOCK_ROWS = 1024


def distances_between(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return the (n, m) Hamming distances between rows of 0/1 matrices (n, L) and (m, L).

    One float32 matrix product of ±1 vectors, ⟨u, v⟩ = L − 2h, exact because all partial sums are
    integers of at most L ≤ 2^15 < 2^24.

    Examples:
        >>> from xclp_crypto.protocols.hamming import distances_between
        >>> rows = np.array([[0, 1, 1], [0, 0, 0]], np.uint8)
        >>> distances_between(rows, rows)
        array([[0, 2],
               [2, 0]], dtype=uint16)
    """
    distances = np.empty((len(left), len(right)), dtype=np.uint16)
    if right is left:
        for start, rows in upper_distances(left):
            distances[start : start + len(rows), start:] = rows
            after = start + len(rows)
            distances[after:, start:after] = rows[:, len(rows) :].T
        return distances
    u, v = _signs(left), _signs(right)
    for start in range(0, len(u), BLOCK_ROWS):
        distances[start : start + BLOCK_ROWS] = _distances(u[start : start + BLOCK_ROWS], v)
    return distances


def upper_distances(rows: NDArray[np.uint8]) -> Iterator[tuple[int, NDArray[np.uint16]]]:
    """Yield blocks of the distances between rows of one matrix (n, L).

    Yields:
        The number i of the first row, and the distances of some rows from i on to all from i on.
    """
    u = _signs(rows)
    for start in range(0, len(u), BLOCK_ROWS):
        yield start, _distances(u[start : start + BLOCK_ROWS], u[start:])


def _signs(bits: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.subtract(1, 2 * bits.astype(np.int8), dtype=np.float32)


def _distances(u: NDArray[np.float32], v: NDArray[np.float32]) -> NDArray[np.uint16]:
    products = exact_product(u, v.T)
    np.subtract(u.shape[1], products, out=products)
    products *= np.float32(0.5)
    return products.astype(np.uint16)
