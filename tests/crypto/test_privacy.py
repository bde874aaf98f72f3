"""Differential privacy of labels: sensitivity, noise, accounting, and what is refused."""

import math
import subprocess
import sys
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, get_sigma_gaussian
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from xclp_crypto.errors import DataError, EncodingOverflow, ParameterError
from xclp_crypto.primitives.discrete_gaussian import sample
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.privacy import (
    LabelPrivacy,
    RandomizedResponse,
    add_noise,
    concentrated,
    encode_label_sums,
    epsilon_spent,
    label_sensitivity,
    noise_bound,
    require_room,
)
from xclp_crypto.rng import SeededRng

TARGETS = list(product([0.01, 0.3, 1, 3, 10, 100, 700], [1e-12, 1e-5, 0.1]))
PRIVACY = LabelPrivacy(1.0, 1e-5, noise_contributors=4)


def signed(residues: np.ndarray) -> np.ndarray:
    return residues.view(np.int64 if residues.itemsize == 8 else np.int32).astype(np.int64)


def columns_of(seed: int, n: int, labels: int) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=(n, labels)) * 3


# Contributions and their sensitivity.


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 5), st.integers(2, 4), st.data())
def test_another_class_of_one_row_moves_the_sum_by_at_most_the_sensitivity(
    seed, n, labels, classes, data
):
    codec = FixedPoint(data.draw(st.integers(0, 40)), 3)
    columns = columns_of(seed, n, labels)
    codes = np.random.default_rng(seed + 1).integers(0, classes, labels)
    before = signed(encode_label_sums(columns, codes, classes, codec))
    moves = []
    for row, other in product(range(labels), range(classes)):
        changed = codes.copy()
        changed[row] = other
        after = signed(encode_label_sums(columns, changed, classes, codec))
        difference = [int(v) for v in (after - before).ravel()]
        moves.append(math.isqrt(sum(v * v for v in difference)))
        assert (np.count_nonzero(after - before, axis=1) <= 2).all()
    bound = label_sensitivity(columns, codec)
    assert max(moves) <= bound <= (max(moves) + 1) * (1 + 1e-8)


def test_sums_of_floats_would_move_by_more():
    """Why columns are rounded before they are added: float64 sums differ in their own rounding."""
    codec = FixedPoint(52 - 10, 2)
    columns = columns_of(0, 200, 300)
    codes = np.zeros(300, dtype=np.int64)
    changed = codes.copy()
    changed[7] = 1
    one_hot = np.eye(2)
    naive = signed(codec.encode(columns @ one_hot[changed])) - signed(
        codec.encode(columns @ one_hot[codes])
    )
    exact = signed(encode_label_sums(columns, changed, 2, codec)) - signed(
        encode_label_sums(columns, codes, 2, codec)
    )
    step = np.rint(np.ldexp(columns[:, 7], codec.fraction_bits)).astype(np.int64)
    assert np.array_equal(exact, np.column_stack([-step, step]))
    assert not np.array_equal(naive, exact)


@pytest.mark.parametrize("ring_bits", [64, 32])
def test_label_sums_are_the_scores_within_the_rounding_of_every_label(ring_bits):
    codec = FixedPoint(12, 4, 1 << ring_bits)
    columns, codes = columns_of(1, 20, 30), np.arange(30) % 5
    sums = codec.decode(encode_label_sums(columns, codes, 6, codec))
    assert sums.shape == (20, 6)
    assert np.abs(sums - columns @ np.eye(6)[codes]).max() <= 30 * 2.0**-13
    assert not sums[:, 5].any()


def test_a_client_without_labels_contributes_zeros():
    codec = FixedPoint()
    nothing = np.zeros((4, 0))
    assert not encode_label_sums(nothing, np.zeros(0, np.int64), 3, codec).any()
    assert label_sensitivity(nothing, codec) == 0


def test_overflow_is_refused_whatever_the_labels_are():
    codec = FixedPoint(40, 2)
    columns = np.full((2, 3), codec.max_abs / 2)
    messages = set()
    for codes in product(range(3), repeat=3):
        with pytest.raises(EncodingOverflow) as error:
            encode_label_sums(columns, np.array(codes), 3, codec, client="north")
        messages.add(str(error.value))
    assert len(messages) == 1
    assert "north" in messages.pop()
    encode_label_sums(columns[:, :2], np.array([0, 0]), 3, codec)


