"""`shade-ext`: exact distances in blocks of any size, faults, and what each party sees."""

import numpy as np
import pytest
from contracts.hamming import (
    QUICK,
    X,
    costs_what_was_foretold,
    every_corruption_is_blamed_on_an_end_of_its_link,
    every_dropout_costs_only_the_rows_of_its_client,
    exact,
    federations,
    random_bits,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import assert_blames, hamming, with_session

from xclp_crypto.protocols.hamming import BACKENDS, estimate
from xclp_crypto.protocols.hamming import shade_ext as module
from xclp_crypto.protocols.hamming.interface import send_shares
from xclp_crypto.protocols.hamming.shade_ext import (
    Block,
    blocks,
    ends,
    lane_offsets,
    offer_block,
    take_block,
)
from xclp_crypto.protocols.ot.bits import HashPoints, RobustHash
from xclp_crypto.protocols.ot.extension import OtColumns, OtCorrections
from xclp_crypto.protocols.ot.link import SenderPads
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import run, same_distribution, uniformity, views

FAST, REAL = QUICK["shade-ext"], BACKENDS["shade-ext"]


def small_messages(monkeypatch, n_bytes):
    monkeypatch.setattr(module, "MESSAGE_BYTES", n_bytes)
    monkeypatch.setattr(module, "GROUP_BLOCKS", 2)


# Exact distances


@settings(max_examples=15)
@given(
    bits=federations([1, 2, 3, 7, 8, 9, 15, 16, 17, 63], max_rows=5, max_clients=3),
    n_bytes=st.integers(3, 100),
)
def test_distances_do_not_depend_on_the_blocks(bits, n_bytes):
    with pytest.MonkeyPatch.context() as patch:
        small_messages(patch, n_bytes)
        exact(FAST, bits)


@pytest.mark.parametrize("sizes", [[0, 0], [0, 3], [3, 0, 0], [1, 1], [9, 17], [17, 9], [8, 16]])
@pytest.mark.parametrize("n_bits", [1, 5, 64])
def test_with_the_real_base_transfers(sizes, n_bits):
    exact(REAL, random_bits(sizes, n_bits))


# Who receives, and in which blocks


def test_the_side_with_fewer_rows_receives_or_the_later_one():
    assert ends("a", "b", {"a": 2, "b": 3}) == ("b", "a")
    assert ends("a", "b", {"a": 3, "b": 2}) == ("a", "b")
    assert ends("a", "b", {"a": 2, "b": 2}) == ("a", "b")
    for sizes, sender in (([5, 2], "c0"), ([2, 5], "c1"), ([3, 3], "c0")):
        cost = run(hamming(FAST, random_bits(sizes, 16))).raise_errors().cost
        sent = {t.message: t.sender for t in cost.bytes_sent}
        assert sent["Sealed[OtCorrections]"] == sender
        assert sent["Sealed[OtColumns]"] != sender


@settings(max_examples=200, deadline=None)
@given(
    rows=st.integers(0, 30),
    lanes=st.integers(1, 50),
    n_bits=st.integers(1, 100),
    clients=st.integers(2, 9),
    n_bytes=st.integers(1, 3000),
)
def test_blocks_cover_every_bit_once_in_messages_of_the_agreed_size(
    rows, lanes, n_bits, clients, n_bytes
):
    with pytest.MonkeyPatch.context() as patch:
        small_messages(patch, n_bytes)
        patch.setattr(module, "CLIENT_BYTES", 4 * n_bytes)
        cut = blocks(rows, lanes, n_bits, clients)
    seen = np.zeros((rows, n_bits), int)
    for block in cut:
        assert block.count == block.shape[0] * block.shape[1] > 0
        seen[block.rows, block.bits] += 1
        size = OtCorrections.size(count=block.count, lanes=lanes, width=n_bits.bit_length())
        limit = min(n_bytes, 4 * n_bytes // (clients - 1))
        assert size <= limit or block.count <= 8
        assert block.shape[0] == 1 or block.shape[1] == n_bits
    assert (seen == 1).all()


def test_block_boundaries():
    # 5 rows of 64 bits, 10 lanes of 7 bits: 560 bytes for each row.
    for n_bytes, expected in ((559, 10), (560, 5), (1119, 5), (1120, 3), (2800, 1), (1 << 22, 1)):
        with pytest.MonkeyPatch.context() as patch:
            small_messages(patch, n_bytes)
            assert len(blocks(5, 10, 64, 2)) == expected, n_bytes
            exact(FAST, random_bits([5, 10], 64))


def test_a_block_is_a_rectangle():
    block = Block(2, 5, 8, 16)
    assert (block.rows, block.bits, block.shape) == (slice(2, 5), slice(8, 16), (3, 8))


# What it costs


@pytest.mark.parametrize("sizes", [[2, 1], [1, 2, 3], [0, 2, 1], [2, 0, 0, 1], [9, 4]])
@pytest.mark.parametrize(("n_bits", "n_bytes"), [(1, 30), (8, 30), (100, 30), (100, 1 << 22)])
def test_metered_bytes_and_rounds_are_those_of_the_estimate(monkeypatch, sizes, n_bits, n_bytes):
    """In one message `test_hamming` does this with fewer bits."""
    small_messages(monkeypatch, n_bytes)
    costs_what_was_foretold(REAL, random_bits(sizes, n_bits))


def test_the_estimate_at_the_sizes_of_the_paper():
    foretold = estimate(REAL, {"a": 500, "b": 500}, 4096)
    assert foretold.total_bytes <= 1.05 * 500 * 4096 * (128 + 500 * 13) / 8
    assert foretold.operations["extended transfers"] == 500 * 4096
    assert foretold.memory_bytes < 1.5 * 2**30
    assert estimate(REAL, {"a": 2000, "b": 2000}, 1024).memory_bytes < 2**31
    assert estimate(REAL, {"a": 0, "b": 5}, 64).rounds == 1
    assert estimate(REAL, {"a": 1, "b": 5}, 64).rounds == 7


def test_the_larger_side_pays_per_lane_not_per_transfer():
    few, many = ({"a": 2, "b": 100}, {"a": 100, "b": 2})
    one, other = (estimate(REAL, s, 64) for s in (few, many))
    assert one.total_bytes == other.total_bytes
    assert one.operations["extended transfers"] == other.operations["extended transfers"] == 128


# Faults


def test_every_dropout_gives_the_others_distances_in_several_blocks(monkeypatch):
    small_messages(monkeypatch, 3)  # three blocks in two groups for each pair
    every_dropout_costs_only_the_rows_of_its_client(FAST)


def test_every_corruption_gives_the_right_distances_or_names_whom_to_blame(monkeypatch):
    small_messages(monkeypatch, 6)
    every_corruption_is_blamed_on_an_end_of_its_link(FAST, random_bits([2, 1], 5))


def test_a_client_that_lies_about_its_sums_gives_no_distance():
    async def client(session, rng):
        share = np.full((1, 1), 7 if session.io.name == "a" else 5, np.uint16)
        peer = "b" if session.io.name == "a" else "a"
        await send_shares(session, np.zeros((1, 5), np.uint8), {peer: share})

    async def server(session, rng):
        return await FAST.server(session, 5)

    make = with_session("ab", client, server, numbers={"a": [1], "b": [1]})
    assert_blames(run(make).errors[SERVER], ("a", "b"))  # 5 − 7 mod 8 = 6 > 5


def test_two_sessions_give_unrelated_messages():
    seen = []
    for seed in (1, 2):
        opened = views(hamming(FAST, random_bits([3, 40], 64), seed))
        seen.append(next(m.residues for _, m in opened["c0"] if isinstance(m, OtCorrections)))
    assert (seen[0] == seen[1]).mean() < 0.03  # 1/128 by chance


# What the parties see


def test_the_sender_receives_only_columns_and_base_transfers():
    seen = views(hamming(REAL, random_bits([3, 2], 9)))
    kinds = {type(m).__name__ for _, m in seen["c0"]}
    assert kinds & {"OtColumns", "OtSetup", "OtOffers"} == {"OtColumns", "OtSetup", "OtOffers"}
    assert not kinds & {"OtCorrections", "DistanceShares"}


def columns_of(bits, seeds):
    """The columns that the sender sees: 128 times as many bits as choices."""
    total = np.zeros(8, int)
    for seed in seeds:
        for _, message in views(hamming(FAST, bits, seed))["a"]:
            if isinstance(message, OtColumns):
                total += np.bincount(message.columns.view(np.uint8).reshape(-1) & 7, minlength=8)
    return total


def test_the_senders_view_is_uniform_and_the_same_for_all_choices():
    one = columns_of(
        {"a": X["a"], "b": np.zeros((2, 8), np.uint8)} | {"a": np.ones((2, 8))}, range(9)
    )
    other = columns_of({"a": np.ones((2, 8)), "b": np.ones((2, 8), np.uint8)}, range(9, 18))
    assert uniformity(one) > 1e-4
    assert uniformity(other) > 1e-4
    assert same_distribution(one, other) > 1e-4


# The arithmetic


@settings(max_examples=50, deadline=None)
@given(
    rows=st.integers(1, 4),
    n_bits=st.integers(1, 40),
    lanes=st.integers(1, 40),
    seed=st.integers(0, 1 << 32),
)
def test_one_block_gives_shares_of_the_distances(rows, n_bits, lanes, seed):
    rng = np.random.default_rng(seed)
    mine = rng.integers(0, 2, (lanes, n_bits)).astype(np.uint8)
    theirs = rng.integers(0, 2, (rows, n_bits)).astype(np.uint8)
    hash_ = RobustHash(bytes(16))
    q = rng.integers(0, 1 << 64, (2, rows * n_bits, 2), np.uint64)
    zero, one = (HashPoints(hash_, hash_.permute(r), 5) for r in q)
    chosen = np.where(theirs.reshape(-1, 1) == 1, q[1], q[0])
    sums, corrections = offer_block(
        SenderPads(zero, one), lane_offsets(mine), (rows, n_bits), lanes
    )
    before = corrections.copy()
    got = take_block(HashPoints(hash_, hash_.permute(chosen), 5), corrections, theirs, lanes)
    assert np.array_equal(corrections, before)
    distances = (theirs[:, None] != mine[None]).sum(axis=2)
    shares = sums.astype(int) - mine.sum(axis=1)
    assert np.array_equal((got - shares) % 65536, distances)
