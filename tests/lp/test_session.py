from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from protocol_runs import assert_blames, on_the_last_link
from scipy.sparse.csgraph import connected_components
from session_runs import (
    SEED,
    SMALL,
    Data,
    bits_of,
    blobs,
    check_outcome,
    client,
    expected_labels,
    federation,
    in_graph,
    no_mask,
    predictions,
    relabelled,
)

from xclp_crypto import wire
from xclp_crypto.errors import (
    DataError,
    DecodeError,
    FaultyPeer,
    ParameterError,
    ProtocolError,
    TooFewParties,
)
from xclp_crypto.primitives.identity import IdentityKey
from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse
from xclp_crypto.protocols.hamming import estimate, get_backend
from xclp_crypto.protocols.hamming.interface import column_ranges
from xclp_crypto.protocols.secure_sum import (
    ideal_row_sums_client,
    ideal_row_sums_server,
    keyed_masks,
    row_sums_recover,
)
from xclp_crypto.protocols.secure_sum.costs import row_sums_bytes
from xclp_crypto.protocols.setup import (
    SERVER,
    Identities,
    key_exchange_client,
    seed_agreement_client,
)
from xclp_crypto.protocols.setup.channel import Sealed, sealed_size
from xclp_crypto.protocols.setup.costs import key_exchange_bytes
from xclp_crypto.protocols.setup.seed_agreement import Confirm, Received, Roster, SeedShare
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import (
    TAMPERS,
    blamed,
    every_corruption,
    run,
    same_distribution,
    transcript_digest,
    uniformity,
    views,
)
from xclp_crypto.transport.driver import Role
from xclp_crypto.transport.simulate import Delivery, Faults
from xclp_lp import column_transfer, labelling, session
from xclp_lp.graph import neighbour_graph_from_bits
from xclp_lp.labelling import Participation
from xclp_lp.labels import UNLABELLED, one_hot
from xclp_lp.messages import Geometry, Influence, Labelled, Participants, Prepared, Reach
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import RELATIVE_RESOLUTION, RESOLUTION
from xclp_lp.propagation import pooled
from xclp_lp.session import ClientData, client_role


def dense_scores(
    bits: list[list[int]], codes: list[int], params: Parameters
) -> NDArray[np.float64]:
    """Algorithm 1 as it is printed, entry by entry, with a dense inverse."""
    n, n_bits = len(bits), params.n_bits
    B = np.zeros((n, n))
    for i in range(n):
        near = []
        for j in range(n):
            h = sum(a != b for a, b in zip(bits[i], bits[j], strict=True))
            if (i != j or params.include_self) and 2 * h < n_bits:
                near.append((h, j))
        near.sort()
        reach = near[: params.k]
        if params.ties == "all" and reach:
            reach = [(h, j) for h, j in near if h <= reach[-1][0]]
        for h, j in reach:
            B[i, j] = math.cos(math.pi * h / n_bits) ** params.gamma
    W = B + B.T
    degree = W.sum(axis=1)
    scale = np.array([1 / math.sqrt(d) if d > 0 else 0.0 for d in degree])
    S = np.linalg.inv(np.eye(n) - params.alpha * scale[:, None] * W * scale)
    Y = np.zeros((n, len(params.classes)))
    for i, code in enumerate(codes):
        if code != UNLABELLED:
            Y[i, code] = 1
    return S @ Y


def dense_rows(data: Data, params: Parameters) -> dict[str, list[NDArray[np.float64]]]:
    """The scores of every row; zeros for rows that are all zero."""
    bits = [b for own in data.values() for b in bits_of(own, params.n_bits).tolist()]
    codes = [c for own in data.values() for c in own.class_ids[in_graph(own)].tolist()]
    rows = iter(dense_scores(bits, codes, params))
    nothing = np.zeros(len(params.classes))
    return {
        name: [next(rows) if kept else nothing for kept in in_graph(own)]
        for name, own in data.items()
    }


def assert_predicts(scores: NDArray[np.float64], label: int, omega: float, p: Any) -> None:
    """Compare one row's prediction with its exact scores."""
    best = max(scores)
    if best <= RESOLUTION:
        assert (label, omega) == (UNLABELLED, 0)
        assert (p == 1 / len(scores)).all()
        return
    tied = best - max(RESOLUTION, RELATIVE_RESOLUTION * best)
    assert label == next(c for c, z in enumerate(scores) if z >= tied)
    exact = np.where(scores > RESOLUTION, scores, 0) / scores[scores > RESOLUTION].sum()
    # Columns are rounded to 2^-24 of each entry, scores to 2^-40.
    assert np.abs(p - exact).max() <= 2.0**-23 + 1e-8 / best
    entropy = -sum(q * math.log(q) for q in p if q > 0)
    expected = 1 - entropy / math.log(len(scores)) if len(scores) > 1 else 1
    assert omega == pytest.approx(expected, abs=1e-9)


