"""Features on one scale: what the clients agree on, and what it is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from session_runs import SMALL, blobs, expected, federation, watch_uploads

from xclp_crypto.errors import DataError, FaultyPeerOrServer, ParameterError, TooFewParties
from xclp_crypto.protocols.secure_sum.rows import RowSumsUpload
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import run, same_distribution, uniformity
from xclp_crypto.transport.simulate import Faults
from xclp_lp import CrossClientLabelPropagation, session
from xclp_lp.later import predict_client_role, predict_server_role
from xclp_lp.scaling import (
    Scaling,
    encoded_moments,
    in_graph,
    moments,
    moments_width,
    own_moments,
    scaled_by_one,
)
from xclp_lp.session import client_role, server_role
from xclp_lp.summary import plan_lines

SHARED = replace(SMALL, scale="shared")
IN_THE_CLEAR = replace(SHARED, hamming="plain")
FOUR = blobs({"a": 6, "b": 5, "c": 4, "d": 5}, labelled=2, seed=4)
PARTS = st.lists(
    st.integers(0, 6).flatmap(
        lambda n: arrays(np.float64, (n, 2), elements=st.floats(-1e6, 1e6, width=32))
    ),
    min_size=1,
    max_size=5,
).filter(lambda parts: sum(map(len, parts)) > 0)


def together(parts: list[NDArray[Any]]) -> Any:
    return moments(np.sum([encoded_moments(x) for x in parts], axis=0))


@given(PARTS)
def test_shared_moments_are_those_of_all_rows(parts: list[NDArray[np.float64]]) -> None:
    rows = np.concatenate(parts)
    found = together(parts)
    assert found.mean == pytest.approx(rows.mean(axis=0), rel=1e-12, abs=1e-12)
    constant = np.isinf(found.deviation)
    size = np.abs(rows.mean(axis=0))
    assert (rows.std(axis=0)[constant] <= np.maximum(1e-11 * size[constant], 1e-15)).all()
    close = pytest.approx(rows.std(axis=0)[~constant], rel=1e-6, abs=1e-12 * size.max())
    assert found.deviation[~constant] == close


@given(PARTS, st.randoms(use_true_random=False))
def test_neither_order_nor_empty_clients_change_a_bit(parts: Any, random: Any) -> None:
    mixed = [*parts, np.zeros((0, 2))]
    random.shuffle(mixed)
    one, other = together(parts), together(mixed)
    assert one.mean.tolist() == other.mean.tolist()
    assert one.deviation.tolist() == other.deviation.tolist()


def test_nothing_cancels_far_from_zero() -> None:
    x = np.random.default_rng(0).normal(size=(1000, 1))
    found = together([1e9 + x[:400], 1e9 + x[400:]])
    assert found.deviation == pytest.approx((1e9 + x).std(), rel=1e-6)
    tiny = together([1e-9 * x[:400], 1e-9 * x[400:]])
    assert tiny.deviation == pytest.approx((1e-9 * x).std(), abs=0)


def test_constant_columns_become_zero_and_too_large_ones_are_refused() -> None:
    x = np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 4.0]])
    for found in (together([x[:1], x[1:]]), own_moments(x)):
        assert found.scaled(x)[:, 0].tolist() == [0.0] * 3
        assert found.scaled(x)[:, 1].std() == pytest.approx(1)
    with pytest.raises(DataError, match=r"column 1 \(counted from 0\) has a value beyond 2\^48"):
        encoded_moments(np.array([[1.0, 1e20]]))
    with pytest.raises(DataError, match="no client has any rows"):
        moments(encoded_moments(np.zeros((0, 2))))


def test_digits_are_small_enough_for_sums_of_two_million_clients() -> None:
    x = np.array([[-(2.0**48), 2.0**48, 0.0]] * 3)
    assert len(encoded_moments(x)) == moments_width(3)
    assert np.abs(encoded_moments(x)).max() < 1 << 32


def test_rows_that_take_part() -> None:
    x = np.array([[0.0, 0.0], [1.0, 2.0], [-1.0, -2.0]])
    assert in_graph(x, Scaling("none")).tolist() == [False, True, True]
    assert in_graph(x + 5, Scaling("client")).tolist() == [False, True, True]
    assert in_graph(x, Scaling("shared")).tolist() == [True] * 3


def spoiled(x: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Where a fifth of the values is missing, and all of the last column of some."""
    rng = np.random.default_rng(seed)
    found = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    found[:, -1] = np.nan if seed % 2 else found[:, -1]
    return found


