"""Masks and shares of secure sums, and the noise of private ones, without any messages.

Each run of a mask adds 10^6 residues to a total that is there already, key derivation included.
Recovering reuses the coefficients of its index set, as a server does for many secrets.
"""

from __future__ import annotations

import numpy as np
import pytest

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.prg import accumulate
from xclp_crypto.algebra.ring import residue_dtype
from xclp_crypto.primitives.shamir import recover_secret, share_secret
from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse, add_noise
from xclp_crypto.rng import SystemRng

N = 10**6
THRESHOLD, SHARES = 7, 10


@pytest.mark.parametrize(
    "modulus", [1 << 64, 1 << 32, (1 << 61) - 1], ids=["2^64", "2^32", "2^61 - 1"]
)
@pytest.mark.benchmark(group="sums: masks of 1,000,000 values")
def test_masks_modulo(benchmark, record, modulus):
    total = np.zeros(N, residue_dtype(modulus))
    benchmark(accumulate, total, SystemRng().bytes(32), domain_tag("bench/masks"), modulus)
    assert total.any()
    record(items=N)


@pytest.mark.benchmark(group=f"sums: shares of a secret, {THRESHOLD} of {SHARES}")
def test_sharing(benchmark, record):
    rng = SystemRng()
    shares = benchmark(share_secret, rng.bytes(32), THRESHOLD, range(1, SHARES + 1), rng)
    assert len(shares) == SHARES
    record(items=1)


@pytest.mark.parametrize("given", [THRESHOLD, SHARES], ids="from {}".format)
@pytest.mark.benchmark(group=f"sums: shares of a secret, {THRESHOLD} of {SHARES}")
def test_recovering(benchmark, record, given):
    """From just enough shares, and from all, where the others are checked."""
    rng = SystemRng()
    secret = rng.bytes(32)
    shares = share_secret(secret, THRESHOLD, range(1, SHARES + 1), rng)[:given]
    assert benchmark(recover_secret, shares) == secret
    record(items=1)


@pytest.mark.benchmark(group="noise: of 10,000 rows, ε = 3")
def test_noise_in_10_classes(benchmark, record):
    """What a client adds to its scores; the variance is that of ten clients."""
    variance = LabelPrivacy(3, 1e-5, 9).client_variance(2.0**16, 10_000)
    scores = np.zeros((10_000, 10), np.uint64)
    assert benchmark(add_noise, scores, variance, SystemRng()).any()
    record(items=scores.size)


@pytest.mark.benchmark(group="noise: of 10,000 rows, ε = 3")
def test_randomised_labels(benchmark, record):
    labels = np.zeros(10_000, np.int64)
    assert benchmark(RandomizedResponse(3).randomize, labels, 10, SystemRng()).any()
    record(items=len(labels))
