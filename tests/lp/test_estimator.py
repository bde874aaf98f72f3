from __future__ import annotations

import copy
import os
import pickle
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import sparse
from session_runs import SMALL, blobs, expected
from sklearn.base import clone
from sklearn.datasets import load_digits

from xclp_crypto.errors import (
    DataError,
    EncodingOverflow,
    ParameterError,
    PrivacyWarning,
    ProtocolError,
    TooFewParties,
    XclpError,
)
from xclp_crypto.protocols.hamming import BACKENDS, Estimate, estimate, get_backend
from xclp_crypto.protocols.hamming.shade import Shade
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.simulate import Delivery, Faults, Simulation
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.diagnostics import CautionWarning
from xclp_lp.dropouts import STEPS
from xclp_lp.labels import one_hot
from xclp_lp.lsh import hash_bits, projection, projection_seed
from xclp_lp.memory import require_memory
from xclp_lp.parameters import Parameters
from xclp_lp.propagation import pooled

SETTINGS: dict[str, Any] = {
    "preset": "paper",
    "n_bits": 64,
    "k": 2,
    "alpha": 0.9,
    "random_state": 0,
}


def example(seed: int = 0) -> tuple[list[NDArray[np.float64]], list[NDArray[np.int64]]]:
    """Three clients with two classes, two labels each."""
    rng = np.random.default_rng(seed)
    Xs, ys = [], []
    for n in (6, 4, 5):
        y = rng.integers(0, 2, n)
        Xs.append(2 * np.eye(2)[y] @ rng.standard_normal((2, 4)) + rng.standard_normal((n, 4)))
        ys.append(np.where(np.arange(n) < 2, y, -1))
    ys[0][:2] = [0, 1]
    return Xs, ys


def fit(Xs: Any = None, ys: Any = None, **settings: Any) -> CrossClientLabelPropagation:
    given_Xs, given_ys = example()
    return CrossClientLabelPropagation(**(SETTINGS | settings)).fit(
        given_Xs if Xs is None else Xs, given_ys if ys is None else ys
    )


def lists(arrays: list[NDArray[Any]]) -> list[list[Any]]:
    return [a.tolist() for a in arrays]


def refused(
    error: type[XclpError], message: str, Xs: Any = None, ys: Any = None, **settings: Any
) -> None:
    """Neither run nor planned, and the reason takes one line."""
    given_Xs, given_ys = example()
    xclp = CrossClientLabelPropagation(**SETTINGS | settings)
    for start in (xclp.fit, xclp.plan):
        with pytest.raises(error, match=message) as caught:
            start(given_Xs if Xs is None else Xs, given_ys if ys is None else ys)
        assert "\n" not in str(caught.value)


# scikit-learn's conventions


def test_parameters_are_stored_as_given_and_never_changed() -> None:
    settings = {
        "n_bits": np.int64(64),
        "k": 2,
        "alpha": 0.5,
        "gamma": 2,
        "scale": "client",
        "missing": "mean",
        "winsorise": np.float64(3),
        "projection": "tight-frame",
        "hamming": "plain",
        "include_self": True,
        "ties": "lowest-index",
        "classes": ["b", "a"],
        "fraction_bits": 33,
        "threshold": np.int64(2),
        "post_quantum": False,
        "class_weight": "balanced",
        "client_prior": "own",
        "validation": "tune",
        "privacy": None,
        "preset": "paper",
        "reset_labelled": True,
        "relative_confidence": True,
        "min_confidence": 0.1,
        "groups": None,
        "random_state": 3,
        "client_names": ["x", "y", "z"],
    }
    xclp = CrossClientLabelPropagation(**settings)
    assert xclp.get_params() == settings
    other = clone(xclp)
    assert other is not xclp
    assert other.get_params() == settings
    Xs, ys = example()
    xclp.fit(Xs, [["ab"[v] if v >= 0 else None for v in y] for y in ys])
    assert all(xclp.get_params()[name] is value for name, value in settings.items())
    assert xclp.client_names_ == ("x", "y", "z")
    assert xclp.classes_.tolist() == ["b", "a"]
    assert not hasattr(other, "transduction_")


def test_set_params_and_bad_values_only_matter_in_fit() -> None:
    xclp = CrossClientLabelPropagation(k=-3)
    assert xclp.set_params(k=2, n_bits=64, random_state=0) is xclp
    Xs, ys = example()
    assert xclp.fit(Xs, ys) is xclp
    with pytest.raises(ValueError, match="Invalid parameter 'kk'"):
        xclp.set_params(kk=2)


def test_attributes() -> None:
    Xs, ys = example()
    xclp = fit(Xs, ys)
    assert xclp.client_names_ == ("client-0", "client-1", "client-2")
    assert xclp.n_features_in_ == 4
    assert xclp.classes_.tolist() == [0, 1]
    assert xclp.cost_.total_bytes > 0
    for x, labels, confidence, distribution in zip(
        Xs, xclp.transduction_, xclp.confidence_, xclp.label_distributions_, strict=True
    ):
        assert labels.shape == confidence.shape == (len(x),)
        assert labels.dtype.kind == "i"
        assert distribution.shape == (len(x), 2)
        assert np.allclose(distribution.sum(axis=1), 1)
        assert ((confidence >= 0) & (confidence <= 1)).all()
    predicted = CrossClientLabelPropagation(**SETTINGS).fit_predict(Xs, ys)
    assert lists(predicted) == lists(xclp.transduction_)


