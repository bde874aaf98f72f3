"""Key agreement by X25519 (RFC 7748), alone or together with ML-KEM-768 (FIPS 203).

Examples:
    >>> from xclp_crypto.primitives.key_agreement import KemPair, KeyPair, encapsulate
    >>> from xclp_crypto.rng import SystemRng
    >>> alice, bob = KeyPair.generate(SystemRng()), KeyPair.generate(SystemRng())
    >>> alice.shared_secret(bob.public, "bob") == bob.shared_secret(alice.public, "alice")
    True
    >>> kem = KemPair.generate(SystemRng())
    >>> secret, ciphertext = encapsulate(kem.public, "bob")
    >>> kem.decapsulate(ciphertext) == secret
    True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import DecodeError, FaultyPeer, ParameterError
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.secret import Secret

KEY_BYTES: Final = 32
KEM_KEY_BYTES: Final = 1184
"""Of a public key of ML-KEM-768 (FIPS 203, table 3)."""
KEM_SEED_BYTES: Final = 64
CIPHERTEXT_BYTES: Final = 1088
"""Of a secret that is encapsulated for such a key."""


@dataclass(frozen=True, slots=True)
class ExchangeKey:
    """A public key of X25519: any 32 bytes, of which `KeyPair.shared_secret` refuses the weak ones.

    Raises:
        DecodeError: another length or type.
    """

    data: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes) or len(self.data) != KEY_BYTES:
            got = len(self.data) if isinstance(self.data, bytes) else type(self.data).__name__
            raise DecodeError(f"a public key has {KEY_BYTES} bytes, got {got}")

    def encode(self) -> bytes:
        """Give the 32 bytes of the key."""
        return self.data


class KeyPair(Secret):
    """A key pair of X25519, for one session.

    Attributes:
        public: the half that is sent to the peers.
    """

    __slots__ = ("_private", "public")
    public: ExchangeKey

    def __init__(self, private: bytes) -> None:
        if len(private) != KEY_BYTES:
            raise ParameterError(f"a private key has {KEY_BYTES} bytes, got {len(private)}")
        self._private = X25519PrivateKey.from_private_bytes(private)
        self.public = ExchangeKey(self._private.public_key().public_bytes_raw())

    @classmethod
    def generate(cls, rng: Rng) -> KeyPair:
        """Make a key pair of 32 bytes drawn from `rng`."""
        return cls(require_rng(rng).bytes(KEY_BYTES))

    def shared_secret(self, peer: ExchangeKey, party: str) -> bytes:
        """Agree on a secret with the owner of a public key (RFC 7748, section 6.1).

        Args:
            peer: the other's public key.
            party: the other's name, for the error.

        Returns:
            32 bytes to derive keys from; not themselves a key.

        Raises:
            FaultyPeer: the key has small order, so that anybody could tell the secret: it is zero.
        """
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(peer.data))
        except ValueError:
            # The check for an all-zero result is the library's (RFC 7748, section 6.1).
            raise FaultyPeer(
                party, "its X25519 public key has small order, which no honest key has"
            ) from None


class KemPair(Secret):
    """A key pair of ML-KEM-768, for one session.

    Attributes:
        public: 1,184 bytes that are sent to the peers.

    Args:
        seed: 64 secret bytes, d ‖ z of FIPS 203, section 7.1.
    """

    __slots__ = ("_private", "public")
    public: bytes

    def __init__(self, seed: bytes) -> None:
        self._private = MLKEM768PrivateKey.from_seed_bytes(seed)
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, rng: Rng) -> KemPair:
        """Make a key pair of 64 bytes drawn from `rng`."""
        return cls(require_rng(rng).bytes(KEM_SEED_BYTES))

    def decapsulate(self, ciphertext: bytes) -> bytes:
        """Return the 32-byte secret of `ciphertext`; of one that was altered, an unrelated one."""
        return self._private.decapsulate(ciphertext)


def encapsulate(public: bytes, party: str) -> tuple[bytes, bytes]:
    """Draw a secret for the owner of a key of ML-KEM-768.

    The library draws it from the operating system and offers nothing else, so a role has to call
    this in a function that is marked by `xclp_crypto.role.recorded`.

    Args:
        public: 1,184 bytes.
        party: the owner's name, for the error.

    Returns:
        32 secret bytes, and the ciphertext of 1,088 bytes that tells them to the owner alone.

    Raises:
        FaultyPeer: the key has coefficients out of range (FIPS 203, section 7.2).
    """
    try:
        return MLKEM768PublicKey.from_public_bytes(public).encapsulate()
    except ValueError:
        raise FaultyPeer(
            party, "its ML-KEM-768 public key is out of range, which no honest key is"
        ) from None


def hybrid_secret(classical: bytes, kem: bytes, sender: str, receiver: str, sent: bytes) -> bytes:
    """Combine two secrets of one pair of parties, so that it takes both to know the result.

    HKDF over both, the one of ML-KEM first, as in the hybrid of TLS (draft-ietf-tls-ecdhe-mlkem)
    and in X-Wing (draft-connolly-cfrg-xwing-kem). X-Wing leaves out the ciphertext, because that of
    ML-KEM is bound by its secret; here it is in HKDF's info, as in TLS' transcript. The public keys
    are in the session identifier, to which everything that is derived from the result is bound.

    Args:
        classical: of X25519.
        kem: of ML-KEM-768.
        sender: the party that encapsulated.
        receiver: the party whose key it was.
        sent: the ciphertext.
    """
    return derive_key(kem + classical, domain_tag("hybrid secret", sender, receiver, sent))
