"""Paillier: encryption and keys against phe, and distances on it, with their baselines alongside.

    make bench                                    # or: pytest bench/bench_paillier.py -s

Seconds of the parties are CPU seconds of this process, so that both parties' work is counted and
other load on the machine is not. The largest case, 500 × 500 × 4096 at 3072 bits, takes half a
minute.
"""

from __future__ import annotations

from time import process_time

import numpy as np
import phe as python_paillier
import pytest

from xclp_crypto import secure_hamming
from xclp_crypto.params import PAILLIER_2048_112_BIT, PAILLIER_3072
from xclp_crypto.primitives.paillier import (
    Slots,
    decrypt,
    decrypt_numbers,
    encrypt,
    encrypt_numbers,
    generate,
    phe,
)
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


@SETS
def test_one_number_per_call_against_phe(benchmark, parameters):
    rng, count = SystemRng(), 20
    key = generate(rng, parameters)
    theirs = phe.public_key_to_phe(key.public)
    encryptions = {
        "owner": lambda: [encrypt(key, v, rng) for v in range(count)],
        "public key": lambda: [encrypt(key.public, v, rng) for v in range(count)],
        "phe": lambda: [theirs.encrypt(v) for v in range(count)],
    }
    first = {name: cpu_seconds(run)[0] / count for name, run in encryptions.items()}  # makes tables
    taken = {name: [] for name in encryptions}

    def each() -> None:
        for name, run in encryptions.items():
            taken[name].append(cpu_seconds(run)[0] / count)

    benchmark.pedantic(each, rounds=7)
    ms = {name: 1e3 * float(np.median(seconds)) for name, seconds in taken.items()}
    benchmark.extra_info |= {f"{name}_ms": value for name, value in ms.items()}
    benchmark.extra_info |= {f"{name}_first_{count}_ms": 1e3 * s for name, s in first.items()}
    for name in ("owner", "public key"):
        ratios = np.array(taken["phe"]) / np.array(taken[name])
        benchmark.extra_info[f"{name}_median_ratio_to_phe"] = float(np.median(ratios))
    print(f"\n{parameters.name}: ms per number, one per call: {benchmark.extra_info}")


@SETS
def test_keys_against_phe(benchmark, parameters):
    """Search for many keys, since one may take ten times as long as another."""
    ours, phes = [], []
    keys = {2048: 200, 3072: 60}[parameters.modulus_bits]

    def pair() -> None:
        ours.append(cpu_seconds(generate, SystemRng(), parameters)[0])
        bits = parameters.modulus_bits
        phes.append(cpu_seconds(python_paillier.generate_paillier_keypair, n_length=bits)[0])

    benchmark.pedantic(pair, rounds=keys)
    for name, average in (("median", np.median), ("mean", np.mean)):
        benchmark.extra_info |= {
            f"{name}_ms": 1e3 * float(average(ours)),
            f"{name}_phe_ms": 1e3 * float(average(phes)),
            f"ratio_of_{name}s_to_phe": float(average(phes) / average(ours)),
        }
    print(f"\n{parameters.name}: ms per key: {benchmark.extra_info}")


@SETS
def test_vectors_of_numbers_against_phe(benchmark, parameters):
    """Encrypt 20 × 240 numbers, multiply with a 10 × 20 matrix, and decrypt; phe does a part."""
    rng, source, part = SystemRng(), np.random.default_rng(0), 2
    key = generate(rng, parameters)
    public, private = phe.public_key_to_phe(key.public), phe.private_key_to_phe(key)
    values, weights = source.uniform(-1, 1, (20, 240)), source.uniform(-1, 1, (10, 20))
    slots = Slots(max_abs=1)
    taken = {}

    def note(who: str, step: str, columns: int, function, *args):
        seconds, result = cpu_seconds(function, *args)
        taken.setdefault(step, {}).setdefault(who, []).append(seconds / columns)
        return result

    def ours() -> None:
        x = note("ours", "encrypt", 240, encrypt_numbers, key, values, slots, rng)
        y = note("ours", "multiply", 240, lambda: weights @ x)
        found = note("ours", "decrypt", 240, decrypt_numbers, key, y)
        assert np.abs(found - weights @ values).max() < y.error_bound

    def theirs() -> None:
        some = values[:, :part].tolist()
        x = note("phe", "encrypt", part, lambda: [[public.encrypt(v) for v in r] for r in some])
        y = note("phe", "multiply", part, lambda: weights @ np.array(x))
        note("phe", "decrypt", part, lambda: [private.decrypt(c) for c in y.reshape(-1)])

    def pair() -> None:
        ours()
        theirs()

    benchmark.pedantic(pair, rounds=3, warmup_rounds=1)
    for step, seconds in taken.items():
        ms = {who: 1e3 * float(np.median(of)) for who, of in seconds.items()}
        benchmark.extra_info |= {f"{step}_{who}_ms": value for who, value in ms.items()}
        benchmark.extra_info[f"{step}_ratio_to_phe"] = ms["phe"] / ms["ours"]
    print(f"\n{parameters.name}: ms per column: {benchmark.extra_info}")


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
