"""From the distances to the labels: the second half of Algorithm 1.

The same whether the server has just computed all distances (`xclp_lp.session`) or knew some before.
The figure in `xclp_lp.session` has its messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xclp_crypto.algebra.ring import Residues
from xclp_crypto.errors import (
    DataError,
    Excluded,
    FaultyPeer,
    FaultyPeerOrServer,
    ProtocolError,
    TooFewParties,
)
from xclp_crypto.protocols.hamming.interface import Distances, column_ranges
from xclp_crypto.protocols.secure_sum import secure_row_sums_client, secure_row_sums_server
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.rng import Rng
from xclp_crypto.role import OnProgress
from xclp_lp.accuracy import Unvalidated
from xclp_lp.column_transfer import receive_scores, send_columns
from xclp_lp.diagnostics import geometry_of
from xclp_lp.dropouts import Contradiction, Dropout, Leavers
from xclp_lp.graph import neighbour_graph
from xclp_lp.influence import PartialScores
from xclp_lp.kept import Hashed, Kept, KeptDistances
from xclp_lp.leave_one_out import OwnLabels, validate_client, validate_server
from xclp_lp.messages import Geometry, Labelled, Participants, Sensitivity
from xclp_lp.noise import noise_of_client
from xclp_lp.parameters import Parameters, label_codec
from xclp_lp.predictions import Prediction, predict, weighed


@dataclass(frozen=True)
class Participation:
    """Who took part in a session, and how far; and the distances, if the server keeps them.

    Attributes:
        sizes: rows by client in the graph.
        contributors: clients whose labels entered the sums.
        dropouts: clients that did not stay to the end, in the order in which they dropped out.
        scaled_over: clients whose rows are in shared means and variances.
        geometry: what the graph looks like; None over several groups.
        validated: clients whose labelled rows were counted to estimate the accuracy.
        unvalidated: why that failed, where it did.
        contradictions: of clients that say that nothing came from one that was there.
        kept: the distances, if the server keeps them.
    """

    sizes: dict[str, int]
    contributors: tuple[str, ...]
    dropouts: tuple[Dropout, ...]
    scaled_over: tuple[str, ...] = ()
    geometry: Geometry | None = None
    validated: tuple[str, ...] = ()
    unvalidated: Unvalidated | None = None
    contradictions: tuple[Contradiction, ...] = ()
    kept: KeptDistances | None = field(default=None, compare=False)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return what the server's user is warned of after the session."""
        failed = () if self.unvalidated is None else (self.unvalidated,)
        return tuple(map(str, (*self.contradictions, *failed)))

    def to_dict(self) -> dict[str, Any]:
        """Return for a file whose labels were counted, who dropped out, who contradicts whom."""
        return {
            "contributors": list(self.contributors),
            "dropouts": [own.to_dict() for own in self.dropouts],
            "contradictions": [asdict(own) for own in self.contradictions],
        }


@dataclass(frozen=True)
class Announced:
    """What the clients of a session say of their rows in the graph, before any drops out.

    Attributes:
        rows: by client.
        labelled: how many of them have labels.
    """

    rows: Mapping[str, int]
    labelled: Mapping[str, int]


async def label_client(
    session: Session,
    params: Parameters,
    invited: Sequence[str],
    announced: Announced,
    own: Hashed,
    rng: Rng,
) -> Prediction:
    """Get labels as a client once the server has the distances.

    Args:
        session: the client's session.
        params: the agreement.
        invited: names of all clients.
        announced: rows and labelled rows of the clients of the session.
        own: the client's rows.
        rng: source of masks and noise.

    Returns:
        Class indices, confidences and distributions of all rows of the client.

    Raises:
        XclpError: as from `client_role`.
    """
    io, n_classes = session.io, len(params.classes)
    with io.step("propagation"):
        sizes = await receive_participants(session, announced.rows, params)
        geometry = await io.recv(Geometry, SERVER, rows=sum(sizes.values()))
        labelled, codec = np.flatnonzero(own.labelled), label_codec(params, len(sizes))
        class_ids = own.class_ids[labelled]
        scores = await receive_scores(
            session,
            params,
            sum(sizes.values()),
            column_ranges(sizes)[io.name].start + labelled,
            class_ids,
            codec,
        )
        diagonal = scores.diagonal
        noise = await _draw_noise(session, params, sizes, scores, rng)
        row_sums = secure_row_sums_client(
            session,
            partial(contribution, params, scores, class_ids, len(sizes)),
            rows_of_sums(params, sizes),
            codec,
            params.mask_graph(tuple(sizes)),
            rng,
            noise=noise,
        )
        del scores, noise  # so that these large arrays go as soon as they are used
    with io.step("row sums"):
        sums = await row_sums
    with io.step("labels"):
        mine, totals = own_sums(params, sums.values)
        kept = Kept(session.id, own, mine, totals)
        _require_sums(params, kept, announced, sums.contributors, io.name, tuple(sizes))
        weighed_sums = await io.compute(own_scores, params, mine, totals, kept.labels)
        prediction = replace(
            spread(await io.compute(predict, weighed_sums), own.in_graph, n_classes),
            geometry=geometry,
            kept=kept,
            dropouts=missing_from(invited, session.clients, sizes, sums.contributors),
        )
        await io.send(SERVER, Labelled())
    if totals is None or not params.validated or io.name not in sums.contributors:
        return prediction
    with io.step("validation"):
        counted = {client: announced.labelled[client] for client in sums.contributors}
        labels = OwnLabels(class_ids, mine[labelled], diagonal)
        try:
            found = await validate_client(session, params, counted, totals, labels, rng)
        except (ProtocolError, DataError) as error:  # the labels are found, and stay what they are
            return replace(prediction, unvalidated=Unvalidated.of(io.name, error))
        return replace(prediction, validation=found)