@st.composite
def federations(
    draw: st.DrawFn,
    backends: Sequence[str] = ("plain", "masked"),
    sizes: st.SearchStrategy[int] = st.integers(0, 6),  # noqa: B008
    n_bits: Sequence[int] = (16, 64, 100),
    ties: Sequence[str] = ("all", "lowest-index"),
) -> tuple[Data, Parameters]:
    """A federation with zero rows, equal rows, opposite rows, and at least one usable label."""
    counts = draw(st.lists(sizes, min_size=2, max_size=4))
    counts[0] = max(counts[0], 2)
    d = draw(st.integers(1, 4))
    n_classes = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    small = draw(st.booleans())
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    data = {}
    for name, n in zip("abcd", counts, strict=False):
        v = rng.integers(-1, 2, (n, d)).astype(float) if small else rng.standard_normal((n, d))
        codes = np.where(rng.random(n) < share, rng.integers(0, n_classes, n), UNLABELLED)
        data[name] = client(v, codes)
    first = data["a"]
    first.vectors[:2] = 1.0 + np.arange(2)[:, None] * rng.integers(0, 2, d)
    first.class_ids[draw(st.integers(0, 1))] = draw(st.integers(0, n_classes - 1))
    usable = sum(int(in_graph(own).sum()) for own in data.values())
    params = Parameters(
        classes=tuple(range(n_classes)),
        n_bits=draw(st.sampled_from(n_bits)),
        k=draw(st.integers(1, min(usable - 1, 8))),
        alpha=draw(st.floats(0.05, 0.99)),
        gamma=draw(st.sampled_from([0.5, 1.0, 2.0, 3.7])),
        hamming=draw(st.sampled_from(backends)),
        include_self=draw(st.booleans()),
        ties=draw(st.sampled_from(ties)),
        class_weight="none",
        scale="none",
        validation="none",
    )
    return data, params


def assert_equals_pooled(data: Data, params: Parameters) -> None:
    outcome = run(federation(data, params)).raise_errors()
    rows = {name: int(in_graph(own).sum()) for name, own in data.items()}
    took_part = outcome.results.pop(SERVER)
    assert replace(took_part, geometry=None) == Participation(rows, tuple(data), ())
    assert all(found.geometry == took_part.geometry for found in outcome.results.values())
    assert not outcome.unread
    expected = expected_labels(data, params, tuple(data), tuple(data))
    dense = dense_rows(data, params)
    for name, prediction in outcome.results.items():
        assert prediction.class_ids.tolist() == expected[name].tolist()
        n = len(data[name].class_ids)
        assert prediction.class_ids.dtype == np.int64
        assert prediction.class_ids.shape == prediction.confidence.shape == (n,)
        assert prediction.distribution.shape == (n, len(params.classes))
        for scores, *row in zip(
            dense[name],
            prediction.class_ids,
            prediction.confidence,
            prediction.distribution,
            strict=True,
        ):
            assert_predicts(scores, *row)


# The labels are those of the pooled data


@settings(deadline=None, max_examples=20)
@given(federations())
def test_labels_are_those_of_the_pooled_data(case: tuple[Data, Parameters]) -> None:
    assert_equals_pooled(*case)


@settings(deadline=None, max_examples=6)
@given(federations(["rlwe"], n_bits=(16, 64)))
def test_labels_are_those_of_the_pooled_data_with_rlwe(case: tuple[Data, Parameters]) -> None:
    assert_equals_pooled(*case)


@settings(deadline=None, max_examples=8)
@given(federations(["shade"], st.integers(0, 2), (7, 16)))
def test_labels_are_those_of_the_pooled_data_with_shade(case: tuple[Data, Parameters]) -> None:
    assert_equals_pooled(*case)


@pytest.mark.parametrize("hamming", ["plain", "masked", "rlwe"])
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param({"a": (4, 2), "b": (0, 0), "c": (3, 1)}, id="a client without rows"),
        pytest.param({"a": (4, 2), "b": (0, 0), "c": (0, 0)}, id="one client with rows"),
        pytest.param({"a": (4, 0), "b": (3, 2), "c": (3, 0)}, id="clients without labels"),
        pytest.param({"a": (4, 4), "b": (3, 0), "c": (1, 1)}, id="clients with labels only"),
        pytest.param({"a": (3, 3), "b": (2, 2)}, id="nothing to label"),
        pytest.param({"a": (1, 1), "b": (1, 0)}, id="two rows"),
    ],
)
def test_uneven_clients(hamming: str, shape: dict[str, tuple[int, int]]) -> None:
    data = blobs({c: n for c, (n, _) in shape.items()})
    for c, (_, labelled) in shape.items():
        data[c].class_ids[:] = np.where(np.arange(len(data[c].class_ids)) < labelled, 1, UNLABELLED)
    assert_equals_pooled(data, replace(SMALL, k=1, hamming=hamming))


