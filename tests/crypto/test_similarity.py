"""Inner products, Dice, Jaccard and masked distances are exact and nothing more."""

import socket
from fractions import Fraction

import numpy as np
import pytest
from contracts.hamming import EVERY, QUICK
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import assert_blames, with_session
from two_ends import both

from xclp_crypto import (
    cross_inner_products,
    cross_masked_distances,
    cross_masked_matches,
    cross_similarities,
    secure_inner_products,
    secure_masked_distances,
    secure_similarities,
    two_party_similarity,
    wire,
)
from xclp_crypto.errors import DataError, ParameterError, PrivacyWarning
from xclp_crypto.protocols.hamming import get_backend
from xclp_crypto.protocols.hamming.between import Sizes
from xclp_crypto.protocols.hamming.integers import columns_of as columns_of_integers
from xclp_crypto.protocols.hamming.integers import integers_server, rows_of
from xclp_crypto.protocols.hamming.products import (
    SetSizes,
    masked_client,
    masked_server,
    products_client,
    products_server,
)
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import every_dropout, run, uniformity, views
from xclp_crypto.two_party_similarity import widened

RNG = np.random.default_rng(1)


def rows(n, bits):
    """Random rows, the first all zeros and the second all ones."""
    drawn = RNG.integers(0, 2, (n, bits))
    drawn[:1], drawn[1:2] = 0, 1
    return drawn


def found(door, mine, theirs, **options):
    received, sent = both(door, mine, theirs, options, options)
    assert sent[0] is None
    return received[0]


@pytest.mark.parametrize(
    ("backend", "bits"), [("rlwe", 5), ("rlwe", 32), ("rlwe", 33), ("shade-ext", 32), ("shade", 5)]
)
def test_inner_products_are_exact(backend, bits):
    mine, theirs = rows(4, bits), rows(3, bits)
    got = found(cross_inner_products, mine, theirs, backend=backend)
    assert got.dtype == np.int32
    assert np.array_equal(got, mine @ theirs.T)


def integers(n, length, magnitude):
    """Random vectors, the first two of the largest entries of either sign."""
    drawn = RNG.integers(-magnitude, magnitude + 1, (n, length))
    drawn[:1], drawn[1:2] = magnitude, -magnitude
    return drawn


@settings(max_examples=8)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=4), st.integers(1, 9), st.integers(1, 9))
def test_products_of_integers_of_all_clients_are_exact(sizes, length, magnitude):
    vectors = [integers(n, length, magnitude) for n in sizes]
    backend = "plain" if len(sizes) == 2 else "masked"
    found, _ = secure_inner_products(vectors, backend, magnitude=magnitude)
    stacked = np.concatenate(vectors)
    assert found.dtype == np.int32
    assert np.array_equal(found, stacked @ stacked.T)


@pytest.mark.parametrize(("length", "magnitude"), [(2, 3), (128, 8), (8192, 1)])
def test_products_of_integers_of_rlwe_are_exact_up_to_the_largest(length, magnitude):
    vectors = [integers(2, length, magnitude), integers(1, length, magnitude)]
    found, _ = secure_inner_products(vectors, magnitude=np.int64(magnitude))
    stacked = np.concatenate(vectors)
    assert np.array_equal(found, stacked @ stacked.T)


@pytest.mark.parametrize("backend", ["rlwe", "shade-ext", "paillier-packed"])
def test_products_of_integers_of_two_programs_are_exact(backend):
    mine, theirs = integers(4, 40, 3), integers(3, 40, 3)
    got = found(cross_inner_products, mine, theirs, backend=QUICK[backend], magnitude=3)
    assert got.dtype == np.int32
    assert np.array_equal(got, mine @ theirs.T)


def test_a_client_whose_rows_and_columns_differ_is_named():
    values = {c: integers(2, 3, 2) for c in "abc"}

    async def client(session, rng):
        session.common_secret = bytes(32)
        rows, columns = (values[session.io.name] for _ in range(2))
        if session.io.name == "b":
            columns = columns[::-1]
        bits = rows_of(rows, 2), columns_of_integers(columns, 2)
        with session.io.step("hamming"):
            sizes = Sizes(session.sizes, session.sizes)
            await get_backend("masked").client_between(session, sizes, *bits, rng)

    async def server(session, rng):
        with session.io.step("hamming"):
            return await integers_server(session, 3, 2, get_backend("masked"))

    make = with_session(values, client, server, numbers={c: [2] for c in values})
    assert_blames(run(make).errors[SERVER], ("b",), "another product the other way round")


