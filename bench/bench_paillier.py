"""Paillier: encryption and keys against phe, and distances on it, with their baselines alongside.

The largest case, 500 × 500 × 4096 at 3072 bits, takes half a minute.
"""

from __future__ import annotations

from functools import partial

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
    "parameters", [PAILLIER_2048_112_BIT, PAILLIER_3072], ids=["2048 bits", "3072 bits"]
)


@SETS
@pytest.mark.benchmark(group="Paillier: 4096 encryptions by the key's owner")
def test_encryption(beside, record, parameters):
    rng, count, few = SystemRng(), 4096, 40
    key = generate(rng, parameters)
    theirs = phe.public_key_to_phe(key.public)
    values = np.arange(count)

    def by_phe():
        for value in values[:few]:
            theirs.encrypt(int(value))

    encrypted, ratio = beside(by_phe, encrypt, key, values, rng, rounds=3)
    assert (decrypt(key, encrypted[:few]) == values[:few]).all()
    record(items=count, phe_takes=count / few / ratio)


@SETS
@pytest.mark.benchmark(group="Paillier: 500 numbers, by anybody and back")
@pytest.mark.parametrize("way", ["encryption", "decryption"])
def test_public(benchmark, record, parameters, way):
    rng, values = SystemRng(), np.arange(500)
    key = generate(rng, parameters)
    if way == "encryption":
        benchmark.pedantic(encrypt, (key.public, values, rng), rounds=2)
    else:
        encrypted = encrypt(key, values, rng)
        assert (benchmark.pedantic(decrypt, (key, encrypted), rounds=2) == values).all()
    record(items=len(values))


@SETS
@pytest.mark.parametrize("by", ["owner", "anybody"])
@pytest.mark.benchmark(group="Paillier: 20 encryptions, one number in each call")
def test_calls(beside, record, parameters, by):
    rng, values = SystemRng(), range(20)
    key = generate(rng, parameters)
    theirs = phe.public_key_to_phe(key.public)
    own = key if by == "owner" else key.public

    def ours():
        for value in values:
            encrypt(own, value, rng)

    ours()  # makes tables
    _, ratio = beside(lambda: [theirs.encrypt(value) for value in values], ours, rounds=7)
    record(items=len(values), phe_takes=1 / ratio)


@pytest.mark.parametrize(
    ("parameters", "keys"),
    [(PAILLIER_2048_112_BIT, 200), (PAILLIER_3072, 60)],
    ids=["2048 bits", "3072 bits"],
)
@pytest.mark.benchmark(group="Paillier: keys, one of which may take ten times as long as another")
def test_keys(beside, record, parameters, keys):
    theirs = partial(python_paillier.generate_paillier_keypair, n_length=parameters.modulus_bits)
    _, ratio = beside(theirs, generate, SystemRng(), parameters, rounds=keys, average=np.mean)
    record(items=1, phe_takes_on_average=1 / ratio)


@SETS
@pytest.mark.parametrize("step", ["encryption", "product", "decryption"])
@pytest.mark.benchmark(
    group="Paillier: 240 columns of 20 packed numbers, and 10 × 20 matrix times them"
)
def test_columns(beside, record, parameters, step):
    """Of phe's work only two columns are done."""
    rng, source, columns, few = SystemRng(), np.random.default_rng(0), 240, 2
    key = generate(rng, parameters)
    public, private = phe.public_key_to_phe(key.public), phe.private_key_to_phe(key)
    values, weights = source.uniform(-1, 1, (20, columns)), source.uniform(-1, 1, (10, 20))
    slots = Slots(max_abs=1)
    x = encrypt_numbers(key, values, slots, rng)
    y = weights @ x
    assert np.abs(decrypt_numbers(key, y) - weights @ values).max() < y.error_bound
    phe_x = np.array([[public.encrypt(v) for v in row] for row in values[:, :few].tolist()])
    phe_y = weights @ phe_x
    theirs, ours = {
        "encryption": (
            lambda: [public.encrypt(v) for v in values[:, :few].ravel().tolist()],
            lambda: encrypt_numbers(key, values, slots, rng),
        ),
        "product": (lambda: weights @ phe_x, lambda: weights @ x),
        "decryption": (
            lambda: [private.decrypt(c) for c in phe_y.ravel()],
            lambda: decrypt_numbers(key, y),
        ),
    }[step]
    _, ratio = beside(theirs, ours, rounds=3)
    record(items=columns, phe_takes=columns / few / ratio)


CASES = [
    (Paillier, PAILLIER_3072, 3, 3, 128),
    (PaillierPacked, PAILLIER_3072, 50, 50, 256),
    (PaillierPacked, PAILLIER_2048_112_BIT, 200, 200, 4096),
    (PaillierPacked, PAILLIER_3072, 500, 500, 4096),
]


@pytest.mark.parametrize(
    ("backend", "parameters", "n", "m", "n_bits"),
    CASES,
    ids=[f"{b.name}, {p.modulus_bits}, {n} x {m} x {bits}" for b, p, n, m, bits in CASES],
)
@pytest.mark.benchmark(group="Paillier: bit comparisons of distances")
def test_distances(beside, record, backend, parameters, n, m, n_bits):
    rng = np.random.default_rng(0)
    bits = [rng.integers(0, 2, (rows, n_bits)).astype(np.uint8) for rows in (n, m)]
    expected, _ = secure_hamming(bits, "plain")
    (got, cost), ratio = beside(
        lambda: secure_hamming(bits, "plain"), secure_hamming, bits, backend(parameters), rounds=1
    )
    assert np.array_equal(got, expected)
    record(cost, items=n * m * n_bits, times_plain=ratio)
