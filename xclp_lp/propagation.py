"""Label propagation on a neighbour graph (paper §4.1, Algorithm 1, appendix app:LP).

Scores are Z = S·Y with S = (I − α𝒲)⁻¹, solved for the columns that are needed. The pooled
computation on plain bits is here too: the reference that a private run must equal label for
label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Required, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import entr

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.protocols.hamming import distances_between
from xclp_crypto.secret import Secret
from xclp_lp.graph import Ties, checked_bits, neighbour_graph_from_bits
from xclp_lp.labels import UNLABELLED
from xclp_lp.solvers import Propagator, Solver

RESOLUTION = 2.0**-30
"""Scores and differences of scores up to this count as zero."""
RELATIVE_RESOLUTION = 2.0**-20
"""Differences of scores up to this fraction of the larger one count as zero.

A private run rounds columns of S to float32, a fraction of 2^-24, and sums them in fixed point, an
error of p·2^-41. Both are far below the resolutions, so scores that are equal in a pooled run are
tied in a private one as well, and so are zeros. Labels can differ only where a score, or a
difference of two, lies within these errors of a resolution itself.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Secret):
    """Labels for n points out of C classes: all that a client learns for itself in a session.

    Attributes:
        class_ids: shape (n,), int64: class index in 0..C-1, or -1 where no label reaches the point.
        confidence: shape (n,), float64, in [0, 1]: 1 − entropy/log C; 0 without a label.
        distribution: shape (n, C), float64: rows sum to 1; uniform without a label.
    """

    class_ids: NDArray[np.int64]
    confidence: NDArray[np.float64]
    distribution: NDArray[np.float64]

    @classmethod
    def none(cls, rows: int, n_classes: int) -> Prediction:
        """Return what stands for rows that no label reached."""
        return cls(
            np.full(rows, UNLABELLED, dtype=np.int64),
            np.zeros(rows),
            np.full((rows, n_classes), 1 / n_classes),
        )


def influence(
    graph: sparse.csr_array, columns: ArrayLike, alpha: float, *, solver: Solver = "auto"
) -> NDArray[np.float64]:
    """Solve for columns of the influence matrix S = (I − α𝒲)⁻¹, all at once.

    Args:
        graph: 𝒲, shape (n, n), from `neighbour_graph`.
        columns: shape (m,), integers in 0..n-1: the labelled points; m = 0 is fine.
        alpha: α, in (0, 1).
        solver: see `Propagator`, which also solves block by block and reports its progress.

    Returns:
        Shape (n, m), float64, entries in [0, 1/(1−α)].

    Raises:
        ParameterError: a parameter is out of range.
        XclpError: the solution is not accurate enough.

    Source: Algorithm 1, line "S".
    """
    n, picked = graph.shape[0], np.asarray(columns)
    if picked.size == 0:
        picked = picked.astype(np.intp)
    if picked.ndim != 1 or picked.dtype.kind not in "iu":
        raise ParameterError(
            f"columns have shape {picked.shape} and dtype {picked.dtype}; "
            "a list of integers is needed"
        )
    if picked.size and not 0 <= picked.min() <= picked.max() < n:
        raise ParameterError(
            f"columns run from {picked.min()} to {picked.max()}; they must be in 0..{n - 1}"
        )
    S = np.empty((n, picked.size))
    for block, part in Propagator(graph, alpha, picked.size, solver=solver).influence(picked):
        S[:, block] = part
    return S


def propagate(
    graph: sparse.csr_array, Y: ArrayLike, alpha: float, *, solver: Solver = "auto"
) -> NDArray[np.float64]:
    """Compute the scores Z = S·Y of a plain (pooled) run, solving for its C columns only.

    Args:
        graph: 𝒲, shape (n, n), from `neighbour_graph`.
        Y: shape (n, C), finite and ≥ 0: zero-or-one-hot labels.
        alpha: α, in (0, 1).
        solver: see `Propagator`.

    Returns:
        Shape (n, C), float64, ≥ 0.

    Raises:
        ParameterError: α is out of range or the shapes differ.
        DataError: Y has an entry that is negative or not finite.
        XclpError: the solution is not accurate enough.

    Source: paper §4.1; appendix app:LP.
    """
    rhs = np.array(Y, dtype=np.float64)
    if rhs.ndim != 2 or len(rhs) != graph.shape[0]:
        raise ParameterError(f"Y has shape {rhs.shape}; ({graph.shape[0]}, C) is needed")
    if not (np.isfinite(rhs) & (rhs >= 0)).all():
        raise DataError("Y has an entry that is negative or not finite")
    return Propagator(graph, alpha, rhs.shape[1], solver=solver).scores(rhs)


def predict(Z: ArrayLike) -> Prediction:
    """Turn scores into labels, confidences and class distributions.

    Scores up to RESOLUTION count as zero. Classes within RESOLUTION of a row's maximum, or within
    a fraction RELATIVE_RESOLUTION of it, are tied, and the lowest of them wins.

    Args:
        Z: shape (n, C) with C ≥ 1, finite and ≥ 0 (up to -RESOLUTION: noise of an encoding).

    Returns:
        The prediction for each row.

    Raises:
        ParameterError: Z is not a matrix with at least one column.
        DataError: a score is negative or not finite (names row and class).

    Source: Algorithm 1, lines "ŷ" and "ω".
    """
    scores = np.array(Z, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] < 1:
        raise ParameterError(f"Z has shape {scores.shape}; (n, C) with C >= 1 is needed")
    bad = ~(np.isfinite(scores) & (scores >= -RESOLUTION))
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"score {scores[row, column]} in row {row}, class {column}; scores are finite and >= 0"
        )
    n_classes = scores.shape[1]
    scores[scores <= RESOLUTION] = 0.0
    best = scores.max(axis=1, keepdims=True)
    reached = best[:, 0] > 0
    tied = scores >= best - np.maximum(RESOLUTION, RELATIVE_RESOLUTION * best)
    class_ids = np.where(reached, np.argmax(tied, axis=1), UNLABELLED).astype(np.int64)

    # Dividing by the maximum first keeps sums of huge scores finite.
    distribution = np.divide(scores, best, out=np.ones_like(scores), where=best > 0)
    distribution /= distribution.sum(axis=1, keepdims=True)
    confidence = np.ones(len(scores))
    if n_classes > 1:
        confidence -= entr(distribution).sum(axis=1) / np.log(n_classes)
    confidence = np.where(reached, confidence.clip(0.0, 1.0), 0.0)
    return Prediction(class_ids, confidence, distribution)


