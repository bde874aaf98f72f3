"""Key agreement by X25519 (RFC 7748)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from xclp_crypto.errors import DecodeError, FaultyPeer, ParameterError
from xclp_crypto.rng import Rng
from xclp_crypto.secret import Secret

KEY_BYTES: Final = 32


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
        return cls(rng.bytes(KEY_BYTES))

    def export_private(self) -> bytes:
        """Give the 32 secret bytes, as drawn; `KeyPair(these bytes)` is the same pair again."""
        return self._private.private_bytes_raw()

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
