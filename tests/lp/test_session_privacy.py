"""Differential privacy of labels: noise where it belongs, and no run without it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from session_runs import SMALL, Data, blobs, expected, federation, predictions
from sklearn.base import clone

from xclp_crypto import privacy
from xclp_crypto.errors import EncodingOverflow, FaultyPeer, ParameterError, TooFewParties
from xclp_crypto.primitives.fixed_point import FixedPoint
from xclp_crypto.privacy import LabelPrivacy, label_sensitivity
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import run
from xclp_crypto.transport.simulate import Delivery, Faults
from xclp_lp import CrossClientLabelPropagation, labelling
from xclp_lp import noise as noise_module
from xclp_lp.influence import Layout, PartialScores
from xclp_lp.messages import Sensitivity
from xclp_lp.noise import SensitivityOfAll
from xclp_lp.parameters import Parameters

ASKED = LabelPrivacy(epsilon=2.0, delta=1e-5, noise_contributors=2)
PRIVATE = replace(SMALL, hamming="plain", fraction_bits=30, privacy=ASKED)
DATA = blobs({"a": 4, "b": 4, "c": 5, "d": 4}, labelled=2, seed=2)
MANY_ROWS = blobs(dict.fromkeys("abcd", 48), labelled=2, seed=2)


def sums_of(
    data: Data, params: Parameters, seed: int, faults: Faults
) -> tuple[dict[str, NDArray[np.float64]], float, tuple[str, ...]]:
    """By client, its rows of the sums before anything is cut; s² as announced; who contributed."""
    outcome = run(federation(data, params, seed=seed), faults, record=True).raise_errors()
    sums = {c: outcome.results[c].kept.sums for c in data}
    told = {m.value for c in data for _, m in outcome.views[c] if isinstance(m, Sensitivity)}
    (sensitivity,) = told
    variance = ASKED.client_variance(sensitivity, sum(len(own.class_ids) for own in data.values()))
    return sums, variance, outcome.results[SERVER].contributors


def variances(
    monkeypatch: pytest.MonkeyPatch, runs: int, faults: Faults
) -> tuple[dict[str, float], tuple[str, ...]]:
    """By client, the variance of what is added to its rows, in units of s² on the grid."""
    with monkeypatch.context() as patch:
        patch.setattr(noise_module, "add_noise", lambda encoded, variance, rng: encoded)
        exact, variance, contributors = sums_of(MANY_ROWS, PRIVATE, 0, faults)
    grid = 2.0**PRIVATE.fraction_bits
    noise: dict[str, list[NDArray[np.float64]]] = {c: [] for c in exact}
    for seed in range(runs):
        noisy, _, _ = sums_of(MANY_ROWS, PRIVATE, seed, faults)
        for client, values in noisy.items():
            noise[client].append((values - exact[client]) * grid)
    stacked = {c: np.concatenate(v) for c, v in noise.items()}
    for values in stacked.values():
        assert (values == np.rint(values)).all()  # on the grid
        assert abs(values.mean()) < 6 * math.sqrt(4 * variance / values.size)
    return {c: float(v.var() / variance) for c, v in stacked.items()}, contributors


def test_each_client_has_the_noise_of_all_other_contributors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, contributors = variances(monkeypatch, 5, Faults())
    assert contributors == tuple(DATA)
    assert found == pytest.approx(dict.fromkeys(DATA, 3), rel=0.25)  # 12 sigma of 720 numbers: 0.6


def test_so_it_does_when_a_client_comes_back_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own noise is nowhere; all noise of the others is in its rows."""
    found, contributors = variances(monkeypatch, 5, Faults(away={"b": "upload"}))
    assert contributors == ("a", "c", "d")
    assert found == pytest.approx({"a": 2, "c": 2, "d": 2, "b": 3}, rel=0.25)