def test_the_inputs_are_not_modified() -> None:
    Xs, ys = example()
    fit(Xs, ys)
    again_Xs, again_ys = example()
    assert all(np.array_equal(a, b) for a, b in zip(Xs + ys, again_Xs + again_ys, strict=True))


# Randomness


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, bytes]]:
    """One dictionary per fit: link and type of each message to its bytes."""
    runs: list[dict[str, bytes]] = []

    def watched(faults: Faults, **options: Any) -> Simulation:
        runs.append({})

        def watch(delivery: Delivery) -> bytes:
            key = f"{delivery.index} {delivery.message} {delivery.sender} {delivery.receiver}"
            runs[-1][key] = delivery.payload
            return delivery.payload

        return Simulation(faults=replace(faults, on_message=watch), **options)

    monkeypatch.setattr("xclp_lp.plan.Simulation", watched)
    return runs


@pytest.mark.parametrize("hamming", ["plain", "masked"])
def test_random_state_fixes_the_projection_and_nothing_else(
    traffic: list[dict[str, bytes]], hamming: str
) -> None:
    one, two = fit(hamming=hamming), fit(hamming=hamming)
    assert lists(one.transduction_) == lists(two.transduction_)
    assert lists(one.confidence_) == lists(two.confidence_)
    first, second = traffic
    assert first.keys() == second.keys()
    assert all(first[key] != second[key] for key in first)


def test_a_seeded_generator_fixes_everything(traffic: list[dict[str, bytes]]) -> None:
    xclp = CrossClientLabelPropagation(**SETTINGS | {"random_state": None, "post_quantum": False})
    fits = [clone(xclp).fit(*example(), rng=SeededRng(seed)) for seed in (1, 1, 2)]
    assert fits[0].cost_.bytes_sent == fits[1].cost_.bytes_sent
    assert fits[0].cost_.rounds == fits[1].cost_.rounds
    assert traffic[0] == traffic[1]
    assert all(traffic[0][key] != traffic[2][key] for key in traffic[0])


def test_without_a_random_state_each_run_has_its_own_projection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digests = []
    original = Simulation.run

    def recorded(self: Simulation, roles: Any) -> Any:
        self._record = True
        outcome = original(self, roles)
        digests.append(
            {m.digest for _, m in outcome.views["server"] if type(m).__name__ == "Prepared"}
        )
        return outcome

    monkeypatch.setattr(Simulation, "run", recorded)
    for state in (None, None, 0, 0, 1):
        fit(random_state=state)
    assert all(len(found) == 1 for found in digests)
    none, none_again, zero, zero_again, one = (found.pop() for found in digests)
    assert zero == zero_again
    assert len({none, none_again, zero, one}) == 4


@pytest.mark.parametrize("state", [0, np.int64(7), 2**80])
def test_random_states(state: int) -> None:
    assert lists(fit(random_state=state).transduction_) == lists(
        fit(random_state=int(state)).transduction_
    )


# Clients that drop out


DROPPED = blobs({"a": 5, "b": 6, "c": 4, "d": 5}, labelled=2, seed=1)


def drop(data: Any = DROPPED, steps: Any = None, **settings: Any) -> CrossClientLabelPropagation:
    xclp = CrossClientLabelPropagation(
        **SETTINGS
        | {"hamming": "plain", "client_names": list(data), "classes": [0, 1, 2]}
        | settings
    )
    return xclp.fit(
        [x.vectors for x in data.values()], [x.class_ids for x in data.values()], drop=steps
    )


@pytest.mark.parametrize("class_weight", ["none", "sqrt", "balanced"])
@pytest.mark.parametrize("step", STEPS)
def test_the_others_have_the_labels_of_the_pooled_data(step: str, class_weight: Any) -> None:
    xclp = drop(steps={"b": step}, class_weight=class_weight, validation="leave-one-out")
    (dropout,) = xclp.dropouts_
    assert dropout.client == "b"
    assert xclp.contributors_ == (("a", "b", "c", "d") if dropout.contributed else ("a", "c", "d"))
    params = replace(SMALL, hamming="rlwe", class_weight=class_weight)
    present = tuple(c for c in DROPPED if c != "b" or dropout.in_graph)
    seed = projection_seed(0)
    assert seed is not None
    plain = expected(DROPPED, params, present, xclp.contributors_, seed)
    for j, client in enumerate(DROPPED):
        if client == "b":
            assert set(xclp.transduction_[j].tolist()) == {-1}
            assert (xclp.confidence_[j] == 0).all()
            assert (xclp.label_distributions_[j] == 1 / 3).all()
        else:
            assert xclp.transduction_[j].tolist() == plain[client].class_ids.tolist()
            assert xclp.confidence_[j] == pytest.approx(plain[client].confidence, abs=1e-6)


def test_nobody_drops_out_unless_asked_to() -> None:
    xclp = drop()
    assert xclp.dropouts_ == ()
    assert xclp.contributors_ == ("a", "b", "c", "d")
    assert drop(steps={}).dropouts_ == ()


def test_several_drop_out_down_to_the_threshold() -> None:
    steps = {"a": "hamming", "d": "row sums"}
    with pytest.warns(PrivacyWarning, match=r"only b and c are in the sums, .* larger threshold"):
        xclp = drop(steps=steps, threshold=2)
    assert [(d.client, d.step) for d in xclp.dropouts_] == list(steps.items())
    assert xclp.contributors_ == ("b", "c")
    with pytest.raises(TooFewParties, match="2 of the parties answered and 3 are needed"):
        drop(steps=steps)
    with pytest.raises(TooFewParties, match="1 of the parties answered and 2 are needed"):
        drop(steps=steps | {"b": "row sums"}, threshold=2)


