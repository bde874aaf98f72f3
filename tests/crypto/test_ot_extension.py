"""OT extension: the contract of transfers, its parts, the check, and what each side sees."""

from functools import partial

import numpy as np
import pytest
from contracts.transfers import (
    SIZES,
    QuickTransfers,
    Transfers,
    alike,
    batch,
    between,
    tamper,
    unlike,
)
from Crypto.Cipher import AES
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import assert_blames

from xclp_crypto.errors import DecodeError, FaultyPeer, ParameterError, ReuseError
from xclp_crypto.fields import packed_size
from xclp_crypto.protocols.ot import Choices, Extension, base_transfers, extended_ot, ideal_ot
from xclp_crypto.protocols.ot import bits as bits_module
from xclp_crypto.protocols.ot import link as link_module
from xclp_crypto.protocols.ot.base import FIELD_BITS
from xclp_crypto.protocols.ot.bits import (
    ColumnHash,
    HashPoints,
    RobustHash,
    lane_groups,
    lane_type,
    pack_planes,
    to_words,
    transpose,
    unpack_planes,
)
from xclp_crypto.protocols.ot.extension import OtChallenge, OtColumns, OtCorrections, OtProof
from xclp_crypto.protocols.ot.link import ReceiverEnd, SenderEnd, SenderPads, batch_words, prove
from xclp_crypto.protocols.ot.naor_pinkas import OtOffers, naor_pinkas
from xclp_crypto.protocols.ot.trees import grow, puncture
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import run, uniformity, views
from xclp_crypto.transport.simulate import Simulation

checked_ideal = partial(extended_ot, base=ideal_ot, check_receiver=True, field_bits=2)
FIELDS = pytest.mark.parametrize("k", FIELD_BITS)
CHECKED = pytest.mark.parametrize("check", [False, True], ids=["semi-honest", "checked"])


class TestExtension(Transfers):
    construction = staticmethod(extended_ot)


class TestExtensionOfIdeal(QuickTransfers):
    construction = staticmethod(partial(extended_ot, base=ideal_ot))
    names_the_sender = False


class TestCheckedExtensionOfIdeal(QuickTransfers):
    construction = staticmethod(checked_ideal)
    names_the_sender = False


# Random and correlated transfers


def links(body, sending="s", receiving="r", seed=0, k=1):
    """Base transfers of `sending` to `receiving` on an ideal base, then `body(io, extension)`."""
    parties = dict.fromkeys([*sending, *receiving])

    def make():
        rng = SeededRng(seed)

        async def role(io):
            own = rng.child(io.name)
            to = tuple(p for p in receiving if p != io.name) if io.name in sending else ()
            frm = tuple(p for p in sending if p != io.name) if io.name in receiving else ()
            base = await base_transfers(io, to, frm, b"base", own, ideal_ot, field_bits=k)
            return await body(io, base, own, to, frm)

        return dict.fromkeys(parties, role)

    return make


def exchange(
    method, sender, receiver, *, check=False, seed=0, batches=1, sids=(b"extension",), k=1
):
    """Run calls of a method of `Extension`: `batches` of each of `sids`, over one base."""

    async def body(io, base, rng, to, frm):
        got = []
        for sid in sids:
            extension = Extension(base, sid, rng, check_receiver=check)
            for _ in range(batches):
                with io.step("extension"):
                    got.append(await getattr(extension, method)(io, *(sender if to else receiver)))
        return got

    return run(links(body, seed=seed, k=k), record=True)


def pair(*args, **options):
    """Results of every call of `exchange`, of the sender and the receiver."""
    results = exchange(*args, **options).raise_errors().results
    return [(s[0]["r"], r[1]["s"]) for s, r in zip(results["s"], results["r"], strict=True)]


def of_random(bits, length):
    return "random", ({"r": len(bits)}, {}, length), ({}, {"s": Choices(bits, length)})


def of_correlated(offsets, bits, width):
    choices = {"s": Choices(bits, offsets.shape[1])}
    return "correlated", ({"r": offsets}, {}, width), ({}, choices, width)


def random_pads(bits, length, **options):
    return pair(*of_random(bits, length), **options)


def correlated(offsets, bits, width, **options):
    return pair(*of_correlated(offsets, bits, width), **options)


@CHECKED
@pytest.mark.parametrize(("count", "k"), [*((count, 1) for count in SIZES), (1025, 4), (9, 8)])
def test_random_transfers_give_one_of_two_pads(count, k, check):
    bits = np.random.default_rng(count).integers(0, 2, count).astype(bool)
    pads = set()
    for both, chosen in random_pads(bits, 16, check=check, batches=3, k=k):
        assert both.shape == (count, 2, 16)
        assert np.array_equal(chosen, both[np.arange(count), bits.astype(int)])
        pads |= {row.tobytes() for row in both.reshape(-1, 16)}
    assert len(pads) == 3 * 2 * count


