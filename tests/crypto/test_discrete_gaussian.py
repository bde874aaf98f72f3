"""The discrete Gaussian sampler against its exact probabilities."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

from xclp_crypto.errors import ParameterError
from xclp_crypto.primitives import discrete_gaussian
from xclp_crypto.primitives.discrete_gaussian import sample
from xclp_crypto.rng import SeededRng, SystemRng

SIGMAS = [0.5, 0.8, 1.0, 1.7, 4.2, 20.0]
LARGE = [2.0**20, 2.0**45, 2.0**50]
N = 200_000


def pmf(sigma: float) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(-math.ceil(20 * sigma), math.ceil(20 * sigma) + 1)
    weights = np.exp(-(x.astype(float) ** 2) / (2 * sigma**2))
    return x, weights / weights.sum()


def fit(samples: np.ndarray, sigma: float) -> float:
    """p-value of the samples under the exact probabilities, rare values pooled."""
    x, p = pmf(sigma)
    counts = np.array([(samples == v).sum() for v in x])
    assert counts.sum() == samples.size
    common = p * samples.size >= 20
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(p[common], p[~common].sum()) * samples.size
    if expected[-1] < 5:
        observed, expected = observed[:-1], expected[:-1]
        expected *= observed.sum() / expected.sum()
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_small_ones_have_the_exact_probabilities(sigma):
    assert fit(sample(SeededRng(1), sigma**2, N), sigma) > 1e-3


@pytest.mark.parametrize("sigma", SIGMAS[:-1])
def test_the_same_test_fails_for_a_rounded_normal_and_for_a_slightly_wider_one(sigma):
    """What the test above can see: rounding a normal is not a discrete Gaussian."""
    if sigma < 1:
        normal = np.random.default_rng(0).normal(scale=sigma, size=N)
        assert fit(np.rint(normal).astype(int), sigma) < 1e-6
    assert fit(sample(SeededRng(1), (1.02 * sigma) ** 2, N), sigma) < 1e-6


@pytest.mark.parametrize("sigma", LARGE)
def test_large_ones_are_normal_in_moments_tail_and_shape(sigma):
    x = sample(SeededRng(2), sigma**2, N) / sigma
    assert stats.kstest(x, "norm").pvalue > 1e-3
    assert abs(x.mean()) < 4 / math.sqrt(N)
    assert abs(x.var() - 1) < 4 * math.sqrt(2 / N)
    assert abs((x**4).mean() - 3) < 4 * math.sqrt(96 / N)
    for k in (2, 3, 4):
        expected = 2 * stats.norm.sf(k) * N
        assert abs((np.abs(x) > k).sum() - expected) < 4 * math.sqrt(expected) + 1


@pytest.mark.parametrize("sigma", LARGE)
def test_every_integer_occurs_down_to_the_lowest_bit(sigma):
    """Scaled floats would leave holes."""
    residues = sample(SeededRng(3), sigma**2, N) % 256
    assert stats.chisquare(np.bincount(residues, minlength=256)).pvalue > 1e-3


@pytest.mark.parametrize("sigma", [0.5, 3.0, 2.0**45])
def test_signs_are_fair(sigma):
    x = sample(SeededRng(4), sigma**2, N)
    positive, negative = int((x > 0).sum()), int((x < 0).sum())
    assert stats.binomtest(positive, positive + negative).pvalue > 1e-3
    assert stats.ks_2samp(x[x > 0], -x[x < 0]).pvalue > 1e-3


@pytest.mark.parametrize("parties", [2, 7])
def test_sums_of_several_have_the_convolved_probabilities(parties):
    sigma = 1.5
    _, p = pmf(sigma)
    sums = p
    for _ in range(parties - 1):
        sums = np.convolve(sums, p)
    total = sample(SeededRng(5), sigma**2, (parties, N)).sum(axis=0)
    middle = len(sums) // 2
    counts = np.bincount(np.clip(total, -9, 9) + 9, minlength=19)
    expected = sums[middle - 9 : middle + 10].copy()
    expected[0], expected[-1] = sums[: middle - 8].sum(), sums[middle + 9 :].sum()
    assert stats.chisquare(counts, expected * N).pvalue > 1e-3


@pytest.mark.parametrize("sigma", [0.5, 3.0, 2.0**45, 2.0**50])
def test_float_decisions_are_the_exact_ones(sigma, monkeypatch):
    """With every decision in doubt, all are made by MPFR; the samples are the same."""
    fast = sample(SeededRng(6), sigma**2, 2000)
    monkeypatch.setattr(discrete_gaussian, "_DOUBT", 2.0)
    assert np.array_equal(sample(SeededRng(6), sigma**2, 2000), fast)


def test_a_word_that_equals_the_probability_is_decided_by_more_bits():
    x, level, variance = 5, 1, 6.5
    with localcontext(prec=60):
        scaled = 2**level * (-(Decimal(x) ** 2) / (2 * Decimal(variance))).exp() * 2**64
        word, rest = int(scaled), float(scaled - int(scaled))
    decide = discrete_gaussian._is_accepted
    assert decide(SeededRng(0), word - 1, x, level, variance)
    assert not decide(SeededRng(0), word + 1, x, level, variance)
    n = 4000
    accepted = sum(decide(SeededRng(i), word, x, level, variance) for i in range(n))
    assert stats.binomtest(accepted, n, rest).pvalue > 1e-3
    assert 0.1 < rest < 0.9


def test_a_seed_gives_the_same_samples_in_any_shape_and_every_seed_others():
    first = sample(SeededRng(7), 100.0, (30, 20))
    assert first.dtype == np.int64
    assert np.array_equal(first.ravel(), sample(SeededRng(7), 100.0, 600))
    assert not np.array_equal(first, sample(SeededRng(8), 100.0, (30, 20)))
    assert not np.array_equal(sample(SystemRng(), 100.0, 600), sample(SystemRng(), 100.0, 600))


@pytest.mark.parametrize("shape", [0, (0, 3), (), (2, 3, 4)])
def test_shapes(shape):
    assert sample(SeededRng(0), 4.0, shape).shape == (shape if isinstance(shape, tuple) else (0,))


def test_many_batches_are_independent():
    n = 3 * discrete_gaussian._BATCH
    x = sample(SeededRng(9), 2.0**60, n).astype(float)
    half = n // 2
    assert abs(np.corrcoef(x[:half], x[half:])[0, 1]) < 5 / math.sqrt(half)
    assert len(np.unique(x)) > 0.99 * n


@pytest.mark.parametrize("variance", [0.0, -1.0, 0.2, 2.0**101, math.inf, math.nan])
def test_variances_out_of_range_are_refused(variance):
    with pytest.raises(ParameterError, match="2\\^-2"):
        sample(SeededRng(0), variance, 3)


def test_proposals_never_exceed_a_probability_of_one():
    """What makes the rejection right: 2^V·exp(−(t·V)²/(2σ²)) ≤ 1 at the start of every step."""
    for sigma in [0.5, 0.84, 0.85, 1.0, 3.3, 1000.5, 2.0**50]:
        t = math.ceil(sigma * discrete_gaussian._STEP)
        for level in range(63):
            assert level * math.log(2) <= (t * level / sigma) ** 2 / 2
