"""Boolean circuits on shares: exact for every source of triples, uniform for each party."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import assert_blames, boolean, on, on_the_last_link

from xclp_crypto.errors import FaultyPeer, ParameterError, ProtocolError
from xclp_crypto.protocols.boolean import (
    Gates,
    StoredTriples,
    add,
    any_of,
    at_least,
    at_most,
    bits_to_words,
    costs,
    count,
    from_planes,
    gmw,
    less_than,
    less_than_public,
    matrix_to_pairs,
    offsets_to_matrix,
    smallest,
    subtract,
    to_additive,
    to_boolean,
    to_planes,
    triples,
    words,
    words_to_bits,
)
from xclp_crypto.protocols.ot import Triples
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
from xclp_crypto.transport.simulate import Simulation
from xclp_crypto.wire import TAG_BYTES

WIDTHS = st.integers(1, 64)


def numbers(width, n, seed, rows=()):
    high = np.random.default_rng(seed).integers(0, 1 << 32, (*rows, n), dtype=np.uint64)
    low = np.random.default_rng([seed]).integers(0, 1 << 32, (*rows, n), dtype=np.uint64)
    return (high << np.uint64(32) | low) >> np.uint64(64 - width)


def computed(circuit, *values, width, source="ideal", seed=0, budget=1 << 14):
    """What a circuit of shared numbers gives, opened, and the gates of a party.

    `circuit(gates, *planes)` returns planes; each value is (…, n) and shared additively.
    """
    make = boolean(circuit, values, width, source=source, seed=seed, budget=budget)
    outcome = Simulation().run(make()).raise_errors()
    (one, gates), (other, _) = outcome.results["p"], outcome.results["q"]
    assert np.array_equal(one, other)
    return one, gates, outcome


@given(WIDTHS, st.integers(0, 200), st.integers(0, 5))
def test_slicing_is_inverted_and_keeps_low_bits(width, n, seed):
    values = numbers(64, n, seed, (2,))
    planes = to_planes(values, width)
    assert planes.shape == (width, 2, -(-n // 64))
    assert np.array_equal(from_planes(planes, n), values & np.uint64(2**width - 1))
    assert planes.dtype == words.WORD
    if n:
        bit = planes[width // 2, 1, (n - 1) // 64] >> np.uint64((n - 1) % 64) & np.uint64(1)
        assert bit == values[1, -1] >> np.uint64(width // 2) & np.uint64(1)


def test_slicing_takes_unsigned_integers_of_any_size():
    for dtype in (np.uint8, np.uint16, np.uint32, ">u4"):
        values = np.array([0, 1, 77, 255], dtype)
        assert np.array_equal(from_planes(to_planes(values, 20), 4), values)


@settings(max_examples=15)
@given(WIDTHS, st.integers(1, 130), st.integers(0, 9))
def test_arithmetic_and_comparisons_are_exact(width, n, seed):
    x, y = numbers(width, n, seed), numbers(width, n, seed + 1)
    y[: n // 2] = x[: n // 2]  # equal ones as well
    modulo = np.uint64(2**width - 1)

    async def circuit(gates, x, y):
        less = (await less_than(gates, x, y))[None]
        return np.concatenate([await add(gates, x, y), await subtract(gates, x, y), less])

    planes, gates, _ = computed(circuit, x, y, width=width)
    assert np.array_equal(from_planes(planes[:width], n), x + y & modulo)
    assert np.array_equal(from_planes(planes[width:-1], n), x - y & modulo)
    assert np.array_equal(from_planes(planes[-1:], n) == 1, x < y)
    size = -(-n // 64)
    cost = costs.comparing(width, size)
    for _ in range(4):  # two conversions of inputs, add, subtract
        cost += costs.adding(width, size)
    assert (gates.used, gates.layers) == (cost.triples, cost.layers)


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(0, 2**13), st.integers(0, 9))
def test_comparison_with_a_public_number_is_exact(width, bound, seed):
    x = numbers(width, 70, seed)
    x[0] = min(bound, 2**width - 1)

    async def circuit(gates, x):
        return (await less_than_public(gates, x, bound))[None]

    planes, gates, _ = computed(circuit, x, width=width)
    assert np.array_equal(from_planes(planes, 70) == 1, x < bound)
    cost = costs.adding(width, 2) + costs.comparing_with(bound, width, 2)
    assert (gates.used, gates.layers) == (cost.triples, cost.layers)


@settings(max_examples=25)
@given(st.integers(1, 40), st.integers(1, 45), st.integers(0, 9))
def test_counting_is_exact(candidates, k, seed):
    bits = numbers(1, 70, seed, (candidates,))
    bits[:, 0], bits[:, 1] = 0, 1

    async def circuit(gates, x):
        found = [await at_least(gates, x[0], k), await any_of(gates, x[0])]
        return np.concatenate([await count(gates, x[0]), found])

    planes, gates, _ = computed(circuit, bits, width=1)
    totals = bits.sum(axis=0)
    assert np.array_equal(from_planes(planes[:-2], 70), totals)
    assert np.array_equal(words_to_bits(planes[-2:], 70), [totals >= k, totals > 0])
    cost = costs.counting(candidates, 2) + costs.at_least(candidates, k, 2)
    cost += costs.any_of(candidates, 2)
    assert (gates.used, gates.layers) == (cost.triples, cost.layers)


@settings(max_examples=25)
@given(
    st.integers(1, 7),
    st.integers(1, 12),
    st.integers(1, 14),
    st.sampled_from(["opened", "shared"]),
    st.integers(0, 99),
)
def test_the_k_smallest_are_those_of_a_sort_ties_included(width, candidates, k, bounds, seed):
    x = numbers(width, 70, seed, (candidates,))
    valid = numbers(1, 70, seed + 1, (candidates,)) == 1 if seed % 2 else np.ones(x.shape, bool)
    public = words.bits_to_words(valid)

    async def circuit(gates, x):
        return (await smallest(gates, x, k, valid=public, bounds=bounds))[None]

    planes, gates, _ = computed(circuit, x, width=width)
    last = np.sort(np.where(valid, x, 2**width), axis=0)[min(k, candidates) - 1]
    if k > candidates:
        last = np.full(70, 2**width - 1)
    expected = valid & (x <= last)
    assert np.array_equal(from_planes(planes[0][None], 70) == 1, expected)
    cost = costs.adding(width, 2 * candidates)
    cost += costs.selecting(width, candidates, 2, k, bounds)
    assert (gates.used, gates.layers) == (cost.triples, cost.layers)


@settings(max_examples=25)
@given(
    st.integers(1, 6),
    st.sampled_from([2, 3, 4, 5, 63, 64, 65, 66, 127, 128, 129, 131]),
    st.integers(1, 9),
    st.sampled_from(["opened", "shared"]),
    st.integers(0, 99),
)
def test_the_k_smallest_of_a_symmetric_matrix_take_each_pair_once(width, rows, k, bounds, seed):
    matrix = np.triu(numbers(width, rows, seed, (rows,)), 1)

    async def circuit(gates, x):
        return (await smallest(gates, x, k, bounds=bounds, pairs_of=rows))[None]

    cost = costs.selecting_pairs(width, rows, k, bounds)
    pairs = matrix_to_pairs(matrix)
    planes, gates, _ = computed(circuit, pairs, width=width, budget=cost.triples)
    assert (gates.used, gates.layers) == (cost.triples, cost.layers)
    distances = matrix + matrix.T
    np.fill_diagonal(distances, 2**width)
    last = np.sort(distances, axis=1)[:, [min(k, rows - 1) - 1]]
    if k > rows - 1:
        last = np.full((rows, 1), 2**width - 1)
    assert np.array_equal(offsets_to_matrix(words_to_bits(planes[0], rows)), distances <= last)


@settings(max_examples=25)
@given(WIDTHS, st.integers(1, 70), st.integers(0, 9))
def test_shares_come_back_from_planes_to_sums(width, n, seed):
    x = numbers(width, n, seed)
    addends = {"p": numbers(width, n, seed + 1)}
    addends["q"] = x - addends["p"]

    def party(me, peer):
        async def role(io):
            gates = Gates(io, peer, triples.ideal_triples(me, peer, b"sid", 1 << 9))
            planes = await to_boolean(gates, addends[me], width)
            return await to_additive(gates, planes, n, SeededRng(seed).child(me))

        return role

    found = Simulation().run({"p": party("p", "q"), "q": party("q", "p")}).raise_errors().results
    assert found["p"].dtype == np.uint64
    assert np.array_equal(found["p"] + found["q"] & np.uint64(2**width - 1), x)


def test_addends_of_a_dtype_narrower_than_the_width_are_compared_exactly():
    addends = {"p": np.array([200, 3], np.uint8), "q": np.array([100, 1], np.uint8)}

    async def role(io):
        peer = {"p": "q", "q": "p"}[io.name]
        gates = Gates(io, peer, triples.ideal_triples(io.name, peer, b"sid", 11))
        return await gates.open(await at_most(gates, addends[io.name], 12, bound=250, largest=510))

    found = Simulation().run({"p": role, "q": role}).raise_errors().results
    assert words_to_bits(found["p"], 2).tolist() == [False, True]


@pytest.mark.parametrize("source", ["ideal", "dealer", "transfers"])
def test_every_source_of_triples_gives_the_same_and_costs_what_is_foretold(source, monkeypatch):
    monkeypatch.setattr(triples, "BLOCK_WORDS", 50)
    monkeypatch.setattr(costs, "BLOCK_WORDS", 50)
    x = numbers(5, 70, 3, (6,))

    async def circuit(gates, x):
        return (await smallest(gates, x, 2))[None]

    cost = costs.adding(5, 12) + costs.selecting(5, 6, 2, 2)
    planes, _, outcome = computed(circuit, x, width=5, source=source, budget=cost.triples)
    assert np.array_equal(from_planes(planes, 70) == 1, x <= np.sort(x, axis=0)[1])
    opened = costs.CircuitCost(opened=12, openings=1)  # of the result
    for party in "pq":
        sent = outcome.cost.sent_by(party, "run")  # outside of the step "triples"
        assert sent == (cost + opened).message_bytes(TAG_BYTES)
    if source == "dealer":
        assert outcome.cost.sent_by("dealer") == costs.dealt_bytes(cost.triples, TAG_BYTES)


def test_triples_are_used_once_and_never_more_than_there_are():
    shares = Triples(*(np.arange(4, dtype=np.uint64) + i for i in range(3)))

    async def role(io):
        stored = StoredTriples(shares)
        assert (await stored.take(io, 3)).a.tolist() == [0, 1, 2]
        with pytest.raises(ParameterError, match="2 words of triples are needed, and 1 are left"):
            await stored.take(io, 2)

    Simulation().run({"p": role}).raise_errors()


@pytest.mark.parametrize(("sid", "count"), [(b"another", 8), (b"sid", 9)])
def test_user_case_triples_dealt_under_another_sid_or_number_are_refused(sid, count):
    async def dealer(io):
        await triples.deal_triples(io, ("p", "q"), b"sid", 8, SeededRng(1))

    async def party(io):
        await triples.dealt_triples(io, "dealer", {"p": "q", "q": "p"}[io.name], sid, count)

    outcome = Simulation().run({"p": party, "q": party, "dealer": dealer})
    for name in "pq":
        assert_blames(
            outcome.errors[name], ("dealer",), "other triples: sid and number of words must be"
        )


def test_what_cannot_be_is_refused():
    async def role(io):
        gates = Gates(io, "q", triples.ideal_triples("p", "q", b"sid", 8))
        two, three = np.zeros((2, 1), words.WORD), np.zeros((3, 1), words.WORD)
        for refused, match in (
            (gates.conjunction(two, three), "operands of shapes"),
            (gates.conjunctions((two, three), (three, two)), "operands of shapes"),
            (add(gates, two, three), "numbers of shapes"),
            (less_than_public(gates, two, -1), "bound must be an integer of at least 0, got -1"),
            (at_least(gates, two, 0), "k must be an integer of at least 1, got 0"),
            (to_additive(gates, two, 65, SeededRng(1)), "65 values take 2 words"),
            (smallest(gates, two[None], 1, bounds="told"), "bounds must be"),
            (smallest(gates, two[None], 1, valid=three), "valid has shape"),
        ):
            with pytest.raises(ParameterError, match=match):
                await refused
        with pytest.raises(ParameterError, match="StoredTriples of the shares, got Triples"):
            Gates(io, "q", Triples(*np.zeros((3, 8), words.WORD)))
        with pytest.raises(ParameterError, match="with itself"):
            Gates(io, "p", triples.ideal_triples("p", "q", b"sid", 8))

    Simulation().run({"p": role}).raise_errors()


BIT, PLANES, NUMBERS = np.zeros(2, words.WORD), np.zeros((3, 2), words.WORD), np.ones(70, np.uint8)


@pytest.mark.parametrize(
    ("refused", "match"),
    [
        (lambda g: from_planes(BIT, 70), "2 or more axes, got .* read one plane by words_to_bits"),
        (lambda g: from_planes(PLANES, 1000), "1000 values take 16 words, and the last axis has 2"),
        (lambda g: from_planes(PLANES, 64), "the number of values that were packed"),
        (lambda g: from_planes(PLANES[:0], 70), "width must be"),
        (lambda g: words_to_bits(BIT, 129), "129 values take 3 words"),
        (lambda g: words_to_bits(BIT, 70.0), r"values must be an integer of at least 0, got 70\.0"),
        (lambda g: words_to_bits(BIT.view(np.int64), 70), "array of uint64 .* got int64 of shape"),
        (lambda g: bits_to_words([1, 0]), "bits must be an array .* got list"),
        (lambda g: to_planes(NUMBERS, 16.0), r"width must be an integer in 1 … 64, got 16\.0"),
        (lambda g: to_planes(NUMBERS, 0), "width must be"),
        (lambda g: to_planes(NUMBERS, 65), "width must be"),
        (lambda g: to_planes(NUMBERS.astype(np.int64), 4), "unsigned integers .* got int64"),
        (lambda g: to_planes(NUMBERS.tolist(), 4), "got list"),
        (lambda g: to_planes(NUMBERS[0].reshape(()), 4), "1 or more axes"),
        (lambda g: g.own([1, 2]), "uint64 of 1 or more axes, got list"),
        (lambda g: g.public(BIT.astype(float)), "got float64"),
        (lambda g: g.invert(BIT.view(np.int64)), "got int64"),
        (lambda g: g.open(np.array(1, words.WORD)), r"got uint64 of shape \(\)"),
        (lambda g: g.conjunction(BIT, BIT.view(np.int64)), "y must be an array of uint64"),
        (lambda g: less_than_public(g, PLANES, 50.5), "bound must be an integer .* got 50.5"),
        (lambda g: less_than_public(g, BIT, 50), r"given as plane\[None\]"),
        (lambda g: at_most(g, NUMBERS, 16.0, bound=3, largest=9), "width must be"),
        (lambda g: at_most(g, NUMBERS, 8, bound=3, largest=256), "largest must be .* 0 … 255"),
        (lambda g: at_most(g, NUMBERS.astype(int), 8, bound=3, largest=9), "unsigned integers"),
        (lambda g: add(g, PLANES[:0], PLANES[:0]), "x must have 1 or more planes"),
        (lambda g: any_of(g, BIT), "2 or more axes"),
        (lambda g: at_least(g, PLANES, True), "k must be an integer"),
        (lambda g: smallest(g, PLANES, 1), "3 or more axes"),
        (lambda g: matrix_to_pairs(NUMBERS.astype(int)), "unsigned integers"),
        (lambda g: smallest(g, PLANES[None], 1, pairs_of=70), "70 rows have 35 planes .* got 3"),
        (lambda g: smallest(g, PLANES[None], 1, pairs_of=7), "7 values take 1 words"),
        (lambda g: matrix_to_pairs(NUMBERS), r"square array is needed, got shape \(70,\)"),
        (lambda g: offsets_to_matrix(PLANES), "n − 1 offsets and n rows"),
        (lambda g: StoredTriples(Triples(BIT, BIT, BIT[:1])), r"one length, got .*\(1,\)"),
        (lambda g: StoredTriples(Triples(BIT, BIT, BIT.astype(float))), "c must be .* float64"),
        (lambda g: StoredTriples((BIT, BIT, BIT)), "must be Triples, got tuple"),
        (lambda g: triples.ideal_triples("p", "q", b"", 500.0), "words must be an integer"),
        (lambda g: triples.deal_triples(g.io, ("p", "q"), b"", -1, SeededRng(1)), "got -1"),
        (lambda g: triples.dealt_triples(g.io, "dealer", "q", b"", 500.0), r"got 500\.0"),
        (lambda g: costs.comparing_with(50.5, 16, 2), "bound must be an integer"),
        (lambda g: costs.comparing_with(50, 16.0, 2), "width must be"),
        (lambda g: costs.adding(-1, 1), "width must be an integer in 1 … 64, got -1"),
        (lambda g: costs.comparing(8, -1), "words must be an integer of at least 0, got -1"),
        (lambda g: costs.counting(2.5, 1), "planes must be"),
        (lambda g: costs.any_of(-1, 1), "planes must be"),
        (lambda g: words.words_for(2.5), r"values must be an integer .* got 2\.5"),
    ],
)
def test_user_case_arguments_that_would_give_garbage_are_refused(refused, match):
    async def role(io):
        await refused(Gates(io, "q", triples.ideal_triples("p", "q", b"sid", 0)))

    with pytest.raises(ParameterError, match=match):
        Simulation().run({"p": role}).raise_errors()


# What each party sees


async def two_of_each(gates, x):
    """Two conjunctions of the same operands, so that masks that repeat would show."""
    return np.stack([await gates.conjunction(x[0], x[1]) for _ in range(2)])


def openings_seen(by, value, source, seeds=40):
    """Bytes of all that a party gets for one value of all numbers, and of what layers differ by."""
    counts, differences = np.zeros((2, 256), int)
    for seed in range(seeds):
        values = (np.full(640, value, np.uint64),)
        make = boolean(two_of_each, values, 2, source=source, seed=seed, known_to="p")
        got = [m for _, m in views(make)[by] if isinstance(m, gmw.GateOpenings)]
        parts = np.stack([m.words for m in got[-2:]]).view(np.uint8)
        counts += np.bincount(parts.ravel(), minlength=256)
        differences += np.bincount((parts[0] ^ parts[1]).ravel(), minlength=256)
    return counts, differences


@pytest.mark.parametrize("by", ["p", "q"])
def test_a_partys_view_is_uniform_and_the_same_for_other_inputs(by):
    (zero, between_zero), (three, between_three) = (
        openings_seen(by, value, "dealer") for value in (0, 3)
    )
    for counts in (zero, three, between_zero, between_three):
        assert uniformity(counts) > 1e-4
    assert same_distribution(zero, three) > 1e-4


def unmasked(x, y, triple):
    return gmw_masked(x, y, Triples(triple.a & np.uint64(0xFF), triple.b, triple.c))


gmw_masked = gmw._masked


def test_the_same_test_fails_with_masks_that_are_short_or_used_twice(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(gmw, "_masked", unmasked)
        assert uniformity(openings_seen("q", 0, "dealer")[0]) < 1e-9
    taken = {}

    async def again(self, io, count):
        if count not in taken.setdefault(io.name, {}):
            taken[io.name][count] = await take(self, io, count)
        return taken[io.name][count]

    take = triples.DealtTriples.take
    monkeypatch.setattr(triples.DealtTriples, "take", again)
    counts, differences = np.zeros((2, 256), int)
    for seed in range(40):
        taken.clear()
        one, other = openings_seen("q", 0, "dealer", seeds=1) if not seed else (0, 0)
        counts, differences = counts + one, differences + other
    assert np.count_nonzero(differences) == 1  # the same masks: nothing but zeros


def test_the_first_is_told_uniform_numbers_when_shares_become_sums():
    counts = np.zeros(256, int)
    for seed in range(30):
        addends = {"p": np.full(64, 9, np.uint8), "q": np.zeros(64, np.uint8)}

        def party(me, peer, seed=seed, addends=addends):
            async def role(io):
                gates = Gates(io, peer, triples.ideal_triples(me, peer, b"%d" % seed, 1 << 9))
                planes = await to_boolean(gates, addends[me], 8)
                return await to_additive(gates, planes, 64, SeededRng(seed).child(me))

            return role

        roles = {"p": party("p", "q"), "q": party("q", "p")}
        outcome = Simulation().run(roles).raise_errors()
        counts += np.bincount(outcome.results["p"].astype(int), minlength=256)
    assert uniformity(counts) > 1e-4


# What may go wrong


def small_run():
    async def circuit(gates, x):
        return (await smallest(gates, x, 1))[None]

    return boolean(circuit, (numbers(2, 5, 1, (2,)),), 2, budget=20)


def test_every_corruption_is_noticed_or_changes_bits_only():
    make = small_run()
    for case in every_corruption(make, which=on_the_last_link(make)):
        for error in case.outcome.errors.values():
            assert isinstance(error, ProtocolError), case
            assert blamed(error) <= {case.delivery.sender}, case
        if case.tamper in ("truncated", "emptied", "extended", "tag altered"):
            assert any(blamed(e) == {case.delivery.sender} for e in case.outcome.errors.values())


def test_who_drops_out_ends_it_for_the_other():
    for case in every_dropout(small_run()):
        for party, error in case.outcome.errors.items():
            assert isinstance(error, ProtocolError), case
            assert party != case.party, case


def test_a_party_that_opens_too_little_is_named():
    shorter = on(lambda d: (d.message, d.sender) == ("GateOpenings", "p"), lambda d: d.payload[:-8])
    outcome = run(small_run(), shorter)
    (error,) = [e for e in outcome.errors.values() if isinstance(e, FaultyPeer)]
    assert error.parties == ("p",)
