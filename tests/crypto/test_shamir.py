"""Shamir's sharing: a published vector, MPyC as a second implementation, secrecy, refusals."""

import copy
import pickle
from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from gmpy2 import is_prime, next_prime
from hypothesis import given, settings
from hypothesis import strategies as st
from mpyc import thresha
from mpyc.finfields import GF
from scipy import stats

from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.params import SHAMIR_PRIME
from xclp_crypto.primitives import shamir
from xclp_crypto.primitives.shamir import (
    SHARE_BYTES,
    Share,
    evaluate,
    random_elements,
    recover_element,
    recover_secret,
    share_element,
    share_secret,
)
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import same_distribution, uniformity

SECRET = bytes(range(32))
P = SHAMIR_PRIME
secrets = st.binary(min_size=32, max_size=32) | st.sampled_from([bytes(32), b"\xff" * 32])


def rng(seed=0):
    return SeededRng(seed)


@st.composite
def sharings(draw):
    """A threshold and distinct indices, at least as many."""
    any_index = st.integers(1, 2**16 - 1) | st.integers(1, 12)
    indices = draw(st.lists(any_index, min_size=1, max_size=12, unique=True))
    return draw(st.integers(1, len(indices))), indices


# Correctness.


def test_the_prime_is_the_least_one_above_2_to_the_256():
    assert is_prime(P, 50)
    assert next_prime(2**256) == P == 2**256 + 297


def test_published_example_secret_1234_modulo_1613_with_coefficients_166_and_94():
    shares = {1: 1494, 2: 329, 3: 965, 4: 176, 5: 1188, 6: 775}
    assert evaluate([1234, 166, 94], list(shares), 1613) == list(shares.values())
    for some in combinations(shares.items(), 3):
        assert recover_element(dict(some), 3, 1613) == 1234
    assert recover_element(shares, 3, 1613) == 1234


@given(secrets, sharings(), st.randoms(use_true_random=False), st.integers(0, 2**32))
def test_any_t_or_more_shares_in_any_order_give_the_secret(secret, sharing, random, seed):
    threshold, indices = sharing
    shares = share_secret(secret, threshold, indices, rng(seed))
    assert [s.index for s in shares] == indices
    assert {s.threshold for s in shares} == {threshold}
    for count in (threshold, random.randint(threshold, len(shares)), len(shares)):
        assert recover_secret(random.sample(shares, count)) == secret


def test_every_subset_of_5_shares_gives_the_secret_if_and_only_if_it_has_3():
    shares = share_secret(SECRET, 3, [1, 2, 9, 400, 65535], rng())
    for size in range(6):
        for some in combinations(shares, size):
            if size >= 3:
                assert recover_secret(some) == SECRET
            else:
                with pytest.raises(DecodeError, match="needed"):
                    recover_secret(some)


@pytest.mark.parametrize(("threshold", "count"), [(1, 1), (1, 5), (2, 2), (7, 10), (40, 61)])
@pytest.mark.parametrize("prime", [P, 2**61 - 1, 101])
def test_mpyc_recombines_our_shares_and_we_recover_from_its(threshold, count, prime):
    field = GF(prime)
    indices = list(range(1, count + 1))
    for secret in (0, 1, 42, prime - 1):
        ours = share_element(secret, threshold, indices, prime, rng(secret % 1000))
        points = [(x, [field(y)]) for x, y in zip(indices, ours, strict=True)]
        for some in (points[:threshold], points[-threshold:], points):
            assert [s.value for s in thresha.recombine(field, some)] == [secret]
        theirs = [
            int(row[0]) for row in thresha.random_split(field, [secret], threshold - 1, count)
        ]
        shares = dict(zip(indices, theirs, strict=True))
        last = dict(list(shares.items())[-threshold:])
        assert recover_element(shares, threshold, prime) == secret
        assert recover_element(last, threshold, prime) == secret


def test_mpyc_recombines_the_encoded_shares_of_a_32_byte_secret_and_the_other_way_round():
    field = GF(P)
    shares = [Share.decode(s.encode()) for s in share_secret(SECRET, 7, range(3, 13), rng())]
    got = thresha.recombine(field, [(s.index, [field(s.value)]) for s in shares[2:9]])
    assert got[0].value.to_bytes(32, "big") == SECRET
    theirs = thresha.random_split(field, [int.from_bytes(SECRET, "big")], 6, 10)
    assert recover_secret([Share(i, 7, int(y[0])) for i, y in enumerate(theirs, 1)]) == SECRET


def test_sums_of_shares_are_shares_of_the_sum():
    one, two = (share_element(s, 3, [1, 2, 3, 4], P, rng(s)) for s in (10, 20))
    added = {x: (a + b) % P for x, a, b in zip([1, 2, 3, 4], one, two, strict=True)}
    assert recover_element(added, 3, P) == 30


