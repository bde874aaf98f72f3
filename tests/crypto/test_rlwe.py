"""Ring-LWE: exact products, right decryptions, bounds that are what they claim, views that hide."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rlwe_noise import flood_quantiles, noise_of
from scipy import stats
from scipy.integrate import quad

from xclp_crypto import secure_hamming
from xclp_crypto.errors import ParameterError, XclpError
from xclp_crypto.params import MAX_HASH_BITS, RLWE_SETS, RlweParameters
from xclp_crypto.primitives import rlwe, rlwe_packed
from xclp_crypto.primitives.rlwe_packed import Packing
from xclp_crypto.protocols.hamming.rlwe import (
    BLOCK_ROWS,
    Rlwe,
    blocks,
    owner_first,
    require_between,
    require_sizes,
    roles_of,
)
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import same_distribution, uniformity

SMALL, LARGE = RLWE_SETS
N = RlweParameters.degree


def ring_of(parameters: RlweParameters, seed: int = 0) -> rlwe.Ring:
    return rlwe.Ring.from_tag(bytes([seed]) * 32, b"test", parameters)


def public_digits(ring: rlwe.Ring) -> np.ndarray:
    """Return the digits of a and a', (2, digits, N) int64, from their transforms."""
    folded = np.fft.ifft(ring.digits, axis=-1)
    return np.rint(rlwe._unfold(folded, N)).astype(np.int64)


