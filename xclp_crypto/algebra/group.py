"""The group ristretto255 (RFC 9496), through libsodium.

It has prime order ℓ = 2^252 + 27742317777372353535851937790883648493, no cofactor, and one
canonical encoding of 32 bytes for each element. A `Point` is an element that was checked and is not
the identity, and a `Scalar` is a secret in 1 … ℓ−1, so no product of the two is the identity.

libsodium multiplies in constant time and releases Python's global lock; Python itself promises
neither constant time nor that memory is wiped.

Examples:
    >>> from xclp_crypto.algebra.domain_tags import domain_tag
    >>> from xclp_crypto.algebra.group import Scalar, hash_to_point, multiply
    >>> from xclp_crypto.rng import SystemRng
    >>> a, b = Scalar.random(SystemRng()), Scalar.random(SystemRng())
    >>> point = hash_to_point(domain_tag("example"), b"data")
    >>> multiply(a, multiply(b, point)) == multiply(b, multiply(a, point))
    True
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import rbcl

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.secret import Secret

ORDER: Final = 2**252 + 27742317777372353535851937790883648493
POINT_BYTES: Final = 32
UNIFORM_BYTES: Final = 64
"""Uniform bytes that become a point or a scalar; their bias is below 2^-250."""

_FIELD = 2**255 - 19
_IDENTITY = bytes(POINT_BYTES)


class Point:
    """An element of the group that is not the identity; immutable and hashable.

    Its repr shows no coordinates, because a Diffie–Hellman result is a secret.

    Args:
        data: the 32 bytes of a canonical encoding.

    Raises:
        DecodeError: another length, a non-canonical or invalid encoding, or the identity.
    """

    __slots__ = ("_data",)
    _data: bytes

    def __init__(self, data: bytes) -> None:
        if len(data) != POINT_BYTES:
            raise DecodeError(f"a point has {POINT_BYTES} bytes, got {len(data)}")
        data = bytes(data)
        if data == _IDENTITY:
            raise DecodeError("a point must not be the identity element")
        # The first test is not redundant: libsodium 1.0.18, which rbcl contains, ignores bit 255,
        # and so would take a second encoding of every element (and of the identity).
        if int.from_bytes(data, "little") >= _FIELD or not (
            rbcl.crypto_core_ristretto255_is_valid_point(data)
        ):
            raise DecodeError("not the canonical encoding of a ristretto255 element")
        self._data = data

    @classmethod
    def decode(cls, data: bytes) -> Point:
        """Check and decode 32 bytes (RFC 9496, section 4.3.1).

        Raises:
            DecodeError: another length, a non-canonical or invalid encoding, or the identity.
        """
        return cls(data)

    @classmethod
    def from_uniform_bytes(cls, data: bytes) -> Point:
        """Map 64 uniform bytes to a uniform element by the one-way map (RFC 9496, section 4.3.4).

        Raises:
            ParameterError: another length.
            DecodeError: the result is the identity.
        """
        if len(data) != UNIFORM_BYTES:
            raise ParameterError(f"the map takes {UNIFORM_BYTES} bytes, got {len(data)}")
        return _element(rbcl.crypto_core_ristretto255_from_hash(bytes(data)))

    def encode(self) -> bytes:
        """Give the canonical encoding, 32 bytes."""
        return self._data

    def __add__(self, other: Point) -> Point:
        """Add two elements; DecodeError if the sum is the identity."""
        if not isinstance(other, Point):
            return NotImplemented
        return _element(rbcl.crypto_core_ristretto255_add(self._data, other._data))

    def __sub__(self, other: Point) -> Point:
        """Subtract an element; DecodeError if the two are equal."""
        if not isinstance(other, Point):
            return NotImplemented
        return _element(rbcl.crypto_core_ristretto255_sub(self._data, other._data))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Point):
            return NotImplemented
        return hmac.compare_digest(self._data, other._data)

    def __hash__(self) -> int:
        return hash(self._data)

    def __repr__(self) -> str:
        return "<Point>"

    def __reduce__(self) -> tuple[type[Point], tuple[bytes]]:
        # Through the constructor, so that unpickling checks as well.
        return Point, (self._data,)


class Scalar(Secret):
    """A secret exponent in 1 … ℓ−1; made by `random` or `from_uniform_bytes` only."""

    __slots__ = ("_data",)
    _data: bytes

    def __init__(self) -> None:
        raise ParameterError("make a scalar by Scalar.random or Scalar.from_uniform_bytes")

    @classmethod
    def random(cls, rng: Rng) -> Scalar:
        """Draw a scalar from 64 bytes of `rng`; uniform up to a bias of 2^-259."""
        return cls.from_uniform_bytes(require_rng(rng).bytes(UNIFORM_BYTES))

    @classmethod
    def from_uniform_bytes(cls, data: bytes) -> Scalar:
        """Reduce 64 little-endian bytes modulo ℓ (RFC 9496, section 4.4).

        Raises:
            ParameterError: another length, or a multiple of ℓ (probability 2^-252 if uniform).
        """
        if len(data) != UNIFORM_BYTES:
            raise ParameterError(f"a scalar is reduced from {UNIFORM_BYTES} bytes, got {len(data)}")
        reduced: bytes = rbcl.crypto_core_ristretto255_scalar_reduce(bytes(data))
        if hmac.compare_digest(reduced, bytes(32)):
            raise ParameterError("a scalar must not be zero modulo the group order")
        scalar = object.__new__(cls)
        scalar._data = reduced
        return scalar


def multiply_base(scalar: Scalar) -> Point:
    """Multiply the generator by a scalar, in constant time (RFC 9496, section 4.4)."""
    return _element(rbcl.crypto_scalarmult_ristretto255_base(scalar._data))


def multiply(scalar: Scalar, point: Point) -> Point:
    """Multiply any point by a scalar, in constant time (RFC 9496, section 4.4).

    Raises:
        ParameterError: other types.
    """
    if not (isinstance(scalar, Scalar) and isinstance(point, Point)):
        got = f"{type(scalar).__name__} and {type(point).__name__}"
        raise ParameterError(f"multiply takes a Scalar and then a Point, got {got}")
    return _element(rbcl.crypto_scalarmult_ristretto255(scalar._data, point._data))


def hash_to_point(tag: bytes, data: bytes) -> Point:
    """Hash to an element of which nobody knows the discrete logarithm.

    SHA-512 of `domain_tag("group/hash-to-point", tag, data)`, then the one-way map (RFC 9496,
    section 4.3.4); a random oracle if SHA-512 is one.

    Args:
        tag: from `domain_tag`.
        data: any bytes.
    """
    return Point.from_uniform_bytes(
        hashlib.sha512(domain_tag("group/hash-to-point", tag, data)).digest()
    )


def _element(data: bytes) -> Point:
    """Wrap what libsodium computed from valid elements: valid, but perhaps the identity."""
    if data == _IDENTITY:
        raise DecodeError("the result is the identity element, so its operands are related")
    point = object.__new__(Point)
    point._data = data
    return point