ONE_LABELLED = DROPPED | {
    c: replace(DROPPED[c], class_ids=np.full_like(DROPPED[c].class_ids, -1)) for c in "acd"
}


@pytest.mark.parametrize("step", STEPS[:3])
def test_without_the_only_client_with_labels_nothing_can_spread(step: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        drop(ONE_LABELLED, steps={"b": step})
    assert str(caught.value) == (
        f"no client that is left has a labelled row, so nothing can spread; dropped "
        f"out: b in {step!r}"
    )


@pytest.mark.parametrize("step", STEPS[3:5])
def test_sums_without_any_label_are_warned_of(step: str) -> None:
    with pytest.warns(UserWarning, match=r"no client in the sums \(a, c, d\) has a labelled row"):
        xclp = drop(ONE_LABELLED, steps={"b": step})
    assert all(set(found) == {-1} for found in lists(xclp.transduction_))


def test_labels_that_are_counted_are_not_warned_of() -> None:
    assert drop(ONE_LABELLED, steps={"b": "labels"}).contributors_ == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["a"], r"drop must be a mapping from clients to steps, such as \{'d': 'row sums'\}, got"),
        (set(), "drop must be a mapping"),
        ("a:hamming", "drop must be a mapping .* got 'a:hamming'"),
        ({1: "hamming"}, "cannot drop 1: the clients are"),
        ({"a": "row_sums"}, "not 'row_sums'; did you mean 'row sums'"),
        ({"a": "hamming "}, "not 'hamming '; did you mean 'hamming'"),
        ({"z": "hamming"}, "cannot drop 'z': the clients are a, b, c, d"),
        ({"a": "lunch"}, "'a' can drop out before setup, .*, validation, not 'lunch'"),
        ({"a": 3}, "'a' can drop out before setup, .*, validation, not 3"),
    ],
)
def test_wrong_dropouts_are_found_before_anything_is_computed(steps: Any, message: str) -> None:
    xclp = CrossClientLabelPropagation(**SETTINGS, client_names=list(DROPPED))
    computed: list[Progress] = []
    with pytest.raises(ParameterError, match=message):
        xclp.fit(
            [x.vectors for x in DROPPED.values()],
            [x.class_ids for x in DROPPED.values()],
            drop=steps,
            progress=computed.append,
        )
    assert not computed
    with pytest.raises(ParameterError, match=message):  # before anything is said of the data
        xclp.fit([[[np.nan]]] * 4, [[0]] * 4, drop=steps)


# Labels of every type

NAMES = ["no", "yes"]


@pytest.mark.parametrize(
    ("convert", "classes", "missing"),
    [
        (lambda y: [NAMES[v] if v >= 0 else None for v in y], NAMES, None),
        (lambda y: pd.Series([NAMES[v] if v >= 0 else pd.NA for v in y]), NAMES, None),
        (lambda y: [bool(v) if v >= 0 else None for v in y], [False, True], None),
        (lambda y: np.where(y < 0, np.nan, y + 0.5), [0.5, 1.5], None),
        (lambda y: np.ma.masked_array(y, mask=y < 0), [0, 1], -1),
        (lambda y: np.ma.masked_array(np.array(NAMES)[np.maximum(y, 0)], mask=y < 0), NAMES, None),
        (lambda y: y.astype(np.int8), [0, 1], -1),
        (lambda y: [["-2", "0"][v] if v >= 0 else None for v in y], ["-2", "0"], None),
    ],
)
def test_labels_of_other_types(convert: Any, classes: list[Any], missing: Any) -> None:
    Xs, ys = example()
    reference = fit(Xs, ys)
    far = [*Xs[:2], np.vstack([Xs[2], np.zeros(4)])]
    ys[2] = np.append(ys[2], -1)
    with pytest.warns(UserWarning, match=r"row 5 \(counted from 0\) is all zero, so it has no"):
        other = fit(far, [convert(y) for y in ys])
    assert other.classes_.tolist() == classes
    expected = [[classes[v] for v in labels] for labels in lists(reference.transduction_)]
    expected[2].append(missing)
    assert lists(other.transduction_) == expected


def test_classes_that_do_not_occur_are_possible() -> None:
    xclp = fit(classes=[5, 0, 1])
    assert xclp.classes_.tolist() == [5, 0, 1]
    reference = fit()
    assert lists(xclp.transduction_) == lists(reference.transduction_)
    for wide, narrow in zip(xclp.label_distributions_, reference.label_distributions_, strict=True):
        assert (wide[:, 0] == 0).all()
        assert np.allclose(wide[:, 1:], narrow)


def test_a_single_class_is_certain() -> None:
    Xs, ys = example()
    with pytest.warns(UserWarning, match=r"of one class, 7, .*; -1 marks rows without a label"):
        xclp = fit(Xs, [np.where(y < 0, -1, 7) for y in ys], k=8)
    reached = np.concatenate(xclp.transduction_) == 7
    assert reached.any()
    assert (np.concatenate(xclp.confidence_)[reached] == 1).all()


# The result


