"""Beaver triples over Z_2, 64 to a word, from a dealer, from transfers, or ideal ones.

A triple is a, b and c = a·b, each shared by XOR between two parties, and serves one conjunction
(Beaver, CRYPTO 1991). The *dealer*, a third party that has no other part in the protocol::

    dealer                             first: a0, b0, c0 from its seed      second: a1, b1 from its
      DealtSeed(sid, s0) ─────────────▶
      DealtSeed(sid, s1) ─────────────────────────────────────────────────▶
      DealtCorrections((a0⊕a1)(b0⊕b1) ⊕ c0) ──────────────────────────────▶ c1

Seeds are expanded by AES-256-CTR, so one bit of each triple travels. *Dealer* and either party
together learn all that is shared. Without a dealer each triple takes two transfers, see
`xclp_crypto.protocols.ot.triples`.

Examples:
    >>> from xclp_crypto.protocols.boolean import StoredTriples, deal_triples, dealt_triples
    >>> from xclp_crypto.rng import SystemRng
    >>> from xclp_crypto.transport.simulate import Simulation
    >>> async def party(io):
    ...     peer = {"p": "q", "q": "p"}[io.name]
    ...     source = await dealt_triples(io, "dealer", peer, b"example", 10)
    ...     later = StoredTriples(await source.take(io, 10))
    ...     return await later.take(io, 10)
    >>> def dealer(io):
    ...     return deal_triples(io, ("p", "q"), b"example", 10, SystemRng())
    >>> roles = {"p": party, "q": party, "dealer": dealer}
    >>> results = Simulation().run(roles).raise_errors().results
    >>> a, b, c = (x ^ y for x, y in zip(results["p"], results["q"], strict=True))
    >>> bool((a & b == c).all())
    True
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import Keystream, derive_key
from xclp_crypto.errors import ParameterError
from xclp_crypto.fields import Raw, Uints
from xclp_crypto.params import DIGEST_BYTES, SEED_BYTES
from xclp_crypto.protocols.boolean.words import WORD, Words, require_integer, require_words
from xclp_crypto.protocols.ot import Triples
from xclp_crypto.protocols.ot.interface import require_same_sid, sid_digest
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.role import RoleIO
from xclp_crypto.secret import Secret
from xclp_crypto.wire import Message, sent

BLOCK_WORDS: Final = 1 << 17
"""Words of corrections in one message, 1 MiB; all parties cut the same blocks."""


class DealtSeed(Message):
    """A digest of sid and number, and what a party expands to its shares. Size: 40 bytes."""

    TAG = 0x0501
    digest: bytes = sent(Raw(DIGEST_BYTES))
    seed: bytes = sent(Raw(SEED_BYTES))


class DealtCorrections(Message):
    """The second party's shares of the next products. Size: 8·count bytes."""

    TAG = 0x0502
    words: NDArray[np.uint64] = sent(Uints("count", n_bytes=8))


class TripleSource(Secret, ABC):
    """A party's shares of triples, in the order in which both parties use them, each once."""

    @abstractmethod
    async def take(self, io: RoleIO, count: int) -> Triples:
        """Return the shares of the next `count` words of triples.

        Raises:
            ParameterError: so many are not left.
        """


class StoredTriples(TripleSource):
    """Triples in memory, for example those of `xclp_crypto.protocols.ot.bit_triples`.

    Args:
        shares: a, b and c, (words,) uint64 each.

    Raises:
        ParameterError: these are not three arrays of words of one length.
    """

    def __init__(self, shares: Triples) -> None:
        if not isinstance(shares, Triples):
            raise ParameterError(f"shares must be Triples, got {type(shares).__name__}")
        for name, part in zip(Triples._fields, shares, strict=True):
            require_words(name, part)
        if len({part.shape for part in shares}) > 1 or shares.a.ndim > 1:
            shapes = ", ".join(str(part.shape) for part in shares)
            raise ParameterError(f"a, b and c must be of one length, got shapes {shapes}")
        self._shares, self._used = shares, 0

    async def take(self, io: RoleIO, count: int) -> Triples:
        """See `TripleSource.take`."""
        start, self._used = self._used, self._used + count
        _require_left(len(self._shares.a) - start, count)
        return Triples(*(part[start : start + count] for part in self._shares))


class DealtTriples(TripleSource):
    """A dealer's triples, expanded and corrected as they are needed.

    Args:
        dealer: its name.
        streams: keystreams of a, b and, for the first party, c.
        words: how many words the dealer deals.
    """

    def __init__(self, dealer: str, streams: tuple[Keystream, ...], words: int) -> None:
        self._dealer, self._streams, self._left = dealer, streams, words
        self._blocks = _blocks(words)
        self._corrections = np.zeros(0, WORD)

    async def take(self, io: RoleIO, count: int) -> Triples:
        """See `TripleSource.take`."""
        _require_left(self._left, count)
        self._left -= count
        parts = await io.compute(_expand, self._streams, count)
        if len(parts) < len(Triples._fields):
            parts.append(await self._corrected(io, count))
        return Triples(*parts)

    async def _corrected(self, io: RoleIO, count: int) -> Words:
        """Return the next corrections, and keep the rest of the last block for later."""
        got = [self._corrections]
        missing = count - len(self._corrections)
        while missing > 0:
            size = next(self._blocks)
            got.append((await io.recv(DealtCorrections, self._dealer, count=size)).words)
            missing -= size
        words = np.concatenate(got)
        self._corrections = words[count:]
        return words[:count]


