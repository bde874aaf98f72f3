"""Dealing out data that have no natural clients."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict, Unpack

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from xclp_lp.study.data.federation import Count, Federation, Seed, require_between
from xclp_lp.validation import FINITE


class Dealing(TypedDict, total=False):
    """How a data set without natural clients is dealt out to them.

    Attributes:
        n_clients: 10 by default.
        partition: ``iid``, the default, or ``dirichlet``, see `class_shares`.
        concentration: of the Dirichlet distribution; 0.5 by default.
        n_rows: so many rows in all, drawn at random, training and test set in proportion; 6,000 by
            default.
        seed: of draw and partition; 0 by default.
    """

    n_clients: Count
    partition: Literal["iid", "dirichlet"]
    concentration: Annotated[float, Meta(gt=0, le=FINITE)]
    n_rows: Count
    seed: Seed


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

    Source: Hsu, Qi and Brown 2019, arXiv:1909.06335, by classes.
    """
    if partition == "iid":
        return np.full((n_classes, n_clients), 1 / n_clients)
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


def dealt_federation(
    train: tuple[NDArray[np.uint8], NDArray[np.int64]],
    test: tuple[NDArray[np.uint8], NDArray[np.int64]],
    *,
    classes: tuple[str, ...],
    source: str,
    licence: str,
    **dealing: Unpack[Dealing],
) -> Federation:
    """Draw pictures of a data set without natural clients and deal them out.

    Args:
        train: pixels, shape (n, d), and classes, shape (n,), in 0..C-1.
        test: the same; dealt out in the same shares of classes, and marked as test rows.
        classes: names of the C classes.
        source: of the data.
        licence: of the data.
        dealing: see `Dealing`.

    Returns:
        Pixels divided by 255; labels are names.

    Raises:
        ParameterError: an argument is out of range.
    """
    n_clients, seed = dealing.get("n_clients", 10), dealing.get("seed", 0)
    partition, concentration = dealing.get("partition", "iid"), dealing.get("concentration", 0.5)
    shares = class_shares(len(classes), n_clients, partition, concentration, seed)
    n_rows, total = dealing.get("n_rows", 6000), len(train[1]) + len(test[1])
    require_between("n_rows", n_rows, n_clients, total)
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = []
    for pixels, y in (train, test):
        rows = np.sort(rng.permutation(len(y))[: round(n_rows * len(y) / total)])
        drawn.append((pixels[rows], y[rows], deal(y[rows], shares, seed)))
    known = np.array(classes)
    clients = range(n_clients)
    return Federation(
        names=tuple(f"client-{j + 1:02d}" for j in clients),
        features=tuple(np.concatenate([x[r[j]] for x, _, r in drawn]) / 255.0 for j in clients),
        labels=tuple(known[np.concatenate([y[r[j]] for _, y, r in drawn])] for j in clients),
        classes=classes,
        source=source,
        licence=licence,
        test=tuple(np.repeat([False, True], [len(r[j]) for *_, r in drawn]) for j in clients),
    )
