"""Every security number, with unit and source; and the three kinds of parameters.

*Security* parameters live here as constants. *Agreement* parameters must be the same for all
parties: `Agreement` turns them into digests that the first message carries, so that a mismatch is
named by field before any data is read. *Local* parameters (block sizes) may differ between
parties and are ordinary keyword arguments with defaults in the modules that use them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import FaultyPeer, ParameterError

SECURITY_BITS: Final = 128
"""Bits of security against classical attacks that primitives in use give: ristretto255 (RFC 9496)
and X25519 (RFC 7748), AES-256 and SHA-256 (more than 128 bits, NIST SP 800-57 part 1, table 2). The
hash of OT extension has less by its bound for large sizes, see docs/understand/protocols.md."""

SEED_BYTES: Final = 32
"""Bytes of a key, seed or contribution: 256 bits, so that 128 bits remain after any birthday or
quantum search argument (NIST SP 800-57 part 1)."""

MIN_CLIENTS: Final = 2
"""Fewest clients of a secure sum: with one there is nobody to hide among (Bonawitz et al. 2017)."""

MAX_ANNOUNCED: Final = 1 << 20
"""Largest public number, such as of rows, that a party may announce: the distances between more
rows would take over 2 TB. Guards the others against reserving memory for a mistyped number."""

MAX_DEPTH: Final = 1 << 20
"""Longest chain of messages that is counted, for reports of rounds: more than any protocol has, and
few enough for every header."""

WINDOW: Final = 64 << 20
"""Bytes of messages of one sender that wait for one receiver at most, or one message."""

MESSAGES: Final = 4096
"""How many messages these are at most."""

DEADLINES_IN_ALL: Final = 10
"""What a client may take in a whole session, in deadlines of one computation, unless it is said."""

MAX_HASH_BITS: Final = 1 << 15
"""Longest bit vectors: residues modulo 2^⌈log2(L+1)⌉ then fit 16 bits."""

FRACTION_BITS: Final = 40
"""Fractional bits of fixed-point scores: a sum over p parties is off by at most p·2^-41."""

STATISTICAL_BITS: Final = 40
"""Bits of statistical security, and of certainty that a computation is right: bounds ≤ 2^-40. Our
choice, which is common in multi-party computation: `SSP` of ocelot (GaloisInc/swanky) and `STATSEC`
of zama-ai/kms are 40 as well. Bounds count all distances of a session, or all clients of a sum."""

KAPPA: Final = 128
"""Columns of the matrix of OT extension, bits of a row and base transfers: the computational
security parameter κ of Ishai, Kilian, Nissim and Petrank 2003. A checked batch (`check_receiver`)
has as many rows more, which serve no transfer (Roy 2022)."""

CHALLENGE_BYTES: Final = 16
"""Bytes of the challenge of OT extension's check, a key of AES-128: the point of the hash is then
uniform in the ideal-cipher model, and fixed only after the columns are."""

SCRYPT_COST: Final = 17
"""log2 of N of scrypt, which turns a passphrase into the key of a log, at least; with r = 8: 128
MiB and four tenths of a second (RFC 7914)."""

MAX_SCRYPT_COST: Final = 20
"""The same at most: a log must not say how much memory it takes to look at it; 1 GiB."""

SCRYPT_BLOCK: Final = 8
"""r of scrypt, and p = 1 (RFC 7914, section 2)."""

MIN_PASSPHRASE: Final = 12
"""Fewest bytes of such a passphrase: guards against a word, and is not a promise."""

COMPLETION_BITS: Final = 20
"""Bits of certainty that a sum over a sparse mask graph can be completed; where it cannot, it stops
with an error and reveals nothing, so this is a matter of convenience."""

MAX_UPLOAD_BYTES: Final = (1 << 31) - (1 << 16)
"""Longest upload of a secure sum, in bytes: one sealed message (AES-GCM as the library offers it)
holds 2^31 − 17."""
SHAMIR_PRIME: Final = (1 << 256) + 297
"""Order of the field in which seeds and keys are shared: the least prime above 2^256, so that every
32-byte secret is an element. Secrecy does not depend on its size (Shamir 1979)."""

DIGEST_BYTES: Final = 8
"""Bytes of the digest of one agreement field; guards against mistakes, not against adversaries."""


@dataclass(frozen=True)
class RlweParameters:
    """A ring-LWE parameter set for Hamming distances; see `xclp_crypto.primitives.rlwe`.

    Security: N = 4096 with uniform ternary secrets and errors of standard deviation ≥ 3.2 gives 128
    bits against known classical attacks up to log2 q = 106 (Bossuat et al., Security Guidelines for
    Implementing Homomorphic Encryption, 2024, ternary secrets; the HE standard of 2018 allows 109).
    By core-SVP, which counts less for an attack, log2 q = 80 has 148 bits (134 against quantum
    attacks) and 96 has 115 (104): bench/lattice.py, docs/understand/protocols.md.

    Attributes:
        name: how people call it.
        max_bits: largest L.
        limbs: machine words that hold a number modulo q.
        limb_bits: bits of each; q = 2^(limbs·limb_bits).
        plain_bits: t = 2^plain_bits, above the largest distance.
        switched_bytes: bytes of a number modulo q' on the wire.
        flood_bits: bits of each of the four uniform words whose sum floods the noise, at least 64.
    """

    name: str
    max_bits: int
    limbs: int
    limb_bits: int
    plain_bits: int
    switched_bytes: int
    flood_bits: int

    degree: ClassVar[int] = 4096
    """N, coefficients of a polynomial."""
    error_bits: ClassVar[int] = 21
    """η of the centred binomial errors: variance η/2, standard deviation 3.24."""
    flood_information: ClassVar[float] = 3.11573
    """Fisher information of the sum of four uniform variables on [0, 1) with respect to a shift
    (numerical integral over the cubic B-spline, rounded up)."""
    fft_margin: ClassVar[float] = 2.0**-3
    """Largest distance of an FFT product from an integer that is accepted; proven: 2^-12."""
    max_security_bits: ClassVar[int] = 106
    """Largest log2 q for 128-bit security against classical attacks, see above."""

    @property
    def modulus_bits(self) -> int:
        """Return log2 q."""
        return self.limbs * self.limb_bits

    @property
    def delta_bits(self) -> int:
        """Return log2 Δ = log2(q/t)."""
        return self.modulus_bits - self.plain_bits

    @property
    def switched_bits(self) -> int:
        """Return log2 q'."""
        return 8 * self.switched_bytes

    def chunks(self, n_bits: int) -> int:
        """Return into how many polynomials a vector of L bits is split."""
        return -(-n_bits // self.degree)

    def hiding_bits(self, n_bits: int, coefficients: int) -> float:
        """Return −log2 of the bound on the distance between owners' views and simulated ones.

        √(Q·E[δ²]·I)/2 with E[δ²] = (L + ⅔·2N')·η/2 for Q coefficients that they see together.
        """
        ring = self.chunks(n_bits) * self.degree
        shift = (n_bits + 4 / 3 * ring) * self.error_bits / 2
        information = self.flood_information / 4.0**self.flood_bits
        return 1 - math.log2(max(coefficients, 1) * shift * information) / 2

    def correctness_bits(self, n_bits: int, coefficients: int) -> float:
        """Return −log2 of the bound on the probability that any coefficient decrypts wrongly."""
        ring = self.chunks(n_bits) * self.degree
        drop = self.modulus_bits - self.switched_bits
        hard = (
            2.0 ** (self.flood_bits + 1)  # the flood never exceeds this
            + 2.0 ** (drop - 1)  # rounding of c2
            + self.error_bits * (n_bits + 2.0 * ring)  # all errors at their extremes
        )
        room = 2.0 ** (self.delta_bits - 1) - hard
        if room <= 0:
            return 0.0
        exponent = room**2 / (2 * ring * 4.0 ** (drop - 1))
        return exponent / math.log(2) - 1 - math.log2(max(coefficients, 1))

    def require(self, n_bits: int, coefficients: int, support: int | None = None) -> None:
        """Refuse sizes for which a bound is missed, or a set that is not 128-bit secure.

        The bounds: hiding and correctness 2^-40 each, and matrix products within 2^53.

        Args:
            n_bits: L.
            coefficients: Q, all answers of the session: no coalition decrypts more.
            support: how many coefficients of u are not 0, by default L; see `rlwe_packed`.

        Raises:
            ParameterError: names the bound, its value and the limit.
        """
        if not 1 <= n_bits <= self.max_bits:
            raise ParameterError(f"{self.name} is for 1 to {self.max_bits} bits, got {n_bits}")
        if self.modulus_bits > self.max_security_bits:
            raise ParameterError(
                f"{self.name}: log2 q = {self.modulus_bits} is above {self.max_security_bits}, so "
                "it does not give 128 bits of security"
            )
        ring = self.chunks(n_bits) * self.degree
        largest = max((n_bits + ring) << self.limb_bits, ring << self.switched_bits)
        if largest > 1 << 53:
            raise ParameterError(
                f"{self.name}: products of {n_bits} bits reach {largest}, above 2^53, so they "
                "would not be exact in float64"
            )
        for what, bits in (
            ("hiding", self.hiding_bits(support or n_bits, coefficients)),
            ("correctness", self.correctness_bits(support or n_bits, coefficients)),
        ):
            if bits < STATISTICAL_BITS:
                raise ParameterError(
                    f"{self.name}: for {coefficients:,} distances of {n_bits} bits the {what} "
                    f"bound is 2^-{bits:.1f} and 2^-{STATISTICAL_BITS} is required; use fewer "
                    f"rows, or n_bits = {RLWE_SETS[0].max_bits + 1} or more"
                )


RLWE_SETS: Final = (
    RlweParameters("RLWE-4096-80", 4096, 2, 40, 13, 3, 64),
    RlweParameters("RLWE-4096-96", MAX_HASH_BITS, 3, 32, 16, 4, 72),
)
"""Ring-LWE parameter sets, smallest first."""


def require_announced(numbers: Iterable[int]) -> None:
    """Refuse public numbers of a client that it cannot announce.

    Raises:
        ParameterError: one is below 0 or above `MAX_ANNOUNCED`.
    """
    for number in numbers:
        if not 0 <= number <= MAX_ANNOUNCED:
            raise ParameterError(
                f"public numbers of a client, such as its rows, are 0 … {MAX_ANNOUNCED}, got "
                f"{number}"
            )


def residue_width(n_bits: int) -> int:
    """Return w = ⌈log2(L+1)⌉, so that the distances 0…L are distinct modulo t = 2^w.

    The paper's §4.2 works modulo L, where distance L equals distance 0; this is the correction.

    Args:
        n_bits: L, 1 to `MAX_HASH_BITS` bits.

    Raises:
        ParameterError: L is out of range.
    """
    if not 1 <= n_bits <= MAX_HASH_BITS:
        raise ParameterError(f"n_bits must be between 1 and {MAX_HASH_BITS}, got {n_bits}")
    return n_bits.bit_length()


@dataclass(frozen=True)
class PaillierParameters:
    """A named size of Paillier keys; see `xclp_crypto.primitives.paillier`.

    Attributes:
        name: how people call it.
        modulus_bits: bits of n, a multiple of 16.
        security_bits: against the factoring of n, NIST SP 800-57 part 1 rev. 5, table 2.

    Raises:
        ParameterError: fewer than 2048 bits without a name that starts with INSECURE_TEST.
    """

    name: str
    modulus_bits: int
    security_bits: int

    smallest: ClassVar[int] = 2048
    """Fewest bits of n outside tests: 112-bit security, NIST SP 800-131A rev. 2."""
    prime_rounds: ClassVar[int] = 64
    """Passed to GMP: a Baillie–PSW test and 64 − 24 Miller–Rabin rounds, so that even a worst-case
    composite passes with probability at most 4^-40: for primes that come from elsewhere."""
    drawn_prime_rounds: ClassVar[int] = 24 + 5
    """The same for primes that are drawn here, with 5 Miller–Rabin rounds, as FIPS 186-5, appendix
    B.3, asks for. A uniform odd number of k bits that passes t rounds is composite with probability
    below k^1.5·2^t·t^-0.5·4^(2−√(t·k)) (Damgård, Landrock and Pomerance, Math. Comp. 1993): 2^-120
    for 1024 bits and 2^-151 for 1536. Candidates are one in 8 of these numbers, so 2^-117 and
    2^-148, without the Baillie–PSW test, which no composite is known to pass."""
    prime_distance_bits: ClassVar[int] = 100
    """|p − q| > 2^(bits/2 − 100), FIPS 186-5, appendix A.1.3."""
    hiding_bits: ClassVar[int] = 128
    """A re-randomised ciphertext is within 2^-128 of independent of its history, even for the
    owner of the key."""
    history_bits: ClassVar[int] = 16
    """In protocols that history is a product of at most 2^16 ciphertexts or their inverses."""

    def __post_init__(self) -> None:
        weak = self.modulus_bits < self.smallest or self.security_bits < 112
        if weak and not self.name.startswith("INSECURE_TEST"):
            raise ParameterError(
                f"Paillier keys must have at least {self.smallest} bits, got {self.modulus_bits}; "
                "smaller ones can be factored and are for tests, in a parameter set whose name "
                "starts with INSECURE_TEST"
            )
        if self.modulus_bits % 16 or not 64 <= self.modulus_bits < 1 << 16:
            raise ParameterError(
                f"the bits of a Paillier key must be a multiple of 16 in 64 … 65520, which keys "
                f"are encoded with, got {self.modulus_bits}"
            )


PAILLIER_3072: Final = PaillierParameters("3072", 3072, 128)
PAILLIER_2048_112_BIT: Final = PaillierParameters("2048, 112-bit security", 2048, 112)
INSECURE_TEST_512: Final = PaillierParameters("INSECURE_TEST_512", 512, 0)
INSECURE_TEST_128: Final = PaillierParameters("INSECURE_TEST_128", 128, 0)

PAILLIER_PARAMETERS: Final = {
    s.name: s for s in (PAILLIER_3072, PAILLIER_2048_112_BIT, INSECURE_TEST_512, INSECURE_TEST_128)
}
"""All Paillier parameter sets by name; the first is the default."""


class Agreement:
    """Named parameters that all parties of a session must have in common.

    Args:
        fields: name to value: text, numbers, booleans, bytes, None, and tuples of these; NumPy's
            are the same as Python's. Values are the same only if their types are: 1 is not 1.0.

    Raises:
        ParameterError: a value of another type, of which two copies might look different.

    Examples:
        >>> from xclp_crypto.params import Agreement
        >>> theirs = Agreement(version=1, bits=512).encode()
        >>> try:
        ...     Agreement(version=1, bits=256).require_same(theirs, "bob")
        ... except FaultyPeer as error:
        ...     print(error.parties)  # and what differs: bits
        ('bob',)
    """

    def __init__(
        self, **fields: str | int | float | bool | bytes | tuple[object, ...] | np.generic | None
    ) -> None:
        self.fields = {name: _plain(name, value) for name, value in sorted(fields.items())}

    @property
    def size(self) -> int:
        """Return the bytes of `encode`: 8 per field."""
        return DIGEST_BYTES * len(self.fields)

    def encode(self) -> bytes:
        """Return the digests of all fields, in order of their names."""
        return b"".join(
            hashlib.sha256(domain_tag("agreement", name, repr(value))).digest()[:DIGEST_BYTES]
            for name, value in self.fields.items()
        )

    def require_same(self, other: bytes, party: str) -> None:
        """Compare with the digests that `party` sent.

        Raises:
            FaultyPeer: a field differs, and the message names every such field; or there are more
                digests than fields.
        """
        own = self.encode()
        different = [
            f"{name} (here {value!r})"
            for i, (name, value) in enumerate(self.fields.items())
            if own[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES]
            != other[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES]
        ]
        if different:
            raise FaultyPeer(
                party,
                f"all parties must agree on {', '.join(different)}; {party} has another value",
                public=True,
            )
        if len(other) != len(own):
            raise FaultyPeer(
                party,
                f"it compares {len(other)} bytes of parameters, and {len(own)} are agreed on",
                public=True,
            )


def _plain(name: str, value: Any) -> Any:
    """Return a value that has one ``repr``, by which agreement is compared."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return tuple(_plain(name, item) for item in value)
    if value is not None and type(value) not in (str, int, float, bool, bytes):
        raise ParameterError(
            f"{name} must be text, a number, a boolean, bytes, None or a tuple of these to be "
            f"agreed on, got {type(value).__name__}"
        )
    return value
