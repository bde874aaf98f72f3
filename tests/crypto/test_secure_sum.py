"""SecureSum: exact sums, dropouts anywhere, and servers and clients that cheat."""

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import assert_blames, losing, on_the_last_link, secure_sum, with_session
from sum_checks import a_graph, codec_for, exact, names, right_sum, same, sent

from xclp_crypto.errors import (
    DataError,
    EncodingOverflow,
    Excluded,
    FaultyPeer,
    ParameterError,
    ReuseError,
    Stalled,
    TooFewParties,
)
from xclp_crypto.params import MAX_UPLOAD_BYTES
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.primitives.shamir import Share
from xclp_crypto.protocols.secure_sum import (
    MaskGraph,
    double_masks,
    ideal_sum_client,
    ideal_sum_server,
    secure_sum_client,
    secure_sum_server,
)
from xclp_crypto.protocols.secure_sum import secure_sum as secure_sum_module
from xclp_crypto.protocols.secure_sum.costs import sum_bytes
from xclp_crypto.protocols.secure_sum.double_masks import (
    ClientMasks,
    ServerMasks,
    SumClients,
    SumReady,
    SumReveal,
    open_masks,
    strip_masks,
)
from xclp_crypto.protocols.secure_sum.secure_sum import PURPOSE, SumUpload, check_upload, sum_tag
from xclp_crypto.protocols.secure_sum.survivors import (
    Participants,
    SumMasked,
    SumSignatures,
    SumSigned,
    SumSurvivors,
    client_set,
)
from xclp_crypto.protocols.secure_sum.terms import sum_terms
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import blamed, every_corruption, every_dropout, run
from xclp_crypto.transport.simulate import Faults

MODULI = [17, 256, 10007, 1 << 32, (1 << 32) - 5, (1 << 61) - 1, 1 << 64]
SHAPES = [(), (0,), (1,), (5,), (2, 3), (3, 0), (2, 2, 2)]


def problem(p, shape=(3,), seed=0, modulus=1 << 64, fraction_bits=20):
    """Values as large as the codec allows, by client."""
    codec = FixedPoint(fraction_bits, p, modulus)
    rng = np.random.default_rng([p, seed])
    top = min(codec.max_abs, 1000.0)
    return {c: np.asarray(rng.uniform(-top, top, shape)) for c in names(p)}


# Sums


