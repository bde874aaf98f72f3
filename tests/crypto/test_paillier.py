"""Paillier encryption: arithmetic, keys, arrays of ciphertexts, and phe as the oracle."""

import copy
import hashlib
import math
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import gmpy2
import numpy as np
import phe as python_paillier
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import (
    DataError,
    DecodeError,
    EncodingOverflow,
    ParameterError,
    XclpError,
)
from xclp_crypto.params import (
    INSECURE_TEST_128,
    INSECURE_TEST_512,
    PAILLIER_2048_112_BIT,
    PAILLIER_3072,
    PAILLIER_PARAMETERS,
    PaillierParameters,
)
from xclp_crypto.primitives.paillier import (
    Ciphertexts,
    EncryptedNumbers,
    PrivateKey,
    PublicKey,
    Slots,
    arithmetic,
    decrypt,
    decrypt_numbers,
    encrypt,
    encrypt_numbers,
    generate,
    phe,
)
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import same_distribution, uniformity

KEY = generate(SeededRng(1), INSECURE_TEST_512)
OTHER = generate(SeededRng(2), INSECURE_TEST_512)
N = int(KEY.public.n)
HALF = N // 2


@pytest.fixture(scope="module")
def full_key():
    return generate(SeededRng(3))


def rng(seed=0):
    return SeededRng(seed)


small = st.integers(-(2**200), 2**200)


# Arithmetic


def test_worker_processes_that_die_are_said(monkeypatch):
    def dies(items):
        raise BrokenProcessPool

    def pool(workers, max_tasks_per_child):
        return ThreadPoolExecutor(workers)

    monkeypatch.setattr(arithmetic, "ProcessPoolExecutor", pool)
    with pytest.raises(ParameterError, match="2 worker processes could not be started; guard the"):
        arithmetic.spread(dies, range(32), 2)


@settings(max_examples=60)
@given(st.integers(0, 9), st.integers(1, 9), st.integers(2, 2**90), st.data())
def test_fixed_base_powers_equal_plain_powers(count, length, modulus, data):
    exponents = np.frombuffer(
        data.draw(st.binary(min_size=count * length, max_size=count * length)), np.uint8
    )
    exponents = exponents.reshape(count, length)
    base = data.draw(st.integers(0, modulus - 1))
    got = arithmetic.powers(exponents, arithmetic.Comb(mpz(base), mpz(modulus), 8 * length))
    assert got == [pow(base, int.from_bytes(bytes(e), "little"), modulus) for e in exponents]


@settings(max_examples=60)
@given(
    st.integers(0, 40), st.integers(0, 60), st.sampled_from([0, 0.2, 0.5, 1]), st.integers(0, 99)
)
def test_subset_products_equal_plain_products(n, length, density, seed):
    source = np.random.default_rng(seed)
    rows = source.random((n, length)) < density
    values = [mpz(int(v)) for v in source.integers(1, 10**9, length)]
    modulus = mpz(10**9 + 7)
    got = arithmetic.subset_products(rows, values, modulus)
    assert got == [
        math.prod(v for v, b in zip(values, r, strict=True) if b) % modulus for r in rows
    ]


@given(st.lists(st.integers(1, 999), min_size=1, max_size=5), st.data())
def test_products_of_powers_equal_plain_ones(bases, data):
    exponents = st.integers(-(2**40), 2**40) | st.integers(-1, 1)
    factors = st.lists(st.tuples(st.integers(0, len(bases) - 1), exponents), max_size=6)
    rows = data.draw(st.lists(factors, max_size=4))
    modulus = mpz(10**9 + 7)
    found = arithmetic.products_of_powers(
        [[(i, mpz(e)) for i, e in row] for row in rows], [mpz(b) for b in bases], modulus
    )
    assert found == [math.prod(pow(bases[i], e, modulus) for i, e in r) % modulus for r in rows]


