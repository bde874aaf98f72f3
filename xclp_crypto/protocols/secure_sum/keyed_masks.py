"""What double masks are made of: masks, pads and images, each from one key; see `double_masks`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import accumulate, derive_key, stream
from xclp_crypto.algebra.ring import Residues
from xclp_crypto.params import SEED_BYTES
from xclp_crypto.protocols.setup import Session


def pair_keys(session: Session, near: Sequence[str], tag: bytes) -> NDArray[np.uint8]:
    """Return the keys of the masks that this client shares with k neighbours in one sum.

    Bytes of shape (k, 32), zeros for neighbours that are not in the session.
    """
    of_sum, keys = domain_tag("sum pair key", tag), np.zeros((len(near), SEED_BYTES), np.uint8)
    for i, peer in enumerate(near):
        if peer in session.numbers:
            keys[i] = np.frombuffer(session.pair_key(peer, of_sum), np.uint8)
    return keys


def add_pair_mask(
    total: Residues, modulus: int, key: bytes, tag: bytes, me: str, peer: str, *, negative: bool
) -> None:
    """Add to `total`, in place, the mask that `me` shares with `peer`, or its negative."""
    pair = domain_tag("sum pair mask", tag, *sorted((me, peer)))
    accumulate(total, key, pair, modulus, subtract=(me > peer) != negative)


def add_self_mask(
    total: Residues, modulus: int, seed: bytes, tag: bytes, client: str, *, negative: bool
) -> None:
    """Add to `total`, in place, the mask that a client shares with nobody, or its negative."""
    accumulate(total, seed, domain_tag("sum self mask", tag, client), modulus, subtract=negative)


def under_pads(
    keys: NDArray[np.uint8], pad_key: bytes, tag: bytes, client: str
) -> NDArray[np.uint8]:
    """Put a client's pair keys, of shape (k, 32), under the pads of its pad key, or undo that."""
    pads = stream(pad_key, domain_tag("sum pads", tag, client), keys.size)
    return keys ^ pads.reshape(keys.shape)


def secret_image(secret: bytes, tag: bytes, client: str) -> bytes:
    """Return 32 bytes by which a recovered secret is known to be right, and which tell no more."""
    return derive_key(secret, domain_tag("sum secret image", tag, client))