def test_scores_through_the_ideal_twin_give_the_same_predictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = federation(blobs({"a": 5, "b": 4, "c": 3}), SMALL)
    real = predictions(make)
    monkeypatch.setattr(labelling, "secure_row_sums_client", ideal_row_sums_client)
    monkeypatch.setattr(labelling, "secure_row_sums_server", ideal_row_sums_server)
    for name, prediction in predictions(make).items():
        for field in ("class_ids", "confidence", "distribution"):
            assert np.array_equal(getattr(prediction, field), getattr(real[name], field))


def test_zero_rows_are_as_if_they_were_not_there() -> None:
    data = blobs({"a": 4, "b": 3, "c": 3})
    without = predictions(federation(data, SMALL))
    zeros = {"a": [0, 2], "b": [3]}
    wider = dict(data)
    for name, rows in zeros.items():
        own = data[name]
        wider[name] = ClientData(
            np.insert(own.vectors, rows, 0.0, axis=0), np.insert(own.class_ids, rows, 1)
        )
    make = federation(wider, SMALL)
    outcome = run(make).raise_errors()
    assert outcome.results[SERVER].sizes == {"a": 4, "b": 3, "c": 3}
    for name in data:
        prediction = outcome.results[name]
        zero = ~in_graph(wider[name])
        assert int(zero.sum()) == len(zeros.get(name, []))
        assert (prediction.class_ids[zero] == UNLABELLED).all()
        assert (prediction.confidence[zero] == 0).all()
        assert (prediction.distribution[zero] == 1 / 3).all()
        assert (prediction.class_ids[~zero] == without[name].class_ids).all()
        assert (prediction.distribution[~zero] == without[name].distribution).all()
    # Nobody else can tell: the messages, and so the views, are the same.
    assert transcript_digest(make) == transcript_digest(federation(data, SMALL))


@settings(deadline=None, max_examples=15)
@given(federations(ties=["all"]), st.randoms(use_true_random=False))
def test_permuting_clients_and_rows_only_permutes_the_results(
    case: tuple[Data, Parameters], random: Any
) -> None:
    data, params = case
    before = predictions(federation(data, params))
    names = list(data)
    random.shuffle(names)
    orders = {}
    shuffled = {}
    for name in names:
        order = list(range(len(data[name].class_ids)))
        random.shuffle(order)
        orders[name] = np.array(order, dtype=np.intp)
        own = data[name]
        shuffled[name] = ClientData(own.vectors[orders[name]], own.class_ids[orders[name]])
    for name, prediction in predictions(federation(shuffled, params)).items():
        assert (prediction.class_ids == before[name].class_ids[orders[name]]).all()
        assert np.allclose(prediction.distribution, before[name].distribution[orders[name]])


def test_without_a_fixed_seed_the_clients_agree_on_one() -> None:
    data, params = blobs({"a": 6, "b": 5, "c": 4}), replace(SMALL, hamming="plain")
    seen = []
    for seed in (0, 1):
        make = federation(data, params, seed=seed, projection_seed=None)
        outcome = run(make, record=True).raise_errors()
        bits = {c: m.bits for c, m in outcome.views[SERVER] if type(m).__name__ == "PlainBits"}
        assert list(bits) == list(data)
        together = pooled(
            list(bits.values()),
            [one_hot(own.class_ids, 3) for own in data.values()],
            k=2,
            alpha=0.9,
        )
        for name, prediction in zip(data, together, strict=True):
            assert (outcome.results[name].class_ids == prediction.class_ids).all()
        seen.append(np.concatenate(list(bits.values())))
    assert 0.2 < (seen[0] != seen[1]).mean() < 0.8  # another secret, another projection


# Costs and determinism