def _require_sums(
    params: Parameters,
    found: Kept,
    announced: Announced,
    contributors: Collection[str],
    me: str,
    present: tuple[str, ...],
) -> None:
    """Refuse sums that no scores have, as what others added or the server gave out is wrong.

    A client can make a sum wrong that it is not in, by the pads that it left: `double_masks`.
    """
    fault, others = "", tuple(c for c in present if c != me)
    if params.noise is None and (found.sums < 0).any():
        fault = "a sum of scores is negative"
    if (totals := found.totals) is not None:
        least = found.labels * (me in contributors)
        n = sum(announced.labelled[c] for c in contributors)
        if (totals < least).any() or totals.sum() != n:
            fault = "the numbers of labels by class are not those of the labels that were announced"
    if fault:
        raise FaultyPeerOrServer(others, fault, public=True)


async def receive_participants(
    session: Session, rows: Mapping[str, int], params: Parameters
) -> dict[str, int]:
    """Return how many rows each client in the graph has; this client is one of them.

    Args:
        session: the client's session.
        rows: those that each client announced.
        params: the agreement.

    Raises:
        Excluded: the others went on without this client.
        FaultyPeer: too few clients are left.
    """
    io = session.io
    present = await io.recv(Participants, SERVER, clients=len(session.clients))
    announced = zip(rows.items(), present.clients, strict=True)
    sizes = {client: n for (client, n), here in announced if here}
    if io.name not in sizes:
        raise Excluded(io.name, "hamming", io.late)
    if len(sizes) < params.at_least:
        raise FaultyPeer(SERVER, f"goes on with {len(sizes)} clients, below the threshold")
    return sizes


def contribution(
    params: Parameters, scores: PartialScores, class_ids: NDArray[np.int64], clients: int
) -> NDArray[np.float64]:
    """Return what a client adds to the row sums: S_L·Y_L, and its numbers of labels if needed.

    Args:
        params: the agreement.
        scores: S_L·Y_L.
        class_ids: (l_j,) classes of the labelled rows.
        clients: number of clients in the graph.
    """
    own = scores.scores()
    if not params.class_totals:
        return own
    totals = np.bincount(class_ids, minlength=len(params.classes)).astype(np.float64)
    return np.concatenate([own, np.tile(totals, (clients, 1))])


