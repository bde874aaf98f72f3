"""Whole sessions, from hashing to labels: what the cryptography costs over nothing at all.

    make bench

pytest-benchmark prints each group with ratios to its fastest member: ``masked`` against ``plain``.
"""

from __future__ import annotations

import numpy as np
import pytest

from xclp_lp import CrossClientLabelPropagation

CLIENTS, ROWS, FEATURES, CLASSES = 5, 500, 64, 5


@pytest.fixture(scope="module")
def federation() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return 5 clients of 500 rows in 5 clusters, 5% of them labelled."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, FEATURES))
    Xs, ys = [], []
    for _ in range(CLIENTS):
        classes = rng.integers(0, CLASSES, ROWS)
        Xs.append(centres[classes] + 1.5 * rng.normal(size=(ROWS, FEATURES)))
        ys.append(np.where(rng.random(ROWS) < 0.05, classes, -1))
    return Xs, ys


@pytest.mark.parametrize("hamming", ["plain", "masked"])
@pytest.mark.benchmark(group="session, 5 clients × 500 rows × 4096 bits, k = 10")
def test_session(benchmark, federation, hamming):
    Xs, ys = federation
    estimator = CrossClientLabelPropagation(n_bits=4096, k=10, hamming=hamming, random_state=0)
    benchmark.pedantic(estimator.fit, args=(Xs, ys), rounds=9, warmup_rounds=1)
    benchmark.extra_info["bytes"] = estimator.cost_.total_bytes


def test_masked_session_relative_to_plain(benchmark, federation):
    """Alternate the two, so that the ratio holds when the machine's speed drifts."""
    Xs, ys = federation
    seconds: dict[str, list[float]] = {"plain": [], "masked": []}

    def pair() -> None:
        for hamming, times in seconds.items():
            estimator = CrossClientLabelPropagation(4096, 10, hamming=hamming, random_state=0)
            times.append(estimator.fit(Xs, ys).cost_.total_seconds)

    benchmark.pedantic(pair, rounds=9, warmup_rounds=1)
    ratios = np.array(seconds["masked"][1:]) / np.array(seconds["plain"][1:])
    benchmark.extra_info["median_ratio"] = float(np.median(ratios))
    print(
        f"\nmasked / plain session: median {np.median(ratios):.2f}, "
        f"{ratios.min():.2f} to {ratios.max():.2f}"
    )