def test_many_secrets_over_one_index_set_compute_its_coefficients_once():
    shamir._coefficients.cache_clear()
    for seed in range(20):
        secret = rng(seed).bytes(32)
        assert recover_secret(share_secret(secret, 5, [9, 4, 7, 3, 2, 6], rng(seed))) == secret
    info = shamir._coefficients.cache_info()
    assert (info.misses, info.hits) == (1, 19)


# Secrecy.


@pytest.mark.parametrize("known", [(1, 2), (2, 5), (6, 1)])
def test_two_of_three_needed_shares_are_equally_likely_whatever_the_secret_is(known):
    """All polynomials over Z_7: every pair of values occurs once for every secret."""
    for secret in range(7):
        seen = Counter(
            tuple(evaluate([secret, a, b], known, 7)) for a, b in product(range(7), repeat=2)
        )
        assert set(seen.values()) == {1}
        assert len(seen) == 49


def shares_of(secret, prime, seeds, broken=False):
    """Two shares of a threshold of 3, as one number, for many seeds."""
    source = rng(secret)
    for _ in range(seeds):
        a, b = share_element(secret, 3, [1, 2, 3], prime, source)[:2]
        yield (a * prime + (secret if broken else b)) % prime**2


def test_fewer_shares_than_the_threshold_are_uniform():
    counts = [np.bincount(list(shares_of(s, 5, 2000)), minlength=25) for s in range(5)]
    assert all(stats.chisquare(c).pvalue > 1e-3 for c in counts)
    assert stats.chi2_contingency(counts).pvalue > 1e-3
    # The same test notices a share that is the secret.
    leaking = [np.bincount(list(shares_of(s, 5, 500, True)), minlength=25) for s in range(5)]
    assert stats.chi2_contingency(np.array(leaking) + 1).pvalue < 1e-3