def own_sums(
    params: Parameters, sums: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Return a client's rows of the sums, and the labels by class if they were summed too."""
    if params.class_totals:
        return sums[:-1], np.rint(sums[-1]).astype(np.int64)
    return sums, None


def own_scores(
    params: Parameters,
    sums: NDArray[np.float64],
    totals: NDArray[np.int64] | None,
    labels: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return scores from what `own_sums` returns: weighed, noise cut at zero.

    Args:
        params: the agreement.
        sums: (n_j, C).
        totals: (C,) labels by class of all clients, if they were summed.
        labels: (C,) those of the client.
    """
    scores = sums if params.noise is None else np.maximum(sums, 0.0)
    return weighed(scores, totals, params.setting, labels)


def spread(prediction: Prediction, kept: NDArray[np.bool_], n_classes: int) -> Prediction:
    """Put predictions of the kept rows back among the rows that were left out."""
    spread = Prediction.none(len(kept), n_classes)
    spread.class_ids[kept] = prediction.class_ids
    spread.confidence[kept] = prediction.confidence
    spread.distribution[kept] = prediction.distribution
    return spread


async def _draw_noise(
    session: Session, params: Parameters, sizes: Mapping[str, int], scores: PartialScores, rng: Rng
) -> Residues | None:
    """Return the noise of a client's upload, for the sensitivity that the server names, if any.

    Raises:
        FaultyPeer: the server names a sensitivity that cannot be.
    """
    if params.noise is None:
        return None
    io, n = session.io, sum(sizes.values())
    told = (await io.recv(Sensitivity, SERVER)).value
    own = scores.sensitivity
    return await io.compute(noise_of_client, params, own, told, n, len(sizes), rng)


def missing_from(
    invited: Iterable[str],
    came: Collection[str],
    in_graph: Collection[str],
    in_sums: Collection[str],
    *,
    later: bool = False,
) -> tuple[Dropout, ...]:
    """Return whose points or labels are missing from a client's scores, as far as it can tell."""
    steps = (("setup", came), ("hamming", in_graph), ("row sums", in_sums))
    left = {c: step for step, there in reversed(steps) for c in invited if c not in there}
    return tuple(Dropout(c, step, contributed=False, later=later) for c, step in left.items())


async def label_server(
    session: Session,
    params: Parameters,
    distances: Distances,
    marks: Mapping[str, NDArray[np.bool_]],
    leavers: Leavers,
    *,
    projection: bytes | None = None,
) -> Participation:
    """Let the clients get their labels once the server has the distances.

    Args:
        session: the server's session.
        params: the agreement.
        distances: of all rows of the clients that are left. The caller keeps no reference to
            them, so that they go as soon as the graph is there.
        marks: by client, which of its rows are labelled.
        leavers: who has dropped out so far, and when; those that follow are added.
        projection: its digest, if the distances are kept for an update; by default they are not.

    Raises:
        XclpError: as from `server_role`.
    """
    io, present = session.io, distances.sizes
    leavers.note("hamming", session.clients, present)
    leavers.note_apart("hamming", distances.apart)
    marks = {client: marks[client] for client in present}
    with io.step("propagation"):
        await io.send(
            session.clients, Participants(np.array([c in present for c in session.clients]))
        )
        require_labels(np.concatenate(list(marks.values())), leavers)
        weights = await io.compute(build_graph, distances.matrix, params, io.report)
        kept = None if projection is None else KeptDistances(session.id, projection, distances)
        del distances  # n² of them
        geometry = await io.compute(geometry_of, weights, present)
        await io.send(tuple(present), geometry)
        await send_columns(session, weights, params, params.alpha, marks)
    with io.step("row sums"):
        record = await secure_row_sums_server(
            session,
            rows_of_sums(params, present),
            len(params.classes),
            label_codec(params, len(present)),
            params.mask_graph(tuple(present)),
        )
        leavers.note("row sums", record.dropouts, ())
        leavers.note_apart("row sums", record.apart)
    with io.step("labels"):
        leavers.note("labels", present, await io.gather(Labelled, tuple(present), 0))
    validated: tuple[str, ...] = ()
    unvalidated = None
    if params.validated:
        with io.step("validation"):
            try:
                counted = {client: marks[client] for client in record.survivors}
                validated = await validate_server(session, params, weights, counted)
            except ProtocolError as error:  # everybody who is left has its labels
                unvalidated = Unvalidated.of(io.name, error)
                if isinstance(error, TooFewParties):
                    leavers.note("validation", error.missing, ())
    return Participation(
        present,
        record.survivors,
        leavers.dropouts(record.survivors),
        geometry=geometry,
        validated=validated,
        unvalidated=unvalidated,
        contradictions=leavers.contradictions,
        kept=kept,
    )


def rows_of_sums(params: Parameters, sizes: Mapping[str, int]) -> dict[str, NDArray[np.intp]]:
    """Return each client's rows in the row sums: its points, and one for the class totals."""
    rows = {c: np.arange(s.start, s.stop) for c, s in column_ranges(sizes).items()}
    if not params.class_totals:
        return rows
    n = sum(sizes.values())
    return {c: np.append(own, n + i) for i, (c, own) in enumerate(rows.items())}


def build_graph(
    distances: NDArray[np.uint16], params: Parameters, progress: OnProgress | None = None
) -> sparse.csr_array:
    """Return 𝒲; k is reduced where dropouts left fewer rows."""
    return neighbour_graph(
        distances,
        params.n_bits,
        **params.neighbours | {"k": min(params.k, len(distances) - 1)},
        progress=progress,
    )


def require_labels(labelled: Iterable[int | np.bool_], dropped: Mapping[str, str]) -> None:
    """Refuse to go on without any label.

    Raises:
        DataError: all clients are there, and none has one.
        ProtocolError: clients dropped out; names them and the step.
    """
    if any(labelled):
        return
    if not dropped:
        raise DataError("no client has a label, so nothing can spread", public=True)
    who = ", ".join(f"{client} in {step!r}" for client, step in dropped.items())
    raise ProtocolError(
        f"no client that is left has a labelled row, so nothing can spread; dropped out: {who}",
        public=True,
    )
