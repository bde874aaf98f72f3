"""Oblivious transfer: one body for all constructions, and what each side of Naor-Pinkas sees."""

import numpy as np
import pytest
import rbcl
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import oblivious_transfer

from xclp_crypto.algebra.group import ORDER, Point, Scalar, multiply, multiply_base
from xclp_crypto.errors import DecodeError, FaultyPeer, ParameterError, ProtocolError
from xclp_crypto.protocols.ot import Choices, ideal_ot, naor_pinkas
from xclp_crypto.protocols.ot.naor_pinkas import (
    OtChoices,
    OtOffers,
    OtSetup,
    _labels,
    choose,
    offer,
    open_chosen,
)
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import (
    blamed,
    every_corruption,
    every_dropout,
    run,
    same_distribution,
    uniformity,
    views,
)
from xclp_crypto.transport.simulate import Faults, Simulation

CONSTRUCTIONS = pytest.mark.parametrize(
    "construction", [naor_pinkas, ideal_ot], ids=lambda c: c.__name__
)


def batch(count, length, seed=0):
    """Random messages and choices, and what must come out."""
    rng = np.random.default_rng([seed, count, length])
    messages = rng.integers(0, 256, (count, 2, length), dtype=np.uint8)
    bits = rng.integers(0, 2, count).astype(bool)
    return messages, bits, messages[np.arange(count), bits.astype(int)]


def transfer(construction, messages, bits, seed=0):
    choices = Choices(bits, messages.shape[2])
    make = oblivious_transfer(construction, {"s": {"r": messages}}, {"r": {"s": choices}}, seed)
    return run(make).raise_errors()


# What all constructions must do


@CONSTRUCTIONS
@pytest.mark.parametrize("count", [0, 1, 7, 8, 127, 128, 129])
def test_the_receiver_gets_the_chosen_messages(construction, count):
    messages, bits, expected = batch(count, 5)
    got = transfer(construction, messages, bits).results
    assert got["s"] == {}
    assert set(got["r"]) == {"s"}
    assert got["r"]["s"].shape == (count, 5)
    assert got["r"]["s"].dtype == np.uint8
    assert np.array_equal(got["r"]["s"], expected)


@pytest.mark.parametrize("count", [1023, 1024, 1025])
def test_large_batches_of_the_ideal_twin(count):
    messages, bits, expected = batch(count, 2)
    assert np.array_equal(transfer(ideal_ot, messages, bits).results["r"]["s"], expected)


def test_a_batch_around_a_multiple_of_1024():
    messages, bits, expected = batch(1025, 2)
    assert np.array_equal(transfer(naor_pinkas, messages, bits).results["r"]["s"], expected)


@CONSTRUCTIONS
@pytest.mark.parametrize("length", [1, 2, 17, 1000])
def test_messages_of_any_length(construction, length):
    messages, bits, expected = batch(6, length)
    assert np.array_equal(transfer(construction, messages, bits).results["r"]["s"], expected)


@CONSTRUCTIONS
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_any_messages_and_choices(construction, data):
    count, length = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 4))
    size = count * 2 * length
    flat = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    messages = flat.reshape(count, 2, length)
    bits = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
    got = transfer(construction, messages, bits, data.draw(st.integers(0, 9))).results["r"]["s"]
    assert np.array_equal(got, messages[np.arange(count), bits.astype(int)])


@CONSTRUCTIONS
def test_several_peers_in_both_directions_at_once(construction):
    sending, receiving, expected = {}, {}, {}
    for number, (frm, to) in enumerate([(f, t) for f in "abc" for t in "abc" if f != t]):
        messages, bits, chosen = batch(3 + number, 1 + number % 3, seed=number)
        sending.setdefault(frm, {})[to] = messages
        receiving.setdefault(to, {})[frm] = Choices(bits, messages.shape[2])
        expected[frm, to] = chosen
    results = run(oblivious_transfer(construction, sending, receiving)).raise_errors().results
    assert {(f, t) for t in results for f in results[t]} == set(expected)
    for (frm, to), chosen in expected.items():
        assert np.array_equal(results[to][frm], chosen), (frm, to)


@CONSTRUCTIONS
def test_a_party_may_send_to_nobody_and_receive_from_nobody(construction):
    assert run(oblivious_transfer(construction, {"a": {}}, {})).results == {"a": {}}