@pytest.mark.parametrize("hamming", ["plain", "masked"])
def test_digits_get_the_labels_of_pooled_propagation(hamming: str) -> None:
    pixels, digits = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(pixels))[:240]
    Xs = [pixels[r] - 8.0 for r in np.split(rows, [90, 150])]
    truth = [digits[r] for r in np.split(rows, [90, 150])]
    ys = [np.where(np.arange(len(t)) < 12, t, -1) for t in truth]
    xclp = CrossClientLabelPropagation(
        512, 3, 0.95, preset="paper", hamming=hamming, random_state=4, classes=range(10)
    ).fit(Xs, ys)
    pi = projection(projection_seed(4) or b"", 512, 64)
    together = pooled([hash_bits(x, pi) for x in Xs], [one_hot(y, 10) for y in ys], k=3, alpha=0.95)
    for j, prediction in enumerate(together):
        assert (xclp.transduction_[j] == prediction.class_ids).all()
        assert np.allclose(xclp.confidence_[j], prediction.confidence)
        assert np.allclose(xclp.label_distributions_[j], prediction.distribution)
    right = np.concatenate([p == t for p, t, y in zip(xclp.transduction_, truth, ys, strict=True)])
    assert right.mean() > 0.7


def test_a_component_without_labels_stays_unlabelled() -> None:
    near, far = np.array([1.0, 0.0, 0.0]), np.array([-1.0, 0.0, 0.0])
    Xs = [np.array([near, far]), np.array([near, far]), np.array([far, near])]
    xclp = fit(Xs, [["x", None], ["y", None], [None, None]], n_bits=128)
    assert lists(xclp.transduction_) == [["x", None], ["y", None], [None, "x"]]
    for j, row in ((0, 1), (1, 1), (2, 0)):
        assert xclp.confidence_[j][row] == 0
        assert xclp.label_distributions_[j][row].tolist() == [0.5, 0.5]


def test_zero_rows_are_named_and_stay_unlabelled() -> None:
    Xs, ys = example()
    Xs[1][[1, 3]] = 0
    with pytest.warns(
        UserWarning, match=r"'client-1': rows 1, 3 \(counted from 0\) are all zero"
    ) as caught:
        xclp = fit(Xs, ys)
    assert {w.category for w in caught[1:]} <= {CautionWarning}
    assert xclp.transduction_[1][[1, 3]].tolist() == [-1, -1]
    Xs, ys = example()
    Xs[0] = np.vstack([Xs[0], np.zeros((9, 4))])
    ys[0] = np.append(ys[0], np.full(9, -1))
    with pytest.warns(
        UserWarning, match=r"'client-0': rows 6, 7, 8, 9, 10, … \(counted from 0\) are"
    ):
        fit(Xs, ys)


@pytest.mark.parametrize("empty", [[], (), np.empty((0, 4)), np.empty(0), np.empty((0, 4), int)])
def test_a_client_without_rows(empty: Any) -> None:
    Xs, ys = example()
    reference = fit(Xs, ys)
    Xs.insert(1, empty)
    ys.insert(1, [])
    xclp = fit(Xs, ys)
    assert lists([*xclp.transduction_[:1], *xclp.transduction_[2:]]) == lists(
        reference.transduction_
    )
    assert xclp.transduction_[1].shape == (0,)
    assert xclp.label_distributions_[1].shape == (0, 2)


def same_labels(Xs: list[Any], other_Xs: list[Any]) -> None:
    assert lists(fit(Xs).transduction_) == lists(fit(other_Xs).transduction_)


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.tolist(),
        pd.DataFrame,
        lambda x: np.asfortranarray(x),
        lambda x: np.ma.masked_array(x),
        lambda x: [tuple(row) for row in x],
        lambda x: x.astype(np.longdouble),
        sparse.csr_matrix,
        sparse.coo_array,
        lambda x: pd.DataFrame(x).astype({0: "Float64", 1: "float64[pyarrow]", 2: object}),
        lambda x: pa.table({f"c{i}": column for i, column in enumerate(x.T)}),
    ],
)
def test_features_of_other_types(convert: Any) -> None:
    Xs, _ = example()
    same_labels([convert(x) for x in Xs], Xs)


def test_integers_and_booleans_are_numbers() -> None:
    Xs, _ = example()
    whole = [np.rint(3 * x) for x in Xs]
    same_labels([x.astype(np.int8) for x in whole], whole)
    yes = [x > 0 for x in Xs]
    yes = [x | ~x.any(axis=1)[:, None] for x in yes]
    same_labels(yes, [x.astype(float) for x in yes])


def test_two_clients_are_warned() -> None:
    Xs, ys = example()
    xclp = CrossClientLabelPropagation(n_bits=64, k=2, scale="client", hamming="plain")
    with pytest.raises(ParameterError, match=r"part of every sum .* choose threshold = 2 if each"):
        xclp.fit(Xs[:2], ys[:2])
    xclp.set_params(threshold=2)
    with pytest.warns(PrivacyWarning, match="with two clients, each learns the other's") as told:
        xclp.fit(Xs[:2], ys[:2])
    assert told[0].filename == __file__  # the line that called fit
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(Xs, ys)


def test_progress_names_parties_and_steps() -> None:
    reports = []
    Xs, ys = example()
    CrossClientLabelPropagation(**SETTINGS).fit(Xs, ys, progress=reports.append)
    assert {r.party for r in reports} == {"client-0", "client-1", "client-2", "server"}
    assert {"setup", "hashing", "hamming", "propagation", "row sums", "labels"} == {
        r.step for r in reports
    }


# Bad input


def spoiled(client: int, row: int, column: int, value: Any) -> list[Any]:
    Xs, _ = example()
    Xs[client][row, column] = value
    return Xs


