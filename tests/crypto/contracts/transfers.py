"""The contract of oblivious transfer: what every construction must do.

A test file runs it in a class of its own, ``class TestMine(QuickTransfers)``, whose `construction`
is a static method.
"""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol_runs import assert_blames, oblivious_transfer, on

from xclp_crypto.errors import FaultyPeer, ParameterError, ProtocolError, TooFewParties
from xclp_crypto.protocols.ot import Choices
from xclp_crypto.testing import (
    blamed,
    every_corruption,
    every_dropout,
    run,
    same_distribution,
    uniformity,
)

SIZES = [0, 1, 7, 8, 127, 128, 129, 1023, 1024, 1025]


def batch(count, length, seed=0):
    """Random messages and choices, and what must come out."""
    rng = np.random.default_rng([seed, count, length])
    messages = rng.integers(0, 256, (count, 2, length), dtype=np.uint8)
    bits = rng.integers(0, 2, count).astype(bool)
    return messages, bits, messages[np.arange(count), bits.astype(int)]


def between(construction, messages, bits, seed=0):
    """Transfers from s to r, for `run`."""
    choices = Choices(bits, messages.shape[2])
    return oblivious_transfer(construction, {"s": {"r": messages}}, {"r": {"s": choices}}, seed)


def tamper(kind, change):
    """Faults that change the payload of every message of one kind."""
    return on(lambda d: d.message == kind, lambda d: change(d.payload))


def alike(zero, one):
    """Two views are uniform, and the same."""
    assert uniformity(zero) > 1e-4
    assert uniformity(one) > 1e-4
    assert same_distribution(zero, one) > 1e-4


def unlike(zero, one):
    """The first view is not uniform, and the second is another, beyond doubt."""
    assert uniformity(zero) < 1e-9
    assert same_distribution(zero, one) < 1e-9


GOOD = np.zeros((3, 2, 4), np.uint8)
BAD_MESSAGES = {
    "one message of each pair": GOOD[:, :1],
    "three of each": np.zeros((3, 3, 4), np.uint8),
    "no length": GOOD[:, 0],
    "empty messages": GOOD[:, :, :0],
    "wider integers": GOOD.astype(np.uint16),
    "signed": GOOD.astype(np.int8),
    "floats": GOOD.astype(float),
    "a list": GOOD.tolist(),
}
BAD_CHOICES = {
    "integers": Choices(np.zeros(3, np.uint8), 4),
    "a matrix": Choices(np.zeros((3, 1), bool), 4),
    "empty messages": Choices(np.zeros(3, bool), 0),
    "a list": Choices([False] * 3, 4),
    "a length that is not whole": Choices(np.zeros(3, bool), 4.0),
    "a length of true": Choices(np.zeros(3, bool), True),
}
WANTED = Choices(np.zeros(3, bool), 4)
ALONE = {
    "the receiver does nothing": ({"s": {"r": GOOD}}, {"r": {}}),
    "the sender does nothing": ({"s": {}}, {"r": {"s": WANTED}}),
    "both send": ({"s": {"r": GOOD}, "r": {"s": GOOD}}, {}),
    "both receive": ({}, {"r": {"s": WANTED}, "s": {"r": WANTED}}),
}
NAMES = {
    "sending to another name": ({"s": {"R": GOOD}}, {"r": {}}),
    "sending to itself": ({"s": {"s": GOOD}}, {}),
    "receiving from another name": ({"s": {}}, {"r": {"S": WANTED}}),
    "receiving from itself": ({}, {"r": {"r": WANTED}}),
}
# The last ones have as many bytes in all as GOOD.
OTHER_SIZES = [
    (4, 4),
    (3, 5),
    (4, 3),
    (6, 2),
    *((count, length) for count in (2, 5, 200) for length in (3, 7)),
]


