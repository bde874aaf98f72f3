"""SecureSum: the sum of vectors of those clients that stay (Bonawitz et al. 2017).

::

    client u                                                       server
    masks agreed on: see `double_masks` ◀─────────────────────────▶ who takes part
    SumUpload(x_u + all masks of u) ──────────────────────────────▶ adds up
    survivors, shares: see `double_masks` ◀───────────────────────▶ Σ x_u over the survivors

*Server learns* the sum over the survivors, at least `threshold` of them, and who they are.
*Client learns* who takes part and survives. With the server together, t colluding clients of one
neighbourhood learn a client's value; fewer learn the sum of the others.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.algebra import ring
from xclp_crypto.algebra.ring import Residues, residue_dtype
from xclp_crypto.errors import Excluded, ParameterError
from xclp_crypto.fields import Modular
from xclp_crypto.params import MAX_UPLOAD_BYTES
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum import double_masks
from xclp_crypto.protocols.secure_sum.double_masks import SumRecord
from xclp_crypto.protocols.secure_sum.mask_graph import MaskGraph
from xclp_crypto.protocols.secure_sum.survivors import Participants, receive_survivors
from xclp_crypto.protocols.secure_sum.terms import sum_terms
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng
from xclp_crypto.wire import Message, sent

PURPOSE = "sum"


class SumUpload(Message):
    """A client's masked values. Size: b·rows·c bytes, b those of a residue."""

    TAG = 0x0427
    values: Residues = sent(Modular("rows", "columns"))
    modulus: int


@dataclass(frozen=True)
class SecureSum:
    """What the server holds after SecureSum.

    Attributes:
        total: the sum over the survivors, in the shape of the values; int64 and exact if the codec
            has no fraction bits, else float64.
        record: who survived, and when the others dropped out.
        residues: the sum before it is decoded, (count,).
    """

    total: NDArray[np.float64 | np.int64]
    record: SumRecord
    residues: Residues


def check_upload(count: int, modulus: int) -> None:
    """Refuse an upload that is too long for one sealed message, before anything is computed.

    Raises:
        ParameterError: says how many values would do.
    """
    largest = MAX_UPLOAD_BYTES // ring.wire_bytes(modulus)
    if count > largest:
        raise ParameterError(
            f"{count:,} values are too many for one upload: at most {largest:,} of "
            f"{ring.wire_bytes(modulus)} bytes; sum them in several parts, each under a purpose "
            "of its own"
        )


def check_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape as a tuple of plain integers; raises `ParameterError` if it is none."""
    try:
        sizes = tuple(operator.index(n) for n in shape)
    except TypeError:
        sizes = (-1,)
    if min(sizes, default=0) < 0:
        raise ParameterError(f"shape must be a tuple of integers ≥ 0, got {shape!r}")
    return sizes


def sum_tag(session: Session, purpose: str, graph: MaskGraph) -> bytes:
    """Return the domain tag of one sum, which this session gives out once."""
    return session.once(
        "secure sum", purpose, graph.threshold, graph.degree, graph.share_threshold, *graph.clients
    )


async def secure_sum_client(
    session: Session,
    values: ArrayLike,
    codec: FixedPoint,
    graph: MaskGraph,
    rng: Rng,
    purpose: str = PURPOSE,
) -> tuple[str, ...]:
    """Add this client's values to the sum; return whose values it has.

    Enough clients have signed these names, so the server cannot have made them up.

    Args:
        session: the session.
        values: numbers of any shape, the same for all clients.
        codec: the fixed-point code, for as many parties as the graph has clients.
        graph: who shares masks with whom, and the threshold.
        rng: source of the masks.
        purpose: tells several sums of one session apart.

    Raises:
        ParameterError: the graph lacks this client, or has more clients than the codec is for.
        DataError, EncodingOverflow: a value cannot be encoded; nothing was sent.
        Excluded: the others went on without this client.
        TooFewParties: too few are left; nothing was revealed.
        FaultyPeer: another party does not follow the protocol.
    """
    io, modulus = session.io, codec.modulus
    encoded = codec.encode(values, client=io.name)
    terms = sum_terms(session.io.name, graph, codec, purpose, shape=encoded.shape)
    total = np.ascontiguousarray(encoded).reshape(-1, 1)
    del encoded
    check_upload(total.size, modulus)
    tag = sum_tag(session, purpose, graph)
    with io.step("share"):
        masks = await double_masks.agree_on_masks(session, graph, tag, terms, rng)
        if masks is None:
            raise Excluded(io.name, io.current_step, io.late)
    participants = Participants(graph, tag, masks.clients)
    with io.step("upload"):
        await participants.sign(session)
        await io.compute(masks.mask, total, modulus)
        await io.send(SERVER, SumUpload(total, modulus))
        del total
    with io.step("reveal"):
        survivors = await receive_survivors(session, graph, masks.clients)
        if io.name not in survivors:
            raise Excluded(io.name, io.current_step, io.late)
        await double_masks.reveal_shares(session, participants, masks, survivors)
    return survivors


async def secure_sum_server(
    session: Session,
    shape: tuple[int, ...],
    codec: FixedPoint,
    graph: MaskGraph,
    purpose: str = PURPOSE,
    *,
    clients: Collection[str] | None = None,
) -> SecureSum:
    """Sum what the clients upload, values of this shape, over those that stay.

    The other arguments are those of `secure_sum_client`, and `clients`: those to wait for, by
    default all of the graph.

    Returns:
        The sum over the clients that stayed, and who they are.

    Raises:
        ParameterError: the shape is none, or the graph has more clients than the codec is for.
        TooFewParties: fewer than the threshold are left; nothing was revealed.
        FaultyPeer: a client has another graph, codec or shape, or does not follow the protocol.
    """
    io, modulus = session.io, codec.modulus
    shape = check_shape(shape)
    count = math.prod(shape)
    check_upload(count, modulus)
    terms = sum_terms(session.io.name, graph, codec, purpose, shape=shape)
    tag = sum_tag(session, purpose, graph)
    with io.step("share"):
        asked = graph.clients if clients is None else clients
        masks = await double_masks.open_masks(session, graph, tag, terms, asked)
    total = np.zeros((count, 1), residue_dtype(modulus))

    def add_upload(client: str, message: SumUpload) -> None:
        ring.add_into(total, message.values, modulus)

    with io.step("upload"):
        least, dims = graph.threshold, {"rows": count, "columns": 1, "modulus": modulus}
        signed = await masks.participants.gather_signed(session)
        survivors = await io.gather_each(SumUpload, tuple(signed), add_upload, least, **dims)
    with io.step("reveal"):
        revealed = await double_masks.close_masks(
            session, masks, survivors, signed, total, modulus, masks.clients
        )
    record = double_masks.record(session, masks, survivors, revealed)
    return SecureSum(codec.decode_numbers(total).reshape(shape), record, total.reshape(-1))