class Noted:
    """A number that notes in `lengths` how long the numbers are that it is multiplied with."""

    lengths: list[tuple[int, int]]

    def __init__(self, value):
        self.value = int(value)

    def __int__(self):
        return self.value

    def __mul__(self, other):
        self.lengths.append((self.value.bit_length() // 64, int(other).bit_length() // 64))
        return Noted(self.value * int(other))

    __rmul__ = __mul__

    def __mod__(self, modulus):
        return Noted(self.value % int(modulus))


def test_attack_16_the_work_of_an_evaluation_does_not_depend_on_its_rows(monkeypatch):
    """Equal rows took less time, since buckets without values cost nothing."""
    power = gmpy2.powmod
    monkeypatch.setattr(gmpy2, "powmod", lambda *numbers: Noted(power(*map(int, numbers))))
    source, square = np.random.default_rng(1), mpz(KEY.public.n) ** 2
    values = [v | (mpz(1) << 1000) for v in arithmetic.draw_below(mpz(1) << 1000, 30, rng())]
    work = []
    for rows in (source.random((9, 30)) < 0.5, np.ones((9, 30), bool), np.zeros((9, 30), bool)):
        Noted.lengths = []
        arithmetic.subset_products(rows, [Noted(v) for v in values], square)
        work.append(len(Noted.lengths))
        assert all(min(pair) >= 14 for pair in Noted.lengths)  # of 16 words
    assert work == work[:1] * 3


def test_work_spread_over_processes_gives_the_same_results():
    exponents = arithmetic.draw_exponents(40, 64, rng())
    comb = arithmetic.Comb(mpz(3), mpz(10**30 + 57), 64)
    alone = arithmetic.powers(exponents, comb)
    assert arithmetic.spread(arithmetic.powers, exponents, 2, comb) == alone
    with pytest.raises(ParameterError, match="workers must be at least 1, got 0"):
        arithmetic.spread(arithmetic.powers, exponents, 0, comb)


@pytest.mark.parametrize("modulus", [2, 3, 5, 8, 257, 1000])
def test_integers_drawn_below_a_bound_are_uniform(modulus):
    values = [int(v) for v in arithmetic.draw_below(mpz(modulus), 20 * modulus + 5000, rng())]
    assert uniformity(np.bincount(values, minlength=modulus)) > 1e-3


def test_primes_are_of_the_form_asked_for_and_differ():
    primes = {arithmetic.draw_prime(64, 64, rng(seed)) for seed in range(50)}
    assert len(primes) == 50
    for p in primes:
        assert gmpy2.is_prime(p)
        assert p % 4 == 3
        assert p >> 62 == 3
    # drawn afresh, not the next prime: the gap before a prime is not longer than the one after
    before = sum(int(p - gmpy2.prev_prime(p)) for p in primes)
    after = sum(int(gmpy2.next_prime(p) - p) for p in primes)
    assert before < 2 * after


# Keys


@pytest.mark.parametrize(
    "parameters", [INSECURE_TEST_128, INSECURE_TEST_512, PAILLIER_2048_112_BIT]
)
def test_generated_keys_are_as_damgard_jurik_and_nielsen_require(parameters):
    key = generate(rng(), parameters)
    p, q = key.export_primes()
    half = parameters.modulus_bits // 2
    assert key.public.n == p * q
    assert key.public.n.bit_length() == parameters.modulus_bits
    assert p.bit_length() == q.bit_length() == half
    assert abs(p - q) > 2 ** (half - 100)
    assert p % 4 == q % 4 == 3
    assert math.gcd(p - 1, q - 1) == 2
    assert math.gcd(p * q, (p - 1) * (q - 1)) == 1
    assert gmpy2.legendre(-key.public.h, p) == gmpy2.legendre(-key.public.h, q) == 1
    # h^n is an n-th residue: its order divides λ(n)
    lam = (p - 1) * (q - 1) // 2
    assert gmpy2.powmod(key.public.base, lam, key.public.n_squared) == 1


def test_keys_follow_from_the_randomness_alone():
    assert generate(rng(5), INSECURE_TEST_128).public == generate(rng(5), INSECURE_TEST_128).public
    assert generate(rng(5), INSECURE_TEST_128).public != generate(rng(6), INSECURE_TEST_128).public
    assert (
        len({KEY.public, OTHER.public, PublicKey.decode(KEY.public.encode(), INSECURE_TEST_512)})
        == 2
    )


def test_user_case_the_default_is_3072_bits_and_smaller_keys_need_a_name_that_says_insecure(
    full_key,
):
    assert full_key.public.n.bit_length() == 3072
    assert full_key.public.parameters == PAILLIER_3072
    for bits in (512, 1024, 2047):
        with pytest.raises(ParameterError, match=f"got {bits}"):
            generate(rng(), bits)
        with pytest.raises(ParameterError, match=f"at least 2048 bits, got {bits}"):
            PaillierParameters("my own", bits, 128)
        with pytest.raises(ParameterError):
            PublicKey((mpz(1) << bits) - 1)
    for name, parameters in PAILLIER_PARAMETERS.items():
        assert (parameters.modulus_bits < 2048) == name.startswith("INSECURE_TEST")
    assert "112-bit" in PAILLIER_2048_112_BIT.name
    with pytest.raises(ParameterError, match="multiple of 16"):
        PaillierParameters("INSECURE_TEST", 100, 0)
    with pytest.raises(DecodeError, match="512 bits where 3072"):
        PublicKey.decode(KEY.public.encode())


P, Q = KEY.export_primes()


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (N >> 1, "has 512 bits, got 511"),
        (N + 1, "odd"),
        (int(gmpy2.next_prime(N)), "prime"),
        (int(gmpy2.next_prime(P)) ** 2, "power"),
        (3 * int(gmpy2.next_prime(2**511 // 3)), "no factor below 4096"),
        (0, "got 0"),
        (-N, "positive"),
    ],
)
def test_numbers_that_are_no_modulus_are_refused(n, message):
    with pytest.raises(ParameterError, match=message):
        PublicKey(n, None, INSECURE_TEST_512)


@pytest.mark.parametrize("h", [0, 1, N - 1, N, -2, P, P * 4 % N])
def test_bases_that_are_no_randomisers_are_refused(h):
    with pytest.raises(ParameterError, match="Jacobi"):
        PublicKey(N, h, INSECURE_TEST_512)


def test_a_base_needs_a_modulus_of_the_right_form():
    p, q = gmpy2.next_prime(P), gmpy2.next_prime(Q)
    while p % 4 != 1:
        p = gmpy2.next_prime(p)
    while q % 4 != 3:
        q = gmpy2.next_prime(q)
    with pytest.raises(ParameterError, match="3 modulo 4"):
        PublicKey(p * q, 4, INSECURE_TEST_512)
    key = PrivateKey(p, q, PublicKey(p * q, None, INSECURE_TEST_512))
    assert decrypt(key, encrypt(key, [7, -7], rng())).tolist() == [7, -7]


def test_primes_that_do_not_belong_to_the_key_are_refused():
    for p, q in ((P, P), (P, OTHER.export_primes()[0]), (N, 1), (P * Q, 1)):
        with pytest.raises(ParameterError):
            PrivateKey(p, q, KEY.public)
    h = next(h for h in range(2, 99) if gmpy2.legendre(-h, P) == gmpy2.legendre(-h, Q) == -1)
    with pytest.raises(ParameterError, match="h = −x²"):
        PrivateKey(P, Q, PublicKey(N, h, INSECURE_TEST_512))


def test_keys_survive_the_way_over_bytes():
    public = PublicKey.decode(KEY.public.encode(), INSECURE_TEST_512)
    assert public == KEY.public
    assert len(KEY.public.encode()) == PublicKey.size(512) == 6 + 128
    private = PrivateKey.decode(KEY.export_secret(), INSECURE_TEST_512)
    assert private.public == KEY.public
    assert decrypt(private, encrypt(public, [1, -2], rng())).tolist() == [1, -2]


def test_factors_that_are_no_primes_are_refused():
    prime, other = gmpy2.next_prime(mpz(3) << 254), gmpy2.next_prime(mpz(7) << 253)
    composite = gmpy2.next_prime(mpz(15) << 124) * gmpy2.next_prime(mpz(7) << 125)
    assert prime.bit_length() == other.bit_length() == composite.bit_length() == 256
    for p, q in ((prime, composite), (composite, prime)):
        with pytest.raises(ParameterError, match="p and q must be prime"):
            PrivateKey(p, q, PublicKey(p * q, None, INSECURE_TEST_512))
    assert PrivateKey(prime, other, PublicKey(prime * other, None, INSECURE_TEST_512))


def test_a_generator_is_never_made_from_a_number_that_is_no_unit(monkeypatch):
    draws = iter([[mpz(0)], [mpz(3)]])
    monkeypatch.setattr(arithmetic, "draw_below", lambda n, count, rng: next(draws))
    key = generate(rng(4), INSECURE_TEST_128)
    assert key.public.h == -9 % key.public.n


@pytest.mark.parametrize("end", ["owner", "public key", "rerandomise"])
def test_user_case_without_h_no_randomiser_is_0_or_a_multiple_of_p(monkeypatch, end):
    p, q = map(mpz, KEY.export_primes())
    key = PrivateKey(p, q, PublicKey(p * q, None, INSECURE_TEST_512))
    sound = encrypt(key.public, [5, 6, 7], rng())
    draws = iter([[mpz(0), p, 5 * q], [mpz(3), mpz(0)], [mpz(4), mpz(5)]])
    monkeypatch.setattr(arithmetic, "draw_below", lambda n, count, rng: next(draws)[:count])
    if end == "rerandomise":
        made = sound.rerandomise(rng())
    else:
        made = encrypt(key if end == "owner" else key.public, [5, 6, 7], rng())
    assert decrypt(key, made).tolist() == [5, 6, 7]
    assert Ciphertexts.decode(made.encode(rng()), key.public).shape == (3,)


def test_user_case_secret_and_public_keys_cannot_be_confused():
    assert not issubclass(PrivateKey, PublicKey)
    assert not issubclass(PublicKey, PrivateKey)
    assert not hasattr(KEY, "encode")
    with pytest.raises(DecodeError, match="not a public Paillier key"):
        PublicKey.decode(KEY.export_secret(), INSECURE_TEST_512)
    with pytest.raises(DecodeError, match="not a secret Paillier key"):
        PrivateKey.decode(KEY.public.encode(), INSECURE_TEST_512)
    assert KEY.public != "KEY"
    ciphertexts = encrypt(KEY, [[1, 2]], rng())
    assert repr(ciphertexts) == f"<Ciphertexts of shape (1, 2) under {KEY.public!r}>"
    for text in (repr(KEY), str(KEY), f"{KEY}"):
        assert text == "<PrivateKey>"
    assert str(P) not in repr(KEY.public)


def test_user_case_public_keys_are_bytes_with_a_version_and_never_pickles():
    things = (KEY, KEY.public, encrypt(KEY, [1], rng()))
    for thing in things:
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError if thing is KEY else ParameterError):
                attempt(thing)
    for data in (KEY.public.encode(), KEY.export_secret(), things[2].encode(rng())):
        assert data[:2] == b"xP"
        assert data[3] == 1
        altered = data[:3] + b"\x02" + data[4:]
        with pytest.raises(DecodeError, match="version 1"):
            decode_any(altered)


def decode_any(data):
    if data[:3] == b"xPP":
        return PublicKey.decode(data, INSECURE_TEST_512)
    if data[:3] == b"xPS":
        return PrivateKey.decode(data, INSECURE_TEST_512)
    return Ciphertexts.decode(data, KEY.public)


ENCODED = (KEY.public.encode(), KEY.export_secret(), encrypt(KEY, [[5, 6]], rng()).encode(rng()))


@settings(max_examples=300)
@given(st.sampled_from(ENCODED), st.data())
def test_altered_bytes_decode_to_something_valid_or_raise_a_typed_error(data, draw):
    cut = draw.draw(st.integers(0, len(data)))
    altered = (
        data[:cut] + draw.draw(st.binary(max_size=4)) + data[cut + draw.draw(st.integers(0, 4)) :]
    )
    try:
        value = decode_any(altered)
    except DecodeError:
        return
    if isinstance(value, Ciphertexts):
        assert decrypt(KEY, value).shape == value.shape
    elif isinstance(value, PublicKey):
        assert encrypt(value, 1, rng()).shape == ()


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_typed_error(data):
    for decode in (
        lambda: PublicKey.decode(data, INSECURE_TEST_512),
        lambda: PrivateKey.decode(data, INSECURE_TEST_512),
        lambda: Ciphertexts.decode(data, KEY.public),
    ):
        with pytest.raises(DecodeError):
            decode()


# Homomorphic arithmetic


@settings(max_examples=50)
@given(st.lists(st.tuples(small, small), max_size=5), st.integers(-(2**100), 2**100))
def test_sums_differences_and_multiples(pairs, scalar):
    a, b = [p[0] for p in pairs], [p[1] for p in pairs]
    x, y = encrypt(KEY, a, rng(1)), encrypt(KEY.public, b, rng(2))
    assert decrypt(KEY, x + y).tolist() == [i + j for i, j in pairs]
    assert decrypt(KEY, x - y).tolist() == [i - j for i, j in pairs]
    assert decrypt(KEY, x + b).tolist() == [i + j for i, j in pairs]
    assert decrypt(KEY, b - x).tolist() == [j - i for i, j in pairs]
    assert decrypt(KEY, x * scalar).tolist() == [i * scalar for i in a]
    assert decrypt(KEY, scalar * x - scalar).tolist() == [i * scalar - scalar for i in a]
    assert decrypt(KEY, -x).tolist() == [-i for i in a]
    assert decrypt(KEY, (x + y).rerandomise(rng(3))).tolist() == [i + j for i, j in pairs]


def test_arrays_broadcast_and_are_indexed_as_in_numpy():
    values = np.arange(6).reshape(2, 3)
    x = encrypt(KEY, values, rng())
    assert (decrypt(KEY, x + np.array([[10], [20]])) == values + np.array([[10], [20]])).all()
    assert (decrypt(KEY, np.array([1, 2, 3]) * x) == values * [1, 2, 3]).all()
    assert (decrypt(KEY, np.int8(5) - x) == 5 - values).all()
    assert (decrypt(KEY, x[:, 1:]) == values[:, 1:]).all()
    assert decrypt(KEY, x[1, 2]).shape == ()
    assert decrypt(KEY, x[1, 2]).item() == 5
    assert (decrypt(KEY, x.reshape(3, 2)) == values.reshape(3, 2)).all()


MATRIX = np.array([[3, -1, 0], [2, 5, 7]])
VECTOR = np.array([4, -6, 9])


@pytest.mark.parametrize(
    "apply",
    [
        lambda v: np.dot([1, -2, 3], v(VECTOR)),
        lambda v: np.dot(v(MATRIX), VECTOR),
        lambda v: np.dot(5, v(VECTOR)),
        lambda v: np.inner(v(VECTOR), [1, 2, 3]),
        lambda v: np.inner(MATRIX, v(MATRIX)),
        lambda v: np.outer([1, 2], v(VECTOR)),
        lambda v: np.outer(v(MATRIX), [1, 2]),
        lambda v: np.tensordot(MATRIX, v(MATRIX), axes=([0, 1], [0, 1])),
        lambda v: MATRIX @ v(VECTOR),
        lambda v: v(MATRIX) @ VECTOR.tolist(),
        lambda v: np.matmul(MATRIX, v(MATRIX.T)),
        lambda v: np.zeros((2, 0), int) @ v(np.zeros((0, 3), int)),
        lambda v: np.sum(v(MATRIX), axis=0),
        lambda v: np.sum(v(MATRIX), keepdims=True),
        lambda v: v(MATRIX).sum(1) + v(MATRIX).sum(),
        lambda v: v(np.zeros((0, 2), int)).sum(axis=0),
        lambda v: sum(v(MATRIX)),
        lambda v: np.add(VECTOR, v(VECTOR)) - np.subtract(VECTOR, v(VECTOR)) * np.negative(1),
        lambda v: np.multiply(v(MATRIX), VECTOR),
        lambda v: np.concatenate([v(MATRIX), v(MATRIX[1:])]),
        lambda v: np.vstack([np.stack([v(VECTOR), v(VECTOR)]), v(MATRIX)]),
        lambda v: np.transpose(np.reshape(v(MATRIX), (3, 2))),
        lambda v: np.squeeze(np.expand_dims(np.broadcast_to(np.ravel(v(VECTOR)), (2, 3)), 1)),
    ],
)
def test_user_case_products_and_sums_of_numpy_are_right(apply):
    found = apply(lambda values: encrypt(KEY, values, rng()))
    expected = np.asarray(apply(np.asarray))
    assert found.shape == expected.shape
    assert decrypt(KEY, found).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "misuse",
    [
        lambda x: x == x,
        lambda x: x != 1,
        lambda x: np.array([1, 2, 3]) == x,
        lambda x: x > 1,
        lambda x: x >= [1, 2, 3],
        lambda x: 1 in x,
        lambda x: bool(x),
        lambda x: np.array(x),
        lambda x: np.array([x, x]),
        lambda x: np.asarray([x[0], 1]),
        lambda x: np.array([1, 2, 3]).dot(x),
        lambda x: encrypt(KEY, [x[0]], rng()),
        lambda x: x * x,
        lambda x: np.dot(x, x),
        lambda x: x @ x,
        lambda x: np.dot([1, 2], x),
        lambda x: x + np.array([1, 2]),
        lambda x: x * [1, 2],
        lambda x: x.reshape(2, 2),
        lambda x: x / 2,
        lambda x: x**2,
        lambda x: np.add.reduce(x),
        lambda x: np.exp(x),
        lambda x: np.mean(x),
        lambda x: np.sort(x),
        lambda x: np.array_equal(x, x),
        lambda x: np.sum(x, dtype=float),
        lambda x: np.sum(x, 0, float),
        lambda x: np.concatenate([x, [1, 2]]),
        lambda x: np.concatenate([x, encrypt(OTHER, [1], rng())]),
        lambda x: np.dot([1, 2, 3], x) + encrypt(OTHER, 1, rng()),
        lambda x: sum(x[0]),
    ],
)
def test_user_case_whatever_else_numpy_does_with_numbers_is_refused(misuse):
    with pytest.raises(ParameterError, match="ciphertext"):
        misuse(encrypt(KEY, [1, 2, 3], rng()))


def test_only_shapes_that_decode_are_encoded():
    for shape in ((1,) * 33, (0, 1 << 32)):
        with pytest.raises(ParameterError, match="cannot be encoded"):
            encrypt(KEY, np.zeros(shape, int), rng()).encode(rng())


def test_integers_are_refused_outside_of_the_range_and_kept_at_its_ends():
    ends = [-HALF, HALF]
    for key in (KEY, KEY.public):
        assert decrypt(KEY, encrypt(key, ends, rng())).tolist() == ends
        assert decrypt(
            KEY, encrypt(key, [N - 1, 0], rng(), signed=False), signed=False
        ).tolist() == [N - 1, 0]
        for bad in (-HALF - 1, HALF + 1, N, 2**2000):
            with pytest.raises(EncodingOverflow, match=r"plaintext \(1,\) has \d+ bits"):
                encrypt(key, [0, bad], rng())
    for bad in (-1, N):
        with pytest.raises(EncodingOverflow, match="range 0 to n − 1"):
            encrypt(KEY, bad, rng(), signed=False)
    x = encrypt(KEY, 1, rng())
    for operation in (lambda: x + N, lambda: x * N, lambda: x - N):
        with pytest.raises(EncodingOverflow):
            operation()
    # a sum beyond n/2 wraps, as documented
    assert decrypt(KEY, encrypt(KEY, HALF, rng()) + 1).item() == -HALF


def test_user_case_numpy_integers_booleans_and_arrays_of_any_shape_are_accepted():
    for dtype in (bool, np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64, object):
        for shape in ((), (1,), (3,), (2, 3), (2, 1, 2), (0,), (0, 7), (7, 0)):
            values = np.ones(shape, dtype=dtype)
            x = encrypt(KEY, values, rng())
            y = decrypt(KEY, x)
            assert x.shape == y.shape == shape
            assert x.size == values.size
            assert all(type(v) is int and v == 1 for v in y.reshape(-1))
            decoded = Ciphertexts.decode(x.encode(rng()), KEY.public)
            assert decoded.shape == shape
            assert (decrypt(KEY, decoded) == 1).all()
    for value in (1, True, np.int64(1), np.bool_(1), np.array(1), mpz(1), [[np.uint8(1)]]):
        assert decrypt(KEY, encrypt(KEY.public, value, rng())).item() == 1
    extremes = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    assert decrypt(KEY, encrypt(KEY, extremes, rng())).tolist() == extremes.tolist()
    assert decrypt(KEY, encrypt(KEY, [], rng())).shape == (0,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2.0], r"plaintext \(1,\) must be an integer, got float"),
        (np.zeros((0, 3)), "array of float64"),
        (1.0, "got float"),
        ("1", "got str"),
        ([[1], [1, 2]], "rectangular|got list"),
        ([np.zeros((2, 3), int), np.zeros((2, 4), int)], "must form a rectangular array"),
        ([None], "got NoneType"),
        (np.array([1 + 0j]), "complex128"),
    ],
)
def test_what_is_no_integer_is_refused_with_its_place(values, message):
    with pytest.raises(DataError, match=message):
        encrypt(KEY, values, rng())


