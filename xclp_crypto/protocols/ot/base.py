"""The 128 transfers with reversed roles on which an OT extension stands; see `extension`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import KEY_BYTES
from xclp_crypto.errors import ParameterError
from xclp_crypto.params import KAPPA
from xclp_crypto.protocols.ot import trees
from xclp_crypto.protocols.ot.interface import (
    Choices,
    ObliviousTransfer,
    check_whole,
    require_sid,
)
from xclp_crypto.protocols.ot.naor_pinkas import naor_pinkas
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.role import RoleIO
from xclp_crypto.secret import Secret

FIELD_BITS: Final = (1, 2, 4, 8)
"""Choices of k, log2 of the size of the fields that the columns are over; see `extension`."""


@dataclass(repr=False, eq=False, slots=True)
class BaseTransfers(Secret):
    """The 128 base transfers with each peer and direction, from which extensions are made."""

    _name: str
    _chosen: Mapping[str, tuple[NDArray[np.bool_], NDArray[np.uint8]]]
    _leaves: Mapping[str, NDArray[np.uint8]]
    _trees: int
    _used: set[bytes] = field(default_factory=set)
    _burnt: set[str] = field(default_factory=set)


async def base_transfers(
    io: RoleIO,
    sending: Collection[str],
    receiving: Collection[str],
    sid: bytes,
    rng: Rng,
    transfer: ObliviousTransfer = naor_pinkas,
    *,
    field_bits: int = 1,
    at_least: int = 1,
) -> BaseTransfers:
    """Run 128 base transfers for each peer and direction, in reversed roles.

    Args:
        io: this party.
        sending: peers that this party will send to in extensions.
        receiving: peers that it will receive from.
        sid: identifier, the same for all parties and never used again.
        rng: source of this party's randomness.
        transfer: the oblivious transfer to use.
        field_bits: k, 1, 2, 4 or 8, the same for all parties: extensions send 16/k bytes for each
            transfer, for about 2^k/k times the AES.
        at_least: how many peers must answer, see `ObliviousTransfer`.

    Returns:
        What each side of each extension begins with.

    Raises:
        ParameterError: another k, or a `sid` that is not bytes.
        FaultyPeer: see `transfer`; a peer has other `field_bits`, too.
        TooFewParties: see `transfer`.
    """
    require_sid(sid)
    field_bits = check_whole("field_bits", field_bits, 1)
    if field_bits not in FIELD_BITS:
        raise ParameterError(f"field_bits must be one of {FIELD_BITS}, got {field_bits}")
    source, n = require_rng(rng), KAPPA // field_bits
    grown = {
        peer: await io.compute(
            trees.grow,
            np.frombuffer(source.bytes(n * 2 * KEY_BYTES), np.uint8).reshape(n, 2, KEY_BYTES),
            field_bits,
        )
        for peer in receiving
    }
    secrets = {
        peer: np.unpackbits(np.frombuffer(source.bytes(KAPPA // 8), np.uint8)).astype(bool)
        for peer in sending
    }
    requests = {peer: Choices(bits, KEY_BYTES) for peer, bits in secrets.items()}
    pairs = {peer: sums for peer, (_, sums) in grown.items()}
    tag = domain_tag("ot-extension base", sid, field_bits)
    got = await transfer(io, pairs, requests, tag, rng, at_least=at_least)
    chosen = {
        peer: (secrets[peer], await io.compute(trees.puncture, sums, secrets[peer], field_bits))
        for peer, sums in got.items()
    }
    return BaseTransfers(io.name, chosen, {p: leaves for p, (leaves, _) in grown.items()}, n)