@settings(max_examples=30, deadline=None)
@given(count=st.integers(0, 70), length=st.integers(1, 70), seed=st.integers(0, 99))
def test_random_transfers_of_any_length_extend_shorter_ones(count, length, seed):
    bits = np.random.default_rng(seed).integers(0, 2, count).astype(bool)
    ((both, chosen),) = random_pads(bits, length, seed=seed)
    ((longer, _),) = random_pads(bits, 70, seed=seed)
    assert np.array_equal(chosen, both[np.arange(count), bits.astype(int)])
    assert np.array_equal(both, longer[:, :, :length])


@CHECKED
@pytest.mark.parametrize("count", SIZES)
def test_correlated_transfers_of_all_batch_sizes(count, check):
    rng = np.random.default_rng(count)
    offsets = rng.integers(0, 1 << 16, (count, 9)).astype(np.uint16)
    bits = rng.integers(0, 2, count).astype(bool)
    for base, got in correlated(offsets, bits, 13, check=check, batches=2):
        assert np.array_equal(got, (base + offsets * bits[:, None]) & 8191)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 40),
    lanes=st.integers(1, 40),
    width=st.integers(1, 64),
    seed=st.integers(0, 1 << 32),
)
def test_correlated_transfers_differ_by_the_offset(count, lanes, width, seed):
    rng = np.random.default_rng(seed)
    dtype = lane_type(width)
    offsets = rng.integers(0, 1 << 64, (count, lanes), np.uint64).astype(dtype)
    bits = rng.integers(0, 2, count).astype(bool)
    ((base, got),) = correlated(offsets, bits, width)
    assert base.shape == got.shape == (count, lanes)
    assert base.dtype == got.dtype == dtype
    assert base.size == 0 or int(base.max()) < 1 << width
    expected = (base + offsets * bits[:, None]).astype(object) % (1 << width)
    assert np.array_equal(got, expected)


@CHECKED
@pytest.mark.parametrize("k", [1, 4])
def test_transfers_of_a_fixed_offset_differ_by_it_in_all_batches(k, check):
    bits = np.arange(130) % 3 == 1
    calls = ({"r": 130}, {}), ({}, {"s": bits})
    offsets, messages = set(), set()
    for (zero, offset), got in pair("fixed", *calls, check=check, batches=2, k=k):
        assert np.array_equal(got, zero ^ bits[:, None] * offset)
        offsets.add(offset.tobytes())
        messages |= {row.tobytes() for row in zero}
    assert len(offsets) == 1
    assert len(messages) == 2 * 130


def test_groups_of_rows_and_blocks_do_not_matter(monkeypatch):
    bits = np.random.default_rng(0).integers(0, 2, 300).astype(bool)
    offsets = np.arange(300 * 30, dtype=np.uint16).reshape(300, 30)
    whole = [*random_pads(bits, 50)[0], *correlated(offsets, bits, 11)[0]]
    monkeypatch.setattr(bits_module, "_GROUP_ROWS", 7)
    monkeypatch.setattr(link_module, "CHUNK_WORDS", 2)
    cut = [*random_pads(bits, 50)[0], *correlated(offsets, bits, 11)[0]]
    assert all(np.array_equal(a, b) for a, b in zip(whole, cut, strict=True))


@pytest.mark.parametrize(
    ("offsets", "width"),
    [
        (np.zeros((2, 3), np.uint8), 4),
        (np.zeros(3, np.uint16), 4),
        (np.zeros((2, 0), np.uint16), 4),
        (np.zeros((2, 3), np.uint16), 0),
        (np.zeros((2, 3), np.uint16), 17),
        (np.zeros((2, 3), np.uint64), 16),
        (np.zeros((2, 3), np.uint64), 65),
    ],
)
def test_wrong_offsets_are_refused(offsets, width):
    async def body(io, base, rng, to, frm):
        if to:
            await Extension(base, b"x", rng).correlated(io, {"r": offsets}, {}, width)

    assert isinstance(run(links(body)).errors["s"], ParameterError)


def test_a_random_message_has_at_least_one_byte():
    async def body(io, base, rng, to, frm):
        if to:
            await Extension(base, b"x", rng).random(io, {"r": 1}, {}, 0)

    assert isinstance(run(links(body)).errors["s"], ParameterError)


