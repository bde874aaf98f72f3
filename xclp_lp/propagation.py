"""Label propagation on a neighbour graph (paper §4.1, Algorithm 1, appendix app:LP).

Scores are Z = S·Y with S = (I − α𝒲)⁻¹, solved for the columns that are needed. The pooled
computation on plain bits is here too: the reference that a private run must equal label for
label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Required, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.protocols.hamming import distances_between
from xclp_lp.graph import Ties, checked_bits, neighbour_graph_from_bits
from xclp_lp.predictions import Prediction, predict
from xclp_lp.solvers import Propagator, Solver


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
