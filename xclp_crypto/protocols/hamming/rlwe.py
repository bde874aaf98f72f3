"""``rlwe``: ring-LWE ciphertexts evaluated by matrix products; private under any collusion.

::

    owner j (fewer rows)                              evaluator k
    RlweCiphertexts(b_i, p_i of its rows) ──────────▶
                                          ◀────────── RlweMasks(c1 of its rows), once for all owners
                                          ◀────────── RlweAnswers(c2, a coefficient per pair)
    T = h − |x| + r mod t                             R = r − |x| mod t
    DistanceShares(T) ──▶ server: h = T − R mod 2^w ◀── DistanceShares(R)

In every pair of clients the one with fewer rows owns the ciphertexts (of equals, the earlier one),
because a row costs 82 kB as a ciphertext and 12 kB as an evaluation (L = 4096). A client encrypts
its rows once for all its evaluators, and evaluates with one c1 for all its owners. Rows travel in
blocks of `BLOCK_ROWS`, so memory stays bounded.

*Rows and columns* (`between`): every client owns its rows, which all others evaluate with their
columns. Up to N bits several columns share a c1 (`primitives.rlwe_packed`).

*Server learns* H only: (T, R) is uniform subject to T − R = h. *Owner learns* nothing: c1 is
pseudo-random, T is uniform through r, and the noise is drowned (statistical distance below 2^-40
for all owners of the session together).
*Evaluator learns* nothing: it sees ring-LWE samples. The server may collude with any clients that
follow the protocol; an owner that does not can read the evaluator's bits (`primitives.rlwe`).
Assumption: ring-LWE with N = 4096 and ternary secrets, believed to hold against quantum computers
too. See `xclp_crypto.primitives.rlwe` for the scheme, its bounds and its exactness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.fields import Many, Uints
from xclp_crypto.params import MIN_CLIENTS, RlweParameters
from xclp_crypto.primitives import rlwe, rlwe_packed
from xclp_crypto.primitives.rlwe_packed import Packing
from xclp_crypto.protocols.hamming.between import (
    Between,
    BetweenBackend,
    Sizes,
    receive_block_shares,
    send_block_shares,
)
from xclp_crypto.protocols.hamming.interface import (
    Distances,
    Shares,
    SharingBackend,
    column_ranges,
    low_bits,
    stacks,
)
from xclp_crypto.protocols.setup import Session
from xclp_crypto.rng import Rng
from xclp_crypto.wire import Message, sent

BLOCK_ROWS = 128
"""Rows per message; part of the wire format."""


def _coefficients(n_bits: int) -> int:
    """Return N', how many coefficients the polynomials of one vector have."""
    p = rlwe.parameters_for(n_bits)
    return p.chunks(n_bits) * p.degree


def _switched_bytes(n_bits: int) -> int:
    return rlwe.parameters_for(n_bits).switched_bytes


class RlweCiphertexts(Message):
    """A block of encrypted rows, limb by limb. Size: rows·values·(log2 q)/8 bytes.

    A row has L + N' values, or with packing (C + 1)·N.
    """

    TAG = 0x0230
    limbs: tuple[NDArray[np.int64], ...] = sent(
        Many(
            Uints(
                "rows",
                "values",
                n_bytes=lambda n_bits: rlwe.parameters_for(n_bits).limb_bits // 8,
                dtype=np.int64,
            ),
            lambda n_bits: rlwe.parameters_for(n_bits).limbs,
        )
    )
    n_bits: int


class RlweMasks(Message):
    """c1 of a block of the evaluator's rows. Size: rows·N'·(log2 q')/8 bytes."""

    TAG = 0x0231
    values: NDArray[np.uint32] = sent(Uints("rows", _coefficients, n_bytes=_switched_bytes))
    n_bits: int


class RlweAnswers(Message):
    """c2 for a block of the owner's rows. Size: rows·evaluated·(log2 q')/8 bytes."""

    TAG = 0x0232
    values: NDArray[np.uint32] = sent(Uints("rows", "evaluated", n_bytes=_switched_bytes))
    n_bits: int


def owner_first(one: str, other: str, sizes: Mapping[str, int]) -> tuple[str, str]:
    """Return (owner, evaluator) of two clients, `one` being the earlier."""
    return (other, one) if sizes[other] < sizes[one] else (one, other)


