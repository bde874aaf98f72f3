"""The ideal twin of oblivious transfer: same interface, no protection. For tests only.

::

    sender ── IdealMessages(m_0, m_1) ──▶ receiver picks m_σ

*Receiver learns* both messages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.fields import Uints
from xclp_crypto.protocols.ot.interface import Chosen, Pairs, Requests, check_transfers, pick, sizes
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import Message, sent


class IdealMessages(Message):
    """Both messages of every transfer in the clear. Size: 2·m·length bytes."""

    TAG = 0x0310
    pairs: NDArray[np.uint8] = sent(Uints("count", 2, "length", n_bytes=1))


async def ideal_ot(io: RoleIO, sending: Pairs, receiving: Requests, sid: bytes, rng: Rng) -> Chosen:
    """Hand over both messages and pick one. See `ObliviousTransfer`."""
    check_transfers(sending, receiving)
    for peer, messages in sending.items():
        await io.send(peer, IdealMessages(messages))
    got = await io.gather(IdealMessages, tuple(receiving), 0, **sizes(receiving))
    return {peer: pick(message.pairs, receiving[peer].bits) for peer, message in got.items()}
