"""SecureRowSums: exact sums, restarts, what the server sees, and a server that cheats."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import row_sums, with_session

from xclp_crypto.errors import (
    DataError,
    EncodingOverflow,
    Excluded,
    FaultyPeer,
    ParameterError,
    ProtocolError,
    ReuseError,
    TooFewParties,
)
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.protocols.secure_sum import (
    check_rows,
    ideal_row_sums_client,
    ideal_row_sums_server,
    secure_row_sums_client,
    secure_row_sums_server,
)
from xclp_crypto.protocols.secure_sum import (
    row_sums as row_sums_module,
)
from xclp_crypto.protocols.secure_sum.row_sums import (
    RowSumsBlock,
    RowSumsRound,
    RowSumsUpload,
    bytes_per_link,
    mask_upload,
    pair_masks,
    rows_of_others,
    unmask_block,
)
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import (
    blamed,
    every_corruption,
    every_dropout,
    every_schedule,
    run,
    uniformity,
    views,
)
from xclp_crypto.transport.simulate import Faults

BITS = 20


def ideal(values, rows, **options):
    return row_sums(
        values, rows, client=ideal_row_sums_client, server=ideal_row_sums_server, **options
    )


def problem(p, n, columns=2, seed=0, scale=10.0):
    """Values and a partition of n rows over p clients, some blocks maybe empty, unsorted."""
    rng = np.random.default_rng([p, n, columns, seed])
    owner = rng.integers(0, p, n)
    names = [f"c{i}" for i in range(p)]
    rows = {c: rng.permutation(np.flatnonzero(owner == i)) for i, c in enumerate(names)}
    return {c: rng.normal(scale=scale, size=(n, columns)) for c in names}, rows


def exact(values, rows, taking_part, fraction_bits=BITS):
    """What each participant must get, bit for bit."""
    codec = FixedPoint(fraction_bits, parties=len(rows))
    total = np.sum([codec.encode(values[c]) for c in taking_part], axis=0, dtype=np.uint64)
    return {c: codec.decode(total[rows[c]]) for c in taking_part}


# Sums


@settings(deadline=None, max_examples=60)
@given(
    p=st.integers(2, 6),
    n=st.integers(0, 9),
    columns=st.integers(1, 3),
    seed=st.integers(0, 1 << 32),
    fraction_bits=st.sampled_from([0, 8, 20, 40]),
)
def test_sums_are_within_the_bound_and_equal_the_ideal_twin(p, n, columns, seed, fraction_bits):
    values, rows = problem(p, n, columns, seed)
    outcome = run(row_sums(values, rows, fraction_bits=fraction_bits)).raise_errors()
    twin = run(ideal(values, rows, fraction_bits=fraction_bits)).raise_errors()
    bound = FixedPoint(fraction_bits, parties=p).error_bound
    truth = np.sum(list(values.values()), axis=0)
    for client in values:
        got = outcome.results[client]
        assert got.shape == (len(rows[client]), columns)
        assert got.tobytes() == twin.results[client].tobytes()
        assert np.abs(got - truth[rows[client]]).max(initial=0) <= bound + 1e-12
    assert outcome.results[SERVER] == twin.results[SERVER] == tuple(values)
    assert not outcome.unread


def test_a_client_may_own_all_rows_or_none():
    values, _ = problem(3, 4)
    rows = {"c0": [], "c1": [3, 0, 2, 1], "c2": []}
    owned = {c: np.array(r, dtype=np.intp) for c, r in rows.items()}
    results = run(row_sums(values, rows)).raise_errors().results
    expected = exact(values, owned, values)
    for client in values:
        assert np.array_equal(results[client], expected[client])


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32, np.int64, np.uint8, bool])
def test_values_of_any_real_type_are_summed(kind):
    values, rows = problem(3, 5, scale=3.0)
    typed = {c: np.abs(v).astype(kind) for c, v in values.items()}
    results = run(row_sums(typed, rows)).raise_errors().results
    for client, expected in exact(typed, rows, typed).items():
        assert np.array_equal(results[client], expected)


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


def test_metered_bytes_are_the_formula():
    for p, n, columns in [(2, 3, 1), (3, 7, 2), (5, 4, 3), (3, 0, 2)]:
        values, rows = problem(p, n, columns)
        metered = {}
        cost = run(row_sums(values, rows)).raise_errors().cost
        for traffic, count in cost.bytes_sent.items():
            if traffic.step == "row sums":
                link = traffic.sender, traffic.receiver
                metered[link] = metered.get(link, 0) + count
        assert metered == bytes_per_link(rows, columns)


@pytest.mark.parametrize(
    ("bad", "error"), [(np.nan, DataError), (np.inf, DataError), (1e300, EncodingOverflow)]
)
def test_values_that_cannot_be_encoded_are_refused_before_anything_is_sent(bad, error):
    values, rows = problem(3, 4)
    values["c1"][2, 1] = bad
    outcome = run(row_sums(values, rows))
    assert type(outcome.errors["c1"]) is error
    assert str(outcome.errors["c1"]).startswith("client 'c1': row 2, column 1")
    assert not any(t.sender == "c1" and t.step == "row sums" for t in outcome.cost.bytes_sent)
    # The others go on without it.
    assert outcome.results[SERVER] == ("c0", "c2")


@pytest.mark.parametrize("client", [secure_row_sums_client, ideal_row_sums_client])
@pytest.mark.parametrize("modulus", [2**32, 2**61 - 1])
def test_a_codec_of_another_modulus_is_refused_before_anything_is_sent(client, modulus):
    values, rows = problem(3, 4)

    async def other_codec(session, values, rows, codec):
        return await client(session, values, rows, FixedPoint(BITS, 3, modulus))

    outcome = run(row_sums(values, rows, client=other_codec))
    for name in values:
        assert type(outcome.errors[name]) is ParameterError
        assert "2^64" in str(outcome.errors[name])
        assert not any(t.sender == name and t.step == "row sums" for t in outcome.cost.bytes_sent)


def test_two_sums_in_one_session_need_two_purposes():
    values, rows = problem(3, 4)
    codec = FixedPoint(BITS, parties=3)

    def sums(*purposes):
        async def client(session, rng):
            own = values[session.io.name]
            return [
                await secure_row_sums_client(session, own, rows, codec, purpose=p) for p in purposes
            ]

        async def server(session, rng):
            return [await secure_row_sums_server(session, rows, 2) for _ in purposes]

        return with_session(tuple(rows), client, server)

    results = run(sums("first", "second")).raise_errors().results
    for client, expected in exact(values, rows, values).items():
        assert all(np.array_equal(got, expected) for got in results[client])
    errors = run(sums("first", "first")).errors
    assert {type(errors[c]) for c in rows} == {ReuseError}


def test_a_client_that_never_joined_is_not_asked():
    values, rows = problem(4, 6)
    outcome = run(row_sums(values, rows), Faults(vanish={"c2": 0})).raise_errors()
    left = ("c0", "c1", "c3")
    assert outcome.results[SERVER] == left
    for client, expected in exact(values, rows, left).items():
        assert np.array_equal(outcome.results[client], expected)


# Restart


def right_or_typed(outcome, values, rows, context):
    """Every client that has a result has the sum over exactly those that the server names."""
    finished = [c for c in values if c in outcome.results]
    if SERVER in outcome.results:
        expected = exact(values, rows, outcome.results[SERVER])
        for client in finished:
            assert np.array_equal(outcome.results[client], expected[client]), context
    elif finished:
        # The server stopped while it handed out blocks of a sum that was already complete.
        assert SERVER in outcome.vanished or SERVER in outcome.errors, context
        possible = [exact(values, rows, part) for part in survivors(values)]
        for client in finished:
            assert any(
                client in e and np.array_equal(outcome.results[client], e[client]) for e in possible
            ), context
    for error in outcome.errors.values():
        assert isinstance(error, ProtocolError), context


def survivors(values):
    return [s for k in range(2, len(values) + 1) for s in combinations(values, k)]


@pytest.mark.parametrize("p", [2, 3, 4, 5, 6])
def test_every_dropout_gives_the_sum_over_those_that_took_part(p):
    values, rows = problem(p, 7)
    restarted = complete = 0
    for case in every_dropout(row_sums(values, rows)):
        right_or_typed(case.outcome, values, rows, case)
        left = [c for c in values if c != case.party]
        if case.party == SERVER:
            assert all(c in case.outcome.results or c in case.outcome.errors for c in values)
        elif p == 2:
            took_part = case.outcome.results.get(SERVER)
            assert took_part == ("c0", "c1") or isinstance(
                case.outcome.errors[SERVER], TooFewParties
            ), case
        else:
            assert not case.outcome.errors, case
            took_part = case.outcome.results[SERVER]
            assert set(left) <= set(took_part), case
            assert set(left) <= set(case.outcome.results), case
            complete += case.party in took_part
            restarted += case.party not in took_part
    assert p == 2 or (restarted > 0 and complete > 0)


def test_two_dropouts_one_after_the_other_restart_twice():
    values, rows = problem(5, 7)
    operations = run(row_sums(values, rows)).operations["c1"]
    seen = set()
    for first in range(operations):
        for second in range(operations + 3):
            outcome = run(row_sums(values, rows), Faults(vanish={"c1": first, "c3": second}))
            right_or_typed(outcome, values, rows, (first, second))
            assert not outcome.errors
            seen.add(outcome.results[SERVER])
            rounds = sum(
                n
                for t, n in outcome.cost.messages.items()
                if t.message == "Sealed[RowSumsRound]" and t.receiver == "c0"
            )
            assert 2 <= rounds <= 4
    assert ("c0", "c2", "c4") in seen


def test_a_client_whose_upload_is_lost_is_excluded():
    values, rows = problem(4, 6)
    fault = Faults(
        on_message=lambda d: (
            None if (d.message, d.sender) == ("Sealed[RowSumsUpload]", "c1") else d.payload
        )
    )
    outcome = run(row_sums(values, rows), fault)
    assert set(outcome.errors) == {"c1"}
    assert isinstance(outcome.errors["c1"], Excluded)
    assert outcome.errors["c1"].step == "row sums"
    right_or_typed(outcome, values, rows, "lost")
    assert outcome.results[SERVER] == ("c0", "c2", "c3")


def test_every_corruption_gives_the_right_sum_or_names_whom_to_blame():
    values, rows = problem(3, 4, columns=1)
    cases = 0
    for case in every_corruption(row_sums(values, rows)):
        cases += 1
        ends = {case.delivery.sender, case.delivery.receiver}
        right_or_typed(case.outcome, values, rows, case)
        assert case.outcome.errors, case
        for error in case.outcome.errors.values():
            if blamed(error):
                assert blamed(error) & ends, (case, error)
        if case.tamper != "lost":
            assert any(blamed(e) & ends for e in case.outcome.errors.values()), case
    assert cases > 150


@pytest.mark.parametrize("p", [3, 4, 5, 8])
def test_random_faults_give_the_right_sum_or_a_typed_error(p):
    seen = Counter()
    for case in every_schedule(
        lambda seed: row_sums(*problem(p, 7, seed=seed), seed=seed), range(12), per_seed=3
    ):
        outcome = case.outcome
        right_or_typed(outcome, *problem(p, 7, seed=case.seed), case)
        assert {*outcome.results, *outcome.errors, *outcome.vanished} == set(outcome.operations)
        seen["complete"] += SERVER in outcome.results
        seen["excluded"] += any(isinstance(e, Excluded) for e in outcome.errors.values())
        seen["blamed"] += any(blamed(e) for e in outcome.errors.values())
        seen["returned"] += bool(outcome.returned)
    assert min(seen[what] for what in ("complete", "excluded", "blamed", "returned")) > 0


# A server that cheats


def cheating(script):
    """Clients of an honest sum with a server that follows `script(session, order)`."""
    values, rows = problem(4, 6)

    async def server(session, owned, columns, clients, at_least=2):
        return await script(session.io, owned)

    return row_sums(values, rows, server=server)


def here(*names):
    return np.array([f"c{i}" in names for i in range(4)])


EVERYBODY = ("c0", "c1", "c2", "c3")


async def ask(io, rows, *names):
    await io.send(names, RowSumsRound(False, here(*names)))
    sizes = {c: len(rows_of_others(rows, names, c)) for c in names}
    await io.gather(RowSumsUpload, names, rows=sizes, columns=2, modulus=1 << 64)


def round_of(done, *names):
    return RowSumsRound(done, here(*names))


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
def test_a_server_that_does_not_follow_the_rounds_is_named_and_gets_no_upload(script):
    outcome = run(cheating(script))
    error = outcome.errors["c0"]
    assert type(error) is FaultyPeer
    assert error.parties == (SERVER,)
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


# What the server sees


def small_problem():
    rows = {"a": np.array([0, 3]), "b": np.array([1]), "c": np.array([2]), "d": np.array([4])}
    return {c: np.full((5, 1), float(i)) for i, c in enumerate(rows)}, rows


def server_samples(seeds, faults=None):
    """Everything that the server can form of uploads, (runs, k) uint64.

    Each upload; in each attempt the sum of all uploads by row, which is the block that the server
    hands out; the differences between rows of each of these, and between attempts.
    """
    values, rows = small_problem()
    samples = []
    for seed in seeds:
        attempts = []
        outcome = run(row_sums(values, rows, fraction_bits=4, seed=seed), faults, record=True)
        view = [(f, m) for f, m in outcome.views[SERVER] if isinstance(m, RowSumsUpload)]
        for frm, message in view:
            if not attempts or frm in attempts[-1]:
                attempts.append({})
            attempts[-1][frm] = message.values
        part = (
            [tuple(rows)] if faults is None else [tuple(rows), tuple(c for c in rows if c != "d")]
        )
        assert len(attempts) == len(part)
        formed, totals = [], []
        for attempt, uploads in zip(part, attempts, strict=True):
            dense = {}
            for frm, upload in uploads.items():
                dense[frm] = np.zeros((5, 1), np.uint64)
                dense[frm][rows_of_others(rows, attempt, frm)] = upload
            total = sum(dense.values())
            kept = np.concatenate([rows[c] for c in attempt if c in uploads])
            totals.append(total[kept])
            for block in (*uploads.values(), total[kept]):
                formed += [block.reshape(-1), (block[1:] - block[:-1]).reshape(-1)]
        if len(totals) == 2:  # the same rows in both attempts: a, b, c
            formed.append((totals[0] - totals[1]).reshape(-1))
        samples.append(np.concatenate(formed))
    return np.array(samples)


def worst_uniform(samples):
    """Smallest corrected p-value over the low and the high three bits of every column."""
    low, high = samples & np.uint64(7), samples >> np.uint64(61)
    columns = [*low.T, *high.T]
    counts = [np.bincount(c.astype(int), minlength=8) for c in columns]
    return min(uniformity(c) for c in counts) * len(counts)


def drop_d():
    """d's uploads are lost, so the server starts again without it."""
    return Faults(
        on_message=lambda d: (
            None if (d.message, d.sender) == ("Sealed[RowSumsUpload]", "d") else d.payload
        )
    )


