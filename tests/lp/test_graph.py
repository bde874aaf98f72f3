from __future__ import annotations

import math
import os
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError, ProtocolError
from xclp_lp import graph as graph_module
from xclp_lp.graph import Ties, neighbour_graph, neighbour_graph_from_bits, similarity_table, top_k
from xclp_lp.propagation import hamming_distances

TIES: tuple[Ties, ...] = ("all", "lowest-index")


def random_distances(n: int, n_bits: int, seed: int) -> NDArray[np.uint16]:
    """A symmetric matrix with zero diagonal; few bits give many ties."""
    upper = np.triu(np.random.default_rng(seed).integers(0, n_bits + 1, (n, n)), 1)
    return (upper + upper.T).astype(np.uint16)


def slow_graph(
    H: NDArray[np.uint16], n_bits: int, k: int, gamma: float, include_self: bool, ties: Ties
) -> NDArray[np.float64]:
    n = len(H)
    B = np.zeros((n, n))
    for i in range(n):
        candidates = [j for j in range(n) if include_self or j != i]
        ranked = sorted(candidates, key=lambda j: (int(H[i, j]), j))
        chosen = ranked[:k]
        if ties == "all" and chosen:
            chosen = [j for j in candidates if H[i, j] <= H[i, chosen[-1]]]
        for j in chosen:
            if 2 * int(H[i, j]) < n_bits:
                B[i, j] = math.cos(math.pi * int(H[i, j]) / n_bits) ** gamma
    W = B + B.T
    degree = W.sum(axis=1)
    out = np.zeros((n, n))
    for i, j in zip(*np.nonzero(W), strict=True):
        out[i, j] = W[i, j] / math.sqrt(degree[i] * degree[j])
    return out


@settings(deadline=None)
@given(
    n=st.integers(2, 12),
    n_bits=st.sampled_from([1, 2, 3, 7, 8, 65, 32768]),
    k=st.integers(1, 11),
    gamma=st.sampled_from([0.5, 1.0, 3.0]),
    include_self=st.booleans(),
    ties=st.sampled_from(TIES),
    seed=st.integers(0, 10**6),
)
def test_graph_is_that_of_the_definition(
    n: int, n_bits: int, k: int, gamma: float, include_self: bool, ties: Ties, seed: int
) -> None:
    k = min(k, n - 1)
    H = random_distances(n, n_bits, seed)
    before = H.copy()
    G = neighbour_graph(H, n_bits, k, gamma=gamma, include_self=include_self, ties=ties)
    assert G.format == "csr"
    assert G.dtype == np.float64
    expected = slow_graph(H, n_bits, k, gamma, include_self, ties)
    np.testing.assert_allclose(G.toarray(), expected, rtol=1e-13, atol=0)
    assert (G.toarray() == G.toarray().T).all()
    assert (G.data > 0).all()
    assert np.abs(np.linalg.eigvalsh(G.toarray())).max() <= 1 + 1e-12
    assert (before == H).all()


@settings(deadline=None)
@given(
    n=st.integers(2, 40),
    n_bits=st.integers(1, 12),
    k=st.integers(1, 39),
    seed=st.integers(0, 10**6),
    ties=st.sampled_from(TIES),
    block=st.integers(1, 200),
)
def test_top_k_does_not_depend_on_blocks(
    n: int, n_bits: int, k: int, seed: int, ties: Ties, block: int
) -> None:
    k = min(k, n - 1)
    H = random_distances(n, n_bits, seed)
    whole = top_k(H, n_bits, k, ties=ties)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_module, "_BLOCK_ENTRIES", block)
        parts = top_k(H, n_bits, k, ties=ties)
    for name in ("indptr", "indices", "data"):
        assert (getattr(whole, name) == getattr(parts, name)).all()
    counts = np.diff(whole.indptr)
    positive = (2 * H.astype(int) < n_bits).sum(axis=1) - 1
    if ties == "all":
        assert (counts >= np.minimum(k, positive)).all()
    else:
        assert (counts == np.minimum(k, positive)).all()