def test_user_case_an_integer_stays_exact_to_the_end(full_key):
    big = 2**1100 + 1
    values = [big, -big, 2**63, -1, 2**64 - 1]  # NumPy alone would turn such a list into floats
    x = encrypt(full_key, values, rng())
    assert decrypt(full_key, x).tolist() == values
    assert decrypt(full_key, x * 3 + values).tolist() == [4 * v for v in values]
    y = Ciphertexts.decode(x.encode(rng()), full_key.public)
    assert decrypt(full_key, y).tolist() == values


def test_user_case_equal_inputs_never_give_equal_bytes():
    x = encrypt(KEY, [3, 3], rng(0))
    assert x[0].encode(rng(1)) != x[1].encode(rng(2))
    for result in (x, x + x, x + 1, x * 2, -x, x * 0, x * 1, x[:1], x.reshape(2, 1)):
        one, other = result.encode(rng(3)), result.encode(rng(4))
        assert one[:13] == other[:13]  # the same shape and key
        assert one[-128:] != other[-128:]
    # multiplying with 0 or adding to nothing leaves no fixed ciphertext behind
    assert int.from_bytes((x * 0).encode(rng(5))[-128:], "big") > 2**900
    # what was just encrypted goes out as it is, but only once
    fresh = encrypt(KEY, 3, rng(6))
    first = fresh.encode(rng(7))
    assert fresh.encode(rng(8)) != first