class Transfers:
    """The contract, without what takes many runs.

    Attributes:
        a_sender_waits: for something of each receiver, so that it notices a loss.
    """

    construction: staticmethod
    a_sender_waits = True

    def transfer(self, messages, bits, seed=0):
        return run(between(self.construction, messages, bits, seed)).raise_errors().results

    def run(self, sending, receiving):
        return run(oblivious_transfer(self.construction, sending, receiving))

    @pytest.mark.parametrize("count", SIZES)
    def test_the_receiver_gets_the_chosen_messages(self, count):
        messages, bits, expected = batch(count, 3)
        got = self.transfer(messages, bits)
        assert got["s"] == {}
        assert set(got["r"]) == {"s"}
        assert got["r"]["s"].shape == (count, 3)
        assert got["r"]["s"].dtype == np.uint8
        assert np.array_equal(got["r"]["s"], expected)

    @pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 32, 33, 1000, 1_000_000])
    def test_messages_of_any_length(self, length):
        messages, bits, expected = batch(3, length)
        assert np.array_equal(self.transfer(messages, bits)["r"]["s"], expected)

    def test_messages_of_one_bit(self):
        messages, bits, expected = batch(9, 1)
        assert np.array_equal(self.transfer(messages & 1, bits)["r"]["s"], expected & 1)

    def test_several_peers_in_both_directions_at_once(self):
        sending, receiving, expected = {}, {}, {}
        for number, (frm, to) in enumerate(permutations("abc", 2)):
            messages, bits, chosen = batch(3 + number, 1 + number % 3, seed=number)
            sending.setdefault(frm, {})[to] = messages
            receiving.setdefault(to, {})[frm] = Choices(bits, messages.shape[2])
            expected[frm, to] = chosen
        results = self.run(sending, receiving).raise_errors().results
        assert {(f, t) for t in results for f in results[t]} == set(expected)
        for (frm, to), chosen in expected.items():
            assert np.array_equal(results[to][frm], chosen), (frm, to)

    def test_a_party_may_send_to_nobody_and_receive_from_nobody(self):
        assert self.run({"a": {}}, {}).results == {"a": {}}

    @pytest.mark.parametrize("messages", BAD_MESSAGES.values(), ids=BAD_MESSAGES)
    def test_messages_of_a_wrong_shape_or_type_are_refused_before_anything_is_sent(self, messages):
        outcome = self.run({"s": {"r": messages}}, {"r": {}})
        error = outcome.errors["s"]
        assert isinstance(error, ParameterError)
        found = np.asarray(messages)
        assert any(str(x) in str(error) for x in (found.shape, found.dtype, "got list"))
        assert outcome.operations["s"] == 0

    @pytest.mark.parametrize("choices", BAD_CHOICES.values(), ids=BAD_CHOICES)
    def test_choices_of_a_wrong_shape_or_type_are_refused(self, choices):
        outcome = self.run({}, {"r": {"s": choices}})
        assert isinstance(outcome.errors["r"], ParameterError)
        assert outcome.operations["r"] == 0

    @pytest.mark.parametrize(("count", "length"), OTHER_SIZES)
    def test_the_sender_and_the_receiver_must_mean_the_same_sizes(self, count, length):
        wrong = Choices(np.zeros(count, bool), length)
        outcome = self.run({"s": {"r": GOOD}}, {"r": {"s": wrong}})
        assert set(outcome.results) <= (set() if self.a_sender_waits else {"s"})
        (error,) = [e for e in outcome.errors.values() if isinstance(e, FaultyPeer)]
        assert error.parties in {("s",), ("r",)}
        assert "number and sizes of transfers" in str(error)

    @pytest.mark.parametrize(("sending", "receiving"), ALONE.values(), ids=ALONE)
    def test_a_transfer_without_its_peer_is_a_typed_error(self, sending, receiving):
        outcome = self.run(sending, receiving)
        waiting = {p for p, peers in receiving.items() if peers}
        waiting |= {p for p, peers in sending.items() if peers and self.a_sender_waits}
        for party in waiting:
            (peer,) = {"s", "r"} - {party}
            error = outcome.errors[party]
            assert isinstance(error, TooFewParties | FaultyPeer)
            assert (peer,) == getattr(error, "missing", getattr(error, "parties", None))

    @pytest.mark.parametrize(("sending", "receiving"), NAMES.values(), ids=NAMES)
    def test_a_peer_that_is_not_another_party_is_refused(self, sending, receiving):
        ((_, error),) = self.run(sending, receiving).errors.items()
        assert isinstance(error, ParameterError)
        assert "is not another party" in str(error)

    def test_user_case_another_sid_is_a_typed_error_and_nothing_is_transferred(self):
        messages, bits, _ = batch(3, 4)
        transfer, sids = self.construction, {"s": b"one", "r": b"two"}

        def other(io, sending, receiving, _, rng):
            return transfer(io, sending, receiving, sids[io.name], rng)

        outcome = run(between(other, messages, bits))
        ((party, error),) = [
            found for found in outcome.errors.items() if isinstance(found[1], FaultyPeer)
        ]
        assert_blames(error, tuple({"s", "r"} - {party}), "sid")
        assert not any(outcome.results.values())