@pytest.mark.parametrize(
    ("columns", "codes", "error"),
    [
        (np.ones((2, 2)), np.array([0]), ParameterError),
        (np.ones(2), np.array([0, 1]), ParameterError),
        (np.ones((2, 2)), np.array([0, 3]), ParameterError),
        (np.ones((2, 2)), np.array([-1, 0]), ParameterError),
        (-np.ones((2, 2)), np.array([0, 0]), ParameterError),
        (np.full((2, 2), np.nan), np.array([0, 0]), DataError),
    ],
)
def test_wrong_contributions_are_refused(columns, codes, error):
    with pytest.raises(error):
        encode_label_sums(columns, codes, 3, FixedPoint())


@pytest.mark.parametrize("modulus", [1 << 31, 1 << 63, 1000])
def test_sums_are_modulo_2_to_the_32_or_64(modulus):
    """Their arrays wrap around by themselves."""
    codec = FixedPoint(4, 2, modulus)
    with pytest.raises(ParameterError, match=f"must be 2.32 or 2.64, got {modulus}"):
        encode_label_sums(np.ones((2, 2)), np.array([0, 1]), 3, codec)


# Accounting.


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_the_budget_is_used_up_and_never_exceeded(epsilon, delta):
    rho = LabelPrivacy(epsilon, delta, 1).rho()
    assert 0.999 * epsilon < epsilon_spent([rho], delta) <= epsilon
    assert epsilon_spent([1.01 * rho], delta) > epsilon


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_the_noise_is_that_of_a_gaussian_in_two_other_accountants(epsilon, delta):
    """The same Rényi curve in the library; and not below the exact one, nor far above it."""
    z = LabelPrivacy(epsilon, delta, 1).noise_multiplier()
    orders = 1 + np.geomspace(0.011, 1e7, 4000)
    renyi = RdpAccountant(orders).compose(GaussianDpEvent(z)).get_epsilon(delta)
    assert 0.98 * epsilon < renyi <= epsilon
    if delta < 0.1:
        assert 1 <= z / get_sigma_gaussian(epsilon, delta) < 1.25


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_one_client_against_the_tight_accounting_of_a_discrete_gaussian(sigma, delta):
    tight = privacy_loss_distribution.from_discrete_gaussian_mechanism(sigma, sensitivity=1)
    exact = tight.get_epsilon_for_delta(delta)
    ours = epsilon_spent([concentrated(1, sigma**2, 1, 50)], delta)
    assert 0.75 * ours < exact <= ours


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("contributors", [1, 2, 3, 8])
@pytest.mark.parametrize("step", [1, 3])
def test_the_sum_of_several_against_its_exact_renyi_divergence(sigma, contributors, step):
    x = np.arange(-40, 41)
    single = np.exp(-(x**2) / (2 * sigma**2))
    single /= single.sum()
    total = single
    for _ in range(contributors - 1):
        total = np.convolve(total, single)
    rho = concentrated(step, sigma**2, contributors, 1)
    for order in (1.5, 2.0, 4.0):
        p, q = total[step:], total[:-step]
        both = (p > 1e-290) & (q > 1e-290)
        logs = order * np.log(p[both]) + (1 - order) * np.log(q[both])
        divergence = special.logsumexp(logs) / (order - 1)
        assert divergence <= order * rho * (1 + 1e-9)


def test_the_price_of_sums_counts_on_coarse_grids_only():
    """τ of the theorem, by hand for three clients, and nothing for fine grids."""
    s2 = 0.5
    tau = 10 * (math.exp(-(math.pi**2) * s2) + math.exp(-4 / 3 * math.pi**2 * s2))
    expected = (2 / math.sqrt(3 * s2) + tau * math.sqrt(2 * 7)) ** 2 / 2
    assert concentrated(2, s2, 3, 7) == pytest.approx(expected, rel=1e-12)
    assert concentrated(2.0**40, 2.0**84, 9, 10**6) == pytest.approx(2.0**-4 / 18, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.5, 2.0**38), st.integers(1, 50), st.integers(1, 10**5), st.sampled_from(TARGETS))
