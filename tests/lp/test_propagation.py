from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from sklearn.semi_supervised import LabelSpreading

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp import solvers
from xclp_lp.graph import neighbour_graph
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.predictions import RELATIVE_RESOLUTION, RESOLUTION, predict
from xclp_lp.propagation import hamming_distances, influence, per_client, pooled, propagate
from xclp_lp.solvers import Propagator

ALPHA = 0.9


def random_bits(n: int, n_bits: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 2, (n, n_bits), dtype=np.uint8)


def blobs(n: int, n_classes: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Bits of points around one centre per class, and the classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    v = 2 * rng.standard_normal((n_classes, 8))[y] + rng.standard_normal((n, 8))
    return hash_bits(v, projection(bytes(32), 512, 8)), y


def onehot(y: NDArray[np.int64], n_classes: int, labelled: NDArray[np.bool_]) -> Any:
    return np.eye(n_classes)[y] * labelled[:, None]


def random_graph(n: int, seed: int, k: int = 3) -> sparse.csr_array:
    return neighbour_graph(hamming_distances(random_bits(n, 64, seed)), 64, k)


# Distances


@settings(deadline=None)
@given(n=st.integers(0, 9), n_bits=st.integers(1, 70), seed=st.integers(0, 10**6))
def test_distances_are_those_of_the_definition(n: int, n_bits: int, seed: int) -> None:
    bits = random_bits(n, n_bits, seed)
    H = hamming_distances(bits)
    assert H.dtype == np.uint16
    assert ((bits[:, None] != bits[None]).sum(axis=2) == H).all()
    mask = random_bits(1, n_bits, seed + 1)
    assert (hamming_distances(bits ^ mask) == H).all()


def test_distances_over_several_blocks_and_of_the_longest_hashes() -> None:
    bits = random_bits(2100, 9, 0)
    packed = np.packbits(bits, axis=1).astype(np.uint16)
    words = packed[:, 0] << 8 | packed[:, 1]
    H = hamming_distances(bits)
    assert (np.bitwise_count(words[:, None] ^ words[None]) == H).all()
    longest = np.array([[0] * 32768, [1] * 32768], dtype=np.uint8)
    assert hamming_distances(longest).tolist() == [[0, 32768], [32768, 0]]


@pytest.mark.parametrize("bits", [np.zeros(3), np.zeros((2, 0)), np.zeros((1, 32769), np.uint8)])
def test_distances_need_a_matrix(bits: NDArray[np.uint8]) -> None:
    with pytest.raises(ParameterError, match="shape"):
        hamming_distances(bits)


@pytest.mark.parametrize("bad", [2, -1, 0.5, np.nan])
def test_distances_need_bits(bad: float) -> None:
    with pytest.raises(DataError, match="neither 0 nor 1"):
        hamming_distances(np.array([[0, bad]]))


# Influence and scores


def test_blocks_of_influence_are_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    G = random_graph(50, 0)
    columns = np.random.default_rng(0).permutation(50)[:40]
    whole = influence(G, columns, ALPHA)
    monkeypatch.setattr(solvers, "_COLUMN_BYTES", 1)
    monkeypatch.setattr(solvers, "_LANE_COLUMNS", 3)
    blocks = list(Propagator(G, ALPHA, 40).influence(columns))
    assert [block.start for block, _ in blocks] == list(range(0, 40, 3))
    assert [block.stop for block, _ in blocks] == [*range(3, 40, 3), 40]
    for block, part in blocks:
        np.testing.assert_allclose(part, whole[:, block], rtol=0, atol=1e-13)
    Y = np.random.default_rng(1).random((50, 10))
    S = np.linalg.inv(np.eye(50) - ALPHA * G.toarray())
    np.testing.assert_allclose(propagate(G, Y, ALPHA), S @ Y, rtol=0, atol=1e-12)


def test_no_columns_and_repeated_columns() -> None:
    G = random_graph(10, 0)
    assert influence(G, [], ALPHA).shape == (10, 0)
    assert influence(G, np.empty(0, dtype=np.int64), ALPHA).shape == (10, 0)
    twice = influence(G, np.array([3, 3], dtype=np.uint8), ALPHA)
    assert (twice[:, 0] == twice[:, 1]).all()
    assert propagate(sparse.csr_array((0, 0)), np.empty((0, 2)), ALPHA).shape == (0, 2)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_alpha_out_of_range(alpha: float) -> None:
    with pytest.raises(ParameterError, match="alpha is"):
        influence(random_graph(5, 0), [0], alpha)
    with pytest.raises(ParameterError, match="alpha is"):
        propagate(random_graph(5, 0), np.zeros((5, 1)), alpha)


@pytest.mark.parametrize("columns", [[5], [-1], [0.5], [[0]], [True, False], ["a"]])
def test_columns_out_of_range(columns: list[Any]) -> None:
    with pytest.raises(ParameterError, match="columns"):
        influence(random_graph(5, 0), columns, ALPHA)


def test_unusable_label_matrices() -> None:
    G = random_graph(5, 0)
    for shape in ((5,), (4, 2)):
        with pytest.raises(ParameterError, match="Y has shape"):
            propagate(G, np.zeros(shape), ALPHA)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(DataError, match="Y has an entry"):
            propagate(G, np.full((5, 2), bad), ALPHA)


def test_scores_are_those_of_label_spreading() -> None:
    """scikit-learn iterates F ← α𝒲F + (1−α)Y, so its limit is (1−α)·S·Y, rows normalised."""
    n, n_classes = 120, 3
    bits, y = blobs(n, n_classes, 2)
    H = hamming_distances(bits)
    labelled = np.arange(n) % 10 == 0
    G = neighbour_graph(H, 512, 5)
    # 𝒲 itself normalises to another matrix, so W is rebuilt: B + Bᵀ has G's pattern.
    A = np.cos(np.pi * H / 512).clip(0)
    np.fill_diagonal(A, 0)
    kth = np.sort(A, axis=1)[:, [-5]]
    B = np.where(kth <= A, A, 0)
    W = B + B.T
    assert ((W > 0) == (G.toarray() > 0)).all()

    model = LabelSpreading(kernel=lambda a, b: W, alpha=ALPHA, max_iter=100_000, tol=1e-13)
    model.fit(np.zeros((n, 1)), np.where(labelled, y, -1))
    Z = propagate(G, onehot(y, n_classes, labelled), ALPHA)
    prediction = predict(Z)
    reached = prediction.class_ids >= 0
    assert reached.sum() > 100
    np.testing.assert_allclose(
        prediction.distribution[reached], model.label_distributions_[reached], atol=1e-8
    )
    assert (prediction.class_ids[reached] == model.transduction_[reached]).all()


# Predictions


def entropy_confidence(row: list[float]) -> float:
    total = sum(row)
    p = [z / total for z in row if z > 0]
    return 1 + sum(q * math.log(q) for q in p) / math.log(len(row))


def test_prediction_of_plain_scores() -> None:
    Z = [[1.0, 3.0, 0.0], [0.2, 0.2, 0.2], [0.0, 0.0, 7.0], [0.0, 0.0, 0.0]]
    prediction = predict(Z)
    assert prediction.class_ids.dtype == np.int64
    assert prediction.class_ids.tolist() == [1, 0, 2, -1]
    np.testing.assert_allclose(
        prediction.confidence, [entropy_confidence(Z[0]), 0, 1, 0], atol=1e-15
    )
    np.testing.assert_allclose(prediction.distribution[0], [0.25, 0.75, 0])
    np.testing.assert_allclose(prediction.distribution[3], 1 / 3)


def test_scores_within_the_resolution_count_as_zero_or_tied() -> None:
    e, r = RESOLUTION, RELATIVE_RESOLUTION
    Z: list[list[float]] = [
        [e, 0],
        [0, 1.5 * e],
        [-e, 2 * e],
        [2 * e, 3.5 * e],
        [1 - r / 2, 1],
        [1 - 2 * r, 1],
        [1e6 * (1 - r / 2), 1e6],
        [1e6 * (1 - 2 * r), 1e6],
        [1, 1],
    ]
    prediction = predict(Z)
    assert prediction.class_ids.tolist() == [-1, 1, 1, 1, 0, 1, 0, 1, 0]
    assert prediction.distribution[:2].tolist() == [[0.5, 0.5], [0, 1]]


@settings(deadline=None)
@given(
    n=st.integers(0, 6),
    n_classes=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-12, 1.0, 1e200, 1e308]),
)
def test_predictions_are_always_in_range(n: int, n_classes: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    Z = rng.random((n, n_classes)) * (rng.random((n, n_classes)) < 0.5) * scale
    before = Z.copy()
    prediction = predict(Z)
    assert (before == Z).all()
    assert ((prediction.confidence >= 0) & (prediction.confidence <= 1)).all()
    np.testing.assert_allclose(prediction.distribution.sum(axis=1), 1)
    none = prediction.class_ids == -1
    assert (none == (Z <= RESOLUTION).all(axis=1)).all()
    assert (prediction.confidence[none] == 0).all()
    assert (prediction.distribution[none] == 1 / n_classes).all()
    if n_classes == 1:
        assert (prediction.confidence[~none] == 1).all()


@settings(deadline=None)
@given(seed=st.integers(0, 10**6))
def test_errors_of_an_encoding_do_not_change_labels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Z = rng.choice([0.0, 0.125, 0.25, 1.0, 1.0 + 2.0**-19, 1.0 + 2.0**-21, 1e9], (50, 4))
    noisy = Z * (1 + rng.uniform(-1, 1, Z.shape) * 2.0**-24)
    noisy += rng.uniform(-1, 1, Z.shape) * 2.0**-38
    assert (predict(noisy).class_ids == predict(Z).class_ids).all()


@pytest.mark.parametrize("bad", [-1.0, -2 * RESOLUTION, np.nan, np.inf])
def test_unusable_scores(bad: float) -> None:
    with pytest.raises(DataError, match="in row 1, class 0"):
        predict(np.array([[1.0, 1.0], [bad, 1.0]]))
    for shape in ((3,), (3, 0)):
        with pytest.raises(ParameterError, match="Z has shape"):
            predict(np.zeros(shape))


# Pooled and per client


def test_a_component_without_labels_has_no_prediction() -> None:
    v = np.array([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]])
    bits = hash_bits(v, projection(bytes(32), 256, 2))
    Y = np.zeros((4, 3))
    Y[0, 2] = 1
    (prediction,) = pooled([bits], [Y], k=1, alpha=ALPHA)
    assert prediction.class_ids.tolist() == [2, 2, -1, -1]
    assert prediction.confidence.tolist() == [1, 1, 0, 0]
    assert (prediction.distribution[2:] == 1 / 3).all()