GOOD = np.zeros((3, 2, 4), np.uint8)
BAD_MESSAGES = {
    "one message of each pair": GOOD[:, :1],
    "three of each": np.zeros((3, 3, 4), np.uint8),
    "no length": GOOD[:, 0],
    "empty messages": GOOD[:, :, :0],
    "wider integers": GOOD.astype(np.uint16),
    "signed": GOOD.astype(np.int8),
    "floats": GOOD.astype(float),
}
BAD_CHOICES = {
    "integers": Choices(np.zeros(3, np.uint8), 4),
    "a matrix": Choices(np.zeros((3, 1), bool), 4),
    "empty messages": Choices(np.zeros(3, bool), 0),
}


@CONSTRUCTIONS
@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_messages_of_a_wrong_shape_or_type_are_refused_before_anything_is_sent(construction, name):
    make = oblivious_transfer(construction, {"s": {"r": BAD_MESSAGES[name]}}, {"r": {}})
    outcome = run(make)
    assert isinstance(outcome.errors["s"], ParameterError)
    assert str(BAD_MESSAGES[name].shape) in str(outcome.errors["s"]) or (
        str(BAD_MESSAGES[name].dtype) in str(outcome.errors["s"])
    )
    assert outcome.operations["s"] == 0


@CONSTRUCTIONS
@pytest.mark.parametrize("name", BAD_CHOICES)
def test_choices_of_a_wrong_shape_or_type_are_refused(construction, name):
    outcome = run(oblivious_transfer(construction, {}, {"r": {"s": BAD_CHOICES[name]}}))
    assert isinstance(outcome.errors["r"], ParameterError)


@CONSTRUCTIONS
@pytest.mark.parametrize("wrong", [Choices(np.zeros(4, bool), 4), Choices(np.zeros(3, bool), 5)])
def test_the_sender_and_the_receiver_must_mean_the_same_sizes(construction, wrong):
    outcome = run(oblivious_transfer(construction, {"s": {"r": GOOD}}, {"r": {"s": wrong}}))
    errors = [e for e in outcome.errors.values() if isinstance(e, FaultyPeer)]
    assert errors
    assert "r" not in outcome.results or not outcome.results["r"]
    assert {e.parties for e in errors} <= {("s",), ("r",)}


def two_senders(construction):
    (m1, b1, e1), (m2, b2, e2) = batch(2, 3, 1), batch(3, 2, 2)
    make = oblivious_transfer(
        construction,
        {"s": {"r": m1}, "t": {"r": m2}},
        {"r": {"s": Choices(b1, 3), "t": Choices(b2, 2)}},
    )
    return make, {"s": e1, "t": e2}


@CONSTRUCTIONS
def test_every_dropout_leaves_the_other_transfers_right(construction):
    make, expected = two_senders(construction)
    for case in every_dropout(make):
        assert not case.outcome.errors, case
        if case.party == "r":
            assert "r" not in case.outcome.results
            continue
        got = case.outcome.results["r"]
        assert {"s", "t"} - {case.party} <= set(got), case
        for peer, messages in got.items():
            assert np.array_equal(messages, expected[peer]), case


@CONSTRUCTIONS
def test_a_lost_message_costs_transfers_but_makes_none_wrong(construction):
    make, expected = two_senders(construction)
    lost = {"lost": lambda payload, _: None}
    cases = list(every_corruption(make, lost))
    assert len(cases) >= 2
    for case in cases:
        assert not case.outcome.errors, case
        got = case.outcome.results["r"]
        assert not {case.delivery.sender, case.delivery.receiver} & set(got), case
        for peer, messages in got.items():
            assert np.array_equal(messages, expected[peer]), case


# Naor-Pinkas: the points


def scalar(number):
    return Scalar.from_uniform_bytes((number % ORDER).to_bytes(64, "little"))


def messages_of(count=1, length=32):
    return np.zeros((count, 2, length), np.uint8)  # offers of zeros are the pads themselves


def test_equal_points_give_two_different_pads():
    # A receiver sends C/2, so that PK_0 = PK_1; without b in the hash the pads would be equal.
    constant, lab = _labels(b"batch", "s", "r")
    half = multiply(scalar(pow(2, -1, ORDER)), constant)
    assert half + half == constant
    assert constant - half == half
    secret = Scalar.random(SeededRng(0))
    pads = offer(messages_of(), (half,), secret, constant, lab)
    assert not np.array_equal(pads[0, 0], pads[0, 1])


def test_the_same_point_twice_gives_different_pads():
    constant, lab = _labels(b"batch", "s", "r")
    point = multiply_base(scalar(7))
    pads = offer(messages_of(count=2), (point, point), Scalar.random(SeededRng(0)), constant, lab)
    assert len({bytes(p) for p in pads.reshape(4, -1)}) == 4


