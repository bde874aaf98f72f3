"""Rows of bits as callers have them: an entry for each bit, or packed into words or bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.params import residue_width
from xclp_crypto.primitives.fixed_point import as_array

BitRows: TypeAlias = ArrayLike | Sequence[bytes]
"""(n, L) of 0/1; or packed, see `bit_rows`."""


def bit_rows(
    bits: BitRows, client: str, packed: int | None = None, *, masks: bool = False
) -> NDArray[np.uint8]:
    """Return rows as (n, L) uint8 of 0 and 1.

    *Packed* rows are n words, (n, words) words, or n `bytes` objects. Words are unsigned integers
    of w = 8, 16, 32 or 64 bits, ⌈L/w⌉ for each row, and the most significant bit comes first: bit l
    is the one of value 2^(w − 1 − l mod w) in word ⌊l/w⌋, on every machine. So bytes are those of
    `np.packbits`, and a hash of 64 bits is one number. What is left of the last word is 0.

    Args:
        bits: (n, L) integers or booleans; or packed rows.
        client: whose they are, for the errors.
        packed: L, if they are packed.
        masks: whether they say which bits are valid, for the errors.

    Raises:
        DataError: another shape or type, an entry that is neither 0 nor 1, or a packed row with
            ones from bit L on; names the client and the entry, and says how packed bits are passed.
        ParameterError: `packed` is not a number of bits in range.

    Examples:
        >>> import numpy as np
        >>> from xclp_crypto.protocols.hamming.rows import bit_rows
        >>> bit_rows([bytes([0xB0]), bytes([0x10])], "a", packed=4).tolist()
        [[1, 0, 1, 1], [0, 0, 0, 1]]
        >>> bit_rows(np.array([0xB << 60], np.uint64), "a", packed=4).tolist()
        [[1, 0, 1, 1]]
    """
    if packed is None:
        return _unpacked(as_array(bits, client), client, masks)
    if isinstance(packed, bool) or not isinstance(packed, int | np.integer):
        raise ParameterError(f"packed must be the number of bits of a row, got {packed!r}")
    residue_width(int(packed))
    words = _words(bits, client, int(packed), masks)
    raw = np.ascontiguousarray(words, words.dtype.newbyteorder(">")).view(np.uint8)
    rows = np.unpackbits(raw.reshape(len(words), words.shape[1] * words.dtype.itemsize), axis=1)
    beyond = np.flatnonzero(rows[:, packed:].any(axis=1))
    if len(beyond):
        where = _row(client, beyond[0], masks)
        raise DataError(f"{where}: has ones from bit {packed} on")
    return np.ascontiguousarray(rows[:, :packed])


def _row(client: str, row: int | np.intp, masks: bool) -> str:
    """Return how an error names a row."""
    return f"client {client!r}, {'mask' if masks else 'row'} {row}"


def _words(bits: BitRows, client: str, n_bits: int, masks: bool) -> NDArray[Any]:
    """Return packed rows as (n, words) unsigned integers."""
    if isinstance(bits, list | tuple) and all(isinstance(row, bytes) for row in bits):
        for i, row in enumerate(bits):
            _check_words(len(row), 8, n_bits, _row(client, i, masks))
        return np.frombuffer(b"".join(bits), np.uint8).reshape(len(bits), -(-n_bits // 8))
    words = as_array(bits, client)
    what = "masks" if masks else "bits"
    if words.dtype.kind != "u":
        raise DataError(
            f"client {client!r}: packed {what} must be unsigned integers or a list of bytes "
            f"objects, got {words.dtype}"
        )
    if words.ndim not in (1, 2):
        raise DataError(
            f"client {client!r}: packed {what} must have shape (rows,) or (rows, words), "
            f"got {words.shape}"
        )
    words = words[:, None] if words.ndim == 1 else words
    _check_words(words.shape[1], 8 * words.dtype.itemsize, n_bits, f"client {client!r}")
    return words


def _check_words(words: int, width: int, n_bits: int, where: str) -> None:
    """Refuse another number of words than L bits have."""
    if words != -(-n_bits // width):
        raise DataError(
            f"{where}: {n_bits} bits are {-(-n_bits // width)} words of {width} bits, and a row "
            f"has {words}"
        )


def _unpacked(array: NDArray[Any], client: str, masks: bool) -> NDArray[np.uint8]:
    """Check rows with an entry for each bit."""
    advice, what = "", "masks" if masks else "bits"
    if array.dtype.kind == "u" and array.ndim:
        rows = "x.reshape(len(x), -1)" if array.ndim > 2 else "x"
        advice = f"; if {what} x are packed, pass {rows} with packed=L, where L is at most "
        advice += str(8 * array.dtype.itemsize * int(np.prod(array.shape[1:])))
    if array.ndim != 2:
        raise DataError(
            f"client {client!r}: {what} must have shape (rows, bits), got {array.shape}{advice}"
        )
    if array.dtype.kind not in "biu":
        raise DataError(
            f"client {client!r}: {what} must be integers or booleans, got {array.dtype}"
        )
    wrong = np.argwhere((array != 0) & (array != 1))
    if len(wrong):
        row, column = (int(i) for i in wrong[0])
        raise DataError(f"{_row(client, row, masks)}, bit {column}: must be 0 or 1{advice}")
    return np.ascontiguousarray(array, dtype=np.uint8)