def with_labels(client: int, labels: Any) -> list[Any]:
    ys: list[Any] = list(example()[1])
    ys[client] = labels
    return ys


PLACE = r"\(counted from 0\)"


@pytest.mark.parametrize(
    ("client", "features", "message"),
    [
        (1, spoiled(1, 3, 2, np.nan)[1], f": row 3, column 2 {PLACE} of the .* is nan"),
        (2, spoiled(2, 0, 1, np.inf)[2], f": row 0, column 1 {PLACE} of the .* is inf"),
        (0, spoiled(0, 5, 0, -np.inf)[0], f": row 5, column 0 {PLACE} of the .* is -inf"),
        (1, [[1, 2, 3, 4], [1, 2, 3], *[[0, 0, 0, 1]] * 2],
         f": row 1 {PLACE} has 3 features, row 0 has 4"),
        (1, [[1, 2, 3, [4]], [1, 2, 3, 4]], ": a feature is a list, not a number"),
        (1, [[1, 2, 3, "x"]] * 4, f": row 0, column 3 {PLACE} is 'x', which is not a number"),
        (2, np.array([[1, 2, 3, None]] * 5, dtype=object),
         f": row 0, column 3 {PLACE} is None, which is not a number"),
        (2, pd.DataFrame([[1, 2, 3, 4]] * 4 + [[1, 2, pd.NA, 3]], dtype="Int64"),
         f": row 4 {PLACE}, column 2 is missing; drop the row or the column, fill it in, as"),
        (0, np.ones((6, 4), dtype=complex), ": .* complex128"),
        (0, np.array([[1, 2]] * 6, dtype=object),
         r": .* dtype object; pass numbers, such as X.astype\(float\)"),
        (0, np.array([np.ones(4), None, 3, 4, 5, 6], dtype=object),
         r": .* dtype object; pass numbers, such as numpy.vstack\(list\(X\)\)"),
        (0, np.array([["2020-01-01"] * 4] * 6, dtype="M8[D]"), ": .*datetime64"),
        (0, np.ones(6), r": .* shape \(6,\)"),
        (0, np.ones((6, 2, 2)), r": .* shape \(6, 2, 2\)"),
        (0, np.ones((6, 0)), r": .* shape \(6, 0\)"),
        (0, 5.0, r": .* shape \(\)"),
        (0, None, r": .* shape \(\)"),
        (0, np.ma.masked_array(np.ones((6, 4)), mask=np.eye(6, 4) * [0, 0, 1, 0]),
         r": the features are masked at \(2, 2\)"),
        (1, np.ones((1, 4)), r": 1 row of features, 4 labels$"),
        (2, np.ones((5, 3)), " has 3 features, 'client-0' has 4; all must have the same"),
        (2, np.ones((4, 4)), ": 4 rows of features, 5 labels"),
    ],
)  # fmt: skip
def test_features_that_cannot_be_used(client: int, features: Any, message: str) -> None:
    Xs: list[Any] = list(example()[0])
    Xs[client] = features
    refused(DataError, f"client 'client-{client}'{message}", Xs)


@pytest.mark.parametrize(
    ("ys", "message"),
    [
        (with_labels(1, [0, -1, -1]), "client 'client-1': 4 rows of features, 3 labels"),
        (with_labels(1, [[0], [1], [1], [1]]),
         f"client 'client-1', row 0 {PLACE}: a label of type list"),
        (with_labels(1, np.zeros((4, 1))), "client 'client-1': labels must be one-dimensional"),
        (with_labels(1, 3),
         "client 'client-1': labels must be a list or an array, got a value of type"),
        (with_labels(2, ["a", None, None, None, None]),
         r"several types: int \(client 'client-0', row 0 \(.*\)\), str \(client 'client-2', row"),
        ([np.full(n, -1) for n in (6, 4, 5)], "no client has a label"),
        ([np.full(6, -1), np.full(4, -1)], "3 feature arrays and 2 label arrays"),
        ([[0] * 6], "3 feature arrays and 1 label array;"),
        ([[None] * 6, [np.nan] * 4, [-1] * 5], "no client has a label"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_used(ys: list[Any], message: str) -> None:
    refused(DataError, message, ys=ys)


def test_some_client_must_have_rows() -> None:
    refused(DataError, "no client has any rows", [[], [], []])


def test_an_unknown_class_is_named() -> None:
    message = rf"^client 'client-2', row 3 {PLACE}: label 9 is none of the classes \(0, 1\)$"
    refused(DataError, message, ys=with_labels(2, [-1, -1, -1, 9, -1]), classes=[0, 1])


def test_rows_are_called_what_they_are_called() -> None:
    names = [None, None, list("vwxyz")]
    Xs, ys = example()
    Xs[2][[0, 2]] = 0
    with pytest.warns(UserWarning, match="client 'client-2': rows v, x are all zero"):
        CrossClientLabelPropagation(**SETTINGS).plan(Xs, ys, names)
    for ys, message in (
        (with_labels(2, [-1, -1, -1, 9, -1]), "client 'client-2', row y: label 9 is none"),
        (with_labels(1, [-1, 9, -1, -1]), r"client 'client-1', row 1 \(counted from 0\): label 9"),
    ):
        with pytest.raises(DataError, match=message):
            CrossClientLabelPropagation(**SETTINGS, classes=[0, 1]).fit(
                example()[0], ys, row_names=names
            )


def test_labels_of_zero_rows_alone_are_not_enough() -> None:
    Xs, ys = example()
    for x, y in zip(Xs, ys, strict=True):
        x[y >= 0] = 0
    with (
        pytest.warns(UserWarning, match="all zero"),
        pytest.raises(DataError, match="every labelled row is all zero"),
    ):
        fit(Xs, ys)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 15}, "k = 15, rows = 15"),
        ({"threshold": 4}, "threshold needs 4 clients or more, got 3"),
        ({"fraction_bits": 31}, "fraction_bits must be at least 32 for 3 clients, got 31"),
        ({"random_state": -1}, "random_state must be None or an integer of at least 0, got -1"),
        ({"random_state": "a"}, "random_state must be None or an integer of at least 0, got 'a'"),
        ({"random_state": 1.0}, "random_state must be None or an integer of at least 0, got 1.0"),
        ({"random_state": True}, "random_state must be None or an integer of at least 0, got True"),
        ({"random_state": np.random.RandomState(0)}, "random_state must be None or an integer"),
        ({"classes": [0, 1, 0]}, "classes must be distinct"),
        ({"classes": [0, 1, -1]}, "classes must not contain a marker"),
        ({"classes": "01"}, "classes must be a list of labels, got '01'"),
        ({"client_names": ["a", "b", "a"]}, "two clients are called 'a'"),
        ({"client_names": ["a", "b"]}, "2 names for 3 clients"),
        ({"client_names": ["a", "b", "server"]}, "'server' cannot be the name of a client"),
        ({"client_names": ["a", "b", ""]}, "'' cannot be the name of a client"),
        ({"client_names": ["a", "b", 3]}, "3 cannot be the name of a client"),
    ],
)
def test_parameters_that_do_not_fit_the_data(settings: dict[str, Any], message: str) -> None:
    """All others that cannot be used are in `test_session.py` and `test_parameters.py`."""
    refused(ParameterError, message, **settings)


