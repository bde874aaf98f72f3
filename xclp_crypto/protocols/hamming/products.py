"""Inner products and masked distances of the rows of all clients, over any back end.

::

    client j (rows x)                                       server
    h(x, x') by the back end ─────────────────────────────▶
    SetSizes(|x|) ────────────────────────────────────────▶ 2·⟨x, x'⟩ = |x| + |x'| − h(x, x')

*Server learns* the inner products of all rows, of each row with itself too, and nothing else: from
them h follows, since ⟨x, x⟩ = |x|. *Clients learn* nothing.

*Masked distances*, over the bits of a that are valid in both rows, where m is 1 (iris codes), are
two of these, of e = [a∧m, ¬a∧m], which has as many ones as m, and of m::

    Σ m·m' = ⟨m, m'⟩         Σ m·m'·(a ⊕ a') = ⟨m, m'⟩ − ⟨e, e'⟩

*Server learns* both sums for all pairs of rows, and so how many bits of each row are valid; from
these follow the distances of e and of m that it gets. Rows of e have 2·L columns.

What the server and some clients learn together, and what it rests on, is that of the back end; of
two runs the statistical distances of `rlwe` add up, to at most 2^-39.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, FaultyPeer, ParameterError
from xclp_crypto.fields import Packed
from xclp_crypto.params import MIN_CLIENTS
from xclp_crypto.protocols.hamming.checks import culprits
from xclp_crypto.protocols.hamming.distance import BLOCK_ROWS
from xclp_crypto.protocols.hamming.interface import Distances, HammingBackend, column_ranges
from xclp_crypto.protocols.hamming.rows import BitRows, bit_rows
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng
from xclp_crypto.wire import Message, sent

Measure: TypeAlias = Literal["dice", "jaccard"]


class SetSizes(Message):
    """How many ones each row of the sender has. Size: 2·rows bytes."""

    TAG = 0x0204
    values: NDArray[np.uint16] = sent(Packed("rows", width=16))


class MaskedDistances(NamedTuple):
    """Distances over the bits that are valid in both rows, uint16 each.

    Attributes:
        differing: in how many bits that are valid in both rows they differ.
        valid: how many bits are valid in both rows.
    """

    differing: NDArray[np.uint16]
    valid: NDArray[np.uint16]


def similarities(
    common: NDArray[np.integer],
    sizes: NDArray[np.integer],
    others: NDArray[np.integer],
    measure: Measure,
) -> NDArray[np.float64]:
    """Return Dice, 2·|x∩y| / (|x|+|y|), or Jaccard, |x∩y| / |x∪y|; 0 of two empty sets.

    Args:
        common: (n, m) numbers of common elements.
        sizes: (n,) those of the sets x.
        others: (m,) those of the sets y.
        measure: which of the two.
    """
    both = sizes[:, None].astype(np.float64) + others[None, :]
    part, whole = (2.0 * common, both) if measure == "dice" else (1.0 * common, both - common)
    similar: NDArray[np.float64] = np.zeros(common.shape)
    np.divide(part, whole, out=similar, where=whole > 0)
    return similar


def check_measure(measure: str) -> None:
    """Refuse what is not a `Measure`.

    Raises:
        ParameterError: see above.
    """
    if measure not in ("dice", "jaccard"):
        raise ParameterError(f"measure must be 'dice' or 'jaccard', got {measure!r}")


def valid_bits(
    masks: BitRows, bits: NDArray[np.uint8], client: str, packed: int | None
) -> NDArray[np.uint8]:
    """Return which of a client's bits are valid, as `bit_rows` returns rows.

    Raises:
        DataError: as for `bit_rows`, or another shape than that of the bits.
        ParameterError: as for `bit_rows`.
    """
    valid = bit_rows(masks, client, packed, masks=True)
    if valid.shape != bits.shape:
        raise DataError(
            f"client {client!r}: masks of shape {valid.shape} for bits of shape {bits.shape}"
        )
    return valid


def valid_halves(
    bits: NDArray[np.uint8], valid: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return a∧m and ¬a∧m."""
    return bits & valid, (1 - bits) & valid


async def products_client(
    session: Session, bits: NDArray[np.uint8], method: HammingBackend, rng: Rng
) -> None:
    """Take part as a client whose rows are multiplied with all others'.

    Args:
        session: see `HammingBackend.client`.
        bits: (n_j, L) of 0 and 1.
        method: the back end.
        rng: source of this client's own randomness.
    """
    await method.client(session, bits, rng)
    await session.io.send(SERVER, SetSizes(bits.sum(axis=1, dtype=np.uint16)))


