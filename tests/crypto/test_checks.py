"""Which distances the server takes for those of bit vectors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import assert_blames

from xclp_crypto.errors import FaultyPeer
from xclp_crypto.protocols.hamming import checks, distances_between
from xclp_crypto.protocols.hamming.checks import require_bit_vectors, require_parities
from xclp_crypto.protocols.hamming.interface import column_ranges


def rows(n, n_bits, seed=0):
    return np.random.default_rng(seed).integers(0, 2, (n, n_bits)).astype(np.uint8)


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    n_bits=st.sampled_from([1, 2, 7, 64, 4096]),
    kinds=st.integers(1, 8),
    at_once=st.sampled_from([1, 5, 4096]),
    seed=st.integers(0, 99),
)
def test_distances_of_bit_vectors_pass(sizes, n_bits, kinds, at_once, seed):
    """Also equal and opposite ones, more of them than bits, and in several parts."""
    some = rows(kinds, n_bits, seed)
    some[kinds // 2] = 1 - some[0]
    bits = some[np.random.default_rng(seed).integers(0, kinds, sum(sizes))]
    places = column_ranges({f"c{i}": n for i, n in enumerate(sizes)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "GRAM_ROWS", at_once)
        require_bit_vectors(distances_between(bits, bits), places, n_bits)
    require_parities(distances_between(bits, some), places, {c: slice(0, 1) for c in places})


def with_weights(weights, n):
    """Distances of `n` rows and of one with weights, as it gets them by following the rest."""
    bits = np.r_[rows(n, len(weights)), [(weights < 0).astype(np.uint8)]]
    matrix = distances_between(bits, bits)
    products = (1 - 2 * bits[:-1].astype(int)) @ weights
    matrix[-1, :-1] = matrix[:-1, -1] = (len(weights) - products) // 2
    return matrix, column_ranges({"honest": n, "other": 1})


@pytest.mark.parametrize(
    ("n", "weight", "passes"), [(128, 1, True), (128, 7, True), (128, 33, False), (300, 3, False)]
)
def test_limit_attack_2_odd_weights_pass_if_others_have_few_rows(n, weight, passes):
    """With L = 256: up to √(L·(L − n)/n) = 16 for 128 rows, and only 1 from 256 rows on."""
    weights = 1 - 2 * rows(1, 256, 9)[0].astype(int)
    weights[0] *= weight
    matrix, places = with_weights(weights, n)
    if passes:
        require_bit_vectors(matrix, places, 256)
    else:
        with pytest.raises(FaultyPeer, match="Gram") as caught:
            require_bit_vectors(matrix, places, 256)
        assert_blames(caught.value, ("honest", "other"))


@pytest.mark.parametrize(
    ("entries", "blamed", "named"),
    [
        ([(0, 1)], "a", "row 1 of 'a'"),
        ([(2, 7)], "ab", "row 3 of 'b'"),
        ([(2, 7), (2, 13)], "a", "row 2 of 'a'"),
        ([(2, 7), (13, 7), (13, 2)], "ab", "row 2 of 'a'"),
        ("block", "ab", ""),
    ],
)
def test_parities_name_one_client_where_all_that_is_wrong_is_its_own(entries, blamed, named):
    bits = rows(16, 32)
    places = column_ranges(dict.fromkeys("abcd", 4))
    matrix = distances_between(bits, bits)
    if entries == "block":  # a and b add one to all distances between them
        matrix[:4, 4:8] ^= 1
        matrix[4:8, :4] ^= 1
    else:
        for i, j in entries:
            matrix[[i, j], [j, i]] ^= 1
    for check in (
        lambda: require_bit_vectors(matrix, places, 32),
        lambda: require_parities(matrix, places, places),
    ):
        with pytest.raises(FaultyPeer) as caught:
            check()
        assert_blames(caught.value, tuple(blamed))
        assert named in str(caught.value)


def test_a_gram_matrix_that_fails_in_one_of_several_parts_names_the_pair(monkeypatch):
    monkeypatch.setattr(checks, "GRAM_ROWS", 40)
    bits = rows(80, 16)
    matrix = distances_between(bits, bits)
    opposite = 16 - matrix[79, :40]
    matrix[79, :40] = matrix[:40, 79] = opposite  # of the same parity, since L is even
    with pytest.raises(FaultyPeer, match="Gram") as caught:
        require_bit_vectors(matrix, column_ranges({"a": 40, "b": 0, "c": 40}), 16)
    assert_blames(caught.value, ("a", "c"))
