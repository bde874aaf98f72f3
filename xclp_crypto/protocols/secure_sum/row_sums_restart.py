"""SecureRowSums in mode ``restart``: fresh masks among those that are left (paper §4.2).

::

    client k                                                       server
                     ◀────────────────────── RowSumsRound(terms of the sum, who takes part, done?)
    RowSumsUpload(Z_k + Σ_m ±PRG(s_km), without the rows of k) ──▶
                     ◀────────────────────── RowSumsBlock(Σ_{k≠j} uploads, rows of j)

Client j subtracts the masks it shares with each k from its block, adds its own Z_j and holds the
sum over all clients, for its rows only. For m ≠ j the masks of pairs (k, m) cancel in block j.

If a client that takes part does not upload, the server starts again with those that did: another
`RowSumsRound`, whose number and participants enter every mask, so no mask is used twice.

*Server learns* nothing: in every upload the row of owner j carries the mask shared with j, which j
never uploads; this holds for the uploads of abandoned rounds and for late ones too, because no
key is ever handed out. *Client j learns* the sum of the others' rows R_j, not its parts. With two
clients that sum *is* the other's part: `PrivacyWarning`.

*A server that colludes with clients* learns, for the rows of those clients, the sum over the honest
ones of every attempt that all of its participants uploaded to. Without restarts that hides each of
two or more honest clients; against all but one it is that one's values. A restart weakens this: if
an upload arrives late, or the server pretends that it did, the sums of two attempts differ by the
late client's values. The self masks of mode ``recover`` close that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra import ring
from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import expand
from xclp_crypto.algebra.ring import Residues
from xclp_crypto.errors import Excluded, FaultyPeer
from xclp_crypto.fields import Bits, One, Raw
from xclp_crypto.protocols.secure_sum.double_masks import SumRecord, short_record
from xclp_crypto.protocols.secure_sum.rows import RowSums, RowSumsRun, RowSumsUpload, rows_of_others
from xclp_crypto.protocols.secure_sum.terms import TERMS_BYTES
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.wire import Message, sent


class RowSumsRound(Message):
    """Which clients take part in an attempt, or took part in the one that is done; and the terms.

    Size: 1 + 72 + ⌈p/8⌉ bytes.
    """

    TAG = 0x0401
    done: bool = sent(One(Bits(1)))
    terms: bytes = sent(Raw(TERMS_BYTES))
    clients: NDArray[np.bool_] = sent(Bits("clients"))


def pair_masks(
    session: Session, clients: Sequence[str], tag: bytes, shape: tuple[int, int], modulus: int
) -> dict[str, Residues]:
    """Return this client's masks with every other participant, to be added by the earlier client.

    The client that comes first adds the mask and the other one subtracts it.
    """
    return {
        peer: expand(session.pair_key(peer, tag), tag, modulus, shape)
        for peer in clients
        if peer != session.io.name
    }


def mask_upload(
    encoded: Residues,
    masks: Mapping[str, Residues],
    clients: Sequence[str],
    me: str,
    keep: NDArray[np.intp],
    modulus: int,
) -> Residues:
    """Return the rows `keep` of the values plus all masks with their signs."""
    total = encoded[keep]
    for peer, mask in masks.items():
        first = clients.index(me) < clients.index(peer)
        (ring.add_into if first else ring.subtract_from)(total, mask[keep], modulus)
    return total


async def row_sums_client(
    session: Session, run: RowSumsRun, encode: Callable[[], Residues], noise: Residues | None
) -> RowSums:
    """See `xclp_crypto.protocols.secure_sum.row_sums.secure_row_sums_client`."""
    rows, modulus = run.rows, run.codec.modulus
    io, me = session.io, session.io.name
    own, order = rows[me], tuple(rows)
    encoded: Residues | None = None
    at_own: dict[str, Residues] = {}
    taking_part: tuple[str, ...] = ()
    attempt = 0
    while True:
        status = await io.recv(RowSumsRound, SERVER, clients=len(order))
        run.terms.require_same(status.terms, SERVER)
        clients = tuple(c for c, here in zip(order, status.clients, strict=True) if here)
        if me not in clients:
            raise Excluded(me, io.current_step, io.late)
        if status.done:
            break
        allowed = (
            set(clients) < set(taking_part) if attempt else set(clients) <= session.numbers.keys()
        )
        if len(clients) < run.graph.threshold or not allowed:
            raise FaultyPeer(SERVER, f"asks {len(clients)} clients for attempt {attempt}")
        taking_part = clients
        attempt_tag = domain_tag("row sums attempt", run.tag, attempt, *clients)
        with io.step("upload"):
            if encoded is None:
                encoded = await io.compute(encode)
                total = encoded[own]  # what the sum of this client's rows begins with
                if noise is not None:
                    ring.add_into(encoded, noise, modulus)
            shape = (encoded.shape[0], encoded.shape[1])
            masks = await io.compute(pair_masks, session, clients, attempt_tag, shape, modulus)
            at_own = {peer: mask[own] for peer, mask in masks.items()}
            keep = rows_of_others(rows, clients, me)
            values = await io.compute(mask_upload, encoded, masks, clients, me, keep, modulus)
            del masks
            await io.send(SERVER, RowSumsUpload(values, modulus))
            del values
        attempt += 1
    if encoded is None or clients != taking_part:
        raise FaultyPeer(SERVER, "sums over other clients than those that it asked")
    del encoded
    with io.step("result"):
        block, whole = await run.block(session, total.shape[1]), np.arange(len(own))
        # The peers added the negative of this client's masks, so adding them strips the block.
        total = await io.compute(mask_upload, total, at_own, clients, me, whole, modulus)
        ring.add_into(total, block, modulus)
    return RowSums(run.codec.decode_numbers(total), clients)


async def row_sums_server(
    session: Session, run: RowSumsRun, columns: int, clients: Collection[str]
) -> SumRecord:
    """See `xclp_crypto.protocols.secure_sum.row_sums.secure_row_sums_server`."""
    io, terms = session.io, run.terms.encode()
    informed = asked = tuple(c for c in run.rows if c in clients)
    while True:
        here = np.array([c in asked for c in run.rows])
        await io.send(informed, RowSumsRound(False, terms, here))
        with io.step("upload"):
            total, got = await run.gather(session, asked, asked, columns)
        if len(got) == len(asked):
            break
        asked = got
    await io.send(informed, RowSumsRound(True, terms, here))
    with io.step("result"):
        await run.hand_out(session, total, asked)
    return short_record(session, run.graph.clients, asked)
