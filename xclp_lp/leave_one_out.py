"""The step ``validation``: each labelled row is scored as if it had no label, and all are counted.

S does not depend on labels. So a row's scores without its own label are Z_i − S_ii·Y_i, exactly
those of a run in which it had none: its client knows both, since S_ii is in the column of its row.
Class weights are those of the other labels.

::

    client j                                           server
    (to tune: for each α, columns of S_α ◀──────────── of labelled rows, in the rows of labelled
    rows only; SecureRowSums ◀───────────────────────▶ of their scores)
    which of its rows get their own label?
    SecureRowSums ◀──────────────────────────────────▶ of the counts: a row for each client

*A client learns* sums over all clients: labels by class, how many of them were right by class and
setting, and of ten bins of confidence how many rows are in it and how many of these were right. To
tune, also the columns between labelled rows for other α. *The server learns* nothing.

All labels are there before this step begins; if it fails, they are what they were. The sums are
over all clients whose labels are in the row sums, or there are none: less those sums, they would
say which labels the clients have that are missing. What others
add to the counts is checked against how many labels they have, but not whether it is true: a client
that spoils others' scores so that theirs come out wrong can read from the sums which counts of one
client are not spoilt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xclp_crypto.errors import FaultyPeerOrServer
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.hamming.interface import column_ranges
from xclp_crypto.protocols.secure_sum import secure_row_sums_client, secure_row_sums_server
from xclp_crypto.protocols.setup import Session
from xclp_crypto.rng import Rng
from xclp_crypto.role import recorded
from xclp_crypto.secret import Secret
from xclp_lp.accuracy import BINS, ClientPrior, Setting, Validation
from xclp_lp.column_transfer import receive_scores, send_columns
from xclp_lp.labels import ClassWeight
from xclp_lp.parameters import Parameters, label_codec
from xclp_lp.predictions import predict, weighed

OTHER_ALPHAS = (0.5, 0.8, 0.9, 0.99)
"""What is compared with the α that is used, to tune."""
WEIGHTS_AND_PRIORS: Sequence[tuple[ClassWeight, ClientPrior]] = (
    ("none", "none"),
    ("sqrt", "none"),
    ("balanced", "none"),
    ("balanced", "own"),
)
"""Class weights and priors that are compared for each α, to tune."""


@dataclass(frozen=True, eq=False, repr=False)
class OwnLabels(Secret):
    """What a client knows of its l_j labelled rows after the row sums.

    Attributes:
        class_ids: (l_j,) their classes.
        scores: (l_j, C), their rows of S·Y, without weights.
        diagonal: (l_j,) their S_ii.
    """

    class_ids: NDArray[np.int64]
    scores: NDArray[np.float64]
    diagonal: NDArray[np.float64]


def alphas(params: Parameters) -> tuple[float, ...]:
    """Return for which α, beside that of the run, columns are solved for."""
    if params.validation != "tune":
        return ()
    return tuple(alpha for alpha in OTHER_ALPHAS if alpha != params.alpha)


def settings(params: Parameters) -> tuple[Setting, ...]:
    """Return what is compared; what the run used comes first."""
    used = Setting(params.alpha, params.class_weight, params.client_prior)
    others = WEIGHTS_AND_PRIORS if params.validation == "tune" else WEIGHTS_AND_PRIORS[-1:]
    compared = [Setting(a, w, p) for a in (params.alpha, *alphas(params)) for w, p in others]
    return tuple(dict.fromkeys([used, *compared]))


def counts_width(params: Parameters) -> int:
    """Return how many integers a client counts."""
    return len(params.classes) * (1 + len(settings(params))) + 2 * BINS


@recorded
def counts(
    params: Parameters, totals: NDArray[np.int64], by_alpha: Mapping[float, OwnLabels]
) -> NDArray[np.int64]:
    """Return what a client adds to the sums, (`counts_width`,).

    Args:
        params: the agreement.
        totals: (C,) labels by class of all clients.
        by_alpha: what it knows of its labelled rows for each α, that of the run first.
    """
    n_classes = len(params.classes)
    used, *_ = by_alpha.values()
    own = used.class_ids
    found = [np.bincount(own, minlength=n_classes)]
    bins = np.zeros((2, BINS), dtype=np.int64)
    for i, setting in enumerate(settings(params)):
        left_out = predict(without_own(by_alpha[setting.alpha], totals, setting))
        right = left_out.class_ids == own
        found.append(np.bincount(own[right], minlength=n_classes))
        if i == 0:
            of_row = np.minimum((BINS * left_out.confidence).astype(np.int64), BINS - 1)
            bins[0] = np.bincount(of_row, minlength=BINS)
            bins[1] = np.bincount(of_row[right], minlength=BINS)
    return np.concatenate([*found, *bins])


def without_own(own: OwnLabels, totals: NDArray[np.int64], setting: Setting) -> NDArray[np.float64]:
    """Return the scores of labelled rows, each as if it had no label, (l_j, C).

    Args:
        own: what a client knows of them.
        totals: (C,) labels by class of all clients.
        setting: its weights and prior count.
    """
    y = np.eye(len(totals), dtype=np.int64)[own.class_ids]
    scores = np.maximum(own.scores - own.diagonal[:, None] * y, 0.0)
    of_client = y.sum(axis=0)
    return weighed(scores, totals - y, setting, of_client - y)


def are_counts(
    params: Parameters, others: NDArray[np.int64], totals: NDArray[np.int64], labelled: int
) -> bool:
    """Return whether other clients can have counted so, (`counts_width`,) in all.

    Args:
        params: the agreement.
        others: what they counted.
        totals: (C,) labels by class that they have at most.
        labelled: labelled rows that they announced.
    """
    labels, *right = others[: -2 * BINS].reshape(-1, len(params.classes))
    rows, rows_right = others[-2 * BINS :].reshape(2, BINS)
    pairs = [(labels, totals), *((own, labels) for own in right), (rows_right, rows)]
    return bool(
        (others >= 0).all()
        and (rows <= labelled).all()  # so that no sum of theirs leaves int64
        and all((few <= many).all() for few, many in pairs)
        and labelled == labels.sum() == rows.sum()
        and right[0].sum() == rows_right.sum()
    )


def validation(params: Parameters, sums: NDArray[np.int64], own: NDArray[np.int64]) -> Validation:
    """Return what the sums say.

    Args:
        params: the agreement.
        sums: (`counts_width`,) over all clients.
        own: (`counts_width`,) of the client.
    """
    n_classes, compared = len(params.classes), settings(params)
    labels, *right = sums[: -2 * BINS].reshape(-1, n_classes)
    return Validation(
        labels=labels,
        right=dict(zip(compared, right, strict=True)),
        by_confidence=sums[-2 * BINS :].reshape(2, BINS),
        own_labels=int(own[:n_classes].sum()),
        own_right=int(own[n_classes : 2 * n_classes].sum()),
    )


async def validate_client(
    session: Session,
    params: Parameters,
    labelled: Mapping[str, int],
    totals: NDArray[np.int64],
    own: OwnLabels,
    rng: Rng,
) -> Validation:
    """Count as a client.

    Args:
        session: the client's session.
        params: the agreement.
        labelled: labelled rows by client whose labels are in the row sums.
        totals: (C,) their labels by class.
        own: what the client knows of its labelled rows.
        rng: source of masks.

    Raises:
        ProtocolError: the others, or the server, do not go on.
        FaultyPeerOrServer: counts or scores to tune cannot be; names all others.
        DataError: scores with another α do not fit the fixed-point code.
    """
    by_alpha = {params.alpha: own}
    if alphas(params):
        by_alpha |= await _other_alphas(session, params, labelled, own.class_ids, rng)
    found = await session.io.compute(counts, params, totals, by_alpha)
    rows = {client: np.array([i]) for i, client in enumerate(labelled)}
    sums = await secure_row_sums_client(
        session,
        np.tile(found.astype(np.float64), (len(rows), 1)),
        rows,
        FixedPoint(0, parties=len(rows)),
        params.closed_mask_graph(tuple(rows)),
        rng,
        "validation",
    )
    total = sums.values[0].astype(np.int64)
    own_totals = found[: len(params.classes)]
    counted = sum(labelled.values()) - int(own_totals.sum())
    if not are_counts(params, total - found, totals - own_totals, counted):
        raise FaultyPeerOrServer(
            tuple(c for c in labelled if c != session.io.name),
            "the counts of right labels are not those of the labels that were announced",
            public=True,
        )
    return validation(params, total, found)


async def _other_alphas(
    session: Session,
    params: Parameters,
    labelled: Mapping[str, int],
    class_ids: NDArray[np.int64],
    rng: Rng,
) -> dict[float, OwnLabels]:
    """Receive the columns between labelled rows for each further α, and sum up the scores."""
    rows, codec = column_ranges(labelled), label_codec(params, len(labelled))
    places = np.arange(rows[session.io.name].start, rows[session.io.name].stop)
    parts = [
        await receive_scores(session, params, sum(labelled.values()), places, class_ids, codec)
        for _ in alphas(params)
    ]
    sums = await secure_row_sums_client(
        session,
        np.concatenate([own.scores() for own in parts], axis=1),
        {client: np.arange(own.start, own.stop) for client, own in rows.items()},
        codec,
        params.closed_mask_graph(tuple(labelled)),
        rng,
        "tune",
    )
    if (sums.values < 0).any():
        others = tuple(c for c in labelled if c != session.io.name)
        raise FaultyPeerOrServer(others, "a sum of scores to tune is negative", public=True)
    scores = np.split(sums.values, len(parts), axis=1)
    return {
        alpha: OwnLabels(class_ids, own, part.diagonal)
        for alpha, own, part in zip(alphas(params), scores, parts, strict=True)
    }


async def validate_server(
    session: Session,
    params: Parameters,
    graph: sparse.csr_array,
    labelled: Mapping[str, NDArray[np.bool_]],
) -> tuple[str, ...]:
    """Sum up the counts; return the clients whose counts are in.

    Args:
        session: the server's session.
        params: the agreement.
        graph: 𝒲.
        labelled: by client whose labels are in the row sums, which of its rows are labelled.

    Raises:
        TooFewParties: one of them is missing.
        FaultyPeer: a client does not follow the protocol.
    """
    clients = tuple(labelled)
    if alphas(params):
        sizes = column_ranges({c: int(marks.sum()) for c, marks in labelled.items()})
        only = np.flatnonzero(np.concatenate(list(labelled.values())))
        for alpha in alphas(params):
            await send_columns(session, graph, params, alpha, labelled, only)
        await secure_row_sums_server(
            session,
            {client: np.arange(own.start, own.stop) for client, own in sizes.items()},
            len(params.classes) * len(alphas(params)),
            label_codec(params, len(clients)),
            params.closed_mask_graph(clients),
            "tune",
        )
    record = await secure_row_sums_server(
        session,
        {client: np.array([i]) for i, client in enumerate(clients)},
        counts_width(params),
        FixedPoint(0, parties=len(clients)),
        params.closed_mask_graph(clients),
        "validation",
    )
    return record.survivors
