"""What boolean circuits cost, from the sizes alone: words of triples, exchanges, bytes.

Add up the circuits of a program; `CircuitCost.triples` is then what to deal, or to make from
transfers. A single conjunction, disjunction or choice of so many words is `gate` of these. Numbers
that are not integers, or below 0, are a `ParameterError`.

Examples:
    >>> from xclp_crypto.protocols.boolean import costs, words_for
    >>> words = words_for(1000)  # of 1000 numbers
    >>> (costs.adding(16, words) + costs.comparing_with(100, 16, words)).triples
    448
"""

from __future__ import annotations

from dataclasses import dataclass

from xclp_crypto.protocols.boolean.circuits import counting_layers
from xclp_crypto.protocols.boolean.conversion import highest_bit_decides
from xclp_crypto.protocols.boolean.gmw import GateOpenings, OutputShares
from xclp_crypto.protocols.boolean.smallest import Bounds
from xclp_crypto.protocols.boolean.triples import BLOCK_WORDS, DealtCorrections, DealtSeed
from xclp_crypto.protocols.boolean.words import require_integer, require_width, words_for
from xclp_crypto.protocols.setup.channel import sealed_size


@dataclass(frozen=True)
class CircuitCost:
    """What a circuit costs; the costs of consecutive circuits add up.

    Attributes:
        triples: words of triples, one for each word of a conjunction.
        layers: exchanges of conjunctions.
        opened: words that are opened to both parties.
        openings: exchanges that open them.
    """

    triples: int = 0
    layers: int = 0
    opened: int = 0
    openings: int = 0

    def __add__(self, other: CircuitCost) -> CircuitCost:
        return CircuitCost(
            self.triples + other.triples,
            self.layers + other.layers,
            self.opened + other.opened,
            self.openings + other.openings,
        )

    def message_bytes(self, overhead: int = sealed_size(0)) -> int:
        """Return the bytes that each party sends the other.

        Args:
            overhead: bytes that each message takes besides its body.
        """
        bodies = GateOpenings.size(count=self.triples) + OutputShares.size(count=self.opened)
        return bodies + overhead * (self.layers + self.openings)


def dealt_bytes(words: int, overhead: int = sealed_size(0)) -> int:
    """Return the bytes that a dealer of so many words of triples sends to both parties together.

    Args:
        words: how many.
        overhead: bytes that each message takes besides its body.
    """
    bodies = 2 * DealtSeed.size() + DealtCorrections.size(count=words)
    return bodies + overhead * (2 + -(-words // BLOCK_WORDS))


def _layers(layers: int, words: int) -> CircuitCost:
    """Return the cost of consecutive gates of so many words."""
    return CircuitCost(layers * require_integer("words", words), layers)


def gate(words: int) -> CircuitCost:
    """Return the cost of one conjunction, disjunction or choice of `Gates`, of so many words."""
    return _layers(1, words)


def adding(width: int, words: int) -> CircuitCost:
    """Return the cost of `circuits.add` or `subtract`, or of a conversion.

    `conversion.to_additive` also opens its planes to one party.

    Args:
        width: bits of a number.
        words: of each plane, as in all functions here.
    """
    return _layers(require_width(width) - 1, words)


def comparing(width: int, words: int) -> CircuitCost:
    """Return the cost of `circuits.less_than`."""
    return _layers(require_width(width), words)


def comparing_with(bound: int, width: int, words: int) -> CircuitCost:
    """Return the cost of `circuits.less_than_public`: bits above the bound's lowest one count."""
    bound, width = require_integer("bound", bound), require_width(width)
    lowest = (bound & -bound).bit_length()
    gates = 0 if bound == 0 or bound >> width else width - lowest
    return _layers(gates, words)


def at_most(bound: int, largest: int, width: int, words: int) -> CircuitCost:
    """Return the cost of `conversion.at_most`."""
    cost, bound = adding(width, words), require_integer("bound", bound)
    if highest_bit_decides(width, bound, largest):
        return cost
    return cost + comparing_with(bound + 1, width, words)


def any_of(planes: int, words: int) -> CircuitCost:
    """Return the cost of `circuits.any_of` of so many planes."""
    gates = max(0, require_integer("planes", planes) - 1)
    return CircuitCost(gates * words, gates.bit_length())


def counting(planes: int, words: int) -> CircuitCost:
    """Return the cost of `circuits.count` of so many planes."""
    planes = require_integer("planes", planes)
    return _counted(planes, 0, max(1, planes.bit_length()), words)[0]


def at_least(planes: int, k: int, words: int) -> CircuitCost:
    """Return the cost of `circuits.at_least` of so many planes."""
    weights = (require_integer("k", k, 1) - 1).bit_length()
    cost, carried = _counted(planes, (1 << weights) - k, weights, words)
    return cost + any_of(carried, words)


def _counted(planes: int, offset: int, weights: int, words: int) -> tuple[CircuitCost, int]:
    """Return what it costs to count planes, and how many are carried to weight 2^weights."""
    cost, carried = CircuitCost(), 0 if weights else require_integer("planes", planes)
    for layer in counting_layers(planes, offset, weights):
        cost += gate(sum(layer.groups.values()) * words)
        carried += layer.groups.get(weights - 1, 0)
    return cost, carried


def selecting(
    width: int, candidates: int, words: int, k: int, bounds: Bounds = "opened"
) -> CircuitCost:
    """Return the cost of `smallest.smallest`, of rows in so many words."""
    return _selecting(width, candidates, words, k, bounds, candidates)


def _selecting(
    width: int, candidates: int, words: int, k: int, bounds: Bounds, second: int
) -> CircuitCost:
    """Return the cost of `smallest.smallest`, with so many products for the second bit."""
    after = (
        CircuitCost(opened=words, openings=1)
        if bounds == "opened"
        else gate(2 * candidates * words)
    )
    total = at_least(candidates, k, words) + after
    for products in (second, *[candidates] * (width - 2))[: width - 1]:
        total = total + gate(products * words) + at_least(candidates, k, words) + after
    return total


def selecting_pairs(width: int, rows: int, k: int, bounds: Bounds = "opened") -> CircuitCost:
    """Return the cost of converting pairs of so many rows, and of `smallest` with `pairs_of`."""
    words, pairs = words_for(rows), rows // 2
    second = pairs if bounds == "opened" else rows - 1
    return adding(width, words * pairs) + _selecting(width, rows - 1, words, k, bounds, second)
