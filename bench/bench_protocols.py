"""The protocols alone: distances by every back end, transfers, and sums."""

from __future__ import annotations

import numpy as np
import pytest

from xclp_crypto import secure_hamming, secure_row_sums
from xclp_crypto.protocols.hamming import BACKENDS


@pytest.mark.parametrize("backend", sorted(BACKENDS))
@pytest.mark.benchmark(group="hamming, 3 clients × 8 rows × 64 bits")
def test_hamming_small(benchmark, backend):
    rng = np.random.default_rng(0)
    bits = [rng.integers(0, 2, (8, 64)) for _ in range(3)]
    _, cost = benchmark.pedantic(secure_hamming, args=(bits, backend), rounds=5, warmup_rounds=1)
    benchmark.extra_info["bytes"] = cost.total_bytes


@pytest.mark.parametrize("backend", ["plain", "masked", "rlwe"])
@pytest.mark.benchmark(group="hamming, 500 × 500 rows × 4096 bits")
def test_hamming_large(benchmark, backend):
    rng = np.random.default_rng(0)
    bits = [rng.integers(0, 2, (500, 4096)) for _ in range(2)]
    _, cost = benchmark.pedantic(secure_hamming, args=(bits, backend), rounds=5, warmup_rounds=1)
    benchmark.extra_info["bytes"] = cost.total_bytes
    speed = 500 * 500 * 4096 / benchmark.stats.stats.median
    benchmark.extra_info["bit_comparisons_per_second"] = speed
    print(f"\n{backend}: {speed:.2e} bit comparisons per second, {cost.total_bytes / 1e6:.1f} MB")


@pytest.mark.benchmark(group="row sums, 10 clients × 2500 rows × 10 columns")
def test_row_sums(benchmark):
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(2500, 10)) for _ in range(10)]
    rows = np.array_split(np.arange(2500), 10)
    _, cost = benchmark.pedantic(secure_row_sums, args=(values, rows), rounds=5, warmup_rounds=1)
    benchmark.extra_info["bytes"] = cost.total_bytes
