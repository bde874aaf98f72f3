"""What OT extension does to many bits at once: transposing, hashing, packing.

All functions are exact and data-independent in their control flow; NumPy and Python promise no
constant time. Words are little-endian, bit 0 first, so that results are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from xclp_crypto.errors import DecodeError
from xclp_crypto.fields import pack, packed_size, unpack
from xclp_crypto.secret import Secret

WORD: Final = np.dtype("<u8")
LANE: Final = np.dtype("<u2")
LANE_BITS: Final = 16
WORD_BITS: Final = 64
BLOCK_BYTES: Final = 16
BLOCK_LANES: Final = 8
"""16-bit lanes in one block of hash output."""

Lane = TypeVar("Lane", np.uint16, np.uint32, np.uint64)

_ITEM = np.dtype(np.complex128)
"""Sixteen bytes that NumPy copies at once; they are never computed with."""

_GROUP_ROWS = 8192
_CONTAINER = 16
# Zero-dimensional arrays: NumPy converts scalars anew at every call, which costs as much as a call.
_SWAPS = tuple(
    (j, np.array(j, WORD), np.array(sum(((1 << j) - 1) << 2 * j * i for i in range(32 // j)), WORD))
    for j in (32, 16, 8, 4, 2, 1)
)


def transpose(columns: NDArray[np.uint64], rows: NDArray[np.uint64]) -> None:
    """Transpose a bit matrix of 128 columns, which is overwritten.

    Recursive block swaps (Hacker's Delight, section 7-3) on 64 × 64 blocks, all of them at once.

    Args:
        columns: (128, W); bit i of word w in column c is bit c of row (i, w).
        rows: filled with the 128 bits of every row, (64, W, 2).
    """
    width = columns.shape[1]
    buffer = np.empty((64, width), WORD)
    for j, shift, low in _SWAPS:
        pairs = columns.reshape(64 // j, 2, j, width)
        upper, lower, swap = pairs[:, 0], pairs[:, 1], buffer.reshape(64 // j, j, width)
        np.right_shift(upper, shift, out=swap)
        swap ^= lower
        swap &= low
        lower ^= swap
        swap <<= shift
        upper ^= swap
    rows[:, :, 0], rows[:, :, 1] = columns[:64], columns[64:]


class RobustHash:
    """A tweakable correlation-robust hash from AES-128 under one public key.

    With π the permutation AES_key, H(x, i) = π(y ⊕ i) ⊕ y, where the tweak i is the index of the
    transfer and the number of the block, 64 bits each, and y is one of these:

    - y = π(x), TMMO of Guo, Katz, Wang and Yu (IEEE S&P 2020). It is tweakable circular correlation
      robust in the random-permutation model, also for x that the adversary chooses, as a malicious
      receiver does. The second call costs one AES per row, whatever the length.
    - y = x where rows are pseudo-random, as those of semi-honest receivers, t ⊕ r·s: H is then
      their MMO, π(z) ⊕ z, at z = x ⊕ i and with a public i added, which is correlation robust as
      long as all z of a session differ. Two rows that the adversary chose could have
      x ⊕ i = x' ⊕ i' and so outputs with a known difference; rows of a stream have with 2^-128.

    With q blocks of output and p evaluations of π by the adversary its advantage is of the order of
    (pq + q²)/2^128.

    Args:
        key: 16 bytes, public, another one for every sender, receiver and session.
    """

    def __init__(self, key: bytes) -> None:
        # One fixed block cipher as a permutation; no message is ever encrypted in this mode.
        self._encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305

    def permute(self, blocks: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return π of every block of two words."""
        n_bytes = blocks.nbytes
        out = np.empty(n_bytes + BLOCK_BYTES, np.uint8)  # the library demands 15 bytes to spare
        self._encryptor.update_into(blocks.reshape(-1).view(np.uint8).data, out.data)
        return out[:n_bytes].view(WORD).reshape(blocks.shape)


class HashPoints(Secret):
    """Rows that are ready to be hashed to any length.

    Args:
        hash_: the hash.
        points: (m, 2), y of the rows; see `RobustHash`.
        start: the index of the first transfer.
    """

    def __init__(self, hash_: RobustHash, points: NDArray[np.uint64], start: int) -> None:
        self._hash = hash_
        self._points = points
        self._start = start

    def __len__(self) -> int:
        return len(self._points)

    def part(self, first: int, stop: int) -> HashPoints:
        """Return rows first … stop−1."""
        return HashPoints(self._hash, self._points[first:stop], self._start + first)

    def blocks(self, first: int, stop: int) -> NDArray[np.uint64]:
        """Return blocks first … stop−1 of every row's output, (stop − first, m, 2)."""
        y = self._points
        tweaked = np.empty((stop - first, *y.shape), WORD)
        tweaked[0] = y
        tweaked[0, :, 0] ^= np.arange(self._start, self._start + len(y), dtype=WORD)
        if stop > 1:  # the number of block 0 changes nothing
            tweaked[1:, :, 0] = tweaked[0, :, 0]
            number = np.arange(first, stop, dtype=WORD)[:, None]
            np.bitwise_xor(y[:, 1], number, out=tweaked[:, :, 1])
        out = self._hash.permute(tweaked)
        out ^= y
        return out

    def lanes(self, first: int, stop: int, dtype: np.dtype[Any] = LANE) -> NDArray[Any]:
        """Return the same blocks as lanes of a type, by default (stop − first, m, 8) uint16."""
        return self.blocks(first, stop).view(dtype)

    @property
    def rows(self) -> NDArray[np.uint64]:
        """Return what was to be hashed, (m, 2)."""
        return self._points

    def bits(self) -> NDArray[np.uint64]:
        """Return the first bit of every row's output, in the words of `to_words`."""
        low = np.empty(len(self), np.uint8)
        for begin in range(0, len(self), _GROUP_ROWS):
            blocks = self.part(begin, begin + _GROUP_ROWS).blocks(0, 1).view(np.uint8)
            low[begin : begin + _GROUP_ROWS] = blocks.reshape(-1, BLOCK_BYTES)[:, 0]
        low &= 1
        return to_words(low, -(-len(low) // WORD_BITS))

    def write_bytes(self, out: NDArray[np.uint8]) -> None:
        """Fill `out`, (m, length), with the first bytes of every row's output."""
        n_blocks, rest = -(-out.shape[1] // BLOCK_BYTES), out.shape[1] % BLOCK_BYTES
        for begin in range(0, len(self), _GROUP_ROWS):
            rows, target = self.part(begin, begin + _GROUP_ROWS), out[begin : begin + _GROUP_ROWS]
            got = np.empty((len(rows), n_blocks), _ITEM) if rest else target.view(_ITEM)
            step = group_size(len(rows))
            for first in range(0, n_blocks, step):
                stop = min(first + step, n_blocks)
                got[:, first:stop] = rows.blocks(first, stop).view(_ITEM)[:, :, 0].T
            if rest:
                target[:] = got.view(np.uint8)[:, : out.shape[1]]


def to_words(bits: NDArray[np.bool_] | NDArray[np.uint8], words: int) -> NDArray[np.uint64]:
    """Pack zeros and ones into words, l as bit ⌊l/words⌋ of word l mod words; the rest is zeros.

    So a column of bits is turned into rows in this order by `transpose`, without another pass over
    memory.
    """
    padded = np.zeros((8, 8, words), np.uint8)
    padded.reshape(-1)[: len(bits)] = bits
    packed = padded[:, 7].copy()
    for bit in reversed(range(7)):
        packed <<= 1
        packed |= padded[:, bit]
    return np.ascontiguousarray(packed.T).view(WORD)[:, 0]


def group_size(count: int) -> int:
    """Return how many blocks of `count` rows to work on at once: about 128 KiB, for the caches."""
    return max(1, _GROUP_ROWS // max(1, count))


def lane_type(width: int) -> np.dtype[Any]:
    """Return the type of the lanes for residues of so many bits: of 16, 32 or 64 bits."""
    return LANE if width <= 16 else np.dtype("<u4") if width <= 32 else WORD


def lane_groups(
    flat: NDArray[Lane], count: int, lanes: int
) -> Iterator[tuple[int, int, NDArray[Lane]]]:
    """Walk over a vector payload in the order in which it is hashed and sent.

    The order is by block, of eight lanes of 16 bits, four of 32 or two of 64, then by transfer,
    then by lane; the last block has the lanes that are left.

    Args:
        flat: (count·lanes,), all residues.
        count: m, the number of transfers.
        lanes: n, the residues of each.

    Yields:
        First block, stop, and the view of their residues, (blocks, count, lanes of a block).
    """
    in_block = BLOCK_BYTES // flat.itemsize
    whole, rest = divmod(lanes, in_block)
    step, size = group_size(count), count * in_block
    for first in range(0, whole, step):
        stop = min(first + step, whole)
        part = flat[first * size : stop * size]
        yield first, stop, part.reshape(stop - first, count, in_block)
    if rest:
        yield whole, whole + 1, flat[whole * size :].reshape(1, count, rest)


@cache
def _pieces(width: int) -> tuple[tuple[int, int, int, int, int], ...]:
    """Cut w·(16−w) spare bits in w planes, and as many bits of 16−w residues, at both borders.

    Returns:
        Tuples of plane, residue, bit in the residue, bit in the plane, number of bits.
    """
    spare, pieces, at = _CONTAINER - width, [], 0
    while at < width * spare:
        plane, residue = at // spare, at // width
        stop = min((plane + 1) * spare, (residue + 1) * width)
        pieces.append(
            (plane, width + residue, at - residue * width, width + at - plane * spare, stop - at)
        )
        at = stop
    return tuple(pieces)


def _shift(bits: int) -> NDArray[np.uint16]:
    return np.array(bits, LANE)


def _mask(bits: int) -> NDArray[np.uint16]:
    return np.array((1 << bits) - 1, LANE)


def pack_planes(values: NDArray[np.uint16], width: int) -> tuple[memoryview, bytes]:
    """Pack residues modulo 2^w to ⌈count·w/8⌉ bytes in two pieces, fast for many of them.

    The residues are cut into 16 equal planes. The first w planes keep their 16-bit containers, and
    the other 16−w planes fill the 16−w spare bits of those. The up to 15 residues that are left
    over are packed as `fields.pack` does.

    Args:
        values: (count,) uint16; only the low w bits count.
        width: 1 ≤ w ≤ 16.
    """
    n = values.size // _CONTAINER
    planes = values[: n * _CONTAINER].reshape(_CONTAINER, n)
    out = planes[:width] & _mask(width)
    buffer = np.empty(n, LANE)
    for plane, residue, low, high, bits in _pieces(width):
        np.right_shift(planes[residue], _shift(low), out=buffer)
        buffer &= _mask(bits)
        buffer <<= _shift(high)
        out[plane] |= buffer
    tail = values[n * _CONTAINER :] & _mask(width)
    return out.astype(LANE, copy=False).reshape(-1).view(np.uint8).data, pack(tail, width)


def unpack_planes(data: bytes | memoryview, count: int, width: int) -> NDArray[np.uint16]:
    """Invert `pack_planes`; raises `DecodeError` for another length or padding bits not zero."""
    if len(data) != packed_size(count, width):
        raise DecodeError(f"{len(data)} bytes where {packed_size(count, width)} are expected")
    n = count // _CONTAINER
    body = 2 * width * n
    planes = np.frombuffer(data, LANE, width * n).reshape(width, n)
    out = np.empty(count, LANE)
    values = out[: n * _CONTAINER].reshape(_CONTAINER, n)
    np.bitwise_and(planes, _mask(width), out=values[:width])
    buffer = np.empty(n, LANE)
    for plane, residue, low, high, bits in _pieces(width):
        target = values[residue] if low == 0 else buffer
        np.right_shift(planes[plane], _shift(high), out=target)
        target &= _mask(bits)
        if low:
            buffer <<= _shift(low)
            values[residue] |= buffer
    out[n * _CONTAINER :] = unpack(memoryview(data)[body:], count - n * _CONTAINER, width)
    return out


class ColumnHash:
    """A universal hash of bit columns to 128 bits, linear over GF(2).

    GHASH (NIST SP 800-38D, section 6.4): a polynomial over GF(2^128) in the point AES_seed(0) with
    the column's blocks of 128 bits as coefficients, computed as the tags of AES-GCM, whose constant
    terms cancel. Two different columns of n blocks collide with probability (n + 1)/2^128 (McGrew
    and Viega, 2004), and any single block on its own makes the hash uniform if it is uniform, since
    it is multiplied by a power of the point.

    Args:
        seed: 16 bytes, drawn after the columns are fixed; public.
        n_bytes: length of a column, a multiple of 16.
    """

    def __init__(self, seed: bytes, n_bytes: int) -> None:
        self._aead = AESGCM(seed)
        self._constant = self._tag(bytes(n_bytes))

    def __call__(self, columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the hashes (c, 16) of columns (c, n_bytes)."""
        tags = b"".join(self._tag(column.tobytes()) for column in columns)
        hashes = np.frombuffer(tags, np.uint8).reshape(-1, BLOCK_BYTES)
        return hashes ^ np.frombuffer(self._constant, np.uint8)

    def _tag(self, column: bytes) -> bytes:
        # A fixed nonce: the key is public and nothing is encrypted or authenticated here.
        return self._aead.encrypt(bytes(12), b"", column)
