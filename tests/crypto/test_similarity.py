"""Inner products, Dice, Jaccard and masked distances of two programs are exact and nothing more."""

import socket

import numpy as np
import pytest
from protocol_runs import assert_blames
from two_ends import both

from xclp_crypto import (
    cross_inner_products,
    cross_masked_distances,
    cross_similarities,
    two_party_similarity,
    wire,
)
from xclp_crypto.errors import DataError, ParameterError, PrivacyWarning
from xclp_crypto.testing import uniformity
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
    assert got.dtype == np.uint16
    assert np.array_equal(got, mine @ theirs.T)


@pytest.mark.parametrize("measure", ["dice", "jaccard"])
def test_similarities_are_those_of_sets(measure):
    mine, theirs = rows(5, 40), rows(4, 40)
    got = found(cross_similarities, mine, theirs, measure=measure)
    for i, x in enumerate(mine):
        for j, y in enumerate(theirs):
            common, sizes, union = (x & y).sum(), x.sum() + y.sum(), (x | y).sum()
            part, whole = (2 * common, sizes) if measure == "dice" else (common, union)
            assert got[i, j] == (part / whole if whole else 0)


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


def test_rows_are_widened_until_twice_the_product_fits():
    for bits in (1, 2, 3, 31, 32, 33, 4096):
        wide = widened(np.ones((1, bits), np.uint8), bits)
        assert wide.sum() == bits
        assert 2 * bits < 1 << wide.shape[1].bit_length()
    assert widened(np.ones((1, 33), np.uint8), 16).shape[1] == 33
    with pytest.raises(ParameterError, match="more than the 32768"):
        widened(np.ones((1, 1 << 15), np.uint8), 1 << 15)


def shares_seen(monkeypatch, runs=25):
    """Low bytes of what the receiver gets of rows whose products are all the same."""
    seen = []
    decode = wire.decode_body

    def spy(kind, data, **dims):
        message = decode(kind, data, **dims)
        if kind.__name__ == "ProductShares":
            seen.append(message.values & 63)
        return message

    with monkeypatch.context() as patch:
        patch.setattr(wire, "decode_body", spy)
        for _ in range(runs):
            found(cross_inner_products, np.ones((8, 32)).astype(int), np.ones((8, 32)).astype(int))
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
    found(cross_masked_distances, (rows(3, 8), rows(3, 8)), (rows(2, 8), rows(2, 8)))
    assert kinds.count("ProductShares") == 2
    assert not {"SetSizes", "DistanceShares"} & set(kinds)


def test_what_cannot_be_is_refused_before_anything_is_sent():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(ParameterError, match="'dice' or 'jaccard', got 'cosine'"):
            cross_similarities(rows(2, 8), ours, receives=True, measure="cosine")
        with pytest.raises(ParameterError, match="leaves no shares"):
            cross_inner_products(rows(2, 8), ours, receives=True, backend="paillier")
        with pytest.raises(DataError, match=r"masks of shape \(2, 7\) for bits of shape \(2, 8\)"):
            cross_masked_distances(rows(2, 8), rows(2, 7), ours, receives=True)


def test_programs_that_ask_for_different_things_are_told():
    with pytest.warns(PrivacyWarning, match="compares 8 rows with yours; from about 6 on"):
        found(cross_inner_products, rows(8, 8), rows(2, 8))
    received, _ = both(
        cross_similarities, rows(2, 8), rows(2, 8), {"measure": "dice"}, {"measure": "jaccard"}
    )
    assert_blames(received, ("sender",), "asked")