PLAINTEXTS = {"zero": mpz(0), "one": mpz(1), "large": mpz(2 * N // 3)}


def ciphertext_counts(key, plaintext, runs, seed):
    """Low and high digits of encryptions of one number, and of these modulo n, (4, 16) counts."""
    values = key.encrypt_residues([plaintext] * runs, rng(seed))
    units = [v % N for v in values]
    columns = [[int(v % 16) for v in some] for some in (values, units)]
    columns += [[int(16 * v // m) for v in some] for some, m in ((values, N * N), (units, N))]
    return np.array([np.bincount(c, minlength=16) for c in columns])


def ciphertext_p_values(key, runs):
    """Smallest corrected p-values: uniformity, and equality with encryptions of zero."""
    counts = [ciphertext_counts(key, m, runs, seed) for seed, m in enumerate(PLAINTEXTS.values())]
    uniform = min(map(uniformity, np.concatenate(counts))) * 4 * len(counts)
    zero, *others = counts
    same = min(p for other in others for p in map(same_distribution, zero, other))
    return uniform, same * 4 * len(others)


OWNER_AND_PUBLIC = pytest.mark.parametrize("key", [KEY, KEY.public], ids=["owner", "public"])


@OWNER_AND_PUBLIC
def test_ciphertexts_are_uniform_and_the_same_for_zero_and_other_numbers(key):
    uniform, same = ciphertext_p_values(key, 1500)
    assert uniform > 1e-3
    assert same > 1e-3


@OWNER_AND_PUBLIC
@pytest.mark.parametrize("bits", [0, 8])
def test_the_same_test_fails_with_exponents_that_are_zero_or_short(monkeypatch, key, bits):
    def short(count, length, source):
        exponents = arithmetic.draw_exponents(count, length, source).copy()
        exponents[:, bits // 8 :] = 0
        return exponents

    monkeypatch.setattr("xclp_crypto.primitives.paillier.keys.draw_exponents", short)
    values = key.encrypt_residues([mpz(7)] * 3, rng())
    assert KEY.decrypt_residues(values) == [7] * 3  # so only the ciphertexts show it
    uniform, same = ciphertext_p_values(key, 1500)
    assert uniform < 1e-9
    assert same < 1e-9 or bits


def test_owner_and_public_key_draw_randomisers_from_one_group():
    lam = (P - 1) * (Q - 1) // 2
    owner = KEY.encrypt_residues([mpz(0)] * 20, rng())
    for values in (
        owner,
        KEY.public.randomisers(20, rng()),
        KEY.public.randomisers(20, rng(), 1, 16),
    ):
        assert all(gmpy2.powmod(u, lam, KEY.public.n_squared) == 1 for u in values)
        assert len(set(values)) == 20


def test_without_h_the_owner_draws_what_the_public_key_does_only_faster():
    p, q = KEY.export_primes()
    key = PrivateKey(p, q, PublicKey(p * q, None, INSECURE_TEST_512))
    assert key.encrypt_residues([mpz(0)] * 9, rng()) == key.public.randomisers(9, rng())


def test_the_fingerprint_stays_what_it_is_in_files_that_exist():
    text = domain_tag("paillier public key", KEY.public.encode())
    assert KEY.public.fingerprint == hashlib.sha256(text).digest()[:8]


def test_exponents_that_re_randomise_are_long_enough(monkeypatch):
    lengths = []

    def powers(exponents, comb):
        lengths.append(8 * exponents.shape[1])
        return [mpz(1)] * len(exponents)

    monkeypatch.setattr("xclp_crypto.primitives.paillier.keys.powers", powers)
    KEY.public.randomisers(1, rng())
    KEY.public.randomisers(1, rng(), history_bits=16)
    KEY.public.encrypt_residues([mpz(1)], rng())
    KEY.encrypt_residues([mpz(1)], rng())
    assert lengths == [512 + 128, 256 + 16 + 128, 256, 256, 256]


FRESH = encrypt(KEY, [1, 2], rng())
ALONE = Slots(max_abs=8, packed=False)
NUMBERS = encrypt_numbers(KEY, [1.5, 2], ALONE, rng())
THEIRS = phe.public_key_to_phe(KEY.public)
SMALL = {"parameters": INSECURE_TEST_512}
OPEN = {"rng": rng(), "workers": 1}


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (generate, {"rng": rng(), **SMALL}),
        (PublicKey, {"n": N, "h": KEY.public.h, **SMALL}),
        (PublicKey.decode, {"data": KEY.public.encode(), **SMALL}),
        (PrivateKey, {"p": KEY._p, "q": KEY._q, "public": KEY.public}),
        (PrivateKey.decode, {"data": KEY.export_secret(), **SMALL}),
        (encrypt, {"key": KEY.public, **OPEN, "values": [1, 2]}),
        (decrypt, {"key": KEY, "ciphertexts": FRESH, "workers": 1}),
        (Ciphertexts.decode, {"data": FRESH.encode(rng()), "key": KEY.public}),
        ((FRESH + 0).encode, OPEN),
        (FRESH.sum, {"axis": 0}),
        (encrypt_numbers, {"key": KEY.public, "slots": Slots(8), **OPEN, "values": [1.5, 2]}),
        (decrypt_numbers, {"key": KEY, "numbers": NUMBERS, "workers": 1}),
        (
            EncryptedNumbers.decode,
            {"data": (NUMBERS * 2).encode(rng()), "key": KEY.public, "max_abs": 16.0},
        ),
        ((NUMBERS + 0).encode, OPEN),
        (NUMBERS.sum, {"axis": 0}),
        (ALONE.in_one, {"key": KEY.public}),
        (phe.public_key_to_phe, {"key": KEY.public}),
        (phe.public_key_from_phe, {"key": THEIRS, **SMALL}),
        (phe.private_key_to_phe, {"key": KEY}),
        (phe.private_key_from_phe, {"key": phe.private_key_to_phe(KEY), **SMALL}),
        (phe.ciphertexts_to_phe, {"ciphertexts": FRESH, "rng": rng()}),
        (phe.ciphertexts_from_phe, {"key": KEY.public, "numbers": (THEIRS.encrypt(1),)}),
        (phe.numbers_to_phe, {"numbers": NUMBERS, "rng": rng()}),
        (
            phe.numbers_from_phe,
            {"key": KEY.public, "slots": ALONE, "numbers": (THEIRS.encrypt(0.5),)},
        ),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_every_argument_of_another_kind_is_refused_with_a_typed_error(function, arguments):
    function(**arguments)
    kinds = [b"x", "x", -1.5, [1.0], object(), FRESH, NUMBERS, ALONE, THEIRS]
    kinds += [KEY, KEY.public, phe.private_key_to_phe(KEY)]
    for name, right in arguments.items():
        encrypting = name == "key" and function in (encrypt, encrypt_numbers)
        allowed = (PrivateKey, PublicKey) if encrypting else type(right)
        for wrong in kinds:
            if not isinstance(wrong, allowed):
                with pytest.raises(XclpError):
                    function(**{**arguments, name: wrong})


# Ciphertexts on the wire


def test_ciphertexts_of_another_key_are_refused():
    x = encrypt(KEY, 1, rng())
    y = encrypt(OTHER, 1, rng())
    for operation in (lambda: x + y, lambda: x - y, lambda: decrypt(OTHER, x)):
        with pytest.raises(ParameterError, match="key"):
            operation()
    with pytest.raises(DecodeError, match="another key"):
        Ciphertexts.decode(x.encode(rng()), OTHER.public)
    with pytest.raises(ParameterError, match="added, not multiplied"):
        x * x


SQUARE = N * N


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "ciphertext 1 is not in the range"),
        (SQUARE, "ciphertext 1 is not in the range"),
        (P, "factor in common"),
        (N, "factor in common"),
        (SQUARE - Q, "factor in common"),
    ],
)
def test_numbers_that_are_no_ciphertexts_are_refused(value, message):
    data = encrypt(KEY, [1, 2, 3], rng()).encode(rng())
    body = len(data) - 3 * 128
    altered = data[: body + 128] + value.to_bytes(128, "big") + data[body + 256 :]
    with pytest.raises(DecodeError, match=message):
        Ciphertexts.decode(altered, KEY.public)


def test_shapes_that_do_not_fit_the_bytes_are_refused_before_anything_is_reserved():
    data = encrypt(KEY, [1], rng()).encode(rng())
    huge = data[:12] + bytes([2]) + b"\xff" * 8 + data[17:]
    with pytest.raises(DecodeError, match="bytes where"):
        Ciphertexts.decode(huge, KEY.public)
    with pytest.raises(DecodeError, match="255 dimensions"):
        Ciphertexts.decode(data[:12] + b"\xff" + bytes(2000), KEY.public)
    empty = data[:12] + bytes([4]) + b"\xff" * 12 + bytes(4)
    with pytest.raises(DecodeError, match=r"no array of shape \(4294967295, .*, 0\)"):
        Ciphertexts.decode(empty, KEY.public)


# python-paillier as the oracle


@settings(max_examples=30)
@given(st.lists(small, min_size=1, max_size=4))
def test_phe_decrypts_what_we_encrypt(values):
    theirs = phe.private_key_to_phe(KEY)
    numbers = phe.ciphertexts_to_phe(encrypt(KEY, values, rng()) * 2 - 1, rng(1))
    assert [theirs.decrypt(c) for c in numbers] == [2 * v - 1 for v in values]


@settings(max_examples=30)
@given(st.lists(small, min_size=1, max_size=4))
def test_we_decrypt_what_phe_encrypts(values):
    theirs = phe.public_key_to_phe(KEY.public)
    numbers = [theirs.encrypt(v) * 2 + 1 for v in values]
    assert decrypt(KEY, phe.ciphertexts_from_phe(numbers, KEY.public)).tolist() == [
        2 * v + 1 for v in values
    ]


def test_keys_of_phe_work_here_and_back():
    public, private = python_paillier.generate_paillier_keypair(n_length=512)
    key = phe.private_key_from_phe(private, INSECURE_TEST_512)
    assert key.public == phe.public_key_from_phe(public, INSECURE_TEST_512)
    assert key.public.h is None
    values = [0, -1, 2**100]
    for k in (key, key.public):
        x = encrypt(k, values, rng())
        assert decrypt(key, x).tolist() == values
        assert [private.decrypt(c) for c in phe.ciphertexts_to_phe(x + 1, rng())] == [
            1,
            0,
            2**100 + 1,
        ]
    again = PrivateKey.decode(key.export_secret(), INSECURE_TEST_512)
    assert phe.private_key_to_phe(again) == private
    x = encrypt(key, 3, rng())
    assert x.encode(rng(1)) != (x + 0).encode(rng(2))


def test_a_full_size_key_agrees_with_phe(full_key):
    theirs = phe.private_key_to_phe(full_key)
    numbers = phe.ciphertexts_to_phe(encrypt(full_key, [5, -6], rng()), rng())
    assert [theirs.decrypt(c) for c in numbers] == [5, -6]
    back = phe.ciphertexts_from_phe([theirs.public_key.encrypt(2**1100)], full_key.public)
    assert decrypt(full_key, back).tolist() == [2**1100]


def test_numbers_of_phe_that_do_not_fit_are_refused():
    theirs = phe.public_key_to_phe(KEY.public)
    with pytest.raises(ParameterError, match="exponent -"):
        phe.ciphertexts_from_phe([theirs.encrypt(0.5)], KEY.public)
    with pytest.raises(ParameterError, match="another key"):
        phe.ciphertexts_from_phe([theirs.encrypt(1)], OTHER.public)
    with pytest.raises(DecodeError, match="factor in common"):
        phe.ciphertexts_from_phe([python_paillier.EncryptedNumber(theirs, P, 0)], KEY.public)
    with pytest.raises(ParameterError, match="3072 bits, got 512"):
        phe.public_key_from_phe(theirs)


def test_without_phe_only_its_functions_fail(monkeypatch):
    monkeypatch.setitem(sys.modules, "phe", None)
    for call in (
        lambda: phe.public_key_to_phe(KEY.public),
        lambda: phe.private_key_to_phe(KEY),
        lambda: phe.ciphertexts_to_phe(encrypt(KEY, 1, rng()), rng()),
    ):
        with pytest.raises(ParameterError, match=r"pip install 'xclp\[phe\]'"):
            call()