class QuickTransfers(Transfers):
    """The whole contract, for constructions that run in no time.

    Attributes:
        names_the_sender: whether an altered message is blamed on its sender alone, and a lost one
            on nobody. Elsewhere the next message may come in its place, and a check that fails
            later names the other end.
        fewest_refused: how many altered messages at least are blamed on somebody.
    """

    names_the_sender = True
    fewest_refused = 4

    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.differing_executors],  # one contract, many classes
    )
    @given(data=st.data())
    def test_any_messages_and_choices(self, data):
        count, length = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 20))
        size = count * 2 * length
        flat = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
        messages = flat.reshape(count, 2, length)
        bits = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
        got = self.transfer(messages, bits, data.draw(st.integers(0, 9)))["r"]["s"]
        assert np.array_equal(got, messages[np.arange(count), bits.astype(int)])

    def two_senders(self):
        (m1, b1, e1), (m2, b2, e2) = batch(2, 3, 1), batch(3, 2, 2)
        choices = {"s": Choices(b1, 3), "t": Choices(b2, 2)}
        sending = {"s": {"r": m1}, "t": {"r": m2}}
        return oblivious_transfer(self.construction, sending, {"r": choices}), {"s": e1, "t": e2}

    def test_every_dropout_leaves_the_other_transfers_right(self):
        make, expected = self.two_senders()
        for case in every_dropout(make):
            if case.party == "r":
                assert "r" not in case.outcome.results
                for error in case.outcome.errors.values():
                    assert error.missing == ("r",), case
                continue
            assert not case.outcome.errors, case
            got = case.outcome.results["r"]
            assert {"s", "t"} - {case.party} <= set(got), case
            for peer, messages in got.items():
                assert np.array_equal(messages, expected[peer]), case

    def test_a_lost_message_costs_transfers_but_makes_none_wrong(self):
        make, expected = self.two_senders()
        cases = list(every_corruption(make, {"lost": lambda payload, _: None}))
        assert len(cases) >= 2
        for case in cases:
            ends = {case.delivery.sender, case.delivery.receiver}
            for party, error in case.outcome.errors.items():
                if isinstance(
                    error, TooFewParties
                ):  # also of those that waited for one of the ends
                    assert error.missing, case
                    assert party not in error.missing, case
                    continue
                assert blamed(error) == {case.delivery.sender}, case
                assert not self.names_the_sender, case
            got = case.outcome.results.get("r", {})
            assert not ends & set(got), case
            for peer, messages in got.items():
                assert np.array_equal(messages, expected[peer]), case

    def test_every_corruption_that_is_noticed_names_its_sender(self):
        # Without a sealed channel, what is still well-formed can be noticed only by a check.
        messages, bits, _ = batch(3, 3)
        refused = 0
        for case in every_corruption(between(self.construction, messages, bits)):
            sender, errors = case.delivery.sender, case.outcome.errors.values()
            for error in errors:
                assert isinstance(error, ProtocolError), case
                if blamed(error):
                    refused += 1
                    ends = {sender} if self.names_the_sender else {sender, case.delivery.receiver}
                    assert blamed(error) <= ends, case
            if case.tamper in ("truncated", "emptied", "extended", "tag altered"):
                assert any(blamed(e) == {sender} for e in errors), case
        assert refused >= self.fewest_refused