async def products_server(
    session: Session, n_bits: int, method: HammingBackend, at_least: int = MIN_CLIENTS
) -> tuple[NDArray[np.int32], dict[str, int]]:
    """Take part as the server, which gets the inner products of the clients that finished.

    Args:
        session: see `HammingBackend.server`.
        n_bits: L.
        method: the back end.
        at_least: fewest clients to go on with.

    Returns:
        (n, n) inner products, and the number of rows by client that finished, in their order.

    Raises:
        TooFewParties: fewer than `at_least` clients finished.
        FaultyPeer: as for the back end; or no rows of these sizes have these distances.
    """
    found = await method.server(session, n_bits, at_least)
    sizes = await _set_sizes(session, [found], at_least)
    return await session.io.compute(_products, found, sizes), {c: len(s) for c, s in sizes.items()}


async def masked_client(
    session: Session,
    bits: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    method: HammingBackend,
    rng: Rng,
) -> None:
    """Take part in masked distances as a client.

    Args:
        session: see `HammingBackend.client`.
        bits: (n_j, L) of 0 and 1.
        valid: which of them are valid, (n_j, L) of 0 and 1.
        method: the back end.
        rng: source of this client's own randomness.
    """
    halves = np.concatenate(valid_halves(bits, valid), axis=1)
    await method.client(session.part(" agreeing"), halves, rng)
    await products_client(session.part(" valid"), valid, method, rng)


async def masked_server(
    session: Session, n_bits: int, method: HammingBackend, at_least: int = MIN_CLIENTS
) -> tuple[MaskedDistances, dict[str, int]]:
    """Take part in masked distances as the server; arguments and errors as `products_server`.

    Returns:
        (n, n) masked distances, and the number of rows by client that finished, in their order.
    """
    io = session.io
    agreeing = await method.server(session.part(" agreeing"), 2 * n_bits, at_least)
    both_valid = await method.server(session.part(" valid"), n_bits, at_least)
    sizes = await _set_sizes(session, [agreeing, both_valid], at_least)
    alike, valid = [await io.compute(_products, d, sizes) for d in (agreeing, both_valid)]
    rows = {c: len(s) for c, s in sizes.items()}
    require_possible(alike <= valid, rows, "more bits that are valid and agree than are valid")
    found = MaskedDistances((valid - alike).astype(np.uint16), valid.astype(np.uint16))
    return found, rows


async def _set_sizes(
    session: Session, runs: Sequence[Distances], at_least: int
) -> dict[str, NDArray[np.int32]]:
    """Gather the sizes of all rows of the clients that are in all of these runs."""
    here = {c: n for c, n in session.sizes.items() if all(c in run.sizes for run in runs)}
    got = await session.io.gather(SetSizes, tuple(here), at_least, rows=here)
    return {c: got[c].values.astype(np.int32) for c in here if c in got}


def _products(found: Distances, sizes: Mapping[str, NDArray[np.int32]]) -> NDArray[np.int32]:
    """Return the inner products of the rows of the clients whose sizes are given."""
    place = column_ranges(found.sizes)
    rows = np.concatenate([np.arange(place[c].start, place[c].stop) for c in sizes])
    ones = np.concatenate(list(sizes.values()))
    products = np.empty((len(rows), len(rows)), np.int32)
    possible = np.empty(products.shape, np.bool_)
    for start in range(0, len(rows), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        own, part = ones[block, None], products[block]
        np.add(own, ones, out=part)
        part -= found.matrix[np.ix_(rows[block], rows)]
        possible[block] = (part & 1 == 0) & (part >= 0) & (part <= 2 * np.minimum(own, ones))
        part >>= 1
    rows_of = {c: len(s) for c, s in sizes.items()}
    require_possible(possible, rows_of, "sizes that do not fit their distances")
    return products


def require_possible(possible: NDArray[np.bool_], rows: Mapping[str, int], what: str) -> None:
    """Refuse what is not possible of all pairs of rows.

    Args:
        possible: (n, n), of each pair.
        rows: number of rows by client.
        what: they have otherwise.

    Raises:
        FaultyPeer: names the clients of which at least one must have deviated.
    """
    if possible.all():
        return
    place = column_ranges(rows)
    guilty = culprits(
        list(rows), lambda some: all(possible[place[a], place[b]].all() for a in some for b in some)
    )
    raise FaultyPeer(guilty, f"its rows have {what}")
