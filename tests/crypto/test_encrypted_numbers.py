"""Encrypted fixed-point numbers, packed or not: values, bounds, bytes, and phe as the oracle."""

import pickle
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phe import EncryptedNumber

from xclp_crypto.errors import DataError, DecodeError, EncodingOverflow, ParameterError
from xclp_crypto.params import INSECURE_TEST_128, INSECURE_TEST_512
from xclp_crypto.primitives.paillier import (
    Ciphertexts,
    EncryptedNumbers,
    Slots,
    decrypt,
    decrypt_numbers,
    encrypt,
    encrypt_numbers,
    generate,
    phe,
)
from xclp_crypto.rng import SeededRng

KEY = generate(SeededRng(1), INSECURE_TEST_512)
SHORT = generate(SeededRng(2), INSECURE_TEST_128)
PACKED = Slots(max_abs=8, fraction_bits=10, scalar_bits=6, room_bits=28)  # 11 in a ciphertext
ALONE = Slots(max_abs=8, fraction_bits=10, scalar_bits=6, room_bits=28, packed=False)
BOTH = pytest.mark.parametrize("slots", [PACKED, ALONE], ids=["packed", "alone"])


def numbers(values, slots=PACKED, key=KEY, seed=0):
    return encrypt_numbers(key, values, slots, SeededRng(seed))


def exactly(values):
    """Return what floats and integers stand for, as an array of fractions."""
    array = np.asarray(values)
    flat = np.empty(array.size, object)
    flat[:] = [Fraction(x) for x in array.reshape(-1).tolist()]
    return flat.reshape(array.shape)


def require_close(found, exact):
    """Compare encrypted numbers with fractions, by the bounds that they state."""
    assert found.shape == exact.shape
    opened = exactly(decrypt_numbers(KEY, found))
    rounding = found._error + abs(opened) / 2**53
    assert np.all(abs(opened - exact) <= rounding)
    assert np.all(abs(opened) * 2**found.fraction_bits <= found.bound)
    assert Fraction(found.error_bound) >= found._error


small = st.floats(-8, 8)
scalars = st.one_of(st.floats(-3, 3), st.integers(-5, 5))


@st.composite
def matrices(draw, rows, columns, elements=small):
    row = st.lists(elements, min_size=columns, max_size=columns)
    return np.array(draw(st.lists(row, min_size=rows, max_size=rows))).reshape(rows, columns)


@settings(max_examples=40)
@given(st.sampled_from([PACKED, ALONE]), st.data())
def test_any_arithmetic_is_within_the_error_that_the_result_states_or_refused(slots, data):
    rows, columns = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 25))
    values = data.draw(matrices(rows, columns))
    found, exact = numbers(values, slots), exactly(values)
    for step in data.draw(st.lists(st.sampled_from("+c*m-ns"), max_size=5)):
        try:
            match step:
                case "+" | "-":
                    other = data.draw(matrices(len(exact), columns))
                    more, sign = numbers(other, slots, KEY.public, seed=1), 1 if step == "+" else -1
                    found, exact = found + sign * more, exact + sign * exactly(other)
                case "c":
                    other = data.draw(matrices(1, columns))
                    found, exact = other - found + 0.3, exactly(other) - exact + Fraction(0.3)
                case "*":
                    other = data.draw(matrices(len(exact), 1, scalars))
                    found, exact = other * found, exactly(other) * exact
                case "m":
                    other = data.draw(matrices(data.draw(st.integers(1, 3)), len(exact), scalars))
                    found, exact = other @ found, np.array(exactly(other) @ exact, object)
                case "n":
                    found, exact = -found, -exact
                case "s":
                    found, exact = found.sum(0), exact.sum(0)
                    found, exact = (np.ones((2, 1), int) * found, np.array([exact, exact]))
        except (EncodingOverflow, ParameterError):
            assert step == "s" or found.bound > 1 << 20
            break
    require_close(found, exact)
    back = EncryptedNumbers.decode(found.encode(SeededRng(2)), KEY.public)
    assert decrypt_numbers(KEY, back).tolist() == decrypt_numbers(KEY, found).tolist()


