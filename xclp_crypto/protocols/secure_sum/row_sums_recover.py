"""SecureRowSums in mode ``recover``: double masks, and owner masks on top.

::

    client k                                                       server
    masks agreed on: see `double_masks` ◀─────────────────────────▶ who takes part
    RowSumsUpload: for the rows R_j of every other client j
      Z_k + PRG(b_k) + Σ_m ±PRG(s_km) + PRG(o_kj) ────────────────▶ adds up by row
    survivors A, shares: see `double_masks` ◀─────────────────────▶ strips what did not cancel
                      ◀──────────── RowSumsBlock(Σ_{k∈A, k≠j} of the rows of j), to every j

The *owner mask* o_kj comes from the session's key agreement between k and j, whose secrets are
never shared out. In block j the masks between two uploaders cancel, and the server strips the self
masks of A and the masks with dropouts. What is left for j to strip are its own masks
with its neighbours, which it did not upload, and the owner masks of A. Then it adds its own Z_j.

A client that dropped out before its upload can do the same: its block has owner masks alone. So it
gets its rows of the sum over the others if it comes back; its own Z_j is not part of it.

*Server learns* nothing: its blocks stay uniform, those of dropouts as well, because
it never gets an owner mask; and an upload that arrives late stays masked by a b_k that is not
revealed. *Client j learns* the sum of the others' rows R_j, not its parts. *A server that colludes
with client j* learns that sum too, and fewer than t colluding holders learn no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from xclp_crypto.algebra import ring
from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import expand
from xclp_crypto.algebra.ring import Residues
from xclp_crypto.errors import FaultyPeer
from xclp_crypto.protocols.secure_sum import double_masks
from xclp_crypto.protocols.secure_sum.double_masks import SumRecord
from xclp_crypto.protocols.secure_sum.rows import (
    Rows,
    RowSums,
    RowSumsRun,
    RowSumsUpload,
    add_rows,
    rows_of_others,
)
from xclp_crypto.protocols.secure_sum.survivors import Participants, receive_survivors
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng
from xclp_crypto.role import OnProgress


def owner_mask(
    session: Session, adder: str, owner: str, tag: bytes, modulus: int, shape: tuple[int, int]
) -> Residues:
    """Return the mask that `adder` puts on the rows of `owner`; one of them is this client."""
    mask = domain_tag("owner mask", tag, adder, owner)
    peer = owner if adder == session.io.name else adder
    return expand(session.pair_key(peer, mask), mask, modulus, shape)


def add_owner_masks(
    total: Residues, session: Session, rows: Rows, tag: bytes, modulus: int
) -> None:
    """Add this client's masks to the rows of every other client of the session, in place."""
    me, here = session.io.name, set(session.clients)
    for owner, indices in rows.items():
        if owner != me and owner in here and len(indices):
            shape = (len(indices), total.shape[1])
            mask = owner_mask(session, me, owner, tag, modulus, shape)
            add_rows(total, indices, mask, modulus)


def strip_block(
    block: Residues,
    session: Session,
    survivors: Collection[str],
    at_own: dict[str, Residues],
    tag: bytes,
    modulus: int,
    progress: OnProgress,
) -> None:
    """Take the masks of the survivors off this client's block (n_j, c), in place.

    `at_own` are this client's pair masks at its own rows, as it would have added them; there are
    none if it did not upload.
    """
    me = session.io.name
    for done, client in enumerate(survivors, 1):
        if client != me:
            mask = owner_mask(session, client, me, tag, modulus, (block.shape[0], block.shape[1]))
            ring.subtract_from(block, mask, modulus)
            if client in at_own:  # the peer added the negative of it
                ring.add_into(block, at_own[client], modulus)
        progress("own masks stripped", done, len(survivors))


async def row_sums_client(
    session: Session,
    run: RowSumsRun,
    encode: Callable[[], Residues],
    rng: Rng,
    noise: Residues | None,
) -> RowSums:
    """See `xclp_crypto.protocols.secure_sum.row_sums.secure_row_sums_client`."""
    rows, graph, tag = run.rows, run.graph, run.tag
    io, me, modulus = session.io, session.io.name, run.codec.modulus
    own = rows[me]
    with io.step("share"):
        masks = await double_masks.agree_on_masks(session, graph, tag, run.terms, rng)
    at_own: dict[str, Residues] = {}
    with io.step("upload"):
        encoded = await io.compute(encode)
        columns = encoded.shape[1]
        total = encoded[own]  # what the sum of this client's rows begins with
        if masks is not None:
            participants = Participants(graph, tag, masks.clients)
            await participants.sign(session)
            if noise is not None:
                ring.add_into(encoded, noise, modulus)
            at_own = await io.compute(masks.mask, encoded, modulus, own)
            await io.compute(add_owner_masks, encoded, session, rows, tag, modulus)
            # Rows whose owner is not in the session would have no owner mask.
            order = tuple(c for c in rows if c in session.numbers)
            upload = encoded[rows_of_others(rows, order, me)]
            await io.send(SERVER, RowSumsUpload(upload, modulus))
            del upload
    del encoded
    with io.step("reveal"):
        taking_part = session.clients if masks is None else masks.clients
        survivors = await receive_survivors(session, graph, taking_part)
        if masks is not None and me in survivors:
            await double_masks.reveal_shares(session, participants, masks, survivors)
        elif me in survivors:
            raise FaultyPeer(SERVER, f"counts {me}, which did not upload")
    with io.step("result"):
        block = await run.block(session, columns)
        if me not in survivors:  # the server stripped this client's pair masks as a dropout's
            at_own = {}
        await io.compute(strip_block, block, session, survivors, at_own, tag, modulus, io.report)
        if me in survivors:
            ring.add_into(block, total, modulus)
        return RowSums(run.codec.decode_numbers(block), survivors)


async def row_sums_server(
    session: Session, run: RowSumsRun, columns: int, clients: Collection[str]
) -> SumRecord:
    """See `xclp_crypto.protocols.secure_sum.row_sums.secure_row_sums_server`."""
    rows, modulus = run.rows, run.codec.modulus
    io, order = session.io, tuple(c for c in rows if c in session.numbers)
    with io.step("share"):
        masks = await double_masks.open_masks(session, run.graph, run.tag, run.terms, clients)
    with io.step("upload"):
        signed = await masks.participants.gather_signed(session)
        total, survivors = await run.gather(session, tuple(signed), order, columns)
    with io.step("reveal"):
        revealed = await double_masks.close_masks(
            session, masks, survivors, signed, total, modulus, order, rows
        )
    with io.step("result"):
        await run.hand_out(session, total, order)
    return double_masks.record(session, masks, survivors, revealed)
