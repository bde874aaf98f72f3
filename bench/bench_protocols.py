"""The protocols alone: distances by every back end, and sums."""

from __future__ import annotations

import numpy as np
import pytest

from xclp_crypto import secure_hamming, secure_row_sums, secure_sum
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_crypto.protocols.secure_sum import MODES


@pytest.mark.parametrize("backend", sorted(BACKENDS))
@pytest.mark.benchmark(group="distances: 3 clients × 8 rows × 64 bits")
def test_small(benchmark, record, backend):
    rng = np.random.default_rng(0)
    bits = [rng.integers(0, 2, (8, 64)) for _ in range(3)]
    _, cost = benchmark.pedantic(secure_hamming, (bits, backend), rounds=3)
    record(cost)


@pytest.mark.parametrize("backend", ["plain", "masked", "rlwe"])
@pytest.mark.benchmark(group="distances: bit comparisons of 500 × 500 rows × 4096 bits")
def test_large(benchmark, record, backend):
    rng = np.random.default_rng(0)
    bits = [rng.integers(0, 2, (500, 4096)) for _ in range(2)]
    _, cost = benchmark.pedantic(secure_hamming, (bits, backend), rounds=5, warmup_rounds=1)
    record(cost, items=500 * 500 * 4096)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drop", [(), (0,)], ids=["all", "one drops out"])
@pytest.mark.benchmark(group="sums: of rows, 10 clients × 2500 rows × 10 columns")
def test_row_sums(benchmark, record, mode, drop):
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(2500, 10)) for _ in range(10)]
    rows = np.array_split(np.arange(2500), 10)
    options = {"mode": mode, "drop": drop}
    found = benchmark.pedantic(secure_row_sums, (values, rows), options, rounds=5, warmup_rounds=1)
    assert len(found.survivors) == 10 - len(drop)
    record(found.cost)


@pytest.mark.parametrize("bits", [32, 64], ids="{} bits".format)
@pytest.mark.benchmark(group="sums: 10 clients × 1,000,000 values, one drops out")
def test_sum(benchmark, record, bits):
    rng = np.random.default_rng(0)
    values = [rng.integers(-1000, 1000, 1_000_000) for _ in range(10)]
    options = {"drop": [0], "fraction_bits": 0, "modulus": 1 << bits}
    found = benchmark.pedantic(secure_sum, (values,), options, rounds=5, warmup_rounds=1)
    assert np.array_equal(found.total, sum(values[1:]))
    record(found.cost, items=10 * 1_000_000)