@settings(deadline=None)
@given(n=st.integers(3, 30), n_bits=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_permuting_points_only_permutes_the_graph(n: int, n_bits: int, seed: int) -> None:
    H = random_distances(n, n_bits, seed)
    order = np.random.default_rng(seed).permutation(n)
    G = neighbour_graph(H, n_bits, 2).toarray()
    permuted = neighbour_graph(np.ascontiguousarray(H[np.ix_(order, order)]), n_bits, 2).toarray()
    assert ((permuted > 0) == (G[np.ix_(order, order)] > 0)).all()
    np.testing.assert_allclose(permuted, G[np.ix_(order, order)], rtol=1e-13)


def test_similarity_is_exactly_zero_from_ninety_degrees_on() -> None:
    for n_bits in (1, 2, 3, 4, 4095, 4096, 32768):
        table = similarity_table(n_bits)
        assert len(table) == n_bits + 1
        assert table[0] == 1
        h = np.arange(n_bits + 1)
        assert (table[2 * h >= n_bits] == 0).all()
        assert (table[2 * h < n_bits] > 0).all()
        assert (np.diff(table) <= 0).all()


def test_underflowing_similarities_are_no_neighbours() -> None:
    H = np.array([[0, 3, 3], [3, 0, 3], [3, 3, 0]], dtype=np.uint16)
    assert neighbour_graph(H, 8, 2, gamma=1e4).nnz == 0
    assert neighbour_graph(H, 8, 2, gamma=2).nnz == 6


def test_all_points_equal() -> None:
    H = np.zeros((6, 6), dtype=np.uint16)
    everyone = neighbour_graph(H, 16, 2).toarray()
    assert (np.diag(everyone) == 0).all()
    np.testing.assert_allclose(everyone[~np.eye(6, dtype=bool)], 1 / 5)
    first = top_k(H, 16, 2, ties="lowest-index")
    assert first.indices.reshape(6, 2).tolist() == [[1, 2], [0, 2]] + [[0, 1]] * 4


def test_ties_take_the_memory_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "_BLOCK_ENTRIES", 1 << 13)
    H = np.zeros((800, 800), dtype=np.uint16)
    tracemalloc.start()
    try:
        graph = neighbour_graph(H, 64, 5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert graph.nnz == 800 * 799
    assert peak < 15 * graph.nnz
    pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 20 * graph.nnz}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    with pytest.raises(
        ParameterError,
        match=r"800 rows with 639,200 neighbours, .* need 0\.0 GB .*; use ties = 'lowest-index'",
    ):
        neighbour_graph(H, 64, 5)
    assert neighbour_graph(H, 64, 5, ties="lowest-index").nnz < 800 * 799 / 2


def test_opposite_and_isolated_points_have_zero_rows() -> None:
    H = np.array([[0, 8, 1], [8, 0, 8], [1, 8, 0]], dtype=np.uint16)
    G = neighbour_graph(H, 8, 2).toarray()
    assert not G[1].any()
    assert not G[:, 1].any()
    np.testing.assert_allclose(G[0, 2], 1)


@pytest.mark.parametrize("ties", TIES)
def test_k_may_be_one_and_all_others(ties: Ties) -> None:
    H = random_distances(9, 1000, 3)
    assert (np.diff(top_k(H, 1000, 1, ties=ties).indptr) <= 1).all()
    everyone = top_k(H, 1000, 8, ties=ties)
    assert everyone.nnz == (2 * H.astype(int) < 1000).sum() - 9


def test_self_takes_one_of_the_k_places() -> None:
    H = random_distances(7, 1000, 4)
    assert (top_k(H, 1000, 1, include_self=True).indices == np.arange(7)).all()
    assert neighbour_graph(H, 1000, 3, include_self=True).diagonal().all()
    assert not neighbour_graph(H, 1000, 3).diagonal().any()


def test_lowest_index_breaks_ties_below_the_limit() -> None:
    H = np.full((5, 5), 2, dtype=np.uint16)
    H[0, 4] = H[4, 0] = 1
    selected = top_k(H, 16, 2, ties="lowest-index")
    assert selected.indices[:2].tolist() == [1, 4]
    assert selected.data[:2].tolist() == [2, 1]


H4 = np.zeros((4, 4), dtype=np.uint16)


