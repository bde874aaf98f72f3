"""Hamming distances in the clear: the ideal functionality that every back end must equal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.products import exact_product

BLOCK_ROWS = 1024


def distances_between(
    left: NDArray[np.uint8],
    right: NDArray[np.uint8],
    progress: Callable[[str, int, int], None] | None = None,
) -> NDArray[np.uint16]:
    """Return the (n, m) Hamming distances between rows of 0/1 matrices (n, L) and (m, L).

    One float32 matrix product of ±1 vectors, ⟨u, v⟩ = L − 2h, exact because all partial sums are
    integers of at most L ≤ 2^15 < 2^24. `progress` is called after each block of rows.
    """
    n_bits = left.shape[1]
    u = 1 - 2 * left.astype(np.float32)
    v = u if right is left else 1 - 2 * right.astype(np.float32)
    distances = np.empty((len(u), len(v)), dtype=np.uint16)
    for start in range(0, len(u), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        first = start if right is left else 0  # the rest follows by symmetry
        distances[start:stop, first:] = (n_bits - exact_product(u[start:stop], v[first:].T)) / 2
        if right is left:
            distances[stop:, start:stop] = distances[start:stop, stop:].T
        if progress is not None:
            progress("distances", min(stop, len(u)), len(u))
    return distances
