"""Label propagation on a neighbour graph (paper §4.1, Algorithm 1, appendix app:LP).

Scores are Z = S·Y with S = (I − α𝒲)⁻¹, solved for the columns that are needed. The pooled
computation on plain bits is here too: the reference that a private run must equal label for
label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from scipy.special import entr

from xclp_crypto.errors import DataError, ParameterError, XclpError
from xclp_crypto.params import MAX_HASH_BITS
from xclp_crypto.protocols.hamming import distances_between
from xclp_lp.graph import Ties, neighbour_graph

DENSE_LIMIT = 8000
"""Most points for which I − α𝒲 is factorised as a dense matrix (8·n² bytes: 512 MB)."""

RESOLUTION = 2.0**-30
"""Scores and differences of scores up to this count as zero.

It is far above the error of a fixed-point sum (at most 2^-38) and of a float64 solution, so both
give the same labels unless a score or a difference lies within that error of 2^-30 itself.
"""

_TOLERANCE = 1e-12
_COLUMN_CHUNK = 64
_RESTARTS = 5


@dataclass(frozen=True, eq=False)
class Prediction:
    """Labels for n points out of C classes.

    Attributes:
        labels: shape (n,), int64: class index in 0..C-1, or -1 where no label reaches the point.
        confidence: shape (n,), float64, in [0, 1]: 1 − entropy/log C; 0 without a label.
        distribution: shape (n, C), float64: rows sum to 1; uniform without a label.
    """

    labels: NDArray[np.int64]
    confidence: NDArray[np.float64]
    distribution: NDArray[np.float64]


def influence(graph: sparse.csr_array, columns: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """Solve for columns of the influence matrix S = (I − α𝒲)⁻¹.

    Args:
        graph: 𝒲, shape (n, n), from `neighbour_graph`.
        columns: shape (m,), integers in 0..n-1: the labelled points; m = 0 is fine.
        alpha: α, in (0, 1).

    Returns:
        Shape (n, m), float64, entries in [0, 1/(1−α)].

    Raises:
        ParameterError: a parameter is out of range.
        XclpError: the solution is not accurate enough.

    Source: Algorithm 1, line "S".
    """
    n = graph.shape[0]
    picked = np.asarray(columns)
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
    rhs = np.zeros((n, picked.size), order="F")
    rhs[picked, np.arange(picked.size)] = 1.0
    return _solve(graph, rhs, alpha)


def propagate(graph: sparse.csr_array, Y: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """Compute the scores Z = S·Y of a plain (pooled) run.

    Args:
        graph: 𝒲, shape (n, n), from `neighbour_graph`.
        Y: shape (n, C), finite and ≥ 0: zero-or-one-hot labels.
        alpha: α, in (0, 1).

    Returns:
        Shape (n, C), float64, ≥ 0.

    Raises:
        ParameterError: α is out of range or the shapes differ.
        DataError: Y has an entry that is negative or not finite.
        XclpError: the solution is not accurate enough.

    Source: paper §4.1; appendix app:LP.
    """
    rhs = np.array(Y, dtype=np.float64, order="F")
    if rhs.ndim != 2 or len(rhs) != graph.shape[0]:
        raise ParameterError(f"Y has shape {rhs.shape}; ({graph.shape[0]}, C) is needed")
    if not (np.isfinite(rhs) & (rhs >= 0)).all():
        raise DataError("Y has an entry that is negative or not finite")
    return _solve(graph, rhs, alpha)


def predict(Z: ArrayLike) -> Prediction:
    """Turn scores into labels, confidences and class distributions.

    Scores up to RESOLUTION count as zero; classes within RESOLUTION of a row's maximum are tied,
    and the lowest of them wins.

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
    labels = np.where(reached, np.argmax(scores >= best - RESOLUTION, axis=1), -1).astype(np.int64)

    # Dividing by the maximum first keeps sums of huge scores finite.
    distribution = np.divide(scores, best, out=np.ones_like(scores), where=best > 0)
    distribution /= distribution.sum(axis=1, keepdims=True)
    confidence = np.ones(len(scores))
    if n_classes > 1:
        confidence -= entr(distribution).sum(axis=1) / np.log(n_classes)
    confidence = np.where(reached, confidence.clip(0.0, 1.0), 0.0)
    return Prediction(labels, confidence, distribution)


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
    b = np.asarray(bits)
    if b.ndim != 2 or not 1 <= b.shape[1] <= MAX_HASH_BITS:
        raise ParameterError(
            f"bits have shape {b.shape}; (n, L) with L in 1..{MAX_HASH_BITS} is needed"
        )
    if b.dtype.kind not in "buif" or not ((b == 0) | (b == 1)).all():
        raise DataError("bits have an entry that is neither 0 nor 1")
    rows = b.astype(np.uint8)
    return distances_between(rows, rows)


def pooled_scores(
    bits: Sequence[NDArray[np.uint8]],
    onehot: Sequence[NDArray[np.float64]],
    *,
    k: int,
    alpha: float,
    gamma: float = 1.0,
    include_self: bool = False,
    ties: Ties = "all",
) -> NDArray[np.float64]:
    """Compute the scores Z of all clients' points as if one party held everything.

    Args:
        bits: per client, shape (n_j, L), 0 or 1; n_j = 0 is fine.
        onehot: per client, shape (n_j, C): zero-or-one-hot labels.
        k: neighbours per point, in 1..n-1 for n points in all.
        alpha: α, in (0, 1).
        gamma: exponent γ > 0 of the similarity.
        include_self: whether a point may be its own neighbour.
        ties: see `neighbour_graph`.

    Returns:
        Shape (n, C), float64, clients in the order given.

    Raises:
        ParameterError: a parameter is out of range or shapes differ.
        DataError: bits or labels are out of range.
    """
    _check_clients(bits, onehot)
    b = np.concatenate(bits)
    graph = neighbour_graph(
        hamming_distances(b), b.shape[1], k, gamma=gamma, include_self=include_self, ties=ties
    )
    return propagate(graph, np.concatenate(onehot), alpha)