def test_the_fewest_fraction_bits_give_the_labels_of_the_pooled_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    Xs = [rng.normal(size=(20, 8)) + 2 * np.eye(8)[np.arange(20) % 3] for _ in range(4)]
    ys = [np.where(np.arange(20) < 6, np.arange(20) % 3, -1) for _ in range(4)]

    def found(fraction_bits: int) -> list[list[Any]]:
        settings = {"n_bits": 256, "k": 5, "hamming": "plain", "fraction_bits": fraction_bits}
        return lists(fit(Xs, ys, **settings).transduction_)

    assert found(32) == found(44)
    monkeypatch.setattr(Parameters, "require_resolution", lambda *_: None)
    assert found(0) != found(44)


def test_k_counts_only_rows_with_a_direction() -> None:
    Xs, ys = example()
    Xs[2][2:] = 0
    with (
        pytest.warns(UserWarning, match="all zero"),
        pytest.raises(ParameterError, match="k = 12, rows = 12"),
    ):
        fit(Xs, ys, k=12)


@pytest.mark.parametrize("clients", [0, 1])
def test_fewer_than_two_clients_are_refused(clients: int) -> None:
    Xs, ys = example()
    message = f"at least 2 clients are needed, got {clients}"
    refused(ParameterError, message, Xs[:clients], ys[:clients])


def test_scores_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        EncodingOverflow, match=r"client 'client-0': row 0, column 0: .* 62 fraction"
    ):
        fit(fraction_bits=62)


def with_memory(monkeypatch: pytest.MonkeyPatch, n_bytes: int) -> None:
    pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": n_bytes}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)


def test_a_run_larger_than_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 100)
    with pytest.raises(
        ParameterError, match=r"15 rows with 64 bits by rlwe need .* GB; use fewer rows, or split"
    ):
        fit()


def test_equal_rows_are_counted_before_a_run() -> None:
    Xs = [np.ones((3, 2)), np.ones((2, 2), dtype=np.float32), np.arange(4.0).reshape(2, 2)]
    estimator = CrossClientLabelPropagation(64, 2, hamming="plain")
    (shape,) = estimator.plan(Xs, [[0, 1, -1], [-1, -1], [-1, -1]]).shapes()
    assert shape.equal == 5 * 4


def test_the_back_end_says_how_much_memory_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 10**9)
    sizes = {"a": 500, "b": 500}
    for backend in (*BACKENDS, get_backend("rlwe")):
        require_memory(sizes, 4096, backend)
    for backend in ("paillier", get_backend("paillier")):  # a residue modulo n for every pair
        with pytest.raises(ParameterError) as caught:
            require_memory({"a": 2000, "b": 2000}, 64, backend)
        assert str(caught.value) == (
            "4,000 rows with 64 bits by paillier need 12.7 GB and this machine has 1.0 GB; use "
            "hamming = 'rlwe', hamming = 'masked', fewer rows, or split the clients into groups"
        )
    with_memory(monkeypatch, 10**8)
    with pytest.raises(ParameterError, match=r"by rlwe need .* use hamming = 'masked', fewer"):
        require_memory({"a": 100, "b": 100}, 4096, "rlwe")
    with pytest.raises(ParameterError, match=r"by masked need .* use fewer rows"):
        require_memory({"a": 8000, "b": 0}, 64, "masked")  # 2·n² alone is more


class Modest(Shade):
    """A back end that needs no memory itself."""

    name = "modest"


@estimate.register
def _(backend: Modest, sizes: Mapping[str, int], n_bits: int) -> Estimate:
    return Estimate(rounds=1, bytes_per_link={}, operations={}, memory_bytes=0)