def test_one_class() -> None:
    bits = np.ones((4, 8), dtype=np.uint8)
    (prediction,) = pooled([bits], [np.array([[1.0], [0], [0], [0]])], k=1, alpha=ALPHA)
    assert prediction.class_ids.tolist() == [0] * 4
    assert prediction.confidence.tolist() == [1] * 4


def test_no_label_anywhere() -> None:
    (prediction,) = pooled([random_bits(5, 32, 0)], [np.zeros((5, 2))], k=2, alpha=ALPHA)
    assert (prediction.class_ids == -1).all()


def test_equal_points_share_the_majority_and_ties_take_the_lowest_class() -> None:
    bits = np.ones((6, 8), dtype=np.uint8)
    Y = np.zeros((6, 2))
    Y[[0, 1, 2], [1, 1, 0]] = 1
    assert pooled([bits], [Y], k=2, alpha=0.99)[0].class_ids.tolist()[3:] == [1] * 3
    Y[1] = 0
    assert pooled([bits], [Y], k=2, alpha=0.99)[0].class_ids.tolist()[3:] == [0] * 3


def test_opposite_points_do_not_influence_each_other() -> None:
    bits = np.array([[0] * 8, [1] * 8], dtype=np.uint8)
    (prediction,) = pooled([bits], [np.eye(2)[[0, 0]] * [[1], [0]]], k=1, alpha=ALPHA)
    assert prediction.class_ids.tolist() == [0, -1]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), n_bits=st.sampled_from([6, 16, 512]), k=st.integers(1, 6))