def negacyclic(a: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Multiply modulo x^N + 1 in integers: the oracle for the FFT."""
    product = np.convolve(a, f)
    product = np.concatenate([product, np.zeros(2 * N - len(product), dtype=np.int64)])
    return product[:N] - product[N:]


def whole(limbs: list[np.ndarray], bits: int, modulus: int) -> list[int]:
    """Return numbers given as limbs as Python integers."""
    rows = zip(*(limb.ravel().tolist() for limb in limbs), strict=True)
    return [sum(v << (bits * i) for i, v in enumerate(row)) % modulus for row in rows]


# --- ring products


@pytest.mark.parametrize("parameters", RLWE_SETS, ids=lambda p: p.name)
def test_products_equal_integer_arithmetic(parameters):
    ring = ring_of(parameters)
    rng = SeededRng(1)
    u, rho = rlwe.ternary(rng, (2, N)), rlwe.ternary(rng, (2, N))
    modulus, width = 1 << parameters.modulus_bits, parameters.limb_bits // 2
    a, b = public_digits(ring)
    first, second = ring.products(u)
    both = ring.sum_of_products(u, rho)
    for row in range(2):
        expected_a = [negacyclic(d, u[row].astype(np.int64)) for d in a]
        expected_b = [negacyclic(d, u[row].astype(np.int64)) for d in b]
        expected_rho = [negacyclic(d, rho[row].astype(np.int64)) for d in b]
        total = [x + y for x, y in zip(expected_a, expected_rho, strict=True)]
        for got, expected in ((first, expected_a), (second, expected_b), (both, total)):
            assert whole([limb[row] for limb in got], parameters.limb_bits, modulus) == whole(
                expected, width, modulus
            )


@pytest.mark.parametrize("parameters", RLWE_SETS, ids=lambda p: p.name)
def test_products_are_exact_at_the_extremes(parameters):
    """All digits and all factors as large as they get, where rounding errors are largest."""
    extreme = -(1 << (parameters.limb_bits // 2 - 1))
    digits = np.full((2, 2 * parameters.limbs, N), extreme)
    ring = rlwe.Ring(parameters, np.fft.fft(rlwe._fold(digits, N), axis=-1))
    ones = np.ones((1, N), dtype=np.int8)
    expected = 2 * negacyclic(digits[0, 0], ones[0].astype(np.int64))
    total = ring.sum_of_products(ones, ones)
    width = parameters.limb_bits // 2
    for limb in total:
        assert (limb[0] == expected + (expected << width)).all()


def test_an_inexact_transform_is_noticed():
    ring = ring_of(SMALL)
    broken = dataclasses.replace(ring, digits=ring.digits * (1 + 1e-7))
    with pytest.raises(XclpError, match="not exact"):
        broken.products(rlwe.ternary(SeededRng(0), (1, N)))
    bits = np.ones((1, 8), np.uint8)
    for work in (rlwe.encrypt, rlwe.prepare):  # in threads
        with pytest.raises(XclpError, match="not exact"):
            work(SeededRng(0), broken, bits)


def test_public_polynomials_are_fixed_by_seed_and_label():
    assert np.array_equal(ring_of(SMALL).digits, ring_of(SMALL).digits)
    assert not np.array_equal(ring_of(SMALL).digits, ring_of(SMALL, seed=1).digits)
    other = rlwe.Ring.from_tag(bytes(32), b"other", SMALL)
    assert not np.array_equal(ring_of(SMALL).digits, other.digits)


# --- distributions


def test_ternary_entries_are_uniform():
    counts = np.bincount(rlwe.ternary(SeededRng(2), (300_000,)) + 1, minlength=3)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_errors_are_centred_binomial():
    eta = RlweParameters.error_bits
    errors = rlwe.binomial_error(SeededRng(3), (200_000,), eta)
    counts = np.bincount(errors + eta, minlength=2 * eta + 1)
    expected = stats.binom.pmf(np.arange(2 * eta + 1), 2 * eta, 0.5) * errors.size
    common = expected > 20
    assert stats.chisquare(
        np.append(counts[common], counts[~common].sum()),
        np.append(expected[common], expected[~common].sum()),
    ).pvalue > 1e-4  # fmt: skip
    assert math.sqrt(eta / 2) > 3.2


def errors_of(limbs: list[np.ndarray], exact: list[np.ndarray], p: RlweParameters) -> np.ndarray:
    """Return limbs minus exact ones, as centred numbers modulo q."""
    q = 1 << p.modulus_bits
    difference = rlwe.carried([a - b for a, b in zip(limbs, exact, strict=True)], p.limb_bits)
    numbers = whole(difference, p.limb_bits, q)
    return np.array([v - q if v > q // 2 else v for v in numbers], dtype=object)


def require_binomial(errors: np.ndarray) -> None:
    """Check that errors are small and vary as they should: hiding rests on these."""
    eta = RlweParameters.error_bits
    assert max(abs(errors)) <= eta
    assert np.var(errors.astype(float)) == pytest.approx(eta / 2, rel=0.1)


@pytest.mark.parametrize("parameters", RLWE_SETS, ids=lambda p: p.name)
def test_ciphertexts_are_products_with_the_secret_and_one_error_each(parameters):
    ring, n = ring_of(parameters), parameters.degree
    bits = np.random.default_rng(1).integers(0, 2, (3, 100)).astype(np.uint8)
    secrets, limbs = rlwe.encrypt(SeededRng(5), ring, bits)
    s = secrets.reshape(3, -1, n)[:, :, ::-1]
    b, zero = ring.products(s)
    b[parameters.delta_bits // parameters.limb_bits] += rlwe.chunked(
        bits.astype(np.int8), parameters
    ).astype(np.int64) << (parameters.delta_bits % parameters.limb_bits)
    exact = [
        np.concatenate([x.reshape(3, -1)[:, :100], y.reshape(3, -1)], axis=1)
        for x, y in zip(b, zero, strict=True)
    ]
    require_binomial(errors_of(limbs, exact, parameters))


@pytest.mark.parametrize("parameters", RLWE_SETS, ids=lambda p: p.name)
def test_the_evaluators_first_half_is_a_sum_of_products_and_one_error_each(parameters, monkeypatch):
    ring, n = ring_of(parameters), parameters.degree
    bits = np.random.default_rng(1).integers(0, 2, (2, 100)).astype(np.uint8)
    switched, seen = rlwe.switched, []

    def noting(limbs, p):
        seen.append([limb.copy() for limb in limbs])
        return switched(limbs, p)

    monkeypatch.setattr(rlwe, "switched", noting)
    matrix, _ = rlwe.prepare(SeededRng(5), ring, bits)
    u = rlwe.chunked(matrix[:, :100], parameters)[:, :, ::-1]
    rho = matrix[:, 100:].reshape(2, -1, n)[:, :, ::-1]
    (limbs,) = seen
    require_binomial(errors_of(limbs, ring.sum_of_products(u, rho), parameters))


def test_packed_ciphertexts_and_first_halves_have_one_error_for_each_coefficient(monkeypatch):
    packing, n = Packing.of(300, SMALL), SMALL.degree
    ring = rlwe.Ring.from_tag(bytes(32), b"packed", SMALL, packing.chunks + 1)
    bits = np.random.default_rng(1).integers(0, 2, (20, 300)).astype(np.uint8)
    secrets, limbs = rlwe_packed.encrypt(SeededRng(5), ring, bits[:3], packing)
    products = ring.products(secrets[:, ::-1])
    for chunk, product in zip(packing.cut(bits[:3]).swapaxes(0, 1), products, strict=False):
        place = product[SMALL.delta_bits // SMALL.limb_bits][:, : packing.width]
        place += chunk.astype(np.int64) << (SMALL.delta_bits % SMALL.limb_bits)
    exact = [np.concatenate(limb, axis=1) for limb in zip(*products, strict=True)]
    require_binomial(errors_of(limbs, exact, SMALL))

    switched, seen = rlwe.switched, []
    monkeypatch.setattr(
        rlwe, "switched", lambda x, p: (seen.append([y.copy() for y in x]), switched(x, p))[1]
    )
    matrix, c1 = rlwe_packed.prepare(SeededRng(5), ring, bits, packing)
    assert (len(matrix), len(c1)) == (20, 2)  # sixteen rows in the first, four in the second
    factors = matrix[:: packing.packed].reshape(2, -1, n)[:, :, ::-1].swapaxes(0, 1)
    (first_halves,) = seen
    require_binomial(errors_of(first_halves, ring.sum_of_products(*factors), SMALL))
    assert len(np.unique(factors[-1], axis=0)) == 2  # each has a ρ of its own


@pytest.mark.parametrize("parameters", RLWE_SETS, ids=lambda p: p.name)
def test_flood_is_a_centred_sum_of_four_words(parameters):
    draws = rlwe.flood(SeededRng(4), (20_000,), parameters)
    modulus = 1 << 200  # larger than any, so that signs survive
    values = [
        v - modulus if v > modulus // 2 else v for v in whole(draws, parameters.limb_bits, modulus)
    ]
    assert max(abs(v) for v in values) <= 1 << (parameters.flood_bits + 1)
    scaled = np.array([v / 2**parameters.flood_bits for v in values])
    # Irwin-Hall of four terms: mean 0, variance 4/12, kurtosis excess -0.3
    assert abs(scaled.mean()) < 5 * math.sqrt(1 / 3 / len(values))
    assert abs(scaled.var() - 1 / 3) < 0.02
    assert abs(stats.kurtosis(scaled) + 0.3) < 0.15
    low_bits = np.bincount([v % 16 for v in values], minlength=16)
    assert stats.chisquare(low_bits).pvalue > 1e-4  # smooth at scale 1: no empty low bits


# --- the bounds


def test_fisher_information_of_the_flood():
    """Of the density of a sum of four uniform variables, the cubic B-spline on [0, 4]."""

    def density(x: float) -> float:
        return (-3 * x**3 + 12 * x**2 - 12 * x + 4) / 6

    def slope(x: float) -> float:
        return (-9 * x**2 + 24 * x - 12) / 6

    inner = quad(lambda x: slope(x) ** 2 / density(x), 1, 2)[0]
    information = 2 * (0.75 + inner)  # on [0, 1] it is ∫ 3x/2 = 3/4
    assert information <= RlweParameters.flood_information < information + 1e-4


@pytest.mark.parametrize("shift", [1, 2, 5])
def test_hellinger_distance_of_a_shifted_flood_obeys_the_bound(shift):
    """The inequality that hiding rests on, exactly, for words of 6 bits instead of 64."""
    word = np.full(64, 1 / 64)
    flood = np.convolve(np.convolve(word, word), np.convolve(word, word))
    padded = np.concatenate([flood, np.zeros(shift)])
    moved = np.concatenate([np.zeros(shift), flood])
    squared = 0.5 * ((np.sqrt(padded) - np.sqrt(moved)) ** 2).sum()
    bound = shift**2 * RlweParameters.flood_information / 64**2 / 8
    assert squared <= bound * 1.01  # words of 6 bits are not yet quite continuous
    assert squared > bound / 2  # and the bound is not idle


@pytest.mark.parametrize(("parameters", "largest"), [(SMALL, 4096), (LARGE, MAX_HASH_BITS)])
def test_parameter_sets_meet_both_bounds_for_2_28_distances(parameters, largest):
    parameters.require(largest, 1 << 28)
    assert parameters.hiding_bits(largest, 1 << 28) > 40
    assert parameters.correctness_bits(largest, 1 << 28) > 40
    assert 1 << parameters.plain_bits > largest
    assert parameters.modulus_bits <= 106


def test_hiding_bound_by_hand():
    """√Q·2^8.3/(2σ) of the design, for the flood's information instead of a Gaussian's."""
    shift = math.sqrt((4096 + 4 / 3 * 4096) * 10.5)
    assert 8.2 < math.log2(shift) < 8.4
    by_hand = -math.log2(2**14 * shift * math.sqrt(3.11573) / 2**64 / 2)
    assert SMALL.hiding_bits(4096, 1 << 28) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("change", "n_bits", "coefficients", "words"),
    [
        ({}, 4096, 1 << 36, "hiding bound"),
        ({"plain_bits": 15}, 4096, 1, "correctness bound"),
        ({"switched_bytes": 2}, 4096, 1, "correctness bound"),
        ({"limbs": 3}, 4096, 1, "128 bits of security"),
        ({"limb_bits": 41}, 4096, 1, "would not be exact in float64"),
        ({}, 4097, 1, "1 to 4096 bits"),
        ({}, 0, 1, "1 to 4096 bits"),
    ],
)
def test_sets_and_sizes_that_miss_a_bound_are_refused(change, n_bits, coefficients, words):
    with pytest.raises(ParameterError, match=words):
        dataclasses.replace(SMALL, **change).require(n_bits, coefficients)


def test_sets_are_chosen_by_length():
    assert rlwe.parameters_for(1) is SMALL
    assert rlwe.parameters_for(4096) is SMALL
    assert rlwe.parameters_for(4097) is LARGE
    assert rlwe.parameters_for(MAX_HASH_BITS) is LARGE
    with pytest.raises(ParameterError, match="at most 32768"):
        rlwe.parameters_for(MAX_HASH_BITS + 1)


# --- encryption


def run(y, x, seed=0, masks=None):
    """Return (T, r, secrets, limbs, matrix, c1, c2) of one exchange."""
    parameters = rlwe.parameters_for(y.shape[1])
    ring, rng = ring_of(parameters), SeededRng(seed)
    secrets, limbs = rlwe.encrypt(rng, ring, y)
    matrix, c1 = rlwe.prepare(rng, ring, x)
    if masks is None:
        masks = rlwe.drawn_masks(rng, (len(y), len(x)), parameters)
    c2 = rlwe.evaluate(rng, matrix, limbs, masks, parameters)
    return rlwe.decrypt(secrets, c1, c2, parameters), masks, secrets, limbs, matrix, c1, c2


def distances(t, masks, x, parameters):
    weights = x.sum(axis=1, dtype=np.int64)
    return (t.astype(np.int64) - masks + weights) % (1 << parameters.plain_bits)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_decrypts_to_masked_distances(data):
    n_bits = data.draw(st.sampled_from([1, 7, 64, 1000, 4095, 4096, 4097, 9000]))
    rows = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    y, x = (generator.integers(0, 2, (n, n_bits)).astype(np.uint8) for n in rows)
    t, masks, *_ = run(y, x, data.draw(st.integers(0, 2**32)))
    expected = (y[:, None] != x[None]).sum(axis=2)
    assert (distances(t, masks, x, rlwe.parameters_for(n_bits)) == expected).all()


@pytest.mark.parametrize("n_bits", [1, 4096, 8192, MAX_HASH_BITS])
def test_extreme_vectors(n_bits):
    ends = np.repeat(np.array([[0], [1]], dtype=np.uint8), n_bits, axis=1)
    t, masks, *_ = run(ends, ends)
    expected = [[0, n_bits], [n_bits, 0]]
    assert distances(t, masks, ends, rlwe.parameters_for(n_bits)).tolist() == expected


@pytest.mark.parametrize("parameters", RLWE_SETS, ids=lambda p: p.name)
def test_decryption_is_right_for_exactly_the_errors_of_less_than_half_a_step(parameters):
    step = parameters.switched_bits - parameters.plain_bits
    top = (1 << parameters.plain_bits) - 1
    values, half = np.array([[0, 1, top // 2, top]]), 1 << (step - 1)
    secrets, c1 = np.zeros((1, N), np.int8), np.zeros((values.size, N), np.uint32)

    def decrypted(error):
        c2 = ((values << step) + error) % (1 << parameters.switched_bits)
        return rlwe.decrypt(secrets, c1, c2.astype(np.uint32), parameters).tolist()

    for error in (-half, -1, 0, 1, half - 1):
        assert decrypted(error) == values.tolist()
    assert decrypted(half) == ((values + 1) & top).tolist()
    assert decrypted(-half - 1) == ((values - 1) & top).tolist()


def test_switching_rounds_to_nearest():
    rng = SeededRng(9)
    two_limbs_are_left = dataclasses.replace(LARGE, limbs=4, limb_bits=24)
    for parameters in (*RLWE_SETS, two_limbs_are_left):
        limbs = [
            rng.residues(1 << parameters.limb_bits, (500,)).astype(np.int64)
            for _ in range(parameters.limbs)
        ]
        modulus = 1 << parameters.modulus_bits
        drop = parameters.modulus_bits - parameters.switched_bits
        expected = [
            ((v + (1 << (drop - 1))) >> drop) % (1 << parameters.switched_bits)
            for v in whole(limbs, parameters.limb_bits, modulus)
        ]
        assert rlwe.switched(limbs, parameters).tolist() == expected


# --- what the parties see


def uniform(values: np.ndarray, bits: int) -> float:
    """Return the p-value of the top four bits being uniform."""
    return float(stats.chisquare(np.bincount(values.ravel() >> (bits - 4), minlength=16)).pvalue)


BITS = np.random.default_rng(5).integers(0, 2, (4, 64)).astype(np.uint8)


def test_evaluator_sees_uniform_ciphertexts_whatever_is_encrypted():
    for y in (BITS, 1 - BITS, np.zeros_like(BITS)):
        _, limbs = rlwe.encrypt(SeededRng(6), ring_of(SMALL), y)
        for limb in limbs:
            assert uniform(limb, SMALL.limb_bits) > 1e-4
            assert uniform(limb & 0xFFFF, 16) > 1e-4


def test_equal_rows_give_unrelated_ciphertexts():
    _, limbs = rlwe.encrypt(SeededRng(6), ring_of(SMALL), np.repeat(BITS[:1], 2, axis=0))
    difference = (limbs[1][0] - limbs[1][1]) & ((1 << SMALL.limb_bits) - 1)
    assert uniform(difference, SMALL.limb_bits) > 1e-4


def blinding_pvalue(c1: np.ndarray, x: np.ndarray) -> float:
    """Test c1 − u·a, which an owner who guesses x could compute, for uniformity."""
    ring = ring_of(SMALL)
    u = rlwe.chunked((1 - 2 * x.astype(np.int8)).astype(np.int8), SMALL)[:, :, ::-1]
    guessed = rlwe.switched(ring.products(u)[0], SMALL).reshape(len(x), -1)
    modulus = (1 << SMALL.switched_bits) - 1
    return uniform((c1.astype(np.int64) - guessed) & modulus, SMALL.switched_bits)


def test_owner_cannot_check_a_guess_of_the_evaluators_bits(monkeypatch):
    *_, c1, _ = run(BITS, BITS)
    assert uniform(c1.astype(np.int64), SMALL.switched_bits) > 1e-4
    assert blinding_pvalue(c1, BITS) > 1e-4
    # without ρ the guess shows, so the test can see what it is for
    monkeypatch.setattr(rlwe, "ternary", lambda rng, shape: np.zeros(shape, dtype=np.int8))
    *_, c1, _ = run(BITS, BITS)
    assert blinding_pvalue(c1, BITS) < 1e-9


def noise_counts(y: np.ndarray, x: np.ndarray, seeds: range) -> np.ndarray:
    """Return how often the noise that the owner sees in c2 is in each 16th of the flood."""
    total = np.zeros(16, dtype=np.int64)
    for seed in seeds:
        _, _, secrets, _, _, c1, c2 = run(y, x, seed)
        quantiles = flood_quantiles(noise_of(secrets, c1, c2, SMALL), SMALL)
        total += np.bincount((16 * quantiles).astype(int).ravel(), minlength=16)
    return total


def test_the_noise_that_the_owner_sees_is_the_flood():
    """Whatever the evaluator's rows are; so it follows from the sizes."""
    noise = noise_counts(BITS, BITS, range(60))
    other = noise_counts(BITS, 1 - BITS, range(60, 120))
    assert uniformity(noise) > 1e-4
    assert uniformity(other) > 1e-4
    assert same_distribution(noise, other) > 1e-4


@pytest.mark.parametrize("bits", [0, 63])
def test_the_same_test_finds_a_flood_that_is_missing_or_short(monkeypatch, bits):
    draw = rlwe.flood
    shorter = 64 - bits

    def flood(rng, shape, p):
        low, high, *others = draw(rng, shape, p)
        value = (low.astype(object) + (high.astype(object) << p.limb_bits)) >> shorter
        mask = (1 << p.limb_bits) - 1
        parts = ((value & mask).astype(np.int64), (value >> p.limb_bits).astype(np.int64))
        return [*parts, *others]

    monkeypatch.setattr(rlwe, "flood", flood)
    t, masks, *_ = run(BITS, BITS)
    expected = (BITS[:, None] != BITS[None]).sum(axis=2)
    assert (distances(t, masks, BITS, SMALL) == expected).all()  # so only the noise shows it
    assert uniformity(noise_counts(BITS, BITS, range(20))) < 1e-9


def test_owner_decrypts_to_uniform_values():
    values = [run(BITS, BITS, s)[0] for s in range(100)]
    assert uniform(np.array(values).astype(np.int64), SMALL.plain_bits) > 1e-4
    zero = np.zeros((4, 4), dtype=np.uint16)
    bare = [run(BITS, BITS, s, zero)[0] for s in range(20)]  # mask left out: T shows h − |x|
    assert uniform(np.array(bare).astype(np.int64), SMALL.plain_bits) < 1e-9


# --- the protocol


def test_owner_has_fewer_rows_and_the_earlier_wins_a_tie():
    sizes = {"a": 3, "b": 2, "c": 3, "d": 0}
    assert owner_first("a", "b", sizes) == ("b", "a")
    assert owner_first("a", "c", sizes) == ("a", "c")
    assert roles_of("a", sizes) == (["c"], ["b"])
    assert roles_of("b", sizes) == (["a", "c"], [])
    assert roles_of("d", sizes) == ([], [])


@pytest.mark.parametrize("rows", [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_blocks_cover_all_rows(rows):
    assert [i for b in blocks(rows) for i in range(b.start, b.stop)] == list(range(rows))
    assert all(b.stop - b.start <= BLOCK_ROWS for b in blocks(rows))


def test_rows_beyond_one_block_on_both_sides():
    generator = np.random.default_rng(8)
    bits = [generator.integers(0, 2, (n, 40)) for n in (BLOCK_ROWS + 2, 3, BLOCK_ROWS + 1)]
    result, cost = secure_hamming(bits, Rlwe(), rng=SeededRng(1))
    stacked = np.concatenate(bits)
    assert (result == (stacked[:, None] != stacked[None]).sum(axis=2)).all()
    assert cost.rounds_in("hamming") == 3


def test_too_many_distances_for_the_bound_are_refused_before_anything_is_sent():
    sizes = {"a": 1 << 20, "b": 1 << 20}
    with pytest.raises(ParameterError, match="hiding bound"):
        require_sizes(sizes, 4096)


def test_sizes_that_the_documentation_names_are_within_the_bound():
    for clients, rows, n_bits in (
        (5, 2000, 4096),
        (1000, 84, 4096),
        (2, 60_000, 4096),
        (700, 2000, MAX_HASH_BITS),
    ):
        require_sizes({str(i): rows for i in range(clients)}, n_bits)


SIZES = st.lists(st.integers(0, 1 << 17), min_size=2, max_size=12)
MANY = [700] * 200


@given(SIZES, SIZES, st.integers(0, 4095))
@example(MANY, MANY, (1 << 100) - 1)  # the first half own ciphertexts
@settings(max_examples=40, deadline=None)
def test_whatever_is_accepted_hides_from_every_coalition_all_that_it_sees_together(m, n, members):
    """The floods in what clients that collude decrypt, from all others, in the whole session."""
    rows, columns = ({str(i): size for i, size in enumerate(sizes)} for sizes in (m, n))
    rows, columns = ({c: sizes.get(c, 0) for c in rows | columns} for sizes in (rows, columns))
    inside = [c for c in rows if members >> int(c) & 1]
    outside = rows.keys() - inside
    seen = sum(rows[e] * rows[o] for o in inside for e in roles_of(o, rows)[0] if e in outside)
    seen_between = sum(rows[o] * columns[e] for o in inside for e in outside)
    for count, require, sizes in (
        (seen, require_sizes, (rows,)),
        (seen_between, require_between, (rows, columns)),
    ):
        try:
            require(*sizes, 4096)
        except ParameterError:
            continue
        assert SMALL.hiding_bits(4096, count) >= 40
