"""Masks and shares of secure sums: gigabytes of mask per second and core, seconds per secret.

    make bench                                    # or: pytest bench/bench_masks.py -s

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
from xclp_crypto.rng import SystemRng

N = 10**6
THRESHOLD, SHARES = 7, 10


@pytest.mark.parametrize(
    "modulus", [1 << 64, 1 << 32, (1 << 61) - 1], ids=["2^64", "2^32", "2^61-1"]
)
def test_masks(benchmark, modulus):
    total = np.zeros(N, residue_dtype(modulus))
    key, tag = SystemRng().bytes(32), domain_tag("bench/masks")
    benchmark(accumulate, total, key, tag, modulus)
    assert total.any()
    benchmark.extra_info["gigabytes_per_second"] = total.nbytes / benchmark.stats["min"] / 1e9
    print(f"\nmasks modulo {modulus}: {benchmark.extra_info}")


def test_sharing(benchmark):
    rng = SystemRng()
    shares = benchmark(share_secret, rng.bytes(32), THRESHOLD, range(1, SHARES + 1), rng)
    assert len(shares) == SHARES
    benchmark.extra_info["milliseconds"] = 1e3 * benchmark.stats["median"]
    print(f"\nsharing {THRESHOLD} of {SHARES}: {benchmark.extra_info}")


@pytest.mark.parametrize("given", [THRESHOLD, SHARES], ids=["enough", "all"])
def test_recovering(benchmark, given):
    """From just enough shares, and from all, where the others are checked."""
    rng = SystemRng()
    secret = rng.bytes(32)
    shares = share_secret(secret, THRESHOLD, range(1, SHARES + 1), rng)[:given]
    assert benchmark(recover_secret, shares) == secret
    benchmark.extra_info["milliseconds"] = 1e3 * benchmark.stats["median"]
    print(f"\nrecovering from {given} of {SHARES}: {benchmark.extra_info}")