def test_the_same_test_finds_a_client_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    original = labelling.noise_of_client
    calls = []

    def lazy(params: Parameters, *rest: Any) -> Any:
        calls.append(1)
        noise = original(params, *rest)
        return noise * 0 if len(calls) % len(DATA) == 1 else noise  # the first client

    monkeypatch.setattr(labelling, "noise_of_client", lazy)
    found, _ = variances(monkeypatch, 5, Faults())
    assert found == pytest.approx({"a": 3, "b": 2, "c": 2, "d": 2}, rel=0.25)


def test_with_a_large_epsilon_labels_are_nearly_those_without_noise() -> None:
    data = blobs(dict.fromkeys("abcd", 30), labelled=10, seed=1)
    plain = expected(data, replace(SMALL, k=5), tuple(data), tuple(data))

    def agreement(epsilon: float) -> float:
        params = replace(PRIVATE, k=5, privacy=replace(ASKED, epsilon=epsilon))
        found = predictions(federation(data, params))
        return float(
            np.mean(np.concatenate([found[c].class_ids == plain[c].class_ids for c in data]))
        )

    assert agreement(700) > 0.95
    assert agreement(0.1) < 0.7
    assert agreement(0.1) > 0


def test_no_rounding_depends_on_a_label() -> None:
    """Without noise, another class of a row moves the sums by its rounded column, and no more."""
    data = blobs({"a": 4, "b": 4, "c": 4}, labelled=3, seed=4)
    codec = FixedPoint(PRIVATE.fraction_bits, 3)
    columns = np.random.default_rng(0).random((12, 3), dtype=np.float32).astype(np.float64)
    layout = Layout(np.ones(12, np.uint16), np.arange(3))

    def contribution(codes: NDArray[np.int64]) -> NDArray[np.float64]:
        scores = PartialScores(layout, codes, 3, codec)
        scores.add_block(0, columns.T.astype(np.float32).reshape(-1))
        return labelling.contribution(PRIVATE, scores, codes, 3)

    for row in range(3):
        codes = data["a"].class_ids[:3].copy()
        one = contribution(codes)
        codes[row] = (codes[row] + 1) % 3
        moved = contribution(codes) - one
        grid = np.rint(columns[:, row] * 2**PRIVATE.fraction_bits) / 2**PRIVATE.fraction_bits
        assert sorted(abs(moved).sum(axis=0)) == [0, grid.sum(), grid.sum()]
        distance = np.linalg.norm(moved) * 2**PRIVATE.fraction_bits
        assert distance <= label_sensitivity(columns, codec)


# A server that does not play by the rules


@pytest.mark.parametrize(
    ("factor", "words"),
    [(0.99, "names a sensitivity below that of the columns"), (1e6, "is the most possible")],
)
def test_a_server_that_names_another_sensitivity_is_named(
    monkeypatch: pytest.MonkeyPatch, factor: float, words: str
) -> None:
    original = SensitivityOfAll.checked
    monkeypatch.setattr(SensitivityOfAll, "checked", lambda self: factor * original(self))
    outcome = run(federation(DATA, PRIVATE))
    named = [e for e in outcome.errors.values() if isinstance(e, FaultyPeer)]
    assert named
    assert all(e.parties == (SERVER,) and words in str(e) for e in named)
    assert not outcome.results


def test_another_machines_rounding_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SensitivityOfAll.checked
    monkeypatch.setattr(SensitivityOfAll, "checked", lambda self: original(self) * (1 - 2.0**-45))
    assert not run(federation(DATA, PRIVATE)).errors


# Runs that cannot be


def test_noise_that_does_not_fit_is_refused_before_anything_is_uploaded() -> None:
    sent = []

    def watch(delivery: Delivery) -> bytes:
        sent.append(delivery.message)
        return delivery.payload

    params = replace(PRIVATE, fraction_bits=44, privacy=replace(ASKED, epsilon=0.05))
    outcome = run(federation(DATA, params), Faults(on_message=watch))
    error = outcome.errors[SERVER]
    assert isinstance(error, ParameterError)
    assert "use fewer fraction bits" in str(error)
    assert "Sealed[Prepared]" in sent
    assert not {"Sealed[Sensitivity]", "Sealed[SumShares]", "Sealed[RowSumsUpload]"} & set(sent)
    # So many labels that their scores alone come near the end of the ring.
    params = replace(PRIVATE, fraction_bits=49, privacy=replace(ASKED, epsilon=700))
    found = SensitivityOfAll(params, 2, 4)
    found.add_columns(np.ones((1 << 8, 2), np.float32))
    assert found.checked() > 0
    found.add_columns(np.ones((1 << 14, 2), np.float32))
    with pytest.raises(EncodingOverflow, match="Use fewer fraction bits or a larger epsilon"):
        found.checked()