def test_numbers_alone_have_products_and_sums_along_every_axis():
    values = np.array([[1.5, -2.0, 0.25], [4, 1, -1]])
    x = numbers(values, ALONE)
    for found, expected in (
        (x @ [1.0, 0.5, -2], values @ [1.0, 0.5, -2]),
        (np.dot(x, np.eye(3, 2, dtype=int)), values @ np.eye(3, 2)),
        (x * [1, 2, 3], values * [1, 2, 3]),
        (x.sum(), values.sum()),
        (np.sum(x, axis=-1), values.sum(-1)),
        (x[1, ::2], values[1, ::2]),
        (sum(x), sum(values)),
        (np.add([1, 2, 3], x[0]), values[0] + [1, 2, 3]),
    ):
        require_close(found, exactly(expected))
    assert (np.shape(x), np.ndim(x), np.size(x), len(x)) == ((2, 3), 2, 6, 2)


def test_packed_numbers_are_indexed_and_broadcast_along_the_other_axes():
    values = np.arange(60).reshape(2, 2, 15) / 8
    x = numbers(values)
    assert x._ciphertexts.shape == (2, 2, 2)
    for found, expected in (
        (x[1], values[1]),
        (x[:, 0], values[:, 0]),
        (x[0, 1], values[0, 1]),
        (x + numbers(values[0]), values + values[0]),
        (x - 1, values - 1),
        (1.5 * x, 1.5 * values),
        (x * [[1], [2]], values * [[1], [2]]),
        ([1, -1] @ x, np.array([1, -1]) @ values),
        (x.sum(axis=1), values.sum(1)),
    ):
        require_close(found, exactly(expected))
    assert [part.shape for part in x] == [(2, 15)] * 2


@BOTH
def test_numbers_fill_their_slots_to_the_last_and_no_further(slots, monkeypatch):
    tight = Slots(8, fraction_bits=4, room_bits=2, packed=slots.packed)
    values = [[8, -8, 8], [-8, 8, 8], [8] * 3] if tight.packed else [[8, -8], [-8, 8], [8, 8]]
    x = numbers(values, tight)
    total = x + x[0] + x[0] - x[1]
    assert (
        decrypt_numbers(KEY, total).tolist()
        == (np.array(values) + 2 * np.array(values[0]) - np.array(values[1])).tolist()
    )
    for growing in (
        lambda: total * 2,
        lambda: total + total,
        lambda: total + 32,
        lambda: np.ones((1, 3), int) @ total,
        lambda: total.sum(0),
        lambda: x * 0.5,
        lambda: x + 32 * 8.0,
    ):
        with pytest.raises(EncodingOverflow, match=r"need slots of \d+ bits and have 11; .*room_"):
            growing()
    # without the bounds the numbers beside it would change
    monkeypatch.setattr(EncryptedNumbers, "_fitting", lambda self, bound: bound)
    if tight.packed:
        wrong = decrypt_numbers(KEY, total * 4)
        assert (np.abs(wrong - 4 * decrypt_numbers(KEY, total)) > 0).any()