@settings(deadline=None, max_examples=40)
@given(
    p=st.integers(2, 7),
    shape=st.sampled_from(SHAPES),
    modulus=st.sampled_from(MODULI),
    seed=st.integers(0, 1 << 32),
    data=st.data(),
)
def test_sums_are_exact_and_equal_the_ideal_twin_and_take_the_bytes_of_the_formula(
    p, shape, modulus, seed, data
):
    top = ((modulus - 1) // 2).bit_length() - 1
    fraction_bits = data.draw(st.integers(0, min(top, 40)))
    values = problem(p, shape, seed, modulus, fraction_bits)
    graph = a_graph(names(p), np.random.default_rng(seed))
    how = {"graph": graph, "modulus": modulus, "fraction_bits": fraction_bits, "seed": seed}
    outcome = run(secure_sum(values, **how)).raise_errors()
    twin = run(
        secure_sum(values, **how, client=ideal_sum_client, server=ideal_sum_server)
    ).raise_errors()
    codec = codec_for(values, fraction_bits, modulus)
    assert right_sum(outcome, values, codec, graph, how) == names(p)
    found = outcome.results[SERVER]
    assert same(found.total, twin.results[SERVER].total)
    assert found.record == twin.results[SERVER].record
    assert found.record.dropouts == {}
    truth = np.sum(list(values.values()), axis=0)
    assert np.abs(found.total - truth).max(initial=0) <= codec.error_bound + 1e-12
    assert not outcome.unread
    # Who is whose neighbour depends on the label, but not how many bytes go how often.
    metered = Counter()
    for traffic, count in outcome.cost.bytes_sent.items():
        if traffic.step == "sum":
            metered[traffic.sender, traffic.receiver] += count
    formula = sum_bytes(graph, int(np.prod(shape)), modulus)
    with_server = {link: n for link, n in formula.items() if SERVER in link}
    assert {link: n for link, n in metered.items() if SERVER in link} == with_server
    assert Counter(metered.values()) == Counter(formula.values())


@pytest.mark.parametrize("kind", [np.float32, np.int8, np.int32, np.uint64, bool])
def test_values_of_any_real_type_are_summed(kind):
    values = {c: np.abs(v).astype(kind) for c, v in problem(3).items()}
    found = run(secure_sum(values)).raise_errors().results[SERVER]
    assert same(found.total, exact(values, values, codec_for(values)))


def test_user_case_a_sum_of_int32_inputs_10_000_times_700_000_does_not_overflow():
    values = {c: np.full((100, 100), 700_000, dtype=np.int32) for c in names(3)}
    found = run(secure_sum(values, fraction_bits=0)).raise_errors().results[SERVER]
    assert (found.total == 2_100_000).all()
    assert found.total.sum() == 10_000 * 2_100_000
    large = {c: np.int32(1 << 30) for c in names(5)}  # the sum is not an int32
    assert run(secure_sum(large)).raise_errors().results[SERVER].total == 5 << 30


@pytest.mark.parametrize("p", [2, 3, 7, 20, 50])
def test_user_case_decoding_is_right_for_2_to_50_clients_and_after_a_drop(p):
    sparse = p > 20
    values = {c: np.array([-1.5, k + 0.25]) for k, c in enumerate(names(p))}
    graph = MaskGraph(names(p), 2, 8, 4) if sparse else MaskGraph.complete(names(p), 2)
    codec = codec_for(values)
    outcome = run(secure_sum(values, graph=graph)).raise_errors()
    assert right_sum(outcome, values, codec, graph, p) == names(p)
    if p > 2:
        outcome = run(secure_sum(values, graph=graph), Faults(dropouts={"c1": "upload"}))
        survivors = right_sum(outcome.raise_errors(), values, codec, graph, p)
        assert survivors == tuple(c for c in names(p) if c != "c1")
        assert outcome.results[SERVER].total[0] == -1.5 * (p - 1)
        assert outcome.results[SERVER].record.dropouts == {"c1": "upload"}


def test_user_case_10_clients_of_2_to_the_29_modulo_2_to_the_32_are_refused_unsent():
    values = {c: np.array([1 << 29]) for c in names(10)}
    outcome = run(secure_sum(values, fraction_bits=0, modulus=1 << 32))
    for client in values:
        error = outcome.errors[client]
        assert type(error) is EncodingOverflow
        assert "this one needs a modulus of 2^34" in str(error)
    assert sent(outcome, "SumShares") == sent(outcome, "SumUpload") == 0
    enough = run(secure_sum(values, fraction_bits=0, modulus=1 << 34)).raise_errors()
    assert enough.results[SERVER].total == 10 << 29


@pytest.mark.parametrize(
    ("bad", "error"), [(np.nan, DataError), (-np.inf, DataError), (1e300, EncodingOverflow)]
)
def test_user_case_nan_infinity_and_overflow_are_refused_unsent_naming_row_and_column(bad, error):
    values = problem(4, (3, 2))
    values["c1"][2, 1] = bad
    outcome = run(secure_sum(values))
    assert type(outcome.errors["c1"]) is error
    assert str(outcome.errors["c1"]).startswith("client 'c1': row 2, column 1")
    assert not any(t.sender == "c1" and t.step == "sum" for t in outcome.cost.bytes_sent)
    assert outcome.results[SERVER].record.survivors == ("c0", "c2", "c3")
    assert outcome.results[SERVER].record.dropouts == {"c1": "share"}


@pytest.mark.parametrize("modulus", [1 << 64, 1 << 32, 251])
def test_user_case_a_3_gb_message_is_refused_early_with_advice(modulus):
    per_value = {1 << 64: 8, 1 << 32: 4, 251: 1}[modulus]
    count = 3_000_000_000 // per_value
    with pytest.raises(ParameterError, match=r"too many for one upload: .* in several parts"):
        check_upload(count, modulus)
    largest = MAX_UPLOAD_BYTES // per_value
    check_upload(largest, modulus)
    with pytest.raises(ParameterError, match=f"at most {largest:,} of {per_value} bytes"):
        check_upload(largest + 1, modulus)


def test_user_case_a_message_too_long_is_refused_by_all_before_anything_is_sent(monkeypatch):
    monkeypatch.setattr(secure_sum_module, "MAX_UPLOAD_BYTES", 8 * 100)
    values = {c: np.zeros(101) for c in names(3)}
    outcome = run(secure_sum(values))
    assert {type(e) for e in outcome.errors.values()} == {ParameterError}
    assert set(outcome.errors) == {*names(3), SERVER}
    assert not any(t.step == "sum" for t in outcome.cost.messages)
    run(secure_sum({c: np.zeros(100) for c in names(3)})).raise_errors()


def test_user_case_messages_of_6_5_mb_are_summed():
    values = {c: np.arange(812_500) % 1000 * (k + 1) for k, c in enumerate(names(3))}
    outcome = run(secure_sum(values, fraction_bits=0)).raise_errors()
    assert np.array_equal(outcome.results[SERVER].total, 6 * (np.arange(812_500) % 1000))
    assert max(outcome.cost.bytes_sent.values()) == 6_500_000 + 20


def test_two_sums_in_one_session_need_two_purposes():
    values = problem(3)
    graph, codec = MaskGraph.complete(names(3)), codec_for(values)

    def sums(*purposes):
        async def client(session, rng):
            own = values[session.io.name]
            for purpose in purposes:
                await secure_sum_client(session, own, codec, graph, rng, purpose)

        async def server(session, rng):
            return [await secure_sum_server(session, (3,), codec, graph, p) for p in purposes]

        return with_session(names(3), client, server)

    for found in run(sums("first", "second")).raise_errors().results[SERVER]:
        assert same(found.total, exact(values, values, codec))
    errors = run(sums("first", "first")).errors
    assert {type(errors[c]) for c in values} == {ReuseError}


def test_a_client_that_drops_out_of_one_sum_is_left_out_of_the_next():
    values = problem(4)
    graph, codec = MaskGraph.complete(names(4)), codec_for(values)

    async def client(session, rng):
        for purpose in ("first", "second"):
            with session.io.step(purpose):
                await secure_sum_client(
                    session, values[session.io.name], codec, graph, rng, purpose
                )

    async def server(session, rng):
        return [
            await secure_sum_server(session, (3,), codec, graph, purpose)
            for purpose in ("first", "second")
        ]

    for kind in ("dropouts", "away"):
        faults = Faults(**{kind: {"c1": "upload"}})
        outcome = run(with_session(names(4), client, server), faults)
        first, second = outcome.results[SERVER]
        assert first.record.dropouts == {"c1": "upload"}
        assert second.record.dropouts == {"c1": "share"}
        left = ("c0", "c2", "c3")
        for found in (first, second):
            assert found.record.survivors == left
            assert same(found.total, exact(values, left, codec))


# Dropouts


@pytest.mark.parametrize("threshold", [3, 4])
def test_every_dropout_gives_the_sum_over_the_survivors_or_reveals_nothing(threshold):
    values = problem(4)
    graph, codec = MaskGraph.complete(names(4), threshold), codec_for(values)
    stages = Counter()
    parties = [*(values if threshold == 3 else ["c1"]), SERVER]
    for case in every_dropout(secure_sum(values, graph=graph), parties):
        survivors = right_sum(case.outcome, values, codec, graph, case)
        if case.party == SERVER:
            assert set(case.outcome.results) | set(case.outcome.errors) == set(values), case
            continue
        left = {c for c in values if c != case.party}
        if threshold == 4:
            # Only a client that had revealed already is not needed any more.
            assert isinstance(case.outcome.errors[SERVER], TooFewParties), case
            stages["stopped"] += 1
            continue
        assert not case.outcome.errors, case
        assert left <= set(survivors), case
        record = case.outcome.results[SERVER].record
        assert set(record.dropouts) <= {case.party}, case
        stage = record.dropouts.get(case.party)
        assert (case.party in survivors) == (stage in (None, "reveal")), case
        stages[stage] += 1
    if threshold < 4:
        assert set(stages) == {"setup", "share", "upload", "reveal"}


@pytest.mark.parametrize("threshold", [3, 4])
def test_every_client_that_is_cut_off_anywhere_and_comes_back_ends_rightly(threshold):
    values = problem(4)
    graph, codec = MaskGraph.complete(names(4), threshold), codec_for(values)
    make = secure_sum(values, graph=graph)
    kinds = Counter()
    clients = names(4) if threshold == 3 else ["c1"]
    for client, after in product(clients, range(run(make).operations["c0"])):
        outcome = run(make, Faults(away={client: after}))
        survivors = right_sum(outcome, values, codec, graph, (client, after))
        assert outcome.returned == (client,)
        if survivors is None:
            assert threshold == 4
            continue
        assert set(outcome.errors) <= {client}
        if client not in survivors:
            # It learns that the others went on without it, and reveals nothing.
            assert sent(outcome, "SumReveal", client) == 0
            assert isinstance(outcome.errors[client], Excluded), after
            kinds[type(outcome.errors[client])] += 1
        else:
            kinds["in the sum"] += 1
    if threshold < 4:
        assert kinds[Excluded] > 0
        assert kinds["in the sum"] > 0


@pytest.mark.parametrize("threshold", [2, 3])
def test_every_two_clients_dropped_in_any_two_stages_end_rightly(threshold):
    values = problem(4)
    graph, codec = MaskGraph.complete(names(4), threshold), codec_for(values)
    make = secure_sum(values, graph=graph)
    stages = ("setup", "share", "upload", "reveal")
    for pair, when in product(combinations(values, 2), product(stages, repeat=2)):
        drop = dict(zip(pair, when, strict=True))
        outcome = run(make, Faults(dropouts=drop))
        survivors = right_sum(outcome, values, codec, graph, drop)
        if threshold == 2:
            expected = tuple(c for c in values if drop.get(c, "reveal") == "reveal")
            assert survivors == expected, drop
        else:
            assert survivors is None, drop
            assert isinstance(outcome.errors[SERVER], TooFewParties), drop


def test_every_dropout_in_a_sparse_graph_ends_rightly():
    values = problem(7)
    graph, codec = MaskGraph(names(7), 4, 4, 3), codec_for(values)
    for case in every_dropout(secure_sum(values, graph=graph), ["c2"]):
        survivors = right_sum(case.outcome, values, codec, graph, case)
        assert not case.outcome.errors
        assert len(survivors) >= 6


# Below the threshold


@pytest.mark.parametrize("stage", ["setup", "share", "upload", "reveal"])
@pytest.mark.parametrize("threshold", [3, 4, 5])
def test_user_case_below_the_threshold_the_protocol_stops_and_reveals_nothing(threshold, stage):
    values = problem(5)
    graph = MaskGraph.complete(names(5), threshold)
    out = names(5)[: 5 - threshold + 1]
    outcome = run(secure_sum(values, graph=graph), Faults(dropouts=dict.fromkeys(out, stage)))
    assert SERVER not in outcome.results
    assert isinstance(outcome.errors[SERVER], TooFewParties)
    assert "nothing was revealed" in str(outcome.errors[SERVER])
    assert sent(outcome, "SumReveal") == 0
    # And with one client more, the sum is there.
    outcome = run(secure_sum(values, graph=graph), Faults(dropouts=dict.fromkeys(out[1:], stage)))
    assert right_sum(outcome, values, codec_for(values), graph, stage) is not None
    assert sent(outcome, "SumReveal") >= threshold


def test_in_a_sparse_graph_a_client_without_enough_neighbours_stops_the_sum():
    values = problem(7)
    graph = MaskGraph(names(7), 2, 2, 3)
    for stage in ("share", "upload", "reveal"):
        outcome = run(secure_sum(values, graph=graph), Faults(dropouts={"c3": stage}))
        assert isinstance(outcome.errors[SERVER], TooFewParties)
        # Whose shares are all there cannot be told by a client: some reveal, but never enough.
        assert sent(outcome, "SumReveal") == 0 or stage == "reveal"


# Corruptions


def test_every_corruption_gives_the_right_sum_or_names_an_end_of_the_link():
    values = problem(3)
    graph, codec = MaskGraph.complete(names(3), 2), codec_for(values)
    make = secure_sum(values, graph=graph)
    chosen = on_the_last_link(make)
    cases = 0
    for case in every_corruption(make, which=lambda d: d.step == "sum" and chosen(d)):
        cases += 1
        ends = {case.delivery.sender, case.delivery.receiver}
        right_sum(case.outcome, values, codec, graph, case)
        for error in case.outcome.errors.values():
            assert not blamed(error) or blamed(error) & ends, (case, error)
        if case.tamper != "lost":
            assert any(blamed(e) & ends for e in case.outcome.errors.values()), case
    assert cases > 7 * 12  # types of messages


# A server that cheats


def cheating(script, *, graph=None, values=None):
    """Honest clients with a server that follows `script(session, graph, masks)` once it is open."""
    values = values or problem(4)
    graph = graph or MaskGraph.complete(tuple(values))

    async def server(session, shape, codec, graph, clients):
        tag = sum_tag(session, "sum", graph)
        return await script(session, graph, tag)

    return secure_sum(values, graph=graph, server=server)


async def collect(session, graph, tag):
    """The honest part up to the uploads."""
    codec = FixedPoint(20, len(graph.clients))
    terms = sum_terms(SERVER, graph, codec, "sum", shape=(3,))
    masks = await open_masks(session, graph, tag, terms, session.clients)
    masked = await masks.participants.gather_signed(session)
    await session.io.gather(
        SumUpload, masks.clients, graph.threshold, rows=3, columns=1, modulus=1 << 64
    )
    return masks, masked


def survivors(graph, *clients):
    return SumSurvivors(client_set(graph, clients))


def named(outcome, client):
    """The server is blamed by this client, which revealed nothing."""
    error = outcome.errors[client]
    assert_blames(error, (SERVER,))
    assert sent(outcome, "SumReveal", client) == 0
    return str(error)


def test_a_server_that_names_survivors_that_did_not_take_part_is_named():
    async def script(session, graph, tag):
        await collect(session, graph, tag)
        await session.io.send(("c0", "c1", "c2"), survivors(graph, *names(4)))

    outcome = run(cheating(script), Faults(dropouts={"c3": "share"}))
    for client in ("c0", "c1", "c2"):
        assert "survivors that did not take part" in named(outcome, client)


def test_a_server_that_names_too_few_survivors_is_named():
    async def script(session, graph, tag):
        await collect(session, graph, tag)
        await session.io.send(names(4), survivors(graph, "c0", "c1"))

    outcome = run(cheating(script))
    for client in names(4):
        assert "2 clients, below the threshold of 3" in named(outcome, client)


def test_a_server_that_counts_a_client_whose_shares_did_not_arrive_is_named():
    async def script(session, graph, tag):
        near = graph.neighbours(tag)
        await session.io.gather(SumReady, names(4), neighbours={c: len(near[c]) for c in near})
        await session.io.send(names(4), SumClients(client_set(graph, names(4))))

    lost = losing("Sealed[SumShares]", ("c3", "c0"))
    outcome = run(cheating(script), lost)
    assert "counts c3, whose shares did not arrive at c0" in named(outcome, "c0")
    assert sent(outcome, "SumUpload", "c0") == 0
    assert sent(outcome, "SumUpload", "c1") == 1
    # An honest server leaves one of the two out, and the sum is right.
    values = problem(4)
    outcome = run(secure_sum(values), lost)
    graph = MaskGraph.complete(names(4))
    assert len(right_sum(outcome, values, codec_for(values), graph, "lost")) == 3
    assert [type(e) for e in outcome.errors.values()] == [Excluded]  # it is told, and blames nobody


def test_clients_that_have_no_shares_of_each_other_do_not_reach_the_threshold():
    """All of them are ready, and no three have the shares of each other."""
    lost = losing("Sealed[SumShares]", ("c0", "c1"), ("c2", "c3"), ("c1", "c2"))
    outcome = run(secure_sum(problem(4), graph=MaskGraph.complete(names(4), 3)), lost)
    error = outcome.errors[SERVER]
    assert isinstance(error, TooFewParties)
    assert (error.step, error.needed) == ("sum", 3)
    assert error.present < 3
    assert sent(outcome, "SumUpload") == 0


@pytest.mark.parametrize("chosen", [["c0"], ["c0", "c1"], []])
def test_a_server_that_starts_with_too_few_clients_gets_no_upload(chosen):
    async def script(session, graph, tag):
        await session.io.send(names(4), SumClients(client_set(graph, chosen)))

    outcome = run(cheating(script))
    for client in names(4):
        if client in chosen:
            assert f"starts a sum of {len(chosen)} clients" in named(outcome, client)
        else:
            assert isinstance(outcome.errors[client], Excluded)
    assert sent(outcome, "SumUpload") == 0


def test_a_server_that_counts_a_client_that_is_not_in_the_session_is_named():
    async def script(session, graph, tag):
        await session.io.send(("c0", "c1", "c2"), SumClients(client_set(graph, names(4))))

    outcome = run(cheating(script), Faults(dropouts={"c3": 0}))
    assert "starts a sum of 4 clients" in named(outcome, "c0")


def test_a_server_that_leaves_out_a_clients_neighbours_gets_no_upload():
    """The upload would have few masks, and the neighbours hold the shares of the self mask."""
    graph = MaskGraph(names(9), 3, 4, 3)
    victim = "c4"

    async def script(session, graph, tag):
        near = graph.neighbours(tag)[victim]
        await session.io.send(victim, SumClients(client_set(graph, set(names(9)) - set(near[1:]))))

    outcome = run(cheating(script, graph=graph, values=problem(9)))
    assert "starts a sum with 1 neighbours of c4" in named(outcome, victim)
    assert sent(outcome, "SumUpload", victim) == 0


def test_a_server_that_asks_twice_for_different_survivors_gets_one_answer():
    async def script(session, graph, tag):
        masks, masked = await collect(session, graph, tag)
        counts = await name_survivors(session, masks, masked, {names(4): names(4)})
        await session.io.gather(SumReveal, names(4), count=counts)
        await session.io.send(names(4), survivors(graph, "c0", "c1", "c2"))
        await session.io.gather(SumSigned, names(3), 0)

    outcome = run(cheating(script)).raise_errors()
    for client in names(4):
        assert sent(outcome, "SumReveal", client) == sent(outcome, "SumSigned", client) == 1


def test_a_client_never_uses_its_masks_or_reveals_its_shares_twice():
    shares = {"c1": (b"k" * 37, b"s" * 37), "c0": (b"K" * 37, b"S" * 37)}
    masks = ClientMasks("c0", b"l" * 32, names(2), b"b" * 32, {"c1": b"p" * 32}, shares)
    total = np.zeros((4, 1), np.uint64)
    masks.mask(total, 1 << 64)
    with pytest.raises(ReuseError, match="the masks of c0 in this sum were used already"):
        masks.mask(total, 1 << 64)
    assert masks.reveal(names(1)) == (b"k" * 37, b"S" * 37)
    for again in (names(1), names(2)):
        with pytest.raises(ReuseError, match="c0 revealed its shares of this sum already"):
            masks.reveal(again)


def test_a_client_signs_survivors_once():
    async def client(session, values, codec, graph, rng):
        participants = Participants(graph, b"tag", names(4))
        with pytest.raises(Stalled):
            await participants.agree_on(session, names(4), ())
        with pytest.raises(ReuseError, match="signed survivors of a sum' was already used"):
            await participants.agree_on(session, names(3), ())

    async def server(session, *others, **how):
        return None

    run(secure_sum(problem(4), client=client, server=server)).raise_errors()


async def name_survivors(session, masks, masked, told):
    """Tell groups of clients of these survivors, and show each as many signatures as there are.

    What is missing is made up with signatures of other sets. Returns how many shares each reveals.
    """
    graph, io = masks.graph, session.io
    for group, named in told.items():
        await io.send(group, survivors(graph, *named))
    asked = [c for group in told for c in group]
    signed = {c: m.signature for c, m in (await io.gather(SumSigned, asked, 0)).items()}
    for group, named in told.items():
        found = [*(c for c in group if c in signed), *(c for c in signed if c not in group)]
        signers = sorted(found[: graph.signatures], key=graph.clients.index)
        shown = tuple(signed[c] for c in signers)
        for client in group:
            near = tuple(masked[c] for c in masks.neighbours[client] if c in named)
            await io.send(client, SumSignatures(client_set(graph, signers), shown, near))
    return {c: len(masks.neighbours[c]) + 1 for c in asked}


def split(told):
    """A server that names different survivors to different clients; returns what it gets.

    That are shares of either secret of the last client.
    """

    async def script(session, graph, tag):
        masks, masked = await collect(session, graph, tag)
        counts = await name_survivors(session, masks, masked, told)
        got = await session.io.gather(SumReveal, tuple(counts), 0, count=counts)
        last = graph.clients[-1]
        holders = set(masks.neighbours[last])
        revealed = {"seed": 0, "key": 0}
        for group, named in told.items():
            revealed["seed" if last in named else "key"] += len(holders & set(group) & set(got))
        return revealed

    return script


@pytest.mark.parametrize(
    ("graph", "both"),
    [
        (MaskGraph.complete(names(5), 2), True),
        (MaskGraph.complete(names(5), 3), False),
        (MaskGraph.complete(names(5), 4), False),
        (MaskGraph.sparse(names(42)), False),
        (MaskGraph.sparse(names(42), 2), False),
    ],
    ids=["2 of 5", "3 of 5", "4 of 5", "42, sparse", "42, sparse, with the least threshold"],
)
def test_limit_a_server_gets_both_secrets_only_if_two_sets_have_enough_signatures(graph, both):
    """T = 2 of 5 clients is below a majority; in a sparse graph t is, and T is not."""
    others = graph.clients[:-1]
    told = {others[::2]: graph.clients, others[1::2]: others}
    values = problem(len(graph.clients))
    outcome = run(cheating(split(told), graph=graph, values=values))
    revealed, t = outcome.results[SERVER], graph.share_threshold
    assert (min(revealed.values()) >= t) == both
    if not both:
        assert all(len(group) >= t for group in told) or graph.degree == 4  # who would reveal
        assert sent(outcome, "SumReveal") == 0
        for client in others:
            assert "shows a wrong signature of" in named(outcome, client)


@pytest.mark.parametrize("p", [42, 101, 700])
@pytest.mark.parametrize("threshold", [None, 3, 0.5])
def test_in_sparse_graphs_no_two_sets_of_survivors_have_enough_signatures(p, threshold):
    threshold = p // 2 + 1 if threshold == 0.5 else threshold
    graph = MaskGraph.sparse(names(p), threshold)
    assert graph.degree < p - 1
    assert 2 * graph.share_threshold <= graph.degree + 1 + graph.colluding  # t alone would not do
    assert graph.colluding == math.ceil(p / 10)
    assert 2 * graph.signatures > p + graph.colluding
    assert 2 * (graph.signatures - 1) <= p + graph.colluding
    assert graph.threshold == max(graph.signatures, threshold or p - math.ceil(p / 10))


def test_different_participants_for_different_clients_are_noticed_and_nobody_reveals():
    """Otherwise masks between clients that were told differently would not cancel."""
    graph = MaskGraph.complete(names(5), 3)

    async def script(session, graph, tag):
        near = graph.neighbours(tag)
        ready = await session.io.gather(
            SumReady, names(5), neighbours={c: len(near[c]) for c in near}
        )
        for told, group in ((names(5), names(2)), (names(4), ("c2", "c3"))):
            await session.io.send(group, SumClients(client_set(graph, told)))
        masks = ServerMasks(graph, tag, {c: ready[c] for c in names(4)})
        got = await session.io.gather(SumMasked, names(4))
        masked = {c: m.signature for c, m in got.items()}
        await session.io.gather(SumUpload, names(4), rows=3, columns=1, modulus=1 << 64)
        await name_survivors(session, masks, masked, {names(4): names(4)})

    outcome = run(cheating(script, graph=graph, values=problem(5)))
    for client in names(4):
        assert "shows a wrong signature of" in named(outcome, client)


@pytest.mark.parametrize("verified", [True, False])
def test_a_server_that_tells_one_client_of_few_neighbours_gets_no_shares_of_it(
    monkeypatch, verified
):
    """It says to all others that those few dropped out; unless they verify, it reads an upload."""
    graph, victim = MaskGraph(names(9), 5, 4, 2), "c4"
    values = problem(9)
    require = Participants._require

    async def not_of_participants(self, session, signatures, survivors=None, shown_by=None):
        if survivors is not None:
            await require(self, session, signatures, survivors, shown_by)

    if not verified:
        monkeypatch.setattr(Participants, "_require", not_of_participants)

    async def script(session, graph, tag):
        near = graph.neighbours(tag)
        masked_with, *others = near[victim]
        honest = session.io.send

        async def send(to, message):
            await honest([c for c in to if c != victim], message)
            told = set(graph.clients) - set(others)
            await honest(victim, SumClients(client_set(graph, told)))

        session.io.send = send
        terms = sum_terms(SERVER, graph, FixedPoint(20, 9), "sum", shape=(3,))
        masks = await open_masks(session, graph, tag, terms, session.clients)
        session.io.send = honest
        got = await session.io.gather(SumMasked, masks.clients)
        dims = {"rows": 3, "columns": 1, "modulus": 1 << 64}
        uploads = await session.io.gather(SumUpload, masks.clients, **dims)
        left = tuple(c for c in graph.clients if c != masked_with)
        asked = tuple(c for c in left if c != victim)
        signed = {c: m.signature for c, m in got.items()}
        counts = await name_survivors(session, masks, signed, {asked: left})
        reveals = await session.io.gather(SumReveal, asked, 0, count=counts)
        if len(reveals) < len(asked):
            return {*asked} - {*reveals}, {*others}
        total = uploads[victim].values
        for client in (victim, masked_with):
            shares = [
                Share.decode(share)
                for holder, message in reveals.items()
                for c, share in zip((*near[holder], holder), message.shares, strict=True)
                if c == client
            ]
            strip_masks(masks, client, shares, {victim}, total, 1 << 64, {})
        return FixedPoint(20, 9).decode(total[:, 0])

    outcome = run(cheating(script, graph=graph, values=values))
    if verified:
        silent, others = outcome.results[SERVER]
        assert silent == others
        for client in others:
            assert f"shows a wrong signature of {victim}: signed participants" in named(
                outcome, client
            )
    else:
        assert same(outcome.results[SERVER], exact(values, [victim], FixedPoint(20, 9)))


SHOWN = {
    "a wrong one": lambda m: replace(m, survived=(bytes(64), *m.survived[1:])),
    "one twice": lambda m: replace(m, survived=(m.survived[0],) * len(m.survived)),
    "one of participants": lambda m: replace(m, survived=(m.masked[0], *m.survived[1:])),
    "those of others": lambda m: replace(m, signers=np.roll(m.signers, 1)),
    "too few signers": lambda m: replace(m, signers=m.signers & (np.arange(4) > 0)),
    "a neighbour's wrong one": lambda m: replace(m, masked=(bytes(64), *m.masked[1:])),
}


@pytest.mark.parametrize("wrong", SHOWN)
def test_a_server_that_shows_other_signatures_than_it_has_is_named(wrong):
    async def server(session, shape, codec, graph, clients):
        honest = session.io.send

        async def send(to, message):
            shown = SHOWN[wrong](message) if isinstance(message, SumSignatures) else message
            await honest(to, shown)

        session.io.send = send
        await secure_sum_server(session, shape, codec, graph, clients=clients)

    outcome = run(secure_sum(problem(4), server=server))
    for client in names(4):
        assert "signature" in named(outcome, client)


@pytest.mark.parametrize("kind", [SumMasked, SumSigned], ids=lambda kind: kind.__name__)
def test_a_client_that_signs_anything_else_is_named(kind):
    async def client(session, own, codec, graph, rng):
        honest = session.io.send

        async def send(to, message):
            if isinstance(message, kind) and session.io.name == "c1":
                message = kind(session.sign("something else"))
            await honest(to, message)

        session.io.send = send
        await secure_sum_client(session, own, codec, graph, rng)

    outcome = run(secure_sum(problem(4), client=client))
    assert_blames(outcome.errors[SERVER], ("c1",), "shows a wrong signature: signed")
    assert sent(outcome, "SumReveal") == 0


# Clients that cheat


def dealing(monkeypatch, cheat, alter):
    """Let `cheat` deal what `alter` makes of its shares, by holder."""
    original = double_masks._deal

    def deal(graph, to, *others):
        dealt = original(graph, to, *others)
        return alter(dealt) if to[-1] == cheat else dealt

    monkeypatch.setattr(double_masks, "_deal", deal)


def changed(share, **fields):
    old = Share.decode(share)
    return Share(
        **{"index": old.index, "threshold": old.threshold, "value": old.value, **fields}
    ).encode()


WRONG_SHARES = {
    "the index of another holder": lambda s: changed(s, index=3),
    "another threshold": lambda s: changed(s, threshold=2),
    "index zero": lambda s: bytes(2) + s[2:],
    "threshold zero": lambda s: s[:2] + bytes(2) + s[4:],
    "a value outside of the field": lambda s: s[:4] + b"\xff" * 33,
}


@pytest.mark.parametrize("which", [0, 1], ids=["key", "seed"])
@pytest.mark.parametrize("wrong", WRONG_SHARES)
def test_user_case_a_client_that_deals_a_wrong_share_is_named_by_its_holder(
    monkeypatch, wrong, which
):
    def alter(dealt):
        pair = list(dealt["c0"])
        pair[which] = WRONG_SHARES[wrong](pair[which])
        return {**dealt, "c0": tuple(pair)}

    dealing(monkeypatch, "c1", alter)
    values = problem(4)
    outcome = run(secure_sum(values))
    assert_blames(outcome.errors["c0"], ("c1",))
    graph = MaskGraph.complete(names(4))
    assert right_sum(outcome, values, codec_for(values), graph, wrong) == ("c1", "c2", "c3")


@pytest.mark.parametrize("which", [0, 1], ids=["key", "seed"])
def test_a_client_whose_shares_give_another_secret_than_it_announced_is_named(monkeypatch, which):
    """They belong together, so that the image alone tells."""
    other = double_masks.share_secret(b"\1" * 32, 3, [1, 2, 3, 4, 5], SeededRng(9))

    def alter(dealt):
        shares = {c: [*pair] for c, pair in dealt.items()}
        for client, share in zip(names(5), other, strict=True):
            shares[client][which] = share.encode()
        return shares

    dealing(monkeypatch, "c1", alter)
    make = secure_sum(problem(5), graph=MaskGraph.complete(names(5), 3))
    needed, other_end = Faults(dropouts={"c1": "upload"}), Faults()
    if which == 1:
        needed, other_end = other_end, needed
    run(make, other_end).raise_errors()  # of one that stays, the pad key is not needed
    error = run(make, needed).errors[SERVER]
    assert type(error) is FaultyPeer
    assert "c1's shares give another secret than its image is of" in str(error)
    assert error.parties[0] == "c1"


def test_limit_a_client_that_drops_out_after_wrong_pads_spoils_the_sum_and_nobody_is_named():
    """As it could by its upload; only the other end of a pair knows the right key."""

    async def client(session, own, codec, graph, rng):
        honest = session.io.send

        async def send(to, message):
            if isinstance(message, SumReady) and session.io.name == "c3":
                wrong = message.padded_keys.copy()
                wrong[0, 0] ^= 1
                message = replace(message, padded_keys=wrong)
            await honest(to, message)

        session.io.send = send
        await secure_sum_client(session, own, codec, graph, rng)

    values = problem(4)
    right = run(secure_sum(values, client=client)).raise_errors().results[SERVER].total
    assert same(right, exact(values, names(4), codec_for(values)))  # its pads are not needed
    outcome = run(secure_sum(values, client=client), Faults(dropouts={"c3": "upload"}))
    found = outcome.raise_errors().results[SERVER]
    assert found.record.survivors == names(3)
    assert not same(found.total, exact(values, names(3), codec_for(values)))


def test_shares_that_do_not_belong_together_name_who_dealt_and_who_revealed_them(monkeypatch):
    def alter(dealt):
        key, seed = dealt["c0"]
        return {**dealt, "c0": (key, changed(seed, value=5))}

    dealing(monkeypatch, "c1", alter)
    outcome = run(secure_sum(problem(5)))
    error = outcome.errors[SERVER]
    assert type(error) is FaultyPeer
    assert "c1's shares do not belong together" in str(error)
    assert error.parties[0] == "c1"  # who dealt them, and the holders, of whom one could have lied
    assert set(error.parties) == set(names(5))


@pytest.mark.parametrize("wrong", WRONG_SHARES)
def test_user_case_a_client_that_reveals_a_wrong_share_is_named_by_the_server(monkeypatch, wrong):
    original = ClientMasks.reveal

    def reveal(self, survivors):
        shares = original(self, survivors)
        if self._me == "c1":
            return (shares[0], WRONG_SHARES[wrong](shares[1]), *shares[2:])
        return shares

    monkeypatch.setattr(ClientMasks, "reveal", reveal)
    assert_blames(run(secure_sum(problem(4))).errors[SERVER], ("c1",))


def test_a_client_that_reveals_another_value_is_among_those_named(monkeypatch):
    original = ClientMasks.reveal

    def reveal(self, survivors):
        shares = original(self, survivors)
        if self._me == "c3":
            return (changed(shares[0], value=7), *shares[1:])
        return shares

    monkeypatch.setattr(ClientMasks, "reveal", reveal)
    error = run(secure_sum(problem(5))).errors[SERVER]
    assert type(error) is FaultyPeer
    assert "c3" in error.parties
    assert "c0's shares do not belong together" in str(error)


# Parties that were not given the same


def other(**options):
    """A client whose graph, codec or values are made by these functions of the honest ones."""

    async def client(session, values, codec, graph, rng):
        if session.io.name == "c1":
            values = options.get("values", lambda v: v)(values)
            codec = options.get("codec", lambda c: c)(codec)
            graph = options.get("graph", lambda g: g)(graph)
        purpose = options.get("purpose", PURPOSE) if session.io.name == "c1" else PURPOSE
        await secure_sum_client(session, values, codec, graph, rng, purpose)

    return client


DIFFERENT = {
    "fraction_bits": {"codec": lambda c: replace(c, fraction_bits=10)},
    "modulus": {"codec": lambda c: replace(c, modulus=1 << 63)},
    "shape": {"values": lambda v: v.reshape(3, 1)},
    "threshold": {"graph": lambda g: MaskGraph.complete(g.clients, 4)},
    "share_threshold": {"graph": lambda g: replace(g, share_threshold=2)},
    "clients": {"graph": lambda g: replace(g, clients=(*g.clients[:3], "c9"))},
    "clients (": {"graph": lambda g: replace(g, clients=g.clients[::-1])},
    "purpose": {"purpose": "another"},
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_a_client_with_another_codec_shape_or_graph_is_named_before_any_upload(field):
    """The sum would be silently scaled, or masks would not cancel."""
    outcome = run(secure_sum(problem(4), client=other(**DIFFERENT[field])))
    with pytest.raises(FaultyPeer) as first:
        outcome.raise_errors()
    assert first.value is outcome.errors.pop(SERVER)
    assert_blames(first.value, ("c1",), f"{field.split()[0]} (here ")
    assert {type(error) for error in outcome.errors.values()} == {Stalled}  # and so blame nobody
    assert sent(outcome, "SumUpload") == 0
    run(secure_sum(problem(4), client=other())).raise_errors()


def test_a_codec_for_fewer_parties_than_clients_is_refused_by_everybody():
    """With 4 values of 8 modulo 17 the total would be −2."""
    codec = FixedPoint(0, parties=1, modulus=17)
    graph = MaskGraph.complete(names(4))

    async def client(session, rng):
        await secure_sum_client(session, np.full(3, 8), codec, graph, rng)

    async def server(session, rng):
        return await secure_sum_server(session, (3,), codec, graph)

    outcome = run(with_session(names(4), client, server))
    assert set(outcome.errors) == {*names(4), SERVER}
    for error in outcome.errors.values():
        assert type(error) is ParameterError
        assert "the codec is for sums of 1 values and the mask graph has 4 clients" in str(error)


def test_a_client_that_its_graph_lacks_is_refused():
    graph = MaskGraph.complete(("c0", "c2"))
    outcome = run(secure_sum(problem(3), graph=graph))
    assert type(outcome.errors["c1"]) is ParameterError
    assert "'c1' is none of the clients of the mask graph: c0, c2" in str(outcome.errors["c1"])
    assert outcome.results[SERVER].record.survivors == ("c0", "c2")


@pytest.mark.parametrize("shape", [3, None, "3", (3.0,), (-1,), (None,)])
def test_a_shape_that_is_none_is_refused(shape):
    async def server(session, _, codec, graph, clients):
        await secure_sum_server(session, shape, codec, graph, clients=clients)

    error = run(secure_sum(problem(3), server=server)).errors[SERVER]
    assert type(error) is ParameterError
    assert "shape must be a tuple of integers ≥ 0, got" in str(error)
