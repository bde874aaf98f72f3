"""SecureHamming: the contract over all back ends, and what is special in `masked` and `shade`."""

from itertools import combinations, product

import numpy as np
import pytest
from contracts.hamming import (
    ALL,
    BITS,
    EVERY,
    EVERY_FAST,
    QUICK,
    SHADE_IDEAL,
    X_MASKED,
    X,
    a_second_run_in_a_session_is_refused,
    costs_what_was_foretold,
    every_corruption_is_blamed_on_an_end_of_its_link,
    every_dropout_costs_only_the_rows_of_its_client,
    exact,
    federations,
    ident,
    only_views_can_show_it,
    oracle,
    random_bits,
    result,
    view_p_values,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import assert_blames, hamming, with_session

from xclp_crypto.errors import DataError, FaultyPeer, ParameterError, TooFewParties
from xclp_crypto.protocols.hamming import (
    BACKENDS,
    HammingBackend,
    bit_rows,
    costs,
    distances_between,
    estimate,
    get_backend,
)
from xclp_crypto.protocols.hamming import masked as masked_module
from xclp_crypto.protocols.hamming import shade as shade_module
from xclp_crypto.protocols.hamming.interface import (
    DistanceShares,
    complete_uploads,
    receive_shares,
)
from xclp_crypto.protocols.hamming.masked import MaskedRows, client_upload, masked_width, share_with
from xclp_crypto.protocols.hamming.shade import Shade
from xclp_crypto.protocols.ot import ideal_ot
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import deliveries, run
from xclp_crypto.transport.simulate import Faults

# What all back ends must do


@EVERY_FAST
@settings(max_examples=15)
@given(bits=federations([1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 255, 256, 1000]))
def test_distances_are_exact(backend, bits):
    if backend.name.startswith("paillier"):  # takes long
        bits = {c: b[:, :65] for c, b in bits.items()}
    exact(backend, bits)


@settings(max_examples=30)
@given(bits=federations([1, 2, 3, 7, 8, 9], max_rows=2, max_clients=3))
def test_distances_are_exact_with_real_transfers(bits):
    exact(BACKENDS["shade"], bits)


@pytest.mark.parametrize(
    ("backend", "n_bits"),
    [
        *product(ALL, [1, 2, 3, 4, 7, 8, 9]),
        *product([QUICK["paillier"], QUICK["paillier-packed"]], [255, 256]),
        *product([QUICK["shade-ext"]], [4096, 32768]),
    ],
    ids=lambda value: value if isinstance(value, int) else ident(value),
)
def test_equal_and_opposite_vectors(backend, n_bits):
    ones, zeros = np.ones((1, n_bits)), np.zeros((1, n_bits))
    h = result(backend, {"a": ones, "b": ones, "c": zeros}).matrix
    assert h.tolist() == [[0, 0, n_bits], [0, 0, n_bits], [n_bits, n_bits, 0]]


@EVERY_FAST
@settings(deadline=None, max_examples=10)
@given(bits=federations([1, 8, 9, 65]), seed=st.integers(0, 1 << 32))
def test_a_common_mask_leaves_distances_unchanged(backend, bits, seed):
    n_bits = next(iter(bits.values())).shape[1]
    mask = np.random.default_rng(seed).integers(0, 2, n_bits).astype(np.uint8)
    masked = {c: b ^ mask for c, b in bits.items()}
    assert np.array_equal(result(backend, bits).matrix, result(backend, masked).matrix)


@EVERY_FAST
def test_a_permutation_of_clients_only_permutes_the_result(backend):
    bits = random_bits([2, 0, 3, 2], 20)
    exact(backend, {c: bits[c] for c in ("c3", "c2", "c0", "c1")})


@EVERY
@pytest.mark.parametrize("sizes", [[0, 0], [0, 3], [3, 0, 0], [1, 1]])
def test_clients_without_rows(backend, sizes):
    exact(backend, random_bits(sizes, 5))


@pytest.mark.parametrize(
    "backend", (QUICK | {"shade-ext": BACKENDS["shade-ext"]}).values(), ids=ident
)
@pytest.mark.parametrize("sizes", [[2, 1], [1, 2, 3], [0, 2, 1], [2, 0, 0, 1]])
@pytest.mark.parametrize("n_bits", [1, 7, 8, 9])
def test_metered_bytes_and_rounds_are_those_of_the_estimate(backend, sizes, n_bits):
    costs_what_was_foretold(backend, random_bits(sizes, n_bits))


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=ident)
def test_at_the_sizes_of_the_paper_every_back_end_needs_little_memory(backend):
    foretold = estimate(backend, {"a": 500, "b": 500}, 4096)
    assert 0 < foretold.memory_bytes <= foretold.simulation_bytes <= 1.5 * 2**30