@pytest.mark.parametrize(
    ("hamming", "sizes"),
    [
        ("plain", {"a": 3, "b": 0, "c": 2}),
        ("masked", {"a": 3, "b": 4, "c": 2, "d": 1}),
        ("masked", {"a": 9, "b": 9}),
        ("rlwe", {"a": 3, "b": 4, "c": 2}),
        ("shade", {"a": 2, "b": 1, "c": 1}),
    ],
)
def test_bytes_are_those_of_the_formulas(hamming: str, sizes: dict[str, int]) -> None:
    data = blobs(sizes, labelled=1)
    params = replace(SMALL, n_bits=17, k=1, hamming=hamming)
    p, n = len(sizes), sum(sizes.values())
    bits = np.concatenate([bits_of(own, 17) for own in data.values()])
    component = connected_components(neighbour_graph_from_bits(bits, 1))[1]
    place = column_ranges(sizes)
    links: dict[tuple[str, str], int] = {}

    def count(sender: str, receiver: str, size: int) -> None:
        links[sender, receiver] = links.get((sender, receiver), 0) + size

    exchange = key_exchange_bytes(tuple(sizes), 160, 3, post_quantum=False)
    for c, rows in sizes.items():
        # 20 agreement fields of 8 bytes; rows, labelled rows and features are the numbers.
        count(c, SERVER, exchange[c, SERVER])
        count(SERVER, c, exchange[SERVER, c])
        for peer in sizes:
            if peer != c:
                count(c, peer, sealed_size(SeedShare.size()))
        count(c, SERVER, sealed_size(Received.size(clients=p)))
        count(SERVER, c, sealed_size(Roster.size(clients=p)))
        count(c, SERVER, sealed_size(Confirm.size()))
        count(c, SERVER, sealed_size(Prepared.size(rows=rows)))
        count(SERVER, c, sealed_size(Participants.size(clients=p)))
        count(SERVER, c, sealed_size(Geometry.size(rows=n)))
        if rows:  # one label each, in its first row
            reached = int((component == component[place[c].start]).sum())
            count(SERVER, c, sealed_size(Reach.size(rows=n, labelled=1)))
            count(SERVER, c, sealed_size(Influence.size(values=reached)))
        count(c, SERVER, sealed_size(Labelled.size()))
    foretold = estimate(get_backend(hamming), sizes, 17)
    for (sender, receiver), size in foretold.bytes_per_link.items():
        count(sender, receiver, size)
    ends = np.cumsum(list(sizes.values()))
    owned = {
        c: np.arange(end - rows, end) for (c, rows), end in zip(sizes.items(), ends, strict=True)
    }
    graph = params.mask_graph(tuple(sizes))
    for (sender, receiver), size in row_sums_bytes(owned, 3, graph).items():
        count(sender, receiver, size)

    metered: dict[tuple[str, str], int] = {}
    for traffic, size in run(federation(data, params)).raise_errors().cost.bytes_sent.items():
        key = (traffic.sender, traffic.receiver)
        metered[key] = metered.get(key, 0) + size
    assert metered == links


def test_identities_change_no_prediction_and_a_swapped_key_names_the_server() -> None:
    data = blobs({"a": 4, "b": 3, "c": 2})
    parties = (*data, SERVER)
    keys = {p: IdentityKey.generate(SeededRng(3).child(p)) for p in parties}
    pinned = {p: key.public for p, key in keys.items()}
    identities = {p: Identities(key, pinned) for p, key in keys.items()}
    make = federation(data, SMALL, identities=identities)
    without = predictions(federation(data, SMALL))
    for name, prediction in predictions(make).items():
        assert (prediction.class_ids == without[name].class_ids).all()
        assert (prediction.distribution == without[name].distribution).all()

    def swap(delivery: Delivery) -> bytes:
        start = wire.TAG_BYTES + 32 + 1 + 32  # key, who is present, key of a
        if (delivery.message, delivery.receiver) != ("Directory", "a"):
            return delivery.payload
        return delivery.payload[:start] + bytes([9] * 32) + delivery.payload[start + 32 :]

    error = run(make, Faults(on_message=swap)).errors["a"]
    assert_blames(error, (SERVER,), "swapped the key of b")


def test_steps_are_named() -> None:
    cost = run(federation(blobs({"a": 4, "b": 3}), SMALL)).raise_errors().cost
    names = ["setup", "hashing", "hamming", "propagation", "row sums", "labels"]
    assert list(cost.steps) == names
    assert [cost.rounds_in(step) for step in names] == [8, 1, 1, 1, 9, 1]


@pytest.mark.parametrize("projection_seed", [SEED, None])
def test_a_seeded_session_repeats_itself_byte_for_byte(projection_seed: bytes | None) -> None:
    data = blobs({"a": 4, "b": 3, "c": 2})

    def digest(seed: int) -> dict[str, str]:
        return transcript_digest(
            federation(data, SMALL, seed=seed, projection_seed=projection_seed)
        )

    first = digest(0)
    assert first == digest(0)
    other = digest(1)
    assert first.keys() == other.keys()
    assert all(first[key] != other[key] for key in first)


