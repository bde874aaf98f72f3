"""Circuits over shared bits: adding, comparing, counting.

Numbers are shares of planes, (width, …) words with the lowest bit first (see `words`), unsigned.
Each function states how many conjunctions it takes for every word of a plane, and how many
exchanges; `costs` has them as formulas. All refuse, by a `ParameterError`, what are not words.

Examples:
    >>> from xclp_crypto.protocols import boolean
    >>> from xclp_crypto.transport.simulate import Simulation
    >>> held = {"p": np.array([5, 200, 0], np.uint8), "q": np.array([5, 100, 9], np.uint8)}
    >>> async def party(io):
    ...     peer = {"p": "q", "q": "p"}[io.name]
    ...     triples = boolean.ideal_triples(io.name, peer, b"example", 99)
    ...     gates = boolean.Gates(io, peer, triples)
    ...     own = gates.own(boolean.to_planes(held[io.name], 8))
    ...     other = gates.others(own.shape)
    ...     x, y = (own, other) if gates.first else (other, own)
    ...     numbers = [await boolean.add(gates, x, y), await boolean.subtract(gates, x, y)]
    ...     numbers += [await boolean.count(gates, x)]  # how many bits of x are ones
    ...     bits = [await boolean.less_than(gates, x, y)]
    ...     bits += [await boolean.less_than_public(gates, x, 9)]
    ...     bits += [await boolean.any_of(gates, x), await boolean.at_least(gates, x, 3)]  # of x
    ...     opened = [boolean.from_planes(await gates.open(z), 3).tolist() for z in numbers]
    ...     return opened, boolean.words_to_bits(await gates.open(np.stack(bits)), 3).astype(int)
    >>> numbers, bits = Simulation().run({"p": party, "q": party}).raise_errors().results["p"]
    >>> numbers
    [[10, 44, 9], [0, 100, 247], [2, 3, 0]]
    >>> bits.tolist()
    [[0, 0, 1], [1, 0, 1], [1, 1, 0], [0, 1, 0]]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.boolean.gmw import Gates
from xclp_crypto.protocols.boolean.words import (
    WORD,
    Words,
    require_integer,
    require_planes,
    require_words,
)


def _require_alike(x: Words, y: Words) -> None:
    require_planes("x", x)
    require_planes("y", y)
    if x.shape != y.shape:
        raise ParameterError(f"numbers of shapes {x.shape} and {y.shape}")


async def _carries(gates: Gates, x: Words, y: Words, carry: Words, last: bool) -> list[Words]:
    """Return the carry into each bit of x + y + carry, and if `last` the one out of them.

    c_{t+1} = c_t ⊕ (x_t⊕c_t)(y_t⊕c_t), one conjunction for the three's majority.
    """
    carries = [carry]
    for x_t, y_t in zip(x, y, strict=True) if last else zip(x[:-1], y[:-1], strict=True):
        carry = carry ^ await gates.conjunction(x_t ^ carry, y_t ^ carry)
        carries.append(carry)
    return carries


async def add(gates: Gates, x: Words, y: Words) -> Words:
    """Return shares of x + y modulo 2^width; width − 1 conjunctions and exchanges.

    Args:
        gates: this party's.
        x: (width, …) planes.
        y: as many.

    Raises:
        ParameterError: different shapes.
    """
    _require_alike(x, y)
    carries = await _carries(gates, x, y, np.zeros_like(x[0]), last=False)
    return x ^ y ^ np.stack(carries)


async def subtract(gates: Gates, x: Words, y: Words) -> Words:
    """Return shares of x − y modulo 2^width, as x + ¬y + 1; see `add`."""
    _require_alike(x, y)
    y = gates.invert(y)
    carries = await _carries(gates, x, y, gates.ones(x[0].shape), last=False)
    return x ^ y ^ np.stack(carries)


async def less_than(gates: Gates, x: Words, y: Words) -> Words:
    """Return shares of the bit [x < y]; width conjunctions and exchanges.

    x + ¬y + 1 carries out of the highest bit exactly if x ≥ y.

    Args:
        gates: this party's.
        x: (width, …) planes.
        y: as many.

    Returns:
        (…) words.

    Raises:
        ParameterError: different shapes.
    """
    _require_alike(x, y)
    carries = await _carries(gates, x, gates.invert(y), gates.ones(x[0].shape), last=True)
    return gates.invert(carries[-1])


async def less_than_public(gates: Gates, x: Words, bound: int) -> Words:
    """Return shares of the bit [x < bound]; at most width − 1 conjunctions and exchanges.

    From the lowest bit up: where the bound has a one, a zero of x decides for it, where it has a
    zero, a one of x against it; so up to its lowest one nothing is less.

    Args:
        gates: this party's.
        x: (width, …) planes.
        bound: an integer that both know, at least 0.

    Returns:
        (…) words, one plane.

    Raises:
        ParameterError: a bound that is negative or not an integer, or no planes.
    """
    require_planes("x", x)
    bound = require_integer("bound", bound)
    if bound >> len(x):
        return gates.ones(x[0].shape)
    less: Words | None = None
    for t, x_t in enumerate(x):
        one = bound >> t & 1
        if less is None:
            less = gates.invert(x_t) if one else None
        elif one:
            less = await gates.disjunction(gates.invert(x_t), less)
        else:
            less = await gates.conjunction(gates.invert(x_t), less)
    return np.zeros_like(x[0]) if less is None else less


async def any_of(gates: Gates, planes: Words) -> Words:
    """Return shares of the disjunction of planes, (count, …), zero if there are none.

    It takes count − 1 conjunctions, in ⌈log2 count⌉ exchanges.
    """
    require_words("planes", planes, 2)
    if not len(planes):
        return np.zeros(planes.shape[1:], WORD)
    while len(planes) > 1:
        half = len(planes) // 2
        joined = await gates.disjunction(planes[:half], planes[half : 2 * half])
        planes = np.concatenate([joined, planes[2 * half :]])
    first: Words = planes[0]
    return first


@dataclass
class Layer:
    """One exchange of a counter: by weight, how many groups of up to three planes are added."""

    groups: dict[int, int] = field(default_factory=dict)


def counting_layers(planes: int, offset: int, weights: int) -> Iterator[Layer]:
    """Plan how planes are counted: layer by layer, which groups of three are added.

    A group of three planes of one weight becomes a plane of this weight, their sum, and one of the
    next, their carry, by one conjunction. Two planes that are left when nothing more will come
    are a group as well. What reaches weight 2^weights is left there.

    Args:
        planes: of weight 1.
        offset: a constant that is added, below 2^weights.
        weights: 2^0 … 2^(weights−1) are counted.
    """
    sizes = [(planes if w == 0 else 0) + (offset >> w & 1) for w in range(weights)]
    while any(size > 1 for size in sizes):
        layer = Layer()
        for w, size in enumerate(sizes):
            final = size == 2 and not any(s > 1 for s in sizes[:w])
            groups = 1 if final else size // 3
            if groups:
                layer.groups[w] = groups
        for w, groups in layer.groups.items():
            sizes[w] -= min(sizes[w] - 1, 2 * groups)
            if w + 1 < weights:
                sizes[w + 1] += groups
        yield layer


async def _counted(
    gates: Gates, planes: Words, offset: int, weights: int
) -> tuple[list[Words], Words]:
    """Count planes, (count, …), and add an offset.

    Returns:
        The bits of weight 2^0 … 2^(weights−1), and all carries of weight 2^weights, (…, …).
    """
    shape = planes.shape[1:]
    stacks = [np.zeros((0, *shape), WORD) for _ in range(weights + 1)]
    stacks[0] = planes
    for w in range(weights):
        if offset >> w & 1:
            stacks[w] = np.concatenate([stacks[w], gates.ones((1, *shape))])
    for layer in counting_layers(len(planes), offset, weights):
        added = {}
        for w, groups in layer.groups.items():
            taken, stacks[w] = stacks[w][: 3 * groups], stacks[w][3 * groups :]
            if len(taken) < 3 * groups:  # two are left, and the third is zero
                taken = np.concatenate([taken, np.zeros((1, *shape), WORD)])
            added[w] = taken.reshape(groups, 3, *shape).swapaxes(0, 1)
        products = await gates.conjunctions(*((a ^ b, a ^ c) for a, b, c in added.values()))
        for (w, (a, b, c)), product in zip(added.items(), products, strict=True):
            stacks[w] = np.concatenate([stacks[w], a ^ b ^ c])
            stacks[w + 1] = np.concatenate([stacks[w + 1], a ^ product])
    bits = [stack[0] if len(stack) else np.zeros(shape, WORD) for stack in stacks[:weights]]
    return bits, stacks[weights]


async def count(gates: Gates, planes: Words) -> Words:
    """Return shares of how many of the planes, (count, …), have a one in each lane.

    Returns:
        (width, …) planes of the number, where width is the number of bits of `count`. It takes
        about one conjunction for each plane.
    """
    require_words("planes", planes, 2)
    width = max(1, len(planes).bit_length())
    bits, _ = await _counted(gates, planes, 0, width)
    return np.stack(bits)


async def at_least(gates: Gates, planes: Words, k: int) -> Words:
    """Return shares of the bit [at least k of the planes, (count, …), have a one in each lane].

    With s the least for which 2^s ≥ k, the planes and the constant 2^s − k add up to 2^s or more
    exactly if something is carried to weight 2^s: what stays below adds up to less. So the carries
    there need not be counted. It takes about one conjunction for each plane.

    Args:
        gates: this party's.
        planes: (count, …).
        k: an integer that both know, at least 1.

    Returns:
        (…) words.

    Raises:
        ParameterError: k is below 1 or not an integer.
    """
    require_words("planes", planes, 2)
    k = require_integer("k", k, 1)
    weights = (k - 1).bit_length()
    _, carries = await _counted(gates, planes, (1 << weights) - k, weights)
    return await any_of(gates, carries)
