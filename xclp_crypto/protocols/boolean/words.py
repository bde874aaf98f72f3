"""Bit-sliced words: one bit of 64 values in a word, so that a gate works on 64 values at once.

A *plane* is one bit of every value, (⌈n/64⌉,) words; the value i is bit i mod 64 of word ⌊i/64⌋,
its *lane*. Numbers are planes stacked along the first axis, the lowest bit first. Lanes from n on
are padding: gates compute on them as on others, and `from_planes` drops them.
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
    """Return how many words hold one bit of so many values: ⌈n/64⌉."""
    return -(-values // WORD_BITS)


def check_width(width: int) -> None:
    """Refuse, by a `ParameterError`, a number of bits that is not in 1 … 64."""
    if not 1 <= width <= MAX_WIDTH:
        raise ParameterError(f"numbers have 1 to {MAX_WIDTH} bits, got {width}")


def bits_to_words(bits: NDArray[Any]) -> Words:
    """Pack booleans, (…, n), to words, (…, ⌈n/64⌉); what is not zero counts as one."""
    packed = np.packbits(bits, axis=-1, bitorder="little")
    n_bytes = WORD.itemsize * words_for(bits.shape[-1])
    if packed.shape[-1] != n_bytes:
        padded = np.zeros((*packed.shape[:-1], n_bytes), np.uint8)
        padded[..., : packed.shape[-1]] = packed
        packed = padded
    return packed.view(WORD)


def words_to_bits(words: Words, values: int) -> NDArray[np.bool_]:
    """Return the bits, (…, values), of words, (…, ⌈values/64⌉)."""
    flat = np.ascontiguousarray(words, WORD).view(np.uint8)
    return np.unpackbits(flat, axis=-1, count=values, bitorder="little").view(np.bool_)


def to_planes(values: NDArray[Any], width: int) -> Words:
    """Slice numbers to planes.

    Args:
        values: (…, n), of an unsigned dtype; only the low `width` bits count.
        width: 1 … 64.

    Returns:
        (width, …, ⌈n/64⌉) words, the lowest bit first.

    Raises:
        ParameterError: another dtype or width.
    """
    check_width(width)
    if values.dtype.kind != "u":
        raise ParameterError(f"numbers to slice are unsigned integers, got {values.dtype}")
    planes = np.zeros((width, *values.shape[:-1], words_for(values.shape[-1])), WORD)
    ordered = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    octets = ordered.view(np.uint8).reshape(*values.shape, values.dtype.itemsize)
    for first in range(0, min(width, 8 * values.dtype.itemsize), 8):
        octet = np.ascontiguousarray(octets[..., first // 8])
        for bit in range(min(8, width - first)):
            planes[first + bit] = bits_to_words(octet & np.uint8(1 << bit))
    return planes


def from_planes(planes: Words, values: int) -> NDArray[np.uint64]:
    """Return the numbers, (…, values) uint64, of planes, (width, …, ⌈values/64⌉)."""
    total = np.zeros((*planes.shape[1:-1], values), np.uint64)
    for bit, plane in enumerate(planes):
        total |= words_to_bits(plane, values).astype(np.uint64) << np.uint64(bit)
    return total
