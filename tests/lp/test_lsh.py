from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError, XclpError
from xclp_lp import lsh
from xclp_lp.lsh import Projection, hash_bits, projection, projection_digest, zero_rows

SEED = bytes(range(32))
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def slow_bits(row: list[float], pi: NDArray[np.int16]) -> list[int]:
    """The definition in exact rational arithmetic, without NumPy, BLAS or floats."""
    exact = [Fraction(x) for x in row]
    largest = max(abs(x) for x in exact)
    if largest == 0:
        return [1] * len(pi)
    exponent = 0
    while largest >= Fraction(2) ** exponent:
        exponent += 1
    while largest < Fraction(2) ** (exponent - 1):
        exponent -= 1
    bits = min(30, 52 - 13 - math.ceil(math.log2(len(row))))
    integers = [round(x * Fraction(2) ** (bits - exponent)) for x in exact]
    return [
        int(sum(p * x for p, x in zip(normal, integers, strict=True)) >= 0)
        for normal in pi.tolist()
    ]


def test_projection_never_changes() -> None:
    digest = projection_digest(projection(SEED, 64, 10)).hex()
    assert digest == "17b2c032491db8ca819835ac193c48a704ec2c12a6bd1b66e8d3425dd51fd63e"


def test_projection_digest_is_sha256_of_label_sizes_and_little_endian_entries() -> None:
    pi = projection(SEED, 3, 2)
    entries = b"".join(int(x).to_bytes(2, "little", signed=True) for x in pi.ravel())
    sizes = (3).to_bytes(8, "little") + (2).to_bytes(8, "little")
    expected = hashlib.sha256(b"xclp/1/lsh projection digest\0" + sizes + entries).digest()
    assert projection_digest(pi) == expected
    assert projection_digest(pi.astype(">i2")) == expected
    assert projection_digest(pi.reshape(2, 3)) != expected


def test_projection_depends_on_seed_and_sizes() -> None:
    digests = {
        projection_digest(projection(seed, n_bits, d)[:8, :3])
        for seed in (SEED, bytes(32))
        for n_bits in (8, 16)
        for d in (3, 4)
    }
    assert len(digests) == 8


def test_projection_is_standard_normal() -> None:
    pi = projection(SEED, 4096, 64) / 1024
    n = pi.size
    assert abs(pi.mean()) < 5 / math.sqrt(n)
    assert abs(pi.var() - 1) < 5 * math.sqrt(2 / n) + 1e-4
    assert abs((pi**4).mean() - 3) < 5 * math.sqrt(96 / n) + 1e-2


def test_inverse_normal_table_is_odd_increasing_and_far_from_rounding_boundaries() -> None:
    table = lsh.inverse_normal_table().astype(int)
    assert (table == -table[::-1]).all()
    assert (np.diff(table) >= 0).all()
    assert table.max() < 2**lsh._PI_BITS
    quantiles = lsh._scaled_quantiles()
    assert np.abs(quantiles - np.floor(quantiles) - 0.5).min() > 1e-6


def test_inverse_normal_table_against_bisection_of_erfc() -> None:
    table = lsh.inverse_normal_table()
    for u in (0, 1, 77, 5000, 32767, 32768, 65535):
        target = (u + 0.5) / 65536
        low, high = -6.0, 6.0
        for _ in range(80):
            middle = (low + high) / 2
            below = 0.5 * math.erfc(-middle / math.sqrt(2)) < target
            low, high = (middle, high) if below else (low, middle)
        assert table[u] == round(low * 1024)


def test_a_different_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lsh.inverse_normal_table.cache_clear()
    quantiles = lsh._scaled_quantiles()
    quantiles[7] += 1
    with monkeypatch.context() as patch:
        patch.setattr(lsh, "_scaled_quantiles", lambda: quantiles)
        with pytest.raises(XclpError, match="another SciPy"):
            projection(SEED, 1, 1)
    assert projection(SEED, 1, 1).shape == (1, 1)


@pytest.mark.parametrize(
    ("n_bits", "n_features"), [(0, 1), (32769, 1), (-1, 1), (1, 0), (1, 2**20 + 1), (1.5, 1)]
)
def test_projection_sizes_out_of_range(n_bits: int, n_features: int) -> None:
    with pytest.raises(ParameterError, match="must be an integer in"):
        projection(SEED, n_bits, n_features)


def test_projection_accepts_numpy_integers_and_refuses_short_seeds() -> None:
    sizes: tuple[Any, Any] = np.int64(4), np.int32(2)
    assert (projection(SEED, *sizes) == projection(SEED, 4, 2)).all()
    with pytest.raises(ParameterError):
        projection(SEED[:16], 1, 1)


