"""Multiplication triples of two parties (Beaver, CRYPTO 1991) from random transfers.

A triple is a random product in shares: each party has a, b and c, and the sums of the shares fulfil
(a + a')·(b + b') = c + c'. Two parties multiply with it what they have in shares, by opening two
masked numbers.

Over Z_2, two random transfers of single bits for each triple, one in each direction, and nothing
else is sent (Asharov, Lindell, Schneider and Zohner, CCS 2013, section 5)::

    a: random choices       ──▶ transfers ──▶ m'_a, of the peer's messages m'_0 and m'_1
    own messages m_0, m_1   ◀── transfers ◀── the peer's choices a'
    b = m_0 ⊕ m_1           c = a·b ⊕ m'_a ⊕ m_0

since m'_a ⊕ m'_0 = a·b' and m_a' ⊕ m_0 = a'·b.

Over Z_2^64, 64 correlated transfers in each direction (Gilboa, CRYPTO 1999): the choices are the
bits of a, and the offset of bit i is 2^i·b'. What one party gets, less what the other began with,
adds up to Σ 2^i·a_i·b' = a·b'.

*Each party learns* its shares, which are uniform, and of the other's nothing: its a' are the
choices of transfers, and b' = m'_0 ⊕ m'_1 has the message that was not chosen. The assumptions are
those of the extension. Over one with `check_receiver`, a party that deviates learns no more, up to
selective failure as the extension states it, and all that it can do to the product is to add to c
an error that it knows: whatever it computes, its choices and messages define its a and b. Over
Z_2^64 that error can depend on the other's a, since offsets need not be multiples of one b. Nothing
tells the other party of an error, so triples by themselves are for semi-honest parties.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import TooFewParties
from xclp_crypto.protocols.ot.bits import WORD_BITS
from xclp_crypto.protocols.ot.extension import Extension
from xclp_crypto.protocols.ot.interface import Choices, check_whole
from xclp_crypto.rng import Rng, require_rng
from xclp_crypto.role import RoleIO


class Triples(NamedTuple):
    """One party's shares of some triples."""

    a: NDArray[np.uint64]
    b: NDArray[np.uint64]
    c: NDArray[np.uint64]


BATCH_TRANSFERS: Final = 1 << 19
"""Transfers in each direction that are made at once, so that memory is bounded. Both parties cut
alike, so it is part of the protocol."""

_BITS = np.arange(WORD_BITS, dtype=np.uint64)


async def bit_triples(io: RoleIO, peer: str, words: int, extension: Extension, rng: Rng) -> Triples:
    """Make triples over Z_2, 64 in each word.

    Args:
        io: this party.
        peer: the other one, which calls the same with this party's name.
        words: how many words, the same for both.
        extension: over base transfers with `peer` in both directions.
        rng: source of this party's randomness.

    Returns:
        This party's shares a, b and c, (words,) uint64 each:
        ``(a ^ a_peer) & (b ^ b_peer) == c ^ c_peer``.

    Raises:
        ParameterError: a number that is negative or not whole, or no base transfers with `peer`.
        TooFewParties: the peer dropped out.
        FaultyPeer: see `Extension.extend`.

    Examples:
        >>> from xclp_crypto.protocols.ot import Extension, base_transfers, bit_triples
        >>> from xclp_crypto.rng import SystemRng
        >>> from xclp_crypto.transport.simulate import Simulation
        >>> async def party(io, peer):
        ...     rng = SystemRng()
        ...     base = await base_transfers(io, [peer], [peer], b"base", rng, field_bits=4)
        ...     return await bit_triples(io, peer, 2, Extension(base, b"triples", rng), rng)
        >>> parties = {"a": lambda io: party(io, "b"), "b": lambda io: party(io, "a")}
        >>> outcome = Simulation().run(parties).raise_errors()
        >>> ours, theirs = outcome.results["a"], outcome.results["b"]
        >>> bool((((ours.a ^ theirs.a) & (ours.b ^ theirs.b)) == ours.c ^ theirs.c).all())
        True
    """
    source = require_rng(rng)
    words = check_whole("the number of words of triples", words, 0)
    a, b, c = np.empty((3, words), np.uint64)
    for done, count in _batches(words):
        a[done] = source.residues(1 << 64, count)
        sent, received = await extension.random_bits(io, {peer: count}, {peer: a[done]})
        if peer not in sent or peer not in received:
            raise TooFewParties(io.current_step, 1, 2, missing=(peer,))
        zero, one = sent[peer]
        np.bitwise_xor(zero, one, out=b[done])
        np.bitwise_xor(received[peer] ^ zero, a[done] & b[done], out=c[done])
    return Triples(a, b, c)


async def ring_triples(
    io: RoleIO, peer: str, count: int, extension: Extension, rng: Rng
) -> Triples:
    """Make triples over Z_2^64: for each, 64·(16/k + 8) bytes in each direction.

    Args:
        io: this party.
        peer: the other one, which calls the same with this party's name.
        count: how many, the same for both.
        extension: over base transfers with `peer` in both directions.
        rng: source of this party's randomness.

    Returns:
        This party's shares a, b and c, (count,) uint64 each:
        ``(a + a_peer) * (b + b_peer) == c + c_peer`` modulo 2^64.

    Raises:
        ParameterError: a number that is negative or not whole, or no base transfers with `peer`.
        TooFewParties: the peer dropped out.
        FaultyPeer: see `Extension.correlated`.

    Examples:
        >>> from xclp_crypto.protocols.ot import Extension, base_transfers, ring_triples
        >>> from xclp_crypto.rng import SystemRng
        >>> from xclp_crypto.transport.simulate import Simulation
        >>> async def party(io, peer):
        ...     rng = SystemRng()
        ...     base = await base_transfers(io, [peer], [peer], b"base", rng)
        ...     return await ring_triples(io, peer, 2, Extension(base, b"triples", rng), rng)
        >>> parties = {"a": lambda io: party(io, "b"), "b": lambda io: party(io, "a")}
        >>> outcome = Simulation().run(parties).raise_errors()
        >>> ours, theirs = outcome.results["a"], outcome.results["b"]
        >>> bool(((ours.a + theirs.a) * (ours.b + theirs.b) == ours.c + theirs.c).all())
        True
    """
    source = require_rng(rng)
    count = check_whole("the number of triples", count, 0)
    a, b = source.residues(1 << 64, (2, count))
    c = a * b
    for done, _ in _batches(count):
        bits = (a[done, None] >> _BITS & np.uint64(1)).astype(np.bool_).reshape(-1)
        offsets = (b[done, None] << _BITS).reshape(-1, 1)
        began, got = await extension.correlated(
            io, {peer: offsets}, {peer: Choices(bits, 1)}, WORD_BITS
        )
        if peer not in began or peer not in got:
            raise TooFewParties(io.current_step, 1, 2, missing=(peer,))
        c[done] += (got[peer] - began[peer]).reshape(-1, WORD_BITS).sum(axis=1, dtype=np.uint64)
    return Triples(a, b, c)


def _batches(count: int) -> Iterator[tuple[slice, int]]:
    """Cut so many words of transfers into batches; yields each, and how many words it has."""
    step = BATCH_TRANSFERS // WORD_BITS
    for begin in range(0, count, step):
        stop = min(begin + step, count)
        yield slice(begin, stop), stop - begin
