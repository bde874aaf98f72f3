"""The fixed-point codec: exact bounds, exact integers, and one typed error for every overflow."""

import math
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from xclp_crypto.algebra.ring import add_into, residue_dtype
from xclp_crypto.errors import DataError, EncodingOverflow, ParameterError
from xclp_crypto.primitives.fixed_point import FixedPoint

BOUNDARIES = [3, 4, 5, 255, 256, 257, 2**13, 2**16 + 1, 2**31 - 1, 2**32, 2**33 - 9]
BOUNDARIES += [2**61 - 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 59, 2**64 - 1, 2**64]
moduli = st.sampled_from(BOUNDARIES) | st.integers(3, 2**64)


@st.composite
def any_codec(draw):
    """Every modulus, every number of fraction bits, up to 50 parties."""
    modulus = draw(moduli)
    top = (modulus - 1) // 2
    fraction_bits = draw(st.integers(0, top.bit_length() - 1))
    return FixedPoint(fraction_bits, draw(st.integers(1, min(50, top))), modulus)


WIDE = [2**64, 2**64 - 59, 2**61 - 1]
codecs = st.builds(FixedPoint, st.integers(8, 40), st.integers(2, 50), st.sampled_from(WIDE))
narrow = st.builds(FixedPoint, st.integers(8, 25), st.integers(2, 50), st.just(2**32))
all_codecs = codecs | narrow | any_codec()
powers = pytest.mark.parametrize("bits", [32, 64])


def lift(residue: int, modulus: int) -> int:
    return residue if 2 * residue < modulus else residue - modulus


def floats_of(codec: FixedPoint) -> st.SearchStrategy[float]:
    unit = math.ldexp(1.0, -codec.fraction_bits)
    small = min(100 * unit, codec.max_abs)
    return st.floats(-codec.max_abs, codec.max_abs) | st.floats(-small, small)


def total(codec: FixedPoint, encoded: list[np.ndarray]) -> np.ndarray:
    """Sum as the masked protocols do: modulo m."""
    summed = encoded[0].copy()
    for residues in encoded[1:]:
        add_into(summed, residues, codec.modulus)
    return summed


def within_bound(codec: FixedPoint, decoded: float, values: list[float]) -> bool:
    """The documented bound, in exact arithmetic."""
    true = sum(map(Fraction, values), Fraction(0))
    rounding = Fraction(len(values), 2 ** (codec.fraction_bits + 1))
    return abs(Fraction(float(decoded)) - true) <= rounding + abs(Fraction(float(decoded))) / 2**53


# Accuracy.


@given(st.data())
def test_user_case_results_above_a_certain_precision_stay_within_the_documented_bound(data):
    codec = data.draw(all_codecs)
    assert codec.error_bound == codec.parties / 2 ** (codec.fraction_bits + 1)
    columns = data.draw(st.integers(1, 3))
    rows = st.lists(floats_of(codec), min_size=columns, max_size=columns)
    values = data.draw(st.lists(rows, min_size=codec.parties, max_size=codec.parties))
    decoded = codec.decode(total(codec, [codec.encode(row) for row in values]))
    assert decoded.dtype == np.float64
    for column in range(columns):
        assert within_bound(codec, decoded[column], [row[column] for row in values])


@pytest.mark.parametrize("modulus", [2**32, *WIDE])
@pytest.mark.parametrize("fraction_bits", range(8, 41))
def test_every_number_of_fraction_bits_from_8_to_40_up_to_the_largest_value(fraction_bits, modulus):
    parties = 7
    if 2**fraction_bits > (modulus - 1) // 2:
        with pytest.raises(ParameterError, match="fraction_bits"):
            FixedPoint(fraction_bits, parties, modulus)
        return
    codec = FixedPoint(fraction_bits, parties, modulus)
    values = np.sin(np.arange(parties * 50.0) ** 2).reshape(parties, 50) * codec.max_abs
    values[:, 0], values[:, 1], values[:, 2] = codec.max_abs, -codec.max_abs, 2.0**-60
    decoded = codec.decode(total(codec, [codec.encode(v) for v in values]))
    for place, column in enumerate(values.T.tolist()):
        assert within_bound(codec, decoded[place], column)


