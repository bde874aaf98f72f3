"""Which of its candidates are the k smallest, for many rows at once.

A row is a lane, a candidate a plane: candidate j of row i is lane i of plane j, so that what
belongs to one row is counted by adding planes. Radix search for the k-th smallest, θ, from its
highest bit::

    e = candidates whose higher bits are those of θ, l = candidates that are less already
    x = e·¬b, those of them with a zero here        g = [at least k in l ⊕ x]
    g = 1: θ has a zero, e = x                       g = 0: θ has a one, l = l ⊕ x, e = e ⊕ x

In the end l ⊕ e are the candidates up to θ: the k smallest, and those that are as large as the
k-th. Rows with fewer than k candidates keep all of them.

*Both parties learn* g with ``bounds="opened"``, which is θ bit by bit, and nothing else; with
``"shared"`` nothing, for two conjunctions more in each bit.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.boolean.circuits import at_least
from xclp_crypto.protocols.boolean.gmw import Gates
from xclp_crypto.protocols.boolean.words import (
    Words,
    require_integer,
    require_planes,
    require_words,
)

Bounds = Literal["opened", "shared"]
"""Whether both parties learn the k-th smallest number of every row."""


async def smallest(
    gates: Gates, numbers: Words, k: int, *, valid: Words | None = None, bounds: Bounds = "opened"
) -> Words:
    """Return shares of the bits [candidate j is among the k smallest of row i].

    Args:
        gates: this party's.
        numbers: its share, (width, candidates, ⌈rows/64⌉), of the numbers, the lowest bit first.
        k: how many, at least 1 and the same for both; ties with the k-th are kept.
        valid: which candidates count, (candidates, ⌈rows/64⌉), public and the same for both, as
            from `bits_to_words`; by default all.
        bounds: see `Bounds`.

    Returns:
        (candidates, ⌈rows/64⌉), its share. Once opened, read it by `words_to_bits`. In every bit of
        the numbers, each candidate takes 1 conjunction for x (3 with shared bounds), and about 1
        for counting.

    Raises:
        ParameterError: k or `bounds` is out of range, `valid` has another shape, or something is
            not words.

    Example:
        >>> from xclp_crypto.protocols import boolean
        >>> from xclp_crypto.transport.simulate import Simulation
        >>> distances = np.array([[4], [9], [1], [4]], np.uint8)  # four candidates of one row
        >>> addends = {"p": distances - np.uint8(77), "q": np.full_like(distances, 77)}
        >>> async def party(io):
        ...     peer = {"p": "q", "q": "p"}[io.name]
        ...     triples = boolean.ideal_triples(io.name, peer, b"example", 999)
        ...     gates = boolean.Gates(io, peer, triples)
        ...     planes = await boolean.to_boolean(gates, addends[io.name], 8)
        ...     found = await boolean.smallest(gates, planes, 2)
        ...     return boolean.words_to_bits(await gates.open(found), 1).ravel().tolist()
        >>> Simulation().run({"p": party, "q": party}).raise_errors().results["p"]
        [True, False, True, True]
    """
    if bounds not in ("opened", "shared"):
        raise ParameterError(f"bounds must be 'opened' or 'shared', got {bounds!r}")
    require_planes("numbers", numbers, 3)
    k, shape = require_integer("k", k, 1), numbers.shape[1:]
    valid = np.full(shape, ~np.uint64(0)) if valid is None else valid
    require_words("valid", valid)
    if valid.shape != shape:
        raise ParameterError(f"valid has shape {valid.shape}, not {shape}")
    equal, less = gates.public(valid), np.zeros(shape, numbers.dtype)
    for done, plane in enumerate(numbers[::-1], 1):
        zero = gates.invert(plane)
        below = await gates.conjunction(equal, zero) if done > 1 else zero & valid
        enough = await at_least(gates, less ^ below, k)
        if bounds == "opened":
            found = await gates.open(enough)
            less ^= below & ~found
            equal = below ^ (equal & ~found)
        else:
            one = np.broadcast_to(gates.invert(enough), shape)
            of_equal, of_below = await gates.conjunctions((one, equal), (one, below))
            less ^= of_below
            equal = below ^ of_equal
        gates.io.report("bits of the bounds", done, len(numbers))
    return less ^ equal