def roles_of(me: str, sizes: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return who evaluates my rows and whose rows I evaluate; clients without rows are left out."""
    evaluators: list[str] = []
    owners: list[str] = []
    before = True
    for other in sizes:
        if other == me:
            before = False
        elif sizes[me] and sizes[other]:
            owner, _ = owner_first(*((other, me) if before else (me, other)), sizes)
            (evaluators if owner == me else owners).append(other)
    return evaluators, owners


def blocks(rows: int) -> list[slice]:
    """Return the blocks in which `rows` rows travel."""
    return [slice(i, min(i + BLOCK_ROWS, rows)) for i in range(0, rows, BLOCK_ROWS)]


def require_sizes(sizes: Mapping[str, int], n_bits: int) -> RlweParameters:
    """Return the parameters; refuse sizes for which a bound is missed.

    Counted are the distances of all pairs of clients: no coalition sees more answers. See
    `RlweParameters.require`.
    """
    parameters = rlwe.parameters_for(n_bits)
    parameters.require(n_bits, (sum(sizes.values()) ** 2 - sum(n**2 for n in sizes.values())) // 2)
    return parameters


def require_between(
    rows: Mapping[str, int], columns: Mapping[str, int], n_bits: int
) -> RlweParameters:
    """Return the parameters for rows and columns; refuse sizes as `require_sizes` does."""
    parameters = rlwe.parameters_for(n_bits)
    packing = Packing.of(n_bits, parameters)
    support = None if packing is None else packing.chunks * packing.degree
    own = sum(rows[c] * columns[c] for c in rows)
    parameters.require(n_bits, sum(rows.values()) * sum(columns.values()) - own, support)
    return parameters


def _block_sizes(sizes: Mapping[str, int], clients: Iterable[str], index: int) -> dict[str, int]:
    """Return the rows of block `index` of those clients that have one."""
    sized = {c: blocks(sizes[c])[index : index + 1] for c in clients}
    return {c: b[0].stop - b[0].start for c, b in sized.items() if b}


def _block_count(sizes: Mapping[str, int]) -> int:
    return max((len(blocks(rows)) for rows in sizes.values()), default=0)


def _empty_shares(bits: NDArray[np.uint8], sizes: Mapping[str, int]) -> Shares:
    """Return shares with peers that have so many rows."""
    return {peer: np.zeros((len(bits), rows), dtype=np.uint16) for peer, rows in sizes.items()}


async def _ring(
    session: Session, purpose: str, parameters: RlweParameters, count: int = 2
) -> rlwe.Ring:
    """Return the public polynomials of one use in a session."""
    tag = session.once(purpose)
    return await session.io.compute(rlwe.Ring.from_tag, session.id, tag, parameters, count)


class Rlwe(SharingBackend, BetweenBackend):
    """Ring-LWE. See the module."""

    name = "rlwe"
    trust = "2pc"

    def require(self, sizes: Mapping[str, int], n_bits: int) -> None:
        """See `HammingBackend.require`."""
        require_sizes(sizes, n_bits)

    async def shares(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> Shares:
        """See `SharingBackend.shares`."""
        sizes = session.sizes
        parameters = require_sizes(sizes, bits.shape[1])
        evaluators, owners = (
            {c: sizes[c] for c in peers} for peers in roles_of(session.io.name, sizes)
        )
        ring = await _ring(session, "rlwe hamming", parameters)
        opened, masks = await self._exchange(session, ring, bits, evaluators, bits, owners, rng)
        alone = {c: n for c, n in sizes.items() if c not in (session.io.name, *owners, *evaluators)}
        return _empty_shares(bits, alone) | masks | opened

    def minuend(self, low: str, high: str, sizes: Mapping[str, int]) -> str:
        """See `SharingBackend.minuend`."""
        return owner_first(low, high, sizes)[0]

    async def server(self, session: Session, n_bits: int, at_least: int = MIN_CLIENTS) -> Distances:
        """See `HammingBackend.server`."""
        require_sizes(session.sizes, n_bits)
        return await super().server(session, n_bits, at_least)

    async def client_between(
        self,
        session: Session,
        sizes: Sizes,
        rows: NDArray[np.uint8],
        columns: NDArray[np.uint8],
        rng: Rng,
    ) -> None:
        """See `BetweenBackend.client_between`."""
        me, n_bits = session.io.name, rows.shape[1]
        m, n = sizes
        parameters = require_between(m, n, n_bits)
        peers = [c for c in m if c != me]
        evaluators = {c: n[c] for c in peers if m[me] and n[c]}
        owners = {c: m[c] for c in peers if n[me] and m[c]}
        packing = Packing.of(n_bits, parameters)
        polynomials = 2 if packing is None else packing.chunks + 1
        ring = await _ring(session, "rlwe between", parameters, polynomials)
        opened, masks = await self._exchange(
            session, ring, rows, evaluators, columns, owners, rng, packing
        )
        of_rows = _empty_shares(rows, {c: n[c] for c in peers if c not in evaluators}) | opened
        of_columns = _empty_shares(columns, {c: m[c] for c in peers if c not in owners}) | masks
        await send_block_shares(session, sizes, rows, columns, of_rows, of_columns)

    async def server_between(
        self, session: Session, sizes: Sizes, n_bits: int, at_least: int = MIN_CLIENTS
    ) -> Between:
        """See `BetweenBackend.server_between`."""
        require_between(*sizes, n_bits)
        modulo = low_bits(n_bits)

        def combine(
            j: str, k: str, opened: NDArray[np.uint16], masks: NDArray[np.uint16]
        ) -> NDArray[np.uint16]:
            return (opened - masks) & modulo

        return await receive_block_shares(session, sizes, n_bits, at_least, combine)

    async def _exchange(
        self,
        session: Session,
        ring: rlwe.Ring,
        owned: NDArray[np.uint8],
        evaluators: Mapping[str, int],
        evaluated: NDArray[np.uint8],
        owners: Mapping[str, int],
        rng: Rng,
        packing: Packing | None = None,
    ) -> tuple[Shares, Shares]:
        """Own some rows, and evaluate those of others with some rows.

        Args:
            session: the session.
            ring: the public polynomials.
            owned: (n, L) bits that this client encrypts.
            evaluators: who evaluates them, with how many rows.
            evaluated: (n, L) bits with which this client evaluates.
            owners: whose rows, and how many.
            rng: source of secrets and masks.
            packing: how rows share polynomials, if they do.

        Returns:
            T for each evaluator, and R for each owner, that stayed.
        """
        io, n_bits = session.io, owned.shape[1]
        secrets = []
        for block in blocks(len(owned)) if evaluators else []:
            own, limbs = (
                await io.compute(rlwe.encrypt, rng, ring, owned[block])
                if packing is None
                else await io.compute(rlwe_packed.encrypt, rng, ring, owned[block], packing)
            )
            secrets.append(own)
            await io.send(tuple(evaluators), RlweCiphertexts(tuple(limbs), n_bits))
        masks = (
            await self._evaluate(session, ring, evaluated, owners, rng, packing) if owners else {}
        )
        if not evaluators:
            return {}, masks
        return await self._decrypt(
            session, ring.parameters, owned, secrets, evaluators, packing
        ), masks

    async def _evaluate(
        self,
        session: Session,
        ring: rlwe.Ring,
        bits: NDArray[np.uint8],
        owners: Mapping[str, int],
        rng: Rng,
        packing: Packing | None,
    ) -> Shares:
        """Answer all owners; return R = r − |x| for each that stayed."""
        io, n_bits, p = session.io, bits.shape[1], ring.parameters
        weights, modulo = bits.sum(axis=1, dtype=np.uint16), low_bits(n_bits)
        matrix, c1 = (
            await io.compute(rlwe.prepare, rng, ring, bits)
            if packing is None
            else await io.compute(rlwe_packed.prepare, rng, ring, bits, packing)
        )
        for block in blocks(len(c1)):
            await io.send(tuple(owners), RlweMasks(c1[block], n_bits))
        shares = _empty_shares(bits, owners)
        done = 0
        for index in range(_block_count(owners)):
            rows = _block_sizes(owners, shares, index)
            got = await io.gather(
                RlweCiphertexts, tuple(rows), 0, rows=rows, values=matrix.shape[1], n_bits=n_bits
            )
            shares = {c: share for c, share in shares.items() if c in got or c not in rows}
            for stack in stacks({c: rows[c] for c in got}, BLOCK_ROWS):
                limbs = [
                    np.concatenate(of) for of in zip(*(got[c].limbs for c in stack), strict=True)
                ]
                masks = {c: rlwe.drawn_masks(rng, (n, len(bits)), p) for c, n in stack.items()}
                together = np.concatenate([*masks.values()])
                c2 = await io.compute(rlwe.evaluate, rng, matrix, limbs, together, p)
                for owner, at in column_ranges(stack).items():
                    await io.send(owner, RlweAnswers(c2[at], n_bits))
                    place = blocks(owners[owner])[index]
                    shares[owner][:, place] = (masks[owner].T - weights[:, None]) & modulo
                done += len(together)
                io.report("evaluated rows", done, sum(owners.values()))
        return shares

    async def _decrypt(
        self,
        session: Session,
        parameters: RlweParameters,
        bits: NDArray[np.uint8],
        secrets: list[NDArray[np.int8]],
        evaluators: Mapping[str, int],
        packing: Packing | None,
    ) -> Shares:
        """Decrypt all answers; return T for each evaluator that stayed."""
        io, n_bits = session.io, bits.shape[1]
        polynomials = {
            c: n if packing is None else packing.groups(n) for c, n in evaluators.items()
        }
        c1: dict[str, list[NDArray[np.uint32]]] = {c: [] for c in evaluators}
        for index in range(_block_count(polynomials)):
            rows = _block_sizes(polynomials, c1, index)
            masks = await io.gather(RlweMasks, tuple(rows), 0, rows=rows, n_bits=n_bits)
            c1 = {c: parts for c, parts in c1.items() if c in masks or c not in rows}
            for client, message in masks.items():
                c1[client].append(message.values)
        stacked = {c: np.concatenate(parts) for c, parts in c1.items()}
        shares = _empty_shares(bits, {c: evaluators[c] for c in stacked})
        for block, own in zip(blocks(len(bits)), secrets, strict=True):
            evaluated = {c: evaluators[c] for c in shares}
            answers = await io.gather(
                RlweAnswers, evaluated, 0, rows=len(own), evaluated=evaluated, n_bits=n_bits
            )
            shares = {c: shares[c] for c in answers}
            for client, answer in answers.items():
                c1_of, c2 = stacked[client], answer.values
                plain = (
                    await io.compute(rlwe.decrypt, own, c1_of, c2, parameters)
                    if packing is None
                    else await io.compute(rlwe_packed.decrypt, own, c1_of, c2, parameters, packing)
                )
                shares[client][block] = plain & low_bits(n_bits)
            io.report("decrypted rows", block.stop, len(bits))
        return shares