@pytest.mark.parametrize(
    ("rows_given", "options", "error", "message"),
    [
        ([[[1, 4]], [[0, 0]]], {}, DataError, "'client-0', row 0, column 1: must be in −3 … 3"),
        ([[[1]], [[0, 0]]], {}, DataError, "'client-1' has rows of 2 numbers, 'client-0' of 1"),
        ([[[1.0]], [[0]]], {}, DataError, "'client-0': must be integers, got float64"),
        ([[1], [[0]]], {}, DataError, r"'client-0': must have shape \(rows, numbers\), got \(1,\)"),
        ([[[1]], [[0]]], {"packed": 1}, ParameterError, "packed bits or, with magnitude, integers"),
        ([[[1]], [[0]]], {"magnitude": 0}, ParameterError, "an integer of at least 1, got 0"),
        ([[[1]], [[0]]], {"magnitude": 2.0}, ParameterError, "an integer of at least 1, got 2.0"),
        ([[[1]], [[0]]], {"magnitude": 91}, ParameterError, r"8192, .* got 91² · 1 = 8281"),
        (
            [[[1]], [[0]]],
            {"backend": "shade"},
            ParameterError,
            "'shade' cannot compute distances of",
        ),
    ],
)
def test_integers_that_cannot_be_multiplied_are_refused(rows_given, options, error, message):
    with pytest.raises(error, match=message):
        secure_inner_products(rows_given, **{"magnitude": 3, **options})


@pytest.mark.parametrize("measure", ["dice", "jaccard"])
def test_similarities_are_those_of_sets(measure):
    mine, theirs = rows(5, 40), rows(4, 40)
    got = found(cross_similarities, mine, theirs, measure=measure)
    for i, x in enumerate(mine):
        for j, y in enumerate(theirs):
            common, sizes, union = (x & y).sum(), x.sum() + y.sum(), (x | y).sum()
            part, whole = (2 * common, sizes) if measure == "dice" else (common, union)
            assert got[i, j] == (part / whole if whole else 0)
    of_all, _ = secure_similarities([mine, theirs], "masked", measure=measure)
    assert np.array_equal(of_all[:5, 5:], got)
    assert np.array_equal(np.diagonal(of_all), [0, 1, 1, 1, 1, 0, 1, 1, 1])


def masked_distances(bits, valid):
    both_valid = valid[:, None] & valid[None]
    return ((bits[:, None] != bits[None]) & both_valid).sum(axis=2), both_valid.sum(axis=2)


@EVERY
def test_masked_distances_of_all_clients_are_exact_with_every_back_end(backend):
    bits, masks = ([rows(n, 5) for n in (2, 0, 2)] for _ in range(2))
    found, cost = secure_masked_distances(bits, masks, backend)
    differing, valid = masked_distances(np.concatenate(bits), np.concatenate(masks))
    assert {found.differing.dtype, found.valid.dtype} == {np.dtype(np.uint16)}
    assert np.array_equal(found.differing, differing)
    assert np.array_equal(found.valid, valid)
    assert set(cost.steps) == {"setup", "hamming"}


@settings(max_examples=8)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=4), st.integers(1, 70), st.data())
def test_products_and_masked_distances_of_all_clients_are_exact(sizes, n_bits, data):
    backend = data.draw(st.sampled_from(["plain", "masked"]))
    bits, masks = ([rows(n, n_bits) for n in sizes] for _ in range(2))
    products, _ = secure_inner_products(bits, backend)
    stacked = np.concatenate(bits)
    assert products.dtype == np.int32
    assert np.array_equal(products, stacked @ stacked.T)
    packed = ([np.packbits(b, axis=1) for b in of] for of in (bits, masks))
    got, _ = secure_masked_distances(*packed, backend, packed=n_bits)
    assert np.array_equal(got, masked_distances(stacked, np.concatenate(masks)))


ARRAYS = {c: (rows(n, 7), rows(n, 7)) for c, n in (("a", 2), ("b", 1), ("c", 3))}


def parties(client, server, backend="masked"):
    """A factory of roles, `client(session, bits, masks, method, rng)` and `server(session, …)`."""
    method = get_backend(backend)

    async def client_part(session, rng):
        session.common_secret = bytes(32)
        bits, masks = (x.astype(np.uint8) for x in ARRAYS[session.io.name])
        with session.io.step("hamming"):
            await client(session, bits, masks, method, rng)

    async def server_part(session, rng):
        with session.io.step("hamming"):
            return await server(session, 7, method)

    numbers = {c: [len(bits)] for c, (bits, _) in ARRAYS.items()}
    return with_session(ARRAYS, client_part, server_part, numbers=numbers)