def test_hashes_and_distances_must_fit_whatever_the_back_end_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_memory(monkeypatch, 10**8)
    require_memory({"a": 7000, "b": 0}, 1, Modest())
    with pytest.raises(ParameterError, match=r"20,000 rows with 1 bit by modest need 0\.8 GB"):
        require_memory({"a": 20_000, "b": 0}, 1, Modest())


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a: (x for x in a),
        iter,
        lambda a: dict(enumerate(a)),
        lambda a: "abc",
        lambda a: None,
        lambda a: sparse.csr_array(a[0]),
        lambda a: pd.DataFrame(a[0]),
    ],
)
def test_the_clients_come_in_a_list(wrap: Any) -> None:
    Xs, ys = example()
    for what, args in (("Xs", (wrap(Xs), ys)), ("ys", (Xs, wrap([y[:, None] for y in ys])))):
        with pytest.raises(
            DataError, match=f"{what} must be a list with one array per client, got .* make a list"
        ):
            CrossClientLabelPropagation(**SETTINGS).fit(*args)


# Plans and results, and warnings of classes


def test_a_plan_has_what_will_be_run() -> None:
    Xs, ys = example()
    Xs[1][3] = 0
    with pytest.warns(UserWarning, match="all zero"):
        plan = CrossClientLabelPropagation(**SETTINGS).plan(Xs, ys)
    assert plan.params.classes == (0, 1)
    assert plan.sizes == {"client-0": 6, "client-1": 3, "client-2": 5}
    assert {c: own.class_ids.tolist() for c, own in plan.data.items()} == {
        f"client-{i}": y.tolist() for i, y in enumerate(ys)
    }


@pytest.mark.parametrize("settings", [{}, {"reset_labelled": True, "relative_confidence": True}])
def test_fit_is_a_plan_that_is_run(settings: dict[str, Any]) -> None:
    Xs, ys = example()
    names = ["north", "south", "west"]
    xclp = CrossClientLabelPropagation(**SETTINGS | settings, client_names=names)
    xclp.fit(Xs, ys, rng=SeededRng(1))
    result = xclp.plan(Xs, ys).run(rng=SeededRng(1))
    assert lists([result.labels(name) for name in names]) == lists(xclp.transduction_)
    for j, name in enumerate(names):
        found = result.predictions[name]
        assert (found.confidence == xclp.confidence_[j]).all()
        assert (found.distribution == xclp.label_distributions_[j]).all()
        assert xclp.classes_[found.class_ids].tolist() == xclp.transduction_[j].tolist()
    assert result.participation.contributors == xclp.contributors_
    assert result.cost.bytes_sent == xclp.cost_.bytes_sent
    assert result.without_result == ()


def test_a_plan_runs_more_than_once() -> None:
    plan = CrossClientLabelPropagation(**SETTINGS).plan(*example())
    first, second = plan.run(), plan.run(drop={"client-1": "labels"})
    assert first.labels("client-0").tolist() == second.labels("client-0").tolist()
    assert (second.without_result, first.without_result) == (("client-1",), ())
    assert set(second.labels("client-1").tolist()) == {-1}


def test_plans_and_results_show_nobodys_data_and_are_neither_pickled_nor_copied() -> None:
    plan = CrossClientLabelPropagation(**SETTINGS).plan(*example())
    result = plan.run()
    own = [plan.data["client-0"], result.predictions["client-0"]]
    for holder in (plan, result, *own):
        assert repr(holder) == str(holder) == f"<{type(holder).__name__}>"
        for leave in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=type(holder).__name__):
                leave(holder)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["cat", "nan"], r"client 'client-1': the labels 'nan' look like missing ones"),
        (["?", " N/A ", ""], r"client 'client-1': the labels '', ' N/A ', '\?' look like missing"),
        (["-1", "0"], "the labels '-1' look like missing ones"),
        (["Cat", "cat", "dog"], "the labels 'Cat', 'cat' differ only by case, surrounding"),
        (["cat ", "cat"], "the labels 'cat', 'cat ' differ only by"),
        (["1.0", "1", "x"], "the labels '1', '1.0' differ only by"),
        (["cafe\u0301", "caf\xe9", "x"], r"the labels 'cafe\\u0301', 'caf\\xe9' differ only by"),
        (["caf\u200be", "cafe", "x"], r"the labels 'cafe', 'caf\\u200be' differ only by"),
        (["\xdcbel", "\xfcbel", "x"], "the labels 'Übel', 'übel' differ only by"),
        (["#N/A", "#REF!"], "the labels '#N/A', '#REF!' look like missing ones"),
        (["Unknown", "cat"], "the labels 'Unknown' look like missing ones"),
        (["late pneumonia", "late pnuemonia"], "'late pneumonia', 'late pnuemonia' differ by one"),
        (["asthma", "astma"], "the labels 'asthma', 'astma' differ by one letter"),
        (["healthy", "healtty"], "the labels 'healthy', 'healtty' differ by one letter"),
    ],
)
def test_odd_classes_are_warned_of(labels: list[str], message: str) -> None:
    Xs, _ = example()
    ys: list[Any] = [["dog"] + [None] * 5, [*labels, None, None, None][:4], [None] * 5]
    with pytest.warns(UserWarning, match=message) as caught:
        fit(Xs, ys)
    assert {w.category for w in caught[1:]} <= {CautionWarning}
    assert "\n" not in str(caught[0].message)
    assert Path(caught[0].filename) == Path(__file__)
    fit(Xs, ys, classes=["dog", *(c for c in labels if c != "dog")])  # these are meant


