"""``masked``: one message per client, information-theoretic but for the PRG, non-colluding.

::

    client j (all clients share a key that the server does not have)          server
    MaskedRows(Y_j = X_j + R_j mod t/2) ─────────────────────────────────────▶
    DistanceShares(C_jk for k > j, D_kj for k < j) ──────────────────────────▶ C + D − 2·Y_j·Y_kᵀ

With R_j and T_jk from the common key, t = 2^w and |x| the number of ones of a row,

    C_jk = 2·X_j·R_kᵀ + |x_j|·1ᵀ + T_jk,    D_jk = 2·R_j·Y_kᵀ + 1·|x_k|ᵀ − T_jk    (mod t)

so that C + D − 2·Y_j·Y_kᵀ = |x_j| + |x_k| − 2·X_j·X_kᵀ = h mod t: the products with R_j cancel
because 2·Y_j·Y_kᵀ = 2·X_j·X_kᵀ + 2·X_j·R_kᵀ + 2·R_j·Y_kᵀ. Products carry a factor 2, so Y and R
matter modulo t/2 only and a masked bit takes w − 1 bits on the wire.

*Server learns*: H only. Y_j is a one-time pad; C_jk is uniform because of T_jk, which occurs
nowhere else, and D_jk follows from it and H. Weights |x| are never sent.
*Clients learn*: nothing, they receive nothing. **A client that gives the common key to the server
reveals every client's bits**, and any client that can read another's upload learns its
bits, which is why uploads are sealed to the server. The key is bound to the session; using it twice
would be a two-time pad and raises `ReuseError`.

*Rows and columns* (`between`): client j has masks for its m_j rows and for its n_j columns, of
tags of their own, and uploads both masked. Towards every other client k it is the first of a pair
with its rows, and has C = 2·X_j·R_kᵀ + …, where R_k masks the columns of k; and it is the second
with its columns, and has D. T_jk and T_kj are of other tags than those of row masks.

Exactness: the sums of X·Rᵀ are below L·t/2 ≤ 2^24 for L ≤ 4096 (t = 2^13), exact in float32;
otherwise, and for R·Yᵀ and Y·Yᵀ (below L·t²/4 ≤ 2^45 for every L ≤ 2^15), float64 is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import expand
from xclp_crypto.algebra.products import exact_product
from xclp_crypto.fields import Packed
from xclp_crypto.params import MIN_CLIENTS, residue_width
from xclp_crypto.protocols.hamming.between import (
    Between,
    BetweenBackend,
    Sizes,
    receive_block_shares,
    send_block_shares,
)
from xclp_crypto.protocols.hamming.interface import (
    Distances,
    column_ranges,
    low_bits,
    receive_shares,
    send_shares,
    stacks,
)
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng
from xclp_crypto.role import OnProgress
from xclp_crypto.wire import Message, sent

Float = NDArray[np.float32] | NDArray[np.float64]

STACK_ENTRIES = 1 << 22
"""Entries of the matrices that many small clients' rows are put into: 32 MiB in float64."""


def masked_width(n_bits: int) -> int:
    """Return the bits of one masked bit on the wire: w − 1, at least 1."""
    return max(residue_width(n_bits) - 1, 1)


class MaskedRows(Message):
    """Y_j = X_j + R_j modulo t/2. Size: ⌈n_j·L·(w−1)/8⌉ bytes."""

    TAG = 0x0220
    rows: NDArray[np.uint16] = sent(Packed("rows", "n_bits", width=masked_width))
    n_bits: int


def row_mask(key: bytes, tag: bytes, client: str, rows: int, n_bits: int) -> NDArray[np.uint16]:
    """Return R_j, (n_j, L) uniform modulo t/2."""
    purpose = domain_tag("row mask", tag, client)
    return expand(key, purpose, 1 << masked_width(n_bits), (rows, n_bits)).astype(
        np.uint16, copy=False
    )


def pair_mask(
    key: bytes, tag: bytes, low: str, high: str, shape: tuple[int, int], n_bits: int
) -> NDArray[np.uint16]:
    """Return T_jk, (n_j, n_k) uniform modulo t, for clients j before k."""
    purpose = domain_tag("pair mask", tag, low, high)
    return expand(key, purpose, 1 << residue_width(n_bits), shape).astype(np.uint16, copy=False)


def mask_rows(bits: NDArray[np.uint8], mask: NDArray[np.uint16], n_bits: int) -> NDArray[np.uint16]:
    """Return Y_j = X_j + R_j modulo t/2."""
    return (bits + mask) & np.uint16((1 << masked_width(n_bits)) - 1)