@pytest.mark.parametrize("fraction_bits", [8, 20, 40])
@pytest.mark.parametrize("clients", [2, 3, 10, 50])
def test_user_case_decoding_is_right_for_2_to_50_clients_and_after_a_drop(clients, fraction_bits):
    codec = FixedPoint(fraction_bits, clients)
    values = np.sin(np.arange(clients * 12)).reshape(clients, 3, 4) * 1000
    encoded = [codec.encode(v) for v in values]
    for survivors in (clients, clients - 1, 1):
        decoded = codec.decode(total(codec, encoded[:survivors]))
        for place in np.ndindex(3, 4):
            column = [float(v[place]) for v in values[:survivors]]
            assert within_bound(codec, decoded[place], column)


@pytest.mark.parametrize("modulus", [2**32, 2**64, 2**31 - 1, 2**64 - 59])
def test_user_case_plain_floats_0_0_and_5_1_survive_encoding_and_are_refused_without(modulus):
    codec = FixedPoint(20, 2, modulus)
    decoded = codec.decode(codec.encode([0.0, 5.1]))
    assert decoded[0] == 0.0
    assert abs(decoded[1] - 5.1) <= 2**-21
    for plain in ([0.0, 5.1], [0, 5], np.zeros(2, np.float32), np.zeros(2, np.int64), [True]):
        with pytest.raises(DataError, match="encode"):
            codec.decode(plain)
    with pytest.raises(DataError, match="encode"):
        codec.decode(np.zeros(2, np.uint32 if codec.dtype == np.uint64 else np.uint64))


def test_rounding_is_to_nearest_with_ties_to_even():
    codec = FixedPoint(0, 1)
    values = [0.5, 1.5, 2.5, -0.5, -1.5, 0.49999999999999994, 2**52 + 0.5, -0.75]
    assert codec.decode(codec.encode(values)).tolist() == [0, 2, 2, 0, -2, 0, 2**52, -1]


def test_negative_values_are_lifted_around_zero():
    for modulus in (2**32, 2**64, 2**61 - 1, 1001):
        codec = FixedPoint(4, 2, modulus)
        encoded = codec.encode([-1.0, 1.0, -1 / 16])
        assert encoded.tolist() == [codec.modulus - 16, 16, codec.modulus - 1]
        assert codec.decode(encoded).tolist() == [-1.0, 1.0, -1 / 16]


# Integers.


def test_user_case_a_sum_of_int32_inputs_10_000_times_700_000_does_not_overflow_inside():
    values = np.full(10_000, 700_000, np.int32)
    codec = FixedPoint(20, 10_000)
    summed = total(codec, [codec.encode(v) for v in values])
    assert codec.decode(summed) == 7_000_000_000
    assert codec.decode(codec.encode(values).sum(dtype=np.uint64)) == 7_000_000_000


@given(st.data())
def test_integers_of_every_dtype_are_exact_up_to_the_limit(data):
    codec = data.draw(any_codec())
    dtype = np.dtype(
        data.draw(st.sampled_from(["i1", "i2", "<i4", ">i4", "i8", ">u8", "u1", "u4"]))
    )
    info = np.iinfo(dtype)
    values = data.draw(st.lists(st.integers(int(info.min), int(info.max)), min_size=1, max_size=4))
    limit = (codec.modulus - 1) // 2 // codec.parties // 2**codec.fraction_bits
    if data.draw(st.booleans()):
        values = [abs(x) % (limit + 1) * (-1 if x < 0 else 1) for x in values]
    array = np.array(values, dtype)
    if max(map(abs, values)) <= limit:
        encoded = codec.encode(array)
        assert encoded.dtype == residue_dtype(codec.modulus)
        assert encoded.tolist() == [x * 2**codec.fraction_bits % codec.modulus for x in values]
    else:
        with pytest.raises(EncodingOverflow):
            codec.encode(array)