def test_slots_use_a_plaintext_to_its_last_bit():
    slots = Slots(max_abs=2**10 - 1, fraction_bits=0, room_bits=0)
    short = slots.in_one(SHORT.public)
    assert (slots.width, short) == (11, 127 // 11)
    for sign in (1, -1):
        values = [sign * (2**10 - 1)] * (2 * short + 1)
        assert decrypt_numbers(SHORT, numbers(values, slots, SHORT)).tolist() == values
    assert numbers(values, slots, SHORT)._ciphertexts.shape == (3,)


def test_rounding_is_to_the_nearest_and_integers_are_exact():
    x = numbers([2.0**-11, 3 * 2.0**-11, 0.1, -8.0, True])
    assert decrypt_numbers(KEY, x).tolist() == [0, 2.0**-9, 102 / 1024, -8, 1]
    assert x.error_bound == 2.0**-11
    assert (x * 3).fraction_bits == 10
    assert (x * 3).error_bound == 3 * 2.0**-11
    assert ((x * 0.5).fraction_bits, (x * 0.5).error_bound) == (16, 2.0**-12)
    assert (x * 0.3).error_bound > 0.3 * 2.0**-11 + 8 * 2.0**-8
    wide = Slots(2.0**60, fraction_bits=0, room_bits=10)
    values = [2**53 + 2, -(2**60)]  # from here on not every integer is a float
    assert decrypt_numbers(KEY, numbers(values, wide)).tolist() == values
    assert decrypt_numbers(KEY, numbers(np.array(values), wide) - (2**53 + 1))[0] == 1


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([[1, 2], [8.01, 0]], EncodingOverflow, r"number \(1, 0\) is above max_abs=8.0"),
        ([2**70], EncodingOverflow, r"number \(0,\) is above"),
        ([1, np.nan], DataError, r"number \(1,\) is not a finite number"),
        ([[1], [np.inf]], DataError, r"number \(1, 0\) is not a finite number"),
        (np.array([1, 0.5], dtype=object), DataError, r"number \(1,\) .* dtype object"),
        (["1"], DataError, "cannot encode dtype"),
        ([1j], DataError, "cannot encode dtype complex128"),
        ([[1], [1, 2]], DataError, "do not form an array"),
        (3.0, ParameterError, "a single number is not packed"),
    ],
)
def test_what_is_no_number_up_to_the_largest_is_refused_with_its_place(values, error, message):
    with pytest.raises(error, match=message):
        numbers(values)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda x: x * [1, 2, 3],
        lambda x: x @ [1, 2, 3],
        lambda x: 2 @ x,
        lambda x: numbers(1, ALONE) @ [1],
        lambda x: numbers([1], ALONE) @ 2.0,
        lambda x: [1, 2] @ x[0],
        lambda x: x.sum(),
        lambda x: x.sum(axis=-1),
        lambda x: x.sum(axis=2),
        lambda x: x[:, 0:2],
        lambda x: x[..., 0],
        lambda x: x[None],
        lambda x: x[True],
        lambda x: x[np.array([0])],
        lambda x: list(x[0]),
        lambda x: x + numbers([[1, 2]] * 2),
        lambda x: x + numbers([[1, 2, 3]] * 2, ALONE),
        lambda x: [[1], [2], [3]] - x,
        lambda x: x + np.array([1, 2]),
        lambda x: x + np.zeros((2, 1, 4)),
        lambda x: numbers([1]) - [1, 2, 3, 4],
        lambda x: (x * np.zeros(1))._with_fraction_bits(1 << 16).encode(SeededRng(1)),
        lambda x: x * x,
        lambda x: x @ x,
        lambda x: x + encrypt(KEY, [1, 2, 3], SeededRng(0)),
        lambda x: x == x,
        lambda x: x < 1,
        lambda x: bool(x),
        lambda x: np.array(x),
        lambda x: np.exp(x),
        lambda x: np.mean(x),
        lambda x: np.sum(x, 0, float),
        lambda x: np.concatenate([x, x]),
        lambda x: x / 2,
        lambda x: x + numbers([[1, 2, 3]] * 2, key=OTHER),
        lambda x: decrypt_numbers(OTHER, x),
        lambda x: pickle.dumps(x),
    ],
)
def test_what_packed_numbers_cannot_do_is_refused(misuse):
    with pytest.raises((ParameterError, DataError)):
        misuse(numbers([[1.0, 2, 3], [4, 5, 6]]))


