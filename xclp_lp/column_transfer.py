"""Columns of S on their way: the server solves for them and sends them, clients add them up.

See `xclp_lp.influence` for the messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.hamming.interface import column_ranges
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.role import recorded
from xclp_lp.influence import Layout, PartialScores, batches, cut_block, reaches
from xclp_lp.messages import Influence, Reach, Sensitivity
from xclp_lp.noise import SensitivityOfAll
from xclp_lp.parameters import Parameters
from xclp_lp.solvers import Propagator


async def receive_scores(
    session: Session,
    params: Parameters,
    rows: int,
    own: NDArray[np.intp],
    class_ids: NDArray[np.int64],
    codec: FixedPoint,
) -> PartialScores:
    """Receive the columns of S of a client's labelled rows, and return its Z̄ = S_L·Y_L.

    Args:
        session: the client's session.
        params: the agreement.
        rows: n, those that each column has.
        own: (l_j,) which of them are the client's labelled rows.
        class_ids: (l_j,) their classes.
        codec: of the sums that the scores go into.

    Raises:
        FaultyPeer: the server's messages contradict each other.
        DataError, EncodingOverflow: the scores do not fit the fixed-point code.
    """
    io = session.io
    groups = np.zeros(rows, dtype=np.uint16)
    if len(own):
        groups = (await io.recv(Reach, SERVER, rows=rows, labelled=len(own))).groups
    layout = Layout(groups, own)
    exact = None if params.noise is None else codec
    scores = PartialScores(layout, class_ids, len(params.classes), exact)
    for block in range(layout.blocks):
        # Not bound to a name, so that it goes before the next one comes.
        await io.compute(
            scores.add_block,
            block,
            (await io.recv(Influence, SERVER, values=layout.size(block))).values,
        )
    await io.compute(scores.check, codec, io.name)
    return scores


async def send_columns(
    session: Session,
    graph: sparse.csr_array,
    params: Parameters,
    alpha: float,
    labelled: Mapping[str, NDArray[np.bool_]],
    only: NDArray[np.intp] | None = None,
) -> None:
    """Solve for the columns of S, and send each client those of its labelled rows.

    Args:
        session: the server's session.
        graph: 𝒲.
        params: the agreement.
        alpha: α.
        labelled: by client in the graph, which of its rows are labelled.
        only: rows of the columns that are sent, in order, the labelled ones among them; by default
            all.

    Raises:
        EncodingOverflow: the sums with their noise do not fit the ring.
    """
    io, n = session.io, graph.shape[0]
    kept = np.arange(n) if only is None else only
    places = column_ranges({c: len(marks) for c, marks in labelled.items()})
    owned = {c: places[c].start + np.flatnonzero(m) for c, m in labelled.items() if m.any()}
    layouts = {}
    for client, groups in (await io.compute(reaches, graph, owned)).items():
        await io.send(client, Reach(groups[kept], len(owned[client])))
        layouts[client] = Layout(groups[kept], np.searchsorted(kept, owned[client]))
    total, done = sum(map(len, owned.values())), 0
    propagator = await io.compute(Propagator, graph, alpha, total, progress=io.report)
    sensitivity = SensitivityOfAll(params, n, len(labelled))
    for batch in batches(layouts):
        picked = np.concatenate([owned[c][layouts[c].columns(block)] for c, block in batch])
        columns = await io.compute(columns_of, propagator, picked)
        if params.noise is not None:
            await io.compute(sensitivity.add_columns, columns)
        if only is not None:
            columns = columns[:, only]
        at = 0
        for client, block in batch:
            own = columns[at : at + len(layouts[client].columns(block))]
            at += len(own)
            await io.send(client, Influence(cut_block(layouts[client], block, own)))
        done += at
        io.report("columns of S", done, total)
    if params.noise is not None:
        told = Sensitivity(await io.compute(sensitivity.checked))
        await io.send(tuple(labelled), told)


@recorded
def columns_of(propagator: Propagator, picked: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return columns of S, transposed and rounded, (m, n)."""
    return np.ascontiguousarray(propagator.columns(picked).T, dtype=np.float32)