def test_integers_are_never_turned_into_floats_on_the_way_in():
    codec = FixedPoint(0, 1)
    values = [2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63) + 1]
    assert codec.encode(values).tolist() == [x % 2**64 for x in values]


def test_bools_lists_scalars_and_numpy_scalars_are_accepted():
    codec = FixedPoint(3, 2)
    assert codec.encode([True, False]).tolist() == [8, 0]
    assert codec.encode(np.bool_(True)).tolist() == 8
    assert codec.encode(2).tolist() == codec.encode(2.0).tolist() == 16
    assert codec.encode(np.float32(0.5)).tolist() == codec.encode(np.float16(0.5)).tolist() == 4
    assert codec.encode(np.array([1.5], ">f8")).tolist() == [12]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 4), (4, 0), (2, 3), (2, 0, 3), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["f8", "i4", "?"])
@pytest.mark.parametrize("modulus", [2**32, 2**64, 2**32 - 5, 2**64 - 59, 201])
def test_every_shape_is_kept_0_d_and_empty_too(shape, dtype, modulus):
    codec = FixedPoint(5, 3, modulus)
    one = np.ones(shape, dtype)
    for values, expected in ((one, 1), (one - 2 * one if dtype != "?" else one, None)):
        encoded = codec.encode(values)
        assert isinstance(encoded, np.ndarray)
        assert (encoded.shape, encoded.dtype) == (shape, residue_dtype(modulus))
        decoded = codec.decode(encoded)
        assert isinstance(decoded, np.ndarray)
        assert decoded.shape == shape
        assert np.all(decoded == (values if expected is None else expected))


def test_encoding_and_decoding_leave_the_input_alone_and_share_no_memory():
    codec = FixedPoint(0, 2)
    for values in (np.arange(3.0), np.arange(3), np.arange(3, dtype=np.uint64)):
        before = values.copy()
        encoded = codec.encode(values)
        assert not np.shares_memory(encoded, values)
        assert not np.shares_memory(codec.decode(encoded), encoded)
        np.testing.assert_array_equal(values, before)