def test_order_of_clients_and_rows_only_permutes_the_result(seed: int, n_bits: int, k: int) -> None:
    """With 6 bits almost every neighbour is tied with another."""
    rng = np.random.default_rng(seed)
    bits, y = blobs(60, 3, seed)
    bits = bits[:, :n_bits]
    Y = onehot(y, 3, rng.random(60) < 0.2)
    (reference,) = pooled([bits], [Y], k=k, alpha=0.99)
    order = rng.permutation(60)
    parts = np.split(order, [7, 7, 30])
    results = pooled([bits[p] for p in parts], [Y[p] for p in parts], k=k, alpha=0.99)
    assert [len(r.class_ids) for r in results] == [7, 0, 23, 30]
    assert (np.concatenate([r.class_ids for r in results]) == reference.class_ids[order]).all()
    confidence = np.concatenate([r.confidence for r in results])
    np.testing.assert_allclose(confidence, reference.confidence[order], atol=1e-7)


def test_scores_are_the_sum_of_the_clients_contributions() -> None:
    bits, y = blobs(50, 3, 5)
    parts = [slice(0, 20), slice(20, 50)]
    labelled = np.arange(50) % 4 == 0
    Y = onehot(y, 3, labelled)
    G = neighbour_graph(hamming_distances(bits), 512, 4)
    Z = propagate(G, Y, 0.99)
    total = np.zeros_like(Z)
    for part in parts:
        own = np.arange(50)[part][labelled[part]]
        total += influence(G, own, 0.99) @ Y[own]
    np.testing.assert_allclose(total, Z, atol=1e-10)


