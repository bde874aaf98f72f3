"""Leaving labelled rows out: exactly what runs without each label find, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.helpers.session_runs import SMALL, blobs, expected, federation, watch_uploads
from xclp_crypto.errors import FaultyPeerOrServer, ParameterError
from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse
from xclp_crypto.protocols.secure_sum.double_masks import SumReady, SumShares
from xclp_crypto.protocols.secure_sum.survivors import SumSigned
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.protocols.setup.channel import SealedIO
from xclp_crypto.testing import run
from xclp_crypto.transport.simulate import Faults
from xclp_lp import labelling, leave_one_out
from xclp_lp.accuracy import BINS, Setting, Validation
from xclp_lp.files.results import write_server_record
from xclp_lp.labels import UNLABELLED
from xclp_lp.leave_one_out import OTHER_ALPHAS
from xclp_lp.messages import Geometry
from xclp_lp.parameters import Settings
from xclp_lp.predictions import Prediction
from xclp_lp.session import ClientData
from xclp_lp.summary import is_sound, validation_lines

SIZES = {"a": 7, "b": 6, "c": 5}
DATA = blobs(SIZES, labelled=3, d=3, seed=3) | {"d": ClientData(np.eye(3)[:2], np.array([-1, -1]))}


def without_label(client, row):
    """The data, but for one label."""
    class_ids = DATA[client].class_ids.copy()
    class_ids[row] = UNLABELLED
    return DATA | {client: ClientData(DATA[client].vectors, class_ids)}


def refitted(params):
    """What runs without each label find: its class, what it got, and its confidence."""
    found = []
    for client, own in DATA.items():
        for row in np.flatnonzero(own.class_ids != UNLABELLED).tolist():
            rest = expected(without_label(client, row), params, tuple(DATA), tuple(DATA))[client]
            found.append((own.class_ids[row], rest.class_ids[row], rest.confidence[row]))
    return found


@pytest.mark.parametrize(
    ("validation", "weight"),
    [("leave-one-out", "none"), ("leave-one-out", "balanced"), ("tune", "sqrt")],
)
def test_it_counts_what_runs_without_each_label_find(validation, weight):
    params = replace(SMALL, class_weight=weight, validation=validation, hamming="plain")
    outcome = run(federation(DATA, params)).raise_errors()
    assert outcome.results[SERVER].validated == tuple(DATA)
    found = {client: outcome.results[client].validation for client in DATA}
    alphas = OTHER_ALPHAS if validation == "tune" else (params.alpha,)
    assert {s.alpha for s in found["a"].right} == set(alphas)
    for setting in found["a"].right:
        truth, got, confidence = (
            np.array(part)
            for part in zip(*refitted(replace(params, **setting._asdict())), strict=True)
        )
        right = np.bincount(truth[truth == got], minlength=3)
        assert all((own.right[setting] == right).all() for own in found.values())
        if setting == params.setting:
            bins = np.minimum((BINS * confidence).astype(int), BINS - 1)
            rows = [np.bincount(b, minlength=BINS) for b in (bins, bins[truth == got])]
            assert (found["b"].by_confidence == rows).all()
    assert found["a"].used == params.setting
    assert (found["c"].labels == np.bincount(truth, minlength=3)).all()
    assert [own.own_labels for own in found.values()] == [3, 3, 3, 0]
    assert sum(own.own_right for own in found.values()) == found["a"].right[params.setting].sum()


@pytest.mark.parametrize("validation", ["leave-one-out", "tune"])
def test_who_drops_out_of_it_costs_nobody_its_labels_and_shows_nobody_its_own(validation):
    params = replace(SMALL, validation=validation, hamming="plain")
    make = federation(DATA, params)
    whole = run(make).raise_errors()
    part = run(make, Faults(dropouts={"b": "validation"})).raise_errors()
    for client in ("a", "c", "d"):
        own = part.results[client]
        assert own.class_ids.tolist() == whole.results[client].class_ids.tolist()
        assert own.validation is None  # of three, less the sums of four
    assert part.results[SERVER].validated == ()


def test_who_was_not_in_the_row_sums_is_not_missed_in_the_validation():
    params = replace(SMALL, validation="leave-one-out", hamming="plain")
    part = run(federation(DATA, params), Faults(dropouts={"b": "row sums"})).raise_errors()
    assert part.results["a"].validation.labels.sum() == 6
    assert part.results[SERVER].validated == ("a", "c", "d")


def test_who_leaves_another_out_of_the_validation_alone_reads_no_labels_of_it(monkeypatch):
    honest = SealedIO.send

    async def send(io, to, message):
        if io.name == "d" and io.current_step == "validation" and isinstance(message, SumReady):
            message = replace(message, have=np.array([True, False, True]))  # of a, b and c
        await honest(io, to, message)

    monkeypatch.setattr(SealedIO, "send", send)
    params = replace(SMALL, validation="leave-one-out", hamming="plain")
    outcome = run(federation(DATA, params)).raise_errors()
    assert all(outcome.results[client].validation is None for client in DATA)
    assert "d says that nothing came from b" in str(outcome.results[SERVER].unvalidated)


@pytest.mark.parametrize(
    ("validation", "purpose", "where", "added"),
    [
        ("leave-one-out", "validation", slice(-2 * BINS, None), -1000),
        ("leave-one-out", "validation", slice(0, 3), 100),
        ("leave-one-out", "validation", slice(-2 * BINS, -BINS), 1),
        ("leave-one-out", "validation", slice(3, 6), 1),
        ("tune", "tune", slice(None), -50),
    ],
)
def test_counts_that_cannot_be_cost_nobody_its_labels(
    monkeypatch, validation, purpose, where, added
):
    params = replace(SMALL, validation=validation, hamming="plain", class_weight="balanced")
    whole = run(federation(DATA, params)).raise_errors()

    def lie(client, sum_of, values, rows):
        if (client, sum_of) == ("c", purpose):
            values[:, where] += added

    watch_uploads(monkeypatch, leave_one_out, lie)
    outcome = run(federation(DATA, params)).raise_errors()
    for client in ("a", "b", "d"):
        own = outcome.results[client]
        assert own.class_ids.tolist() == whole.results[client].class_ids.tolist()
        assert own.validation is None
        if purpose == "validation" or client != "d":  # which has no row in the other sum
            assert own.unvalidated.blamed == tuple(c for c in DATA if c != client)
            assert "(or the server that relays its messages)" in str(own.unvalidated)


def test_labels_by_class_are_those_that_were_announced(monkeypatch):
    def lie(client, sum_of, values, rows):
        if client == "c":
            values[rows["a"][-1], 0] += 1

    watch_uploads(monkeypatch, labelling, lie)
    params = replace(SMALL, class_weight="balanced", hamming="plain")
    error = run(federation(DATA, params)).errors["a"]
    assert isinstance(error, FaultyPeerOrServer)
    assert error.parties == ("b", "c", "d")


@pytest.mark.parametrize(
    ("lie", "accuser"),
    [(SumShares(bytes(37), bytes(37)), "a"), (SumSigned(bytes(64)), SERVER)],
)
def test_who_spoils_the_validation_is_recorded_and_costs_nobody_its_labels(
    monkeypatch, tmp_path, lie, accuser
):
    honest = SealedIO.send

    async def send(io, to, message):
        at = io.name == "c" and io.current_step == "validation"
        if at and type(message) is type(lie) and to == accuser:
            message = lie
        await honest(io, to, message)

    params = replace(SMALL, validation="leave-one-out", hamming="plain")
    whole = run(federation(DATA, params)).raise_errors()
    monkeypatch.setattr(SealedIO, "send", send)
    outcome = run(federation(DATA, params)).raise_errors()
    for client in DATA:
        got, true = outcome.results[client], whole.results[client]
        assert got.class_ids.tolist() == true.class_ids.tolist()
    accused = outcome.results[accuser].unvalidated
    assert accused.to_dict() | {"reason": ""} == {
        "reason": "",
        "blamed": ["c"],
        "blamed_by": [accuser],
    }
    if accuser == SERVER:
        write_server_record(tmp_path, outcome.results[SERVER], outcome.cost, ["other"])
        written = json.loads((tmp_path / "server-cost.json").read_text())
        assert written["unvalidated"] == accused.to_dict()
        assert written["warnings"] == ["other", str(accused)]


def test_limit_who_spoils_the_scores_of_all_but_one_reads_how_many_labels_of_that_one_are_right(
    monkeypatch,
):
    uploads = {}

    def lie(client, sum_of, values, rows):
        if sum_of == "validation":
            uploads[client] = values[0].astype(int)
        elif client == "c":
            values[[*rows["b"][:-1], *rows["d"][:-1]], 0] += 2.0**10

    watch_uploads(monkeypatch, labelling, lie)
    watch_uploads(monkeypatch, leave_one_out, lie)
    params = replace(SMALL, validation="leave-one-out", hamming="plain")
    found = run(federation(DATA, params)).raise_errors().results["c"].validation
    read = found.right[found.used] - uploads["c"][3:6]
    assert (read == uploads["a"][3:6])[1:].all()
    assert read[1:].any()


def test_the_prior_is_of_the_own_labels():
    params = replace(SMALL, client_prior="own", class_weight="balanced", hamming="plain")
    outcome = run(federation(DATA, params)).raise_errors()
    plain = expected(DATA, params, tuple(DATA), tuple(DATA))
    without = expected(DATA, replace(params, client_prior="none"), tuple(DATA), tuple(DATA))
    for client, own in plain.items():
        found = outcome.results[client]
        assert found.class_ids.tolist() == own.class_ids.tolist()
        assert found.distribution == pytest.approx(own.distribution, abs=1e-6)
    assert plain["a"].distribution != pytest.approx(without["a"].distribution, abs=0.01)


def of(rows, right, labels=None):
    """A validation with these numbers by confidence."""
    n = int(np.sum(rows)) if labels is None else labels
    used = Setting(0.9, "sqrt", "none")
    other = Setting(0.9, "balanced", "own")
    return Validation(
        labels=np.array([n, 0]),
        right={used: np.array([int(np.sum(right)), 0]), other: np.array([n, 0])},
        by_confidence=np.array([rows, right]),
        own_labels=0,
        own_right=0,
    )


def test_confidences_become_the_share_that_is_right_and_keep_their_order():
    rows = np.array([40, 0, 0, 0, 0, 40, 0, 0, 0, 40])
    found = of(rows, np.array([10, 0, 0, 0, 0, 5, 0, 0, 0, 39]))
    confidence = np.linspace(0, 1, 101)
    calibrated = found.calibrated(confidence)
    assert (np.diff(calibrated) >= 0).all()
    assert calibrated[0] == 0  # no label
    # Two bins whose shares fall are one; each has one more row, right as often as all 120 are.
    assert calibrated[5] == pytest.approx((15 + 2 * 54 / 120) / 82)
    assert calibrated[100] == pytest.approx((39 + 54 / 120) / 41)
    whole, *_, surest = found.coverage()
    assert (whole.confidence, whole.share, whole.accuracy) == (0, 1, 54 / 120)
    assert (surest.share, surest.labels, surest.right) == (1 / 3, 40, 39)
    assert 0.02 < surest.error < 0.04 < whole.error < 0.05
    assert found.accuracy() == 54 / 120
    assert found.balanced_accuracy() == 54 / 120
    assert found.error == 0.05
    assert found.advised == Setting(0.9, "balanced", "own")


def test_twelve_labels_say_nothing():
    found = of([12] + [0] * 9, [12] + [0] * 9)
    assert found.error is None
    assert np.isnan(found.accuracy())
    assert found.advised is None
    confidence = np.array([0.0, 0.3, 1.0])
    assert (found.calibrated(confidence) == confidence).all()


def test_rows_below_the_least_confidence_get_no_label():
    prediction = Prediction(
        np.array([0, 1, 0]),
        np.array([0.05, 0.95, 0.95]),
        np.full((3, 2), 0.5),
        of([20] + [0] * 8 + [20], [4] + [0] * 8 + [19]),
    )
    shown = Settings(min_confidence=0.6).shown(prediction, np.array([-1, -1, -1]))
    assert shown.class_ids.tolist() == [UNLABELLED, 1, 0]
    assert 0.9 < shown.confidence[1] <= 0.95
    settings = Settings(min_confidence=0.6, reset_labelled=True)
    kept = settings.shown(prediction, np.array([1, -1, -1]))
    assert kept.class_ids.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    "privacy", [RandomizedResponse(2.0), LabelPrivacy(1.0, 1e-6, noise_contributors=2)]
)
def test_private_labels_are_not_counted(privacy):
    with pytest.raises(ParameterError, match="validation and privacy of labels exclude"):
        Settings(privacy=privacy, validation="leave-one-out", class_weight="none")


def test_no_setting_is_advised_where_the_graph_looks_wrong():
    found = replace(of([0] * 9 + [40], [0] * 9 + [10]), labels=np.array([39, 1]))
    lines = list(validation_lines(found))
    assert lines[0].startswith("estimated accuracy: 25% ± 8 points")
    assert "client_prior = 'own' would be right for 100% of them" in lines[-1]
    assert list(validation_lines(found, advise=False)) == lines[:-1]
    far = Prediction.none(2, 2)
    assert is_sound(SMALL, [far])
    tied = replace(far, geometry=Geometry(neighbours=9.0, mixing=1.0, rows=400))
    assert not is_sound(SMALL, [far, tied])