def pooled(
    bits: Sequence[NDArray[np.uint8]],
    onehot: Sequence[NDArray[np.float64]],
    *,
    k: int,
    alpha: float,
    gamma: float = 1.0,
    include_self: bool = False,
    ties: Ties = "all",
) -> list[Prediction]:
    """Predict as if one party held everything: the reference for a private run.

    Arguments and errors are those of `pooled_scores`.

    Returns:
        One prediction per client, in the order given.
    """
    Z = pooled_scores(
        bits, onehot, k=k, alpha=alpha, gamma=gamma, include_self=include_self, ties=ties
    )
    ends = np.cumsum([len(b) for b in bits])
    return [predict(rows) for rows in np.split(Z, ends[:-1])]


def per_client(
    bits: Sequence[NDArray[np.uint8]],
    onehot: Sequence[NDArray[np.float64]],
    *,
    k: int,
    alpha: float,
    gamma: float = 1.0,
    include_self: bool = False,
    ties: Ties = "all",
) -> list[Prediction]:
    """Predict with label propagation within each client alone: the baseline without cooperation.

    Arguments and errors are those of `pooled_scores`; k is reduced to n_j − 1 for a small client,
    and a client with a single point can only predict that point's own label.

    Returns:
        One prediction per client, in the order given.
    """
    _check_clients(bits, onehot)
    if k < 1:
        raise ParameterError(f"k is {k}; it must be at least 1")
    return [
        predict(y)
        if len(b) < 2
        else pooled(
            [b],
            [y],
            k=min(k, len(b) - 1),
            alpha=alpha,
            gamma=gamma,
            include_self=include_self,
            ties=ties,
        )[0]
        for b, y in zip(bits, onehot, strict=True)
    ]


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


def _solve(graph: sparse.csr_array, rhs: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Solve (I − α𝒲)·X = rhs, check the residual, and clip negative rounding noise."""
    if not 0 < alpha < 1:
        raise ParameterError(f"alpha is {alpha}; it must be in (0, 1)")
    n, m = rhs.shape
    if n == 0 or m == 0:
        return rhs
    norms = np.linalg.norm(rhs, axis=0)
    # No solver gets below the rounding of α𝒲X, and |X| may be 1/(1 − α) times |rhs|.
    limits = norms * max(_TOLERANCE, 32 * np.finfo(np.float64).eps / (1 - alpha))
    X = np.empty_like(rhs)
    if n <= DENSE_LIMIT:
        # 𝒲 is symmetric: the transposed view is what LAPACK can overwrite without a copy.
        matrix = (sparse.eye_array(n, format="csr") - alpha * graph).toarray().T
        factor = linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        X[:] = linalg.cho_solve(factor, rhs, check_finite=False)
    else:
        for start in range(0, m, _COLUMN_CHUNK):
            chunk = slice(start, start + _COLUMN_CHUNK)
            X[:, chunk] = _conjugate_gradients(graph, rhs[:, chunk], alpha, limits[chunk])
    for start in range(0, m, _COLUMN_CHUNK):
        chunk = slice(start, start + _COLUMN_CHUNK)
        residual = np.linalg.norm(_residual(graph, X[:, chunk], rhs[:, chunk], alpha), axis=0)
        excess = residual > limits[chunk]
        if excess.any():
            worst = start + int(np.argmax(excess))
            raise XclpError(
                f"label propagation did not converge: column {worst} has residual "
                f"{residual[worst - start]:.1e} and {limits[worst]:.1e} is needed; use a smaller "
                f"alpha than {alpha}"
            )
    return np.maximum(X, 0.0, out=X)


def _residual(
    graph: sparse.csr_array, X: NDArray[np.float64], rhs: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    residual: NDArray[np.float64] = rhs - X + alpha * (graph @ X)
    return residual


def _conjugate_gradients(
    graph: sparse.csr_array,
    rhs: NDArray[np.float64],
    alpha: float,
    limits: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Run conjugate gradients on all columns at once, each with its own step lengths.

    Restarts from the true residual, because the recursive one drifts away from it.
    """
    # The eigenvalues lie in [1 − α, 1 + α], which bounds the iterations (Saad 2003, §6.11.3).
    bound = 0.5 * np.sqrt((1 + alpha) / (1 - alpha)) * np.log(2 / np.finfo(np.float64).eps)
    X = np.zeros(rhs.shape)
    for _ in range(_RESTARTS):
        R = _residual(graph, X, rhs, alpha)
        if (np.linalg.norm(R, axis=0) <= limits).all():
            break
        P = R.copy()
        rho = np.einsum("ij,ij->j", R, R)
        for _ in range(int(bound) + 10):
            active = np.sqrt(rho) > limits / 8
            if not active.any():
                break
            Q = P - alpha * (graph @ P)
            curvature = np.einsum("ij,ij->j", P, Q)
            step = np.divide(rho, curvature, out=np.zeros_like(rho), where=active)
            X += step * P
            R -= step * Q
            new = np.einsum("ij,ij->j", R, R)
            ratio = np.divide(new, rho, out=np.zeros_like(rho), where=active)
            P *= ratio
            P += R
            rho = new
    return X
