"""ristretto255: RFC 9496 vectors, an independent decoder, group laws, refusals."""

import copy
import hashlib
import itertools
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.algebra.group import ORDER, Point, Scalar, hash_to_point, multiply, multiply_base
from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.rng import Rng, SeededRng, SystemRng

FILE = Path(__file__).parents[1] / "vectors" / "rfc9496_ristretto255.json"
VECTORS = json.loads(FILE.read_text(encoding="utf-8"))
MULTIPLES = [bytes.fromhex(x) for x in VECTORS["multiples_of_generator"]]
INVALID = [(why, x) for why, xs in VECTORS["invalid_encodings"].items() for x in xs]
GENERATOR = Point.decode(MULTIPLES[1])

P = 2**255 - 19
integers = st.integers(1, ORDER - 1)


def scalar(n: int) -> Scalar:
    return Scalar.from_uniform_bytes(n.to_bytes(64, "little"))


def why_invalid(data: bytes) -> str | None:
    """RFC 9496, section 4.3.1, in Python integers: what is wrong with an encoding, if anything."""
    s = int.from_bytes(data, "little")
    if s >= P:
        return "non-canonical field encoding"
    if s & 1:
        return "negative field element"
    d = -121665 * pow(121666, -1, P) % P
    u1, u2 = (1 - s * s) % P, (1 + s * s) % P
    v = (-d * u1 * u1 - u2 * u2) % P
    w = v * u2 * u2 % P
    if pow(w, (P - 1) // 2, P) != 1:  # zero counts as no square
        return "non-square x^2"
    root = pow(w, (P + 3) // 8, P)
    if root * root % P != w:
        root = root * pow(2, (P - 1) // 4, P) % P
    inverse = pow(root, -1, P)
    x = 2 * s * inverse * u2 % P
    x = P - x if x & 1 else x
    y = u1 * inverse**2 * u2 * v % P
    if (x * y % P) & 1:
        return "negative xy"
    return "s = -1, which causes y = 0" if y == 0 else None


# Vectors.


@pytest.mark.parametrize("n", range(1, 16))
def test_rfc_9496_multiples_of_the_generator(n):
    assert multiply_base(scalar(n)).encode() == MULTIPLES[n]
    assert multiply(scalar(n), GENERATOR).encode() == MULTIPLES[n]
    assert Point.decode(MULTIPLES[n]).encode() == MULTIPLES[n]
    assert n == 1 or (Point.decode(MULTIPLES[n - 1]) + GENERATOR).encode() == MULTIPLES[n]
    assert n == 1 or (Point.decode(MULTIPLES[n]) - GENERATOR).encode() == MULTIPLES[n - 1]


@pytest.mark.parametrize(("why", "encoding"), INVALID)
def test_user_case_points_off_the_curve_rfc_9496_invalid_encodings_are_refused(why, encoding):
    assert why_invalid(bytes.fromhex(encoding)) == why
    with pytest.raises(DecodeError, match="canonical"):
        Point.decode(bytes.fromhex(encoding))


def test_user_case_the_point_at_infinity_is_refused_at_decode():
    assert MULTIPLES[0] == bytes(32)
    with pytest.raises(DecodeError, match="identity"):
        Point.decode(MULTIPLES[0])
    with pytest.raises(DecodeError, match="identity"):
        Point(MULTIPLES[0])


def test_user_case_points_of_small_order_are_refused_at_decode():
    # The Edwards y-coordinates of edwards25519's points of order 1, 2, 4 and 8, with both signs.
    order_8 = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")
    ys = [1, P - 1, 0, int.from_bytes(order_8, "little")]
    ys.append(P - ys[-1])
    for y, sign in itertools.product(ys, (0, 1)):
        with pytest.raises(DecodeError):
            Point.decode((y | sign << 255).to_bytes(32, "little"))


@pytest.mark.parametrize("vector", VECTORS["from_uniform_bytes"])
def test_rfc_9496_elements_from_uniform_bytes(vector):
    point = Point.from_uniform_bytes(bytes.fromhex(vector["input"]))
    assert point.encode().hex() == vector["output"]


@given(st.integers(0, 2**256 - 1) | st.integers(0, P // 2 + 20).map(lambda n: 2 * n))
def test_decode_accepts_exactly_what_an_independent_decoder_accepts(n):
    data = n.to_bytes(32, "little")
    valid = data != bytes(32) and why_invalid(data) is None
    if valid:
        assert Point.decode(data).encode() == data
    else:
        with pytest.raises(DecodeError):
            Point.decode(data)


@given(integers, st.sets(st.integers(0, 255), min_size=1, max_size=3))
def test_an_encoding_with_flipped_bits_is_refused_or_another_element(n, bits):
    encoding = multiply_base(scalar(n)).encode()
    flipped = int.from_bytes(encoding, "little") ^ sum(1 << bit for bit in bits)
    data = flipped.to_bytes(32, "little")
    if data != bytes(32) and why_invalid(data) is None:
        assert Point.decode(data) != Point.decode(encoding)
    else:
        with pytest.raises(DecodeError):
            Point.decode(data)


@pytest.mark.parametrize("encoding", MULTIPLES)
def test_bit_255_is_part_of_the_encoding_although_libsodium_1_0_18_ignores_it(encoding):
    with pytest.raises(DecodeError, match="canonical"):
        Point.decode(encoding[:31] + bytes([encoding[31] | 0x80]))


# Group laws.


@given(integers, integers)
@settings(max_examples=30)
def test_scalars_act_as_integers_modulo_the_order(a, b):
    if (a + b) % ORDER:
        assert multiply_base(scalar(a)) + multiply_base(scalar(b)) == multiply_base(scalar(a + b))
    if a != b:
        difference = multiply_base(scalar(a)) - multiply_base(scalar(b))
        assert difference == multiply_base(scalar((a - b) % ORDER))
    product = multiply(scalar(a), multiply_base(scalar(b)))
    assert product == multiply(scalar(b), multiply_base(scalar(a)))
    assert product == multiply_base(scalar(a * b))


def test_the_order_is_the_groups():
    assert multiply_base(scalar(ORDER + 1)) == GENERATOR
    assert multiply_base(scalar(ORDER - 1)) == multiply_base(scalar(2)) - multiply_base(scalar(3))


def test_a_point_and_a_scalar_in_the_wrong_order_are_refused():
    with pytest.raises(ParameterError, match="a Scalar and then a Point, got Point and Scalar"):
        multiply(GENERATOR, scalar(2))


def test_results_that_are_the_identity_are_refused():
    minus = multiply_base(scalar(ORDER - 1))
    with pytest.raises(DecodeError, match="identity"):
        GENERATOR + minus
    with pytest.raises(DecodeError, match="identity"):
        GENERATOR - GENERATOR


def test_uniform_bytes_that_give_the_identity_are_refused(monkeypatch):
    # Nobody knows 64 such bytes, so libsodium has to be replaced here.
    monkeypatch.setattr("rbcl.crypto_core_ristretto255_from_hash", lambda data: bytes(32))
    with pytest.raises(DecodeError, match="identity"):
        Point.from_uniform_bytes(bytes(64))


@pytest.mark.parametrize("n", [0, ORDER, 2 * ORDER, ORDER << 250])
def test_zero_is_no_scalar(n):
    with pytest.raises(ParameterError, match="zero"):
        scalar(n)


# Hashing and randomness.


def test_hash_to_point_is_sha_512_of_label_and_data_then_the_one_way_map():
    tag = domain_tag("test", 1)
    digest = hashlib.sha512(domain_tag("group/hash-to-point", tag, b"data")).digest()
    assert hash_to_point(tag, b"data") == Point.from_uniform_bytes(digest)


def test_hash_to_point_separates_labels_from_data():
    points = {
        hash_to_point(tag, data).encode()
        for tag, data in [(b"a", b"bc"), (b"ab", b"c"), (b"", b"abc"), (b"abc", b""), (b"a", b"bd")]
    }
    assert len(points) == 5


def test_random_scalars_come_from_64_bytes_of_the_generator():
    class Fixed(Rng):
        def bytes(self, n):
            assert n == 64
            return (5 + ORDER).to_bytes(64, "little")

        def residues(self, modulus, shape):
            raise NotImplementedError

        def child(self, *context):
            raise NotImplementedError

    assert multiply_base(Scalar.random(Fixed())).encode() == MULTIPLES[5]
    one, same = Scalar.random(SeededRng(1)), Scalar.random(SeededRng(1))
    assert multiply_base(one) == multiply_base(same)
    rng = SystemRng()
    assert len({multiply_base(Scalar.random(rng)) for _ in range(20)}) == 20


# Types.


@pytest.mark.parametrize("n", [0, 31, 33, 64])
def test_encodings_of_another_length_are_refused(n):
    with pytest.raises(DecodeError, match="32 bytes"):
        Point.decode(MULTIPLES[1][:n].ljust(n, b"\0"))


@pytest.mark.parametrize("n", [0, 32, 63, 65])
def test_uniform_bytes_of_another_length_are_refused(n):
    with pytest.raises(ParameterError, match="64 bytes"):
        Point.from_uniform_bytes(bytes([1] * n))
    with pytest.raises(ParameterError, match="64 bytes"):
        Scalar.from_uniform_bytes(bytes([1] * n))


def test_points_and_bytes_are_different_types():
    assert MULTIPLES[1] != GENERATOR
    assert Point.__eq__(GENERATOR, GENERATOR.encode()) is NotImplemented
    for operation in (lambda: GENERATOR + MULTIPLES[1], lambda: GENERATOR - MULTIPLES[1]):
        with pytest.raises(TypeError):
            operation()
    assert {GENERATOR: 1}[Point.decode(MULTIPLES[1])] == 1
    assert Point.decode(MULTIPLES[2]) != GENERATOR
    assert Point.decode(bytearray(MULTIPLES[1])) == GENERATOR


def test_points_compare_in_constant_time(monkeypatch):
    calls = []
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: calls.append((a, b)) or a == b)
    assert Point.decode(MULTIPLES[1]) == GENERATOR
    assert len(calls) == 1


def test_a_pickled_point_is_checked_again():
    good = pickle.dumps(GENERATOR)
    assert pickle.loads(good) == copy.deepcopy(GENERATOR) == GENERATOR  # noqa: S301
    bad = good.replace(MULTIPLES[1], bytes.fromhex(INVALID[4][1]))
    with pytest.raises(DecodeError):
        pickle.loads(bad)  # noqa: S301


def test_scalars_are_hidden_and_neither_pickled_nor_copied_nor_made_from_bytes():
    secret = scalar(5)
    assert repr(secret) == str(secret) == "<Scalar>"
    assert repr(GENERATOR) == "<Point>"  # it may be a Diffie–Hellman secret
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret"):
            duplicate(secret)
    with pytest.raises(ParameterError):
        Scalar()
