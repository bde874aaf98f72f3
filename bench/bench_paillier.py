"""Paillier: encryption against phe, and Hamming distances on it, each with its baseline alongside.

    make bench                                    # or: pytest bench/bench_paillier.py -s

Seconds of the parties are CPU seconds of this process, so that both parties' work is counted and
other load on the machine is not. The largest case, 500 × 500 × 4096 at 3072 bits, takes half a
minute.
"""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest

from xclp_crypto import secure_hamming
from xclp_crypto.params import PAILLIER_2048_112_BIT, PAILLIER_3072
from xclp_crypto.primitives.paillier import decrypt, encrypt, generate, phe
from xclp_crypto.protocols.hamming.paillier import Paillier
from xclp_crypto.protocols.hamming.paillier_packed import PaillierPacked
from xclp_crypto.rng import SystemRng

SETS = pytest.mark.parametrize(
    "parameters", [PAILLIER_2048_112_BIT, PAILLIER_3072], ids=["2048", "3072"]
)


def cpu_seconds(function, *args, **kwargs):
    started = process_time()
    result = function(*args, **kwargs)
    return process_time() - started, result


@SETS
def test_encryption_against_phe(benchmark, parameters):
    """Alternate the two, so that the ratio holds when the machine's speed drifts."""
    rng, count, few = SystemRng(), 4096, 40
    key = generate(rng, parameters)
    theirs = phe.public_key_to_phe(key.public)
    values = np.arange(count)
    ours, phes = [], []

    def pair() -> None:
        ours.append(cpu_seconds(encrypt, key, values, rng)[0] / count)
        phes.append(cpu_seconds(lambda: [theirs.encrypt(int(v)) for v in values[:few]])[0] / few)

    benchmark.pedantic(pair, rounds=3)
    public, encrypted = cpu_seconds(encrypt, key.public, values[:500], rng)
    opening, opened = cpu_seconds(decrypt, key, encrypted)
    assert (opened == values[:500]).all()
    ratios = np.array(phes) / np.array(ours)
    benchmark.extra_info |= {
        "owner_ms": 1e3 * float(np.median(ours)),
        "phe_ms": 1e3 * float(np.median(phes)),
        "public_key_ms": 2e0 * public,
        "decrypt_ms": 2e0 * opening,
        "median_ratio_to_phe": float(np.median(ratios)),
    }
    print(f"\n{parameters.name}: ms per number: {benchmark.extra_info}")


CASES = [
    (Paillier, PAILLIER_3072, 3, 3, 128),
    (PaillierPacked, PAILLIER_3072, 50, 50, 256),
    (PaillierPacked, PAILLIER_2048_112_BIT, 200, 200, 4096),
    (PaillierPacked, PAILLIER_3072, 500, 500, 4096),
]


@pytest.mark.parametrize(
    ("backend", "parameters", "n", "m", "n_bits"),
    CASES,
    ids=[f"{b.name}-{p.modulus_bits}-{n}x{m}x{bits}" for b, p, n, m, bits in CASES],
)
def test_hamming(benchmark, backend, parameters, n, m, n_bits):
    rng = np.random.default_rng(0)
    bits = [rng.integers(0, 2, (rows, n_bits)).astype(np.uint8) for rows in (n, m)]
    plain, (expected, _) = cpu_seconds(secure_hamming, bits, "plain")
    seconds, (got, cost) = benchmark.pedantic(
        cpu_seconds, args=(secure_hamming, bits, backend(parameters)), rounds=1
    )
    assert np.array_equal(got, expected)
    benchmark.extra_info |= {
        "cpu_seconds": seconds,
        "bit_comparisons_per_second": n * m * n_bits / seconds,
        "bytes": cost.total_bytes,
        "ratio_to_plain": seconds / plain,
    }
    print(f"\n{backend.name} {parameters.name} {n}×{m}×{n_bits}: {benchmark.extra_info}")
