"""Multiplication triples: the products are right, and no share tells anything by itself."""

import numpy as np
import pytest
from contracts.transfers import alike, unlike
from protocol_runs import triples

from xclp_crypto.errors import ParameterError, ProtocolError
from xclp_crypto.protocols.ot import bit_triples, ideal_ot, ring_triples
from xclp_crypto.protocols.ot import triples as triples_module
from xclp_crypto.protocols.ot.bits import HashPoints
from xclp_crypto.testing import blamed, every_corruption, run


def shares(make_triples, count, **options):
    """Both parties' a, b and c, (2, 3, count)."""
    outcome = run(triples(make_triples, count, base=ideal_ot, **options)).raise_errors()
    assert all(x.dtype == np.uint64 for r in outcome.results.values() for x in r)
    return np.array([outcome.results[p] for p in ("client-a", "client-b")])


@pytest.mark.parametrize("check", [False, True], ids=["semi-honest", "checked"])
@pytest.mark.parametrize("words", [0, 1, 7, 130])
def test_triples_of_bits_are_products(monkeypatch, words, check):
    # So the last case takes three batches.
    monkeypatch.setattr(triples_module, "BATCH_TRANSFERS", 64 * 64)
    found = shares(bit_triples, words, check=check)
    a, b, c = np.bitwise_xor.reduce(found)
    assert np.array_equal(a & b, c)
    assert found.shape == (2, 3, words)
    assert len(np.unique(found)) == 6 * words


@pytest.mark.parametrize("check", [False, True], ids=["semi-honest", "checked"])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_triples_of_words_are_products(monkeypatch, count, check):
    monkeypatch.setattr(triples_module, "BATCH_TRANSFERS", 4 * 64)
    found = shares(ring_triples, count, check=check)
    a, b, c = found.sum(axis=0, dtype=np.uint64)
    assert np.array_equal(a * b, c)
    assert found.shape == (2, 3, count)
    assert len(np.unique(found)) == 6 * count


BOTH = pytest.mark.parametrize("make", [bit_triples, ring_triples])


@BOTH
@pytest.mark.parametrize("count", [-1, 2.0, True])
def test_a_number_of_triples_below_zero_or_not_whole_is_refused(make, count):
    outcome = run(triples(make, count, base=ideal_ot))
    assert {type(e) for e in outcome.errors.values()} == {ParameterError}


@BOTH
def test_a_peer_that_drops_out_or_sends_nonsense_is_no_triple(make):
    """Whatever happens to a message, there is an error, or both have shares of the right shape."""
    for case in every_corruption(triples(make, 1, base=ideal_ot)):
        for party, error in case.outcome.errors.items():
            assert isinstance(error, ProtocolError), case
            assert party not in blamed(error), case
        for got in case.outcome.results.values():
            assert [x.shape for x in got] == [(1,)] * 3, case


def nibbles(values):
    data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return np.bincount(np.concatenate([data & 15, data >> 4]), minlength=16)


def others_bits(seed=0):
    """The other's a and b, and the same with any of what a party has taken off."""
    own, (a, b, _) = shares(bit_triples, 64, seed=seed)
    known = [np.bitwise_xor.reduce(own[[*which]], axis=0) for which in ([0], [1], [2], [0, 1, 2])]
    return [nibbles([share ^ k for k in (0 * share, *known)]) for share in (a, b)]


def others_words(seed=0):
    """The other's a and b, less a guess of b: what c has besides a·b is a·b' without the masks."""
    (own_a, own_b, own_c), (a, b, _) = shares(ring_triples, 64, seed=seed)
    odd = own_a % 2 == 1
    guess = [
        (int(c) - int(x) * int(y)) * pow(int(x), -1, 1 << 64) % (1 << 64)
        for x, y, c in zip(own_a[odd], own_b[odd], own_c[odd], strict=True)
    ]
    return nibbles(a), nibbles(b[odd] - np.array(guess, np.uint64))


OTHERS = pytest.mark.parametrize("others", [others_bits, others_words])


@OTHERS
def test_the_others_shares_are_uniform_whatever_a_party_has(others):
    alike(*others())


@OTHERS
def test_the_same_test_finds_messages_without_a_mask(monkeypatch, others):
    def no_mask(self, first, stop):
        return np.zeros((stop - first, len(self), 2), np.uint64)

    monkeypatch.setattr(HashPoints, "blocks", no_mask)
    a, b = others()
    unlike(b, a)
