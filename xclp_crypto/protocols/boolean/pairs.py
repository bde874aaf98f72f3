"""A symmetric matrix in shares: every pair is converted once, and laid out for the rows of both.

Of n rows, plane d − 1 of the *pairs*, d = 1 … ⌊n/2⌋, has the pair {i, i + d mod n} in lane i. Plane
c − 1 of the *offsets*, c = 1 … n − 1, has candidate i + c mod n of row i in lane i; up to ⌊n/2⌋ it
is the plane of pairs, and then that of d = n − c, rotated by d lanes, which each party does with
its own share.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.boolean.words import (
    WORD,
    WORD_BITS,
    Words,
    require_integer,
    require_lanes,
    require_numbers,
    require_words,
    words_for,
)


def matrix_to_pairs(matrix: NDArray[Any]) -> NDArray[Any]:
    """Return the pairs of a symmetric matrix, such as one party's addends of one.

    Args:
        matrix: (n, n) of an unsigned dtype, of which only what is above the diagonal counts.

    Returns:
        (⌊n/2⌋, n), for `to_boolean`. If n is even, the last plane has each of its pairs twice.

    Raises:
        ParameterError: the matrix is not a square array of an unsigned dtype.

    Examples:
        >>> from xclp_crypto.protocols.boolean import matrix_to_pairs
        >>> distances = np.array([[0, 5, 2], [5, 0, 9], [2, 9, 0]], np.uint8)
        >>> matrix_to_pairs(distances).tolist()  # rows 0 and 1, 1 and 2, 2 and 0
        [[5, 9, 2]]
    """
    require_numbers(matrix)
    if matrix.ndim != 2 or len(matrix) != matrix.shape[1]:
        raise ParameterError(f"a square array is needed, got shape {matrix.shape}")
    n = len(matrix)
    upper = np.triu(matrix, 1)
    upper |= upper.T.copy()
    wide = np.concatenate([upper, upper[:, : n // 2]], axis=1)  # j + n is j
    row, column = wide.strides
    slanted = as_strided(wide[:, 1:], (n, n // 2), (row + column, column))  # at i, d − 1: i + d
    return np.ascontiguousarray(slanted.T)


def pairs_to_offsets(pairs: Words, n: int) -> Words:
    """Lay the planes of pairs out for the rows of both.

    Args:
        pairs: (…, ⌊n/2⌋, ⌈n/64⌉) words.
        n: how many rows, at least 1.

    Returns:
        (…, n − 1, ⌈n/64⌉) words, padding zero in those that are rotated.

    Raises:
        ParameterError: not words, or not as many as so many rows take.
    """
    require_words("pairs", pairs, 2)
    n = require_integer("n", n, 1)
    if require_lanes(pairs, n) // 2 != pairs.shape[-2]:
        raise ParameterError(f"{n} rows have {n // 2} planes of pairs, got {pairs.shape[-2]}")
    turned = np.arange((n - 1) // 2, 0, -1)  # d of the offsets that are rotated
    return np.concatenate([pairs, _rotated(pairs[..., turned - 1, :], turned, n)], axis=-2)


def _rotated(planes: Words, by: NDArray[np.int64], n: int) -> Words:
    """Move the n lanes of each plane up, cyclically, by a number of its own in 1 … n − 1.

    Args:
        planes: (…, planes, ⌈n/64⌉).
        by: (planes,).
        n: how many lanes.
    """
    size, left = words_for(n), n % WORD_BITS
    ring = planes.copy()
    if left:
        ring[..., -1] &= np.uint64((1 << left) - 1)
    # The ring twice in a row, and zeros: what starts n − by lanes into it is the ring, rotated.
    twice = np.zeros((*planes.shape[:-1], 2 * size + 1), WORD)
    twice[..., :size] = ring
    at = n // WORD_BITS
    twice[..., at : at + size] |= ring << np.uint64(left)
    if left:
        twice[..., at + 1 : at + 1 + size] |= ring >> np.uint64(WORD_BITS - left)
    first, shift = np.divmod(n - by, WORD_BITS)
    low = first[:, None] + np.arange(size)
    rows = np.arange(len(by))[:, None]
    down = shift.astype(np.uint64)[:, None]
    found: Words = twice[..., rows, low] >> down
    found |= twice[..., rows, low + 1] << np.uint64(1) << (np.uint64(WORD_BITS - 1) - down)
    if left:
        found[..., -1] &= np.uint64((1 << left) - 1)
    return found


def offsets_to_matrix(bits: NDArray[Any]) -> NDArray[Any]:
    """Return by candidate what `words_to_bits` gives by offset.

    Args:
        bits: (n − 1, n), by offset and row.

    Returns:
        (n, n): what is said of row i and candidate j; zeros on the diagonal.

    Raises:
        ParameterError: another shape.

    Examples:
        >>> from xclp_crypto.protocols.boolean import offsets_to_matrix
        >>> offsets_to_matrix(np.array([[1, 0, 0], [0, 1, 0]])).tolist()  # 0's 1 and 1's 0
        [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    """
    if bits.ndim != 2 or len(bits) != bits.shape[1] - 1:
        raise ParameterError(f"bits of n − 1 offsets and n rows are needed, got {bits.shape}")
    matrix = np.zeros((bits.shape[1],) * 2, bits.dtype)
    i = np.arange(len(matrix))
    matrix[i, (i + i[1:, None]) % len(matrix)] = bits
    return matrix