@pytest.mark.parametrize(
    ("H", "n_bits", "k", "options", "message"),
    [
        (H4[:3], 8, 1, {}, r"shape \(3, 4\)"),
        (H4[0], 8, 1, {}, "shape"),
        (H4.astype(np.int64), 8, 1, {}, "int64"),
        (H4, 0, 1, {}, "n_bits is 0"),
        (H4, 32769, 1, {}, "n_bits is 32769"),
        (H4, 8.0, 1, {}, "n_bits is 8.0"),
        (H4, 8, 0, {}, "k is 0"),
        (H4, 8, 4, {}, "k is 4; with 4 points"),
        (H4, 8, 1.5, {}, "k is 1.5"),
        (H4[:1, :1], 8, 1, {}, "k is 1; with 1 points"),
        (H4[:0, :0], 8, 1, {}, "k is 1; with 0 points"),
        (H4, 8, 1, {"gamma": 0.0}, "gamma is 0"),
        (H4, 8, 1, {"gamma": math.nan}, "gamma is nan"),
        (H4, 8, 1, {"gamma": math.inf}, "gamma is inf"),
        (H4, 8, 1, {"ties": "random"}, "ties is 'random'"),
    ],
)
def test_parameters_out_of_range(
    H: NDArray[np.uint16], n_bits: int, k: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        neighbour_graph(H, n_bits, k, **options)


def test_impossible_distance_is_a_protocol_error() -> None:
    H = random_distances(5, 8, 0)
    H[3, 1] = 9
    with pytest.raises(ProtocolError, match="distance 9 between points 3 and 1 exceeds 8 bits"):
        neighbour_graph(H, 8, 2)


# From bits


def assert_same_matrix(left: Any, right: Any) -> None:
    assert left.shape == right.shape
    for name in ("indptr", "indices", "data"):
        assert (getattr(left, name) == getattr(right, name)).all()


@settings(deadline=None)
@given(
    n=st.integers(2, 40),
    n_bits=st.sampled_from([1, 2, 3, 7, 8, 65, 300]),
    k=st.integers(1, 39),
    include_self=st.booleans(),
    ties=st.sampled_from(TIES),
    seed=st.integers(0, 10**6),
    entries=st.integers(1, 3000),
    copies=st.integers(1, 3),
)
def test_the_graph_from_bits_is_the_graph_from_distances(
    n: int,
    n_bits: int,
    k: int,
    include_self: bool,
    ties: Ties,
    seed: int,
    entries: int,
    copies: int,
) -> None:
    """With duplicates, and with strips, tiles and blocks of any size."""
    k = min(k, n - 1)
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (n, n_bits), dtype=np.uint8)[rng.integers(0, n, n) // copies]
    H = hamming_distances(bits)
    expected = neighbour_graph(H, n_bits, k, gamma=2, include_self=include_self, ties=ties)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_module, "_BLOCK_ENTRIES", entries // 3)
        patch.setattr(graph_module, "_STRIP_ENTRIES", entries)
        patch.setattr(graph_module, "_TILE_ENTRIES", entries)
        found = neighbour_graph_from_bits(bits, k, gamma=2, include_self=include_self, ties=ties)
    assert_same_matrix(found, expected)


def test_the_longest_hashes_are_exact() -> None:
    bits = np.zeros((4, 32768), dtype=np.uint8)
    bits[1] = 1
    bits[2, :16383] = 1
    bits[3, 0] = 1
    expected = neighbour_graph(hamming_distances(bits), 32768, 2)
    assert_same_matrix(neighbour_graph_from_bits(bits, 2), expected)
    assert expected.nnz == 6


def test_strips_report_their_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "_STRIP_ENTRIES", 40)
    reports: list[tuple[str, int, int]] = []
    bits = np.eye(10, dtype=np.uint8)
    neighbour_graph_from_bits(bits, 2, progress=lambda *report: reports.append(report))
    assert reports == [("distances and neighbours", done, 10) for done in (4, 8, 10)]


@pytest.mark.parametrize(
    ("bits", "k", "options", "error", "message"),
    [
        (np.zeros((4, 0)), 1, {}, ParameterError, "bits have shape"),
        (np.zeros(4), 1, {}, ParameterError, "bits have shape"),
        (np.full((4, 8), 2), 1, {}, DataError, "neither 0 nor 1"),
        (np.zeros((4, 8)), 4, {}, ParameterError, "k is 4; with 4 points"),
        (np.zeros((0, 8)), 1, {}, ParameterError, "k is 1; with 0 points"),
        (np.zeros((4, 8)), 1, {"gamma": -1}, ParameterError, "gamma is -1"),
        (np.zeros((4, 8)), 1, {"ties": "x"}, ParameterError, "ties is 'x'"),
    ],
)
def test_unusable_bits(
    bits: NDArray[Any], k: int, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        neighbour_graph_from_bits(bits, k, **options)