def test_the_variance_keeps_the_budget_and_wastes_little(sensitivity, m, rows, target):
    epsilon, delta = target
    privacy = LabelPrivacy(epsilon, delta, m)
    variance = privacy.client_variance(sensitivity, rows)
    assert concentrated(sensitivity, variance, m, rows) <= privacy.rho()
    if variance > 100:
        noise = math.sqrt(m * variance) / sensitivity
        assert noise == pytest.approx(privacy.noise_multiplier(), rel=1e-6)


def test_composition_groups_and_contributors():
    rho, delta = PRIVACY.rho(), PRIVACY.delta
    once, twice = epsilon_spent([rho], delta), epsilon_spent([rho, rho], delta)
    assert once < twice < 2 * once
    assert epsilon_spent([4 * rho], delta) == pytest.approx(epsilon_spent([rho] * 4, delta))
    assert epsilon_spent([], delta) == 0
    variance = PRIVACY.client_variance(2.0**40, 100)
    spent = [
        epsilon_spent([concentrated(2.0**40, variance, m, 100)], delta) for m in (1, 2, 3, 4, 5)
    ]
    assert spent == sorted(spent, reverse=True)
    assert spent[3] <= PRIVACY.epsilon < spent[2]
    assert PRIVACY.min_clients == 5


def test_what_an_observer_sees_of_one_label_is_blurred_by_the_noise_multiplier():
    """Along the direction in which a label moves the sum, the noise of m clients is z steps."""
    codec = FixedPoint(30, 4)
    columns, codes = columns_of(2, 12, 3), np.array([0, 1, 1])
    variance = PRIVACY.client_variance(label_sensitivity(columns, codec), 12)
    clean = encode_label_sums(columns, codes, 3, codec)
    worst = int(np.argmax(np.linalg.norm(columns, axis=0)))
    changed = codes.copy()
    changed[worst] = 2
    step = signed(encode_label_sums(columns, changed, 3, codec) - clean).astype(float)
    total = np.repeat(clean[None], 2000, axis=0)
    for client in range(PRIVACY.noise_contributors):
        total = add_noise(total, variance, SeededRng(client))
    seen = (signed(total - clean) * step).sum(axis=(1, 2)) / (step**2).sum()
    z = PRIVACY.noise_multiplier()
    assert np.std(seen) == pytest.approx(z, rel=0.05)
    assert stats.kstest(seen / z, "norm").pvalue > 1e-3


# Noise in the ring.


@pytest.mark.parametrize("ring_bits", [64, 32])
def test_noise_is_added_in_the_ring(ring_bits):
    codec = FixedPoint(8, 2, 1 << ring_bits)
    encoded = codec.encode(np.linspace(-50, 50, 35).reshape(5, 7))
    noisy = add_noise(encoded, 400.0, SeededRng(3))
    assert noisy.dtype == codec.dtype
    assert np.array_equal(signed(noisy - encoded), sample(SeededRng(3), 400.0, (5, 7)))
    top = np.full(1000, codec.modulus - 1, codec.dtype)
    assert np.array_equal(
        signed(add_noise(top, 400.0, SeededRng(4))), sample(SeededRng(4), 400.0, 1000) - 1
    )


@pytest.mark.parametrize(("variance", "parties"), [(0.25, 1), (1.0, 3), (9.0, 2)])
def test_noise_exceeds_its_bound_with_less_than_2_to_the_minus_40(variance, parties):
    x = np.arange(-200, 201)
    single = np.exp(-(x**2) / (2 * variance))
    single /= single.sum()
    total = single
    for _ in range(parties - 1):
        total = np.convolve(total, single)
    middle, entries = len(total) // 2, 1000
    bound = noise_bound(variance, parties, entries)
    tail = 2 * total[middle + bound + 1 :].sum() * entries
    assert tail < 2.0**-40
    if variance >= 1:  # and not much wider than needed; smaller ones have lighter tails
        assert tail > 2.0**-60


