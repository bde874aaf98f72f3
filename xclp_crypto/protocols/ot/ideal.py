"""The ideal twin of oblivious transfer: same interface, no protection. For tests only.

::

    sender ── IdealMessages(m_0, m_1) ──▶ receiver picks m_σ

*Receiver learns* both messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.fields import Uints
from xclp_crypto.protocols.ot.interface import Choices, check_choices, check_messages
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import Message, sent


class IdealMessages(Message):
    """Both messages of every transfer in the clear. Size: 2·m·length bytes."""

    TAG = 0x0310
    pairs: NDArray[np.uint8] = sent(Uints("count", 2, "length", n_bytes=1))


async def ideal_ot(
    io: RoleIO,
    sending: Mapping[str, NDArray[np.uint8]],
    receiving: Mapping[str, Choices],
    sid: bytes,
    rng: Rng,
) -> dict[str, NDArray[np.uint8]]:
    """Hand over both messages and pick one. See `ObliviousTransfer`."""
    for messages in sending.values():
        check_messages(messages)
    for request in receiving.values():
        check_choices(request)
    for peer, messages in sending.items():
        await io.send(peer, IdealMessages(messages))
    got = await io.gather(
        IdealMessages,
        tuple(receiving),
        0,
        count={peer: len(request.bits) for peer, request in receiving.items()},
        length={peer: request.length for peer, request in receiving.items()},
    )
    return {
        peer: message.pairs[
            np.arange(len(receiving[peer].bits)), receiving[peer].bits.astype(np.intp)
        ]
        for peer, message in got.items()
    }
