"""Two programs find matches and nearest rows, and nothing reaches anybody but these."""

import socket
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import assert_blames
from two_ends import both

from xclp_crypto import cross_matches, cross_nearest, wire
from xclp_crypto.errors import FaultyPeer, ParameterError, PrivacyWarning, ProtocolError
from xclp_crypto.protocols.boolean import Gates, ideal_triples
from xclp_crypto.protocols.boolean.conversion import at_most, highest_bit_decides
from xclp_crypto.protocols.boolean.words import words_to_bits
from xclp_crypto.transport.simulate import Simulation

RNG = np.random.default_rng(0)
MINE, THEIRS = RNG.integers(0, 2, (7, 33)), RNG.integers(0, 2, (12, 33))
DISTANCES = (MINE[:, None] != THEIRS[None]).sum(axis=2)


def found(door, mine=MINE, theirs=THEIRS, **options):
    received, sent = both(door, mine, theirs, options, options)
    assert sent[0] is None
    assert received[0].dtype == np.bool_
    return received[0]


@pytest.mark.parametrize("backend", ["rlwe", "shade-ext", "shade"])
def test_matches_are_exact(backend):
    short = slice(None, 5 if backend == "shade" else None)
    expected = DISTANCES[short, short] <= 16
    assert expected.any()
    assert not expected.all()
    got = found(cross_matches, MINE[short], THEIRS[short], backend=backend, at_most=16)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("k", [3, 20])
def test_nearest_are_exact_ties_included(k):
    theirs = np.concatenate([THEIRS, THEIRS[:2]])
    distances = (MINE[:, None] != theirs[None]).sum(axis=2)
    last = np.sort(distances, axis=1)[:, [min(k, len(theirs)) - 1]]
    words = [list(map(bytes, np.packbits(bits, axis=1))) for bits in (MINE, theirs)]
    assert np.array_equal(found(cross_nearest, *words, k=k, packed=33), distances <= last)


def test_a_program_without_rows_has_no_matches():
    assert found(cross_matches, MINE[:0], THEIRS, at_most=3).shape == (0, 12)
    assert found(cross_nearest, MINE, THEIRS[:0], k=2).shape == (7, 0)


@settings(max_examples=30)
@given(st.integers(1, 300), st.data())
def test_a_sum_is_compared_exactly_whichever_way_is_taken(largest, data):
    bound, width = data.draw(st.integers(0, largest)), largest.bit_length()
    x = np.array([0, bound, min(bound + 1, largest), largest], np.uint64)

    def party(me, peer, addend):
        async def role(io):
            gates = Gates(io, peer, ideal_triples(me, peer, b"sid", 99))
            return await gates.open(
                await at_most(gates, addend, width, bound=bound, largest=largest)
            )

        return role

    mask = np.random.default_rng(largest).integers(0, 1 << width, 4).astype(np.uint16)
    roles = {"p": party("p", "q", x.astype(np.uint16) - mask), "q": party("q", "p", mask)}
    words = Simulation().run(roles).raise_errors().results["p"]
    assert np.array_equal(words_to_bits(words, 4), x <= bound)
    assert highest_bit_decides(13, 100, 4096)
    assert not highest_bit_decides(12, 100, 4095)


def test_no_distance_leaves_a_program(monkeypatch):
    seen = []
    decode = wire.decode_body

    def spy(kind, data, **dims):
        seen.append(kind.__name__)
        return decode(kind, data, **dims)

    monkeypatch.setattr(wire, "decode_body", spy)
    found(cross_matches, at_most=16)
    assert {"RlweAnswers", "GateOpenings", "OtColumns"} < set(seen)
    assert "DistanceShares" not in seen
    assert seen.count("OutputShares") == 1  # to the receiver


@pytest.mark.parametrize(
    ("door", "options", "match"),
    [
        (cross_matches, {"at_most": -1}, r"distance in 0 … 33"),
        (cross_matches, {"at_most": 34}, r"distance in 0 … 33"),
        (cross_matches, {"at_most": 2.0}, r"distance in 0 … 33"),
        (cross_matches, {"at_most": True}, r"distance in 0 … 33"),
        (cross_matches, {"at_most": 3, "at_most_rows": "3"}, "at_most_rows must be an integer"),
        (cross_matches, {"at_most": 3, "at_most_rows": -1}, "at_most_rows must be an integer"),
        (cross_matches, {"at_most": 3, "timeout": None}, "timeout must be a positive number"),
        (cross_nearest, {"k": 0}, "k must be at least 1"),
        (cross_nearest, {"k": 1, "backend": "paillier"}, "leaves no shares"),
        (cross_nearest, {"k": 1, "backend": "masked"}, "not private between two programs"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(door, options, match):
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ParameterError, match=match):
        door(MINE, ours, receives=True, **options)


def test_programs_that_ask_for_different_things_are_told():
    received, _ = both(cross_matches, MINE, THEIRS, {"at_most": 3}, {"at_most": 4})
    assert_blames(received, ("sender",), "asked (here 'at_most=3')")
    mine, theirs = MINE[:5], THEIRS
    ours, other = socket.socketpair()
    results = []

    def nearest():
        with other:
            try:
                cross_nearest(theirs, other, receives=False, k=3, timeout=20)
            except ProtocolError as error:
                results.append(error)

    thread = threading.Thread(target=nearest)
    thread.start()
    with (
        ours,
        pytest.raises(FaultyPeer, match=r"agree on asked \(.*\), call \(here 'cross_matches'\)"),
    ):
        cross_matches(mine, ours, receives=True, at_most=3, timeout=20)
    thread.join()
    assert len(results) == 1


def test_a_sender_is_warned_of_as_many_rows_as_bits():
    with pytest.warns(PrivacyWarning, match=r"compares 7 rows with yours; from about 6 on"):
        found(cross_matches, MINE[:, :6], THEIRS[:, :6], at_most=2)