@pytest.mark.parametrize(
    ("backend", "operations", "memory"),
    [
        ("plain", {"float32 multiply-adds": 9**2 * 100}, 6 * 900 + 2 * 81),
        (
            "masked",
            {"multiply-adds": 3 * 26 * 100, "mask residues": 3 * 9 * 100},
            10 * 900 + 14 * 81,
        ),
        (
            "shade",
            {"fixed-base multiplications": 2600, "variable-base multiplications": 5200},
            600 * 2600 + 9 * 400 + 8 * 16 + 16 * 81,
        ),
        (
            "shade-ext",  # the fewer rows receive: b from a and c, a from c
            {
                "fixed-base multiplications": 3 * 128,
                "variable-base multiplications": 3 * 256,
                "extended transfers": 200 + 200 + 300,
                "AES blocks": 700 * (3 + 3 * 2),
            },
            4 * 2**24 + 9 * 400 + 16 * 81,
        ),
        (
            "rlwe",  # the fewer rows are encrypted: b for a and c, a for c
            {
                "multiply-adds": 26 * (2 * (100 + 4096) + 4096),
                "encrypted rows": 2 + 3,
                "evaluated rows": 3 + 4,
            },
            14 * 4 * (100 + 4096) + 12 * 81 + 2**28,
        ),
    ],
)
def test_operations_and_memory_of_three_clients_by_hand(backend, operations, memory):
    sizes = {"a": 3, "b": 2, "c": 4}  # 9 rows, and 3·2 + 3·4 + 2·4 = 26 pairs of two clients' rows
    foretold = estimate(BACKENDS[backend], sizes, 100)
    assert (foretold.operations, foretold.memory_bytes) == (operations, memory)


def test_a_back_end_that_nobody_knows_the_costs_of_is_named():
    class Unknown(HammingBackend):
        name = "unknown"
        client = server = None

    with pytest.raises(ParameterError, match="'unknown' costs: register a function"):
        estimate(Unknown(), {"a": 1, "b": 1}, 4)


@EVERY_FAST
def test_lengths_out_of_range_are_refused(backend):
    for n_bits in (0, 32769):
        if backend.name == "plain" and n_bits:
            continue
        outcome = run(hamming(backend, {"a": np.zeros((1, n_bits)), "b": np.zeros((1, n_bits))}))
        if backend.name == "plain":  # has no residues; the front door refuses L = 0
            assert outcome.results[SERVER].matrix.max() == 0
        else:
            assert any(isinstance(e, ParameterError) for e in outcome.errors.values())
            assert str(n_bits) in str(next(iter(outcome.errors.values())))


def test_back_ends_are_found_by_name():
    assert set(BACKENDS) == {b.name for b in BACKENDS.values()} >= {"plain", "shade", "masked"}
    for name, backend in BACKENDS.items():
        assert get_backend(name) is backend
        assert get_backend(backend) is backend
        assert isinstance(backend, HammingBackend)
        assert backend.trust in ("none", "non-colluding", "2pc")
    with pytest.raises(ParameterError, match=f"'nope' is none of {', '.join(sorted(BACKENDS))}"):
        get_backend("nope")


