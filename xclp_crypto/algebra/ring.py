"""Arithmetic modulo any m up to 2^64 on NumPy arrays, and how many bytes a residue takes.

    a + b mod 2^w: the words wrap by themselves            a + b mod 2^k, k < w: then the low k bits
    a − b mod m:   a − b mod 2^w, plus m where a < b       a + b mod m:          a − (m − b)

w is the width of the smallest dtype that holds 0 … m−1. Nothing is widened, so a + b ≥ 2^64 for
2^63 < m < 2^64 is right as well.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError

MAX_MODULUS = 1 << 64

Residues: TypeAlias = NDArray[np.unsignedinteger[Any]]

_WIRE_BYTES = (1, 2, 3, 4, 5, 8)
"""The widths that `fields.Uints` writes."""


def residue_dtype(modulus: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Give the smallest unsigned dtype that holds 0 … m−1.

    Args:
        modulus: 1 ≤ m ≤ 2^64.

    Raises:
        ParameterError: another modulus.
    """
    if not isinstance(modulus, int | np.integer) or isinstance(modulus, bool):
        raise ParameterError(f"modulus must be an integer, got {type(modulus).__name__}")
    if not 1 <= modulus <= MAX_MODULUS:
        raise ParameterError(f"modulus must be in 1 … 2^64, got {modulus}")
    for dtype in (np.uint8, np.uint16, np.uint32):
        if modulus <= 1 << (8 * dtype().itemsize):
            return np.dtype(dtype)
    return np.dtype(np.uint64)


def wire_bytes(modulus: int) -> int:
    """Give the smallest of 1, 2, 3, 4, 5 and 8 bytes that holds m−1.

    Args:
        modulus: 1 ≤ m ≤ 2^64.

    Raises:
        ParameterError: another modulus.
    """
    residue_dtype(modulus)
    return next(n for n in _WIRE_BYTES if modulus <= 1 << 8 * n)


def add_into(total: Residues, other: Residues, modulus: int) -> None:
    """Add residues to residues in place, modulo m.

    Args:
        total: `residue_dtype(m)`, any shape, every value below m; becomes total + other mod m.
        other: the same dtype and shape, every value below m; left as it is.
        modulus: 1 ≤ m ≤ 2^64. A power of two makes no temporary array, another m two of this size.

    Raises:
        ParameterError: a modulus out of range, or a dtype or shape that does not fit.

    Examples:
        >>> from xclp_crypto.algebra.ring import add_into
        >>> total = np.array([3, 9], np.uint8)
        >>> add_into(total, np.array([4, 5], np.uint8), 10)
        >>> total
        array([7, 4], dtype=uint8)
    """
    dtype = _check(total, other, modulus)
    if modulus & (modulus - 1):
        m = dtype.type(modulus)
        _subtract(total, np.subtract(m, other), m)
    else:
        np.add(total, other, out=total)
        _keep_low_bits(total, modulus)


def subtract_from(total: Residues, other: Residues, modulus: int) -> None:
    """Subtract residues from residues in place, modulo m.

    Args:
        total: as for `add_into`; becomes total − other mod m.
        other: as for `add_into`.
        modulus: as for `add_into`.

    Raises:
        ParameterError: a modulus out of range, or a dtype or shape that does not fit.
    """
    dtype = _check(total, other, modulus)
    if modulus & (modulus - 1):
        _subtract(total, other, dtype.type(modulus))
    else:
        np.subtract(total, other, out=total)
        _keep_low_bits(total, modulus)


def _subtract(total: Residues, other: Residues, m: np.unsignedinteger[Any]) -> None:
    """Replace total by total − other mod m, for other ≤ m."""
    borrow = np.less(total, other)
    np.subtract(total, other, out=total)
    np.add(total, np.multiply(borrow, m), out=total)


def _keep_low_bits(total: Residues, modulus: int) -> None:
    if modulus < 1 << (8 * total.dtype.itemsize):
        np.bitwise_and(total, total.dtype.type(modulus - 1), out=total)


def _check(total: Residues, other: Residues, modulus: int) -> np.dtype[np.unsignedinteger[Any]]:
    dtype = residue_dtype(modulus)
    if total.dtype != dtype or other.dtype != dtype:
        raise ParameterError(
            f"residues modulo {modulus} have dtype {dtype}, got {total.dtype} and {other.dtype}"
        )
    if total.shape != other.shape:
        raise ParameterError(f"residues of shapes {total.shape} and {other.shape} do not add up")
    return dtype
