"""Bit-sliced words: one bit of 64 values in a word, so that a gate works on 64 values at once.

A *plane* is one bit of every value, (⌈n/64⌉,) words; the value i is bit i mod 64 of word ⌊i/64⌋,
its *lane*. Numbers are planes stacked along the first axis, the lowest bit first. Lanes from n on
are padding: gates compute on them as on others, and `from_planes` and `words_to_bits` drop them.

Read opened numbers by `from_planes`, and one opened plane, such as the result of a comparison, by
`words_to_bits`, whose sum counts its ones.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError

WORD: Final = np.dtype("<u8")
WORD_BITS: Final = 64
MAX_WIDTH: Final = 64

Words: TypeAlias = NDArray[np.uint64]
"""Words of 64 lanes; what their axes mean is said where they are used."""


def words_for(values: int) -> int:
    """Return how many words hold one bit of each of n values: ⌈n/64⌉.

    Raises:
        ParameterError: n is not an integer of at least 0.

    Examples:
        >>> from xclp_crypto.protocols.boolean import words_for
        >>> words_for(64), words_for(65)
        (1, 2)
    """
    return -(-require_integer("values", values) // WORD_BITS)


def require_integer(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """Return a public number as an int.

    Raises:
        ParameterError: it is not an integer, or out of range.
    """
    limits = f"of at least {least}" if most is None else f"in {least} … {most}"
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        found = repr(value) if isinstance(value, float | bool) else _described(value)
        raise ParameterError(f"{name} must be an integer {limits}, got {found}")
    if value < least or (most is not None and value > most):
        raise ParameterError(f"{name} must be an integer {limits}, got {value}")
    return int(value)


def _described(value: object) -> str:
    """Return of what kind an argument is, nothing of its contents."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__


def require_width(width: object) -> int:
    """Return the number of bits of a number, 1 … 64; see `require_integer`."""
    return require_integer("width", width, 1, MAX_WIDTH)


def require_words(name: str, words: object, axes: int = 1, advice: str = "") -> None:
    """Refuse what are not words.

    Args:
        name: what they are called.
        words: what must be an array of uint64.
        axes: how many axes it must have at least.
        advice: what to do, for the error.

    Raises:
        ParameterError: something else.
    """
    array = words if isinstance(words, np.ndarray) else np.empty(0)
    if array.ndim < axes or array.dtype.newbyteorder("<") != WORD:
        raise ParameterError(
            f"{name} must be an array of uint64 of {axes} or more axes, got "
            f"{_described(words)}{advice}"
        )


def require_planes(name: str, planes: Words, axes: int = 2) -> None:
    """Refuse, by a `ParameterError`, what are not the planes of numbers of 1 or more bits."""
    require_words(name, planes, axes, "; a single plane is given as plane[None]")
    if not len(planes):
        raise ParameterError(f"{name} must have 1 or more planes, got shape {planes.shape}")


def require_lanes(words: Words, values: object) -> int:
    """Return a number of values, and refuse one for which these are not as many words.

    Raises:
        ParameterError: it is not an integer of at least 0, or takes more or fewer words.
    """
    n = require_integer("values", values)
    if words.shape[-1] != words_for(n):
        raise ParameterError(
            f"{n} values take {words_for(n)} words, and the last axis has {words.shape[-1]}: "
            "give the number of values that were packed"
        )
    return n


def bits_to_words(bits: NDArray[Any]) -> Words:
    """Pack booleans to words; what is not zero counts as one.

    Args:
        bits: (…, n) booleans or integers.

    Returns:
        (…, ⌈n/64⌉) words.

    Raises:
        ParameterError: not an array of booleans or integers of 1 or more axes.
    """
    if not isinstance(bits, np.ndarray) or bits.dtype.kind not in "bui" or not bits.ndim:
        raise ParameterError(
            "bits must be an array of booleans or integers of 1 or more axes, got "
            f"{_described(bits)}"
        )
    packed = np.packbits(bits, axis=-1, bitorder="little")
    n_bytes = WORD.itemsize * words_for(bits.shape[-1])
    if packed.shape[-1] != n_bytes:
        padded = np.zeros((*packed.shape[:-1], n_bytes), np.uint8)
        padded[..., : packed.shape[-1]] = packed
        packed = padded
    return packed.view(WORD)


def words_to_bits(words: Words, values: int) -> NDArray[np.bool_]:
    """Return the bits of planes: how to read a plane that was opened.

    Args:
        words: (…, ⌈values/64⌉).
        values: n, as many as were packed.

    Returns:
        (…, values) bool.

    Raises:
        ParameterError: not words, or not as many as so many values take.

    Examples:
        >>> from xclp_crypto.protocols.boolean import bits_to_words, words_to_bits
        >>> words_to_bits(bits_to_words(np.array([True, False, True])), 3)
        array([ True, False,  True])
    """
    require_words("words", words)
    values = require_lanes(words, values)
    flat = np.ascontiguousarray(words, WORD).view(np.uint8)
    return np.unpackbits(flat, axis=-1, count=values, bitorder="little").view(np.bool_)


def require_numbers(values: object) -> None:
    """Refuse, by a `ParameterError`, what is not an array, (…, n), of an unsigned dtype."""
    if not isinstance(values, np.ndarray) or values.dtype.kind != "u" or not values.ndim:
        raise ParameterError(
            "numbers must be an array of unsigned integers of 1 or more axes, got "
            f"{_described(values)}; astype(np.uint64) makes one of whole numbers"
        )


def to_planes(values: NDArray[Any], width: int) -> Words:
    """Slice numbers to planes.

    Args:
        values: (…, n), an array of an unsigned dtype; only the low `width` bits count.
        width: 1 … 64.

    Returns:
        (width, …, ⌈n/64⌉) words, the lowest bit first.

    Raises:
        ParameterError: another dtype or width, or no axis.
    """
    width = require_width(width)
    require_numbers(values)
    planes = np.zeros((width, *values.shape[:-1], words_for(values.shape[-1])), WORD)
    ordered = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    octets = ordered.view(np.uint8).reshape(*values.shape, values.dtype.itemsize)
    for first in range(0, min(width, 8 * values.dtype.itemsize), 8):
        octet = np.ascontiguousarray(octets[..., first // 8])
        for bit in range(min(8, width - first)):
            planes[first + bit] = bits_to_words(octet & np.uint8(1 << bit))
    return planes


def from_planes(planes: Words, values: int) -> NDArray[np.uint64]:
    """Return the numbers of planes; `words_to_bits` reads a single plane, such as [x < y].

    Args:
        planes: (width, …, ⌈values/64⌉), the lowest bit first.
        values: n, as many as were sliced.

    Returns:
        (…, values) uint64.

    Raises:
        ParameterError: not 1 … 64 planes, or not of as many words as so many values take.

    Examples:
        >>> from xclp_crypto.protocols.boolean import from_planes, to_planes
        >>> planes = to_planes(np.array([5, 8, 300], np.uint16), width=10)
        >>> planes.shape, from_planes(planes, 3).tolist()
        ((10, 1), [5, 8, 300])
    """
    require_words("planes", planes, 2, "; read one plane by words_to_bits")
    require_width(len(planes))
    values = require_lanes(planes, values)
    total = np.zeros((*planes.shape[1:-1], values), np.uint64)
    for bit, plane in enumerate(planes):
        total |= words_to_bits(plane, values).astype(np.uint64) << np.uint64(bit)
    return total