@CHECKED
@pytest.mark.parametrize(("count", "k"), [(0, 1), (1, 2), (64, 4), (129, 1), (129, 4)])
def test_metered_bytes_are_the_formula(count, k, check):
    calls = of_correlated(np.zeros((count, 5), np.uint16), np.zeros(count, bool), 3)
    cost = exchange(*calls, check=check, k=k).raise_errors().cost
    metered = {t.message: n for t, n in cost.bytes_sent.items() if t.step == "extension"}
    columns = 128 // k * (16 * (-(-count // 128) + 1) if check else 8 * -(-count // 64))
    expected = {"OtColumns": 2 + 8 + columns, "OtCorrections": 2 + -(-count * 5 * 3 // 8)}
    if check:
        expected |= {"OtChallenge": 2 + 16, "OtProof": 2 + 129 * 16}
    assert metered == expected


# Never the same bytes twice


def unrelated(one, other):
    """Byte by byte, equality is as rare as chance."""
    one, other = one.reshape(-1), other.reshape(-1)
    return one.size == other.size > 1000 and (one == other).mean() < 0.02


BITS = np.zeros(9, bool)
ALTERNATING = of_random(np.arange(64) % 2 == 1, 16)


def test_two_extensions_over_one_set_of_base_transfers_give_unrelated_bytes():
    outcome = exchange(*ALTERNATING, sids=[b"one", b"other"]).raise_errors()
    assert unrelated(*(sent["r"] for sent, _ in outcome.results["s"]))
    one, other = (received["s"] for _, received in outcome.results["r"])
    assert (one == other).mean() < 0.02
    columns = [m.columns.view(np.uint8) for _, m in outcome.views["s"] if isinstance(m, OtColumns)]
    assert unrelated(*columns)


def test_one_identifier_twice_over_one_set_of_base_transfers_is_refused():
    errors = exchange(*ALTERNATING, sids=[b"one", b"one"]).errors
    assert {type(e) for e in errors.values()} == {ReuseError}


def test_user_case_an_extension_of_another_sid_or_another_batch_is_a_typed_error(monkeypatch):
    async def another_sid(io, base, rng, to, frm):
        extension = Extension(base, io.name.encode(), rng)
        return await extension.extend(io, dict.fromkeys(to, 9), dict.fromkeys(frm, BITS))

    async def another_batch(io, base, rng, to, frm):
        extension = Extension(base, b"sid", rng)
        if frm:
            await extension.ask(io, {})
            monkeypatch.setattr(extension._receivers["s"], "_rows", 64)
        return await extension.extend(io, dict.fromkeys(to, 9), dict.fromkeys(frm, BITS))

    for body in (another_sid, another_batch):
        outcome = run(links(body))
        assert_blames(outcome.errors["s"], ("r",), "sid, number and order of batches")


def wanted(count, length=16):
    return {"s": Choices(np.zeros(count, bool), length)}


RANDOM = ("random", {"r": 4}, {}, 3)
LANES = ("correlated", {"r": np.zeros((4, 3), np.uint16)}, {}, 8)
WORD = ("random_bits", {"r": 1}, {})
OTHER_BATCHES = {
    "number": (RANDOM, ("random", {}, wanted(5, 3))),
    "length": (RANDOM, ("random", {}, wanted(4, 4))),
    "number and length": (RANDOM, ("random", {}, wanted(3, 4))),
    "number of vectors": (LANES, ("correlated", {}, wanted(5, 3), 8)),
    "residues": (LANES, ("correlated", {}, wanted(3, 4), 8)),
    "width": (LANES, ("correlated", {}, wanted(4, 3), 9)),
    "kind": (RANDOM, ("correlated", {}, wanted(4, 3), 8)),
    "random and fixed": (RANDOM, ("fixed", {}, {"s": np.zeros(4, bool)})),
    "words": (WORD, ("random_bits", {}, {"s": np.zeros(2, np.uint64)})),
}


@pytest.mark.parametrize(("sender", "receiver"), OTHER_BATCHES.values(), ids=OTHER_BATCHES)
def test_another_kind_or_size_of_batch_is_an_error_of_both(sender, receiver):
    async def body(io, base, rng, to, frm):
        method, *call = sender if to else receiver
        extension = Extension(base, b"sid", rng)
        await getattr(extension, method)(io, *call)
        if frm:  # some methods wait for nothing
            await extension.chosen(io, {}, wanted(1))

    errors = run(links(body, k=8)).errors
    assert_blames(errors["s"], ("r",), "kind, number and sizes of transfers")
    assert errors["r"].missing == ("s",)


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("random", ({"r": 2.0}, {}, 3)),
        ("random", ({"r": -1}, {}, 3)),
        ("random", ({"r": 2}, {}, 3.0)),
        ("random_bits", ({"r": 2.0}, {})),
        ("random_bits", ({}, {"s": [1, 2]})),
        ("fixed", ({}, {"s": [True, False]})),
        ("chosen", ({}, {"s": np.zeros(2, bool)})),
        ("correlated", ({"r": [[1, 2]]}, {}, 8)),
        ("correlated", ({"r": np.zeros((2, 3), np.uint16)}, {}, 8.0)),
    ],
)
def test_lists_and_numbers_that_are_not_whole_are_refused(method, call):
    async def body(io, base, rng, to, frm):
        if bool(to) == bool(call[0]):
            await getattr(Extension(base, b"x", rng), method)(io, *call)

    ((_, error),) = run(links(body)).errors.items()
    assert isinstance(error, ParameterError)