def test_every_dropout_costs_only_the_rows_of_its_client():
    for case in every_dropout(parties(masked_client, masked_server), ["b"]):
        assert not case.outcome.errors, case
        found, sizes = case.outcome.results[SERVER]
        assert list(sizes.items()) in ([("a", 2), ("c", 3)], [("a", 2), ("b", 1), ("c", 3)])
        left = (np.concatenate([ARRAYS[c][i] for c in sizes]) for i in (0, 1))
        assert np.array_equal(found, masked_distances(*left)), case


def test_the_server_receives_distances_and_sizes_and_clients_receive_nothing():
    seen = views(parties(masked_client, masked_server))
    kinds = [type(m).__name__ for _, m in seen[SERVER] if type(m).__name__ in HAMMING]
    assert sorted(kinds) == sorted(3 * [*HAMMING[:2], *HAMMING])
    assert not {type(m).__name__ for c in ARRAYS for _, m in seen[c]} & set(HAMMING)


HAMMING = ["MaskedRows", "DistanceShares", "SetSizes"]


@pytest.mark.parametrize("lie", [1, 2, 100])
def test_a_client_that_says_sizes_which_its_rows_cannot_have_is_named(lie):
    async def client(session, bits, masks, method, rng):
        if session.io.name != "b":
            await products_client(session, bits, method, rng)
            return
        await method.client(session, bits, rng)
        sizes = bits.sum(axis=1, dtype=np.uint16) + np.uint16(lie)
        await session.io.send(SERVER, SetSizes(sizes))

    error = run(parties(client, products_server)).errors[SERVER]
    assert_blames(error, ("b",), "sizes that do not fit their distances")


def test_masked_distances_count_what_is_valid_in_both():
    mine, theirs, valid, theirs_valid = rows(5, 64), rows(4, 64), rows(5, 64), rows(4, 64)
    mine_packed, theirs_packed = (
        tuple(np.packbits(bits, axis=1) for bits in pair)
        for pair in ((mine, valid), (theirs, theirs_valid))
    )
    got = found(cross_masked_distances, mine_packed, theirs_packed, packed=64)
    both_valid = valid[:, None] & theirs_valid[None]
    assert np.array_equal(got.valid, both_valid.sum(axis=2))
    differ = (mine[:, None] != theirs[None]) & both_valid
    assert np.array_equal(got.differing, differ.sum(axis=2))


@pytest.mark.parametrize(
    ("at_most", "least", "backend"),
    [(0.32, 1, "rlwe"), (Fraction(1, 3), 20, "rlwe"), (0, 0, "rlwe"), (0.999999, 3, "shade-ext")],
)
def test_masked_matches_are_exact(at_most, least, backend):
    mine, theirs, valid, theirs_valid = rows(5, 33), rows(4, 33), rows(5, 33), rows(4, 33)
    mine[2:4], valid[2:4] = theirs[2], [theirs_valid[2], np.ones(33)]
    mine[2, :2] ^= 1
    options = {"at_most": at_most, "least_valid": least, "backend": backend}
    got = found(cross_masked_matches, (mine, valid), (theirs, theirs_valid), **options)
    both_valid = valid[:, None] & theirs_valid[None]
    differing = ((mine[:, None] != theirs[None]) & both_valid).sum(axis=2)
    share, number = Fraction(str(at_most)), both_valid.sum(axis=2)
    fits = differing * share.denominator <= number * share.numerator
    assert got.dtype == np.bool_
    assert np.array_equal(got, fits & (number >= least))
    assert got.any()
    assert not got.all()


def test_rows_are_widened_until_twice_the_product_fits():
    for bits in (1, 2, 3, 31, 32, 33, 4096):
        wide = widened(np.ones((1, bits), np.uint8), bits)
        assert wide.sum() == bits
        assert 2 * bits < 1 << wide.shape[1].bit_length()
    assert widened(np.ones((1, 33), np.uint8), 16).shape[1] == 33
    with pytest.raises(ParameterError, match="more than the 32768"):
        widened(np.ones((1, 1 << 15), np.uint8), 1 << 15)