# Altered messages


SOME = {name: TAMPERS[name] for name in ("last byte one bit off", "lost")}
OWN_STEPS = ("hashing", "propagation", "labels")


@pytest.mark.parametrize(
    ("hamming", "tampers", "own", "at_least"),
    [("masked", TAMPERS, True, 50), ("rlwe", SOME, False, 30)],
    ids=["the session's messages", "those of its protocols"],
)
def test_an_altered_or_lost_message_gives_the_right_labels_or_a_typed_error(
    hamming: str, tampers: Mapping[str, Any], own: bool, at_least: int
) -> None:
    """The tests of each protocol alter its messages in all ways."""
    data = blobs({"a": 3, "b": 2, "c": 2}, labelled=1, d=3)
    params = replace(SMALL, n_bits=16, k=1, hamming=hamming, threshold=2)
    make = federation(data, params)
    chosen = on_the_last_link(make)
    cases = finished = 0
    for case in every_corruption(
        make, tampers, lambda d: (d.step in OWN_STEPS) is own and chosen(d)
    ):
        check_outcome(case.outcome, data, params)
        receiver = case.delivery.receiver
        error = case.outcome.errors.get(receiver)
        if isinstance(error, FaultyPeer):
            assert case.delivery.sender in blamed(error), case
        cases += 1
        finished += SERVER in case.outcome.results
    assert cases > at_least
    assert finished > 20  # such as after the loss of one client's message


# Parties that do not fit together


@pytest.mark.parametrize("odd", ["a", "c"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("classes", (0, 2, 1)),
        ("n_bits", 65),
        ("k", 3),
        ("alpha", 0.91),
        ("gamma", 2.0),
        ("hamming", "plain"),
        ("include_self", True),
        ("ties", "lowest-index"),
        ("fraction_bits", 39),
        ("threshold", 2),
        ("class_weight", "balanced"),
        ("scale", "client"),
        ("privacy", LabelPrivacy(1.0, 1e-6, 1)),
    ],
)
def test_other_parameters_are_named_with_their_client(odd: str, field: str, value: Any) -> None:
    data = blobs({"a": 3, "b": 2, "c": 2})
    params = dict.fromkeys((*data, SERVER), SMALL) | {odd: replace(SMALL, **{field: value})}
    outcome = run(federation(data, params))
    words = f"must agree on {field} (here {getattr(SMALL, field)!r}); {odd} has another value"
    assert_blames(outcome.errors[SERVER], (odd,), words)
    assert not outcome.results


def test_several_other_parameters_are_all_named() -> None:
    data = blobs({"a": 3, "b": 2})
    params = {"a": SMALL, "b": replace(SMALL, k=1, alpha=0.5), SERVER: SMALL}
    error = run(federation(data, params)).errors[SERVER]
    assert "alpha (here 0.9), k (here 2)" in str(error)


def test_another_version_of_the_protocol_is_named() -> None:
    data = blobs({"a": 3, "b": 2})
    newer = replace(SMALL)
    object.__setattr__(newer, "version", SMALL.version + 1)
    error = run(federation(data, {"a": SMALL, "b": newer, SERVER: SMALL})).errors[SERVER]
    assert_blames(error, ("b",), f"must agree on version (here {SMALL.version})")


def test_numpy_numbers_agree_with_pythons() -> None:
    data = blobs({"a": 3, "b": 2})
    odd = Parameters(
        classes=(0, 1, 2),
        n_bits=np.int32(64),
        k=np.uint8(2),
        alpha=np.float64(0.9),
        gamma=1,
        include_self=np.bool_(False),
        fraction_bits=np.int64(40),
        hamming="masked",
        class_weight=np.str_("none"),
        scale=np.str_("none"),
        validation=np.str_("none"),
        post_quantum=np.bool_(False),
    )
    assert odd == SMALL
    assert not run(federation(data, {"a": odd, "b": SMALL, SERVER: SMALL})).errors


def test_other_projections_name_both_clients() -> None:
    data = blobs({"a": 3, "b": 2, "c": 2})
    seeds = {"a": SEED, "b": SEED, "c": bytes(32)}
    error = run(federation(data, SMALL, projection_seed=seeds)).errors[SERVER]
    assert_blames(error, ("a", "c"), "their projections differ")
    named = {c: replace(own, columns=("u", "v")) for c, own in data.items()}
    assert not run(federation(named, SMALL)).errors
    for columns in (("v", "u"), ("u", "w"), ()):
        others = named | {"c": replace(named["c"], columns=columns)}
        for seed in (None, SEED):
            error = run(federation(others, SMALL, projection_seed=seed)).errors[SERVER]
            assert_blames(error, ("a", "c"), "columns of other names or in another order")