def test_noise_without_room_is_refused_and_with_room_the_sum_is_right():
    sensitivity = 2.0**30
    variance = PRIVACY.client_variance(sensitivity, 100)
    codec = FixedPoint(26, parties=5)
    require_room(codec, 1e3, variance, 700)
    scores = np.random.default_rng(0).uniform(0, 200, (100, 7))
    total = sum(add_noise(codec.encode(scores), variance, SeededRng(client)) for client in range(5))
    error = codec.decode(total) - 5 * scores
    bound = math.ldexp(noise_bound(variance, 5, 700), -26)
    assert error.std() == pytest.approx(math.ldexp(math.sqrt(5 * variance), -26), rel=0.1)
    assert np.abs(error).max() < bound
    with pytest.raises(EncodingOverflow, match=r"need 3\d ring bits, there are 32"):
        require_room(FixedPoint(26, 5, 1 << 32), 1.0, variance, 700)
    with pytest.raises(EncodingOverflow, match=r"need 6\d ring bits, there are 64"):
        require_room(codec, 1e11, variance, 700)


def test_noise_that_does_not_fit_the_grid_is_refused():
    with pytest.raises(ParameterError, match="fewer fraction bits"):
        LabelPrivacy(0.001, 1e-9, 1).client_variance(2.0**50, 10)


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 1e-5, 2), "epsilon"),
        ((-1.0, 1e-5, 2), "epsilon"),
        ((math.inf, 1e-5, 2), "epsilon"),
        ((math.nan, 1e-5, 2), "epsilon"),
        ((701.0, 1e-5, 2), "epsilon"),
        (("1", 1e-5, 2), "epsilon"),
        ((True, 1e-5, 2), "epsilon"),
        ((1.0, 0.0, 2), "delta"),
        ((1.0, 1.0, 2), "delta"),
        ((1.0, math.nan, 2), "delta"),
        ((1.0, 1e-5, 0), "noise_contributors"),
        ((1.0, 1e-5, 2.0), "noise_contributors"),
        ((1.0, 1e-5, True), "noise_contributors"),
    ],
)
def test_parameters_out_of_range_are_refused(arguments, name):
    with pytest.raises(ParameterError, match=name):
        LabelPrivacy(*arguments)


def test_numpys_numbers_are_as_good_as_pythons():
    """Digests of agreements compare the repr."""
    given_by_numpy = LabelPrivacy(np.float64(1), np.float64(1e-5), np.int64(4))
    assert repr(given_by_numpy) == repr(LabelPrivacy(1, 1e-5, 4)) == repr(PRIVACY)


@pytest.mark.parametrize(
    "call",
    [
        lambda: PRIVACY.client_variance(0.0, 5),
        lambda: PRIVACY.client_variance(math.inf, 5),
        lambda: PRIVACY.client_variance(1.0, 0),
        lambda: concentrated(-1.0, 1.0, 1, 1),
        lambda: concentrated(1.0, 0.1, 1, 1),
        lambda: concentrated(1.0, math.nan, 1, 1),
        lambda: concentrated(1.0, 1.0, 0, 1),
        lambda: epsilon_spent([-1.0], 1e-5),
        lambda: epsilon_spent([math.inf], 1e-5),
        lambda: epsilon_spent([1.0], 0.0),
        lambda: noise_bound(math.nan, 1, 1),
        lambda: noise_bound(1.0, 0, 1),
        lambda: noise_bound(1.0, 1, 0),
        lambda: require_room(FixedPoint(), math.nan, 1.0, 1),
        lambda: add_noise(np.zeros(3, np.uint64), 0.0, SeededRng(0)),
    ],
)
def test_arguments_out_of_range_are_refused(call):
    with pytest.raises(ParameterError):
        call()


def test_without_the_accountant_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ParameterError, match=r"pip install 'xclp\[dp\]'"):
        epsilon_spent([1.0], 1e-5)
    with pytest.raises(ParameterError, match=r"pip install 'xclp\[dp\]'"):
        LabelPrivacy(1.5, 2e-5, 3).client_variance(1.0, 5)