def masked_bits(bits: NDArray[np.uint8], client: str, key: bytes, tag: bytes) -> NDArray[np.uint16]:
    """Return Y_j of client j."""
    own, n_bits = bits.shape
    return mask_rows(bits, row_mask(key, tag, client, own, n_bits), n_bits)


def twice(product: Float) -> NDArray[np.uint16]:
    """Return 2·product modulo 2^16, of which t is a divisor."""
    whole = product.astype(np.int64)
    whole <<= 1
    return whole.astype(np.uint16)


def share_with(
    mine: NDArray[np.uint8] | NDArray[np.uint16],
    mask: NDArray[np.uint16],
    weights: NDArray[np.uint16],
    pair: NDArray[np.uint16],
    n_bits: int,
) -> NDArray[np.uint16]:
    """Return one client's shares with some peers, (n_own, n_peers) modulo t.

    Args:
        mine: own rows X (peers later in the order) or masked rows Y (peers earlier).
        mask: the peers' row masks R.
        weights: |x| of the own rows.
        pair: +T, or −T transposed, modulo t.
        n_bits: L.
    """
    small = mine.dtype == np.uint8 and n_bits << masked_width(n_bits) <= 1 << 24
    dtype: type[np.floating[Any]] = np.float32 if small else np.float64
    share = twice(exact_product(mine.astype(dtype), mask.astype(dtype).T))
    share += weights[:, None]
    share += pair
    share &= low_bits(n_bits)
    return share


def client_upload(
    bits: NDArray[np.uint8],
    sizes: Mapping[str, int],
    me: str,
    key: bytes,
    tag: bytes,
    progress: OnProgress | None = None,
) -> tuple[NDArray[np.uint16], dict[str, NDArray[np.uint16]]]:
    """Return what client `me` sends: masked rows, and shares by peer."""
    order = list(sizes)
    place = order.index(me)
    masked = masked_bits(bits, me, key, tag)
    shares: dict[str, NDArray[np.uint16]] = {}
    for mine, peers in ((masked, order[:place]), (bits, order[place + 1 :])):
        first = mine is bits
        others = {c: sizes[c] for c in peers}
        for part in shares_with_all(mine, bits, others, me, key, (tag, tag), first=first):
            shares |= part
            if progress is not None:
                progress("shares", len(shares), len(order) - 1)
    return masked, shares


