"""The ideal twin of oblivious transfer: same interface, no protection. For tests only.

::

    sender ── IdealMessages(sid, m_0, m_1) ──▶ receiver picks m_σ

*Receiver learns* both messages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.fields import Raw, Uints
from xclp_crypto.params import DIGEST_BYTES
from xclp_crypto.protocols.ot.interface import (
    SAME,
    Chosen,
    Pairs,
    Requests,
    check_transfers,
    pick,
    require_same_sid,
    sid_digest,
    sizes,
)
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import Message, sent


class IdealMessages(Message):
    """A digest of the sid, and both messages of every transfer. Size: 8 + 2·m·length bytes."""

    TAG = 0x0310
    AGREED = SAME
    digest: bytes = sent(Raw(DIGEST_BYTES))
    pairs: NDArray[np.uint8] = sent(Uints("count", 2, "length", n_bytes=1))


async def ideal_ot(
    io: RoleIO, sending: Pairs, receiving: Requests, sid: bytes, rng: Rng, *, at_least: int = 1
) -> Chosen:
    """Hand over both messages and pick one, so that nothing is hidden: for tests only.

    The receiver, and whoever reads along, gets both messages of every pair. A sender waits for
    nobody, so it does not notice a lost peer. See `ObliviousTransfer`.

    Examples:
        >>> from xclp_crypto.protocols.ot import Choices, ideal_ot
        >>> from xclp_crypto.rng import SystemRng
        >>> from xclp_crypto.transport.simulate import Simulation
        >>> pairs, wanted = np.array([[[1], [2]]], np.uint8), Choices(np.array([True]), length=1)
        >>> def sender(io):
        ...     return ideal_ot(io, {"bob": pairs}, {}, b"first", SystemRng())
        >>> def receiver(io):
        ...     return ideal_ot(io, {}, {"alice": wanted}, b"first", SystemRng())
        >>> outcome = Simulation().run({"alice": sender, "bob": receiver}).raise_errors()
        >>> outcome.results["bob"]["alice"].tolist()
        [[2]]
    """
    check_transfers(sending, receiving)
    for peer, messages in sending.items():
        digest = sid_digest(sid, io.name, peer, len(messages), messages.shape[2])
        await io.send(peer, IdealMessages(digest, messages))
    least = min(at_least, len(receiving))
    got = await io.gather(IdealMessages, tuple(receiving), least, **sizes(receiving))
    for peer, message in got.items():
        count, length = len(receiving[peer].bits), receiving[peer].length
        require_same_sid(message.digest, sid_digest(sid, peer, io.name, count, length), peer)
    return {peer: pick(message.pairs, receiving[peer].bits) for peer, message in got.items()}
