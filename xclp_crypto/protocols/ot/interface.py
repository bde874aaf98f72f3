"""Oblivious transfer: one interface for every construction and for the ideal twin."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import FaultyPeer, ParameterError
from xclp_crypto.params import DIGEST_BYTES
from xclp_crypto.protocols.ot.bits import WORD_BITS, lane_type
from xclp_crypto.rng import Rng
from xclp_crypto.role import RoleIO

SAME: Final = (
    "sid, number and order of batches must be those of both ends, and so must kind, number and "
    "sizes of transfers, field_bits and check_receiver"
)
"""What both ends must mean alike."""


@dataclass(frozen=True, repr=False)
class Choices:
    """What a receiver asks of one sender.

    Attributes:
        bits: (m,) bool, the choice in each transfer.
        length: bytes of each message; in correlated transfers, residues of each vector.
    """

    bits: NDArray[np.bool_]
    length: int


Pairs: TypeAlias = Mapping[str, NDArray[np.uint8]]
"""By receiver, (m, 2, length): the two messages of each transfer."""
Requests: TypeAlias = Mapping[str, Choices]
"""By sender, the choices."""
Chosen: TypeAlias = dict[str, NDArray[np.uint8]]
"""By sender, (m, length): the chosen messages."""


class ObliviousTransfer(Protocol):
    """A batch of 1-out-of-2 transfers with each of several peers.

    Peers that drop out are missing from the result as long as `at_least` of this party's senders,
    and of its receivers, answer: so with one peer, a call that ends without an error has not lost
    it. A sender learns that its receivers asked, not that its messages arrived.
    """

    async def __call__(
        self,
        io: RoleIO,
        sending: Pairs,
        receiving: Requests,
        sid: bytes,
        rng: Rng,
        *,
        at_least: int = 1,
    ) -> Chosen:
        """Send to some peers and receive from others.

        Args:
            io: this party.
            sending: by receiver, (m, 2, length) uint8, the two messages of each transfer.
            receiving: by sender, the choices.
            sid: identifier of this batch, the same for all parties and never used again.
            rng: source of this party's randomness.
            at_least: how many senders, and how many receivers, must answer, or all of fewer; 0
                where a protocol goes on without them.

        Returns:
            By sender, (m, length) uint8, the chosen messages.

        Raises:
            ParameterError: messages or choices have the wrong shape or type, or a peer is not
                another party.
            FaultyPeer: a peer has another `sid` or other sizes, which is found before any choice or
                message is used, or sent something that does not decode to group elements.
            TooFewParties: fewer answer; names the others.
        """
        ...


def sizes(receiving: Requests) -> dict[str, dict[str, int]]:
    """Return the sizes of what each sender answers, by name and sender, for `RoleIO.gather`."""
    return {
        "count": {peer: len(request.bits) for peer, request in receiving.items()},
        "length": {peer: request.length for peer, request in receiving.items()},
    }


def require_sid(sid: object) -> None:
    """Refuse, by a `ParameterError`, an identifier that is not bytes: text is another one."""
    if not isinstance(sid, bytes):
        raise ParameterError(f"sid must be bytes, such as b'run 1', got {type(sid).__name__}")


def sid_digest(sid: bytes, sender: str, receiver: str, *about: str | int) -> bytes:
    """Return what the first message between two parties says of the batch that it begins.

    Args:
        sid: identifier of the batch.
        sender: of transfers, or the dealer.
        receiver: the other one.
        about: what else both must mean alike, see `SAME`.
    """
    require_sid(sid)
    plain = (item if isinstance(item, str) else int(item) for item in about)
    named = domain_tag("oblivious transfers", sid, sender, receiver, *plain)
    return hashlib.sha256(named).digest()[:DIGEST_BYTES]


def require_same_sid(
    found: bytes, expected: bytes, party: str, why: str = f"it runs another batch: {SAME}"
) -> None:
    """Refuse what is not for this batch: all that it gives would be garbage.

    Args:
        found: the digest that was received.
        expected: this party's.
        party: which sent it.
        why: what is wrong, for the error.

    Raises:
        FaultyPeer: names `party`, which sent the digest that was found.
    """
    if found != expected:
        raise FaultyPeer(party, why, public=True)


def pick(pairs: NDArray[np.uint8], bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the message (m, length) that each choice (m,) picks from its pair (m, 2, length)."""
    return pairs[np.arange(len(pairs)), bits.astype(np.intp)]


def check_whole(what: str, value: int, least: int) -> int:
    """Return a whole number that is large enough; else raise a `ParameterError` that says what."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ParameterError(f"{what} must be a whole number, at least {least}, got {value!r}")
    return int(value)


def _check_array(what: str, value: NDArray[Any]) -> None:
    if not isinstance(value, np.ndarray):
        raise ParameterError(f"{what} must be a NumPy array, got {type(value).__name__}")


def check_transfers(sending: Pairs, receiving: Requests) -> None:
    """Refuse messages, by a `ParameterError`, that are not (m, 2, length ≥ 1) uint8.

    For choices see `check_choices`.
    """
    for messages in sending.values():
        _check_array("messages", messages)
        if messages.ndim != 3 or messages.shape[1] != 2 or messages.shape[2] < 1:
            raise ParameterError(
                f"messages must have shape (transfers, 2, bytes), got {messages.shape}; both "
                "messages of a pair have the same length"
            )
        if messages.dtype != np.uint8:
            raise ParameterError(f"messages must be uint8, got {messages.dtype}")
    for request in receiving.values():
        check_choices(request)


def check_choices(request: Choices) -> None:
    """Refuse, by a `ParameterError`, what are not `Choices` of (m,) bool and a length ≥ 1."""
    if not isinstance(request, Choices):
        raise ParameterError(f"Choices(bits, length) are needed, got {type(request).__name__}")
    _check_array("choices", request.bits)
    if request.bits.ndim != 1 or request.bits.dtype != np.bool_:
        raise ParameterError(
            f"choices must be a vector of booleans, got {request.bits.dtype} {request.bits.shape}"
        )
    check_whole("the length of messages", request.length, 1)


def check_offsets(offsets: NDArray[Any], width: int) -> None:
    """Refuse offsets, by a `ParameterError`, of a wrong type or shape, or a wrong width.

    They are (m, n ≥ 1), uint16 for 1 to 16 bits, uint32 for up to 32, and uint64 for up to 64.
    """
    if check_whole("the width of residues", width, 1) > WORD_BITS:
        raise ParameterError(f"residues of {width} bits; they have 1 to {WORD_BITS}")
    dtype = lane_type(width)
    _check_array("offsets", offsets)
    if offsets.ndim != 2 or offsets.shape[1] < 1 or offsets.dtype != dtype:
        raise ParameterError(
            f"offsets of {width} bits must be {dtype.name} of shape (transfers, residues), got "
            f"{offsets.dtype} {offsets.shape}"
        )