@pytest.mark.parametrize(
    ("ys", "message"),
    [
        (
            [["-", "?"], ["?", "tbd"], ["cat"]],
            "'-' of 'client-0'; '?' of 'client-0', 'client-1'; 'tbd' of 'client-1': the labels "
            "'-', '?', 'tbd' look like missing ones",
        ),
        (
            [["cafe\u0301"], ["caf\xe9"], ["x"]],
            r"'cafe\u0301' of 'client-0'; 'caf\xe9' of 'client-1': the labels 'cafe\u0301', ",
        ),
    ],
)
def test_odd_labels_are_said_to_be_of_all_clients_that_have_them(
    ys: list[list[str]], message: str
) -> None:
    Xs, _ = example()
    rows = [[*own, *[None] * (len(x) - len(own))] for x, own in zip(Xs, ys, strict=True)]
    with pytest.warns(UserWarning, match=re.escape(message)):
        fit(Xs, rows)


def test_ordinary_classes_are_not_warned_of() -> None:
    Xs, _ = example()
    fit(Xs, [["10", "1", "n", *[None] * 3], ["nana", "1.5", *[None] * 2], ["10.05"] + [None] * 4])
    alike = [["hyperthyroid", "cats", "type-12", "male", "stage II", "lightly"]]
    fit(
        Xs,
        [*alike, ["hypothyroid", "cat", "type-1", "female"], ["stage I", "nightly", *[None] * 3]],
    )
    fit(Xs, [[True, False] + [None] * 4, [None] * 4, [None] * 5])


def test_after_an_error_the_old_results_stand() -> None:
    xclp = fit()
    before = lists(xclp.transduction_)
    with pytest.raises(DataError):
        xclp.fit(spoiled(1, 3, 2, np.nan), example()[1])
    assert lists(xclp.transduction_) == before


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1.0, np.nan, -1.0, 0.0], "both -1 and None, .* labels of 'client-1'; -1 marks rows"),
        ([2.0**53, 0.5, -1, -1], r"'client-1': the labels 9007199254740992.0 are floats, and each"),
    ],
)
def test_numbers_that_may_mean_something_else_are_warned_of(labels: Any, message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        fit(ys=[[0.5, 1.0] + [np.nan] * 4, labels, [None] * 5])


def test_none_stands_for_a_client_without_labels() -> None:
    without, unlabelled = (fit(ys=with_labels(1, labels)) for labels in (None, [-1] * 4))
    assert lists(without.transduction_) == lists(unlabelled.transduction_)


# What the paper's code does differently


def options_example() -> tuple[list[NDArray[np.float64]], list[NDArray[np.int64]]]:
    """Two clouds, and one point of the first labelled as the second, which neighbours outvote."""
    rng = np.random.default_rng(4)
    Xs = [np.eye(2, 4)[np.arange(12) % 2] + 0.2 * rng.standard_normal((12, 4)) for _ in range(3)]
    ys = [np.full(12, -1) for _ in Xs]
    for y in ys:
        y[:6] = np.arange(6) % 2
    ys[1][0] = 1
    return Xs, ys


def test_labelled_rows_keep_their_labels_if_asked() -> None:
    Xs, ys = options_example()
    plain, kept = (
        fit(Xs, ys, n_bits=512, k=5, alpha=0.99, hamming="plain", reset_labelled=reset)
        for reset in (False, True)
    )
    assert plain.transduction_[1][0] == 0
    for j, y in enumerate(ys):
        known = y >= 0
        assert (kept.transduction_[j][known] == y[known]).all()
        assert (kept.confidence_[j][known] == 1).all()
        assert (kept.label_distributions_[j][known] == np.eye(2)[y[known]]).all()
        for name in ("transduction_", "confidence_", "label_distributions_"):
            assert (getattr(kept, name)[j][~known] == getattr(plain, name)[j][~known]).all()


def test_confidence_relative_to_the_largest() -> None:
    Xs, ys = options_example()
    ys[2][:] = -1
    settings = {"n_bits": 512, "k": 20, "alpha": 0.99, "hamming": "plain"}
    with pytest.warns(UserWarning, match=r"row labelled 0 \(5\) came out as another class: 1$"):
        plain, relative = (
            fit(Xs, ys, **settings, relative_confidence=relative) for relative in (False, True)
        )
    for a, b in zip(plain.confidence_, relative.confidence_, strict=True):
        assert 0 < a.max() < 1
        np.testing.assert_allclose(b, a / a.max())
    assert lists(plain.transduction_) == lists(relative.transduction_)


def test_a_tight_frame_gives_the_labels_of_its_own_hashes() -> None:
    Xs, ys = options_example()
    options = {"k": 3, "random_state": 1, "projection": "tight-frame"}
    seed = projection_seed(1) or b""
    pi = projection(seed, 64, 4, "tight-frame")
    onehot = [np.eye(3)[y][:, :2] for y in ys]
    expected = pooled([hash_bits(x, pi) for x in Xs], onehot, k=3, alpha=0.9)
    for hamming in ("plain", "masked"):
        found = fit(Xs, ys, hamming=hamming, **options)
        for own, other in zip(found.label_distributions_, expected, strict=True):
            np.testing.assert_allclose(own, other.distribution, atol=1e-9)
    refused(ParameterError, "projection must be", Xs, ys, projection="frame")
    wide = [np.pad(x, ((0, 0), (0, 4093))) for x in Xs]
    refused(ParameterError, "4096 features", wide, ys, **options)