def test_other_numbers_of_features_are_named() -> None:
    data = blobs({"a": 3, "b": 2}) | blobs({"c": 2}, d=4)
    outcome = run(federation(data, SMALL))
    error = outcome.errors[SERVER]
    assert isinstance(error, DataError)
    assert str(error) == "client 'c' has 4 features, 'a' has 5; all must have the same"
    assert not outcome.results


def test_the_server_refuses_too_few_rows_and_no_labels() -> None:
    error = run(federation(blobs({"a": 2, "b": 1}), replace(SMALL, k=3))).errors[SERVER]
    assert isinstance(error, ParameterError)
    assert "k = 3, rows = 3" in str(error)
    error = run(federation(blobs({"a": 3, "b": 2}, labelled=0), SMALL)).errors[SERVER]
    assert isinstance(error, DataError)
    assert "no client has a label" in str(error)


def test_impossible_numbers_are_refused() -> None:
    data = blobs({"a": 3, "b": 2, "c": 2})

    def more_labels_than_rows(delivery: Delivery) -> bytes:
        if delivery.message == "Hello" and delivery.sender == "b":
            start = len(delivery.payload) - 12
            numbers = np.frombuffer(delivery.payload[start:], dtype="<u4").copy()
            assert numbers.tolist() == [2, 2, 5]
            numbers[1] = 9
            return delivery.payload[:start] + numbers.tobytes()
        if delivery.message == "Directory" and delivery.receiver == "b":  # which looks no further
            start = len(delivery.payload) - 36
            entries = np.frombuffer(delivery.payload[start:], dtype="<u4").reshape(3, 3).copy()
            entries[1, 1] = 2
            return delivery.payload[:start] + entries.tobytes()
        return delivery.payload

    error = run(federation(data, SMALL), Faults(on_message=more_labels_than_rows)).errors[SERVER]
    assert_blames(error, ("b",), "announces 9 labelled rows among 2")


def test_a_client_that_marks_other_rows_than_it_announced_is_named() -> None:
    data = blobs({"a": 3, "b": 2, "c": 2})

    async def liar(io: Any) -> None:
        rng = SeededRng(9)
        agreed = SMALL.agreement()
        with io.step("setup"):
            own = await key_exchange_client(
                io, tuple(data), agreed, [2, 1, 5], rng, post_quantum=False
            )
            await seed_agreement_client(own, rng)
        _, digest = session.hash_rows(SEED, data["b"].vectors, 64)
        await own.io.send(SERVER, Prepared(digest, np.array([True, True])))

    error = run(federation(data, SMALL, others={"b": liar})).errors[SERVER]
    words = "marks another number of labelled rows than it announced"
    assert_blames(error, ("b",), words)


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "NaN or infinity"), (np.inf, "NaN or infinity"), (-1e-9, "influence is negative")],
)
def test_an_impossible_influence_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: float, message: str
) -> None:
    values = np.ones(10, np.float32)
    values[7] = value
    with pytest.raises(ParameterError, match=message):
        wire.encode(Influence(values))
    encoded = wire._encoded
    monkeypatch.setattr(
        wire, "_encoded", lambda m: [m.values.tobytes()] if isinstance(m, Influence) else encoded(m)
    )
    with pytest.raises(DecodeError, match=message):
        wire.decode(Influence, wire.encode(Influence(values)), values=10)

    def broken(solver: Any, picked: Any) -> NDArray[np.float32]:
        return np.full((len(picked), 7), value, np.float32)

    monkeypatch.setattr(column_transfer, "columns_of", broken)
    outcome = run(federation(blobs({"a": 3, "b": 2, "c": 2}), SMALL))
    assert_blames(outcome.errors["a"], (SERVER,), message)


