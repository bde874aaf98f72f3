"""Sealing of messages between two parties by AES-256-GCM (NIST SP 800-38D)."""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import derive_key
from xclp_crypto.errors import DecodeError, ParameterError, ReuseError
from xclp_crypto.secret import Secret

OVERHEAD: Final = 16
"""Bytes by which sealing lengthens a message: the tag. The nonce is counted, not sent."""

MAX_PLAINTEXT: Final = 2**31 - 1 - OVERHEAD
"""The longest message, in bytes, that the library seals at once; longer ones go in chunks."""


class SealedBox(Secret):
    """One direction of one link: seals at one end or opens at the other, and counts.

    The nonce is the 96-bit number of the message, and the AES key is derived from `key` and `tag`,
    so a nonce never repeats as long as every direction of every link has its own tag or key. A
    message that is replayed, reordered or altered does not open, and after one that was left out
    none opens. Whether the last message is missing, the protocol has to know.

    Args:
        key: at least 16 bytes, such as an X25519 shared secret.
        tag: from `domain_tag`, bound to session, sender and receiver.

    Raises:
        ParameterError: a key that is too short.
    """

    __slots__ = ("_count", "_key", "_use")

    def __init__(self, key: bytes, tag: bytes) -> None:
        # Not the cipher itself: it takes 2 kB, for each of the 10^6 boxes of 700 clients, and less
        # than a microsecond to make.
        self._key = derive_key(key, domain_tag("sealed-box", tag))
        self._count = 0
        self._use: str | None = None

    def seal(self, plaintext: bytes, associated: bytes = b"") -> bytes:
        """Encrypt and authenticate the next message.

        Args:
            plaintext: at most 2^31 − 17 bytes.
            associated: authenticated, not sent; the receiver has to give the same.

        Returns:
            len(plaintext) + 16 bytes.

        Raises:
            ParameterError: the message is too long.
            ReuseError: this box already opens messages.
        """
        self._check_use("seal")
        if len(plaintext) > MAX_PLAINTEXT:
            raise ParameterError(
                f"a message of {len(plaintext)} bytes is too long to seal: at most {MAX_PLAINTEXT}"
            )
        nonce = self._count.to_bytes(12, "big")
        # Counted before use, so that a call that fails half-way cannot make a nonce repeat.
        self._count += 1
        return AESGCM(self._key).encrypt(nonce, plaintext, associated)

    def open(self, ciphertext: bytes, associated: bytes = b"") -> bytes:
        """Check and decrypt the next message; after a failure the same message is still expected.

        Args:
            ciphertext: what `seal` gave.
            associated: as given to `seal`.

        Raises:
            DecodeError: not the next message of the peer: altered, truncated, replayed, out of
                order, or sealed under another key or other associated bytes.
            ReuseError: this box already seals messages.
        """
        self._check_use("open")
        if len(ciphertext) > MAX_PLAINTEXT + OVERHEAD:
            raise DecodeError(
                f"a sealed message of {len(ciphertext)} bytes is too long: at most "
                f"{MAX_PLAINTEXT + OVERHEAD}"
            )
        try:
            nonce = self._count.to_bytes(12, "big")
            plaintext = AESGCM(self._key).decrypt(nonce, ciphertext, associated)
        except InvalidTag:
            raise DecodeError(
                f"message {self._count} of this channel does not open: {len(ciphertext)} bytes that"
                " were altered, replayed, out of order, or sealed under another key"
            ) from None
        self._count += 1
        return plaintext

    def _check_use(self, use: str) -> None:
        # One counter for both would let a nonce repeat, in the other direction.
        if self._use not in (None, use):
            raise ReuseError(
                f"this box is used to {self._use}; the other direction has its own box"
            )
        self._use = use


def channel_pair(shared: bytes, me: str, peer: str, context: bytes) -> tuple[SealedBox, SealedBox]:
    """Make the two directions of a link; the peer's call with the names exchanged matches.

    Args:
        shared: the secret of both, at least 16 bytes, such as `KeyPair.shared_secret`.
        me: the own name.
        peer: the other's name.
        context: the session identifier and whatever else both ends have to agree on.

    Returns:
        The box that seals what is sent, and the box that opens what is received.

    Raises:
        ParameterError: both names are the same, or the secret is too short.

    Examples:
        >>> from xclp_crypto.primitives.sealed_box import channel_pair
        >>> shared = bytes(range(32))  # such as `KeyPair.shared_secret`
        >>> to_bob, _ = channel_pair(shared, "alice", "bob", b"session")
        >>> _, from_alice = channel_pair(shared, "bob", "alice", b"session")
        >>> from_alice.open(to_bob.seal(b"hello"))
        b'hello'
    """
    if me == peer:
        raise ParameterError(f"a link needs two parties, got {me!r} twice")
    return (
        SealedBox(shared, domain_tag("channel", me, peer, context)),
        SealedBox(shared, domain_tag("channel", peer, me, context)),
    )
