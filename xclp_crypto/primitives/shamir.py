"""Shamir's secret sharing over a prime field: any t shares give the secret, fewer say nothing.

    f(X) = secret + a_1·X + … + a_(t−1)·X^(t−1),  a_i uniform in Z_p        share of index x: f(x)
    secret = f(0) = Σ_i y_i·λ_i,  λ_i = Π_(j≠i) x_j / (x_j − x_i)           from t shares (x_i, y_i)

For every t−1 shares and every secret there is exactly one f, so t−1 shares are uniform whatever the
secret is: this needs no assumption. It does need t ≤ number of shares, distinct indices and none
that is zero, for f(0) is the secret. Source: Shamir, How to share a secret, CACM 1979.

A 32-byte secret is a number below 2^256 and an element of Z_p with p = 2^256 + 297, the least prime
above. A wrong share changes the result without a trace if there are exactly t; every share more is
checked to lie on the polynomial of the others.

Arithmetic takes variable time: its operands are secret, and neither Python's integers nor GMP's are
constant-time here. Who can time a party finely may learn something about its shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Final

from gmpy2 import invert, mpz

from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.params import SEED_BYTES, SHAMIR_PRIME
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.secret import Secret

MAX_INDEX: Final = (1 << 16) - 1
"""Largest index and threshold."""

VALUE_BYTES: Final = 33
SHARE_BYTES: Final = 2 + 2 + VALUE_BYTES


@dataclass(frozen=True, repr=False)
class Share(Secret):
    """One share of a 32-byte secret.

    Attributes:
        index: x, 1 … 2^16 − 1.
        threshold: t, 1 … 2^16 − 1, how many shares give the secret.
        value: f(x), 0 … p − 1.

    Raises:
        ParameterError: an attribute out of range.
    """

    index: int
    threshold: int
    value: int

    def __post_init__(self) -> None:
        _check_16_bits("index", self.index)
        _check_16_bits("threshold", self.threshold)
        if not _is_element(self.value, SHAMIR_PRIME):
            raise ParameterError("the value of a share must be an element of the field")

    def encode(self) -> bytes:
        """Give index (2 bytes), threshold (2) and value (33), big-endian."""
        return (
            self.index.to_bytes(2, "big")
            + self.threshold.to_bytes(2, "big")
            + self.value.to_bytes(VALUE_BYTES, "big")
        )

    @classmethod
    def decode(cls, data: bytes) -> Share:
        """Read what `encode` gave.

        Raises:
            DecodeError: another length than 37 bytes, or a field out of range.
        """
        if len(data) != SHARE_BYTES:
            raise DecodeError(f"a share has {SHARE_BYTES} bytes, got {len(data)}")
        fields = (int.from_bytes(part, "big") for part in (data[:2], data[2:4], data[4:]))
        try:
            return cls(*fields)
        except ParameterError as error:
            raise DecodeError(str(error)) from None


def share_secret(secret: bytes, threshold: int, indices: Sequence[int], rng: Rng) -> list[Share]:
    """Share a secret of 32 bytes.

    Args:
        secret: 32 bytes.
        threshold: t, 1 … number of shares.
        indices: of the shares, distinct, each 1 … 2^16 − 1.
        rng: draws t−1 elements of the field.

    Returns:
        One share per index, in their order.

    Raises:
        ParameterError: a secret of another length or type, a threshold or an index out of range,
            or an index twice.

    Examples:
        >>> from xclp_crypto.primitives.shamir import recover_secret, share_secret
        >>> from xclp_crypto.rng import SystemRng
        >>> shares = share_secret(bytes(range(32)), 3, [1, 2, 3, 4, 5], SystemRng())
        >>> recover_secret([shares[4], shares[0], shares[2]]) == bytes(range(32))
        True
    """
    if not isinstance(secret, bytes) or len(secret) != SEED_BYTES:
        got = len(secret) if isinstance(secret, bytes) else type(secret).__name__
        raise ParameterError(f"a secret to share has {SEED_BYTES} bytes, got {got}")
    number = int.from_bytes(secret, "big")
    values = share_element(number, threshold, indices, SHAMIR_PRIME, rng)
    return [Share(x, threshold, y) for x, y in zip(indices, values, strict=True)]


def recover_secret(shares: Sequence[Share]) -> bytes:
    """Recover a secret of 32 bytes from t or more of its shares.

    The first t shares give the secret and t − 1 of the coefficients; the others are checked, at t
    multiplications each. Coefficients are kept for the index sets that came last, so secrets whose
    shares have the same indices in the same order are cheap to recover one after the other.

    Args:
        shares: of one secret, from peers.

    Returns:
        32 bytes.

    Raises:
        DecodeError: fewer shares than their threshold, different thresholds, an index twice, shares
            that do not lie on one polynomial, or a result of more than 32 bytes: at least one is
            not a share of this secret.
    """
    if not shares:
        raise DecodeError("no shares, where at least 1 is needed")
    thresholds = sorted({share.threshold for share in shares})
    if len(thresholds) > 1:
        raise DecodeError(f"shares of one secret have different thresholds: {thresholds}")
    points = {share.index: share.value for share in shares}
    if len(points) < len(shares):
        raise DecodeError(f"two shares have the same index among {[s.index for s in shares]}")
    number = recover_element(points, thresholds[0], SHAMIR_PRIME)
    if number >> 8 * SEED_BYTES:
        raise DecodeError(f"the shares give a number of more than {SEED_BYTES} bytes")
    return number.to_bytes(SEED_BYTES, "big")


def share_element(
    secret: int, threshold: int, indices: Sequence[int], prime: int, rng: Rng
) -> list[int]:
    """Share an element of Z_p, for any prime p.

    Args:
        secret: 0 … p − 1.
        threshold: t, 1 … number of shares.
        indices: distinct, each 1 … min(p, 2^16) − 1.
        prime: p; not checked to be one.
        rng: draws t−1 elements of the field.

    Returns:
        f(x) for every index x, in their order.

    Raises:
        ParameterError: a secret, threshold or index out of range, or an index twice.
    """
    if not _is_element(secret, prime):
        raise ParameterError("a secret to share must be an element of the field")
    for x in indices:
        _check_16_bits("index", x)
        if x >= prime:
            raise ParameterError(f"index must be below the prime {prime}, got {x}")
    if len(set(indices)) < len(indices):
        raise ParameterError(f"the indices of shares must be distinct, got {list(indices)}")
    _check_16_bits("threshold", threshold)
    if threshold > len(indices):
        raise ParameterError(f"threshold {threshold} is above the number of shares, {len(indices)}")
    return evaluate([secret, *random_elements(threshold - 1, prime, rng)], indices, prime)


def recover_element(points: Mapping[int, int], threshold: int, prime: int) -> int:
    """Recover f(0) from t or more points of a polynomial f of degree below t over Z_p.

    Args:
        points: f(x) by index x.
        threshold: t, 1 … 2^16 − 1.
        prime: p; not checked to be one.

    Returns:
        0 … p − 1.

    Raises:
        ParameterError: a threshold out of range.
        DecodeError: fewer points than t, an index out of 1 … p − 1, a value that is not an integer
            in 0 … p − 1, or points that no polynomial of degree below t has.
    """
    _check_16_bits("threshold", threshold)
    for x in points:
        if not 0 < x < prime:
            raise DecodeError(f"index must be in 1 … {prime - 1}, got {x}")
    if len(points) < threshold:
        raise DecodeError(f"{len(points)} shares where {threshold} are needed")
    if not all(_is_element(y, prime) for y in points.values()):
        raise DecodeError("the value of a share must be an element of the field")
    values = [mpz(y) for y in points.values()]
    at_zero, checks = _coefficients(tuple(points), threshold, prime)
    first = values[:threshold]
    for row, value in zip(checks, values[threshold:], strict=True):
        if (_inner(row, first) - value) % prime:
            raise DecodeError(
                f"{len(points)} shares do not lie on one polynomial of degree {threshold - 1}: "
                "at least one of them is wrong"
            )
    return int(_inner(at_zero, first) % prime)


def evaluate(coefficients: Sequence[int], points: Sequence[int], prime: int) -> list[int]:
    """Evaluate a polynomial over Z_p, lowest coefficient first, at every point (Horner)."""
    p = mpz(prime)
    falling = [mpz(c) for c in reversed(coefficients)]
    values = []
    for x in points:
        y = mpz(0)
        for c in falling:
            y = (y * x + c) % p
        values.append(int(y))
    return values


def random_elements(count: int, prime: int, rng: Rng) -> list[int]:
    """Draw independent, uniform elements of Z_p, by rejection.

    Strings of as many bytes as p has are accepted below the largest multiple of p and taken mod p;
    of p = 2^256 + 297 that are 255 in 256.
    """
    n_bytes = (prime.bit_length() + 7) // 8
    limit = (1 << 8 * n_bytes) // prime * prime
    elements: list[int] = []
    while len(elements) < count:
        data = require_rng(rng).bytes((count - len(elements)) * n_bytes)
        draws = (int.from_bytes(data[i : i + n_bytes], "big") for i in range(0, len(data), n_bytes))
        elements += [draw % prime for draw in draws if draw < limit]
    return elements


@lru_cache(maxsize=4)
def _coefficients(
    indices: tuple[int, ...], threshold: int, prime: int
) -> tuple[list[mpz], list[list[mpz]]]:
    """Return what maps the values at the first t indices to f(0), and to f at each other index."""
    xs, others = indices[:threshold], indices[threshold:]
    # Only public indices enter, and with them a cache that outlives the call holds no secret.
    weights = [invert(prod(x - other for other in xs if other != x), prime) for x in xs]

    def lagrange(at: int) -> list[mpz]:
        whole = mpz(prod(at - x for x in xs))
        return [whole // (at - x) * w % prime for x, w in zip(xs, weights, strict=True)]

    return lagrange(0), [lagrange(x) for x in others]


def _inner(a: Sequence[mpz], b: Sequence[mpz]) -> mpz:
    return sum((x * y for x, y in zip(a, b, strict=True)), mpz(0))


def _is_element(value: object, prime: int) -> bool:
    return isinstance(value, int) and 0 <= value < prime


def _check_16_bits(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_INDEX:
        raise ParameterError(f"{name} must be an integer in 1 … {MAX_INDEX}, got {value!r}")