def test_a_score_that_does_not_fit_is_refused_before_it_is_sent() -> None:
    data = blobs({"a": 3, "b": 2, "c": 2})
    outcome = run(federation(data, replace(SMALL, fraction_bits=62)))
    assert set(outcome.results) == set()
    assert "too large" in str(outcome.errors["a"])
    assert "62 fraction bits" in str(outcome.errors["a"])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("classes", (), "at least one class"),
        ("n_bits", 0, "n_bits must be between 1 and 32768, got 0"),
        ("n_bits", 32769, "n_bits must be between 1 and 32768, got 32769"),
        ("n_bits", True, "n_bits must be an integer, got True"),
        ("n_bits", 1.5, "n_bits must be an integer, got 1.5"),
        ("n_bits", "64", "n_bits must be an integer, got '64'"),
        ("k", 0, "k must be at least 1, got 0"),
        ("k", "3", "k must be an integer, got '3'"),
        ("k", 2.0, "k must be an integer, got 2.0"),
        ("alpha", 0, "alpha must be strictly between 0 and 1, got 0"),
        ("alpha", 1, "alpha must be strictly between 0 and 1, got 1"),
        ("alpha", 1.0, "alpha must be strictly between 0 and 1, got 1.0"),
        ("alpha", -0.5, "alpha must be strictly between 0 and 1, got -0.5"),
        ("alpha", math.nan, "alpha must be strictly between 0 and 1, got nan"),
        pytest.param("alpha", 10**400, "alpha must be a number that fits float64", id="alpha huge"),
        ("alpha", "0.9", "alpha must be a number, got '0.9'"),
        ("alpha", None, "alpha must be a number, got None"),
        ("gamma", 0, "gamma must be positive and finite, got 0"),
        ("gamma", math.inf, "gamma must be positive and finite, got inf"),
        pytest.param("gamma", -(10**5000), "gamma must be a number that fits", id="gamma huge"),
        ("gamma", None, "gamma must be a number, got None"),
        ("gamma", True, "gamma must be a number, got True"),
        ("hamming", "rot13", "'rot13' is none of masked, paillier, .*plain"),
        ("hamming", [], r"hamming must be the name of a back end, got \[\]"),
        ("hamming", None, "hamming must be the name of a back end, got None"),
        ("include_self", "no", "include_self must be true or false, got 'no'"),
        ("include_self", 1, "include_self must be true or false, got 1"),
        ("ties", "first", "ties must be 'all' or 'lowest-index', got 'first'"),
        ("fraction_bits", 63, r"fraction_bits must be in 0 … 62 .* got 63"),
        ("fraction_bits", -1, r"fraction_bits must be in 0 … 62 .* got -1"),
        ("fraction_bits", None, "fraction_bits must be an integer, got None"),
        ("fraction_bits", 2.0, "fraction_bits must be an integer, got 2.0"),
        ("threshold", 1, "threshold must be at least 2, got 1"),
        ("threshold", 2.5, "threshold must be an integer, got 2.5"),
        ("threshold", True, "threshold must be an integer, got True"),
        ("class_weight", "yes", "class_weight must be 'sqrt' or 'balanced' or 'none', got 'yes'"),
        ("class_weight", True, "class_weight must be 'sqrt' or 'balanced' or 'none', got True"),
        ("privacy", (1.0, 1e-6, 2), r"a RandomizedResponse or a LabelPrivacy, got \(1.0"),
    ],
)
def test_parameters_out_of_range(field: str, value: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        replace(SMALL, **{field: value})
    assert "\n" not in str(caught.value)


def test_every_party_refuses_sums_too_coarse_for_ties() -> None:
    data = blobs(dict.fromkeys("abcde", 2))
    params = replace(SMALL, fraction_bits=32)
    outcome = run(federation(data, params))
    assert {*outcome.errors} == {*data, SERVER}
    for error in outcome.errors.values():
        assert "fraction_bits must be at least 33 for 5 clients, got 32" in str(error)
    assert run(federation(data, replace(params, fraction_bits=33))).raise_errors()
    replace(params, privacy=LabelPrivacy(1.0, 1e-6, 1)).require_resolution(1000)  # noise: no ties


def test_privacy_needs_clients_that_add_noise_and_no_totals() -> None:
    private = replace(SMALL, privacy=LabelPrivacy(1.0, 1e-6, 3))
    assert private.fewest_clients == 4
    with pytest.raises(
        ParameterError, match="threshold must be at least 4, got 3: privacy needs noise_"
    ):
        replace(private, threshold=3)
    with pytest.raises(
        ParameterError, match=r"class_weight and privacy by noise .* exclude each other"
    ):
        replace(private, class_weight="balanced")
    randomised = replace(SMALL, privacy=RandomizedResponse(1.0), class_weight="balanced")
    assert randomised.noise is None


# What the parties see

VIEW_DATA = blobs({"a": 3, "b": 3, "c": 2}, labelled=2, d=3)
VIEW_PARAMS = replace(SMALL, n_bits=16, k=2, validation="leave-one-out")


def kind_of(message: wire.Message) -> str:
    inner = isinstance(message, Sealed)
    return wire.tag_name(int.from_bytes(message.inner_tag, "big") if inner else message.TAG)


def received(data: Data, party: str, seed: int) -> list[tuple[str, str, bytes]]:
    return [
        (sender, type(message).__name__, wire.encode(message))
        for sender, message in views(federation(data, VIEW_PARAMS, seed=seed))[party]
    ]


@pytest.mark.parametrize("hamming", ["plain", "masked", "rlwe", "shade"])
def test_nothing_before_the_row_sums_depends_on_the_labels(hamming: str) -> None:
    params = replace(VIEW_PARAMS, hamming=hamming)
    one = views(federation(VIEW_DATA, params))
    two = views(federation(relabelled(VIEW_DATA), params))
    late = ("RowSumsUpload", "RowSumsBlock")
    for party in (*VIEW_DATA, SERVER):
        before = [
            [(s, wire.encode(m)) for s, m in view if kind_of(m) not in late]
            for view in (one[party], two[party])
        ]
        after = [
            [wire.encode(m) for _, m in view if kind_of(m) in late]
            for view in (one[party], two[party])
        ]
        assert before[0] == before[1]
        assert after[0] != after[1]  # the labels do enter there


def upload_counts(data: Data, runs: int) -> NDArray[np.intp]:
    """Count the values of all bytes in the row-sum uploads that the server sees."""
    uploads = [
        payload[wire.TAG_BYTES :]
        for seed in range(runs)
        for _, kind, payload in received(data, SERVER, seed)
        if kind == "RowSumsUpload"
    ]
    assert len(uploads) == 2 * runs * len(data)  # of the scores, and of what leaving out counts
    return np.bincount(np.frombuffer(b"".join(uploads), dtype=np.uint8), minlength=256)


def test_the_servers_view_does_not_depend_on_the_labels() -> None:
    one, two = upload_counts(VIEW_DATA, 8), upload_counts(relabelled(VIEW_DATA), 8)
    assert uniformity(one) > 1e-3
    assert uniformity(two) > 1e-3
    assert same_distribution(one, two) > 1e-3


def test_the_same_test_finds_missing_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_masks, "accumulate", lambda *args, **options: None)
    monkeypatch.setattr(row_sums_recover, "owner_mask", no_mask)
    one, two = upload_counts(VIEW_DATA, 5), upload_counts(relabelled(VIEW_DATA), 5)
    assert uniformity(one) < 1e-9
    assert same_distribution(one, two) < 1e-9


