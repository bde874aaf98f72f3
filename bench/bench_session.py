"""Whole sessions, from hashing to labels: what the cryptography costs over nothing at all.

Vectors are clustered as `xclp_lp.study.benchmarks.clustered` says, 5% of them labelled.
"""

from __future__ import annotations

import numpy as np
import pytest

from xclp_crypto.privacy import LabelPrivacy
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.study.benchmarks import clustered

CLIENTS, ROWS, CLASSES, LABELLED = 5, 500, 5, 0.05
NEW = 0.05
"""Share of the rows that come later."""


def federation(rows):
    """Return vectors and labels by client, and which rows are new."""
    vectors, cluster = clustered(CLIENTS * rows, 0, CLASSES)
    drawn = np.random.default_rng(0).random(len(vectors))
    labels = np.where(drawn < LABELLED, cluster, -1)
    return (np.split(array, CLIENTS) for array in (vectors, labels, drawn >= 1 - NEW))


def estimator(n_bits, hamming, **options):
    return CrossClientLabelPropagation(
        n_bits, 10, hamming=hamming, random_state=0, classes=list(range(CLASSES)), **options
    )


@pytest.mark.parametrize("hamming", ["masked", "rlwe"])
@pytest.mark.benchmark(group="labels: 5 clients × 500 rows × 4096 bits, k = 10")
def test_session(beside, record, hamming):
    Xs, ys, _ = federation(ROWS)
    plain = estimator(4096, "plain")
    fitted, ratio = beside(
        lambda: plain.fit(Xs, ys), estimator(4096, hamming).fit, Xs, ys, rounds=5
    )
    record(fitted.cost_, times_plain=ratio)


@pytest.mark.benchmark(group="noise: a session of 5 clients × 500 rows × 4096 bits, k = 10, masked")
def test_noise_in_the_sums(beside, record):
    Xs, ys, _ = federation(ROWS)
    exact = estimator(4096, "masked")
    noisy = estimator(4096, "masked", privacy=LabelPrivacy(3, 1e-5, CLIENTS - 1))
    fitted, ratio = beside(lambda: exact.fit(Xs, ys), noisy.fit, Xs, ys, rounds=5)
    record(fitted.cost_, times_without=ratio)


@pytest.mark.parametrize("hamming", ["rlwe", "masked", "plain"])
@pytest.mark.parametrize("way", ["fit", "predict", "update"])
@pytest.mark.benchmark(group="labels: 2,000 rows of 5 clients × 2048 bits, 5% of which come later")
def test_later(benchmark, record, hamming, way):
    """`fit` takes all rows at once, the others what is new after a `fit` of the old ones."""
    Xs, ys, new = federation(400)
    old = [[own[~part] for own, part in zip(of_all, new, strict=True)] for of_all in (Xs, ys)]
    later = [[own[part] for own, part in zip(of_all, new, strict=True)] for of_all in (Xs, ys)]
    model = estimator(2048, hamming)

    def before():
        if way != "fit":
            model.fit(*old, keep_distances=True)
        return {"fit": (Xs, ys), "predict": later[:1], "update": later}[way], {}

    benchmark.pedantic(getattr(model, way), setup=before, rounds=3)
    record(model.predict_cost_ if way == "predict" else model.cost_)
