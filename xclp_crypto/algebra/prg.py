"""Key derivation and the pseudo-random generator, which is AES-256 in counter mode.

    key (32 B) ──HKDF-SHA256, info = tag──▶ AES key ──CTR from counter 0──▶ words ──▶ residues

The result depends on the key, the tag, the modulus and the number of residues only: not on block
sizes, on the machine's byte order or on the NumPy version, so that two parties expand the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import index
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.ring import Residues, add_into, residue_dtype, subtract_from
from xclp_crypto.errors import ParameterError
from xclp_crypto.secret import Secret

KEY_BYTES = 32
MAX_DERIVED_BYTES = 255 * 32
"""The most that HKDF-SHA256 gives (RFC 5869, section 2.3)."""
MIN_SECRET_BYTES = 16
"""A secret below 128 bits cannot give a key of 128-bit strength."""

# Small enough for the caches, and a multiple of every word size; no result depends on it.
_BLOCK_BYTES = 1 << 17
_ZEROS = memoryview(bytes(_BLOCK_BYTES))  # whose slices are not copies


def derive_key(secret: bytes, tag: bytes, length: int = KEY_BYTES) -> bytes:
    """Derive a key for one purpose by HKDF-SHA256 without salt (RFC 5869).

    Args:
        secret: at least 16 bytes of key material, such as a shared Diffie–Hellman secret.
        tag: HKDF's `info`, from `domain_tag`.
        length: 1 … 8160 bytes.

    Returns:
        `length` bytes.

    Raises:
        ParameterError: a secret that is too short, or a length out of range.
    """
    if len(secret) < MIN_SECRET_BYTES:
        raise ParameterError(
            f"a secret must have at least {MIN_SECRET_BYTES} bytes, got {len(secret)}"
        )
    if not 1 <= length <= MAX_DERIVED_BYTES:
        raise ParameterError(f"length must be in 1 … {MAX_DERIVED_BYTES} bytes, got {length}")
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=tag).derive(secret)


class Keystream(Secret):
    """The AES-256-CTR keystream of one key from counter 0, read piece by piece.

    It is the lower layer of `stream` and `expand`: it binds no tag, and two objects of the same
    key give the same bytes.

    Args:
        aes_key: 32 bytes.

    Raises:
        ParameterError: another length.
    """

    __slots__ = ("_encryptor",)

    def __init__(self, aes_key: bytes) -> None:
        _check_key(aes_key)
        self._encryptor = Cipher(algorithms.AES(aes_key), modes.CTR(bytes(16))).encryptor()

    def read_into(self, out: NDArray[np.uint8]) -> None:
        """Fill a contiguous uint8 array of shape (n,) with the next n bytes (NIST SP 800-38A)."""
        view = out.data
        for start in range(0, len(view), len(_ZEROS)):
            part = view[start : start + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(part)], part)

    def add_to(self, data: NDArray[np.uint8]) -> None:
        """Add the next n bytes to such an array under XOR."""
        view = data.data
        self._encryptor.update_into(view, view)


def stream(key: bytes, tag: bytes, n_bytes: int) -> NDArray[np.uint8]:
    """Expand a key and a tag to pseudo-random bytes; a longer stream continues a shorter one.

    Args:
        key: 32 bytes.
        tag: from `domain_tag`; one tag for one use.
        n_bytes: at least 0.

    Returns:
        uint8, shape (n_bytes,).

    Raises:
        ParameterError: a key of another length, or a negative number of bytes.
    """
    (n,) = _shape((n_bytes,))
    keystream = _keystream(key, domain_tag("prg/stream", tag))
    out = np.empty(n, np.uint8)
    keystream.read_into(out)
    return out


def expand(key: bytes, tag: bytes, modulus: int, shape: int | tuple[int, ...]) -> Residues:
    """Expand a key and a tag to residues that are independent and uniform in Z_m.

    The stream, which is bound to the modulus as well, is read as little-endian words of w bits, the
    smallest of 8, 16, 32, 64 with m ≤ 2^w. A power of two keeps the low bits of every word. Another
    m accepts the words below ⌊2^w/m⌋·m, in order, and takes them mod m: exactly uniform.

    Args:
        key: 32 bytes.
        tag: from `domain_tag`; one tag for one use.
        modulus: 1 ≤ m ≤ 2^64.
        shape: of the result; zeros are allowed. A smaller result is a prefix of a larger one.

    Returns:
        `residue_dtype(modulus)`, in the given shape (row-major).

    Raises:
        ParameterError: a key, modulus or shape out of range.

    Examples:
        >>> from xclp_crypto.algebra.domain_tags import domain_tag
        >>> from xclp_crypto.algebra.prg import derive_key, expand
        >>> key = derive_key(bytes(32), domain_tag("example key"))  # of a shared secret
        >>> expand(key, domain_tag("example"), 10, 5).tolist()
        [6, 9, 4, 2, 1]
    """
    dtype = residue_dtype(modulus)
    dims = _shape(shape)
    keystream = _keystream(key, domain_tag("prg/expand", tag, int(modulus)))
    out = np.empty(math.prod(dims), dtype)
    if modulus == 1 << (8 * dtype.itemsize):
        # Every word is a residue, so the stream is read straight into the result.
        keystream.read_into(out.view(np.uint8))
        _from_little_endian(out)
    else:
        done = 0
        for block in _blocks(keystream, int(modulus), len(out), dtype):
            out[done : done + len(block)] = block
            done += len(block)
    return out.reshape(dims)


def accumulate(
    total: Residues, key: bytes, tag: bytes, modulus: int, *, subtract: bool = False
) -> None:
    """Add `expand(key, tag, modulus, total.shape)` to residues in place, modulo m, or subtract it.

    The expansion is made and added piece by piece in the caches, so nothing of the size of `total`
    is allocated.

    Args:
        total: `residue_dtype(modulus)`, any shape, C-contiguous and writeable, every value below m.
        key: 32 bytes.
        tag: from `domain_tag`; one tag for one use.
        modulus: 1 ≤ m ≤ 2^64.
        subtract: subtract instead.

    Raises:
        ParameterError: a key or modulus out of range, another dtype, or an array that is not
            C-contiguous and writeable.
    """
    dtype = residue_dtype(modulus)
    if total.dtype != dtype or not total.flags.carray:
        raise ParameterError(
            f"accumulating residues modulo {modulus} takes a writeable C-contiguous array of "
            f"{dtype}, got dtype {total.dtype} and strides {total.strides}"
        )
    keystream = _keystream(key, domain_tag("prg/expand", tag, int(modulus)))
    combine = subtract_from if subtract else add_into
    flat = total.reshape(-1)
    done = 0
    for block in _blocks(keystream, int(modulus), len(flat), dtype):
        combine(flat[done : done + len(block)], block, int(modulus))
        done += len(block)


def _blocks(
    keystream: Keystream, m: int, n: int, dtype: np.dtype[np.unsignedinteger[Any]]
) -> Iterator[Residues]:
    """Yield n residues piece by piece; each piece overwrites the one before."""
    n_words = 1 << (8 * dtype.itemsize)
    limit = n_words // m * m

    def words_for(n: int) -> int:
        """Words of which n are most likely accepted, so that a small request takes one piece."""
        return n if limit == n_words else int(n * n_words / limit * 1.02) + 32

    buffer = np.empty(min(_BLOCK_BYTES // dtype.itemsize, words_for(n)), dtype)
    while n:
        block = buffer[: words_for(n)]
        keystream.read_into(block.view(np.uint8))
        _from_little_endian(block)
        if m < limit == n_words:
            block &= dtype.type(m - 1)
        elif limit < n_words:
            block = block[block < dtype.type(limit)][:n]
            if limit > m:
                # x − ⌊x/m⌋·m: NumPy vectorises the division by a scalar, but not the remainder.
                block -= block // dtype.type(m) * dtype.type(m)
        yield block
        n -= len(block)


def _from_little_endian(words: Residues) -> None:
    """Turn words that were just read into numbers, in place."""
    if not words.dtype.newbyteorder("<").isnative:
        words.byteswap(inplace=True)


def _keystream(key: bytes, tag: bytes) -> Keystream:
    _check_key(key)
    return Keystream(derive_key(key, tag))


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise ParameterError(f"a key must have {KEY_BYTES} bytes, got {len(key)}")


def _shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    try:
        dims = tuple(map(index, shape)) if isinstance(shape, tuple) else (index(shape),)
    except TypeError:
        raise ParameterError(
            f"a shape must be an integer or a tuple of them, got {shape!r}"
        ) from None
    if any(n < 0 for n in dims):
        raise ParameterError(f"a shape must not be negative, got {shape!r}")
    return dims
