"""The ideal twins of SecureSum and SecureRowSums: same interface and rounding, no protection.

::

    client k ── IdealSumUpload(x_k) ──▶ server ── IdealBlock(Σ Z_k, rows of j) ──▶ client j

For tests only. *Server learns* every contribution.

Examples:
    >>> from xclp_crypto.params import Agreement
    >>> from xclp_crypto.primitives.fixed_point import FixedPoint
    >>> from xclp_crypto.protocols.secure_sum import MaskGraph, ideal_sum_client, ideal_sum_server
    >>> from xclp_crypto.protocols.secure_sum import ideal_row_sums_client, ideal_row_sums_server
    >>> from xclp_crypto.protocols.setup import ideal_key_exchange_client, ideal_key_exchange_server
    >>> from xclp_crypto.rng import SystemRng
    >>> from xclp_crypto.transport.simulate import Simulation
    >>> rows = {"a": np.array([0]), "b": np.array([1]), "c": np.array([2])}
    >>> clients = tuple(rows)
    >>> codec, graph = FixedPoint(0, parties=3), MaskGraph.complete(clients)
    >>> async def client(io):
    ...     rng = SystemRng()
    ...     session = await ideal_key_exchange_client(io, clients, Agreement(), [], rng)
    ...     await ideal_sum_client(session, np.array([1, 2]), codec, graph, rng)
    ...     values = np.eye(3, dtype=int)
    ...     return await ideal_row_sums_client(session, values, rows, codec, graph, rng)
    >>> async def server(io):
    ...     session = await ideal_key_exchange_server(io, clients, Agreement(), 0, SystemRng())
    ...     found = await ideal_sum_server(session, (2,), codec, graph)
    ...     await ideal_row_sums_server(session, rows, 3, codec, graph)
    ...     return found.total.tolist()
    >>> roles = dict.fromkeys(clients, client) | {"server": server}
    >>> results = Simulation().run(roles).raise_errors().results
    >>> results["server"], results["b"].values.tolist()
    ([3, 6], [[0, 3, 0]])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.algebra import ring
from xclp_crypto.algebra.ring import Residues, residue_dtype
from xclp_crypto.fields import Bits, Modular
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum.double_masks import SumRecord, short_record
from xclp_crypto.protocols.secure_sum.mask_graph import MaskGraph
from xclp_crypto.protocols.secure_sum.row_sums import PURPOSE, Mode
from xclp_crypto.protocols.secure_sum.rows import Rows, RowSums, check_rows
from xclp_crypto.protocols.secure_sum.secure_sum import SecureSum
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng
from xclp_crypto.wire import Message, sent


class IdealSumUpload(Message):
    """One client's encoded contribution in the clear. Size: b·rows·columns bytes."""

    TAG = 0x0410
    values: Residues = sent(Modular("rows", "columns"))
    modulus: int


class IdealBlock(Message):
    """Whose values are summed, and the sum of one client's rows. Size: ⌈p/8⌉ + b·n_j·c bytes."""

    TAG = 0x0411
    contributors: NDArray[np.bool_] = sent(Bits("clients"))
    values: Residues = sent(Modular("rows", "columns"))
    modulus: int


async def ideal_sum_client(
    session: Session,
    values: ArrayLike,
    codec: FixedPoint,
    graph: MaskGraph,
    rng: Rng,
    purpose: str = "sum",
) -> None:
    """See `secure_sum_client`; the ideal client does not learn whose values the sum has."""
    encoded = codec.encode(values, client=session.io.name).reshape(-1, 1)
    await session.io.send(SERVER, IdealSumUpload(encoded, codec.modulus))


async def ideal_sum_server(
    session: Session,
    shape: tuple[int, ...],
    codec: FixedPoint,
    graph: MaskGraph,
    purpose: str = "sum",
    *,
    clients: Collection[str] | None = None,
) -> SecureSum:
    """See `secure_sum_server`."""
    count = math.prod(shape)
    asked = tuple(c for c in graph.clients if clients is None or c in clients)
    total, survivors = await _gather(session, asked, graph, count, 1, codec.modulus)
    record = short_record(session, graph.clients, survivors)
    return SecureSum(codec.decode_numbers(total).reshape(shape), record, total.reshape(-1))


async def ideal_row_sums_client(
    session: Session,
    values: NDArray[Any] | Callable[[], NDArray[Any]],
    rows: Rows,
    codec: FixedPoint,
    graph: MaskGraph,
    rng: Rng,
    purpose: str = PURPOSE,
    *,
    mode: Mode = "recover",
    noise: Residues | None = None,
) -> RowSums:
    """See `secure_row_sums_client`."""
    io, modulus = session.io, codec.modulus
    made = values() if callable(values) else values
    encoded = np.ascontiguousarray(codec.encode(made, client=io.name))
    await io.send(SERVER, IdealSumUpload(encoded, modulus))
    own = {"rows": len(rows[io.name]), "columns": encoded.shape[1], "modulus": modulus}
    block = await io.recv(IdealBlock, SERVER, clients=len(rows), **own)
    contributors = tuple(c for c, here in zip(rows, block.contributors, strict=True) if here)
    return RowSums(codec.decode_numbers(block.values), contributors)


async def ideal_row_sums_server(
    session: Session,
    rows: Rows,
    columns: int,
    codec: FixedPoint,
    graph: MaskGraph,
    purpose: str = PURPOSE,
    *,
    clients: Collection[str] | None = None,
    mode: Mode = "recover",
) -> SumRecord:
    """See `secure_row_sums_server`."""
    n, modulus = check_rows(rows), codec.modulus
    asked = tuple(c for c in rows if clients is None or c in clients)
    total, survivors = await _gather(session, asked, graph, n, columns, modulus)
    here = np.array([c in survivors for c in rows])
    for client in (c for c in rows if c in session.clients):
        await session.io.send(client, IdealBlock(here, total[rows[client]], modulus))
    return short_record(session, tuple(rows), survivors)


async def _gather(
    session: Session,
    asked: tuple[str, ...],
    graph: MaskGraph,
    rows: int,
    columns: int,
    modulus: int,
) -> tuple[Residues, tuple[str, ...]]:
    """Return the sum of the uploads and whose they are."""
    total = np.zeros((rows, columns), residue_dtype(modulus))

    def add_upload(client: str, message: IdealSumUpload) -> None:
        ring.add_into(total, message.values, modulus)

    least, dims = graph.threshold, {"rows": rows, "columns": columns, "modulus": modulus}
    survivors = await session.io.gather_each(IdealSumUpload, asked, add_upload, least, **dims)
    return total, survivors