@pytest.mark.parametrize(
    ("hamming", "at_server", "at_clients"),
    [
        ("masked", ["MaskedRows", "DistanceShares"], []),
        ("rlwe", ["DistanceShares"], ["RlweCiphertexts", "RlweMasks", "RlweAnswers"]),
    ],
)
def test_nobody_receives_vectors_or_labels(
    hamming: str, at_server: list[str], at_clients: list[str]
) -> None:
    """The types of all messages that each party opens."""
    seen = views(federation(VIEW_DATA, replace(VIEW_PARAMS, hamming=hamming)))
    setup = {"Received", "Confirm"}
    assert {kind_of(m) for _, m in seen[SERVER]} == {
        *("Hello", "Opening", *setup, "Prepared", *at_server),
        *("SumReady", "SumMasked", "RowSumsUpload", "SumSigned", "SumReveal", "Labelled"),
    }
    by_client = [{kind_of(m) for _, m in seen[c]} for c in VIEW_DATA]
    assert set.union(*by_client) >= set(at_clients)
    for kinds in by_client:
        assert kinds - set(at_clients) == {
            *(
                "Directory",
                "Openings",
                "SeedShare",
                "Roster",
                "Participants",
                "Geometry",
                "Reach",
                "Influence",
            ),
            *("SumShares", "SumClients", "SumSurvivors", "SumSignatures", "RowSumsBlock"),
        }


def test_a_client_role_that_is_not_invited_is_refused() -> None:
    data = blobs({"a": 3, "b": 2})
    make = federation(data, SMALL)

    def with_stranger() -> dict[str, Role]:
        roles = make()
        two = replace(SMALL, threshold=2)
        stranger = partial(
            client_role, data=data["a"], params=two, invited=("a", "b"), rng=SeededRng(5)
        )
        return {"mallory": stranger, **roles}

    outcome = run(with_stranger)
    assert isinstance(outcome.errors["mallory"], ParameterError)
    assert set(outcome.results) == {"a", "b", SERVER}


def test_a_server_without_any_answer_stops() -> None:
    data = blobs({"a": 3, "b": 2})
    outcome = run(federation(data, SMALL), Faults(on_message=lambda delivery: None))
    assert isinstance(outcome.errors[SERVER], TooFewParties)
    assert all(isinstance(e, ProtocolError) for e in outcome.errors.values())