def _require_left(left: int, count: int) -> None:
    if count > left:
        raise ParameterError(
            f"{count} words of triples are needed, and {left} are left: "
            "boolean.costs has how many a circuit takes"
        )


def _blocks(words: int) -> Iterator[int]:
    """Return the sizes of the blocks in which corrections of so many words travel."""
    return (min(BLOCK_WORDS, words - at) for at in range(0, words, BLOCK_WORDS))


def _streams(seed: bytes, sid: bytes, dealer: str, me: str, parts: str) -> tuple[Keystream, ...]:
    """Return the keystream of each part of a party's triples."""
    tags = (domain_tag("dealt triples", sid, dealer, me, part) for part in parts)
    return tuple(Keystream(derive_key(seed, tag)) for tag in tags)


def _expand(streams: tuple[Keystream, ...], count: int) -> list[Words]:
    """Return the next words of each stream."""
    parts = [np.empty(count, WORD) for _ in streams]
    for stream, part in zip(streams, parts, strict=True):
        stream.read_into(part.view(np.uint8))
    return parts


def parts_of(me: str, peer: str) -> str:
    """Return what a party expands: the first of the two, by name, also its share of c."""
    return "abc" if me < peer else "ab"


async def dealt_triples(io: RoleIO, dealer: str, peer: str, sid: bytes, words: int) -> TripleSource:
    """Receive a seed from a dealer, which runs `deal_triples`, and return its triples.

    Args:
        io: this party.
        dealer: who deals.
        peer: the other party.
        sid: identifier of these triples, the same for all and never used again.
        words: how many words of triples, at least 0, as many as the dealer deals.

    Raises:
        ParameterError: the number of words is negative or not an integer.
        FaultyPeer: the dealer deals under another `sid`, or another number of words.
    """
    words = require_integer("words", words)
    message = await io.recv(DealtSeed, dealer)
    why = "it deals other triples: sid and number of words must be those that it deals"
    require_same_sid(message.digest, sid_digest(sid, dealer, io.name, words), dealer, why)
    streams = _streams(message.seed, sid, dealer, io.name, parts_of(io.name, peer))
    return DealtTriples(dealer, streams, words)


async def deal_triples(
    io: RoleIO, parties: tuple[str, str], sid: bytes, words: int, rng: Rng
) -> None:
    """Deal triples to two parties, which run `dealt_triples`.

    Args:
        io: the dealer.
        parties: the two.
        sid: identifier of these triples, the same for all and never used again.
        words: how many words of triples, at least 0; `costs` adds up what circuits take.
        rng: source of the seeds.

    Raises:
        ParameterError: the number of words is negative or not an integer.
    """
    words = require_integer("words", words)
    first, second = sorted(parties)
    seeds = {party: require_rng(rng).bytes(SEED_BYTES) for party in (first, second)}
    for party, seed in seeds.items():
        await io.send(party, DealtSeed(sid_digest(sid, io.name, party, words), seed))
    one = _streams(seeds[first], sid, io.name, first, parts_of(first, second))
    other = _streams(seeds[second], sid, io.name, second, parts_of(second, first))
    for done, size in enumerate(_blocks(words), 1):
        await io.send(second, DealtCorrections(await io.compute(_correct, one, other, size)))
        io.report("triples dealt", min(done * BLOCK_WORDS, words), words)


def _correct(
    first: tuple[Keystream, ...], second: tuple[Keystream, ...], count: int
) -> NDArray[np.uint64]:
    """Return the second party's share of the next products."""
    a, b, c = _expand(first, count)
    a1, b1 = _expand(second, count)
    a ^= a1
    b ^= b1
    a &= b
    a ^= c
    return a


def ideal_triples(me: str, peer: str, sid: bytes, words: int) -> TripleSource:
    """Return triples that anybody can compute, which hide nothing: for tests only.

    Args:
        me: this party.
        peer: the other one.
        sid: identifier of these triples.
        words: how many words of triples, at least 0.

    Raises:
        ParameterError: the number of words is negative or not an integer.
    """
    words = require_integer("words", words)
    first, second = sorted((me, peer))
    streams = [
        _streams(bytes(SEED_BYTES), sid, "ideal", party, parts)
        for party, parts in ((first, "abc"), (second, "ab"))
    ]
    a0, b0, c0 = _expand(streams[0], words)
    a1, b1 = _expand(streams[1], words)
    own = Triples(a0, b0, c0) if me == first else Triples(a1, b1, (a0 ^ a1) & (b0 ^ b1) ^ c0)
    return StoredTriples(own)
