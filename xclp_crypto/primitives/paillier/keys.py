"""Paillier keys, and encryption of lists of residues with them."""

from __future__ import annotations

import hashlib
from types import NoneType
from typing import Final, NoReturn, Self, TypeAlias

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.params import PAILLIER_3072, PAILLIER_PARAMETERS, PaillierParameters
from xclp_crypto.primitives.paillier.arithmetic import (
    SMALL_PRIMES,
    Comb,
    Mpz,
    draw_exponents,
    draw_prime,
    draw_units,
    from_bytes,
    powers,
    powers_of,
    spread,
    to_bytes,
)
from xclp_crypto.rng import Rng
from xclp_crypto.secret import Secret

PUBLIC_FORMAT = b"xPP\x01"
SECRET_FORMAT = b"xPS\x01"
FINGERPRINT_BYTES = 8
BYTES: Final = (bytes, bytearray, memoryview)

Halves: TypeAlias = tuple[tuple[Mpz, Mpz, Mpz], tuple[Mpz, Mpz, Mpz]]
"""For each of the primes p, q: the prime, its square, and (−other prime)^-1 modulo it."""


def require(what: str, value: object, *kinds: type) -> None:
    """Raise `ParameterError`, which names no value, for an argument of another type."""
    if not isinstance(value, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        advice = "; decode it first" if isinstance(value, bytes) else ""
        raise ParameterError(f"{what} must be {names}, got {type(value).__name__}{advice}")


def check_parameters(parameters: PaillierParameters) -> PaillierParameters:
    """Return a parameter set; raises `ParameterError` for anything else, such as a number."""
    if not isinstance(parameters, PaillierParameters):
        raise ParameterError(
            f"a key size is one of the sets {', '.join(PAILLIER_PARAMETERS)} of "
            f"xclp_crypto.params, got {parameters!r}"
        )
    return parameters


class PublicKey:
    """A modulus n and, for fast randomisers, h = −x² mod n.

    Args:
        n: the modulus.
        h: the base of the randomisers; None for the original scheme.
        parameters: the set that the key must belong to.
        tested: n is known to be the product of two primes; True leaves out the test that it is not
            one prime or a power.

    Attributes:
        n: the modulus, a `gmpy2.mpz`.
        n_squared: n².
        h: as given.
        parameters: as given.

    Raises:
        ParameterError: n has another length than the set requires, is even, prime, a perfect power
            or has a small factor; h is not a unit modulo n with Jacobi symbol 1.
    """

    __slots__ = ("_base", "_combs", "h", "n", "n_squared", "parameters")

    def __init__(
        self,
        n: Mpz,
        h: Mpz | None = None,
        parameters: PaillierParameters = PAILLIER_3072,
        *,
        tested: bool = False,
    ) -> None:
        bits = check_parameters(parameters).modulus_bits
        require("n", n, int, gmpy2.mpz)
        require("h", h, int, gmpy2.mpz, NoneType)
        self.n, self.h, self.parameters = mpz(n), None if h is None else mpz(h), parameters
        if self.n < 0 or self.n.bit_length() != bits:
            raise ParameterError(
                f"a modulus is positive and has {bits} bits, got {self.n.bit_length()}"
            )
        if gmpy2.gcd(self.n, SMALL_PRIMES) != 1:
            raise ParameterError("a modulus is odd and has no factor below 4096")
        if not tested and (gmpy2.is_power(self.n) or gmpy2.is_prime(self.n)):
            raise ParameterError("a modulus is neither prime nor the power of a number")
        if self.h is not None:
            if not 1 < self.h < self.n - 1 or gmpy2.jacobi(self.h, self.n) != 1:
                raise ParameterError("h must be a unit modulo n with Jacobi symbol 1, and not ±1")
            if self.n % 4 != 1:
                raise ParameterError("a modulus with h is the product of two primes 3 modulo 4")
        self.n_squared = self.n * self.n
        self._base: Mpz = None
        self._combs: dict[int, Comb] = {}

    @property
    def ciphertext_bytes(self) -> int:
        """Return the bytes of a ciphertext: twice those of n."""
        return self.parameters.modulus_bits // 4

    @property
    def fingerprint(self) -> bytes:
        """Return 8 bytes that tell this key from others."""
        digest = hashlib.sha256(domain_tag("paillier public key", self.encode())).digest()
        return digest[:FINGERPRINT_BYTES]

    @property
    def base(self) -> Mpz:
        """Return h^n mod n², the n-th residue whose powers are randomisers; h must be there."""
        if self._base is None:
            self._base = gmpy2.powmod(self.h, self.n, self.n_squared)
        return self._base

    @staticmethod
    def size(bits: int) -> int:
        """Return the bytes of an encoded key: 6 + 2·bits/8."""
        return len(PUBLIC_FORMAT) + 2 + bits // 4

    def encode(self) -> bytes:
        """Encode as format and version (4 bytes), bits (2), n and h (0 where there is none)."""
        bits = self.parameters.modulus_bits
        return (
            PUBLIC_FORMAT
            + bits.to_bytes(2, "big")
            + to_bytes([self.n, self.h or mpz(0)], bits // 8)
        )

    @classmethod
    def decode(cls, data: bytes, parameters: PaillierParameters = PAILLIER_3072) -> Self:
        """Decode a key of this parameter set.

        Raises:
            DecodeError: other bytes, such as a secret key or one of another size.
        """
        n, h = _decode_pair(data, PUBLIC_FORMAT, parameters, "public")
        try:
            return cls(n, h or None, parameters)
        except ParameterError as error:
            raise DecodeError(str(error)) from None

    def encrypt_residues(self, residues: list[Mpz], rng: Rng, workers: int = 1) -> list[Mpz]:
        """Encrypt integers in [0, n).

        Args:
            residues: what to encrypt.
            rng: source of the randomness in the ciphertexts.
            workers: processes to use.
        """
        return self._hide(residues, self._powers(len(residues), self._half, rng, workers))

    def _hide(self, residues: list[Mpz], randomisers: list[Mpz]) -> list[Mpz]:
        n, square = self.n, self.n_squared
        return [(1 + m * n) * u % square for m, u in zip(residues, randomisers, strict=True)]

    @property
    def _half(self) -> int:
        """Return the bits of an exponent of fresh ciphertexts, |n|/2."""
        return self.parameters.modulus_bits // 2

    def randomisers(
        self, count: int, rng: Rng, workers: int = 1, history_bits: int | None = None
    ) -> list[Mpz]:
        """Return encryptions of zero that hide the history of what they are multiplied with.

        Args:
            count: how many.
            rng: source of the exponents.
            workers: processes to use.
            history_bits: that history is a product of at most 2^history_bits fresh ciphertexts of
                the owner or their inverses, which takes shorter exponents; None: it is unknown.
                A multiple of 8.
        """
        known = self._half + history_bits if history_bits is not None else 2 * self._half
        return self._powers(count, known + self.parameters.hiding_bits, rng, workers)

    def _powers(self, count: int, exponent_bits: int, rng: Rng, workers: int) -> list[Mpz]:
        """Return random n-th residues; of a key without h, uniform ones."""
        if self.h is None:
            uniform = draw_units(self.n, count, rng)
            return spread(powers_of, uniform, workers, self.n, self.n_squared)
        exponents = draw_exponents(count, exponent_bits, rng)
        if exponent_bits not in self._combs:
            self._combs[exponent_bits] = Comb(self.base, self.n_squared, exponent_bits)
        return spread(powers, exponents, workers, self._combs[exponent_bits])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PublicKey):
            return NotImplemented
        return bool(self.n == other.n and self.h == other.h)

    def __hash__(self) -> int:
        return hash((self.n, self.h))

    def __repr__(self) -> str:
        name = self.parameters.name
        return f"<Paillier PublicKey {self.fingerprint.hex()}, {name}>"

    def __reduce__(self) -> NoReturn:
        raise ParameterError("a public key travels as bytes (encode, decode), not as a pickle")


class PrivateKey(Secret):
    """The primes p and q, and the public key that belongs to them.

    Args:
        p: a prime.
        q: another one of the same length.
        public: the key with n = p·q.
        tested: they are known to be prime; True leaves the tests out.

    Raises:
        ParameterError: p and q are not two such primes; h is there but p and q are not as
            Damgård, Jurik and Nielsen require.

    Examples:
        >>> from xclp_crypto.params import INSECURE_TEST_512
        >>> from xclp_crypto.primitives.paillier import PrivateKey, PublicKey, generate
        >>> from xclp_crypto.rng import SystemRng
        >>> key = generate(SystemRng(), INSECURE_TEST_512)
        >>> again = PrivateKey.decode(key.export_secret(), INSECURE_TEST_512)
        >>> PublicKey.decode(again.public.encode(), INSECURE_TEST_512) == key.public
        True
    """

    __slots__ = ("_combs", "_halves", "_inverse", "_inverse_square", "_p", "_q", "public")

    def __init__(self, p: Mpz, q: Mpz, public: PublicKey, *, tested: bool = False) -> None:
        require("public", public, PublicKey)
        require("p", p, int, gmpy2.mpz)
        require("q", q, int, gmpy2.mpz)
        p, q = mpz(p), mpz(q)
        half = public.parameters.modulus_bits // 2
        rounds = public.parameters.prime_rounds
        if p * q != public.n or p == q or not p.bit_length() == q.bit_length() == half:
            raise ParameterError(f"n must be the product of two different primes of {half} bits")
        if not (tested or (gmpy2.is_prime(p, rounds) and gmpy2.is_prime(q, rounds))):
            raise ParameterError("p and q must be prime")
        if public.h is not None and not (
            p % 4 == q % 4 == 3
            and gmpy2.gcd(p - 1, q - 1) == 2
            and gmpy2.legendre(-public.h, p) == gmpy2.legendre(-public.h, q) == 1
        ):
            raise ParameterError(
                "p and q must be 3 modulo 4 with gcd(p − 1, q − 1) = 2, and h = −x²"
            )
        self.public, self._p, self._q = public, p, q
        self._inverse = gmpy2.invert(p, q)
        self._inverse_square = gmpy2.invert(p * p, q * q)
        # (1 + n)^(p−1) mod p² is 1 + (p − 1)·n, so L of it is −q modulo p.
        self._halves: Halves = ((p, p * p, gmpy2.invert(-q, p)), (q, q * q, gmpy2.invert(-p, q)))
        self._combs: list[Comb] = []

    def export_secret(self) -> bytes:
        """Encode p, q and h: whoever reads these bytes can decrypt. Size: 6 + 2·bits/8 bytes."""
        bits = self.public.parameters.modulus_bits
        numbers = to_bytes([self._p, self._q], bits // 16) + to_bytes(
            [self.public.h or mpz(0)], bits // 8
        )
        return SECRET_FORMAT + bits.to_bytes(2, "big") + numbers

    def export_primes(self) -> tuple[int, int]:
        """Return p and q: whoever sees one of them can decrypt."""
        return int(self._p), int(self._q)

    @classmethod
    def decode(cls, data: bytes, parameters: PaillierParameters = PAILLIER_3072) -> Self:
        """Decode what `export_secret` returned.

        Raises:
            DecodeError: other bytes, such as a public key or one of another size.
        """
        primes, h = _decode_pair(data, SECRET_FORMAT, parameters, "secret")
        half = parameters.modulus_bits // 2
        p, q = primes >> half, gmpy2.f_mod_2exp(primes, half)
        try:
            return cls(p, q, PublicKey(p * q, h or None, parameters))
        except (ParameterError, ZeroDivisionError) as error:
            raise DecodeError(str(error)) from None

    def encrypt_residues(self, residues: list[Mpz], rng: Rng, workers: int = 1) -> list[Mpz]:
        """See `PublicKey.encrypt_residues`; several times faster than with the public key."""
        return self.public._hide(residues, self._randomisers(len(residues), rng, workers))

    def _randomisers(self, count: int, rng: Rng, workers: int) -> list[Mpz]:
        """Return fresh encryptions of zero, computed modulo p² and q²."""
        public, half = self.public, self.public._half
        if public.h is None:
            uniform = draw_units(public.n, count, rng)
            return spread(_nth_powers, uniform, workers, self._halves, self._inverse_square)
        exponents = draw_exponents(count, half, rng)
        if not self._combs:
            (base,) = _nth_powers([public.h], self._halves, self._inverse_square)
            squares = [square for _, square, _ in self._halves]
            self._combs = [Comb(base % square, square, half) for square in squares]
        return spread(_powers_by_halves, exponents, workers, self._combs, self._inverse_square)

    def decrypt_residues(self, ciphertexts: list[Mpz], workers: int = 1) -> list[Mpz]:
        """Decrypt to integers in [0, n)."""
        return spread(_decrypt_by_halves, ciphertexts, workers, self._halves, self._inverse)


def _powers_by_halves(
    exponents: NDArray[np.uint8], combs: list[Comb], inverse_square: Mpz
) -> list[Mpz]:
    """Return powers modulo n², from combs modulo p² and q²."""
    left, right = (powers(exponents, comb) for comb in combs)
    return _join(left, right, combs[0].modulus, combs[1].modulus, inverse_square)


def _nth_powers(units: list[Mpz], halves: Halves, inverse_square: Mpz) -> list[Mpz]:
    """Return the n-th powers of numbers modulo n².

    The p-th power of a number modulo p² depends on that number modulo p only, so that the q-th
    power before it is taken modulo p.
    """
    (p, p2, _), (q, q2, _) = halves
    left, right = (
        powers_of(powers_of(units, other % (r - 1), r), r, square)
        for r, square, other in ((p, p2, q), (q, q2, p))
    )
    return _join(left, right, p2, q2, inverse_square)


def _decrypt_by_halves(ciphertexts: list[Mpz], halves: Halves, inverse: Mpz) -> list[Mpz]:
    """Return plaintexts modulo n."""
    left, right = (
        [(u - 1) // r * factor % r for u in powers_of(ciphertexts, r - 1, square)]
        for r, square, factor in halves
    )
    (p, _, _), (q, _, _) = halves
    return _join(left, right, p, q, inverse)


def _join(left: list[Mpz], right: list[Mpz], p: Mpz, q: Mpz, inverse: Mpz) -> list[Mpz]:
    """Return the integers modulo p·q with these residues (Garner); `inverse` is p^-1 modulo q."""
    return [a + p * ((b - a) * inverse % q) for a, b in zip(left, right, strict=True)]


def _decode_pair(
    data: bytes, expected: bytes, parameters: PaillierParameters, kind: str
) -> list[Mpz]:
    bits = check_parameters(parameters).modulus_bits
    require("data", data, *BYTES)
    if data[: len(expected)] != expected:
        raise DecodeError(f"these bytes are not a {kind} Paillier key of version {expected[-1]}")
    header = len(expected) + 2
    found = int.from_bytes(data[len(expected) : header], "big")
    if found != bits:
        raise DecodeError(f"a key of {found} bits where {bits} are expected")
    if len(data) != header + bits // 4:
        raise DecodeError(f"{len(data)} bytes where {header + bits // 4} are expected")
    return from_bytes(data[header:], bits // 8)


def public_part(key: PublicKey | PrivateKey) -> PublicKey:
    """Return the public key of either key; raises `ParameterError` for anything else."""
    require("key", key, PublicKey, PrivateKey)
    return key.public if isinstance(key, PrivateKey) else key


def generate(rng: Rng, parameters: PaillierParameters = PAILLIER_3072) -> PrivateKey:
    """Generate a key pair; at 3072 bits it takes a fifth of a second.

    Args:
        rng: source of the primes.
        parameters: key size, see `xclp_crypto.params.PAILLIER_PARAMETERS`.

    Raises:
        ParameterError: `parameters` is not such a set.

    Examples:
        >>> from xclp_crypto.params import INSECURE_TEST_512
        >>> from xclp_crypto.primitives.paillier import decrypt, encrypt, generate
        >>> from xclp_crypto.rng import SystemRng
        >>> key = generate(SystemRng(), INSECURE_TEST_512)
        >>> total = encrypt(key.public, [1, -2], SystemRng()) * 10 + encrypt(key, 5, SystemRng())
        >>> print(*decrypt(key, total))
        15 -15
    """
    bits = check_parameters(parameters).modulus_bits // 2
    rounds = parameters.drawn_prime_rounds
    distance = mpz(1) << max(bits - parameters.prime_distance_bits, 0)
    p = draw_prime(bits, rounds, rng)
    while True:
        q = draw_prime(bits, rounds, rng, p)
        # Primes of one length never divide each other's p − 1, so gcd(n, (p−1)(q−1)) = 1.
        if abs(p - q) > distance:
            break
    n = p * q
    (x,) = draw_units(n, 1, rng)
    public = PublicKey(n, -x * x % n, parameters, tested=True)
    return PrivateKey(p, q, public, tested=True)
