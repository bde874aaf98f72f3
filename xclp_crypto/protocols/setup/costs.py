"""What the key exchange costs without dropouts and signatures, from the sizes alone."""

from __future__ import annotations

from collections.abc import Sequence

from xclp_crypto.primitives.key_agreement import KEM_KEY_BYTES
from xclp_crypto.protocols.setup.channel import SERVER
from xclp_crypto.protocols.setup.messages import Directory, Hello, Opening, Openings
from xclp_crypto.wire import TAG_BYTES

ROUNDS = 4
"""Messages that must wait for each other in the key exchange."""


def key_exchange_bytes(
    clients: Sequence[str], agreement: int, numbers: int, *, post_quantum: bool = True
) -> dict[tuple[str, str], int]:
    """Return the bytes by (from, to), nothing of which is sealed.

    Args:
        clients: all take part.
        agreement: bytes of the digests of what they agree on.
        numbers: how many each announces.
        post_quantum: whether ML-KEM-768 is used.
    """
    p, kem = len(clients), KEM_KEY_BYTES if post_quantum else 0
    dims = {"numbers": numbers, "signature": 0, "kem": kem}
    links = {}
    for i, client in enumerate(clients):
        later, earlier = (p - 1 - i, i + 1) if post_quantum else (0, 0)
        hello, opening = Hello.size(agreement=agreement, **dims), Opening.size(count=later)
        directory, openings = (
            Directory.size(invited=p, **dims),
            Openings.size(invited=p, count=earlier),
        )
        links[client, SERVER] = 2 * TAG_BYTES + hello + opening
        links[SERVER, client] = 2 * TAG_BYTES + directory + openings
    return links