def shares_seen(monkeypatch):
    """Low bits of what the receiver gets of rows whose products are all the same."""
    seen = []
    decode = wire.decode_body

    def spy(kind, data, **dims):
        message = decode(kind, data, **dims)
        if kind.__name__ == "ProductShares":
            seen.append(message.values & 63)
        return message

    with monkeypatch.context() as patch:
        patch.setattr(wire, "decode_body", spy)
        found(cross_inner_products, np.ones((8, 32), int), np.ones((300, 32), int))
    return np.bincount(np.concatenate(seen).ravel(), minlength=64)


def test_the_receiver_gets_uniform_shares_that_give_the_product_alone(monkeypatch):
    assert uniformity(shares_seen(monkeypatch)) > 1e-4
    real = two_party_similarity.additive_shares

    async def same(session, *arguments):  # whose addends are not random
        addend = await real(session, *arguments)
        return addend if session.io.name == "receiver" else np.full_like(addend, 7)

    monkeypatch.setattr(two_party_similarity, "additive_shares", same)
    assert uniformity(shares_seen(monkeypatch)) < 1e-9


def test_weights_of_the_senders_rows_do_not_reach_the_receiver(monkeypatch):
    kinds = []
    decode = wire.decode_body

    def spy(kind, data, **dims):
        kinds.append(kind.__name__)
        return decode(kind, data, **dims)

    monkeypatch.setattr(wire, "decode_body", spy)
    given = (rows(3, 8), rows(3, 8)), (rows(2, 8), rows(2, 8))
    found(cross_masked_distances, *given)
    assert kinds.count("ProductShares") == 2
    assert not {"SetSizes", "DistanceShares"} & set(kinds)
    kinds.clear()
    found(cross_masked_matches, *given, at_most=0.3)
    assert kinds.count("OutputShares") == 2  # of x − r for shares of both numbers, and the matches
    assert not {"ProductShares", "SetSizes", "DistanceShares"} & set(kinds)


def test_what_cannot_be_is_refused_before_anything_is_sent():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(ParameterError, match="'dice' or 'jaccard', got 'cosine'"):
            cross_similarities(rows(2, 8), ours, receives=True, measure="cosine")
        with pytest.raises(ParameterError, match="leaves no shares"):
            cross_inner_products(rows(2, 8), ours, receives=True, backend="paillier")
        with pytest.raises(DataError, match=r"masks of shape \(2, 7\) for bits of shape \(2, 8\)"):
            cross_masked_distances(rows(2, 8), rows(2, 7), ours, receives=True)
        with pytest.raises(DataError, match="masks must be integers or booleans"):
            cross_masked_distances(rows(2, 8), np.ones((2, 8)), ours, receives=True)
        for wrong in (1, -0.1, True, "0.3", float("nan"), 0.1 + 0.2, None):
            with pytest.raises(ParameterError, match="at_most must be a share of bits"):
                cross_masked_matches(*[rows(2, 8)] * 2, ours, receives=True, at_most=wrong)
        with pytest.raises(ParameterError, match="least_valid must be"):
            cross_masked_matches(*[rows(2, 8)] * 2, ours, receives=True, at_most=0.3, least_valid=9)
    with pytest.raises(ParameterError, match="'dice' or 'jaccard', got 'cosine'"):
        secure_similarities([rows(2, 8)] * 2, measure="cosine")
    two = [rows(2, 8), rows(1, 8)]
    with pytest.raises(DataError, match=r"'client-1': masks of shape \(2, 8\) for bits of"):
        secure_masked_distances(two, [two[0], two[0]])
    with pytest.raises(DataError, match="1 arrays of masks for 2 clients"):
        secure_masked_distances(two, two[:1])
    wide = [np.zeros((1, (1 << 14) + 1), int)] * 2
    with pytest.raises(ParameterError, match="got 32770"):
        secure_masked_distances(wide, wide)


def test_programs_that_ask_for_different_things_are_told():
    with pytest.warns(PrivacyWarning, match="compares 8 rows with yours; from about 6 on"):
        found(cross_inner_products, rows(8, 8), rows(2, 8))
    received, _ = both(
        cross_similarities, rows(2, 8), rows(2, 8), {"measure": "dice"}, {"measure": "jaccard"}
    )
    assert_blames(received, ("sender",), "asked")
    received, _ = both(
        cross_inner_products, [[1]], [[1]], {"magnitude": 1}, {"magnitude": 2, "at_most_rows": 1}
    )
    assert_blames(received, ("sender",), "asked (here 'magnitude=1')")
    with pytest.warns(PrivacyWarning, match="compares 2 rows with yours; from about 2 on"):
        found(cross_inner_products, integers(2, 4, 1), integers(1, 4, 1), magnitude=1)