@pytest.mark.parametrize("use", [extended_ot, naor_pinkas, base_transfers, Extension])
def test_an_identifier_that_is_text_is_refused_before_anything_is_sent(use):
    """It would be another one than the same letters as bytes."""

    async def role(io):
        rng = SeededRng(1)
        if use is Extension:
            use(await base_transfers(io, [], [], b"x", rng), "x", rng)
        sides = ({"r": np.zeros((2, 2, 8), np.uint8)}, {}), (["r"], [])
        await use(io, *sides[use is base_transfers], "x", rng)

    outcome = Simulation().run({"s": role})
    assert "sid must be bytes, such as b'run 1', got str" in str(outcome.errors["s"])
    assert not outcome.cost.total_bytes


def test_two_batches_of_one_extension_give_unrelated_bytes():
    (one, _), (other, _) = random_pads(np.zeros(64, bool), 16, batches=2)
    assert unrelated(one, other)


def restarting(monkeypatch):
    """Broken: every batch begins again with the first row of every column."""

    def again(extend):
        def restarted(self, *args, **options):
            fresh = self.__class__(*self.arguments)
            return extend(fresh, *args, **options)

        return restarted

    for cls in (SenderEnd, ReceiverEnd):

        class Restarting(cls):
            def __init__(self, *args):
                self.arguments = args
                super().__init__(*args)

        Restarting.extend = again(cls.extend)
        monkeypatch.setattr(link_module, cls.__name__, Restarting)


def test_the_same_test_finds_an_index_that_starts_again(monkeypatch):
    restarting(monkeypatch)
    bits = np.zeros(64, bool)
    (one, chosen), (other, _) = random_pads(bits, 16, batches=2)
    assert np.array_equal(chosen, one[:, 0])  # the result stays right
    assert not unrelated(one, other)


def test_the_two_directions_of_one_pair_give_unrelated_bytes():
    async def body(io, base, rng, to, frm):
        extension = Extension(base, b"x", rng)
        choices = Choices(np.zeros(64, bool), 16)
        sent, _ = await extension.random(io, {to[0]: 64}, {frm[0]: choices})
        return sent[to[0]]

    results = run(links(body, sending="ab", receiving="ab")).raise_errors().results
    assert unrelated(results["a"], results["b"])


# The parts


def by_rows(words):
    """The 128 bits of every row (bit, word), straightforwardly."""
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    rows = bits.reshape(128, words.shape[1], 64).transpose(2, 1, 0)
    return np.ascontiguousarray(np.packbits(rows, axis=2, bitorder="little")).view("<u8")


@pytest.mark.parametrize("words", [0, 1, 2, 3, 16, 17])
def test_transposing(words):
    columns = np.random.default_rng(words).integers(0, 1 << 64, (128, words), np.uint64)
    expected, rows = by_rows(columns), np.empty((64, words, 2), np.uint64)
    transpose(columns, rows)
    assert np.array_equal(rows, expected)


@pytest.mark.parametrize(("count", "words"), [(0, 0), (1, 1), (64, 1), (65, 2), (200, 4), (3, 2)])
def test_bits_are_packed_in_the_order_of_rows(count, words):
    bits = np.random.default_rng(count).integers(0, 2, count).astype(bool)
    expected = [sum(int(b) << i for i, b in enumerate(bits[w::words])) for w in range(words)]
    assert to_words(bits, words).tolist() == expected


def test_the_hash_is_tmmo_of_an_independent_aes():
    key = bytes(range(16))
    cipher = AES.new(key, AES.MODE_ECB)
    rows = np.random.default_rng(0).integers(0, 1 << 64, (5, 2), np.uint64)
    hash_ = RobustHash(key)
    start = (1 << 40) + 3
    got = HashPoints(hash_, hash_.permute(rows), start).blocks(6, 9)
    for b in range(3):
        for i, row in enumerate(rows):
            y = int.from_bytes(cipher.encrypt(row.tobytes()), "little")
            tweak = (start + i) | (6 + b) << 64
            block = cipher.encrypt((y ^ tweak).to_bytes(16, "little"))
            expected = int.from_bytes(block, "little") ^ y
            assert got[b, i].tobytes() == expected.to_bytes(16, "little")