@pytest.mark.parametrize("modulus", [3, 4, 255, 256, 257, 1000])
def test_every_residue_of_a_small_modulus_is_lifted_to_the_number_nearest_to_zero(modulus):
    codec = FixedPoint(0, 1, modulus)
    residues = np.arange(modulus).astype(codec.dtype)
    lifted = [lift(r, modulus) for r in range(modulus)]
    assert (min(lifted), max(lifted)) == (-(modulus // 2), (modulus - 1) // 2)
    assert codec.decode(residues).tolist() == codec.decode_integers(residues).tolist() == lifted


@given(any_codec(), st.data())
def test_decoded_integers_are_exact_where_float64_would_round(codec, data):
    codec = FixedPoint(0, codec.parties, codec.modulus)
    limit = (codec.modulus - 1) // 2 // codec.parties
    each = st.integers(-limit, limit) | st.sampled_from([limit, -limit])
    values = data.draw(st.lists(each, min_size=1, max_size=codec.parties))
    summed = codec.decode_integers(total(codec, [codec.encode([v]) for v in values]))
    assert summed.dtype == np.int64
    assert summed.tolist() == [sum(values)]


def test_decode_integers_keeps_what_a_float_cannot_hold_and_needs_a_codec_of_integers():
    codec = FixedPoint(0, 1)
    values = [2**53 + 1, -(2**62) - 1]
    assert codec.decode_integers(codec.encode(values)).tolist() == values
    assert codec.decode_integers(codec.encode(-7)).shape == ()
    assert codec.decode_integers(codec.encode(np.zeros((0, 2), int))).shape == (0, 2)
    with pytest.raises(ParameterError, match="fraction_bits = 0"):
        FixedPoint(1).decode_integers(FixedPoint(1).encode([1]))
    with pytest.raises(DataError, match="encode"):
        codec.decode_integers(np.array([1, 2]))


@pytest.mark.parametrize("modulus", [3, 255, 257, 2**13, 2**32 - 5, 2**61 - 1, 2**64 - 59])
def test_what_is_no_residue_is_not_decoded(modulus):
    codec = FixedPoint(0, 1, modulus)
    largest = np.zeros((2, 3), codec.dtype)
    largest[1, 2] = modulus - 1
    assert codec.decode(largest)[1, 2] == lift(modulus - 1, modulus)
    largest[1, 2] += 1
    for decode in (codec.decode, codec.decode_integers):
        with pytest.raises(DataError, match=r"^row 1, column 2: .*not a residue modulo"):
            decode(largest)


# Overflow.


def test_user_case_10_clients_of_2_to_the_29_in_a_ring_of_2_to_the_32_are_refused():
    for modulus in (2**32, 2**32 - 5):
        codec = FixedPoint(0, 10, modulus)
        for values in ([2**29], [2.0**29], [-(2**29)], np.array([2**29], np.int32)):
            with pytest.raises(EncodingOverflow, match=r"needs a modulus of 2\^34\."):
                codec.encode(values)
    # 32 bits would do for 7 values up to 2^28, and 34 bits for the ten, as the error says.
    assert FixedPoint(0, 7, 2**32).encode([2**28]).tolist() == [2**28]
    assert FixedPoint(0, 10, 2**34).encode([2**29]).tolist() == [2**29]
    with pytest.raises(EncodingOverflow):
        FixedPoint(0, 10, 2**33).encode([2**29])


def test_user_case_2_to_the_40_in_a_ring_of_2_to_the_32_is_refused():
    for values in (2**40, [2**40], [2.0**40], np.array([-(2**40)]), [0, 1, 2**40], [0, 2**63 + 1]):
        for codec in (FixedPoint(0, 1, 2**32), FixedPoint(16, 2, 2**32)):
            with pytest.raises(EncodingOverflow):
                codec.encode(values)


@given(all_codecs, st.data())
def test_user_case_overflow_is_always_the_same_typed_error_also_for_neighbours(codec, data):
    too_large = data.draw(
        st.floats(codec.max_abs, exclude_min=True, allow_infinity=False)
        | st.integers(math.floor(codec.max_abs) + 1, 2**64)
        | st.sampled_from([1.7e308, 2**63, 2**64, 2**70, 10**400, np.float32(3e38)])
    )
    if isinstance(too_large, int):  # the float max_abs may be rounded down from the integer limit
        assume(too_large * 2**codec.fraction_bits > (codec.modulus - 1) // 2 // codec.parties)
    sign = data.draw(st.sampled_from([1, -1]))
    neighbour = data.draw(st.sampled_from([0, 1, -1]))
    for values in (
        too_large * sign,
        [neighbour, too_large * sign],
        [[too_large * sign], [neighbour]],
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(EncodingOverflow):
                codec.encode(values)


@given(all_codecs)
def test_max_abs_is_the_largest_value_of_which_no_sum_wraps(codec):
    for value in (codec.max_abs, -codec.max_abs):
        encoded = codec.encode([value])
        lifted = lift(int(encoded[0]), codec.modulus)
        assert abs(lifted * codec.parties) <= (codec.modulus - 1) // 2  # exact: no wrap
        decoded = codec.decode(total(codec, [encoded] * codec.parties))
        assert within_bound(codec, decoded[0], [value] * codec.parties)
        with pytest.raises(EncodingOverflow):
            codec.encode([math.nextafter(value, math.copysign(math.inf, value))])
    # The next float64 is above the limit, and one unit above the limit would wrap.
    limit = (codec.modulus - 1) // 2 // codec.parties
    assert Fraction(math.nextafter(codec.max_abs, math.inf)) * 2**codec.fraction_bits > limit
    wrapped = codec.parties * (limit + 1)
    assert lift(wrapped % codec.modulus, codec.modulus) != wrapped


@given(all_codecs, st.data())
def test_the_largest_integer_is_exact_and_the_next_is_refused(codec, data):
    limit = ((codec.modulus - 1) // 2 // codec.parties) >> codec.fraction_bits
    sign = data.draw(st.sampled_from([1, -1]))
    assert codec.encode([sign * limit]).tolist() == [
        sign * limit * 2**codec.fraction_bits % codec.modulus
    ]
    with pytest.raises(EncodingOverflow):
        codec.encode([sign * (limit + 1)])


@given(all_codecs, st.data())
@settings(max_examples=50)
def test_the_modulus_that_the_error_names_is_enough_and_the_next_smaller_one_is_not(codec, data):
    value = data.draw(st.floats(codec.max_abs, 1e30, exclude_min=True) | st.integers(2**40, 2**62))
    assume(codec.parties * Fraction(value) * 2**codec.fraction_bits > (codec.modulus - 1) // 2)
    signed = data.draw(st.sampled_from([1, -1])) * value
    with pytest.raises(EncodingOverflow) as error:
        codec.encode([0, signed] if isinstance(value, int) else [0.0, signed])
    needed = int(re.search(r"needs a modulus of 2\^(\d+)\.", str(error.value))[1])
    largest = codec.parties * math.ceil(Fraction(value) * 2**codec.fraction_bits)
    assert 2 ** (needed - 2) <= largest < 2 ** (needed - 1)
    assert 2**needed > codec.modulus
    if needed <= 64:
        FixedPoint(codec.fraction_bits, codec.parties, 2**needed).encode(signed)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        (777777.0**3, None),
        ([0.0, 777777.0**3], "row 1"),
        ([[0, 0], [0, 777777**3]], "row 1, column 1"),
        ([[0, 777777**3, -(777778**3)]], "row 0, column 2"),
        (np.full((2, 1, 1), 777777.0**3), r"index \(0, 0, 0\)"),
        (np.array([0, 2**63], object), "row 1"),
    ],
)
def test_an_overflow_names_client_place_limit_and_bits_but_not_the_value(values, place):
    codec = FixedPoint(40, 3)
    with pytest.raises(EncodingOverflow) as error:
        codec.encode(values, client="clinic 7")
    message = str(error.value)
    assert message.startswith("client 'clinic 7': " + ("the" if place is None else ""))
    assert place is None or re.search(rf"client 'clinic 7': {place}: ", message)
    assert "3 parties, 40 fraction bits and modulus 2^64" in message
    assert repr(codec.max_abs) in message
    assert re.search(r"needs a modulus of 2\^\d+\.", message)
    for secret in (777777**3, 777777.0**3, 777778**3, 2**63):
        assert str(secret) not in message


# What is not a number.


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_user_case_nan_or_infinity_is_refused_at_the_client_naming_row_and_column(bad, dtype):
    values = np.zeros((5, 4), dtype)
    values[3, 2] = bad
    with pytest.raises(DataError, match=r"client 'alice': row 3, column 2: .*NaN or infinite") as e:
        FixedPoint().encode(values, client="alice")
    assert not isinstance(e.value, EncodingOverflow)
    with pytest.raises(DataError, match=r"^row 1: "):
        FixedPoint().encode([0.0, bad])
    with pytest.raises(DataError, match=r"^the value is NaN"):
        FixedPoint().encode(bad)


@pytest.mark.parametrize(
    "values",
    [
        *("1", ["a"], [None], [1, None], 1j, [1j], np.array([1, 2], object), np.array(["1"])),
        *(np.array([1], "M8[s]"), np.array([1], "m8[s]"), [b"1"], [[1], [2, 3]], {"a": 1}),
        np.zeros(1, np.dtype([("a", "f8")])),
        pytest.param(
            np.zeros(1, np.longdouble),
            marks=pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="is float64"),
        ),
    ],
)
def test_other_types_are_refused(values):
    with pytest.raises(DataError, match="client 'alice'") as error:
        FixedPoint().encode(values, client="alice")
    assert not isinstance(error.value, EncodingOverflow)


# Parameters.


@pytest.mark.parametrize("name", ["fraction_bits", "parties", "modulus"])
@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, 2.0, "8", None, True, 1000, 2**65])
def test_user_case_a_bad_range_is_rejected_when_the_object_is_made_naming_the_value(name, bad):
    if bad == 1000 and name != "fraction_bits":
        bad = 0
    with pytest.raises(ParameterError, match=rf"{name}.*got {re.escape(repr(bad))}"):
        FixedPoint(**{name: bad})


@powers
def test_the_limits_of_the_parameters_are_accepted_and_no_more(bits):
    modulus = 2**bits
    FixedPoint(0, 1, modulus)
    FixedPoint(bits - 2, 2, modulus).encode([0.5, -0.5])
    extreme = FixedPoint(0, 2 ** (bits - 1) - 1, modulus)
    assert extreme.max_abs == 1.0
    assert extreme.encode([1, -1]).tolist() == [1, modulus - 1]
    for bad in ((bits - 1, 2, modulus), (0, 2 ** (bits - 1), modulus)):
        with pytest.raises(ParameterError, match=rf"2\^{bits}"):
            FixedPoint(*bad)


@pytest.mark.parametrize("modulus", BOUNDARIES)
def test_the_limits_for_any_modulus(modulus):
    top = (modulus - 1) // 2
    f = top.bit_length() - 1
    assert FixedPoint(f, 1, modulus).decode(FixedPoint(f, 1, modulus).encode([1, -1])).tolist() == [
        1,
        -1,
    ]
    one_each = FixedPoint(0, top, modulus)
    assert one_each.encode([1, -1, 0]).tolist() == [1, modulus - 1, 0]
    with pytest.raises(ParameterError, match="fraction_bits"):
        FixedPoint(f + 1, 1, modulus)
    with pytest.raises(ParameterError, match="parties"):
        FixedPoint(0, top + 1, modulus)


@pytest.mark.parametrize("modulus", [0, 1, 2, 2**64 + 1, -3])
def test_other_moduli_are_refused(modulus):
    with pytest.raises(ParameterError, match=rf"modulus.*got {modulus}"):
        FixedPoint(0, 1, modulus)


def test_codecs_are_values_and_frozen():
    assert FixedPoint() == FixedPoint(40, 2, 2**64)
    assert hash(FixedPoint(8)) == hash(FixedPoint(8))
    with pytest.raises(AttributeError):
        FixedPoint().parties = 3


@pytest.mark.parametrize(
    ("fraction_bits", "modulus", "advice"),
    [
        (40, 1 << 64, "Use fewer fraction bits, or scale the values down"),
        (0, 1 << 64, "Scale the values down"),
        (0, 1 << 32, "Use a larger modulus (at most 2^64), or scale the values down"),
        (
            *(4, 1 << 32),
            "Use fewer fraction bits or a larger modulus (at most 2^64), or scale the values down",
        ),
    ],
)
def test_an_overflow_advises_only_what_is_possible(fraction_bits, modulus, advice):
    with pytest.raises(EncodingOverflow) as caught:
        FixedPoint(fraction_bits, 2, modulus).encode([2**62])
    assert str(caught.value).endswith(f". {advice}")


def test_parameters_may_be_numpy_integers():
    codec = FixedPoint(np.int64(4), np.int32(3), np.uint64(2**63))
    assert codec == FixedPoint(4, 3, 2**63)
    assert {type(getattr(codec, n)) for n in ("fraction_bits", "parties", "modulus")} == {int}
    with pytest.raises(ParameterError, match="fraction_bits must be an integer, got True"):
        FixedPoint(True)


@pytest.mark.parametrize("values", [np.array([1], np.longdouble), np.array([1, 2], object)])
def test_arrays_that_can_be_converted_say_how(values):
    with pytest.raises(DataError, match=r"convert the array first, by astype\(np.float64\) or"):
        FixedPoint().encode(values)


def test_numbers_are_integers_without_fraction_bits():
    whole, real = FixedPoint(0, 2), FixedPoint(1, 2)
    numbers = whole.decode_numbers(whole.encode([2**53 + 1]))
    assert numbers.dtype == np.int64
    assert numbers.tolist() == [2**53 + 1]
    assert real.decode_numbers(real.encode([1.5])).tolist() == [1.5]