def test_shapes_that_do_not_fit_are_named_as_those_of_numbers():
    packed, alone = numbers([[1.0, 2, 3]]), numbers([1.0, 2], ALONE)
    for product, message in (
        (lambda: [[1, 2]] @ packed, "(1, 2) and (1, 3)"),
        (lambda: alone @ [1, 2, 3], "(2,) and (3,)"),
        (lambda: encrypt(KEY, [1, 2], SeededRng(0)) @ [1, 2, 3], "(2,) and (3,)"),
    ):
        with pytest.raises(ParameterError, match=re.escape(f"shapes {message} do not fit")):
            product()


OTHER = generate(SeededRng(3), INSECURE_TEST_512)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_abs": 0}, "max_abs must be a positive number"),
        ({"max_abs": np.nan}, "max_abs must be a positive number"),
        ({"max_abs": "1"}, "max_abs must be a positive number"),
        ({"max_abs": 10**400}, "max_abs must be a float"),
        ({"max_abs": 1e-30}, "do not fit into a slot"),
        ({"max_abs": 1e300}, "do not fit into a slot"),
        ({"max_abs": 1, "room_bits": 2.0}, "room_bits must be an integer"),
        ({"max_abs": 1, "scalar_bits": -1}, "scalar_bits must be in 0"),
        ({"max_abs": 1, "packed": 1}, "packed must be True or False"),
    ],
)
def test_slots_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Slots(**arguments)


@BOTH
def test_numbers_travel_as_bytes_and_results_have_room_only_if_their_size_is_said(slots):
    x = numbers(np.arange(14).reshape(2, 7) / 2, slots)
    fresh = EncryptedNumbers.decode(x.encode(SeededRng(1)), KEY.public)
    assert (fresh.slots, fresh.shape, fresh.error_bound) == (slots, (2, 7), 2.0**-11)
    assert (fresh.bound, fresh.fraction_bits) == (x.bound, 10)
    data = ([0.25, -1.5] @ fresh).encode(SeededRng(2))
    result = EncryptedNumbers.decode(data, KEY.public)
    assert (
        decrypt_numbers(KEY, result).tolist()
        == (np.array([0.25, -1.5]) @ np.arange(14).reshape(2, 7) / 2).tolist()
    )
    assert result.error_bound is None
    with pytest.raises(EncodingOverflow):
        result + 1
    known = EncryptedNumbers.decode(data, KEY.public, max_abs=12.25)
    assert (known + known).error_bound is None
    assert decrypt_numbers(KEY, known + 1).tolist() == (decrypt_numbers(KEY, result) + 1).tolist()
    # the bytes do not show how large the scalars were
    other = ([0.25, 0.5] @ fresh).encode(SeededRng(2))
    assert other[:42] == data[:42]
    for max_abs, error in ((1e9, EncodingOverflow), (np.nan, ParameterError)):
        with pytest.raises(error):
            EncryptedNumbers.decode(data, KEY.public, max_abs=max_abs)


@pytest.mark.parametrize(
    ("start", "new", "message"),
    [
        (0, b"xPC", "no encrypted numbers of version 1"),
        (3, b"\2", "no encrypted numbers of version 1"),
        (4, b"\4", "unknown flags"),
        (4, b"\2", "3 numbers in 0 ciphertexts"),
        (5, b"\0\1", "1 fraction bits in slots of 10"),
        (5, b"\0\x0b", "11 fraction bits in slots of 10"),
        (7, b"\x7f\xf0" + bytes(6), "max_abs must be a positive number"),
        (19, b"\3\0", "do not fit into plaintexts"),
        (21, bytes(4), "0 numbers in 1 ciphertexts of"),
        (21, bytes(3) + b"\x0c", "12 numbers in 1 ciphertexts of 11"),
    ],
)
def test_altered_bytes_are_refused(start, new, message):
    data = numbers([1, 2, 3]).encode(SeededRng(1))
    with pytest.raises(DecodeError, match=message):
        EncryptedNumbers.decode(data[:start] + new + data[start + len(new) :], KEY.public)