def test_index_and_block_are_bound_into_the_hash():
    hash_ = RobustHash(bytes(16))
    points = hash_.permute(np.zeros((100, 2), np.uint64))  # one row, a hundred times
    out = HashPoints(hash_, points, 0).blocks(0, 20)
    assert len({block.tobytes() for block in out.reshape(-1, 2)}) == 2000
    other = HashPoints(RobustHash(bytes(15) + b"\1"), points, 0).blocks(0, 20)
    assert unrelated(out.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize("word", [0, 0x7FF0000000000001, 0xFFF8000000000002, 0x8000000000000000])
def test_bytes_that_look_like_special_floats_are_copied_as_they_are(monkeypatch, word):
    def constant(self, first, stop):
        return np.full((stop - first, len(self), 2), word, np.uint64)

    monkeypatch.setattr(HashPoints, "blocks", constant)
    points = HashPoints(RobustHash(bytes(16)), np.zeros((3, 2), np.uint64), 0)
    for length in (16, 31, 48):
        out = np.zeros((3, 2, length), np.uint8)
        points.write_bytes(out[:, 1])
        assert not out[:, 0].any()
        assert out[:, 1].tobytes() == 3 * (word.to_bytes(8, "little") * 6)[:length]


def test_receiving_needs_base_transfers():
    async def body(io, base, rng, to, frm):
        await Extension(base, b"x", rng).random(io, {}, {"t": Choices(np.zeros(3, bool), 16)})

    for error in run(links(body)).errors.values():
        assert isinstance(error, ParameterError)
        assert "'t'" in str(error)


def test_pads_are_neither_printed_nor_pickled():
    import pickle

    points = HashPoints(RobustHash(bytes(16)), np.full((2, 2), 7, np.uint64), 0)
    pads = SenderPads(points, points)
    assert "7" not in repr(points).replace(hex(id(points)), "")
    for secret in (points, pads):
        with pytest.raises(TypeError):
            pickle.dumps(secret)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 16), st.integers(0, 200), st.integers(0, 1 << 32))
def test_packing_in_planes(width, count, seed):
    values = np.random.default_rng(seed).integers(0, 1 << 16, count).astype(np.uint16)
    packed = b"".join(pack_planes(values, width))
    assert len(packed) == packed_size(count, width)
    assert np.array_equal(unpack_planes(packed, count, width), values & ((1 << width) - 1))


@pytest.mark.parametrize("width", range(1, 17))
def test_every_bit_of_packed_planes_counts(width):
    packed = np.frombuffer(b"".join(pack_planes(np.zeros(32, np.uint16), width)), np.uint8)
    seen = set()
    for bit in range(8 * len(packed)):
        flipped = packed.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        values = unpack_planes(flipped.tobytes(), 32, width)
        (where,) = np.nonzero(values)
        assert len(where) == 1
        seen.add((int(where[0]), int(values[where[0]])))
    assert seen == {(i, 1 << j) for i in range(32) for j in range(width)}


@pytest.mark.parametrize("count", [1, 5, 21])
def test_packed_planes_of_another_length_or_with_padding_are_refused(count):
    packed = b"".join(pack_planes(np.zeros(count, np.uint16), 5))
    for wrong in (packed[:-1], packed + b"\0", b""):
        with pytest.raises(DecodeError):
            unpack_planes(wrong, count, 5)
    with pytest.raises(DecodeError):
        unpack_planes(packed[:-1] + b"\x80", count, 5)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 30), st.integers(1, 40))