def field_counts(secret, runs, seed):
    """Two shares of a threshold of 3 in the field of 32-byte secrets, (6, 16) counts.

    High and low digits of each, together; and of each alone.
    """
    source, columns = rng(seed), []
    for _ in range(runs):
        a, b, _ = (s.value for s in share_secret(secret, 3, [1, 2, 3], source))
        high, low = ([16 * v // P for v in (a, b)], [v % 16 for v in (a, b)])
        together = [4 * (x // 4) + y // 4 for x, y in (high, low)]
        columns.append([*together, *high, *low])
    return np.array([np.bincount(c, minlength=16) for c in np.array(columns, dtype=int).T])


def field_p_values(runs):
    """Smallest corrected p-values: uniformity, and equality for two secrets."""
    one, other = (field_counts(s, runs, seed) for seed, s in enumerate((SECRET, bytes(32))))
    uniform = min(map(uniformity, np.concatenate([one, other]))) * 2 * len(one)
    return uniform, min(map(same_distribution, one, other)) * len(one)


def test_fewer_shares_than_the_threshold_are_uniform_in_the_field_of_secrets_too():
    uniform, same = field_p_values(1000)
    assert uniform > 1e-3
    assert same > 1e-3


@pytest.mark.parametrize("drawn", [0, 1])
def test_the_same_test_fails_with_too_few_random_coefficients(monkeypatch, drawn):
    monkeypatch.setattr(
        shamir,
        "random_elements",
        lambda count, *others: random_elements(drawn, *others) + [0] * (count - drawn),
    )
    assert recover_secret(share_secret(SECRET, 3, [1, 2, 3], rng())) == SECRET
    uniform, same = field_p_values(300)
    assert uniform < 1e-9
    assert same < 1e-9 or drawn


def test_shares_of_different_secrets_drawn_alike_differ_by_the_secret_only():
    """f − g is constant, so the other coefficients do not depend on the secret."""
    for secret in (0, 1, 2**255):
        a = share_element(secret, 4, [1, 2, 3, 4, 5], P, rng())
        b = share_element(7, 4, [1, 2, 3, 4, 5], P, rng())
        assert {(x - y) % P for x, y in zip(a, b, strict=True)} == {(secret - 7) % P}


class Scripted(SeededRng):
    """Gives prescribed bytes first."""

    def __init__(self, first):
        super().__init__(0)
        self.first = first

    def bytes(self, n):
        given, self.first = self.first[:n], self.first[n:]
        return given + super().bytes(n - len(given))


def test_elements_are_drawn_by_rejection():
    # 0 … 254 accepts 251·1, so 251 … 255 are rejected modulo 251; modulo 5 only 255 is.
    assert random_elements(3, 251, Scripted(bytes([250, 251, 255, 0, 7]))) == [250, 0, 7]
    assert random_elements(3, 5, Scripted(bytes([254, 255, 3, 0]))) == [4, 3, 0]
    limit = 255 * P
    scripted = b"".join(x.to_bytes(33, "big") for x in (limit, limit - 1, 2**264 - 1, P, P - 1))
    assert random_elements(3, P, Scripted(scripted)) == [P - 1, 0, P - 1]
    assert random_elements(0, P, rng()) == []


@pytest.mark.parametrize("prime", [2, 3, 5, 251, 257, 1613])
def test_elements_are_uniform(prime):
    counts = np.bincount(random_elements(100 * prime, prime, rng()), minlength=prime)
    assert len(counts) == prime
    assert 1e-3 < stats.chisquare(counts).pvalue < 1 - 1e-3


def test_elements_of_the_large_field_fill_it_evenly():
    draws = random_elements(20_000, P, rng())
    assert max(draws) < P
    buckets = np.bincount([draw * 64 // P for draw in draws], minlength=64)
    assert 1e-3 < stats.chisquare(buckets).pvalue < 1 - 1e-3
    assert len(set(draws)) == len(draws)


def test_every_coefficient_is_random_the_leading_one_too():
    """The leading coefficient by Lagrange; a constant or zero one would lower the threshold."""
    leading = set()
    for seed in range(10):
        y = share_element(5, 3, [1, 2, 3], P, rng(seed))
        leading.add((y[0] - 2 * y[1] + y[2]) * pow(2, -1, P) % P)
    assert len(leading) == 10
    assert 0 not in leading


# Refusals: what the caller asks for.


@pytest.mark.parametrize(
    ("threshold", "indices", "message"),
    [
        (4, [1, 2, 3], "threshold 4 is above the number of shares, 3"),
        (1, [], "above the number of shares, 0"),
        (0, [1, 2, 3], "threshold must be .* got 0"),
        (-1, [1, 2, 3], "threshold must be .* got -1"),
        (2**16, [1, 2, 3], "threshold must be"),
        (2.0, [1, 2, 3], "threshold must be"),
        (True, [1, 2, 3], "threshold must be"),
        (2, [1, 2, 2], r"distinct, got \[1, 2, 2\]"),
        (2, [1, 0, 2], "index must be .* got 0"),
        (2, [1, -1, 2], "index must be .* got -1"),
        (2, [1, 2**16, 2], "index must be .* got 65536"),
        (2, [1, 2.0, 3], "index must be .* got 2.0"),
    ],
)
def test_user_case_t_above_n_and_duplicate_or_zero_indices_are_refused(threshold, indices, message):
    with pytest.raises(ParameterError, match=message):
        share_secret(SECRET, threshold, indices, rng())


@pytest.mark.parametrize(
    ("share", "message"),
    [
        ((0, 1, 5), "index must be .* got 0"),
        ((2**16, 1, 5), "index must be .* got 65536"),
        ((1, 0, 5), "threshold must be .* got 0"),
        ((1, 2**16, 5), "threshold must be .* got 65536"),
        ((1, 1, -1), "element of the field"),
        ((1, 1, P), "element of the field"),
        ((1, 1, 1.5), "element of the field"),
    ],
)
def test_shares_out_of_range_cannot_be_made(share, message):
    with pytest.raises(ParameterError, match=message):
        Share(*share)


@pytest.mark.parametrize(
    ("secret", "got"), [(bytes(31), 31), (bytes(33), 33), (b"", 0), ([0] * 32, "list")]
)
def test_secrets_of_another_length_or_type_are_refused(secret, got):
    with pytest.raises(ParameterError, match=f"32 bytes, got {got}"):
        share_secret(secret, 2, [1, 2], rng())


def test_elements_and_indices_outside_of_the_field_are_refused():
    for secret in (-1, 7, 8, 1.5, "1"):
        with pytest.raises(DecodeError, match="element of the field"):
            recover_element({1: 1, 2: secret}, 2, 7)
        with pytest.raises(ParameterError, match="element of the field"):
            share_element(secret, 2, [1, 2], 7, rng())
    with pytest.raises(ParameterError, match="below the prime 7, got 7"):
        share_element(1, 2, [1, 7], 7, rng())
    for index in (0, 7, -1):
        with pytest.raises(DecodeError, match=f"1 … 6, got {index}"):
            recover_element({1: 1, index: 1}, 2, 7)
    with pytest.raises(ParameterError, match="threshold"):
        recover_element({1: 1}, 0, 7)


# Refusals: what peers send.


def test_user_case_the_threshold_is_stored_with_the_shares_and_enforced():
    shares = share_secret(SECRET, 7, range(1, 11), rng())
    assert all(Share.decode(s.encode()).threshold == 7 for s in shares)
    with pytest.raises(DecodeError, match="6 shares where 7 are needed"):
        recover_secret(shares[:6])
    with pytest.raises(DecodeError, match="at least 1"):
        recover_secret([])
    with pytest.raises(DecodeError, match=r"different thresholds: \[6, 7\]"):
        recover_secret([*shares[:9], replace(shares[9], threshold=6)])
    lowered = [replace(s, threshold=6) for s in shares]
    with pytest.raises(DecodeError, match="one polynomial of degree 5"):
        recover_secret(lowered)


def test_two_shares_of_one_index_are_refused_even_if_they_are_equal():
    shares = share_secret(SECRET, 2, [5, 6, 7], rng())
    for twice in ([shares[0], shares[0]], [*shares, replace(shares[0], value=3)]):
        with pytest.raises(DecodeError, match="same index"):
            recover_secret(twice)


@given(st.integers(0, 9), st.integers(1, P - 1))
@settings(max_examples=50)
def test_one_wrong_share_among_more_than_needed_is_noticed(position, change):
    shares = share_secret(SECRET, 7, range(1, 11), rng())
    wrong = shares[position]
    shares[position] = replace(wrong, value=(wrong.value + change) % P)
    with pytest.raises(DecodeError, match="at least one of them is wrong"):
        recover_secret(shares)


def test_a_result_of_more_than_32_bytes_is_refused():
    for number in (2**256, P - 1):
        values = share_element(number, 2, [1, 2, 3], P, rng())
        with pytest.raises(DecodeError, match="more than 32 bytes"):
            recover_secret([Share(x, 2, y) for x, y in zip([1, 2, 3], values, strict=True)])
    values = share_element(2**256 - 1, 2, [1, 2, 3], P, rng())
    full = recover_secret([Share(x, 2, y) for x, y in zip([1, 2, 3], values, strict=True)])
    assert full == b"\xff" * 32


# Bytes.


@given(st.integers(1, 2**16 - 1), st.integers(1, 2**16 - 1), st.integers(0, P - 1))
def test_a_share_has_37_bytes_and_comes_back(index, threshold, value):
    share = Share(index, threshold, value)
    data = share.encode()
    assert len(data) == SHARE_BYTES == 37
    assert data.hex() == f"{index:04x}{threshold:04x}{value:066x}"
    assert Share.decode(data) == share


@given(st.binary(max_size=40) | st.binary(min_size=37, max_size=37))
def test_random_bytes_are_refused_or_are_the_encoding_of_what_they_decode_to(data):
    try:
        share = Share.decode(data)
    except DecodeError:
        return
    assert share.encode() == data


def test_bytes_of_no_share_are_refused():
    good = Share(1, 2, 3).encode()
    top = (P - 1).to_bytes(33, "big")
    assert Share.decode(good[:4] + top).value == P - 1
    for bad, message in [
        (good[:-1], "37 bytes, got 36"),
        (good + b"\0", "37 bytes, got 38"),
        (b"", "37 bytes, got 0"),
        (b"\0\0" + good[2:], "index"),
        (good[:2] + b"\0\0" + good[4:], "threshold"),
        (good[:4] + P.to_bytes(33, "big"), "element of the field"),
        (good[:4] + b"\xff" * 33, "element of the field"),
    ]:
        with pytest.raises(DecodeError, match=message):
            Share.decode(bad)
    for fields in [(0, 1, 1), (1, 0, 1), (1, 1, P), (1, 1, -1), (2**16, 1, 1), (1, 2**16, 1)]:
        with pytest.raises(ParameterError):
            Share(*fields)


def test_shares_show_nothing_and_are_neither_pickled_nor_copied_nor_changed():
    value = 123456789123456789
    share = Share(1, 2, value)
    assert repr(share) == str(share) == "<Share>"
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret"):
            duplicate(share)
    with pytest.raises(AttributeError):
        share.value = 3


def test_no_error_shows_a_value():
    shares = share_secret(SECRET, 2, [1, 2, 3], rng())
    wrong = [*shares[:2], replace(shares[2], value=1)]
    for some in (
        shares[:1],
        wrong,
        [*shares, shares[0]],
        [replace(shares[0], threshold=1), *shares],
    ):
        with pytest.raises(DecodeError) as error:
            recover_secret(some)
        for share in shares:
            assert str(share.value) not in str(error.value)
    with pytest.raises(DecodeError) as error:
        Share.decode(b"\0\1\0\1" + b"\xff" * 33)
    assert str(2**264 - 1) not in str(error.value)