def test_limit_numbers_larger_than_their_slots_spoil_those_beside_them():
    honest = numbers([1, 2, 3])
    lie = numbers([0, 0, 0])._with(encrypt(KEY, [1 << (PACKED.width - 1)], SeededRng(1)))
    found = decrypt_numbers(KEY, honest + lie)
    assert found[0] < -8
    assert found[1:].tolist() == [2 + 2.0**-10, 3]
    # only what is larger than all slots together is noticed
    strange = encrypt(KEY, [1 << (PACKED.width * 11 + 3)], SeededRng(1))
    with pytest.raises(DataError, match="more than its slots"):
        decrypt_numbers(KEY, numbers([1, 2])._with(strange))


def test_numbers_show_nothing_but_shape_slots_and_key():
    x = numbers([[7.75, 7.75]], key=KEY)
    assert repr(x) == f"<EncryptedNumbers of shape (1, 2) in {PACKED} under {KEY.public!r}>"
    assert isinstance(x._ciphertexts, Ciphertexts)
    # slots of equal numbers are one plaintext, and equal plaintexts differ as ciphertexts
    assert (
        x.encode(SeededRng(1))[-128:] != numbers([[7.75, 7.75]], seed=1).encode(SeededRng(1))[-128:]
    )


# python-paillier as the oracle


@settings(max_examples=25)
@given(st.lists(small, min_size=1, max_size=3), scalars)
def test_phe_decrypts_numbers_to_the_same_floats(values, scalar):
    found = numbers(values, ALONE) * scalar + 0.7
    theirs = phe.numbers_to_phe(found, SeededRng(1))
    private = phe.private_key_to_phe(KEY)
    assert [private.decrypt(c) for c in theirs] == decrypt_numbers(KEY, found).tolist()


WIDE = Slots(max_abs=8, fraction_bits=10, scalar_bits=6, room_bits=300, packed=False)
few_digits = st.one_of(small.filter(lambda x: not 0 < abs(x) < 1e-30), st.integers(-8, 8))


@settings(max_examples=25)
@given(st.lists(few_digits, min_size=1, max_size=3))
def test_numbers_of_phe_are_decrypted_to_the_same_floats(values):
    theirs = phe.public_key_to_phe(KEY.public)
    encrypted = [theirs.encrypt(v) for v in values]
    found = phe.numbers_from_phe(encrypted, KEY.public, WIDE)
    assert decrypt_numbers(KEY, found).tolist() == values
    assert found.error_bound == 0
    private = phe.private_key_to_phe(KEY)
    again = phe.numbers_to_phe(found * 3, SeededRng(1))
    assert [private.decrypt(c) for c in again] == decrypt_numbers(KEY, found * 3).tolist()


def test_numbers_of_phe_that_do_not_fit_the_slots_are_refused():
    theirs = phe.public_key_to_phe(KEY.public)
    half, tiny = theirs.encrypt(0.5), theirs.encrypt(1e-300)
    for encrypted, slots, error, message in (
        ([half], PACKED, ParameterError, "packed=False"),
        ([half], ALONE, EncodingOverflow, "slots of 61 bits and have 43"),
        ([tiny], WIDE, EncodingOverflow, "slots of"),
        ([EncryptedNumber(theirs, 2, -1001)], WIDE, EncodingOverflow, "has exponent -1001"),
    ):
        with pytest.raises(error, match=message):
            phe.numbers_from_phe(encrypted, KEY.public, slots)
    with pytest.raises(ParameterError, match="packed=False"):
        phe.numbers_to_phe(numbers([1]), SeededRng(1))
    wide = Slots(1, fraction_bits=501, room_bits=8, packed=False)
    with pytest.raises(ParameterError, match="n/3"):
        phe.numbers_to_phe(numbers([1], wide) * 255, SeededRng(1))
    assert decrypt(KEY, numbers([1], wide)._ciphertexts).tolist() == [1 << 501]
