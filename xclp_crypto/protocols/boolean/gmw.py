"""Gates on bits that two parties share by XOR (Goldreich, Micali and Wigderson, STOC 1987).

A bit x is x0 ⊕ x1, of which each party holds one. Exclusive or and public bits are local. A
conjunction takes one triple (a, b, c = a·b) and one exchange::

    each party                                            the other
      GateOpenings(its shares of x⊕a and y⊕b) ────────────▶ (both directions at once)
      d = x⊕a, e = y⊕b are known to both; a share of xy is  c ⊕ d·b ⊕ e·a, and the first's ⊕ d·e

since xy = (d⊕a)(e⊕b). What one party alone knows is shared as itself and zero: whatever is computed
from it reaches the other party only under the mask of a triple.

*A party learns* d and e, which are uniform as long as each triple serves once, and what is opened.
Both are semi-honest: one that deviates changes any result, unnoticed, and so may learn from what is
opened. Whoever knows a party's triples besides, such as a dealer that colludes, learns everything.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_crypto.fields import Uints
from xclp_crypto.protocols.boolean.triples import TripleSource
from xclp_crypto.protocols.boolean.words import WORD, Words, require_words
from xclp_crypto.protocols.ot import Triples
from xclp_crypto.role import RoleIO
from xclp_crypto.secret import Secret
from xclp_crypto.wire import Message, sent

_ONES = np.uint64(2**64 - 1)


class GateOpenings(Message):
    """A party's shares of x⊕a, and then of y⊕b, of every conjunction of a layer.

    Size: 16·count bytes.
    """

    TAG = 0x0510
    words: NDArray[np.uint64] = sent(Uints(2, "count", n_bytes=8))


class OutputShares(Message):
    """A party's shares of what is opened. Size: 8·count bytes."""

    TAG = 0x0511
    words: NDArray[np.uint64] = sent(Uints("count", n_bytes=8))


