"""Boolean circuits on bits that two parties share: comparing, counting, selecting.

`Gates` are one party's gates over a `TripleSource`; `circuits`, `conversion` and `smallest` have
what is built of them, and `costs` says how many triples that takes. Everything works on words of 64
values at once; see `words`. A program to start from is in ``docs/learn/crypto/circuits.md``.
"""

from xclp_crypto.protocols.boolean.circuits import (
    add,
    any_of,
    at_least,
    count,
    less_than,
    less_than_public,
    subtract,
)
from xclp_crypto.protocols.boolean.conversion import at_most, to_additive, to_boolean
from xclp_crypto.protocols.boolean.gmw import Gates
from xclp_crypto.protocols.boolean.pairs import matrix_to_pairs, offsets_to_matrix
from xclp_crypto.protocols.boolean.smallest import Bounds, smallest
from xclp_crypto.protocols.boolean.triples import (
    StoredTriples,
    TripleSource,
    deal_triples,
    dealt_triples,
    ideal_triples,
)
from xclp_crypto.protocols.boolean.words import (
    bits_to_words,
    from_planes,
    to_planes,
    words_for,
    words_to_bits,
)

__all__ = [
    "Bounds",
    "Gates",
    "StoredTriples",
    "TripleSource",
    "add",
    "any_of",
    "at_least",
    "at_most",
    "bits_to_words",
    "count",
    "deal_triples",
    "dealt_triples",
    "from_planes",
    "ideal_triples",
    "less_than",
    "less_than_public",
    "matrix_to_pairs",
    "offsets_to_matrix",
    "smallest",
    "subtract",
    "to_additive",
    "to_boolean",
    "to_planes",
    "words_for",
    "words_to_bits",
]


def __dir__() -> list[str]:
    return sorted(__all__)
