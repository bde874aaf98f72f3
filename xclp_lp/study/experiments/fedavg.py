"""FederatedAveraging of two-layer networks: a baseline, and a source of linear embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

_WIDTH = 128
_ROUNDS = 40
_EPOCHS = 1
_BATCH = 32
_RATE = 0.1
_MOMENTUM = 0.9


@dataclass(frozen=True)
class TwoLayers:
    """Scores σ(x̂·first + b)·second + c of standardised features x̂; σ is ReLU or nothing.

    Attributes:
        shift: (d,) subtracted from the features.
        scale: (d,) by which they are divided after that.
        weights: first (d, h), its bias (h,), second (h, C), its bias (C,).
        rectified: whether σ is ReLU.
    """

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: tuple[NDArray[np.float64], ...]
    rectified: bool

    def predict(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the class with the largest score for each row, (n,)."""
        scores = _forward((x - self.shift) / self.scale, self.weights, self.rectified)[1]
        best: NDArray[np.int64] = scores.argmax(axis=1).astype(np.int64)
        return best


def train(
    features: Sequence[NDArray[np.float64]],
    class_ids: Sequence[NDArray[np.int64]],
    n_classes: int,
    *,
    rectified: bool,
    seed: int,
) -> TwoLayers:
    """Train on the labelled rows: 40 rounds, all clients, one epoch of SGD each.

    The average of the clients' networks is weighted by their numbers of labelled rows. It is
    computed in the clear here, like the moments of the labelled rows that scale the features.

    Args:
        features: per client, shape (n_j, d).
        class_ids: per client, shape (n_j,), class indices or −1; one client at least has a label.
        n_classes: C.
        rectified: ReLU after the first layer, or a linear network.
        seed: of first weights and batches.

    Source: McMahan et al. 2017, arXiv:1602.05629.
    """
    own = [(x[y >= 0], y[y >= 0]) for x, y in zip(features, class_ids, strict=True)]
    own = [(x, y) for x, y in own if len(y)]
    everything = np.concatenate([x for x, _ in own])
    shift, scale = everything.mean(axis=0), everything.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    own = [((x - shift) / scale, y) for x, y in own]
    rng = np.random.Generator(np.random.PCG64([seed, len(own)]))
    d = len(shift)
    weights: tuple[NDArray[np.float64], ...] = (
        rng.standard_normal((d, _WIDTH)) / np.sqrt(d),
        np.zeros(_WIDTH),
        rng.standard_normal((_WIDTH, n_classes)) / np.sqrt(_WIDTH),
        np.zeros(n_classes),
    )
    shares = np.array([len(y) for _, y in own]) / sum(len(y) for _, y in own)
    for turn in range(_ROUNDS):
        # Cosine annealing, and gradients clipped: with ReLU a rate that decays keeps the
        # average of few rows per client from jumping at the end.
        rate = _RATE * (1 + np.cos(np.pi * turn / _ROUNDS)) / 2
        trained = [_epochs(x, y, weights, rectified, rate, rng) for x, y in own]
        weights = tuple(
            sum((s * t[i] for s, t in zip(shares, trained, strict=True)), np.zeros_like(w))
            for i, w in enumerate(weights)
        )
    return TwoLayers(shift, scale, weights, rectified)


def linear_embedding(
    features: Sequence[NDArray[np.float64]],
    class_ids: Sequence[NDArray[np.int64]],
    n_classes: int,
    *,
    seed: int,
) -> NDArray[np.float64]:
    """Return the first layer of a linear network, (d, 128), for the features as they are."""
    network = train(features, class_ids, n_classes, rectified=False, seed=seed)
    return network.weights[0] / network.scale[:, None]


def _epochs(
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    weights: tuple[NDArray[np.float64], ...],
    rectified: bool,
    rate: float,
    rng: np.random.Generator,
) -> list[NDArray[np.float64]]:
    """Train one client's copy."""
    mine = [w.copy() for w in weights]
    speed = [np.zeros_like(w) for w in weights]
    for _ in range(_EPOCHS):
        order = rng.permutation(len(y))
        for start in range(0, len(y), _BATCH):
            rows = order[start : start + _BATCH]
            for w, v, g in zip(
                mine, speed, _gradients(x[rows], y[rows], mine, rectified), strict=True
            ):
                v *= _MOMENTUM
                v -= rate * g
                w += v
    return mine


def _forward(
    x: NDArray[np.float64], weights: Sequence[NDArray[np.float64]], rectified: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    hidden = x @ weights[0] + weights[1]
    if rectified:
        hidden = np.maximum(hidden, 0.0)
    return hidden, hidden @ weights[2] + weights[3]


def _gradients(
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    weights: Sequence[NDArray[np.float64]],
    rectified: bool,
) -> list[NDArray[np.float64]]:
    """Return the gradients of the mean cross-entropy, of Euclidean length 1 at most."""
    hidden, scores = _forward(x, weights, rectified)
    error = np.exp(log_softmax(scores, axis=1))
    error[np.arange(len(y)), y] -= 1.0
    error /= len(y)
    back = error @ weights[2].T
    if rectified:
        back *= hidden > 0
    gradients = [x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
    length = np.sqrt(sum(float((g**2).sum()) for g in gradients))
    return [g / max(1.0, length) for g in gradients]
