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
from xclp_crypto.protocols.boolean.pairs import pairs_to_offsets
from xclp_crypto.protocols.boolean.words import (
    Words,
    require_integer,
    require_planes,
    require_words,
)

Bounds = Literal["opened", "shared"]
"""Whether both parties learn the k-th smallest number of every row."""


async def smallest(
    gates: Gates,
    numbers: Words,
    k: int,
    *,
    valid: Words | None = None,
    bounds: Bounds = "opened",
    pairs_of: int | None = None,
) -> Words:
    """Return shares of the bits [candidate j is among the k smallest of row i].

    Args:
        gates: this party's.
        numbers: its share, (width, candidates, ⌈rows/64⌉), of the numbers, the lowest bit first.
        k: how many, at least 1 and the same for both; ties with the k-th are kept.
        valid: which candidates count, (candidates, ⌈rows/64⌉), public and the same for both, as
            from `bits_to_words`; by default all.
        bounds: see `Bounds`.
        pairs_of: how many rows there are, if each is a candidate of all others and the numbers are
            those of their pairs, (width, ⌊rows/2⌋, ⌈rows/64⌉), as from `pairs.matrix_to_pairs`.
            Candidates are then the rows − 1 offsets of `pairs`; `pairs.offsets_to_matrix` gives
            the matrix. It halves what converting the numbers takes, and, with opened bounds, the
            conjunctions of the second bit.

    Returns:
        (candidates, ⌈rows/64⌉), its share. Once opened, read it by `words_to_bits`. In every bit of
        the numbers, each candidate takes 1 conjunction for x (3 with shared bounds), and about 1
        for counting.

    Raises:
        ParameterError: k or `bounds` is out of range, `valid` has another shape, something is
            not words, or the numbers are not those of as many rows.

    Examples:
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
    k = require_integer("k", k, 1)
    pairs = numbers
    if pairs_of is not None:
        numbers = await gates.io.compute(pairs_to_offsets, pairs, pairs_of)
    shape = numbers.shape[1:]
    valid = np.full(shape, ~np.uint64(0)) if valid is None else valid
    require_words("valid", valid)
    if valid.shape != shape:
        raise ParameterError(f"valid has shape {valid.shape}, not {shape}")
    equal, less = gates.public(valid), np.zeros(shape, numbers.dtype)
    found = np.zeros(shape[1:], numbers.dtype)  # what the last bit opened
    for done, plane in enumerate(numbers[::-1], 1):
        zero = gates.invert(plane)
        if done == 1:
            below = zero & valid
        elif done == 2 and pairs_of is not None and bounds == "opened":
            # e is [the highest bit is zero] ⊕ what the row has opened: one product for both rows
            product = await gates.conjunction(*map(gates.invert, pairs[:-3:-1]))
            below = valid & (pairs_to_offsets(product, pairs_of) ^ (zero & ~found))
        else:
            below = await gates.conjunction(equal, zero)
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