def test_without_enough_noise_nothing_is_released() -> None:
    """With three clients in the sums and the own noise known, only two are left to add noise."""
    strict = replace(PRIVATE, privacy=replace(ASKED, noise_contributors=3))
    for step in ("setup", "hamming", "row sums", "upload"):
        outcome = run(federation(DATA, strict), Faults(dropouts={"c": step}))
        error = outcome.errors[SERVER]
        assert isinstance(error, TooFewParties)
        assert (error.present, error.needed) == (3, 4)
        assert not outcome.results
    assert not run(federation(DATA, strict)).errors
    assert SERVER in run(federation(DATA, PRIVATE), Faults(dropouts={"c": "upload"})).results


@pytest.fixture
def no_accountant(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    privacy._calibrate.cache_clear()
    monkeypatch.setattr(privacy, "import_module", missing)


@pytest.mark.usefixtures("no_accountant")
def test_without_the_accountant_nothing_is_sent() -> None:
    outcome = run(federation(DATA, PRIVATE))
    assert set(outcome.errors) == {*DATA, SERVER}
    for error in outcome.errors.values():
        assert isinstance(error, ParameterError)
        assert str(error) == "dp-accounting is not installed; run: pip install 'xclp[dp]'"
    assert outcome.cost.total_bytes == 0


# In the estimator


def rows_and_labels() -> tuple[list[Any], list[Any]]:
    return [own.vectors for own in DATA.values()], [own.class_ids for own in DATA.values()]


def estimator(**settings: Any) -> CrossClientLabelPropagation:
    defaults: dict[str, Any] = {"n_bits": 64, "k": 2, "hamming": "plain", "fraction_bits": 30}
    return CrossClientLabelPropagation(**defaults | {"privacy": ASKED} | settings)


def test_the_estimator_takes_privacy_and_keeps_it() -> None:
    xclp = estimator()
    assert xclp.get_params()["privacy"] is ASKED
    assert clone(xclp).get_params() == xclp.get_params()
    one, two = (estimator(random_state=0).fit(*rows_and_labels()) for _ in range(2))
    assert one.contributors_ == one.client_names_
    assert not np.array_equal(one.label_distributions_[0], two.label_distributions_[0])
    for distribution in one.label_distributions_:
        assert (distribution >= 0).all()
        assert distribution.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"privacy": (2, 1e-5, 2)}, r"a RandomizedResponse or a LabelPrivacy, got \(2, 1e-05, 2\)"),
        ({"class_weight": "balanced"}, "class_weight and privacy by noise in the sums exclude"),
        (
            {"privacy": replace(ASKED, noise_contributors=4)},
            "noise_contributors = 4 needs 5 clients, these and the owner of a row, got 4; lower",
        ),
        ({"threshold": 2}, "threshold must be at least 3, got 2"),
    ],
)
def test_privacy_that_cannot_be_had(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        estimator(**settings).plan(*rows_and_labels())


@pytest.mark.usefixtures("no_accountant")
def test_the_estimator_needs_the_accountant_before_it_begins() -> None:
    with pytest.raises(ParameterError, match="dp-accounting is not installed"):
        estimator().plan(*rows_and_labels())


def test_too_little_noise_stops_the_estimator() -> None:
    strict = replace(ASKED, noise_contributors=3)
    with pytest.raises(TooFewParties, match="3 of the parties answered and 4 are needed"):
        estimator(privacy=strict).fit(*rows_and_labels(), drop={"client-1": "row sums"})