def test_lane_groups_visit_everything_once(count, lanes):
    flat = np.zeros(count * lanes, np.uint16)
    next_block = 0
    for first, stop, part in lane_groups(flat, count, lanes):
        assert first == next_block
        assert part.shape[:2] == (stop - first, count)
        part += 1
        next_block = stop
    assert next_block == -(-lanes // 8)
    assert (flat == 1).all()


def ghash_multiply(x, y):
    """Multiplication in GF(2^128) as NIST SP 800-38D, algorithm 1, writes it."""
    z, v = 0, y
    for i in range(128):
        if x >> (127 - i) & 1:
            z ^= v
        v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
    return z


def test_the_column_hash_is_ghash_of_an_independent_implementation():
    seed = bytes(range(16))
    point = int.from_bytes(AES.new(seed, AES.MODE_ECB).encrypt(bytes(16)), "big")
    columns = np.random.default_rng(0).integers(0, 256, (4, 48), dtype=np.uint8)
    for column, got in zip(columns, ColumnHash(seed, 48)(columns), strict=True):
        state = 0
        for block in column.reshape(3, 16):
            state = ghash_multiply(state ^ int.from_bytes(block.tobytes(), "big"), point)
        # The block of lengths is constant, and cancels.
        assert int.from_bytes(got.tobytes(), "big") == ghash_multiply(state, point)


def test_the_column_hash_is_linear():
    a, b = np.random.default_rng(0).integers(0, 256, (2, 1, 64), dtype=np.uint8)
    h = ColumnHash(bytes(16), 64)
    assert np.array_equal(h(a ^ b), h(a) ^ h(b))
    assert not h(np.zeros((1, 64), np.uint8)).any()
    assert h(a).any()


# The check of the receiver


def ends(seed=0, k=1, alter=None):
    """A sender and a receiver of one checked link, and the sender's s."""
    rng = np.random.default_rng(seed)
    leaves, pairs = grow(rng.integers(0, 256, (128 // k, 2, 32), dtype=np.uint8), k)
    s = rng.integers(0, 2, 128).astype(bool)
    if alter is not None:
        pairs[alter] ^= 1
    known = puncture(pairs[np.arange(128), s.astype(int)], s, k)
    return (
        SenderEnd(s, known, b"sid", "s", "r", True),
        ReceiverEnd(leaves, b"sid", "s", "r", True),
        s,
    )


COUNT = 200
WORDS = batch_words(COUNT, True)


def checked_batch(seed=0, choices=None, k=1):
    """One batch of 200 transfers: everything that the check takes."""
    sender, receiver, s = ends(seed, k)
    rng = np.random.default_rng([seed, 1])
    if choices is None:
        choices = rng.integers(0, 1 << 64, WORDS, np.uint64)
    batch = receiver.extend(choices, COUNT)
    challenge = rng.integers(0, 256, 16, dtype=np.uint8).tobytes()
    return sender, s, batch, batch.u.copy(), challenge


def passes(sender, columns, challenge, proof):
    sender = sender()
    _, q = sender.extend(columns, COUNT)
    return sender.verify(q, challenge, proof)


def test_words_of_a_batch():
    expected = {0: 2, 1: 4, 127: 4, 128: 4, 129: 6, 1023: 18, 1024: 18, 1025: 20}
    assert {m: batch_words(m, True) for m in expected} == expected
    assert [batch_words(m, False) for m in (0, 13, 64, 65)] == [0, 1, 1, 2]


@FIELDS
def test_the_senders_columns_differ_by_s_where_the_choice_is_one(k):
    sender, s, batch, columns, _ = checked_batch(k=k)
    _, q = sender.extend(columns, COUNT)
    assert np.array_equal(q, batch.t ^ batch.choices * s[:, None])
    assert columns.shape == (128 // k, WORDS)
    assert uniformity(nibbles(columns.view(np.uint8))) > 1e-4


def delta(s, k):
    """Δ of every tree, from the sender's choices."""
    return (s.reshape(k, -1) << np.arange(k)[:, None]).sum(axis=0)


@pytest.mark.parametrize("k", [2, 4])
def test_every_single_inconsistent_column_is_caught_or_harmless(k):
    """In transfers, in padding and in the sacrificed rows: caught exactly if Δ_j is not 0."""
    _, s, batch, columns, challenge = checked_batch(k=k)
    proof = prove(challenge, batch.choices, batch.t)
    assert passes(lambda: ends(k=k)[0], columns, challenge, proof)
    honest, _ = ends(k=k)[0].extend(columns, COUNT)
    for j, of_tree in enumerate(delta(s, k).tolist()):
        altered = columns.copy()
        altered[j, j // 8 % WORDS] ^= np.uint64(1 << (5 * j + 3) % 64)
        assert passes(lambda: ends(k=k)[0], altered, challenge, proof) == (not of_tree), j
        if not of_tree and (k > 2 or j % 8 == 0):  # then u_j is not used at all
            pads, _ = ends(k=k)[0].extend(altered, COUNT)
            assert np.array_equal(pads.zero.blocks(0, 1), honest.zero.blocks(0, 1))


@pytest.mark.parametrize("k", [1, 4])
def test_every_altered_message_of_the_base_transfers_is_caught_or_harmless(k):
    """Of trees that are not what they should be: caught exactly if the sender chose it."""
    _, s, batch, columns, challenge = checked_batch(k=k)
    proof = prove(challenge, batch.choices, batch.t)
    for c in range(0, 128, 9):
        got = passes(lambda c=c: ends(k=k, alter=(c, c % 2, 7))[0], columns, challenge, proof)
        assert got == (s[c] != c % 2), c


def test_guesses_pass_with_one_half_each():
    """Selective failure, as documented: with g guesses the receiver passes with 2^-g."""
    runs, passed = 32, np.zeros(4, int)
    for seed in range(runs):
        _, _, batch, columns, challenge = checked_batch(seed)
        proof = prove(challenge, batch.choices, batch.t)
        for guesses in range(4):
            altered = columns.copy()
            altered[:guesses, 0] ^= np.uint64(1)
            passed[guesses] += passes(lambda s=seed: ends(s)[0], altered, challenge, proof)
    share = 0.5 ** np.arange(4)
    assert (abs(passed - runs * share) <= 4.5 * np.sqrt(runs * share * (1 - share))).all()


def test_a_receiver_that_adapts_its_proof_to_one_guess_is_caught_by_the_other_columns():
    _, _, batch, columns, challenge = checked_batch()
    columns[:64, 3] ^= np.uint64(1)  # half of the columns hide other choices
    other = batch.choices.copy()
    other[3] ^= np.uint64(1)
    for choices in (batch.choices, other):
        proof = prove(challenge, choices, batch.t)
        assert not passes(lambda: ends()[0], columns.copy(), challenge, proof)


def test_the_same_change_of_all_columns_is_only_another_choice():
    _, _, batch, columns, challenge = checked_batch()
    columns[:, 3] ^= np.uint64(1)
    other = batch.choices.copy()
    other[3] ^= np.uint64(1)
    assert passes(lambda: ends()[0], columns, challenge, prove(challenge, other, batch.t))


def test_every_bit_of_the_proof_counts():
    sender, s, batch, columns, challenge = checked_batch()
    proof = prove(challenge, batch.choices, batch.t)
    _, q = sender.extend(columns, COUNT)
    assert sender.verify(q, challenge, proof)
    for row in range(129):
        altered = proof.copy()
        altered[row, row % 16] ^= 1 << row % 8
        assert not sender.verify(q, challenge, altered)
    assert s.any()


def tampered(kind, change, check=True, seed=0):
    messages, bits, expected = batch(20, 4)
    make = between(partial(checked_ideal, check_receiver=check), messages, bits, seed)
    return run(make, tamper(kind, change)), expected


def flip_byte_of_all_columns_but_one(payload, trees=64):
    altered = bytearray(payload)
    step = (len(payload) - 10) // trees  # after tag and digest
    for column in range(1, trees):
        altered[10 + column * step] ^= 1
    return bytes(altered)


def test_a_receiver_with_inconsistent_columns_is_named_and_gets_nothing():
    outcome, _ = tampered("OtColumns", flip_byte_of_all_columns_but_one)
    assert_blames(outcome.errors["s"], ("r",), "OtColumns")
    assert outcome.errors["r"].missing == ("s",)


def test_parties_with_other_fields_and_fields_of_other_sizes_are_refused():
    async def role(io, sending, receiving, k):
        messages, choices = np.zeros((9, 2, 1), np.uint8), Choices(np.zeros(9, bool), 1)
        return await extended_ot(
            io,
            dict.fromkeys(sending, messages),
            dict.fromkeys(receiving, choices),
            b"sid",
            SeededRng(0),
            base=ideal_ot,
            field_bits=k,
        )

    def errors(ours, theirs):
        parties = {
            "s": lambda io: role(io, "r", "", ours),
            "r": lambda io: role(io, "", "s", theirs),
        }
        return Simulation().run(parties).errors

    assert_blames(errors(2, 4)["s"], ("r",), "field_bits")
    for wrong in (3, 4.0, True):
        assert "field_bits" in str(errors(wrong, wrong)["s"])


@pytest.mark.parametrize("kind", ["OtChallenge", "OtProof"])
def test_an_altered_challenge_or_proof_fails_the_check(kind):
    outcome, _ = tampered(kind, lambda p: p[:-1] + bytes([p[-1] ^ 1]))
    assert outcome.errors["s"].parties == ("r",)


def test_without_the_check_nobody_notices():
    outcome, expected = tampered("OtColumns", flip_byte_of_all_columns_but_one, check=False)
    assert not outcome.errors
    assert not np.array_equal(outcome.results["r"]["s"], expected)


def test_base_transfers_are_burnt_by_a_failed_check():
    async def body(io, base, rng, to, frm):
        extension = Extension(base, b"one", rng, check_receiver=True)
        if frm:
            return await extension.extend(io, {}, {"s": np.zeros(9, bool)})
        with pytest.raises(FaultyPeer):
            await extension.extend(io, {"r": 9}, {})
        assert await extension.extend(io, {"r": 9}, {}) == ({}, {})
        with pytest.raises(ReuseError, match="r failed a check"):
            Extension(base, b"two", rng)
        return "refused"

    fault = tamper("OtColumns", flip_byte_of_all_columns_but_one)
    assert run(links(body), fault).raise_errors().results["s"] == "refused"


def test_a_receiver_that_does_not_prove_is_left_out():
    outcome, _ = tampered("OtProof", lambda p: None)
    assert {p: e.missing for p, e in outcome.errors.items()} == {"s": ("r",), "r": ("s",)}


# What each side sees


def nibbles(data):
    data = np.asarray(data, np.uint8).reshape(-1)
    return np.bincount(np.concatenate([data & 15, data >> 4]), minlength=16)


def columns_seen(choice, runs=20):
    """u_i ⊕ G(k_i^{s_i}): all that the sender can make of the columns of equal choices."""
    counts = np.zeros(16, int)
    for seed in range(runs):
        sender, receiver, s = ends(seed + (1000 if choice else 0))
        u = receiver.extend(np.full(4, -int(choice)).view(np.uint64), 64).u
        _, q = sender.extend(u, 64)
        known = q ^ (u * s[:, None])
        counts += nibbles((u ^ known).view(np.uint8))
    return counts


def test_the_senders_view_is_uniform_and_the_same_for_all_choices():
    alike(columns_seen(False), columns_seen(True))


def test_the_same_test_finds_columns_without_a_mask(monkeypatch):
    original = ReceiverEnd.extend

    def unmasked(self, choices, count):
        batch = original(self, choices, count)
        batch.u[:] = batch.t ^ batch.choices  # G(k_i^1) left out
        return batch

    monkeypatch.setattr(ReceiverEnd, "extend", unmasked)
    unlike(columns_seen(False), columns_seen(True))


def proofs_seen(choice, runs=20):
    counts = np.zeros(16, int)
    for seed in range(runs):
        calls = ({"r": 100}, {}), ({}, {"s": np.full(100, choice)})
        outcome = exchange("extend", *calls, check=True, seed=seed + (1000 if choice else 0))
        seen = outcome.raise_errors().views["s"]
        counts += nibbles(next(m.hashes[0] for _, m in seen if isinstance(m, OtProof)))
    return counts


def test_the_proof_says_nothing_about_the_choices():
    alike(proofs_seen(False), proofs_seen(True))


def test_the_same_test_finds_a_proof_without_sacrificed_rows(monkeypatch):
    def zeros(self, choices):
        return np.append(choices, np.zeros(2, np.uint64))

    monkeypatch.setattr(Extension, "_with_sacrifice", zeros)
    unlike(proofs_seen(False), proofs_seen(True))


def corrections_of(offset, lanes, seed):
    """The corrections of 16 transfers with choices of 0."""
    calls = of_correlated(np.full((16, lanes), offset, np.uint16), np.zeros(16, bool), 3)
    seen = exchange(*calls, seed=seed).raise_errors().views["r"]
    return next(m.residues for _, m in seen if isinstance(m, OtCorrections))


def corrections_seen(offset, runs=30):
    """Corrections modulo 8, and what they and the receiver's pads give for its choices of 0."""
    counts = np.zeros(8, int)
    for seed in range(runs):
        residues = corrections_of(offset, 20, seed + 1000 * offset)
        for part in (residues[:-16] - residues[16:], residues):
            counts += np.bincount(part & 7, minlength=8)
    return counts


def test_the_receivers_view_of_the_other_messages_is_uniform_whatever_the_offset():
    alike(corrections_seen(1), corrections_seen(6))


def no_mask(self, first, stop):
    return np.zeros((stop - first, len(self), 2), np.uint64)


def no_block_number(self, first, stop):
    return np.repeat(BLOCKS(self, 0, 1), stop - first, axis=0)


BLOCKS = HashPoints.blocks


@pytest.mark.parametrize("broken", [no_mask, no_block_number], ids=lambda f: f.__name__)
def test_the_same_test_finds_pads_that_are_missing_or_repeat(monkeypatch, broken):
    monkeypatch.setattr(HashPoints, "blocks", broken)
    bits = np.arange(16) % 2 == 1
    ((base, got),) = correlated(np.full((16, 20), 6, np.uint16), bits, 3)
    assert np.array_equal(got, (base + 6 * bits[:, None]) & 7)  # the result stays right
    if broken is no_mask:
        assert uniformity(corrections_seen(1)) < 1e-9
    else:
        residues = corrections_of(0, 16, 0).reshape(-1, 16, 8)
        assert (residues[0] == residues[1]).all()


def test_blocks_of_one_payload_are_unrelated():
    residues = corrections_of(0, 16, 0).reshape(-1, 16, 8)
    assert (residues[0] == residues[1]).mean() < 0.35  # 1/8 by chance


def test_the_roles_send_what_the_module_says():
    messages, bits, _ = batch(9, 4)
    make = between(checked_ideal, messages, bits)
    seen = views(make)
    assert [type(m) for _, m in seen["s"]][-2:] == [OtColumns, OtProof]
    assert [type(m) for _, m in seen["r"]][-2:] == [OtChallenge, OtOffers]
    assert Simulation().run(make()).raise_errors().cost.rounds == 4
