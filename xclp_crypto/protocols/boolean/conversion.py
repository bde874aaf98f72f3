"""Additive shares modulo 2^width to shares of bits, and back, each by one adder.

Examples:
    >>> from xclp_crypto.protocols import boolean
    >>> from xclp_crypto.rng import SystemRng
    >>> from xclp_crypto.transport.simulate import Simulation
    >>> addends = {"p": np.array([250, 3], np.uint8), "q": np.array([7, 4], np.uint8)}  # of 1 and 7
    >>> async def party(io):
    ...     peer = {"p": "q", "q": "p"}[io.name]
    ...     triples = boolean.ideal_triples(io.name, peer, b"example", 99)
    ...     gates = boolean.Gates(io, peer, triples)
    ...     small = await boolean.at_most(gates, addends[io.name], 8, bound=5, largest=255)
    ...     planes = await boolean.to_boolean(gates, addends[io.name], 8)
    ...     share = await boolean.to_additive(gates, planes, 2, SystemRng())
    ...     return boolean.words_to_bits(await gates.open(small), 2).tolist(), share
    >>> results = Simulation().run({"p": party, "q": party}).raise_errors().results
    >>> results["p"][0], ((results["p"][1] + results["q"][1]) % 256).tolist()
    ([True, False], [1, 7])
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.protocols.boolean.circuits import add, less_than_public, subtract
from xclp_crypto.protocols.boolean.gmw import Gates
from xclp_crypto.protocols.boolean.words import (
    Words,
    from_planes,
    require_integer,
    require_lanes,
    require_numbers,
    require_planes,
    require_width,
    to_planes,
)
from xclp_crypto.rng import Rng, require_rng


async def to_boolean(gates: Gates, addend: NDArray[Any], width: int) -> Words:
    """Turn additive shares into shares of planes; width − 1 conjunctions and exchanges.

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


def highest_bit_decides(width: int, bound: int, largest: int) -> bool:
    """Return whether [x > bound] is the highest bit of x + 2^(width−1) − bound − 1.

    It is if that number is in 0 … 2^width − 1 for all x from 0 to `largest`.
    """
    return max(bound + 1, largest - bound) <= 1 << (width - 1)


async def at_most(
    gates: Gates, addend: NDArray[Any], width: int, *, bound: int, largest: int
) -> Words:
    """Return shares of the bits [x ≤ bound] of numbers in additive shares.

    Args:
        gates: this party's.
        addend: (…, n) of an unsigned dtype; both parties' add up to the numbers modulo 2^width.
        width: 1 … 64.
        bound: an integer that both know, at least 0.
        largest: of the numbers, below 2^width, which both know.

    Returns:
        (…, ⌈n/64⌉) words. It takes width − 1 conjunctions where `highest_bit_decides`, else also
        those of `circuits.less_than_public`.

    Raises:
        ParameterError: another dtype or width, or bound or largest is out of range.
    """
    width = require_width(width)
    bound = require_integer("bound", bound)
    largest = require_integer("largest", largest, 0, (1 << width) - 1)
    if not highest_bit_decides(width, bound, largest):
        return await less_than_public(gates, await to_boolean(gates, addend, width), bound + 1)
    shift = (1 << width - 1) - bound - 1 if gates.first else 0
    require_numbers(addend)
    wide = addend if 8 * addend.dtype.itemsize >= width else addend.astype(np.uint64)
    shifted = wide + wide.dtype.type(shift % (1 << 8 * wide.dtype.itemsize))
    above: Words = (await to_boolean(gates, shifted, width))[-1]
    return gates.invert(above)


async def to_additive(gates: Gates, planes: Words, values: int, rng: Rng) -> NDArray[np.uint64]:
    """Turn shares of planes into additive shares; width − 1 conjunctions and exchanges.

    The second party draws r as its share, and the first is told x − r, which is uniform. To add up
    bits over lanes, let them be the lowest of planes that are wide enough for their sum, the others
    zero; then each party sums its own shares.

    Args:
        gates: this party's.
        planes: its share of x, (width, …, ⌈n/64⌉).
        values: n, as many as were sliced.
        rng: source of r.

    Returns:
        This party's share, (…, n) uint64; both add up to x modulo 2^width.

    Raises:
        ParameterError: not 1 … 64 planes, or not of as many words as so many values take.
    """
    require_planes("planes", planes)
    source, width = require_rng(rng), require_width(len(planes))
    values = require_lanes(planes, values)
    shape = (*planes.shape[1:-1], values)
    if gates.first:
        drawn = gates.others(planes.shape)
    else:
        share = source.residues(1 << width, shape).astype(np.uint64)
        drawn = gates.own(await gates.io.compute(to_planes, share, width))
    opened = await gates.open_to(gates.names[0], await subtract(gates, planes, drawn))
    return share if opened is None else await gates.io.compute(from_planes, opened, values)
