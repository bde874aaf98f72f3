"""The messages of the key exchange, see `key_exchange`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.fields import Bits, Many, Raw, Uints
from xclp_crypto.params import SEED_BYTES
from xclp_crypto.primitives.identity import IDENTITY_BYTES
from xclp_crypto.primitives.key_agreement import CIPHERTEXT_BYTES, KEY_BYTES
from xclp_crypto.wire import Message, sent


class Hello(Message):
    """A client's ephemeral keys, its commitment, digests of what must be agreed, and its numbers.

    Size: 96 + kem + agreement + 4·numbers + signature bytes; a key of ML-KEM-768 has 1,184 bytes,
    or 0 without; a signature has 64 bytes, or 0 without identities.
    """

    TAG = 0x0101
    key: bytes = sent(Raw(KEY_BYTES))
    kem_key: bytes = sent(Raw("kem"))
    commitment: bytes = sent(Raw(SEED_BYTES))
    verify_key: bytes = sent(Raw(IDENTITY_BYTES))
    agreement: bytes = sent(Raw("agreement"))
    values: NDArray[np.uint32] = sent(Uints("numbers", n_bytes=4))
    signature: bytes = sent(Raw("signature"))


class Directory(Message):
    """The server's key, and who takes part with which keys, commitment and numbers.

    Absent clients have zero entries. p clients are invited, and `Hello` has the other letters.
    Size: 32 + ⌈p/8⌉ + p·(96 + kem + 4·numbers) + (p + 1)·signature bytes.
    """

    TAG = 0x0102
    server_key: bytes = sent(Raw(KEY_BYTES))
    present: NDArray[np.bool_] = sent(Bits("invited"))
    keys: tuple[bytes, ...] = sent(Many(Raw(KEY_BYTES), "invited"))
    kem_keys: tuple[bytes, ...] = sent(Many(Raw("kem"), "invited"))
    commitments: tuple[bytes, ...] = sent(Many(Raw(SEED_BYTES), "invited"))
    verify_keys: tuple[bytes, ...] = sent(Many(Raw(IDENTITY_BYTES), "invited"))
    values: NDArray[np.uint32] = sent(Uints("invited", "numbers", n_bytes=4))
    signatures: tuple[bytes, ...] = sent(Many(Raw("signature"), "invited"))
    signature: bytes = sent(Raw("signature"))


class Opening(Message):
    """What a client committed to, and secrets for later clients. Size: 32 + 1088·count bytes."""

    TAG = 0x0103
    value: bytes = sent(Raw(SEED_BYTES))
    ciphertexts: tuple[bytes, ...] = sent(Many(Raw(CIPHERTEXT_BYTES), "count"))


class Openings(Message):
    """Who is left, what they opened, and secrets of the server and earlier clients for one client.

    Absent clients have zero entries. Size: ⌈p/8⌉ + 32·p + 1088·count bytes.
    """

    TAG = 0x0104
    present: NDArray[np.bool_] = sent(Bits("invited"))
    values: tuple[bytes, ...] = sent(Many(Raw(SEED_BYTES), "invited"))
    ciphertexts: tuple[bytes, ...] = sent(Many(Raw(CIPHERTEXT_BYTES), "count"))