@settings(deadline=None)
@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=FINITE))
def test_bits_are_those_of_exact_arithmetic(vectors: NDArray[np.float64]) -> None:
    pi = projection(SEED, 23, vectors.shape[1])
    assert hash_bits(vectors, pi).tolist() == [slow_bits(row, pi) for row in vectors.tolist()]


def test_bits_are_exact_when_products_nearly_cancel() -> None:
    pi = projection(SEED, 40, 700)
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((40, 700))
    for row, normal in zip(vectors, pi.astype(float), strict=True):
        row -= normal * (row @ normal) / (normal @ normal)
    assert hash_bits(vectors, pi).tolist() == [slow_bits(row, pi) for row in vectors.tolist()]


def test_extreme_entries_reach_the_bound_without_rounding() -> None:
    d = 4096
    pi = np.full((2, d), 4429, dtype=np.int16)
    pi[1] *= -1
    pi[:, -1] = 0
    vectors = np.full((2, d), np.nextafter(1.0, 0.0))
    vectors[1, : d // 2] *= -1
    assert hash_bits(vectors, pi).tolist() == [slow_bits(row, pi) for row in vectors.tolist()]


def test_a_row_alone_a_batch_and_another_order_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(2)
    vectors, pi = rng.standard_normal((57, 33)), projection(SEED, 130, 33)
    bits = hash_bits(vectors, pi)
    assert bits.dtype == np.uint8
    assert bits.shape == (57, 130)
    assert set(np.unique(bits)) == {0, 1}
    for i, row in enumerate(vectors):
        assert (hash_bits(row[None], pi) == bits[i]).all()
    features = rng.permutation(33)
    assert (hash_bits(vectors[:, features], pi[:, features]) == bits).all()
    assert (hash_bits(np.asfortranarray(vectors), np.asfortranarray(pi)) == bits).all()
    monkeypatch.setattr(lsh, "_BLOCK_ENTRIES", 5 * 130)
    assert (hash_bits(vectors, pi) == bits).all()


def test_dtypes_give_the_same_bits_for_the_same_numbers() -> None:
    rng = np.random.default_rng(3)
    pi = projection(SEED, 257, 20)
    single = rng.standard_normal((30, 20)).astype(np.float32)
    bits = hash_bits(single, pi)
    assert (hash_bits(single.astype(np.float64), pi) == bits).all()
    assert (hash_bits(single.astype(np.longdouble), pi) == bits).all()
    integers = rng.integers(-100, 100, (30, 20))
    assert (hash_bits(integers, pi) == hash_bits(integers.astype(float), pi)).all()
    assert (hash_bits(integers.astype(np.int8), pi) == hash_bits(integers, pi)).all()
    assert (hash_bits(integers.tolist(), pi) == hash_bits(integers, pi)).all()
    assert (hash_bits(integers > 0, pi) == hash_bits((integers > 0).astype(float), pi)).all()


@pytest.mark.parametrize("exponent", [-1060, -900, 900, 1010])
def test_bits_do_not_depend_on_a_power_of_two(exponent: int) -> None:
    rng = np.random.default_rng(4)
    vectors = rng.integers(-1000, 1000, (20, 7)).astype(float)
    pi = projection(SEED, 65, 7)
    assert (hash_bits(np.ldexp(vectors, exponent), pi) == hash_bits(vectors, pi)).all()


def test_huge_and_tiny_values_work_even_where_floating_point_errors_raise() -> None:
    pi = projection(SEED, 65, 4)
    v = np.array([[1e300, -1e300, 1e-300, 5e-324], [5e-324, 0, 0, -5e-324], [1.7e308] * 4])
    with np.errstate(all="raise"):
        assert hash_bits(v, pi).tolist() == [slow_bits(row, pi) for row in v.tolist()]


def test_zero_rows_and_no_rows() -> None:
    pi = projection(SEED, 9, 3)
    vectors = np.array([[0.0, -0.0, 0.0], [0.0, 5e-324, 0.0]])
    assert zero_rows(vectors).tolist() == [True, False]
    assert hash_bits(vectors, pi)[0].tolist() == [1] * 9
    assert hash_bits(np.empty((0, 3)), pi).shape == (0, 9)
    assert zero_rows(np.empty((0, 3))).shape == (0,)


def test_opposite_vectors_have_opposite_bits() -> None:
    vectors = np.random.default_rng(5).standard_normal((50, 16))
    pi = projection(SEED, 300, 16)
    assert (hash_bits(vectors, pi) + hash_bits(-vectors, pi) == 1).all()


def test_hamming_distance_estimates_the_angle() -> None:
    n_bits, d = 4096, 24
    rng = np.random.default_rng(6)
    base, other = rng.standard_normal((2, 60, d))
    other = base + np.geomspace(0.05, 20, 60)[:, None] * other
    pi = projection(SEED, n_bits, d)
    h = (hash_bits(base, pi) != hash_bits(other, pi)).sum(axis=1)
    norms = np.linalg.norm(base, axis=1) * np.linalg.norm(other, axis=1)
    angle = np.arccos((base * other).sum(axis=1) / norms)
    p = angle / np.pi
    sigma = np.sqrt(p * (1 - p) / n_bits)
    assert (np.abs(h / n_bits - p) < 5 * sigma).all()
    assert (np.abs(np.cos(np.pi * h / n_bits) - np.cos(angle)) < 5 * np.pi * sigma + 1e-3).all()


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.zeros(3), "shape"),
        (np.zeros((2, 2, 3)), "shape"),
        (np.zeros((2, 0)), "shape"),
        (np.zeros((2, 3), dtype=complex), "dtype"),
        (np.array([["a", "b", "c"]]), "dtype"),
        (np.array([[1, 2, None]]), "dtype"),
        (np.array([[0, 0, 0], [0, np.nan, 0]]), "row 1, column 1 .* nan"),
        (np.array([[0, 0, -np.inf]], dtype=np.float32), "row 0, column 2 .* -inf"),
        (np.zeros((2, 4)), "4 features"),
    ],
)
def test_unusable_vectors(vectors: NDArray[np.float64], message: str) -> None:
    with pytest.raises(DataError, match=message):
        hash_bits(vectors, projection(SEED, 8, 3))