def test_missing_values_count_in_no_moment_and_become_the_mean() -> None:
    x = [spoiled(7 + np.random.default_rng(i).normal(size=(9 + i, 3)), i) for i in range(3)]
    scaling, rows = Scaling("shared", "mean", winsorise=1.5), np.concatenate(x)
    features = [scaling.features(own) for own in x]
    assert scaling.width(3) == features[0].shape[1] == 6
    for found in (
        scaling.moments_of_all(np.sum([encoded_moments(own) for own in features], axis=0)),
        scaling.moments_alone(np.concatenate(features)),
    ):
        assert found.mean[:3] == pytest.approx(np.nanmean(rows, axis=0))
        assert found.deviation[:3] == pytest.approx(np.nanstd(rows, axis=0))
        assert found.mean[3:] == pytest.approx(np.isnan(rows).mean(axis=0))
        assert found.deviation[3:].tolist() == [1.0] * 3
        scaled = found.scaled(np.concatenate(features))
        assert (scaled[:, :3][np.isnan(rows)] == 0).all()
        assert np.abs(scaled).max() == 1.5
    none = scaling.moments_alone(scaling.features(np.full((4, 2), np.nan)))
    assert none.scaled(scaling.features(np.full((4, 2), np.nan))).tolist() == [[0.0] * 4] * 4
    whole = scaling.moments_alone(scaling.features(np.ones((4, 1))))
    assert np.isinf(whole.deviation).all()
    with pytest.raises(DataError, match=r"column 1 .* has a value beyond 2\^48"):
        encoded_moments(np.array([[np.nan, 1e20]]))


# In a session


@pytest.mark.parametrize("scale", ["none", "client", "shared"])
@pytest.mark.parametrize("hamming", ["plain", "masked", "rlwe"])
def test_labels_are_those_of_the_pooled_data(scale: Any, hamming: str) -> None:
    params = replace(SMALL, scale=scale, hamming=hamming)
    outcome = run(federation(FOUR, params)).raise_errors()
    plain = expected(FOUR, params, tuple(FOUR), tuple(FOUR))
    for client in FOUR:
        assert outcome.results[client].class_ids.tolist() == plain[client].class_ids.tolist()
    assert outcome.results[SERVER].scaled_over == (tuple(FOUR) if scale == "shared" else ())


@pytest.mark.parametrize("scale", ["none", "client", "shared"])
def test_labels_with_clipped_tails_and_missing_values_are_those_too(scale: Any) -> None:
    params, data = replace(SMALL, scale=scale, winsorise=0.5), FOUR
    if scale != "none":
        params = replace(params, missing="mean")
        data = {
            c: replace(own, vectors=spoiled(own.vectors, i))
            for i, (c, own) in enumerate(FOUR.items())
        }
    found = run(federation(data, params)).raise_errors().results
    plain = expected(data, params, tuple(data), tuple(data))
    unclipped = expected(data, replace(params, winsorise=None), tuple(data), tuple(data))
    for client in data:
        assert found[client].class_ids.tolist() == plain[client].class_ids.tolist()
    assert any((plain[c].confidence != unclipped[c].confidence).any() for c in data)


def test_whenever_a_client_drops_out_the_others_have_the_labels_of_those_in_the_sums() -> None:
    make = federation(FOUR, IN_THE_CLEAR)
    operations = run(make).raise_errors().operations["b"]
    seen = set()
    for at in range(operations):
        outcome = run(make, Faults(dropouts={"b": at}))
        graph = outcome.results[SERVER]
        seen.add(("b" in graph.scaled_over, "b" in graph.sizes))
        plain = expected(
            FOUR,
            SHARED,
            tuple(graph.sizes),
            graph.contributors,
            scaled_over=graph.scaled_over,
        )
        for client in "acd":
            found = outcome.results[client].class_ids
            assert found.tolist() == plain[client].class_ids.tolist(), at
    assert seen == {(False, False), (True, False), (True, True)}


@pytest.mark.parametrize("missing", ["refuse", "mean"])
@pytest.mark.parametrize(("where", "added"), [(0, -12), (0, 1), (-1, -1), (-1, 2.0**31)])
def test_moments_that_cannot_be_blame_all_others_and_not_the_own_data(
    monkeypatch: pytest.MonkeyPatch, where: int, added: float, missing: Any
) -> None:
    sizes = {"a": 4, "b": 4, "m": 4}

    def lie(client: str, purpose: str, values: Any, rows: Any) -> None:
        if client == "m":
            values[0, where] += added

    watch_uploads(monkeypatch, session, lie)
    params = replace(SMALL, scale="shared", missing=missing, hamming="plain")
    error = run(federation(blobs(sizes, labelled=2, seed=5), params)).errors["a"]
    assert isinstance(error, FaultyPeerOrServer)
    assert error.parties == ("b", "m")


