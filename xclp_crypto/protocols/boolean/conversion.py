"""Additive shares modulo 2^width to shares of bits, and back, both by one adder."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.protocols.boolean.circuits import add, subtract
from xclp_crypto.protocols.boolean.gmw import Gates
from xclp_crypto.protocols.boolean.words import Words, check_width, from_planes, to_planes
from xclp_crypto.rng import Rng, require_rng


async def to_boolean(gates: Gates, addend: NDArray[Any], width: int) -> Words:
    """Turn additive shares to shares of planes; width − 1 conjunctions and exchanges.

    Args:
        gates: this party's.
        addend: (…, n) of an unsigned dtype; both parties' add up to the numbers modulo 2^width.
        width: 1 … 64.

    Returns:
        This party's share of the numbers' planes, (width, …, ⌈n/64⌉).

    Raises:
        ParameterError: another dtype or width.
    """
    own = await gates.io.compute(to_planes, addend, width)
    mine, theirs = gates.own(own), gates.others(own.shape)
    return await add(gates, *((mine, theirs) if gates.first else (theirs, mine)))


async def to_additive(gates: Gates, planes: Words, values: int, rng: Rng) -> NDArray[np.uint64]:
    """Turn shares of planes to additive shares; width − 1 conjunctions and exchanges.

    The second party draws r as its share, and the first is told x − r, which is uniform.

    Args:
        gates: this party's.
        planes: its share of x, (width, …, ⌈n/64⌉).
        values: n.
        rng: source of r.

    Returns:
        This party's share, (…, n) uint64; both add up to x modulo 2^width.
    """
    source, width = require_rng(rng), len(planes)
    check_width(width)
    shape = (*planes.shape[1:-1], values)
    if gates.first:
        drawn = gates.others(planes.shape)
    else:
        share = source.residues(1 << width, shape).astype(np.uint64)
        drawn = gates.own(await gates.io.compute(to_planes, share, width))
    opened = await gates.open_to(gates.names[0], await subtract(gates, planes, drawn))
    return share if opened is None else await gates.io.compute(from_planes, opened, values)
