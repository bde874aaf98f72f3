"""Dealing out data that have no natural clients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError


def class_shares(
    n_classes: int, n_clients: int, partition: str, concentration: float, seed: int
) -> NDArray[np.float64]:
    """Draw which share of each class goes to which client.

    Args:
        n_classes: C.
        n_clients: ≥ 1.
        partition: ``iid`` gives every client the same share of every class; ``dirichlet`` draws the
            shares of each class from Dir(concentration, …, concentration).
        concentration: > 0; small values give each class to few clients.
        seed: ≥ 0.

    Returns:
        Shape (C, n_clients), rows sum to 1.

    Raises:
        ParameterError: an argument is out of range.

    Source: Hsu, Qi and Brown 2019, arXiv:1909.06335, by classes.
    """
    if n_clients < 1:
        raise ParameterError(f"n_clients is {n_clients}; it must be at least 1")
    if seed < 0:
        raise ParameterError(f"seed is {seed}; it must be >= 0")
    if partition == "iid":
        return np.full((n_classes, n_clients), 1 / n_clients)
    if partition != "dirichlet":
        raise ParameterError(f"partition is {partition!r}; it must be iid or dirichlet")
    if not 0 < concentration < np.inf:
        raise ParameterError(f"concentration is {concentration}; it must be finite and > 0")
    rng = np.random.Generator(np.random.PCG64([seed, n_clients]))
    shares: NDArray[np.float64] = rng.dirichlet(np.full(n_clients, concentration), size=n_classes)
    return shares


def deal(
    labels: NDArray[np.int64], shares: NDArray[np.float64], seed: int
) -> list[NDArray[np.intp]]:
    """Deal out rows at random so that each client has its share of each class.

    Args:
        labels: shape (n,), in 0..C-1.
        shares: shape (C, clients), from `class_shares`.
        seed: ≥ 0.

    Returns:
        Row numbers per client, ascending; every row once. Rounding goes to random clients.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    owner = np.empty(len(labels), dtype=np.intp)
    for c, share in enumerate(shares):
        rows = rng.permutation(np.flatnonzero(labels == c))
        order = rng.permutation(len(share))
        ends = np.rint(np.cumsum(share[order]) * len(rows)).astype(np.intp)[:-1]
        for client, part in zip(order, np.split(rows, ends), strict=True):
            owner[part] = client
    return [np.flatnonzero(owner == client) for client in range(shares.shape[1])]