def test_what_is_bound_into_constant_and_pads():
    point, secret = multiply_base(scalar(7)), scalar(11)
    seen, constants = set(), set()
    contexts = [(b"x", "s", "r"), (b"y", "s", "r"), (b"x", "t", "r"), (b"x", "s", "q")]
    for context in contexts:
        constant, lab = _labels(*context)
        constants.add(constant.encode())
        seen |= {bytes(p) for p in offer(messages_of(), (point,), secret, constant, lab)[0]}
    assert len(constants) == len(contexts)
    assert len(seen) == 2 * len(contexts)


def test_two_batches_with_other_identifiers_are_unrelated_even_with_equal_randomness():
    def batch_of(sid):
        async def sender(io):
            await naor_pinkas(io, {"r": messages_of(count=4)}, {}, sid, SeededRng(1))

        async def receiver(io):
            choices = {"s": Choices(np.array([0, 1, 0, 1], bool), 32)}
            return await naor_pinkas(io, {}, choices, sid, SeededRng(2))

        outcome = Simulation(record=True).run({"s": sender, "r": receiver}).raise_errors()
        return next(m.offers for _, m in outcome.views["r"] if isinstance(m, OtOffers))

    one, other = batch_of(b"one"), batch_of(b"other")
    rows = {bytes(p) for p in one.reshape(-1, 32)} | {bytes(p) for p in other.reshape(-1, 32)}
    assert len(rows) == 16
    assert np.array_equal(one, batch_of(b"one"))
    # Byte by byte, equality is as rare as chance: 256 bytes, 1/256 each.
    assert (one == other).sum() < 12


def test_the_ideal_group_formula_holds_for_what_is_sent():
    constant, lab = _labels(b"batch", "s", "r")
    bits = np.array([False, True])
    secrets, points = choose(bits, constant, SeededRng(3))
    assert points[0] == multiply_base(secrets[0])
    assert constant - points[1] == multiply_base(secrets[1])
    r = Scalar.random(SeededRng(4))
    messages, _, _ = batch(2, 40)
    offers = offer(messages, points, r, constant, lab)
    chosen = open_chosen(offers, bits, secrets, multiply_base(r), lab)
    assert np.array_equal(chosen, messages[[0, 1], [0, 1]])


# Naor-Pinkas: what a peer may not send


def tamper(kind, change):
    def on_message(d):
        return change(d.payload) if d.message == kind else d.payload

    return Faults(on_message=on_message)


NOT_A_POINT = {
    "identity": bytes(32),
    "identity, second encoding": bytes(31) + b"\x80",
    "not on the curve": b"\x01" * 32,
    "negative": (2**255 - 20).to_bytes(32, "little"),
    "the field's order": (2**255 - 19).to_bytes(32, "little"),
    "all ones": b"\xff" * 32,
}


@pytest.mark.parametrize("name", NOT_A_POINT)
@pytest.mark.parametrize(("kind", "culprit"), [("OtSetup", "s"), ("OtChoices", "r")])
def test_bytes_that_are_no_element_are_refused_and_name_their_sender(kind, culprit, name):
    messages, bits, _ = batch(3, 4)
    make = oblivious_transfer(naor_pinkas, {"s": {"r": messages}}, {"r": {"s": Choices(bits, 4)}})
    with pytest.raises(DecodeError):
        Point.decode(NOT_A_POINT[name])
    fault = tamper(kind, lambda p: p[:-32] + NOT_A_POINT[name])
    (error,) = [e for e in run(make, fault).errors.values() if isinstance(e, FaultyPeer)]
    assert error.parties == (culprit,)
    assert kind in str(error)


def test_a_receiver_that_sends_the_constant_itself_is_named():
    # PK_0 = C makes PK_1 the identity, for which anybody could compute the pad.
    messages, bits, _ = batch(3, 4)
    constant, _ = _labels(b"batch", "s", "r")
    make = oblivious_transfer(naor_pinkas, {"s": {"r": messages}}, {"r": {"s": Choices(bits, 4)}})
    outcome = run(make, tamper("OtChoices", lambda p: p[:-32] + constant.encode()))
    error = outcome.errors["s"]
    assert type(error) is FaultyPeer
    assert error.parties == ("r",)


def test_every_corruption_that_is_noticed_names_its_sender():
    # Here no channel authenticates, so altered offers and valid elements cannot be noticed.
    messages, bits, _ = batch(2, 3)
    make = oblivious_transfer(naor_pinkas, {"s": {"r": messages}}, {"r": {"s": Choices(bits, 3)}})
    refused = 0
    for case in every_corruption(make):
        for error in case.outcome.errors.values():
            assert isinstance(error, ProtocolError), case
            if blamed(error):
                refused += 1
                assert blamed(error) == {case.delivery.sender}, case
        if case.tamper in ("truncated", "emptied", "extended", "tag altered"):
            assert any(blamed(e) for e in case.outcome.errors.values()), case
    assert refused > 20


