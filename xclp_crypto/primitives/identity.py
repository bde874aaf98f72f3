"""Ed25519 signatures (RFC 8032): under identities that others pin, and keys for one session.

OpenSSL refuses signatures of another length or with S ≥ ℓ, but takes any 32 bytes as a public key:
also keys of small order, under which anybody can make signatures of any message, and second
encodings of one key. `Identity` refuses both. A key with only a component of small order is taken:
to make one takes the private key, and it does not help anybody else to sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from xclp_crypto.errors import DecodeError, FaultyPeer, ParameterError
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.secret import Secret

IDENTITY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
TEXT_PREFIX: Final = "xclp-ed25519:"

_FIELD = 2**255 - 19
_D = -121665 * pow(121666, -1, _FIELD) % _FIELD
"""The curve is −x² + y² = 1 + d·x²·y² modulo 2^255 − 19."""

_Y8 = 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset({1, _FIELD - 1, 0, _Y8, _FIELD - _Y8})
"""y of the eight points of order 1, 2, 4 and 8. Only the first two have x = 0 and so no sign."""


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """The public half of an `IdentityKey`: 32 bytes that others pin. Hashable, compares by value.

    Raises:
        DecodeError: another length or type, not the canonical encoding of a point of the curve, or
            a point of small order.

    Examples:
        >>> from xclp_crypto import Identity, IdentityKey
        >>> from xclp_crypto.rng import SystemRng
        >>> key = IdentityKey.generate(SystemRng())
        >>> pinned = Identity.from_text(key.public.to_text())
        >>> pinned.verify(key.sign(b"message"), b"message", "alice")  # or FaultyPeer
    """

    data: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes) or len(self.data) != IDENTITY_BYTES:
            got = len(self.data) if isinstance(self.data, bytes) else type(self.data).__name__
            raise DecodeError(f"an identity has {IDENTITY_BYTES} bytes, got {got}")
        y = int.from_bytes(self.data, "little") & ((1 << 255) - 1)
        if y in _SMALL_ORDER:
            raise DecodeError("an identity of small order, under which anybody can sign")
        # x² = (y² − 1)/(d·y² + 1) has a root exactly if the product of the two is a square.
        square = y * y % _FIELD
        product = (square - 1) * (_D * square + 1) % _FIELD
        if y >= _FIELD or pow(product, (_FIELD - 1) // 2, _FIELD) != 1:
            raise DecodeError("an identity is the canonical encoding of a point of edwards25519")

    @classmethod
    def from_text(cls, text: str) -> Identity:
        """Read what `to_text` gave.

        Raises:
            DecodeError: another prefix, anything but 64 lower-case hexadecimal digits, or bytes
                that are not an identity; the text is not repeated, in case it is a secret.
        """
        digits = text.removeprefix(TEXT_PREFIX) if isinstance(text, str) else ""
        try:
            data = bytes.fromhex(digits)
        except ValueError:
            data = b""
        if len(data) != IDENTITY_BYTES or text != TEXT_PREFIX + data.hex():
            raise DecodeError(
                f"the text of an identity is {TEXT_PREFIX} and {2 * IDENTITY_BYTES} lower-case "
                "hexadecimal digits"
            )
        return cls(data)

    def to_text(self) -> str:
        """Give the text for a configuration: ``xclp-ed25519:`` and 64 hexadecimal digits."""
        return TEXT_PREFIX + self.data.hex()

    def encode(self) -> bytes:
        """Give the 32 bytes of the key."""
        return self.data

    def verify(self, signature: bytes, message: bytes, party: str) -> None:
        """Require that the owner of this identity signed `message`.

        Args:
            signature: 64 bytes.
            message: what was signed.
            party: who must have signed, for the error.

        Raises:
            FaultyPeer: the signature does not verify.
        """
        try:
            Ed25519PublicKey.from_public_bytes(self.data).verify(signature, message)
        except InvalidSignature:
            raise FaultyPeer(
                party, "its signature does not verify under its pinned identity"
            ) from None

    def __repr__(self) -> str:
        return f"<Identity {self.to_text()}>"


class IdentityKey(Secret):
    """A signing key of one party: its identity in all its sessions, or drawn for one session.

    Who has a copy of an identity can take the party's place in later sessions; it does not open
    earlier ones, whose keys come from ephemeral keys.

    Attributes:
        public: the half that the others pin.

    Args:
        seed: 32 secret bytes (RFC 8032, section 5.1.5).

    Raises:
        ParameterError: a seed of another length or type.

    Examples:
        >>> from xclp_crypto import IdentityKey
        >>> from xclp_crypto.rng import SystemRng
        >>> key = IdentityKey.generate(SystemRng())
        >>> IdentityKey(key.export_private()).public == key.public
        True
    """

    __slots__ = ("_private", "public")
    public: Identity

    def __init__(self, seed: bytes) -> None:
        if not isinstance(seed, bytes) or len(seed) != IDENTITY_BYTES:
            got = len(seed) if isinstance(seed, bytes) else type(seed).__name__
            raise ParameterError(f"an identity key has {IDENTITY_BYTES} bytes, got {got}")
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = Identity(self._private.public_key().public_bytes_raw())

    @classmethod
    def generate(cls, rng: Rng) -> IdentityKey:
        """Make a key of 32 bytes drawn from `rng`."""
        return cls(require_rng(rng).bytes(IDENTITY_BYTES))

    def sign(self, message: bytes) -> bytes:
        """Sign a message, which must be a domain tag so that it cannot stand for another use.

        Returns:
            64 bytes, the same for the same message.
        """
        return self._private.sign(message)

    def export_private(self) -> bytes:
        """Give the 32 secret bytes; `IdentityKey(these bytes)` is the same key again."""
        return self._private.private_bytes_raw()


@lru_cache(maxsize=4096)  # among hundreds of clients in one process all verify the same signatures
def verifies(key: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether `message` was signed under `key`: a function of public data alone.

    Args:
        key: any bytes; for an `Identity`, which takes longer to check than a signature, if whoever
            announced it could gain by letting others sign in its name.
        signature: any bytes.
        message: what was signed, a short domain tag, of which 4,096 may be kept.
    """
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
