"""Key derivation and the pseudo-random generator, which is AES-256 in counter mode.

    key (32 B) ──HKDF-SHA256, info = label──▶ AES key ──CTR from counter 0──▶ words ──▶ residues

The result depends on the key, the label, the modulus and the number of residues only: not on block
sizes, on the machine's byte order or on the NumPy version, so that two parties expand the same.
"""

from __future__ import annotations

import math
from operator import index
from typing import Any, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from xclp_crypto.algebra.labels import label
from xclp_crypto.errors import ParameterError
from xclp_crypto.secret import Secret

KEY_BYTES = 32
MAX_MODULUS = 1 << 64
MAX_DERIVED_BYTES = 255 * 32
"""The most that HKDF-SHA256 gives (RFC 5869, section 2.3)."""
MIN_SECRET_BYTES = 16
"""A secret below 128 bits cannot give a key of 128-bit strength."""

Residues: TypeAlias = NDArray[np.unsignedinteger[Any]]

# Small enough for the caches, and a multiple of every word size; no result depends on it.
_BLOCK_BYTES = 1 << 17
_ZEROS = bytes(_BLOCK_BYTES)


def derive_key(secret: bytes, lab: bytes, length: int = KEY_BYTES) -> bytes:
    """Derive a key for one purpose by HKDF-SHA256 without salt (RFC 5869).

    Args:
        secret: at least 16 bytes of key material, such as a shared Diffie–Hellman secret.
        lab: HKDF's `info`, from `label`.
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
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=lab).derive(secret)


class Keystream(Secret):
    """The AES-256-CTR keystream of one key from counter 0, read piece by piece.

    It is the lower layer of `stream` and `expand`: it binds no label, and two objects of the same
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


def stream(key: bytes, lab: bytes, n_bytes: int) -> NDArray[np.uint8]:
    """Expand a key and a label to pseudo-random bytes; a longer stream continues a shorter one.

    Args:
        key: 32 bytes.
        lab: from `label`; one label for one use.
        n_bytes: at least 0.

    Returns:
        uint8, shape (n_bytes,).

    Raises:
        ParameterError: a key of another length, or a negative number of bytes.
    """
    (n,) = _shape((n_bytes,))
    keystream = _keystream(key, label("prg/stream", lab))
    out = np.empty(n, np.uint8)
    keystream.read_into(out)
    return out


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


def expand(key: bytes, lab: bytes, modulus: int, shape: int | tuple[int, ...]) -> Residues:
    """Expand a key and a label to residues that are independent and uniform in Z_m.

    The stream, which is bound to the modulus as well, is read as little-endian words of w bits, the
    smallest of 8, 16, 32, 64 with m ≤ 2^w. A power of two keeps the low bits of every word. Another
    m accepts the words below ⌊2^w/m⌋·m, in order, and takes them mod m: exactly uniform.

    Args:
        key: 32 bytes.
        lab: from `label`; one label for one use.
        modulus: 1 ≤ m ≤ 2^64.
        shape: of the result; zeros are allowed. A smaller result is a prefix of a larger one.

    Returns:
        `residue_dtype(modulus)`, in the given shape (row-major).

    Raises:
        ParameterError: a key, modulus or shape out of range.
    """
    dtype = residue_dtype(modulus)
    dims = _shape(shape)
    keystream = _keystream(key, label("prg/expand", lab, int(modulus)))
    n = math.prod(dims)
    if modulus == 1:
        return np.zeros(dims, dtype)
    if modulus & (modulus - 1):
        flat = _by_rejection(keystream, int(modulus), n, dtype)
    else:
        flat = _words(keystream, n, dtype)
        if modulus < 1 << (8 * dtype.itemsize):
            flat &= dtype.type(modulus - 1)
    return flat.reshape(dims)


def _words(keystream: Keystream, n: int, dtype: np.dtype[np.unsignedinteger[Any]]) -> Residues:
    raw = np.empty(n * dtype.itemsize, np.uint8)
    keystream.read_into(raw)
    return raw.view(dtype.newbyteorder("<")).astype(dtype, copy=False)


def _by_rejection(
    keystream: Keystream, m: int, n: int, dtype: np.dtype[np.unsignedinteger[Any]]
) -> Residues:
    quotient = (1 << (8 * dtype.itemsize)) // m
    limit, acceptance = dtype.type(quotient * m), quotient * m / (1 << (8 * dtype.itemsize))
    out = np.empty(n, dtype)
    done = 0
    while done < n:
        # A few words more than expected, so that a small request is mostly served in one go.
        wanted = int((n - done) / acceptance * 1.02) + 32
        words = _words(keystream, min(wanted, _BLOCK_BYTES // dtype.itemsize), dtype)
        accepted = words[words < limit][: n - done]
        if quotient > 1:
            # x − ⌊x/m⌋·m: NumPy vectorises the division by a scalar, but not the remainder.
            accepted -= accepted // dtype.type(m) * dtype.type(m)
        out[done : done + len(accepted)] = accepted
        done += len(accepted)
    return out


def _keystream(key: bytes, lab: bytes) -> Keystream:
    _check_key(key)
    return Keystream(derive_key(key, lab))


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