def shares_with_all(
    mine: NDArray[np.uint8] | NDArray[np.uint16],
    bits: NDArray[np.uint8],
    sizes: Mapping[str, int],
    me: str,
    key: bytes,
    tags: tuple[bytes, bytes],
    *,
    first: bool = False,
) -> Iterator[dict[str, NDArray[np.uint16]]]:
    """Yield the shares that client `me` has with peers, those of many small ones at once.

    Args:
        mine: its rows X if it is the first of each pair, or else its masked rows Y.
        bits: its rows X.
        sizes: by client, the number of rows that its mask has; its own is left out.
        me: its name.
        key: the common key.
        tags: those of the peers' row masks and of the pair masks.
        first: whether it is j, and so has C, and not D.
    """
    own, n_bits = bits.shape
    weights = bits.sum(axis=1, dtype=np.uint16)
    peers = {client: n for client, n in sizes.items() if client != me}
    of_rows, of_pairs = tags
    for stack in stacks(peers, STACK_ENTRIES // n_bits):
        masks = [row_mask(key, of_rows, peer, n, n_bits) for peer, n in stack.items()]
        pairs = [
            pair_mask(key, of_pairs, me, peer, (own, n), n_bits)
            if first
            else (0 - pair_mask(key, of_pairs, peer, me, (n, own), n_bits)).T
            for peer, n in stack.items()
        ]
        share = share_with(mine, np.concatenate(masks), weights, np.hstack(pairs), n_bits)
        yield {peer: share[:, at] for peer, at in column_ranges(stack).items()}


def joined_shares(
    parts: Iterable[dict[str, NDArray[np.uint16]]],
) -> dict[str, NDArray[np.uint16]]:
    """Return the shares of all parts."""
    return {peer: share for part in parts for peer, share in part.items()}


def stacked_rows(
    uploads: Mapping[str, MaskedRows], sizes: Mapping[str, int], n_bits: int
) -> list[tuple[dict[str, slice], Float]]:
    """Return the clients' masked rows in float64, many small clients' in one matrix."""
    present = {client: n for client, n in sizes.items() if client in uploads}
    return [
        (
            column_ranges(stack),
            np.concatenate([uploads[client].rows for client in stack]).astype(np.float64),
        )
        for stack in stacks(present, STACK_ENTRIES // n_bits)
    ]


class Masked(BetweenBackend):
    """Masked Gram matrices. See the module."""

    name = "masked"
    trust = "non-colluding"
    needs_common_secret = True

    async def client(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> None:
        """See `HammingBackend.client`."""
        io, key = session.io, session.common_secret
        tag = session.once("masked hamming")
        masked, shares = await io.compute(
            client_upload, bits, session.sizes, io.name, key, tag, io.report
        )
        await io.send(SERVER, MaskedRows(masked, bits.shape[1]))
        del masked
        await send_shares(session, bits, shares)

    async def server(self, session: Session, n_bits: int, at_least: int = MIN_CLIENTS) -> Distances:
        """See `HammingBackend.server`."""
        sizes = session.sizes
        masked = await session.io.gather(
            MaskedRows, session.clients, at_least, rows=sizes, n_bits=n_bits
        )
        modulo = low_bits(n_bits)
        rows = await session.io.compute(stacked_rows, masked, sizes, n_bits)
        where = {
            c: (number, at) for number, (stack, _) in enumerate(rows) for c, at in stack.items()
        }
        products: dict[tuple[str, int], NDArray[np.uint16]] = {}

        def combine(
            low: str, high: str, c: NDArray[np.uint16], d: NDArray[np.uint16]
        ) -> NDArray[np.uint16]:
            number, at = where[high]
            if (low, number) not in products:  # pairs come in order: it serves the whole stack
                products.clear()
                own, stack = rows[where[low][0]][1][where[low][1]], rows[number][1]
                products[low, number] = twice(exact_product(own, stack.T))
            return (c + d - products[low, number][:, at]) & modulo

        return await receive_shares(session, n_bits, at_least, combine, uploaders=tuple(masked))

    async def client_between(
        self,
        session: Session,
        sizes: Sizes,
        rows: NDArray[np.uint8],
        columns: NDArray[np.uint8],
        rng: Rng,
    ) -> None:
        """See `BetweenBackend.client_between`."""
        io, key, n_bits = session.io, session.common_secret, rows.shape[1]
        of_rows, of_columns, of_pairs = (
            session.once(f"masked {what}") for what in ("rows", "columns", "between")
        )
        masked_rows = await io.compute(masked_bits, rows, io.name, key, of_rows)
        masked_columns = await io.compute(masked_bits, columns, io.name, key, of_columns)
        await io.send(SERVER, MaskedRows(np.concatenate([masked_rows, masked_columns]), n_bits))
        with_columns = shares_with_all(
            rows, rows, sizes.columns, io.name, key, (of_columns, of_pairs), first=True
        )
        with_rows = shares_with_all(
            masked_columns, columns, sizes.rows, io.name, key, (of_rows, of_pairs)
        )
        of_own_rows = await io.compute(joined_shares, with_columns)
        of_own_columns = await io.compute(joined_shares, with_rows)
        await send_block_shares(session, sizes, rows, columns, of_own_rows, of_own_columns)

    async def server_between(
        self, session: Session, sizes: Sizes, n_bits: int, at_least: int = MIN_CLIENTS
    ) -> Between:
        """See `BetweenBackend.server_between`."""
        m, n = sizes
        both = {c: m[c] + n[c] for c in m}
        got = await session.io.gather(
            MaskedRows, session.clients, at_least, rows=both, n_bits=n_bits
        )
        modulo, present = low_bits(n_bits), [c for c in m if c in got]
        down, across = (column_ranges(own) for own in sizes.of(present))

        def products() -> NDArray[np.uint16]:
            rows = np.concatenate([got[c].rows[: m[c]] for c in present]).astype(np.float64)
            return np.hstack(
                [
                    twice(exact_product(rows, got[c].rows[m[c] :].astype(np.float64).T))
                    for c in present
                ]
            )

        product = await session.io.compute(products)

        def combine(
            j: str, k: str, c: NDArray[np.uint16], d: NDArray[np.uint16]
        ) -> NDArray[np.uint16]:
            return (c + d - product[down[j], across[k]]) & modulo

        return await receive_block_shares(session, sizes, n_bits, at_least, combine, tuple(present))
