"""SecureRowSums in both modes: exact sums, dropouts, restarts, what the server sees, and lies."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import assert_blames, losing, on_the_last_link, row_sums, with_session
from sum_checks import a_graph, a_partition, codec_for, exact, names, right_row_sums, same, sent

from xclp_crypto.algebra import ring
from xclp_crypto.errors import (
    DataError,
    EncodingOverflow,
    Excluded,
    ParameterError,
    ReuseError,
    TooFewParties,
)
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum import (
    MODES,
    MaskGraph,
    RowSums,
    check_rows,
    ideal_row_sums_client,
    ideal_row_sums_server,
    keyed_masks,
    row_sums_recover,
    row_sums_restart,
    secure_row_sums_client,
    secure_row_sums_server,
    secure_sum,
)
from xclp_crypto.protocols.secure_sum.costs import row_sums_bytes
from xclp_crypto.protocols.secure_sum.double_masks import open_masks
from xclp_crypto.protocols.secure_sum.keyed_masks import pair_keys
from xclp_crypto.protocols.secure_sum.row_sums_restart import (
    RowSumsRound,
    mask_upload,
    pair_masks,
)
from xclp_crypto.protocols.secure_sum.rows import (
    RowSumsBlock,
    RowSumsUpload,
    rows_digest,
    rows_of_others,
)
from xclp_crypto.protocols.secure_sum.secure_sum import sum_tag
from xclp_crypto.protocols.secure_sum.survivors import SumSurvivors, client_set
from xclp_crypto.protocols.secure_sum.terms import sum_terms
from xclp_crypto.protocols.setup import SERVER, Session
from xclp_crypto.role import DriverIO
from xclp_crypto.testing import (
    blamed,
    deliveries,
    every_corruption,
    every_dropout,
    run,
    uniformity,
    views,
)
from xclp_crypto.transport.simulate import Faults

BITS = 20
BOTH = pytest.mark.parametrize("mode", MODES)


def ideal(values, rows, **options):
    return row_sums(
        values, rows, client=ideal_row_sums_client, server=ideal_row_sums_server, **options
    )


def problem(p, n, columns=2, seed=0, scale=10.0):
    """Values and a partition of n rows over p clients, some blocks maybe empty, unsorted."""
    rng = np.random.default_rng([p, n, columns, seed])
    rows = a_partition(names(p), n, rng)
    return {c: rng.normal(scale=scale, size=(n, columns)) for c in rows}, rows


def right(outcome, values, rows, graph, context):
    return right_row_sums(outcome, values, rows, codec_for(values, BITS), graph, context)


# Sums


@settings(deadline=None, max_examples=40)
@given(
    p=st.integers(2, 7),
    n=st.integers(0, 9),
    columns=st.integers(0, 3),
    mode=st.sampled_from(MODES),
    modulus=st.sampled_from([1 << 64, 1 << 32, (1 << 61) - 1, 1009]),
    seed=st.integers(0, 1 << 32),
    data=st.data(),
)
def test_sums_are_exact_and_equal_the_ideal_twin_and_take_the_bytes_of_the_formula(
    p, n, columns, mode, modulus, seed, data
):
    top = ((modulus - 1) // 2).bit_length() - 1
    fraction_bits = data.draw(st.integers(0, min(top, 40)))
    codec = FixedPoint(fraction_bits, p, modulus)
    rng = np.random.default_rng(seed)
    graph, rows = a_graph(names(p), rng), a_partition(names(p), n, rng)
    largest = min(codec.max_abs, 1000.0)
    values = {c: rng.uniform(-largest, largest, (n, columns)) for c in rows}
    how = {"graph": graph, "mode": mode, "modulus": modulus, "fraction_bits": fraction_bits}
    outcome = run(row_sums(values, rows, seed=seed, **how)).raise_errors()
    twin = run(ideal(values, rows, seed=seed, **how)).raise_errors()
    assert right_row_sums(outcome, values, rows, codec, graph, how) == names(p)
    truth = np.sum(list(values.values()), axis=0)
    for client in values:
        got = outcome.results[client]
        assert got.contributors == twin.results[client].contributors == names(p)
        assert got.values.shape == (len(rows[client]), columns)
        assert same(got.values, twin.results[client].values)
        off = np.abs(got.values - truth[rows[client]]).max(initial=0)
        assert off <= codec.error_bound + 1e-12
    assert outcome.results[SERVER] == twin.results[SERVER]
    assert not outcome.unread
    # Who is whose neighbour depends on the label, but not how many bytes go how often.
    metered = Counter()
    for traffic, count in outcome.cost.bytes_sent.items():
        if traffic.step == "row sums":
            metered[traffic.sender, traffic.receiver] += count
    formula = row_sums_bytes(rows, columns, graph, modulus, mode)
    with_server = {link: count for link, count in formula.items() if SERVER in link}
    assert {link: count for link, count in metered.items() if SERVER in link} == with_server
    assert Counter(metered.values()) == Counter(formula.values())


@BOTH
def test_a_client_may_own_all_rows_or_none(mode):
    values, _ = problem(3, 4)
    rows = {"c0": [], "c1": [3, 0, 2, 1], "c2": []}
    results = run(row_sums(values, rows, mode=mode)).raise_errors().results
    expected = exact(values, values, codec_for(values, BITS))
    for client in values:
        assert np.array_equal(results[client].values, expected[rows[client]])


@BOTH
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32, np.int64, np.uint8, bool])
def test_values_of_any_real_type_are_summed(kind, mode):
    values, rows = problem(3, 5, scale=3.0)
    typed = {c: np.abs(v).astype(kind) for c, v in values.items()}
    results = run(row_sums(typed, rows, mode=mode)).raise_errors().results
    expected = exact(typed, typed, codec_for(typed, BITS))
    for client in typed:
        assert np.array_equal(results[client].values, expected[rows[client]])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"a": [0, 1], "b": [1]}, "row 1 belongs to more than one client"),
        ({"a": [0, 2], "b": []}, "partition of 0 … 1"),
        ({"a": [0], "b": [-1]}, "partition of 0 … 1"),
    ],
)
def test_rows_that_are_no_partition_are_refused(rows, message):
    with pytest.raises(ParameterError, match=message):
        check_rows({c: np.array(r, dtype=np.intp) for c, r in rows.items()})
    assert check_rows({}) == 0
    assert check_rows({"a": np.array([2, 0]), "b": np.array([1])}) == 3


@BOTH
@pytest.mark.parametrize(
    ("bad", "error"), [(np.nan, DataError), (np.inf, DataError), (1e300, EncodingOverflow)]
)
def test_values_that_cannot_be_encoded_are_refused_before_anything_is_sent(bad, error, mode):
    values, rows = problem(4, 6)
    values["c1"][2, 1] = bad
    outcome = run(row_sums(values, rows, mode=mode))
    assert type(outcome.errors["c1"]) is error
    assert str(outcome.errors["c1"]).startswith("client 'c1': row 2, column 1")
    assert not any(t.sender == "c1" and t.step == "row sums" for t in outcome.cost.bytes_sent)
    # The others go on without it.
    assert outcome.results[SERVER].survivors == ("c0", "c2", "c3")


@BOTH
@pytest.mark.parametrize("shape", [(5, 2), (6,), (7, 2)])
def test_values_of_another_shape_are_refused_before_anything_is_sent(shape, mode):
    values, rows = problem(3, 6)

    async def client(session, values, *others, **how):
        return await secure_row_sums_client(session, np.zeros(shape), *others, **how)

    outcome = run(row_sums(values, rows, mode=mode, client=client))
    for name in values:
        assert type(outcome.errors[name]) is DataError
        assert f"client '{name}': values of shape {shape} for 6 rows in all" in str(
            outcome.errors[name]
        )


def test_user_case_uploads_that_are_too_long_are_refused_by_all_early(monkeypatch):
    monkeypatch.setattr(secure_sum, "MAX_UPLOAD_BYTES", 8 * 11)
    values, rows = problem(3, 6)
    for mode in MODES:
        outcome = run(row_sums(values, rows, mode=mode))
        assert {type(e) for e in outcome.errors.values()} == {ParameterError}
        assert not any(t.step == "row sums" for t in outcome.cost.messages)


def test_a_mode_that_does_not_exist_is_refused():
    values, rows = problem(3, 6)
    outcome = run(row_sums(values, rows, mode="redo"))
    assert {str(e) for e in outcome.errors.values()} == {
        "mode must be one of recover, restart, got 'redo'"
    }


def test_two_sums_in_one_session_need_two_purposes():
    values, rows = problem(3, 4)
    codec, graph = codec_for(values, BITS), MaskGraph.complete(names(3))

    def sums(*uses):
        async def client(session, rng):
            own = values[session.io.name]
            return [
                await secure_row_sums_client(session, own, rows, codec, graph, rng, p, mode=mode)
                for p, mode in uses
            ]

        async def server(session, rng):
            return [
                await secure_row_sums_server(session, rows, 2, codec, graph, p, mode=mode)
                for p, mode in uses
            ]

        return with_session(tuple(rows), client, server)

    uses = [("first", "recover"), ("second", "restart"), ("third", "recover")]
    results = run(sums(*uses)).raise_errors().results
    expected = exact(values, values, codec)
    for client in values:
        assert all(np.array_equal(got.values, expected[rows[client]]) for got in results[client])
    for second in MODES:
        errors = run(sums(("first", "recover"), ("first", second))).errors
        assert {type(errors[c]) for c in rows} == {ReuseError}


@BOTH
def test_a_client_that_never_joined_is_not_asked(mode):
    values, rows = problem(4, 6)
    graph = MaskGraph.complete(names(4))
    outcome = run(row_sums(values, rows, mode=mode), Faults(dropouts={"c2": 0})).raise_errors()
    assert right(outcome, values, rows, graph, mode) == ("c0", "c1", "c3")
    assert outcome.results[SERVER].dropouts == {"c2": "setup"}


@pytest.mark.parametrize("modulus", [1 << 64, 1009])
def test_noise_is_part_of_what_the_others_get(modulus):
    """Each row has the noise of all but its owner, whose own part never leaves it."""
    values, rows = problem(3, 6)
    values = {c: np.rint(v) for c, v in values.items()}
    noise = {c: np.full((6, 2), 10**k) for k, c in enumerate(values)}
    codec = FixedPoint(0, 3, modulus)

    async def client(session, *others, **how):
        added = codec.encode(noise[session.io.name])
        return await secure_row_sums_client(session, *others, **how, noise=added)

    for mode in MODES:
        make = row_sums(values, rows, mode=mode, fraction_bits=0, modulus=modulus, client=client)
        results = run(make).raise_errors().results
        for name in values:
            total = sum(values.values()) + sum(noise[c] for c in values if c != name)
            assert np.array_equal(results[name].values, total[rows[name]])


# Dropouts


@BOTH
@pytest.mark.parametrize(("p", "threshold"), [(2, 2), (3, 3), (4, 3)])
def test_every_dropout_gives_the_sum_over_those_that_took_part(p, threshold, mode):
    values, rows = problem(p, 7)
    graph = MaskGraph.complete(names(p), threshold)
    stages = Counter()
    parties = [*names(p)[-2:], SERVER]
    for case in every_dropout(row_sums(values, rows, mode=mode, graph=graph), parties):
        took_part = right(case.outcome, values, rows, graph, case)
        if case.party == SERVER:
            assert set(case.outcome.results) | set(case.outcome.errors) == set(values), case
        elif took_part is None:
            assert threshold == p, case
            assert isinstance(case.outcome.errors[SERVER], TooFewParties), case
        else:
            left = {c for c in values if c != case.party}
            assert not case.outcome.errors, case
            assert left <= set(took_part) or mode == "restart", case
            assert left <= set(case.outcome.results), case
            stage = case.outcome.results[SERVER].dropouts.get(case.party)
            assert (case.party in took_part) == (stage in (None, "reveal")), case
            stages[stage] += 1
    if threshold < p:
        assert (
            set(stages)
            == {
                "recover": {"setup", "share", "upload", "reveal", None},
                "restart": {"setup", "upload", None},
            }[mode]
        )


@pytest.mark.parametrize("threshold", [3, 4])
def test_user_case_a_client_cut_off_anywhere_gets_exactly_its_rows_when_it_comes_back(threshold):
    """In mode recover: of the sum over the contributors, whether it is one of them or not."""
    values, rows = problem(4, 7)
    graph = MaskGraph.complete(names(4), threshold)
    make = row_sums(values, rows, graph=graph)
    original = run(make)
    opening = 4  # before this operation is done, it is not in the session
    kinds = Counter()
    clients = names(4) if threshold == 3 else ["c1"]
    for client, after in product(clients, range(original.operations["c0"])):
        outcome = run(make, Faults(away={client: after}))
        took_part = right(outcome, values, rows, graph, (client, after))
        assert outcome.returned == (client,)
        if took_part is None:
            assert threshold == 4
        elif client in outcome.errors:
            assert after <= opening, (client, after)
            assert set(outcome.errors) == {client}
        else:
            assert set(outcome.results) == {*values, SERVER}, (client, after)
            kinds[client in took_part] += 1
            if client not in took_part:
                assert sent(outcome, "SumReveal", client) == 0
    if threshold < 4:
        assert kinds[True] > 0
        assert kinds[False] > 0


def test_a_client_cut_off_from_a_restarted_sum_is_told():
    values, rows = problem(4, 7)
    graph = MaskGraph.complete(names(4), 2)
    make = row_sums(values, rows, graph=graph, mode="restart")
    kinds = Counter()
    for client, after in product(("c0", "c2"), range(run(make).operations["c0"])):
        outcome = run(make, Faults(away={client: after}))
        took_part = right(outcome, values, rows, graph, (client, after))
        assert set(outcome.errors) <= {client}
        assert (client in took_part) == (client in outcome.results), (client, after)
        kinds[type(outcome.errors.get(client))] += 1
    assert kinds[Excluded] > 0
    assert kinds[type(None)] > 0


@BOTH
def test_two_dropouts_end_rightly_wherever_they_are(mode):
    values, rows = problem(4, 7)
    graph = MaskGraph.complete(names(4), 2)
    make = row_sums(values, rows, mode=mode, graph=graph)
    operations = run(make).operations["c1"]
    extra = 3 if mode == "restart" else 0
    seen = set()
    # Every third operation of the one, every fourth of the other, and in the end each of that.
    pairs = ((i, j) for i in range(0, operations, 3) for j in range(i % 4, operations + extra, 4))
    for first, second in pairs:
        outcome = run(make, Faults(dropouts={"c1": first, "c3": second}))
        seen.add(right(outcome, values, rows, graph, (first, second)))
        assert not outcome.errors
        if mode == "restart":
            rounds = sum(
                n
                for t, n in outcome.cost.messages.items()
                if t.message == "Sealed[RowSumsRound]" and t.receiver == "c0"
            )
            assert 2 <= rounds <= 4
    assert {("c0", "c2"), ("c0", "c1", "c2"), ("c0", "c2", "c3"), names(4)} <= seen


@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_comes_back_after_another_dropped_out_gets_its_rows(mode):
    values, rows = problem(5, 7)
    graph = MaskGraph.complete(names(5), 3)
    make = row_sums(values, rows, mode=mode, graph=graph)
    operations = run(make).operations["c1"]
    # Every second operation of the one, every ninth of the other, and in the end each of that.
    for away, out in ((i, j) for i in range(3, operations, 2) for j in range(i % 9, operations, 9)):
        outcome = run(make, Faults(away={"c1": away}, dropouts={"c3": out}))
        took_part = right(outcome, values, rows, graph, (away, out))
        assert {"c0", "c2", "c4"} <= set(took_part)
        in_session = outcome.results[SERVER].dropouts.get("c1") != "setup"
        assert "c1" in outcome.results or mode == "restart" or not in_session, (away, out)


@BOTH
def test_a_client_whose_upload_is_lost_is_left_out(mode):
    values, rows = problem(4, 6)
    graph = MaskGraph.complete(names(4))
    fault = losing("Sealed[RowSumsUpload]", ("c1", SERVER))
    outcome = run(row_sums(values, rows, mode=mode), fault)
    assert right(outcome, values, rows, graph, "lost") == ("c0", "c2", "c3")
    if mode == "recover":  # it gets its rows of the sum over the others
        outcome.raise_errors()
        assert isinstance(outcome.results["c1"], RowSums)
    else:
        assert set(outcome.errors) == {"c1"}
        assert isinstance(outcome.errors["c1"], Excluded)
        assert outcome.errors["c1"].step == "row sums"


@BOTH
def test_every_corruption_gives_the_right_sum_or_names_whom_to_blame(mode):
    """The other messages of mode recover are those of a sum, and altered in its tests."""
    values, rows = problem(3, 4, columns=1)
    graph = MaskGraph.complete(names(3), 2)
    make = row_sums(values, rows, graph=graph, mode=mode)
    chosen = on_the_last_link(make)
    cases = 0
    for case in every_corruption(make, which=lambda d: "RowSums" in d.message and chosen(d)):
        cases += 1
        ends = {case.delivery.sender, case.delivery.receiver}
        right(case.outcome, values, rows, graph, case)
        for error in case.outcome.errors.values():
            assert not blamed(error) or blamed(error) & ends, (case, error)
        if case.tamper != "lost":
            assert any(blamed(e) & ends for e in case.outcome.errors.values()), case
    assert cases > 12 * {"recover": 2, "restart": 4}[mode]  # messages


# A server that cheats


def cheating(script):
    """Clients of an honest sum with a server that follows `script(session, order)`."""
    values, rows = problem(4, 6)

    async def server(session, owned, columns, codec, graph, clients, mode):
        return await script(session.io, owned)

    graph = MaskGraph.complete(names(4), 2)
    return row_sums(values, rows, server=server, mode="restart", graph=graph)


def here(*names):
    return np.array([f"c{i}" in names for i in range(4)])


EVERYBODY = ("c0", "c1", "c2", "c3")
TERMS = sum_terms(
    SERVER,
    MaskGraph.complete(EVERYBODY, 2),
    codec_for(EVERYBODY),
    "row sums",
    rows=rows_digest(problem(4, 6)[1]),
).encode()


async def ask(io, rows, *names):
    await io.send(names, round_of(False, *names))
    sizes = {c: len(rows_of_others(rows, names, c)) for c in names}
    await io.gather(RowSumsUpload, names, rows=sizes, columns=2, modulus=1 << 64)


def round_of(done, *names):
    return RowSumsRound(done, TERMS, here(*names))


async def same_set_again(io, rows):
    await ask(io, rows, *EVERYBODY)
    await io.send(EVERYBODY, round_of(False, *EVERYBODY))


async def greater_set(io, rows):
    await ask(io, rows, "c0", "c1", "c2")
    await io.send(("c0", "c1", "c2"), round_of(False, *EVERYBODY))


async def another_set(io, rows):
    await ask(io, rows, "c0", "c1", "c2")
    await io.send(("c0", "c1"), round_of(False, "c0", "c1", "c3"))


async def sums_over_fewer(io, rows):
    await ask(io, rows, *EVERYBODY)
    await io.send(("c0", "c1", "c2"), round_of(True, "c0", "c1", "c2"))


async def sums_over_more(io, rows):
    await ask(io, rows, "c0", "c1", "c2")
    await io.send(("c0", "c1", "c2"), round_of(True, *EVERYBODY))


async def done_before_it_began(io, rows):
    await io.send(EVERYBODY, round_of(True, *EVERYBODY))


async def asks_one_alone(io, rows):
    await io.send("c0", round_of(False, "c0"))


@pytest.mark.parametrize(
    "script",
    [
        same_set_again,
        greater_set,
        another_set,
        sums_over_fewer,
        sums_over_more,
        done_before_it_began,
        asks_one_alone,
    ],
    ids=lambda f: f.__name__,
)
def test_a_server_that_does_not_follow_the_rounds_of_restart_is_named_and_gets_no_upload(script):
    outcome = run(cheating(script))
    assert_blames(outcome.errors["c0"], (SERVER,))
    uploads = sum(
        n
        for t, n in outcome.cost.messages.items()
        if t.message == "Sealed[RowSumsUpload]" and t.sender == "c0"
    )
    assert uploads == (0 if script in (done_before_it_began, asks_one_alone) else 1)


def test_a_server_that_leaves_a_client_out_tells_it():
    async def script(io, rows):
        await io.send("c0", round_of(False, "c1", "c2"))

    assert isinstance(run(cheating(script)).errors["c0"], Excluded)


# What travels to the owner of rows, and what the owner sees; for what the server sees, alone and
# together with an owner, see test_sum_views.py


COLUMNS = 16


def small_problem(columns=1):
    rows = {"a": np.array([0, 3]), "b": np.array([1]), "c": np.array([2]), "d": np.array([4])}
    return {c: np.full((5, columns), float(i)) for i, c in enumerate(rows)}, rows


def worst_uniform(samples):
    """Smallest corrected p-value over the low and the high three bits of every column."""
    low, high = samples & np.uint64(7), samples >> np.uint64(61)
    columns = [*low.T, *high.T]
    counts = [np.bincount(c.astype(int), minlength=8) for c in columns]
    return min(uniformity(c) for c in counts) * len(counts)


def blocks_in_transit(mode, seeds):
    """The entries of all blocks as sent, and differences between their rows, (runs·columns, k)."""
    values, rows = small_problem(COLUMNS)
    samples = []
    for seed in seeds:
        blocks = []

        async def server(session, *others, blocks=blocks, **how):
            honest = session.io.send

            async def send(to, message):
                if isinstance(message, RowSumsBlock):
                    blocks.append(message.values.copy())  # the owner takes the masks off in place
                await honest(to, message)

            session.io.send = send
            return await secure_row_sums_server(session, *others, **how)

        make = row_sums(values, rows, fraction_bits=4, seed=seed, mode=mode, server=server)
        run(make).raise_errors()
        assert len(blocks) == len(rows)
        between = [block[1:] - block[:-1] for block in blocks]
        samples.append(np.concatenate(blocks + between).T)
    return np.concatenate(samples)


@BOTH
def test_a_block_in_transit_is_masked(mode):
    assert worst_uniform(blocks_in_transit(mode, range(20))) > 1e-3


@BOTH
def test_the_same_test_finds_a_block_without_masks(monkeypatch, mode):
    monkeypatch.setattr(
        row_sums_restart,
        "pair_masks",
        lambda session, clients, tag, shape, modulus: dict.fromkeys(
            set(clients) - {session.io.name}, np.zeros(shape, np.uint64)
        ),
    )
    monkeypatch.setattr(row_sums_recover, "owner_mask", lambda *args: np.zeros(args[-1], np.uint64))
    monkeypatch.setattr(keyed_masks, "accumulate", lambda *args, **options: None)
    values, rows = small_problem()
    for client, found in run(row_sums(values, rows, mode=mode)).raise_errors().results.items():
        if client != SERVER:  # the sum does not tell
            assert (found.values == sum(range(4))).all()
    assert worst_uniform(blocks_in_transit(mode, range(5))) < 1e-6


@BOTH
def test_an_owner_gets_its_block_and_nothing_else(mode):
    values, rows = small_problem()
    seen = views(row_sums(values, rows, mode=mode))
    for client in rows:
        kinds = [type(m) for f, m in seen[client] if type(m).__name__.startswith("RowSums")]
        rounds = [RowSumsRound, RowSumsRound] if mode == "restart" else []
        assert kinds == [*rounds, RowSumsBlock]
        from_clients = {type(m).__name__ for f, m in seen[client] if f != SERVER}
        assert from_clients <= {"Sealed", "SumShares"}


@BOTH
def test_an_owner_sees_the_same_whatever_the_others_values_are_if_their_sum_is_the_same(mode):
    """Byte for byte with the same randomness, so also in distribution; other rows may differ."""
    values, rows = small_problem()
    own = rows["a"]
    same_sum = {c: v.copy() for c, v in values.items()}
    for client, change in (("b", 5), ("c", -2), ("d", -3)):
        same_sum[client][own] += change
        same_sum[client][rows["b"]] *= 7
    another = same_sum | {"d": values["d"]}

    def view(inputs):
        sent = deliveries(row_sums(inputs, rows, fraction_bits=4, mode=mode))
        return [(d.sender, d.payload) for d in sent if d.receiver == "a"]

    assert view(values) == view(same_sum)
    assert view(values) != view(another)


def keys_of_pairs(session, clients, tag, shape, modulus):
    """What the masks of pairs are made from in mode recover."""
    keys = pair_keys(session, session.peers, tag)
    return {c: key.copy().view(np.uint64) for c, key in zip(session.peers, keys, strict=True)}


@pytest.mark.parametrize("made", [pair_masks, keys_of_pairs])
def test_what_pairs_share_is_the_same_at_both_ends_and_differs_between_sums_and_pairs(made):
    """If keys did not differ, those of a dropout would take the masks off an earlier sum."""

    async def client(session, rng):
        return {
            attempt: made(session, session.clients, session.once("x", attempt), (50, 2), 1 << 64)
            for attempt in (0, 1)
        }

    async def server(session, rng):
        return None

    of = run(with_session("abc", client, server)).raise_errors().results
    blocks = set()
    for attempt in (0, 1):
        for one, other in [("a", "b"), ("a", "c"), ("b", "c")]:
            mine, theirs = of[one][attempt][other], of[other][attempt][one]
            assert np.array_equal(mine, theirs)
            blocks.add(mine.tobytes())
    assert len(blocks) == 6
    first, second = of["a"][0]["b"], of["a"][1]["b"]
    assert not (first == second).any()
    assert (first.view(np.uint8) == second.view(np.uint8)).mean() < 0.03


def test_attack_6_masks_of_restart_with_equal_secrets_do_not_cancel():
    """What a key that c echoes of a gives b: one secret with both, masks of opposite signs."""
    echo = {"a": bytes(32), "c": bytes(32), SERVER: bytes(range(32))}
    session = Session(
        DriverIO("b", None, print),
        b"id",
        echo,
        dict.fromkeys("abc", ()),
        authenticated=True,
        verify_keys={},
        signing=None,
    )
    masks = pair_masks(session, tuple("abc"), b"attempt", (4, 2), 1 << 64)
    values = np.arange(8, dtype=np.uint64).reshape(4, 2)
    upload = mask_upload(values, masks, tuple("abc"), "b", np.arange(4), 1 << 64)
    assert not (upload == values).any()


@pytest.mark.parametrize("modulus", [1 << 64, 1 << 32, 1009])
def test_masking_and_unmasking_are_inverse(modulus):
    dtype = FixedPoint(0, 2, modulus).dtype
    rng = np.random.default_rng(0)

    def draw():
        return rng.integers(0, modulus - 1, (3, 2), dtype=np.uint64, endpoint=True).astype(dtype)

    z = {c: draw() for c in "ab"}
    mask = draw()
    keep = np.array([0, 2])
    before = z["a"].copy()
    wide = [x.astype(object) for x in (z["a"], z["b"], mask)]
    for first, me, peer in [("a", "a", "b"), ("b", "b", "a")]:
        upload = mask_upload(z[me], {peer: mask}, "ab", me, keep, modulus)
        sign = 1 if first == "a" else -1
        own = wide[0] if me == "a" else wide[1]
        assert np.array_equal(upload, ((own + sign * wide[2]) % modulus)[keep])
        got = mask_upload(z[peer], {me: mask}, "ab", peer, keep, modulus)
        ring.add_into(got, upload, modulus)
        assert np.array_equal(got, ((wide[0] + wide[1]) % modulus)[keep])
    assert np.array_equal(z["a"], before)


# A server that cheats in mode recover


OTHERS = "survivors that did not take part"


@pytest.mark.parametrize(
    ("named", "blaming"),
    [
        (("c0", "c1", "c2"), {"c0": OTHERS, "c1": OTHERS}),
        (("c0", "c3"), {"c0": OTHERS, "c1": OTHERS, "c3": "counts c3, which did not upload"}),
        (("c0", "c4"), {"c0": OTHERS, "c1": OTHERS, "c3": OTHERS}),
        (("c0",), dict.fromkeys(("c0", "c1", "c3"), "1 clients, below the threshold of 2")),
    ],
)
def test_a_server_that_names_other_survivors_is_named_and_gets_no_shares(named, blaming):
    """c2 dropped out before the masks were agreed on, c3 is too late, c4 is not in the session."""
    values, rows = problem(5, 6)
    graph = MaskGraph.complete(names(5), 2)

    async def server(session, owned, columns, codec, graph, clients, mode):
        tag = sum_tag(session, "row sums", graph)
        terms = sum_terms(SERVER, graph, codec, "row sums", rows=rows_digest(owned))
        await open_masks(session, graph, tag, terms, session.clients)
        await session.io.send(("c0", "c1", "c3"), SumSurvivors(client_set(graph, named)))

    make = row_sums(values, rows, graph=graph, server=server)
    outcome = run(make, Faults(dropouts={"c2": "row sums", "c4": 0}, away={"c3": "share"}))
    for client, message in blaming.items():
        assert_blames(outcome.errors[client], (SERVER,), message)
    assert sent(outcome, "SumReveal") == 0


# Limits that the modules state


def test_limit_server_and_owner_together_learn_a_late_clients_part(monkeypatch):
    """In mode restart: two attempts of which the first was complete differ by one client.

    `test_server_and_owner_together_learn_nothing_of_a_late_client` in test_sum_views.py shows that
    mode recover closes this.
    """
    values, rows = problem(4, 6)
    graph = MaskGraph.complete(names(4), 2)
    uploads, masks = [], []

    def spying(session, clients, tag, shape, modulus):
        got = pair_masks(session, clients, tag, shape, modulus)
        if session.io.name == "c0":  # the colluding owner
            masks.append(got)
        return got

    async def server(session, owned, columns, codec, graph, clients, mode):
        io = session.io
        for part in (EVERYBODY, EVERYBODY[:3]):  # c3's upload "came too late"
            await io.send(EVERYBODY, round_of(False, *part))
            sizes = {c: len(rows_of_others(owned, part, c)) for c in part}
            got = await io.gather(
                RowSumsUpload, part, rows=sizes, columns=columns, modulus=codec.modulus
            )
            uploads.append((part, {c: m.values for c, m in got.items()}))
        return

    monkeypatch.setattr(row_sums_restart, "pair_masks", spying)
    outcome = run(row_sums(values, rows, server=server, mode="restart", graph=graph))
    assert isinstance(outcome.errors["c3"], Excluded)
    sums = []
    own, nothing = rows["c0"], np.zeros((6, 2), np.uint64)
    for (part, got), own_masks in zip(uploads, masks, strict=True):
        total = np.zeros((6, 2), np.uint64)
        for client, upload in got.items():
            total[rows_of_others(rows, part, client)] += upload
        sums.append(total[own] + mask_upload(nothing, own_masks, part, "c0", own, 1 << 64))
    learned = FixedPoint(BITS, parties=4).decode(sums[0] - sums[1])
    assert len(own) > 0
    assert np.allclose(learned, values["c3"][own], atol=2.0**-BITS)


# Parties that were not given the same


def other_codec(codec):
    return replace(codec, fraction_bits=10)


def other_rows(rows):
    return {**rows, "c0": rows["c1"], "c1": rows["c0"]}


@BOTH
@pytest.mark.parametrize(
    ("field", "codec_of", "rows_of"),
    [("fraction_bits", other_codec, dict), ("rows", lambda codec: codec, other_rows)],
)
def test_a_client_with_another_codec_or_other_rows_ends_with_an_error_that_names_which(
    mode, field, codec_of, rows_of
):
    values, rows = problem(4, 8)
    rows = dict(zip(names(4), np.arange(8).reshape(4, 2), strict=True))

    async def client(session, values, owned, codec, graph, rng, mode):
        if session.io.name == "c1":
            codec, owned = codec_of(codec), rows_of(owned)
        return await secure_row_sums_client(session, values, owned, codec, graph, rng, mode=mode)

    outcome = run(row_sums(values, rows, client=client, mode=mode))
    finder, other = (SERVER, "c1") if mode == "recover" else ("c1", SERVER)  # who hears it first
    assert_blames(outcome.errors[finder], (other,), f"must agree on {field} (here ")
    assert sent(outcome, "RowSumsUpload", "c1") == 0
    assert "c1" not in outcome.results
    if mode == "restart":  # the others go on without it
        assert outcome.results[SERVER].survivors == ("c0", "c2", "c3")
        assert right_row_sums(
            outcome, values, rows, codec_for(values, BITS), MaskGraph.complete(names(4)), field
        )


@BOTH
def test_a_codec_for_fewer_parties_than_clients_is_refused_by_everybody(mode):
    values, rows = problem(4, 6)

    async def client(session, values, owned, codec, graph, rng, mode):
        few = replace(codec, parties=3)
        return await secure_row_sums_client(session, values, owned, few, graph, rng, mode=mode)

    async def server(session, owned, columns, codec, graph, clients, mode):
        few = replace(codec, parties=3)
        return await secure_row_sums_server(session, owned, columns, few, graph, mode=mode)

    outcome = run(row_sums(values, rows, client=client, server=server, mode=mode))
    assert set(outcome.errors) == {*names(4), SERVER}
    for error in outcome.errors.values():
        assert type(error) is ParameterError
        assert "for sums of 3 values and the mask graph has 4 clients" in str(error)