def test_per_client_is_pooled_within_each_client() -> None:
    bits, y = blobs(40, 3, 6)
    Y = onehot(y, 3, np.arange(40) % 5 == 0)
    sizes = [0, 1, 2, 4, 40]  # empty, one labelled, one unlabelled, two points, the rest
    parts = [slice(a, b) for a, b in zip([0, *sizes[:-1]], sizes, strict=True)]
    results = per_client([bits[p] for p in parts], [Y[p] for p in parts], k=3, alpha=ALPHA)
    assert len(results[0].class_ids) == 0
    assert results[1].class_ids.tolist() == [y[0]]
    assert results[2].class_ids.tolist() == [-1]
    assert len(results[3].class_ids) == 2
    (alone,) = pooled([bits[4:]], [Y[4:]], k=3, alpha=ALPHA)
    assert (results[4].class_ids == alone.class_ids).all()


@pytest.mark.parametrize("function", [pooled, per_client])
def test_unusable_clients(function: Any) -> None:
    b, y = random_bits(4, 8, 0), np.zeros((4, 2))
    cases: list[tuple[list[Any], list[Any], str]] = [
        ([], [], "at least one client"),
        ([b], [y, y], "bits of 1 clients and labels of 2"),
        ([b], [y[:3]], "client 0 has bits of shape"),
        ([b, b[0]], [y, y], "client 1 has bits of shape"),
        ([b, b[:, :7]], [y, y], "client 1 has 7 bits"),
        ([b, b], [y, y[:, :1]], "client 1 has 8 bits and 1 classes"),
    ]
    for bits, labels, message in cases:
        with pytest.raises(ParameterError, match=message):
            function(bits, labels, k=1, alpha=ALPHA)
    with pytest.raises(ParameterError, match="k is 0"):
        function([b], [y], k=0, alpha=ALPHA)
