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

*Server learns* H only: (T, R) is uniform subject to T − R = h. *Owner learns* nothing: c1 is
pseudo-random, T is uniform through r, and the noise is drowned (statistical distance below 2^-40).
*Evaluator learns* nothing: it sees ring-LWE samples. The server may collude with any clients that
follow the protocol; an owner that does not can read the evaluator's bits (`primitives.rlwe`).
Assumption: ring-LWE with N = 4096 and ternary secrets, believed to hold against quantum computers
too. See `xclp_crypto.primitives.rlwe` for the scheme, its bounds and its exactness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.fields import Many, Uints
from xclp_crypto.params import MIN_CLIENTS, RlweParameters
from xclp_crypto.primitives import rlwe
from xclp_crypto.protocols.hamming.interface import (
    Distances,
    HammingBackend,
    low_bits,
    receive_differences,
    send_shares,
)
from xclp_crypto.protocols.setup import Session
from xclp_crypto.rng import Rng
from xclp_crypto.wire import Message, sent

BLOCK_ROWS = 128
"""Rows per message; part of the wire format."""

Shares: TypeAlias = dict[str, NDArray[np.uint16]]
"""By peer, (own rows, its rows) modulo t."""


def _coefficients(n_bits: int) -> int:
    """Return N', how many coefficients the polynomials of one vector have."""
    p = rlwe.parameters_for(n_bits)
    return p.chunks(n_bits) * p.degree


def _switched_bytes(n_bits: int) -> int:
    return rlwe.parameters_for(n_bits).switched_bytes


class RlweCiphertexts(Message):
    """A block of encrypted rows, limb by limb. Size: rows·(L + N')·(log2 q)/8 bytes."""

    TAG = 0x0230
    limbs: tuple[NDArray[np.int64], ...] = sent(
        Many(
            Uints(
                "rows",
                lambda n_bits: n_bits + _coefficients(n_bits),
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

    Counted are all answers that one owner gets, and all that one evaluator gives: owners that
    collude against an evaluator see these together. See `RlweParameters.require`.
    """
    parameters = rlwe.parameters_for(n_bits)
    for client, rows in sizes.items():
        for peers in roles_of(client, sizes):
            parameters.require(n_bits, rows * sum(sizes[p] for p in peers))
    return parameters


def _block_sizes(sizes: Mapping[str, int], clients: Iterable[str], index: int) -> dict[str, int]:
    """Return the rows of block `index` of those clients that have one."""
    sized = {c: blocks(sizes[c])[index : index + 1] for c in clients}
    return {c: b[0].stop - b[0].start for c, b in sized.items() if b}


def _block_count(sizes: Mapping[str, int], clients: list[str]) -> int:
    return max((len(blocks(sizes[c])) for c in clients), default=0)


def _empty_shares(
    bits: NDArray[np.uint8], sizes: Mapping[str, int], peers: Iterable[str]
) -> Shares:
    return {peer: np.zeros((len(bits), sizes[peer]), dtype=np.uint16) for peer in peers}


class Rlwe(HammingBackend):
    """Ring-LWE. See the module."""

    name = "rlwe"
    trust = "2pc"

    async def client(self, session: Session, bits: NDArray[np.uint8], rng: Rng) -> None:
        """See `HammingBackend.client`."""
        io, sizes, n_bits = session.io, session.sizes, bits.shape[1]
        parameters = require_sizes(sizes, n_bits)
        evaluators, owners = roles_of(io.name, sizes)
        ring = await io.compute(
            rlwe.Ring.from_tag, session.id, session.once("rlwe hamming"), parameters
        )
        secrets = []
        for block in blocks(len(bits)) if evaluators else []:
            own, limbs = await io.compute(rlwe.encrypt, rng, ring, bits[block])
            secrets.append(own)
            await io.send(evaluators, RlweCiphertexts(tuple(limbs), n_bits))
        alone = [c for c in sizes if c not in (io.name, *owners, *evaluators)]  # pairs without rows
        shares = _empty_shares(bits, sizes, alone)
        if owners:
            shares |= await self._evaluate(session, ring, bits, owners, rng)
        if evaluators:
            shares |= await self._decrypt(session, parameters, bits, secrets, evaluators)
        await send_shares(session, bits, shares)

    async def _evaluate(
        self,
        session: Session,
        ring: rlwe.Ring,
        bits: NDArray[np.uint8],
        owners: list[str],
        rng: Rng,
    ) -> Shares:
        """Answer all owners; return R = r − |x| for each that stayed."""
        io, sizes, n_bits, p = session.io, session.sizes, bits.shape[1], ring.parameters
        weights, modulo = bits.sum(axis=1, dtype=np.uint16), low_bits(n_bits)
        matrix, c1 = await io.compute(rlwe.prepare, rng, ring, bits)
        for block in blocks(len(bits)):
            await io.send(owners, RlweMasks(c1[block], n_bits))
        shares = _empty_shares(bits, sizes, owners)
        done = 0
        for index in range(_block_count(sizes, owners)):
            rows = _block_sizes(sizes, shares, index)
            got = await io.gather(RlweCiphertexts, tuple(rows), 0, rows=rows, n_bits=n_bits)
            shares = {c: share for c, share in shares.items() if c in got or c not in rows}
            for owner, message in got.items():
                masks = rlwe.drawn_masks(rng, (rows[owner], len(bits)), p)
                c2 = await io.compute(rlwe.evaluate, rng, matrix, list(message.limbs), masks, p)
                await io.send(owner, RlweAnswers(c2, n_bits))
                place = blocks(sizes[owner])[index]
                shares[owner][:, place] = (masks.T - weights[:, None]) & modulo
                done += rows[owner]
                io.report("evaluated rows", done, sum(sizes[c] for c in owners))
        return shares

    async def _decrypt(
        self,
        session: Session,
        parameters: RlweParameters,
        bits: NDArray[np.uint8],
        secrets: list[NDArray[np.int8]],
        evaluators: list[str],
    ) -> Shares:
        """Decrypt all answers; return T for each evaluator that stayed."""
        io, sizes, n_bits = session.io, session.sizes, bits.shape[1]
        c1: dict[str, list[NDArray[np.uint32]]] = {c: [] for c in evaluators}
        for index in range(_block_count(sizes, evaluators)):
            rows = _block_sizes(sizes, c1, index)
            masks = await io.gather(RlweMasks, tuple(rows), 0, rows=rows, n_bits=n_bits)
            c1 = {c: parts for c, parts in c1.items() if c in masks or c not in rows}
            for client, message in masks.items():
                c1[client].append(message.values)
        stacked = {c: np.concatenate(parts) for c, parts in c1.items()}
        shares = _empty_shares(bits, sizes, stacked)
        for block, own in zip(blocks(len(bits)), secrets, strict=True):
            evaluated = {c: sizes[c] for c in shares}
            answers = await io.gather(
                RlweAnswers, evaluated, 0, rows=len(own), evaluated=evaluated, n_bits=n_bits
            )
            shares = {c: shares[c] for c in answers}
            for client, answer in answers.items():
                plain = await io.compute(
                    rlwe.decrypt, own, stacked[client], answer.values, parameters
                )
                shares[client][block] = plain & low_bits(n_bits)
            io.report("decrypted rows", block.stop, len(bits))
        return shares

    async def server(self, session: Session, n_bits: int, at_least: int = MIN_CLIENTS) -> Distances:
        """See `HammingBackend.server`."""
        sizes = session.sizes
        require_sizes(sizes, n_bits)
        return await receive_differences(
            session, n_bits, at_least, lambda low, high: owner_first(low, high, sizes)[0]
        )