def test_the_accountant_is_loaded_when_it_is_needed():
    script = "import sys, xclp_crypto.privacy as p; p.LabelPrivacy(1, 1e-5, 2); print(*sys.modules)"
    loaded = subprocess.run(  # noqa: S603 - a constant script
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "xclp_crypto.privacy" in loaded
    assert "dp_accounting" not in loaded


# Randomised response.


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_a_label_is_kept_or_becomes_any_other_with_the_right_odds(n_classes, epsilon):
    true, n = 1, 40_000
    codes = np.full(n, true)
    drawn = RandomizedResponse(epsilon).randomize(codes, n_classes, SeededRng(n_classes))
    counts = np.bincount(drawn, minlength=n_classes)
    keep = math.exp(epsilon) / (math.exp(epsilon) + n_classes - 1)
    expected = np.full(n_classes, n * (1 - keep) / (n_classes - 1))
    expected[true] = n * keep
    assert stats.chisquare(counts, expected).pvalue > 1e-4
    wrong = expected[[1, 0, *range(2, n_classes)]]
    assert epsilon < 0.5 or stats.chisquare(counts, wrong).pvalue < 1e-9


class FixedRng(SeededRng):
    """Gives one word for every label, and 0 for the choice among the others."""

    def __init__(self, word):
        super().__init__(0)
        self.word = word

    def residues(self, modulus, shape):
        value = self.word if modulus == 1 << 64 else 0
        return np.full(shape, value, dtype=np.uint64)


@pytest.mark.parametrize("n_classes", [2, 10, 1000])
@pytest.mark.parametrize("epsilon", [1e-9, 0.5, 5.0, 40.0, 700.0])
def test_the_odds_never_exceed_epsilon(n_classes, epsilon):
    """Find by bisection the first word that does not keep a label: all below it do."""
    response, low, high = RandomizedResponse(epsilon), 0, (1 << 64) - 1
    while high - low > 1:
        middle = (low + high) // 2
        kept = response.randomize(np.array([1]), n_classes, FixedRng(middle))[0] == 1
        low, high = (middle, high) if kept else (low, middle)
    keep = Fraction(high, 1 << 64)
    other = (1 - keep) / (n_classes - 1)
    assert keep / other <= Fraction(math.exp(epsilon)) * (1 + Fraction(1, 10**12))
    if epsilon <= 5:
        assert keep / other >= Fraction(math.exp(epsilon)) * (1 - Fraction(1, 10**9))


def test_randomised_response_refuses_what_is_no_class_or_epsilon():
    rng = SeededRng(0)
    response = RandomizedResponse(np.float32(2))
    assert response == RandomizedResponse(2.0)
    assert response.randomize(np.zeros(0, dtype=np.int64), 3, rng).shape == (0,)
    assert response.randomize(np.zeros(4, dtype=np.int64), 1, rng).tolist() == [0] * 4
    for codes in ([3], [-1]):
        with pytest.raises(ParameterError, match=r"0 … 2"):
            response.randomize(np.array(codes), 3, rng)
    for epsilon in (0, -1, math.nan, math.inf, 701, "1", True):
        with pytest.raises(ParameterError, match="epsilon"):
            RandomizedResponse(epsilon)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-300, 1e-5), (1e-100, 1e-300)])
def test_guarantees_that_are_too_small_to_compute_with_are_refused(epsilon, delta):
    with pytest.raises(ParameterError, match=f"epsilon = {epsilon} and delta = {delta} are too sm"):
        LabelPrivacy(epsilon, delta, 2).rho()


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_beyond_float64_are_refused(sign):
    huge = sign * 10**400
    for make in (
        lambda: RandomizedResponse(huge),
        lambda: LabelPrivacy(huge, 1e-5, 3),
        lambda: LabelPrivacy(1.0, huge, 3),
    ):
        with pytest.raises(
            ParameterError, match=r"(epsilon|delta) is too large for a number of 64"
        ):
            make()
    with pytest.raises(ParameterError, match="noise_contributors must be "):
        LabelPrivacy(1.0, 1e-5, huge)
