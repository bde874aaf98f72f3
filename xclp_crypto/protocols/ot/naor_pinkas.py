"""1-out-of-2 oblivious transfer of Naor and Pinkas (SODA 2001, protocol 3.1), many at once.

::

    sender: m_0, m_1 per transfer               receiver: a choice σ per transfer
    OtSetup(sid, g^r) ──────────────────────▶   k random, PK_σ = g^k, PK_{1−σ} = C − PK_σ
                 ◀───────────────────────────   OtChoices(PK_0)
    OtOffers(Hash(sid, i, b, PK_b^r) ⊕ m_b) ─▶  m_σ = e_σ ⊕ Hash(sid, i, σ, (g^r)^k)

The group is ristretto255, written additively in the code. C is hashed from the session identifier,
so nobody knows its discrete logarithm and it need not be sent; it and r serve one batch. The index
i, the choice b and the point enter the hash, so equal points never give equal pads.

*Receiver learns* one message of each pair; the other is hidden by the computational
Diffie–Hellman assumption in the random-oracle model. *Sender learns* nothing: PK_0 is uniform
whatever σ is. Against semi-honest parties; a receiver that deviates can still not obtain both
messages. Python selects by σ with list indexing, which is not constant time.

Every party can be a sender to some peers and a receiver from others in the same three rounds.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.group import (
    POINT_BYTES,
    Point,
    Scalar,
    hash_to_point,
    multiply,
    multiply_base,
)
from xclp_crypto.errors import DecodeError, FaultyPeer
from xclp_crypto.fields import Encoded, Many, Raw, Uints
from xclp_crypto.params import DIGEST_BYTES
from xclp_crypto.protocols.ot.interface import (
    Chosen,
    Pairs,
    Requests,
    check_transfers,
    pick,
    require_same_sid,
    sid_digest,
    sizes,
)
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.role import RoleIO
from xclp_crypto.wire import Message, sent

_ELEMENT = Encoded(Point, POINT_BYTES, lambda data, dims: Point.decode(data))


class OtSetup(Message):
    """A digest of the session identifier, and g^r, one for a batch. Size: 40 bytes."""

    TAG = 0x0301
    digest: bytes = sent(Raw(DIGEST_BYTES))
    point: Point = sent(_ELEMENT)


class OtChoices(Message):
    """PK_0 of every transfer. Size: 32·m bytes."""

    TAG = 0x0302
    points: tuple[Point, ...] = sent(Many(_ELEMENT, "count"))


class OtOffers(Message):
    """Both encrypted messages of every transfer, (m, 2, length). Size: 2·m·length bytes."""

    TAG = 0x0303
    offers: NDArray[np.uint8] = sent(Uints("count", 2, "length", n_bytes=1))


def _pad(tag: bytes, index: int, choice: int, point: Point, length: int) -> bytes:
    """Return Hash(sid, i, b, point) as `length` bytes of SHAKE256."""
    data = tag + index.to_bytes(8, "big") + bytes([choice]) + point.encode()
    return hashlib.shake_256(data).digest(length)


def _constants(sid: bytes, sender: str, receiver: str) -> tuple[Point, bytes]:
    """Return C and the prefix of all pads of one batch."""
    context = domain_tag("naor-pinkas", sid, sender, receiver)
    return hash_to_point(context, b"C"), domain_tag("naor-pinkas pad", context)


def choose(
    choices: NDArray[np.bool_], constant: Point, rng: Rng
) -> tuple[list[Scalar], tuple[Point, ...]]:
    """Return the receiver's secrets k and the points PK_0, one per transfer."""
    secrets = [Scalar.random(rng) for _ in range(len(choices))]
    points = []
    for k, sigma in zip(secrets, choices, strict=True):
        chosen = multiply_base(k)
        points.append((chosen, constant - chosen)[int(sigma)])
    return secrets, tuple(points)


