"""SecureRowSums: every client gets its own rows of a sum over all clients (paper §4.2).

Client k contributes a matrix Z_k with a row for every row of the federation; client j gets
Σ_k Z_k for its own rows R_j. Two modes deal with dropouts:

- ``recover`` (`row_sums_recover`): the masks of a dropout are recovered from shares; nobody
  repeats work, and the dropout still gets its rows if it comes back.
- ``restart`` (`row_sums_restart`): the paper's; those that are left begin again with fresh masks.
  It has fewer messages where nobody drops out, and no holders of shares to trust; but a server that
  colludes with a client can learn more from a late upload.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.ring import Residues
from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum import row_sums_recover, row_sums_restart
from xclp_crypto.protocols.secure_sum.double_masks import SumRecord
from xclp_crypto.protocols.secure_sum.mask_graph import MaskGraph
from xclp_crypto.protocols.secure_sum.rows import Rows, RowSums, RowSumsRun, check_rows, rows_digest
from xclp_crypto.protocols.secure_sum.secure_sum import check_upload, sum_tag
from xclp_crypto.protocols.secure_sum.terms import sum_terms
from xclp_crypto.protocols.setup import Session
from xclp_crypto.rng import Rng

Mode = Literal["recover", "restart"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
PURPOSE: Final = "row sums"


def check_mode(mode: str) -> None:
    """Refuse a mode that does not exist by a `ParameterError` that names those that do.

    Examples:
        >>> from xclp_crypto.protocols.secure_sum import check_mode
        >>> check_mode("recover")
    """
    if mode not in MODES:
        raise ParameterError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")


def secure_row_sums_client(
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
) -> Coroutine[Any, Any, RowSums]:
    """Return this client's rows of the sum over all clients that contributed, when awaited.

    Data are checked and encoded at once. No array of this size is kept after the upload, unless the
    caller keeps its `values`.

    Args:
        session: the session.
        values: (n, c), this client's contribution to every row; or a function that returns it,
            called when it is to be masked, so that where hundreds of clients run in one process
            their arrays need not exist at once.
        rows: by client of the graph, its rows; a partition of 0 … n−1.
        codec: the fixed-point code, for as many parties as there are clients.
        graph: who shares masks with whom, and the threshold.
        rng: source of the masks.
        purpose: tells several sums of one session apart.
        mode: how to go on after a dropout.
        noise: (n, c) residues to add to what is uploaded, for differential privacy.

    Raises:
        ParameterError: the rows are not a partition, or as from `secure_sum_client`.
        DataError, EncodingOverflow: a value cannot be encoded; nothing was sent, or with a function
            nothing that depends on a value.
        Excluded, TooFewParties, FaultyPeer: as from `secure_sum_client`; in mode ``recover`` nobody
            is excluded.
    """
    check_mode(mode)
    n = check_rows(rows)
    terms = sum_terms(session.io.name, graph, codec, purpose, rows=rows_digest(rows))
    make, held = (values, []) if callable(values) else (None, [_encode(values, n, codec, session)])

    def encode() -> Residues:  # the caller has the only reference
        return held.pop() if make is None else _encode(make(), n, codec, session)

    run = RowSumsRun(rows, codec, graph, sum_tag(session, purpose, graph), terms)
    if mode == "restart":
        return row_sums_restart.row_sums_client(session, run, encode, noise)
    return row_sums_recover.row_sums_client(session, run, encode, rng, noise)


def _encode(values: NDArray[Any], n: int, codec: FixedPoint, session: Session) -> Residues:
    client = session.io.name
    if values.ndim != 2 or len(values) != n:
        raise DataError(f"client {client!r}: values of shape {values.shape} for {n} rows in all")
    check_upload(values.size, codec.modulus)
    return np.ascontiguousarray(codec.encode(values, client=client))


async def secure_row_sums_server(
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
    """Sum the masked uploads of c columns by row, hand out the blocks; return who contributed.

    The other arguments are those of `secure_row_sums_client`, and `clients`: those to wait for, by
    default all of the graph.

    Raises:
        ParameterError: the rows are not a partition, or as from `secure_sum_server`.
        TooFewParties, FaultyPeer: as from `secure_sum_server`.
    """
    check_mode(mode)
    check_upload(check_rows(rows) * columns, codec.modulus)
    terms = sum_terms(session.io.name, graph, codec, purpose, rows=rows_digest(rows))
    run = RowSumsRun(rows, codec, graph, sum_tag(session, purpose, graph), terms)
    asked = graph.clients if clients is None else clients
    if mode == "restart":
        return await row_sums_restart.row_sums_server(session, run, columns, asked)
    return await row_sums_recover.row_sums_server(session, run, columns, asked)