# Naor-Pinkas: what each side sees


def test_the_receiver_cannot_open_the_other_message():
    messages, bits, _ = batch(40, 32)
    constant, lab = _labels(b"batch", "s", "r")
    secrets, points = choose(bits, constant, SeededRng(1))
    r = Scalar.random(SeededRng(2))
    offers = offer(messages, points, r, constant, lab)
    setup = multiply_base(r)
    other = open_chosen(offers, ~bits, secrets, setup, lab)
    assert not (other[:, None] == messages).all(axis=2).any()
    # Nor with the pads of other transfers or choices: the key of the other message is not there.
    index = np.arange(40)
    hidden_pads = offers[index, (~bits).astype(int)] ^ messages[index, (~bits).astype(int)]
    own_keys = {multiply(k, setup).encode() for k in secrets}
    right = {(constant - p if bit == 0 else p) for p, bit in zip(points, bits, strict=True)}
    assert not {multiply(r, p).encode() for p in right} & own_keys
    assert len({bytes(p) for p in hidden_pads}) == 40


def test_pads_of_the_other_message_are_uniform():
    counts = np.zeros(256, int)
    constant, lab = _labels(b"batch", "s", "r")
    for seed in range(40):
        bits = np.zeros(4, bool)
        _, points = choose(bits, constant, SeededRng(seed))
        offers = offer(
            messages_of(count=4, length=64),
            points,
            Scalar.random(SeededRng(1000 + seed)),
            constant,
            lab,
        )
        counts += np.bincount(offers[:, 1].reshape(-1), minlength=256)
    assert uniformity(counts) > 1e-4


def sender_view_counts(sigma, choose_function, runs=1500):
    """How often each low nibble of two bytes of PK_0 occurs, and how often points repeat."""
    constant, _ = _labels(b"batch", "s", "r")
    bits = np.full(2, sigma)
    low, repeats = np.zeros(16, int), 0
    for seed in range(runs):
        _, points = choose_function(bits, constant, SeededRng(seed if sigma else seed + runs))
        encoded = [p.encode() for p in points]
        for data in encoded:
            low[data[5] & 15] += 1
        repeats += encoded[0] == encoded[1]
    return low, repeats


def test_the_senders_view_is_uniform_and_the_same_for_both_choices():
    zero, repeats_zero = sender_view_counts(False, choose)
    one, repeats_one = sender_view_counts(True, choose)
    assert uniformity(zero) > 1e-4
    assert uniformity(one) > 1e-4
    assert same_distribution(zero, one) > 1e-4
    assert repeats_zero == repeats_one == 0


def leaky_choose(bits, constant, rng):
    """Broken: k from a small set, so the sender can try g^k and C − g^k."""
    secrets = [scalar(1 + rng.bytes(1)[0] % 4) for _ in bits]
    points = []
    for k, sigma in zip(secrets, bits, strict=True):
        g_k = multiply_base(k)
        points.append(constant - g_k if sigma else g_k)
    return secrets, tuple(points)


def repeating_choose(bits, constant, rng):
    """Broken: one k for the whole batch, so equal choices give equal points."""
    k = Scalar.random(rng)
    points = (multiply_base(k), constant - multiply_base(k))
    return [k] * len(bits), tuple(points[int(sigma)] for sigma in bits)


def test_the_same_check_finds_a_receiver_that_is_broken():
    zero, _ = sender_view_counts(False, leaky_choose, runs=200)
    one, _ = sender_view_counts(True, leaky_choose, runs=200)
    assert uniformity(zero) < 1e-9
    assert same_distribution(zero, one) < 1e-9
    _, repeats = sender_view_counts(False, repeating_choose, runs=20)
    assert repeats == 20


def test_the_roles_send_what_the_functions_make():
    messages, bits, _ = batch(4, 3)
    make = oblivious_transfer(naor_pinkas, {"s": {"r": messages}}, {"r": {"s": Choices(bits, 3)}})
    seen = views(make)
    assert [type(m) for _, m in seen["s"]] == [OtChoices]
    assert [type(m) for _, m in seen["r"]] == [OtSetup, OtOffers]
    assert run(make).cost.total_bytes == 3 * 2 + 32 + 4 * 32 + 2 * 4 * 3


def test_the_oracle_of_half_the_constant_agrees_with_libsodium():
    # An independent inverse of 2, so that the √C test above does use √C.
    inverse = rbcl.crypto_core_ristretto255_scalar_invert((2).to_bytes(32, "little"))
    assert int.from_bytes(inverse, "little") == pow(2, -1, ORDER)