# The caller's bits


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.uint64])
def test_bits_of_any_integer_type_are_taken(dtype):
    bits = np.array([[0, 1], [1, 1]], dtype=dtype)
    checked = bit_rows(bits[:, ::-1], "a")
    assert checked.dtype == np.uint8
    assert checked.flags.c_contiguous
    assert checked.tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        (np.array([[0, 1], [0, 2]]), r"client 'a', row 1, bit 1"),
        (np.array([[0, -1]]), r"client 'a', row 0, bit 1"),
        (np.array([[255]], dtype=np.uint8), r"client 'a', row 0, bit 0"),
        (np.array([0, 1]), r"client 'a': .* got \(2,\)"),
        (np.array([[0.0, 1.0]]), r"client 'a': .* float64"),
        (np.array([["0"]]), r"client 'a': bits must be integers"),
    ],
)
def test_other_bits_are_refused_with_client_row_and_bit(bits, message):
    with pytest.raises(DataError, match=message):
        bit_rows(bits, "a")
    masks = message.replace("row", "mask").replace("bits", "masks")
    with pytest.raises(DataError, match=masks):
        bit_rows(bits, "a", masks=True)


@settings(max_examples=20)
@given(st.integers(0, 3), st.integers(1, 200), st.sampled_from([8, 16, 32, 64]), st.booleans())
def test_packed_rows_are_read_with_the_most_significant_bit_first(n, n_bits, width, swapped):
    bits = np.random.default_rng(n_bits).integers(0, 2, (n, n_bits)).astype(np.uint8)
    dtype = np.dtype(f"<u{width // 8}")
    words = np.zeros((n, -(-n_bits // width)), dtype)
    for bit in range(n_bits):
        words[:, bit // width] |= bits[:, bit].astype(dtype) << dtype.type(width - 1 - bit % width)
    if swapped:  # the same numbers
        words = words.astype(dtype.newbyteorder(">"))
    assert np.array_equal(bit_rows(words, "a", packed=n_bits), bits)
    if n_bits <= width:
        assert np.array_equal(bit_rows(words[:, 0], "a", packed=np.int64(n_bits)), bits)
    as_bytes = [row.tobytes() for row in np.packbits(bits, axis=1)]
    assert np.array_equal(bit_rows(as_bytes, "a", packed=n_bits), bits)


@pytest.mark.parametrize(
    ("bits", "packed", "error", "message"),
    [
        ([b"\x00\x08", b"\x00\x04"], 13, DataError, "client 'a', row 1: has ones from bit 13 on"),
        ([b"\x00\x08", b"\x00"], 13, DataError, ", row 1: 13 bits are 2 words of 8 bits, and .* 1"),
        (np.zeros((2, 3), np.uint64), 128, DataError, "'a': 128 bits are 2 words of 64 .* has 3"),
        (np.zeros((2, 3, 1), np.uint8), 24, DataError, r"\(rows, words\), got \(2, 3, 1\)"),
        (np.array([b"ab\x00"]), 24, DataError, "a list of bytes objects, got "),  # has lost a byte
        ([[1, 2]], 16, DataError, "packed bits must be unsigned integers or a list of bytes"),
        ([b"\x00"], 0, ParameterError, "n_bits must be between 1 and 32768, got 0"),
        ([b"\x00"], True, ParameterError, "packed must be the number of bits of a row, got True"),
    ],
)
def test_packed_rows_that_cannot_be_read_are_refused(bits, packed, error, message):
    with pytest.raises(error, match=message):
        bit_rows(bits, "a", packed=packed)
    masks = message.replace(", row", ", mask").replace(" bits must", " masks must")
    with pytest.raises(error, match=masks):
        bit_rows(bits, "a", packed=packed, masks=True)


@pytest.mark.parametrize("rows", [0, 1, 1023, 1025, 2050])
def test_distances_in_blocks_of_rows(rows):
    rng = np.random.default_rng(rows)
    bits = rng.integers(0, 2, (rows, 5)).astype(np.uint8)
    other = rng.integers(0, 2, (3, 5)).astype(np.uint8)
    assert np.array_equal(distances_between(bits, bits), oracle({"a": bits}))
    assert np.array_equal(
        distances_between(bits, other), (bits[:, None] != other[None]).sum(axis=2)
    )


# Exactness of the floating-point products


def extreme_masks(n_bits):
    """Masks that are largest as they are or when centred, of either sign.

    The last two differ in one entry from the most negative and the largest, so that sums above
    2^24 are odd and a float32 cannot hold them.
    """
    top, half = (1 << masked_width(n_bits)) - 1, 1 << (masked_width(n_bits) - 1)
    masks = np.array([[0], [top], [half], [half - 1], [half], [half - 1]]).repeat(n_bits, axis=1)
    masks[4, 0], masks[5, 0] = min(half + 1, top), max(half - 2, 0)
    return masks.astype(np.uint16)


@pytest.mark.parametrize("n_bits", [1, 2, 3, 4095, 4096, 4097, 8191, 8192, 16384, 32767, 32768])
def test_masked_shares_are_exact_for_extreme_masks(n_bits):
    rng = np.random.default_rng(n_bits)
    t, width = 1 << n_bits.bit_length(), masked_width(n_bits)
    ones = np.ones((2, n_bits), np.uint8)
    mixed = rng.integers(0, 2, (2, n_bits)).astype(np.uint8)
    top = np.full((2, n_bits), (1 << width) - 1, np.uint16)
    for mine in (ones, mixed, top):
        for value in (None, *extreme_masks(n_bits)):
            mask = rng.integers(0, 1 << width, (3, n_bits)).astype(np.uint16)
            if value is not None:
                mask[:] = value
            weights = rng.integers(0, n_bits + 1, 2, dtype=np.uint16)
            pair = rng.integers(0, t, (2, 3)).astype(np.uint16)
            got = share_with(mine, mask, weights, pair, n_bits)
            exact = 2 * (mine.astype(np.int64) @ mask.T.astype(np.int64)) + weights[:, None] + pair
            assert np.array_equal(got, exact % t)
            assert got.dtype == np.uint16


@pytest.mark.parametrize("n_bits", [4096, 8191, 8192, 32768])
@pytest.mark.parametrize("extreme", [None, *range(6)])
def test_masked_distances_are_exact_for_long_vectors(monkeypatch, n_bits, extreme):
    if extreme is not None:
        mask = extreme_masks(n_bits)[extreme]
        monkeypatch.setattr(
            masked_module, "row_mask", lambda key, tag, client, rows, n: np.tile(mask, (rows, 1))
        )
    ones = np.ones((2, n_bits), np.uint8)
    bits = {"a": ones, "b": ones, "c": ones ^ np.arange(2, dtype=np.uint8)[:, None]}
    bits |= random_bits([2], n_bits)
    assert np.array_equal(result("masked", bits).matrix, oracle(bits))


def test_the_longest_plain_and_local_distances_are_exact():
    ones = np.ones((2, 32768), np.uint8)
    bits = {"a": ones ^ np.arange(2, dtype=np.uint8)[:, None], "b": ones}
    assert result("plain", bits).matrix.max() == 32768
    assert np.array_equal(result("plain", bits).matrix, oracle(bits))


# Uses that must be refused


@pytest.mark.parametrize("name", sorted(BACKENDS.keys() - {"plain"}))
def test_a_second_run_in_one_session_is_refused(name):
    a_second_run_in_a_session_is_refused(QUICK[name])


def test_one_secret_in_two_sessions_gives_unrelated_masks():
    uploads = []
    for seed in (1, 2):

        async def client(session, rng):
            method = BACKENDS["masked"]
            session.common_secret = bytes(32)
            await method.client(session, np.zeros((2, 400), np.uint8), rng)

        async def server(session, rng):
            got = await session.io.gather(MaskedRows, session.clients, rows=2, n_bits=400)
            return got["a"].rows

        numbers = {"a": [2], "b": [2]}
        make = with_session("ab", client, server, numbers=numbers, seed=seed)
        uploads.append(run(make).raise_errors().results[SERVER])
    assert (uploads[0] == uploads[1]).mean() < 0.05  # 1/256 by chance


def test_masked_without_the_common_secret_is_refused():
    async def client(session, rng):
        await BACKENDS["masked"].client(session, np.ones((1, 4), np.uint8), rng)

    async def server(session, rng):
        return None

    error = run(with_session("ab", client, server)).errors["a"]
    assert isinstance(error, ParameterError)
    assert "a has no secret in common with the other clients" in str(error)


def shares_of(values, local=0, complete=True):
    """Clients that send constant shares and distances."""

    async def client(session, rng):
        me, sizes = session.io.name, {"a": 2, "b": 1}
        peer = "b" if me == "a" else "a"
        own = np.full(sizes[me] * (sizes[me] - 1) // 2, local, np.uint16)
        share = np.full((sizes[me], sizes[peer]), values[me], np.uint16)
        here = np.array([complete or c == me for c in sizes])
        await session.io.send(SERVER, DistanceShares(here, own, share, 3))

    async def server(session, rng):
        return await receive_shares(session, 5, 2, lambda low, high, r, t: (t - r) & np.uint16(7))

    return with_session("ab", client, server, numbers={"a": [2], "b": [1]})


def test_shares_that_give_no_distance_name_both_clients():
    assert run(shares_of({"a": 1, "b": 6})).raise_errors().results[SERVER].matrix[0, 2] == 5
    assert_blames(run(shares_of({"a": 1, "b": 7})).errors[SERVER], ("a", "b"), "above L = 5")


def test_a_local_distance_above_the_length_names_its_client():
    error = run(shares_of({"a": 0, "b": 0}, local=6)).errors[SERVER]
    assert error.parties == ("a",)


def test_incomplete_shares_leave_too_few_clients():
    error = run(shares_of({"a": 0, "b": 0}, complete=False)).errors[SERVER]
    assert isinstance(error, TooFewParties)
    assert (error.present, error.needed) == (1, 2)


def test_a_client_that_is_apart_from_itself_is_at_fault():
    empty = np.zeros(0, np.uint16)
    upload = DistanceShares(np.array([True, False]), empty, empty, 1)
    with pytest.raises(FaultyPeer, match="b did not follow"):
        complete_uploads("hamming", {"b": upload}, ("a", "b"), 0)


@settings(deadline=None, max_examples=200)
@given(p=st.integers(1, 6), data=st.data())
def test_clients_are_left_out_until_all_shares_are_valid(p, data):
    names = tuple("abcdef"[:p])
    flags = np.array(
        [[i == j or data.draw(st.booleans()) for j in range(p)] for i in range(p)], dtype=bool
    )
    empty = np.zeros(0, np.uint16)
    uploads = {c: DistanceShares(flags[i], empty, empty, 1) for i, c in enumerate(names)}
    keep, apart = complete_uploads("hamming", uploads, names, 0)

    def valid(clients):
        index = [names.index(c) for c in clients]
        return flags[np.ix_(index, index)].all()

    assert valid(keep)
    assert keep == tuple(c for c in names if c in keep)
    pairs = [[names.index(one), names.index(other)] for one, other in apart]
    assert pairs == np.argwhere(~flags).tolist()
    best = max(n for n in range(p + 1) if any(valid(s) for s in combinations(names, n)))
    if p <= 4 or best >= p - 1:  # greedy: as few as possible for these, not always for more
        assert len(keep) == best


# Every fault


@pytest.mark.parametrize("backend", [b for b in ALL if b.name != "shade-ext"], ids=ident)
def test_every_dropout_costs_only_the_rows_of_its_client(backend):
    """For `shade-ext`, `test_shade_ext` does this with several blocks."""
    every_dropout_costs_only_the_rows_of_its_client(backend)


@EVERY
def test_two_clients_that_drop_out_leave_too_few(backend):
    outcome = run(hamming(backend, BITS), Faults(dropouts={"c0": 3, "c2": 3}))
    assert isinstance(outcome.errors[SERVER], TooFewParties)


@pytest.mark.parametrize(
    "backend", [BACKENDS[b] for b in ("plain", "masked", "rlwe", "shade")], ids=ident
)
def test_every_corruption_gives_the_right_distances_or_names_whom_to_blame(backend):
    """Of the others, `test_hamming_paillier` and `test_shade_ext` do this in several steps."""
    every_corruption_is_blamed_on_an_end_of_its_link(backend)


# What the server sees in `masked`; for the other back ends, see test_coalitions.py


def test_the_two_inputs_have_one_output():
    assert np.array_equal(oracle(X), oracle(X_MASKED))
    assert not np.array_equal(X["a"].sum(1), X_MASKED["a"].sum(1))


def test_the_servers_view_is_uniform_and_the_same_for_inputs_with_the_same_distances():
    uniform, same = view_p_values(BACKENDS["masked"], runs=50)
    assert uniform > 1e-3
    assert same > 1e-3


def no_row_mask(key, tag, client, rows, n_bits):
    return np.zeros((rows, n_bits), np.uint16)


def no_pair_mask(key, tag, low, high, shape, n_bits):
    return np.zeros(shape, np.uint16)


def same_row_mask(key, tag, client, rows, n_bits):
    return ORIGINAL_ROW_MASK(key, tag, "everybody", rows, n_bits)


def repeated_row_mask(key, tag, client, rows, n_bits):
    return np.repeat(ORIGINAL_ROW_MASK(key, tag, client, 1, n_bits), rows, axis=0)


ORIGINAL_ROW_MASK = masked_module.row_mask
BROKEN = {
    "no row mask": ("row_mask", no_row_mask),
    "no pair mask": ("pair_mask", no_pair_mask),
    "one mask for all clients": ("row_mask", same_row_mask),
    "one mask for all rows": ("row_mask", repeated_row_mask),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_same_test_fails_when_a_mask_of_masked_is_missing_or_reused(monkeypatch, name):
    monkeypatch.setattr(masked_module, *BROKEN[name])
    uniform, same = only_views_can_show_it(BACKENDS["masked"], runs=40)
    assert uniform < 1e-6
    assert same < 1e-6 or name.startswith("one mask")


def test_clients_of_masked_and_plain_receive_nothing_in_this_step():
    def receivers(backend):
        return {d.receiver for d in deliveries(hamming(backend, BITS)) if d.step != "setup"}

    assert receivers("masked") == {SERVER}
    assert receivers("plain") == {SERVER}
    assert receivers(SHADE_IDEAL) > {SERVER}


# `shade` in several batches


@pytest.mark.parametrize("sizes", [[3, 4], [2, 3, 4], [4, 1, 3], [0, 2, 3], [2, 1, 0, 3, 2]])
@pytest.mark.parametrize("transfers", [5, 13, 40, 10**6])
def test_shade_in_batches_has_the_estimated_bytes_and_rounds(monkeypatch, sizes, transfers):
    monkeypatch.setattr(shade_module, "CLIENT_TRANSFERS", transfers)
    foretold = costs_what_was_foretold(BACKENDS["shade"], random_bits(sizes, 13))
    assert (foretold.rounds > 4) == (transfers < 10**6)


@settings(deadline=None, max_examples=15)
@given(bits=federations([1, 2, 7, 8, 9, 65]), transfers=st.integers(1, 50))
def test_distances_by_shade_do_not_depend_on_the_batches(bits, transfers):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shade_module, "CLIENT_TRANSFERS", transfers)
        assert np.array_equal(result(SHADE_IDEAL, bits).matrix, oracle(bits))


def test_no_batch_of_shade_is_larger_than_agreed(monkeypatch):
    monkeypatch.setattr(shade_module, "CLIENT_TRANSFERS", 12)
    counts = []

    async def recording(io, sending, receiving, sid, rng, **options):
        numbers = [*map(len, sending.values()), *(len(r.bits) for r in receiving.values())]
        counts.append((io.name, sid, sum(numbers)))
        return await ideal_ot(io, sending, receiving, sid, rng, **options)

    bits = random_bits([2, 3, 4], 5)
    result(Shade(recording), bits)
    assert max(n for _, _, n in counts) == 12
    assert sum(n for _, _, n in counts) == 2 * 5 * (2 * 3 + 2 * 4 + 3 * 4)
    assert len({(name, sid) for name, sid, _ in counts}) == len(counts) > 20


def test_the_servers_view_is_uniform_with_several_batches_too(monkeypatch):
    monkeypatch.setattr(shade_module, "CLIENT_TRANSFERS", 5)
    uniform, same = view_p_values(SHADE_IDEAL, runs=50)
    assert min(uniform, same) > 1e-3


def test_the_same_test_fails_when_batches_of_shade_share_their_masks(monkeypatch):
    monkeypatch.setattr(shade_module, "CLIENT_TRANSFERS", 5)
    first, residues = {}, SeededRng.residues
    monkeypatch.setattr(
        SeededRng, "residues", lambda rng, *args: first.setdefault(rng, residues(rng, *args))
    )
    uniform, _ = only_views_can_show_it(SHADE_IDEAL, runs=40)
    assert uniform < 1e-6


def test_a_dropout_between_batches_of_shade_costs_only_its_own_rows(monkeypatch):
    monkeypatch.setattr(shade_module, "CLIENT_TRANSFERS", 8)
    every_dropout_costs_only_the_rows_of_its_client(SHADE_IDEAL)


def test_every_corruption_of_shade_in_batches_is_blamed_on_the_right_parties(monkeypatch):
    monkeypatch.setattr(shade_module, "CLIENT_TRANSFERS", 8)
    bits = random_bits([1, 2], 5)
    every_corruption_is_blamed_on_an_end_of_its_link(BACKENDS["shade"], bits, fewest=70)


def test_shade_at_any_size_has_a_bounded_number_of_transfers_at_work():
    shade = BACKENDS["shade"]
    foretold = estimate(shade, {"a": 500, "b": 500}, 4096)
    assert foretold.rounds == 4 + 2 * (500 * 500 * 4096 // shade_module.CLIENT_TRANSFERS - 1)
    many = estimate(shade, {f"c{i}": 50 for i in range(100)}, 4096)
    assert many.memory_bytes < 100 * 2**15 * costs.TRANSFER_BYTES + 2**28 + 10 * costs.GRAM_ROWS**2


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 30), min_size=15, max_size=15), st.integers(2, 6))
def test_rounds_of_shade_are_those_of_all_its_batches_one_by_one(numbers, clients):
    chains = costs.Chains()
    links = dict(zip(combinations(range(clients), 2), numbers, strict=False))
    for index in range(max(links.values())):
        down = [link for link, number in links.items() if number > index]
        for step in (down, [link[::-1] for link in down], down):
            chains.receive(chains.send(step))
    batches = np.zeros((clients, clients), np.int64)
    for link, number in links.items():
        batches[link] = number
    assert costs.shade_rounds(batches) == chains.rounds


def test_all_masks_of_one_run_differ():
    """No label is used twice: row masks of all clients and masks of all pairs are unrelated."""
    seen = set()
    sizes = dict.fromkeys("abcd", 4)
    for me in sizes:
        rows, shares = client_upload(np.zeros((4, 4095), np.uint8), sizes, me, bytes(32), b"lab")
        seen |= {rows[i].tobytes() for i in range(4)}
        seen |= {share.tobytes() for share in shares.values()}
    # a's share with b is 2·X·Rᵀ + |x| + T = T for X = 0, b's with a holds −T and a product.
    assert len(seen) == 4 * 4 + 4 * 3