def offer(
    messages: NDArray[np.uint8],
    points: tuple[Point, ...],
    secret: Scalar,
    constant: Point,
    tag: bytes,
) -> NDArray[np.uint8]:
    """Return both messages of every transfer under their pads, (m, 2, length).

    One variable-base multiplication per transfer: PK_1^r = C^r − PK_0^r.
    """
    length = messages.shape[2]
    raised = multiply(secret, constant)
    pads = bytearray()
    for index, point in enumerate(points):
        zero = multiply(secret, point)
        pads += _pad(tag, index, 0, zero, length)
        pads += _pad(tag, index, 1, raised - zero, length)
    return messages ^ np.frombuffer(bytes(pads), dtype=np.uint8).reshape(messages.shape)


def open_chosen(
    offers: NDArray[np.uint8],
    choices: NDArray[np.bool_],
    secrets: list[Scalar],
    setup: Point,
    tag: bytes,
) -> NDArray[np.uint8]:
    """Return the chosen message of every transfer, (m, length)."""
    count, _, length = offers.shape
    pads = b"".join(
        _pad(tag, i, int(choices[i]), multiply(k, setup), length) for i, k in enumerate(secrets)
    )
    return pick(offers, choices) ^ np.frombuffer(pads, dtype=np.uint8).reshape(count, length)


async def naor_pinkas(
    io: RoleIO, sending: Pairs, receiving: Requests, sid: bytes, rng: Rng, *, at_least: int = 1
) -> Chosen:
    """Run batches of transfers with several peers at once. See `ObliviousTransfer`.

    Examples:
        >>> import numpy as np
        >>> from xclp_crypto.protocols.ot import Choices, naor_pinkas
        >>> from xclp_crypto.rng import SystemRng
        >>> from xclp_crypto.transport.simulate import Simulation
        >>> messages = np.array([[[1], [2]], [[3], [4]]], dtype=np.uint8)
        >>> def sender(io):
        ...     return naor_pinkas(io, {"bob": messages}, {}, b"first", SystemRng())
        >>> def receiver(io):
        ...     wanted = Choices(np.array([False, True]), length=1)
        ...     return naor_pinkas(io, {}, {"alice": wanted}, b"first", SystemRng())
        >>> outcome = Simulation().run({"alice": sender, "bob": receiver}).raise_errors()
        >>> chosen = outcome.results["bob"]
        >>> chosen["alice"].ravel().tolist()
        [1, 4]
    """
    check_transfers(sending, receiving)
    require_rng(rng)
    secrets = {peer: Scalar.random(rng) for peer in sending}
    for peer, secret in secrets.items():
        digest = sid_digest(sid, io.name, peer, len(sending[peer]), sending[peer].shape[2])
        await io.send(peer, OtSetup(digest, multiply_base(secret)))
    setups = await io.gather(OtSetup, tuple(receiving), min(at_least, len(receiving)))
    for peer, setup in setups.items():
        count, length = len(receiving[peer].bits), receiving[peer].length
        require_same_sid(setup.digest, sid_digest(sid, peer, io.name, count, length), peer)

    own: dict[str, list[Scalar]] = {}
    for peer in setups:
        constant, _ = _constants(sid, peer, io.name)
        own[peer], points = await io.compute(choose, receiving[peer].bits, constant, rng)
        await io.send(peer, OtChoices(points))
    counts = {peer: len(messages) for peer, messages in sending.items()}
    least = min(at_least, len(sending))
    picked = await io.gather(OtChoices, tuple(sending), least, count=counts)

    for peer, choice in picked.items():
        constant, tag = _constants(sid, io.name, peer)
        try:
            offers = await io.compute(
                offer, sending[peer], choice.points, secrets[peer], constant, tag
            )
        except DecodeError:  # PK_1 = C − PK_0 is the identity
            raise FaultyPeer(peer, "OtChoices: PK_0 is the constant C of this batch") from None
        await io.send(peer, OtOffers(offers))
    least = min(at_least, len(setups))
    got = await io.gather(OtOffers, tuple(setups), least, **sizes(receiving))
    chosen = {}
    for peer, message in got.items():
        _, tag = _constants(sid, peer, io.name)
        bits, point = receiving[peer].bits, setups[peer].point
        chosen[peer] = await io.compute(open_chosen, message.offers, bits, own[peer], point, tag)
    return chosen