# Tight frames


@pytest.mark.parametrize(("n_bits", "d"), [(8, 5), (64, 16), (128, 33), (4096, 4096)])
def test_a_tight_frame_preserves_lengths_exactly(n_bits: int, d: int) -> None:
    pi = projection(SEED, n_bits, d, "tight-frame").astype(np.int64)
    m = 1 << (d - 1).bit_length()
    assert pi.shape == (n_bits, d)
    assert np.abs(pi).max() < 1 << 13
    some = pi[:, :: max(1, d // 64)]
    assert (some.T @ some == np.eye(some.shape[1], dtype=int) * m**2 * (n_bits // m)).all()


def test_normals_of_a_block_are_orthogonal_and_blocks_differ() -> None:
    pi = projection(SEED, 40, 16, "tight-frame").astype(np.int64)
    for block in (pi[:16], pi[16:32], pi[32:]):
        assert (block @ block.T == 256 * np.eye(len(block), dtype=int)).all()
    assert (pi[:8] != pi[16:24]).any()
    assert (projection(bytes(32), 40, 16, "tight-frame") != pi).any()
    assert (projection(SEED, 40, 16, "tight-frame") == pi).all()


def test_a_tight_frame_never_changes() -> None:
    digest = projection_digest(projection(SEED, 64, 10, "tight-frame")).hex()
    assert digest == "e2a5946539e05288661dfa7101c9a87a99564ec05f71a4f0cd07d8cbc77ef314"


def test_a_tight_frame_estimates_angles_at_least_as_well() -> None:
    rng = np.random.default_rng(5)
    errors: dict[Projection, float] = {"random": 0.0, "tight-frame": 0.0}
    for i in range(40):
        a = rng.standard_normal(64)
        b = a + rng.standard_normal(64)
        angle = np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        for kind in errors:
            x, y = hash_bits(np.stack([a, b]), projection(bytes([i]) * 32, 512, 64, kind))
            errors[kind] += ((x != y).mean() * np.pi - angle) ** 2
    assert errors["tight-frame"] < errors["random"]
    assert math.sqrt(errors["tight-frame"] / 40) < 0.1


def test_vectors_with_one_feature_get_random_bits_from_a_tight_frame() -> None:
    bits = hash_bits(np.eye(64), projection(SEED, 4096, 64, "tight-frame"))
    shares = (bits[:, None] != bits[None]).mean(axis=2)[~np.eye(64, dtype=bool)]
    assert np.abs(shares - 0.5).max() < 0.06


def test_kinds_of_projection_out_of_range() -> None:
    with pytest.raises(ParameterError, match="projection is 'frame'"):
        projection(SEED, 8, 8, "frame")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="at most 4096 features, got 4097"):
        projection(SEED, 8, 4097, "tight-frame")
