"""Every security number, with unit and source; and the three kinds of parameters.

*Security* parameters live here as constants. *Agreement* parameters must be the same for all
parties: `Agreement` turns them into digests that the first message carries, so that a mismatch is
named by field before any data is read. *Local* parameters (block sizes) may differ between
parties and are ordinary keyword arguments with defaults in the modules that use them.
"""

from __future__ import annotations

import hashlib
from typing import Final

from xclp_crypto.algebra.labels import label
from xclp_crypto.errors import FaultyPeer, ParameterError

SECURITY_BITS: Final = 128
"""Bits of computational security that every primitive in use gives: ristretto255 (RFC 9496) and
X25519 (RFC 7748), AES-256 and SHA-256 (more than 128 bits, NIST SP 800-57 part 1, table 2)."""

SEED_BYTES: Final = 32
"""Bytes of a key, seed or contribution: 256 bits, so that 128 bits remain after any birthday or
quantum search argument (NIST SP 800-57 part 1)."""

NONCE_BYTES: Final = 16
"""Bytes of the server's contribution to the session identifier; clients' fresh keys add theirs."""

MIN_CLIENTS: Final = 2
"""Fewest clients of a secure sum: with one there is nobody to hide among (Bonawitz et al. 2017)."""

MAX_ANNOUNCED: Final = 1 << 20
"""Largest public number, such as of rows, that a party may announce: the distances between more
rows would take over 2 TB. Guards the others against reserving memory for a mistyped number."""

MAX_HASH_BITS: Final = 1 << 15
"""Longest bit vectors: residues modulo 2^⌈log2(L+1)⌉ then fit 16 bits."""

FRACTION_BITS: Final = 40
"""Fractional bits of fixed-point scores: a sum over p parties is off by at most p·2^-41."""

DIGEST_BYTES: Final = 8
"""Bytes of the digest of one agreement field; guards against mistakes, not against adversaries."""


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


class Agreement:
    """Named parameters that all parties of a session must have in common.

    Args:
        fields: name to value; values are compared by their ``repr``.
    """

    def __init__(
        self, **fields: str | int | float | bool | bytes | tuple[object, ...] | None
    ) -> None:
        self.fields = dict(sorted(fields.items()))

    @property
    def size(self) -> int:
        """Return the bytes of `encode`: 8 per field."""
        return DIGEST_BYTES * len(self.fields)

    def encode(self) -> bytes:
        """Return the digests of all fields, in order of their names."""
        return b"".join(
            hashlib.sha256(label("agreement", name, repr(value))).digest()[:DIGEST_BYTES]
            for name, value in self.fields.items()
        )

    def require_same(self, other: bytes, party: str) -> None:
        """Compare with the digests that `party` sent.

        Raises:
            FaultyPeer: a field differs; the message names every such field.
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
            )