class Gates(Secret):
    """One party's gates. Both parties call the same methods in the same order.

    Shares are arrays of words (see `words`) of one or more axes, whose shape is public and the same
    for both parties; no method changes its arguments.

    **Nothing is compared between the parties.** If they differ in the circuit, in a public argument
    (a bound, k, a width, which candidates are valid) or in who calls `own` and who `others`, the
    result is wrong, and no error says so. Have them agree on all of these beforehand: a program
    puts them into the `Agreement` of its key exchange, which names what differs.

    Args:
        io: this party.
        peer: the other one. The first of the two, by name, adds what is public.
        triples: this party's shares of at least as many triples as the circuit takes; see `costs`.

    Attributes:
        io: this party.
        names: of both, the first one first.
        first: whether this party is the first.
        used: how many words of triples were used.
        layers: how many exchanges of conjunctions there were.

    Raises:
        ParameterError: the peer is this party, or `triples` is not a `TripleSource`.

    Examples:
        >>> from xclp_crypto.protocols import boolean
        >>> from xclp_crypto.transport.simulate import Simulation
        >>> held = {"p": np.array([0, 0, 1, 1]), "q": np.array([0, 1, 0, 1])}
        >>> async def party(io):
        ...     peer = {"p": "q", "q": "p"}[io.name]
        ...     triples = boolean.ideal_triples(io.name, peer, b"example", 1)
        ...     gates = boolean.Gates(io, peer, triples)
        ...     own = gates.own(boolean.bits_to_words(held[io.name]))
        ...     other = gates.others(own.shape)
        ...     x, y = (own, other) if gates.first else (other, own)  # of p, of q
        ...     both = await gates.conjunction(x, y)
        ...     return await gates.open_to("p", both)
        >>> outcome = Simulation().run({"p": party, "q": party}).raise_errors()
        >>> boolean.words_to_bits(outcome.results["p"], 4)
        array([False, False, False,  True])
    """

    def __init__(self, io: RoleIO, peer: str, triples: TripleSource) -> None:
        if peer == io.name:
            raise ParameterError(f"{peer} cannot share bits with itself")
        if not isinstance(triples, TripleSource):
            raise ParameterError(
                "triples must be a TripleSource, such as StoredTriples of the shares, got "
                f"{type(triples).__name__}"
            )
        self.io, self.used, self.layers = io, 0, 0
        self.names = (min(io.name, peer), max(io.name, peer))
        self.first = io.name == self.names[0]
        self._peer, self._triples = peer, triples

    def own(self, words: Words) -> Words:
        """Return this party's share of words that it alone knows; the peer calls `others`."""
        require_words("words", words)
        return words.copy()

    def others(self, shape: tuple[int, ...]) -> Words:
        """Return this party's share of words that the peer alone knows and gives to `own`."""
        return np.zeros(shape, WORD)

    def public(self, words: Words) -> Words:
        """Return shares of words that both know."""
        require_words("words", words)
        return words.copy() if self.first else np.zeros_like(words)

    def ones(self, shape: tuple[int, ...]) -> Words:
        """Return shares of words of ones."""
        return self.public(np.full(shape, _ONES, WORD))

    def invert(self, x: Words) -> Words:
        """Return shares of the complement of every bit."""
        require_words("x", x)
        return ~x if self.first else x

    async def conjunction(self, x: Words, y: Words) -> Words:
        """Return shares of x·y, bit by bit, in one exchange.

        Raises:
            ParameterError: not words, different shapes, or too few triples are left.
        """
        _require_operands(x, y)
        if not x.size:
            return x.copy()
        self.used += x.size
        self.layers += 1
        triple = await self._triples.take(self.io, x.size)
        own = await self.io.compute(_masked, x, y, triple)
        await self.io.send(self._peer, GateOpenings(own))
        got = await self.io.recv(GateOpenings, self._peer, count=x.size)
        product = await self.io.compute(_product, own, got.words, triple, self.first)
        return product.reshape(x.shape)

    async def conjunctions(self, *pairs: tuple[Words, Words]) -> list[Words]:
        """Return shares of the products of several pairs, of any shapes, in one exchange."""
        for x, y in pairs:
            _require_operands(x, y)
        if not pairs:
            return []
        flat = [np.concatenate([p[side].reshape(-1) for p in pairs]) for side in (0, 1)]
        products = await self.conjunction(flat[0], flat[1])
        ends = np.cumsum([x.size for x, _ in pairs])[:-1]
        parts = np.split(products, ends)
        return [part.reshape(x.shape) for part, (x, _) in zip(parts, pairs, strict=True)]

    async def disjunction(self, x: Words, y: Words) -> Words:
        """Return shares of x ∨ y, bit by bit, in one exchange; see `conjunction`."""
        return self.invert(await self.conjunction(self.invert(x), self.invert(y)))

    async def choose(self, bit: Words, one: Words, zero: Words) -> Words:
        """Return shares of a choice between two, bit by bit, in one exchange.

        Args:
            bit: what chooses, of the shape of both.
            one: taken where `bit` is set.
            zero: taken elsewhere.
        """
        return zero ^ await self.conjunction(bit, one ^ zero)

    async def open(self, x: Words) -> Words:
        """Tell both parties the bits of x, padding included, and return them in words.

        Read numbers by `from_planes`, and a plane by `words_to_bits`.
        """
        require_words("x", x)
        await self.io.send(self._peer, OutputShares(x.reshape(-1)))
        return x ^ await self._received(x)

    async def open_to(self, party: str, x: Words) -> Words | None:
        """Tell one party the bits of x, as `open` does; returns None to the other one."""
        require_words("x", x)
        if party == self.io.name:
            return x ^ await self._received(x)
        await self.io.send(party, OutputShares(x.reshape(-1)))
        return None

    async def _received(self, x: Words) -> Words:
        got = await self.io.recv(OutputShares, self._peer, count=x.size)
        words: Words = got.words.reshape(x.shape)
        return words


def _require_operands(x: Words, y: Words) -> None:
    require_words("x", x)
    require_words("y", y)
    if x.shape != y.shape:
        raise ParameterError(f"operands of shapes {x.shape} and {y.shape}")


def _masked(x: Words, y: Words, triple: Triples) -> Words:
    """Return this party's shares of x⊕a and y⊕b, (2, words)."""
    shares = np.empty((2, x.size), WORD)
    np.bitwise_xor(x.reshape(-1), triple.a, out=shares[0])
    np.bitwise_xor(y.reshape(-1), triple.b, out=shares[1])
    return shares


def _product(own: Words, others: Words, triple: Triples, first: bool) -> Words:
    """Return this party's share of the products."""
    d, e = own ^ others
    product: Words = d & triple.b
    product ^= triple.c
    if first:
        d ^= triple.a
        e &= d
    else:
        e &= triple.a
    product ^= e
    return product
