"""Labels for rows that come after a session: those of the same sums in the clear, and dropouts."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from protocol_runs import assert_blames
from session_runs import SEED, SMALL, Data, blobs, federation
from sklearn.exceptions import NotFittedError

from xclp_crypto.errors import DataError, ParameterError, ProtocolError
from xclp_crypto.privacy import LabelPrivacy
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SeededRng
from xclp_crypto.testing import every_dropout, run
from xclp_crypto.transport.driver import Role
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.diagnostics import CautionWarning
from xclp_lp.kept import Kept
from xclp_lp.labels import class_weights
from xclp_lp.later import predict_client_role, predict_server_role
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import Prediction, predict

Vectors = Mapping[str, NDArray[np.float64]]
OLD = blobs({"a": 9, "b": 0, "c": 12, "d": 8}, labelled=3, seed=4)
NEW = {c: own.vectors for c, own in blobs({"a": 3, "b": 2, "c": 0, "d": 4}, seed=5).items()}


def fitted(params: Parameters, old: Data = OLD) -> dict[str, Kept]:
    results = run(federation(old, params)).raise_errors().results
    return {c: results[c].kept for c in old}


def later(
    params: Parameters, kept: Mapping[str, Kept | None], new: Vectors = NEW
) -> Callable[[], dict[str, Role]]:
    """A factory of the roles that label the new rows."""

    def make() -> dict[str, Role]:
        rng, invited = SeededRng(1), tuple(new)
        roles: dict[str, Role] = {
            c: partial(
                predict_client_role,
                vectors=x,
                kept=kept.get(c),
                params=params,
                invited=invited,
                rng=rng.child(c),
            )
            for c, x in new.items()
        }
        return roles | {
            SERVER: partial(
                predict_server_role, params=params, invited=invited, rng=rng.child(SERVER)
            )
        }

    return make


def expected(
    params: Parameters,
    kept: Mapping[str, Kept],
    present: list[str],
    contributors: list[str],
    new: Vectors = NEW,
) -> dict[str, Prediction]:
    """The same labels, row by row, by one who has the data of all."""
    known = next(iter(kept.values()))
    pi = projection(SEED, params.n_bits, known.own.features)
    old = np.concatenate(
        [
            np.unpackbits(kept[c].own.packed, axis=1, count=params.n_bits)
            for c in present
            if c in kept
        ]
    )
    owner = np.concatenate([np.full(len(kept[c].sums), c) for c in present if c in kept])
    sums = np.concatenate([kept[c].sums for c in present if c in kept])
    sums[~np.isin(owner, contributors)] = 0
    found = {}
    for c in present:
        x = (
            new[c]
            if known.own.moments is None
            else known.own.moments.scaled(params.scaling.features(new[c]))
        )
        scores = []
        for row in hash_bits(x, pi):
            h = (row != old).sum(axis=1)
            far = np.sort(h)[min(params.k, len(h)) - 1]
            w = np.where((h <= far) & (2 * h < params.n_bits), h, -1).astype(float)
            w = np.where(w < 0, 0, np.cos(np.pi * w / params.n_bits) ** params.gamma)
            w = (w / max(w.sum(), 1e-300)).astype(np.float32).astype(float)
            scores.append(w @ sums)
        z = np.array(scores).reshape(-1, sums.shape[1])
        if known.totals is not None:
            z = z * class_weights(known.totals, params.class_weight)
        found[c] = predict(np.maximum(z, 0))
    return found


def assert_same(found: Mapping[str, Any], wanted: Mapping[str, Prediction]) -> None:
    for c, prediction in wanted.items():
        assert found[c].class_ids.tolist() == prediction.class_ids.tolist(), c
        assert np.allclose(found[c].distribution, prediction.distribution, atol=1e-6), c
        assert np.allclose(found[c].confidence, prediction.confidence, atol=1e-6), c


@pytest.mark.parametrize(
    "options",
    [
        {"scale": "shared", "class_weight": "sqrt", "gamma": 3.0},
        {"hamming": "plain", "ties": "lowest-index", "k": 40},
        {"hamming": "rlwe", "scale": "shared", "class_weight": "balanced"},
        {
            "hamming": "plain",
            "fraction_bits": 30,
            "privacy": LabelPrivacy(epsilon=2.0, delta=1e-5, noise_contributors=2),
        },
    ],
)
def test_the_labels_are_those_in_the_clear(options: dict[str, Any]) -> None:
    params = replace(SMALL, **options)
    kept = fitted(params, OLD if params.k < 30 else OLD | {"d": blobs({"d": 30}, seed=4)["d"]})
    outcome = run(later(params, kept)).raise_errors()
    assert_same(outcome.results, expected(params, kept, list(NEW), list(NEW)))
    server = outcome.results[SERVER]
    assert server.sizes == {c: len(x) for c, x in NEW.items()}
    assert (server.contributors, server.dropouts) == (tuple(NEW), ())


@pytest.mark.parametrize(
    "options",
    [
        {"scale": "shared"},
        {"scale": "none"},
        {"scale": "shared", "missing": "mean", "winsorise": 1},
    ],
)
def test_a_client_that_was_not_in_the_session_gets_labels_too(options: dict[str, Any]) -> None:
    params = replace(SMALL, class_weight="sqrt", **options)
    kept = fitted(params)
    new = NEW | {"e": blobs({"e": 3}, seed=6)["e"].vectors}
    if params.missing == "mean":
        new["e"][1, 2] = np.nan
    outcome = run(later(params, kept, new)).raise_errors()
    assert_same(outcome.results, expected(params, kept, list(new), list(new), new))


def test_rows_without_a_direction_get_no_label_and_scaling_is_the_own_of_the_session() -> None:
    params = replace(SMALL, scale="client")
    kept = fitted(params)
    moments = kept["a"].own.moments
    assert moments is not None
    new = dict(NEW) | {"a": np.vstack([moments.mean, NEW["a"]])}
    own = run(later(params, kept, new)).raise_errors().results["a"]
    assert own.class_ids[0] == -1
    assert own.confidence[0] == 0
    without = run(later(params, kept)).raise_errors().results["a"]
    assert own.class_ids[1:].tolist() == without.class_ids.tolist()


def test_a_dropout_costs_its_old_rows_or_its_part_only() -> None:
    params = replace(SMALL, hamming="plain", class_weight="sqrt")
    kept = fitted(params)
    steps = set()
    for case in every_dropout(later(params, kept), ["d"]):
        server = case.outcome.results[SERVER]
        present, parts = list(server.sizes), list(server.contributors)
        wanted = expected(params, kept, present, parts)
        found = {c: p for c, p in case.outcome.results.items() if c != SERVER}
        assert_same(found, {c: wanted[c] for c in found})
        assert set(found) == {"a", "b", "c"}, case
        missing = [] if "d" in parts else ["d"]
        assert all([d.client for d in own.dropouts] == missing for own in found.values())
        (dropout,) = server.dropouts or (None,)
        steps.add((dropout and dropout.step, "d" in present, "d" in parts))
    assert {("hamming", False, False), ("row sums", True, False), ("labels", True, True)} <= steps


def test_what_was_kept_must_be_of_the_same_session_and_parameters() -> None:
    kept = fitted(SMALL)
    other = run(federation(OLD, SMALL, seed=9)).raise_errors().results["c"].kept
    errors = run(later(SMALL, kept | {"c": other})).errors
    assert_blames(errors[SERVER], ("a", "c"), "they know different sessions")
    for params in (
        replace(SMALL, n_bits=80),
        replace(SMALL, classes=(0, 1)),
        replace(SMALL, class_weight="sqrt"),
    ):
        assert isinstance(run(later(params, kept)).errors["a"], ParameterError)
    wide = run(later(SMALL, kept, dict(NEW) | {"a": np.ones((1, 7))})).errors["a"]
    assert isinstance(wide, DataError)
    assert "7 features, the old ones 5" in str(wide)
    with pytest.raises(ParameterError, match="masked, plain, rlwe can"):
        run(later(replace(SMALL, hamming="shade"), kept)).raise_errors()


def test_sessions_of_both_kinds_do_not_mix_and_somebody_must_bring_rows() -> None:
    kept = fitted(SMALL)
    nothing = {c: x[:0] for c, x in NEW.items()}
    assert "no client has any new rows" in str(run(later(SMALL, kept, nothing)).errors[SERVER])
    assert "no client has any rows of a session" in str(run(later(SMALL, {})).errors[SERVER])

    def mixed() -> dict[str, Role]:
        return later(SMALL, kept)() | {"a": federation(OLD, SMALL)()["a"]}

    error = run(mixed).errors[SERVER]
    assert isinstance(error, ProtocolError)


def test_the_estimator_labels_new_rows_in_groups_and_in_its_users_own_types() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    place = np.array([[4.0, 0.0], [0.0, 4.0], [-4.0, -4.0]])

    def rows(n: int, first: int) -> tuple[Any, Any]:
        true = rng.integers(0, 3, n)
        x = place[true] + rng.normal(size=(n, 2))
        index = pd.RangeIndex(first, first + n)
        named = np.array(["one", "three", "two"], dtype=object)[true]
        return pd.DataFrame(x, index, ["u", "v"]), pd.Series(named, index, name="kind")

    old = [rows(30, 0) for _ in range(6)]
    groups = ["x", "x", "x", "y", "y", "y"]
    fit = CrossClientLabelPropagation(
        512, 5, hamming="plain", scale="client", groups=groups, random_state=0
    ).fit([x for x, _ in old], [y.iloc[:6] for _, y in old])
    new = [rows(n, 100) for n in (8, 0, 5)]
    found = fit.predict([*(x[["v", "u"]] for x, _ in new), [], [], []])  # the second group has none
    for (x, y), own in zip(new, found, strict=False):
        assert own.index.equals(x.index)
        assert own.name == "kind"
        assert own.tolist() == y.tolist()
    assert [len(own) for own in (*found, *fit.predicted_confidence_)] == [8, 0, 5, 0, 0, 0] * 2
    assert fit.predict_cost_.total_bytes < fit.cost_.total_bytes
    with pytest.raises(DataError, match="client-1' has other columns than fit had"):
        fit.predict([new[0][0], new[0][0].rename(columns={"u": "w"}), [], [], [], []])
    with pytest.warns(CautionWarning, match="client-0' measures differently: .* 'u'"):
        fit.predict([new[0][0] * [100, 1], *[[]] * 5])
    with pytest.raises(DataError, match="3 features, those of fit 2"):
        fit.predict([np.ones((1, 3)), *[[]] * 5])
    with pytest.raises(DataError, match="6 clients"):
        fit.predict([np.ones((1, 2))])
    with pytest.warns(UserWarning, match="client-2': X does not have valid feature names, but"):
        again = fit.predict([new[0][0], [], new[2][0].to_numpy(), [], [], []])
    assert [list(own) for own in again] == [list(own) for own in found]
    with pytest.warns(UserWarning, match="can neither predict nor update: what the clients kept"):
        stored = pickle.loads(pickle.dumps(fit))  # noqa: S301 - our own
    assert stored.confidence_[0].tolist() == fit.confidence_[0].tolist()
    assert stored.transduction_[1].equals(fit.transduction_[1])
    assert stored.get_params() == fit.get_params()
    with pytest.raises(NotFittedError, match=r"secret, so it is neither .* or call fit again"):
        stored.predict([new[0][0], *[[]] * 5])
