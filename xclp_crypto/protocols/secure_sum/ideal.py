"""The ideal twin of SecureRowSums: same interface and rounding, no protection. For tests only.

::

    client k ── IdealRows(Z_k) ──▶ server ── IdealBlock(Σ Z_k, rows of j) ──▶ client j

*Server learns* every contribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.ring import Residues
from xclp_crypto.params import MIN_CLIENTS
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum.row_sums import RING, Rows, check_codec, check_rows
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.wire import Message, ResidueFields


@dataclass(frozen=True, repr=False)
class IdealRows(ResidueFields, Message):
    """One client's encoded contribution in the clear. Size: 8·n·c bytes."""

    TAG = 0x0410
    values: Residues
    modulus: int


@dataclass(frozen=True, repr=False)
class IdealBlock(ResidueFields, Message):
    """The encoded sum of one client's rows in the clear. Size: 8·n_j·c bytes."""

    TAG = 0x0411
    values: Residues
    modulus: int


async def ideal_row_sums_client(
    session: Session,
    values: NDArray[np.float64],
    rows: Rows,
    codec: FixedPoint,
    purpose: str = "row sums",
) -> NDArray[np.float64]:
    """See `secure_row_sums_client`."""
    io = session.io
    check_codec(codec)
    await io.send(SERVER, IdealRows(codec.encode(values, client=io.name), RING))
    block = await io.recv(
        IdealBlock, SERVER, rows=len(rows[io.name]), columns=values.shape[1], modulus=RING
    )
    return codec.decode(block.values)


async def ideal_row_sums_server(
    session: Session,
    rows: Rows,
    columns: int,
    clients: Sequence[str] | None = None,
    at_least: int = MIN_CLIENTS,
) -> tuple[str, ...]:
    """See `secure_row_sums_server`."""
    io = session.io
    n = check_rows(rows)
    asked = tuple(rows) if clients is None else tuple(c for c in rows if c in clients)
    got = await io.gather(IdealRows, asked, at_least, rows=n, columns=columns, modulus=RING)
    total = np.zeros((n, columns), dtype=np.uint64)
    for message in got.values():
        total += message.values
    for client in got:
        await io.send(client, IdealBlock(total[rows[client]], RING))
    return tuple(got)