def test_all_that_the_server_can_form_of_the_uploads_is_uniform():
    assert worst_uniform(server_samples(range(300))) > 1e-3


def test_so_are_the_uploads_of_an_abandoned_attempt_and_their_differences():
    assert worst_uniform(server_samples(range(300), drop_d())) > 1e-3


def no_masks(session, clients, lab, shape):
    return {c: np.zeros(shape, np.uint64) for c in clients if c != session.io.name}


def no_owner_mask(session, clients, lab, shape):
    """Broken: the mask shared with the owner of a row is left out of that row."""
    _, rows = small_problem()
    masks = pair_masks(session, clients, lab, shape)
    for peer, mask in masks.items():
        mask[rows[peer]] = 0
        mask[rows[session.io.name]] = 0
    return masks


def one_mask_for_all_rows(session, clients, lab, shape):
    """Broken: the same mask for all rows."""
    return {
        c: np.repeat(m[:1], len(m), axis=0)
        for c, m in pair_masks(session, clients, lab, shape).items()
    }


@pytest.mark.parametrize(
    "broken", [no_masks, no_owner_mask, one_mask_for_all_rows], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("dropped", [False, True])
def test_the_same_test_fails_when_masks_are_left_out(monkeypatch, broken, dropped):
    monkeypatch.setattr(row_sums_module, "pair_masks", broken)
    values, rows = small_problem()
    results = run(row_sums(values, rows)).raise_errors().results
    for client, expected in exact(values, rows, rows).items():  # the sum does not tell
        assert np.array_equal(results[client], expected)
    samples = server_samples(range(60), drop_d() if dropped else None)
    assert worst_uniform(samples) < 1e-6


def test_a_block_in_transit_is_masked_and_the_owner_gets_nothing_else():
    values, rows = small_problem()
    seen = views(row_sums(values, rows))
    for client in rows:
        kinds = [type(m) for f, m in seen[client] if type(m).__name__.startswith("RowSums")]
        assert kinds == [RowSumsRound, RowSumsRound, RowSumsBlock]


def test_masks_cancel_pairwise_and_differ_between_attempts_and_pairs():
    async def client(session, rng):
        return {
            attempt: pair_masks(session, session.clients, session.once("x", attempt), (50, 2))
            for attempt in (0, 1)
        }

    async def server(session, rng):
        return None

    of = run(with_session("abc", client, server)).raise_errors().results
    blocks = set()
    for attempt in (0, 1):
        for one, other in [("a", "b"), ("a", "c"), ("b", "c")]:
            mine, theirs = of[one][attempt][other], of[other][attempt][one]
            assert not (mine + theirs).any()
            blocks.add(mine.tobytes())
    assert len(blocks) == 6
    first, second = of["a"][0]["b"], of["a"][1]["b"]
    assert not (first == second).any()
    assert (first.view(np.uint8) == second.view(np.uint8)).mean() < 0.03


def test_masking_and_unmasking_are_inverse():
    rng = np.random.default_rng(0)
    z = {c: rng.integers(0, 1 << 64, (3, 2), dtype=np.uint64) for c in "ab"}
    mask = rng.integers(0, 1 << 64, (3, 2), dtype=np.uint64)
    keep = np.array([0, 2])
    before = z["a"].copy()
    upload = mask_upload(z["a"], {"b": mask}, keep)
    assert np.array_equal(upload, (z["a"] + mask)[keep])
    got = unmask_block(upload, z["b"], {"a": np.uint64(0) - mask}, keep)
    assert np.array_equal(got, (z["a"] + z["b"])[keep])
    assert np.array_equal(z["a"], before)


# A limit that the module states


def test_limit_server_and_owner_together_learn_a_late_clients_part(monkeypatch):
    """Argued in the module: two attempts of which the first was complete differ by one client."""
    values, rows = problem(4, 6)
    uploads, masks = [], []

    def spying(session, clients, lab, shape):
        got = pair_masks(session, clients, lab, shape)
        if session.io.name == "c0":  # the colluding owner
            masks.append(got)
        return got

    async def server(session, owned, columns, clients, at_least=2):
        io = session.io
        for part in (EVERYBODY, EVERYBODY[:3]):  # c3's upload "came too late"
            await io.send(EVERYBODY, round_of(False, *part))
            sizes = {c: len(rows_of_others(owned, part, c)) for c in part}
            got = await io.gather(RowSumsUpload, part, rows=sizes, columns=columns, modulus=1 << 64)
            uploads.append((part, {c: m.values for c, m in got.items()}))
        return

    monkeypatch.setattr(row_sums_module, "pair_masks", spying)
    outcome = run(row_sums(values, rows, server=server))
    assert isinstance(outcome.errors["c3"], Excluded)
    sums = []
    for (part, got), own_masks in zip(uploads, masks, strict=True):
        total = row_sums_module.sum_uploads(
            {c: got[c] for c in part}, {c: rows[c] for c in rows}, 6, 2
        )
        sums.append(
            unmask_block(total[rows["c0"]], np.zeros((6, 2), np.uint64), own_masks, rows["c0"])
        )
    learned = FixedPoint(BITS, parties=4).decode(sums[0] - sums[1])
    assert len(rows["c0"]) > 0
    assert np.allclose(learned, values["c3"][rows["c0"]], atol=2.0**-BITS)
