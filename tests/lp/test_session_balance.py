"""Labels weighed by their class, without anybody's counts in anybody's sight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from session_runs import SMALL, Data, blobs, expected, federation, no_mask, random_case, relabelled
from sklearn.utils.class_weight import compute_class_weight

from xclp_crypto.protocols.secure_sum import keyed_masks, row_sums_recover
from xclp_crypto.protocols.secure_sum.rows import RowSumsUpload
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.testing import run, same_distribution, uniformity
from xclp_crypto.transport.simulate import Faults
from xclp_lp.dropouts import STEPS
from xclp_lp.labels import ClassWeight, class_weights
from xclp_lp.study.data import load
from xclp_lp.study.demo import compare, plan_demo

BALANCED = replace(SMALL, hamming="plain", class_weight="balanced", threshold=2)


@pytest.mark.parametrize("weight", ["sqrt", "balanced"])
@pytest.mark.parametrize("seed", range(6))
def test_scores_are_those_of_weighted_labels(seed: int, weight: ClassWeight) -> None:
    data, params = random_case(seed)
    params = replace(params, class_weight=weight, hamming="plain")
    outcome = run(federation(data, params)).raise_errors()
    plain = expected(data, params, tuple(data), tuple(data))
    for client in data:
        found = outcome.results[client]
        assert found.class_ids.tolist() == plain[client].class_ids.tolist()
        assert found.distribution == pytest.approx(plain[client].distribution, abs=1e-6)


def test_weights_are_those_of_scikit_learn_and_none_without_labels() -> None:
    codes = np.array([0, 0, 0, 2, 2, 5])
    counts = np.bincount(codes, minlength=7)
    weights = class_weights(counts, "balanced")
    theirs = compute_class_weight("balanced", classes=np.unique(codes), y=codes)
    # scikit-learn counts the classes that occur, here all that are agreed on.
    assert weights[[0, 2, 5]] * 7 / 3 == pytest.approx(theirs)
    assert weights[[1, 3, 4, 6]].tolist() == [0] * 4
    assert class_weights(counts, "sqrt") ** 2 == pytest.approx(weights)
    assert class_weights(counts, "none").tolist() == [1, 0, 1, 0, 0, 1, 0]


def test_a_class_without_labels_is_given_to_nobody() -> None:
    data = blobs({"a": 5, "b": 4, "c": 4}, seed=3)
    for own in data.values():
        own.class_ids[own.class_ids == 1] = 2
    outcome = run(federation(data, BALANCED)).raise_errors()
    for client in data:
        assert (outcome.results[client].class_ids != 1).all()
        assert outcome.results[client].distribution[:, 1] == pytest.approx(0)


@pytest.mark.parametrize("step", STEPS)
def test_weights_count_exactly_the_labels_of_the_contributors(step: str) -> None:
    data = blobs({"a": 6, "b": 6, "c": 6, "d": 5}, labelled=3, seed=5)
    data["b"].class_ids[:3] = 0  # without b, the weight of class 0 is another
    outcome = run(federation(data, BALANCED), Faults(dropouts={"b": step}))
    graph = outcome.results[SERVER]
    plain = expected(data, BALANCED, tuple(graph.sizes), graph.contributors)
    wrong = expected(data, replace(BALANCED, class_weight="none"), tuple(graph.sizes), ("a", "c"))
    for client in "acd":
        found = outcome.results[client].distribution
        assert found == pytest.approx(plain[client].distribution, abs=1e-7)
        assert found != pytest.approx(wrong[client].distribution, abs=1e-3)


# What the server sees


COUNTED = blobs({"a": 3, "b": 3, "c": 2}, labelled=2, d=3)


def nibbles(arrays: list[NDArray[Any]]) -> NDArray[np.intp]:
    """How often each half of a byte occurs."""
    data = np.frombuffer(b"".join(a.tobytes() for a in arrays), dtype=np.uint8)
    return np.bincount(np.concatenate([data >> 4, data & 15]), minlength=16)


def totals_at_the_server(
    monkeypatch: pytest.MonkeyPatch, data: Data, runs: int
) -> dict[str, NDArray[np.intp]]:
    """Digits of the rows of class totals that the server holds, with client a cut off early.

    ``uploads`` are what the others sent, ``sums`` what the server made of it for b and c, ``late``
    what it made of it for a, where owner masks are the only ones left.
    """
    found: dict[str, list[NDArray[Any]]] = {"uploads": [], "sums": [], "late": []}
    original = row_sums_recover.strip_block

    def watched(block: Any, session: Any, *rest: Any) -> None:
        found["late" if session.io.name == "a" else "sums"].append(block[-1:].copy())
        original(block, session, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(row_sums_recover, "strip_block", watched)
        for seed in range(runs):
            make = federation(data, BALANCED, seed=seed)
            outcome = run(make, Faults(away={"a": "upload"}), record=True).raise_errors()
            assert outcome.results[SERVER].contributors == ("b", "c")
            found["uploads"] += [
                message.values[-2:]  # the rows of the two other owners
                for _, message in outcome.views[SERVER]
                if isinstance(message, RowSumsUpload)
            ]
    assert [len(arrays) for arrays in found.values()] == [2 * runs, 2 * runs, runs]
    return {what: nibbles(arrays) for what, arrays in found.items()}


def test_the_server_sees_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    one = totals_at_the_server(monkeypatch, COUNTED, 16)
    two = totals_at_the_server(monkeypatch, relabelled(COUNTED), 16)
    for what in one:
        assert uniformity(one[what]) > 1e-3
        assert uniformity(two[what]) > 1e-3
        assert same_distribution(one[what], two[what]) > 1e-3


def test_the_same_test_finds_missing_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sums_recover, "owner_mask", no_mask)
    found = totals_at_the_server(monkeypatch, COUNTED, 5)
    assert uniformity(found["late"]) < 1e-9  # nothing else protects who did not upload
    monkeypatch.setattr(keyed_masks, "accumulate", lambda *args, **options: None)
    found = totals_at_the_server(monkeypatch, COUNTED, 5)
    assert max(uniformity(counts) for counts in found.values()) < 1e-9


# What it is worth


@pytest.mark.parametrize("dataset", ["digits", "watch"])
def test_it_is_worth_many_points_on_imbalanced_data(dataset: str) -> None:
    """docs/do/experiments.md has the numbers with more bits and seeds."""
    data = load(dataset).imbalanced(20)
    settings = {"labelled": 0.2, "seed": 0, "n_bits": 512, "k": 10, "alpha": 0.99}
    plans = [
        plan_demo(data, **settings, hamming="plain", class_weight=weight)
        for weight in ("none", "balanced")
    ]
    accuracies = [compare(data, plan).accuracy["xclp"] for plan in plans]
    assert accuracies[1].balanced > accuracies[0].balanced + 0.15
