"""What boolean circuits cost, from the sizes alone: words of triples, exchanges, bytes."""

from __future__ import annotations

from dataclasses import dataclass

from xclp_crypto.protocols.boolean.circuits import counting_layers
from xclp_crypto.protocols.boolean.conversion import highest_bit_decides
from xclp_crypto.protocols.boolean.gmw import GateOpenings, OutputShares
from xclp_crypto.protocols.boolean.smallest import Bounds
from xclp_crypto.protocols.boolean.triples import BLOCK_WORDS, DealtCorrections, DealtSeed
from xclp_crypto.protocols.setup.channel import sealed_size


@dataclass(frozen=True)
class CircuitCost:
    """What a circuit takes of both parties; costs of circuits in a row add up.

    Attributes:
        triples: words of triples, which is words of conjunctions.
        layers: exchanges of conjunctions.
        opened: words that are opened to both parties.
        openings: exchanges of these.
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
        """Return the bytes that each party sends the other, with so many for each message."""
        bodies = GateOpenings.size(count=self.triples) + OutputShares.size(count=self.opened)
        return bodies + overhead * (self.layers + self.openings)


def dealt_bytes(words: int, overhead: int = sealed_size(0)) -> int:
    """Return the bytes that a dealer of so many words of triples sends both parties together."""
    bodies = 2 * DealtSeed.size() + DealtCorrections.size(count=words)
    return bodies + overhead * (2 + -(-words // BLOCK_WORDS))


def adding(width: int, words: int) -> CircuitCost:
    """Return the cost of `circuits.add`, `subtract`, or a conversion, of planes of so many words.

    `conversion.to_additive` opens `width` planes more, to one party.
    """
    return CircuitCost((width - 1) * words, width - 1)


def comparing(width: int, words: int) -> CircuitCost:
    """Return the cost of `circuits.less_than`."""
    return CircuitCost(width * words, width)


def comparing_with(bound: int, width: int, words: int) -> CircuitCost:
    """Return the cost of `circuits.less_than_public`: bits above the bound's lowest one count."""
    lowest = (bound & -bound).bit_length()
    gates = 0 if bound == 0 or bound >> width else width - lowest
    return CircuitCost(gates * words, gates)


def at_most(bound: int, largest: int, width: int, words: int) -> CircuitCost:
    """Return the cost of `conversion.at_most`."""
    cost = adding(width, words)
    if highest_bit_decides(width, bound, largest):
        return cost
    return cost + comparing_with(bound + 1, width, words)


def counting(planes: int, k: int, words: int) -> CircuitCost:
    """Return the cost of `circuits.at_least`."""
    weights = (k - 1).bit_length()
    offset, carried, gates, layers = (1 << weights) - k, 0, 0, 0
    for layer in counting_layers(planes, offset, weights):
        gates += sum(layer.groups.values())
        carried += layer.groups.get(weights - 1, 0)
        layers += 1
    if not weights:
        carried = planes
    return CircuitCost(
        (gates + max(0, carried - 1)) * words, layers + max(0, carried - 1).bit_length()
    )


def selecting(
    width: int, candidates: int, words: int, k: int, bounds: Bounds = "opened"
) -> CircuitCost:
    """Return the cost of `smallest.smallest` for rows in so many words."""
    plane = CircuitCost(candidates * words, 1)
    after = (
        CircuitCost(opened=words, openings=1)
        if bounds == "opened"
        else CircuitCost(2 * candidates * words, 1)
    )
    total = counting(candidates, k, words) + after
    for _ in range(width - 1):
        total = total + plane + counting(candidates, k, words) + after
    return total
