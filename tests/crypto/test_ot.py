"""Oblivious transfer: the contract over Naor-Pinkas and its ideal twin, and what each side sees."""

import numpy as np
import pytest
import rbcl
from contracts.transfers import QuickTransfers, alike, batch, between, tamper, unlike
from protocol_runs import assert_blames

from xclp_crypto.algebra.group import ORDER, Point, Scalar, multiply, multiply_base
from xclp_crypto.errors import DecodeError, FaultyPeer
from xclp_crypto.protocols.ot import Choices, ideal_ot, naor_pinkas
from xclp_crypto.protocols.ot.naor_pinkas import (
    OtChoices,
    OtOffers,
    OtSetup,
    _constants,
    choose,
    offer,
    open_chosen,
)
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import run, uniformity, views
from xclp_crypto.transport.simulate import Simulation


class TestNaorPinkas(QuickTransfers):
    construction = staticmethod(naor_pinkas)
    fewest_refused = 21


class TestIdeal(QuickTransfers):
    construction = staticmethod(ideal_ot)
    a_sender_waits = False


# Naor-Pinkas: the points

CONSTANT, TAG = _constants(b"batch", "s", "r")


def scalar(number):
    return Scalar.from_uniform_bytes((number % ORDER).to_bytes(64, "little"))


def messages_of(count=1, length=32):
    return np.zeros((count, 2, length), np.uint8)  # offers of zeros are the pads themselves


def test_equal_points_give_two_different_pads():
    # A receiver sends C/2, so that PK_0 = PK_1; without b in the hash the pads would be equal.
    half = multiply(scalar(pow(2, -1, ORDER)), CONSTANT)
    assert half + half == CONSTANT
    assert CONSTANT - half == half
    secret = Scalar.random(SeededRng(0))
    pads = offer(messages_of(), (half,), secret, CONSTANT, TAG)
    assert not np.array_equal(pads[0, 0], pads[0, 1])


def test_the_same_point_twice_gives_different_pads():
    point = multiply_base(scalar(7))
    pads = offer(messages_of(count=2), (point, point), Scalar.random(SeededRng(0)), CONSTANT, TAG)
    assert len({bytes(p) for p in pads.reshape(4, -1)}) == 4


def test_what_is_bound_into_constant_and_pads():
    point, secret = multiply_base(scalar(7)), scalar(11)
    seen, constants = set(), set()
    contexts = [(b"x", "s", "r"), (b"y", "s", "r"), (b"x", "t", "r"), (b"x", "s", "q")]
    for context in contexts:
        constant, tag = _constants(*context)
        constants.add(constant.encode())
        seen |= {bytes(p) for p in offer(messages_of(), (point,), secret, constant, tag)[0]}
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
    bits = np.array([False, True])
    secrets, points = choose(bits, CONSTANT, SeededRng(3))
    assert points[0] == multiply_base(secrets[0])
    assert CONSTANT - points[1] == multiply_base(secrets[1])
    r = Scalar.random(SeededRng(4))
    messages, _, _ = batch(2, 40)
    offers = offer(messages, points, r, CONSTANT, TAG)
    chosen = open_chosen(offers, bits, secrets, multiply_base(r), TAG)
    assert np.array_equal(chosen, messages[[0, 1], [0, 1]])


# Naor-Pinkas: what a peer may not send


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
    make = between(naor_pinkas, messages, bits)
    with pytest.raises(DecodeError):
        Point.decode(NOT_A_POINT[name])
    fault = tamper(kind, lambda p: p[:-32] + NOT_A_POINT[name])
    (error,) = [e for e in run(make, fault).errors.values() if isinstance(e, FaultyPeer)]
    assert error.parties == (culprit,)
    assert kind in str(error)


def test_a_receiver_that_sends_the_constant_itself_is_named():
    # PK_0 = C makes PK_1 the identity, for which anybody could compute the pad.
    messages, bits, _ = batch(3, 4)
    make = between(naor_pinkas, messages, bits)
    outcome = run(make, tamper("OtChoices", lambda p: p[:-32] + CONSTANT.encode()))
    assert_blames(outcome.errors["s"], ("r",))


# Naor-Pinkas: what each side sees


def test_the_receiver_cannot_open_the_other_message():
    messages, bits, _ = batch(40, 32)
    secrets, points = choose(bits, CONSTANT, SeededRng(1))
    r = Scalar.random(SeededRng(2))
    offers = offer(messages, points, r, CONSTANT, TAG)
    setup = multiply_base(r)
    other = open_chosen(offers, ~bits, secrets, setup, TAG)
    assert not (other[:, None] == messages).all(axis=2).any()
    # Nor with the pads of other transfers or choices: the key of the other message is not there.
    index = np.arange(40)
    hidden_pads = offers[index, (~bits).astype(int)] ^ messages[index, (~bits).astype(int)]
    own_keys = {multiply(k, setup).encode() for k in secrets}
    right = {(CONSTANT - p if bit == 0 else p) for p, bit in zip(points, bits, strict=True)}
    assert not {multiply(r, p).encode() for p in right} & own_keys
    assert len({bytes(p) for p in hidden_pads}) == 40


def test_pads_of_the_other_message_are_uniform():
    counts = np.zeros(256, int)
    for seed in range(40):
        bits = np.zeros(4, bool)
        _, points = choose(bits, CONSTANT, SeededRng(seed))
        secret = Scalar.random(SeededRng(1000 + seed))
        offers = offer(messages_of(count=4, length=64), points, secret, CONSTANT, TAG)
        counts += np.bincount(offers[:, 1].reshape(-1), minlength=256)
    assert uniformity(counts) > 1e-4


def sender_view_counts(sigma, choose_function, runs=400):
    """How often each low nibble of two bytes of PK_0 occurs, and how often points repeat."""
    bits = np.full(2, sigma)
    low, repeats = np.zeros(16, int), 0
    for seed in range(runs):
        _, points = choose_function(bits, CONSTANT, SeededRng(seed if sigma else seed + runs))
        encoded = [p.encode() for p in points]
        for data in encoded:
            low[data[5] & 15] += 1
        repeats += encoded[0] == encoded[1]
    return low, repeats


def test_the_senders_view_is_uniform_and_the_same_for_both_choices():
    zero, repeats_zero = sender_view_counts(False, choose)
    one, repeats_one = sender_view_counts(True, choose)
    alike(zero, one)
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
    unlike(zero, one)
    _, repeats = sender_view_counts(False, repeating_choose, runs=20)
    assert repeats == 20


def test_the_roles_send_what_the_functions_make():
    messages, bits, _ = batch(4, 3)
    make = between(naor_pinkas, messages, bits)
    seen = views(make)
    assert [type(m) for _, m in seen["s"]] == [OtChoices]
    assert [type(m) for _, m in seen["r"]] == [OtSetup, OtOffers]
    assert run(make).cost.total_bytes == 3 * 2 + 8 + 32 + 4 * 32 + 2 * 4 * 3


def test_the_oracle_of_half_the_constant_agrees_with_libsodium():
    # An independent inverse of 2, so that the √C test above does use √C.
    inverse = rbcl.crypto_core_ristretto255_scalar_invert((2).to_bytes(32, "little"))
    assert int.from_bytes(inverse, "little") == pow(2, -1, ORDER)