def test_two_clients_are_refused_unless_they_ask_for_it() -> None:
    two = {c: FOUR[c] for c in "ab"}
    with pytest.raises(ParameterError, match="own; choose scale = 'client', 'none', or"):
        run(federation(two, SHARED)).raise_errors()
    run(federation(two, replace(SMALL, scale="shared-by-two"))).raise_errors()
    rng: Any = SeededRng(0)
    io: Any = None  # nothing is sent
    for role in (
        client_role(io, FOUR["a"], SMALL, "ab", rng),
        server_role(io, SMALL, "ab", rng),
        predict_client_role(io, FOUR["a"].vectors, None, SMALL, "ab", rng),
        predict_server_role(io, SMALL, "ab", rng),
    ):
        with pytest.raises(ParameterError, match="choose threshold = 2 if each may"):
            role.send(None)
    outcome = run(federation({c: FOUR[c] for c in "abc"}, SHARED), Faults(dropouts={"b": "setup"}))
    assert isinstance(outcome.errors[SERVER], TooFewParties)


def test_the_server_sees_no_moment() -> None:
    """Uploads of moments are uniform, the same whatever the features are."""

    def halves_of_bytes(data: Any) -> NDArray[np.intp]:
        found = []
        for seed in range(10):
            outcome = run(federation(data, IN_THE_CLEAR, seed=seed), record=True).raise_errors()
            own = [m for _, m in outcome.views[SERVER] if isinstance(m, RowSumsUpload)][: len(data)]
            found += [np.frombuffer(m.values.tobytes(), dtype=np.uint8) for m in own]
        joined = np.concatenate(found)
        return np.bincount(np.concatenate([joined >> 4, joined & 15]), minlength=16)

    moved = {c: replace(own, vectors=own.vectors + 1e3) for c, own in FOUR.items()}
    one, two = halves_of_bytes(FOUR), halves_of_bytes(moved)
    assert uniformity(one) > 1e-3
    assert uniformity(two) > 1e-3
    assert same_distribution(one, two) > 1e-3


# What it is worth


def test_units_and_offsets_change_no_label() -> None:
    rng = np.random.default_rng(0)
    Xs = [rng.normal(size=(30, 3)) + 3 * np.eye(3)[np.arange(30) % 3] for _ in range(3)]
    ys = [np.where(np.arange(30) < 3, np.arange(30) % 3, -1) for _ in range(3)]

    def labels(data: list[NDArray[np.float64]]) -> list[list[Any]]:
        xclp = CrossClientLabelPropagation(512, hamming="masked", random_state=0).fit(data, ys)
        return [y.tolist() for y in xclp.transduction_]

    powers = np.array([2.0**10, 2.0**-10, 1.0])
    assert labels(Xs) == labels([x * powers for x in Xs])
    truth = np.arange(30) % 3
    for moved in (Xs, [x * powers + 64.0 for x in Xs]):
        assert np.mean([np.equal(y, truth).mean() for y in labels(moved)]) > 0.85


def test_one_party_scales_over_those_in_the_sum() -> None:
    data = {"a": np.array([[1.0], [3.0]]), "b": np.array([[100.0]])}
    assert scaled_by_one(data, Scaling("none"), ())["b"].tolist() == [[100.0]]
    assert scaled_by_one(data, Scaling("shared"), ["a"])["a"].tolist() == [[-1.0], [1.0]]
    assert scaled_by_one(data, Scaling("shared"), ["a"])["b"].tolist() == [[98.0]]
    assert scaled_by_one(data, Scaling("client"), ["a"])["b"].tolist() == [[0.0]]


def test_missing_values_in_frames_and_arrays_are_refused_unless_they_become_means() -> None:
    frame = pd.DataFrame({"age": [1.0, None, 3.0, 5.0], "bmi": [20.0, 30.0, 25.0, 41.0]})
    Xs, ys = [frame, frame + 1, frame * 2], [[0, 1, -1, -1]] * 3
    arrays = [x.to_numpy() for x in Xs]
    for data in (Xs, arrays):
        xclp = CrossClientLabelPropagation(64, 2, hamming="plain", random_state=0)
        with pytest.raises(DataError, match=r"client 'client-0'.*(missing|nan)"):
            xclp.fit(data, ys)
        xclp.set_params(missing="mean", winsorise=3).fit(data, ys)
        assert xclp.n_features_in_ == 2
        assert [len(y) for y in xclp.transduction_] == [4, 4, 4]
        assert [len(y) for y in xclp.predict(data)] == [4, 4, 4]
    plan = xclp.plan(Xs, ys)
    told = list(plan_lines(plan))
    assert "3 missing values become means; clients learn how many each column has" in told
    assert plan.shapes()[0].features == 4
    with pytest.raises(ParameterError, match="choose scale = 'client', or 'shared-by-two' if"):
        xclp.fit(Xs[:2], ys[:2])
    with pytest.raises(ParameterError, match="missing must be 'refuse' where scale is 'none'"):
        xclp.set_params(scale="none").fit(Xs, ys)
