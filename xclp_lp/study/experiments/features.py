"""Feature extractors: the function h of the paper, from a client's data to vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.front import secure_sum
from xclp_crypto.rng import Rng, rng_or_system
from xclp_lp.study.experiments.fedavg import linear_embedding
from xclp_lp.study.experiments.task import Matrices, Task


def identity(task: Task) -> Matrices:
    """Return the features as they are."""
    return tuple(task.features)


def by_client(task: Task) -> Matrices:
    """Standardise each feature over each client's own rows, which needs nothing from others."""
    return tuple(_scaled(x, x.mean(axis=0), x.var(axis=0)) if len(x) else x for x in task.features)


def agreed(task: Task) -> Matrices:
    """Standardise each feature over the rows of all clients, which nobody pools; see below."""
    mean, variance = agreed_moments(task.features)
    return tuple(_scaled(x, mean, variance) for x in task.features)


def agreed_moments(
    features: Sequence[NDArray[np.float64]], rng: Rng | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find mean and variance of each feature by two secure sums over the clients.

    The server and everybody else learn the number of all rows, the sums of the features, and the
    sums of their squared distances from the mean. The second sum knows the mean, so that features
    far from zero lose no precision.

    Args:
        features: per client, shape (n_j, d), finite.
        rng: randomness of the sums; the operating system's by default.

    Returns:
        Mean and variance, shape (d,); with p clients, n rows and f fractional bits in the sums
        (`xclp_crypto.params.FRACTION_BITS`), the mean is off by at most p·2^-(f+1)/n and the
        variance by as much and that error squared.

    Raises:
        EncodingOverflow: the features are too large for the sums.
        DataError, ParameterError: see `secure_sum`.
    """
    source = rng_or_system(rng)
    sums = [np.append(x.sum(axis=0), len(x)) for x in features]
    first = secure_sum(sums, rng=source.child("sums")).total.astype(np.float64)
    n = max(1.0, float(first[-1]))
    mean: NDArray[np.float64] = first[:-1] / n
    distances = [((x - mean) ** 2).sum(axis=0) for x in features]
    squares = secure_sum(distances, rng=source.child("squared distances")).total
    return mean, np.maximum(squares / n, 0.0)


def embedded(task: Task) -> Matrices:
    """Apply the first layer of a linear network trained with FederatedAveraging on the labels."""
    first = linear_embedding(task.features, task.class_ids, task.n_classes, seed=task.seed)
    return tuple(x @ first for x in task.features)


def _scaled(
    x: NDArray[np.float64], mean: NDArray[np.float64], variance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Centre and scale; a feature that is constant up to rounding errors becomes 0."""
    # Fixed-point sums and float64 leave about 1e-10 of noise in a variance that should be 0.
    constant = variance <= 1e-9 * np.maximum(mean**2, 1e-3)
    return np.where(constant, 0.0, (x - mean) / np.sqrt(np.where(constant, 1.0, variance)))


Extractor = Callable[[Task], Matrices]


def _of_network(name: str, task: Task) -> Matrices:
    """Apply an extractor of `xclp_lp.study.experiments.neural_features`, which loads PyTorch."""
    from xclp_lp.study.experiments import neural_features

    extractor: Extractor = getattr(neural_features, name)
    return extractor(task)


EXTRACTORS: dict[str, Extractor] = {
    "identity": identity,
    "by-client": by_client,
    "agreed": agreed,
    "linear": embedded,
    "network": partial(_of_network, "trained"),
    "efficientnet": partial(_of_network, "pretrained"),
    "efficientnet-tuned": partial(_of_network, "fine_tuned"),
}
"""Every extractor by name."""