def reset_labelled(prediction: Prediction, class_ids: NDArray[np.int64]) -> Prediction:
    """Give labelled rows their own labels back, with confidence 1, as the paper's code does.

    Args:
        prediction: of all rows of a client.
        class_ids: shape (n,), class indices; −1 leaves a row as it is.
    """
    labelled = class_ids != UNLABELLED
    own = np.eye(prediction.distribution.shape[1])[class_ids]
    return Prediction(
        np.where(labelled, class_ids, prediction.class_ids),
        np.where(labelled, 1.0, prediction.confidence),
        np.where(labelled[:, None], own, prediction.distribution),
    )


def relative_confidence(prediction: Prediction) -> Prediction:
    """Divide confidences by the largest of the client's own, as the paper's code does over all."""
    largest = prediction.confidence.max(initial=0.0)
    confidence = prediction.confidence / largest if largest > 0 else prediction.confidence
    return Prediction(prediction.class_ids, confidence, prediction.distribution)


def hamming_distances(bits: ArrayLike) -> NDArray[np.uint16]:
    """Compute all Hamming distances between rows in the clear, exactly.

    Args:
        bits: shape (n, L), 0 or 1, L in 1..32768.

    Returns:
        Shape (n, n), uint16, in 0..L.

    Raises:
        ParameterError: another shape.
        DataError: an entry is neither 0 nor 1.
    """
    rows = checked_bits(bits)
    return distances_between(rows, rows)


class NeighbourOptions(TypedDict, total=False):
    """What decides who is whose neighbour: arguments of `neighbour_graph`.

    Attributes:
        k: neighbours per point, in 1..n-1 for n points in all.
        gamma: exponent γ > 0 of the similarity, by default 1.
        include_self: whether a point may be its own neighbour; by default not.
        ties: see `neighbour_graph`.
    """

    k: Required[int]
    gamma: float
    include_self: bool
    ties: Ties


def pooled(
    bits: Sequence[NDArray[np.uint8]],
    onehot: Sequence[NDArray[np.float64]],
    *,
    alpha: float,
    **options: Unpack[NeighbourOptions],
) -> list[Prediction]:
    """Predict as if one party held everything: the reference for a private run.

    Args:
        bits: per client, shape (n_j, L), 0 or 1; n_j = 0 is fine.
        onehot: per client, shape (n_j, C): zero-or-one-hot labels.
        alpha: α, in (0, 1).
        **options: see `NeighbourOptions`.

    Returns:
        One prediction per client, in the order given.

    Raises:
        ParameterError: a parameter is out of range or shapes differ.
        DataError: bits or labels are out of range.
    """
    _check_clients(bits, onehot)
    graph = neighbour_graph_from_bits(np.concatenate(bits), **options)
    Z = propagate(graph, np.concatenate(onehot), alpha)
    ends = np.cumsum([len(b) for b in bits])
    return [predict(rows) for rows in np.split(Z, ends[:-1])]


def per_client(
    bits: Sequence[NDArray[np.uint8]],
    onehot: Sequence[NDArray[np.float64]],
    *,
    alpha: float,
    **options: Unpack[NeighbourOptions],
) -> list[Prediction]:
    """Predict with label propagation within each client alone: the baseline without cooperation.

    Arguments, result and errors are those of `pooled`; k is reduced to n_j − 1 for a small client,
    and a client with a single point can only predict that point's own label.
    """
    _check_clients(bits, onehot)
    k = options["k"]
    if k < 1:
        raise ParameterError(f"k is {k}; it must be at least 1")

    def alone(b: NDArray[np.uint8], y: NDArray[np.float64]) -> Prediction:
        if len(b) < 2:
            return predict(y)
        return pooled([b], [y], alpha=alpha, **options | {"k": min(k, len(b) - 1)})[0]

    return list(map(alone, bits, onehot))


def _check_clients(
    bits: Sequence[NDArray[np.uint8]], onehot: Sequence[NDArray[np.float64]]
) -> None:
    if not bits or len(bits) != len(onehot):
        raise ParameterError(
            f"there are bits of {len(bits)} clients and labels of {len(onehot)}; "
            "at least one client, with both, is needed"
        )
    for client, (b, y) in enumerate(zip(bits, onehot, strict=True)):
        if b.ndim != 2 or y.ndim != 2 or len(b) != len(y):
            raise ParameterError(
                f"client {client} has bits of shape {b.shape} and labels of shape {y.shape}; "
                "(n, L) and (n, C) are needed"
            )
        if b.shape[1] != bits[0].shape[1] or y.shape[1] != onehot[0].shape[1]:
            raise ParameterError(
                f"client {client} has {b.shape[1]} bits and {y.shape[1]} classes, "
                f"client 0 has {bits[0].shape[1]} and {onehot[0].shape[1]}"
            )
