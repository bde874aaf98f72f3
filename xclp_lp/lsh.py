"""Locality-sensitive hashing, bit for bit the same on every machine (paper, appendix app:LSH).

A vector's bit l tells on which side of the random hyperplane with normal π_l it lies, and the
share of differing bits estimates the angle between two vectors. Parties on different machines
must get the same bits, so nothing here depends on rounding: the normals are integers (1024 times
a standard normal), vectors are rounded to integers after scaling by a power of two, and their
products stay below 2^53, where float64 arithmetic is exact in any order of summation.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import expand
from xclp_crypto.errors import DataError, ParameterError, XclpError
from xclp_crypto.params import MAX_HASH_BITS
from xclp_crypto.role import OnProgress

Projection = Literal["random", "tight-frame"]

MAX_FRAME_FEATURES = 1 << 12
"""Most features for a tight frame: its entries, sums of so many signs, must be below 2^13."""

MAX_FEATURES = 1 << 20
"""Most features per vector: beyond, fewer than 19 bits would be left for each of them."""

NORMAL_SCALE = 1024
"""Integer that stands for one standard deviation in a projection."""

_DRAWS = 1 << 16
_TABLE_SHA256 = "43cac0bc02e28dcb8d723a0bda6086917e65823ecfde49f9b9a886108fc0c950"
_PI_BITS = 13  # every table entry is below 2^13 in absolute value
_VECTOR_BITS = 30
_SUM_BITS = 52  # one bit below the 53 of float64, because |⟨π, v⟩| may touch the bound
_BLOCK_ENTRIES = 1 << 22  # float64 entries of one block of products: 32 MiB


def projection(
    seed: bytes, n_bits: int, n_features: int, kind: Projection = "random"
) -> NDArray[np.int16]:
    """Draw the hyperplane normals Π from the agreed seed.

    Args:
        seed: 32 bytes.
        n_bits: L, in 1..32768.
        n_features: d, in 1..2^20; with a tight frame in 1..2^12.
        kind: ``random`` draws independent normals, as the paper does. ``tight-frame`` draws them in
            blocks of m, the power of two from d on, and those of a block are orthogonal before
            they are cut to d features; of the last block as many as are needed.

    Returns:
        Shape (L, d), int16: in ±4429, 1024 times independent standard normals; or in ±m, with
        ΠᵀΠ a multiple of the identity where L is a multiple of m.

    Raises:
        ParameterError: a size is out of range.
        XclpError: this machine's inverse normal differs from the one that xclp is defined by.

    Source: Algorithm 1, line "Π"; Ji et al. 2012 (super-bit LSH) for orthogonal normals, and
    Andoni et al. 2015, arXiv:1509.02897, for Hadamard matrices between random signs.
    """
    _require_in_range("n_bits", n_bits, MAX_HASH_BITS)
    require_features(n_features, kind)
    if kind not in get_args(Projection):
        raise ParameterError(f"projection is {kind!r}; it must be one of {get_args(Projection)}")
    shape = int(n_bits), int(n_features)  # NumPy's integers do not belong into a domain tag
    if kind == "tight-frame":
        return _tight_frame(seed, *shape)
    draws = expand(seed, domain_tag("lsh projection", *shape), _DRAWS, shape)
    return inverse_normal_table()[draws]


def require_features(n_features: int, kind: Projection = "random") -> None:
    """Refuse vectors with more features than a projection can have.

    Raises:
        ParameterError: gives the most.
    """
    _require_in_range("n_features", n_features, MAX_FEATURES)
    if kind == "tight-frame" and n_features > MAX_FRAME_FEATURES:
        raise ParameterError(
            f"a tight frame has at most {MAX_FRAME_FEATURES} features, got {n_features}; use "
            "projection = 'random'"
        )


def _require_in_range(name: str, value: int, limit: int) -> None:
    if not isinstance(value, int | np.integer) or not 1 <= value <= limit:
        raise ParameterError(f"{name} is {value}; it must be an integer in 1..{limit}")


def _tight_frame(seed: bytes, n_bits: int, n_features: int) -> NDArray[np.int16]:
    """Draw blocks H·D₁·H·D₂ with Hadamard's matrix H and random signs D₁, D₂: exact integers.

    The second pair makes the normals look Gaussian, so that vectors with few features get bits as
    good as others.
    """
    m = 1 << (n_features - 1).bit_length()
    blocks = -(-n_bits // m)
    tag = domain_tag("lsh tight frame", n_bits, n_features)
    signs = 1 - 2 * expand(seed, tag, 2, (blocks, 2, m)).astype(np.int32)
    hadamard = np.ones((1, 1), dtype=np.int32)
    while len(hadamard) < m:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    frames = np.empty((blocks * m, n_features), dtype=np.int16)
    for block, (left, right) in enumerate(signs):
        rows = left[:, None] * hadamard[:, :n_features]
        width = 1
        while width < m:  # multiplies by H from the left in m·log m additions
            halves = rows.reshape(-1, 2, width, n_features)
            rows = np.stack([halves[:, 0] + halves[:, 1], halves[:, 0] - halves[:, 1]], axis=1)
            width *= 2
        frames[block * m : (block + 1) * m] = rows.reshape(m, n_features) * right[:n_features]
    return frames[:n_bits]


@cache
def inverse_normal_table() -> NDArray[np.int16]:
    """Tabulate the inverse normal distribution function for 16-bit draws (read-only).

    Returns:
        Shape (65536,), int16: round(1024·Φ⁻¹((u + ½)/65536)) for u = 0..65535.

    Raises:
        XclpError: the table's SHA-256 is not the constant; hashes would not match other parties'.
    """
    table = np.rint(_scaled_quantiles()).astype("<i2")
    digest = hashlib.sha256(table.tobytes()).hexdigest()
    if digest != _TABLE_SHA256:
        raise XclpError(
            f"scipy.special.ndtri gives a table with SHA-256 {digest} where xclp needs "
            f"{_TABLE_SHA256}; install another SciPy version"
        )
    native = table.astype(np.int16)
    native.setflags(write=False)
    return native


def _scaled_quantiles() -> NDArray[np.float64]:
    """Compute the table before rounding; no entry is within 1e-6 of a half-integer (tested)."""
    quantiles: NDArray[np.float64] = ndtri((np.arange(_DRAWS) + 0.5) / _DRAWS)
    return quantiles * NORMAL_SCALE


def projection_seed(random_state: int | None) -> bytes | None:
    """Return the 32-byte seed of the projection that `random_state` stands for, or None.

    Raises:
        ParameterError: neither None nor an integer ≥ 0.
    """
    if random_state is None:
        return None
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise ParameterError(f"random_state must be None or an integer, got {random_state!r}")
    if random_state < 0:
        raise ParameterError(f"random_state must not be negative, got {random_state}")
    return hashlib.sha256(domain_tag("random state", int(random_state))).digest()


def projection_digest(pi: NDArray[np.int16]) -> bytes:
    """Digest a projection, so that parties can compare theirs.

    Args:
        pi: shape (L, d), int16.

    Returns:
        32 bytes: SHA-256 over a label, L and d (8 bytes each), and the entries, little-endian.
    """
    n_bits, n_features = pi.shape
    header = n_bits.to_bytes(8, "little") + n_features.to_bytes(8, "little")
    digest = hashlib.sha256(b"xclp/1/lsh projection digest\0" + header)
    digest.update(np.ascontiguousarray(pi, dtype="<i2").tobytes())
    return digest.digest()


def zero_rows(vectors: ArrayLike) -> NDArray[np.bool_]:
    """Mark the vectors that have no direction.

    Args:
        vectors: shape (n, d), real numbers.

    Returns:
        Shape (n,), true where all features are zero.

    Raises:
        DataError: not a matrix of finite real numbers.
    """
    return np.logical_not(checked_vectors(vectors).any(axis=1))


def hash_bits(
    vectors: ArrayLike, pi: NDArray[np.int16], progress: OnProgress | None = None
) -> NDArray[np.uint8]:
    """Hash each vector: bit l is 1 iff ⟨π_l, v⟩ ≥ 0, with v rounded to 19..30 bits of its maximum.

    A row's bits depend on that row alone, not on its batch, dtype, machine or BLAS, and do not
    change when the row is multiplied by a power of two. Zero rows give all ones.

    Args:
        vectors: shape (n, d), finite real numbers of any magnitude.
        pi: shape (L, d), from `projection`.
        progress: called after each block of rows.

    Returns:
        Shape (n, L), uint8, 0 or 1.

    Raises:
        DataError: not a matrix of finite real numbers, or d differs from Π's.

    Source: Algorithm 1, line "B"; appendix app:LSH.
    """
    v = checked_vectors(vectors)
    n_bits, n_features = pi.shape
    if v.shape[1] != n_features:
        raise DataError(
            f"vectors have {v.shape[1]} features; the projection was made for {n_features}"
        )
    normals = pi.T.astype(np.float64)
    bits = np.empty((len(v), n_bits), dtype=np.uint8)
    step = max(1, _BLOCK_ENTRIES // max(n_bits, n_features))
    for start in range(0, len(v), step):
        block = slice(start, start + step)
        np.greater_equal(_integer_rows(v[block]) @ normals, 0, out=bits[block].view(np.bool_))
        if progress is not None:
            progress("hashes", min(block.stop, len(v)), len(v))
    return bits


def _integer_rows(v: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scale each row by a power of two and round, so that exact sums stay within 2^52."""
    bits = min(_VECTOR_BITS, _SUM_BITS - _PI_BITS - (v.shape[1] - 1).bit_length())
    v = v.astype(np.float64)
    _, exponent = np.frexp(np.abs(v).max(axis=1, keepdims=True))
    with np.errstate(under="ignore"):  # what underflows here is far below one half: it becomes 0
        scaled: NDArray[np.float64] = np.rint(np.ldexp(v, bits - exponent))
    return scaled


def checked_vectors(vectors: ArrayLike, *, missing: bool = False) -> NDArray[np.floating]:
    """Turn vectors into a matrix of finite floats.

    Args:
        vectors: shape (n, d) with d ≥ 1: floats, integers or booleans.
        missing: whether values may be NaN.

    Returns:
        Shape (n, d); floats keep their dtype, everything else becomes float64.

    Raises:
        DataError: another shape or type, or a value that is not finite (names row and column).
    """
    v = np.asarray(vectors)
    if v.ndim != 2 or v.shape[1] < 1:
        raise DataError(f"vectors have shape {v.shape}; a matrix (n, d) with d >= 1 is needed")
    if v.dtype.kind not in "fiub":
        raise DataError(f"vectors have dtype {v.dtype}; real numbers are needed")
    if v.dtype.kind != "f" or v.dtype.itemsize > 8:
        v = v.astype(np.float64)
    finite = ~np.isinf(v) if missing else np.isfinite(v)
    if not finite.all():
        row, column = (int(i) for i in np.argwhere(~finite)[0])
        raise DataError(
            f"row {row}, column {column} (counted from 0) of the vectors is {v[row, column]}; "
            "every value must be finite"
        )
    return v
