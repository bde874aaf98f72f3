from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from xclp_crypto.errors import ParameterError
from xclp_crypto.params import INSECURE_TEST_128
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_crypto.protocols.hamming.paillier import Paillier
from xclp_crypto.protocols.hamming.paillier_packed import PaillierPacked
from xclp_crypto.rng import SeededRng
from xclp_lp import CrossClientLabelPropagation
from xclp_lp.dropouts import STEPS
from xclp_lp.labels import UNLABELLED
from xclp_lp.plan import Plan
from xclp_lp.study import demo
from xclp_lp.study.data import Federation, label_mask, load
from xclp_lp.study.demo import METHODS, Comparison, compare, plan_demo, summary
from xclp_lp.study.scores import Accuracy

SETTINGS: dict[str, Any] = {
    "preset": "paper",
    "labelled": 0.2,
    "seed": 0,
    "n_bits": 128,
    "k": 3,
    "alpha": 0.9,
    "hamming": "masked",
}


def federation(labels: list[Any], features: list[Any], classes: tuple[Any, ...]) -> Federation:
    return Federation(
        names=tuple("abcdef"[: len(labels)]),
        features=tuple(np.asarray(x, dtype=float) for x in features),
        labels=tuple(np.asarray(y) for y in labels),
        classes=classes,
        source="test",
        licence="none",
    )


def blobs(classes: tuple[Any, ...] = ("x", "y", "z"), seed: int = 0) -> Federation:
    rng = np.random.default_rng(seed)
    centres = 2 * rng.standard_normal((len(classes), 5))
    codes = [rng.integers(0, len(classes), n) for n in (12, 9, 14)]
    features = [centres[y] + rng.standard_normal((len(y), 5)) for y in codes]
    return federation([np.array(classes)[y] for y in codes], features, classes)


def compared(data: Federation, *, drop: Any = None, **settings: Any) -> Comparison:
    run = {name: settings.pop(name) for name in ("rng", "progress") if name in settings}
    return compare(data, plan_demo(data, **settings, drop=drop), drop=drop, **run)


@pytest.mark.parametrize(
    "settings",
    [
        {"gamma": 3.0, "ties": "lowest-index", "include_self": True},
        {"projection": "tight-frame", "class_weight": "balanced", "fraction_bits": 36},
        {"reset_labelled": True, "relative_confidence": True, "threshold": 3},
        {"preset": "default"},
        {"scale": "client", "class_weight": "sqrt"},
    ],
)
def test_labels_are_identical_whatever_is_chosen(settings: dict[str, Any]) -> None:
    assert compared(blobs(), **SETTINGS | settings).identical is True


@pytest.mark.filterwarnings("ignore:.*all zero")
@pytest.mark.parametrize("scale", ["none", "client"])
def test_labels_are_identical_beside_rows_that_are_all_zero(scale: str) -> None:
    data = blobs()
    zero = [np.where(np.arange(len(x))[:, None] < 4, 0, x) for x in data.features]
    result = compared(replace(data, features=tuple(zero)), **SETTINGS | {"scale": scale})
    assert result.identical is True
    assert result.accuracy["xclp"] == result.accuracy["plain"]


@pytest.mark.parametrize("name", BACKENDS)
def test_labels_are_identical_with_every_back_end(name: str) -> None:
    quick = {b.name: b for b in (Paillier(INSECURE_TEST_128), PaillierPacked(INSECURE_TEST_128))}
    small = load("digits", n_clients=3).thinned(6)
    settings = {"hamming": quick.get(name, name), "n_bits": 24, "labelled": 0.4}
    assert compared(small, **SETTINGS | settings).identical is True


def test_thinning_keeps_rows_of_all_parts() -> None:
    whole = load("watch")
    small = whole.thinned(20)
    assert small.names == whole.names
    assert [len(y) for y in small.labels] == [20] * 10
    for v, y, features, labels in zip(
        small.features, small.labels, whole.features, whole.labels, strict=True
    ):
        assert len(set(y.tolist())) >= 5
        for row, label in zip(v, y, strict=True):
            assert label in labels[(features == row).all(axis=1)]
    assert [len(y) for y in whole.thinned(10**6).labels] == [len(y) for y in whole.labels]
    with pytest.raises(ParameterError, match="rows must be at least 1, got 0"):
        whole.thinned(0)


@pytest.mark.parametrize("hamming", ["plain", "masked"])
@pytest.mark.parametrize("classes", [("x", "y", "z"), (4, 0, 2)])
@pytest.mark.parametrize("seed", [0, 1])
def test_secure_and_plain_labels_are_identical(
    hamming: str, classes: tuple[Any, ...], seed: int
) -> None:
    result = compared(blobs(classes), **SETTINGS | {"hamming": hamming, "seed": seed})
    assert result.identical
    assert list(result.accuracy) == ["per_client", "xclp", "plain"]
    assert result.accuracy["xclp"] == result.accuracy["plain"]
    assert 0 < result.accuracy["xclp"].overall <= 1
    assert 0 <= result.accuracy["per_client"].overall <= 1
    assert result.participation.to_dict() == {
        "contributors": list("abc"),
        "dropouts": [],
        "contradictions": [],
    }
    assert result.rows == 35
    assert result.labelled == 2 + 2 + 3
    assert result.cost.total_bytes > 0


def test_the_numbers_are_those_of_the_estimator() -> None:
    data = blobs()
    result = compared(data, **SETTINGS)
    shown = label_mask(data.labels, 0.2, 0)
    xclp = CrossClientLabelPropagation(
        128, 3, 0.9, preset="paper", random_state=0, classes=data.classes, client_names=data.names
    ).fit(data.features, [np.where(m, y, None) for m, y in zip(shown, data.labels, strict=True)])
    right = np.concatenate(
        [(p == y)[~m] for p, y, m in zip(xclp.transduction_, data.labels, shown, strict=True)]
    )
    truth = np.concatenate([y[~m] for y, m in zip(data.labels, shown, strict=True)])
    assert result.accuracy["xclp"] == Accuracy(
        right.mean(), np.mean([right[truth == c].mean() for c in data.classes])
    )


def test_accuracy_is_that_of_the_unlabelled_rows_only() -> None:
    """All rows are equal, and only the labelled ones have the class that all rows get."""
    features = [np.ones((10, 2))] * 3
    shown = label_mask([np.zeros(10)] * 3, 0.2, 0)
    labels = [np.where(mask, "shown", "hidden") for mask in shown]
    result = compared(federation(labels, features, ("hidden", "shown")), **SETTINGS)
    assert result.accuracy == dict.fromkeys(METHODS, Accuracy(0, 0))
    assert result.identical


def test_labelled_rows_that_come_out_wrong_do_not_count() -> None:
    """Client c's labels contradict all others', so pooling corrects its hidden rows."""
    features = [np.ones((10, 2))] * 3
    shown = label_mask([np.zeros(10)] * 3, 0.2, 0)
    labels = [np.full(10, "right")] * 2 + [np.where(shown[2], "wrong", "right")]
    data = federation(labels, features, ("right", "wrong"))
    result = compared(data, **SETTINGS | {"alpha": 0.99})
    assert result.accuracy["per_client"].overall == 16 / 24
    assert result.accuracy["xclp"] == result.accuracy["plain"] == Accuracy(1, 1)


@pytest.mark.parametrize(("client", "row"), [(0, 0), (1, 3), (2, 13)])
@pytest.mark.parametrize("other", ["x", "y", None])
def test_a_wrong_secure_label_is_found(
    monkeypatch: pytest.MonkeyPatch, client: int, row: int, other: Any
) -> None:
    data = blobs()
    before = compared(data, **SETTINGS)
    original = Plan.run
    changes = []

    def broken(self: Any, **options: Any) -> Any:
        result = original(self, **options)
        class_ids = result.predictions["abc"[client]].class_ids
        changed = UNLABELLED if other is None else data.classes.index(other)
        changes.append(class_ids[row] != changed)
        class_ids[row] = changed
        return result

    monkeypatch.setattr(Plan, "run", broken)
    result = compared(data, **SETTINGS)
    assert len(changes) == 1
    assert result.identical is not changes[0]
    for method in ("per_client", "plain"):
        assert result.accuracy[method] == before.accuracy[method]


@pytest.mark.filterwarnings("ignore:only a and c are in the sums")
@pytest.mark.parametrize("class_weight", ["none", "balanced"])
@pytest.mark.parametrize("step", STEPS)
def test_labels_are_identical_when_a_client_drops_out(step: str, class_weight: Any) -> None:
    """The plain run has the points and labels that the secure one had, whatever the step."""
    data = blobs(seed=3)  # see the next test
    settings = SETTINGS | {"class_weight": class_weight, "validation": "leave-one-out"}
    result = compared(data, **settings, threshold=2, drop={"b": step})
    assert result.identical
    (dropout,) = result.participation.dropouts
    assert dropout.client == "b"
    assert dropout.in_graph is (step not in STEPS[:3])
    assert dropout.contributed is (step in ("labels", "validation"))
    assert result.participation.to_dict() == {
        "contributors": ["a", "b", "c"] if dropout.contributed else ["a", "c"],
        "dropouts": [
            {
                "client": "b",
                "step": dropout.step,
                "reason": "silent",
                "text": "",
                "blamed_by": [],
                "contributed": dropout.contributed,
                "effect": dropout.effect,
            }
        ],
        "contradictions": [],
    }
    # Accuracies are over the rows of those that stayed.
    rows = sum(int((~m).sum()) for m in label_mask(data.labels, 0.2, 0)) - (9 - 2)
    assert (result.accuracy["xclp"].overall * rows) % 1 == pytest.approx(0, abs=1e-9)
    assert result.rows == 35


@pytest.mark.filterwarnings("ignore:only a and c are in the sums")
def test_a_comparison_with_the_wrong_points_or_labels_would_be_noticed() -> None:
    """A client that drops out late, or early, changes the plain labels of this data."""
    data = blobs(seed=3)
    labels = []
    for drop in ({}, {"b": "hamming"}, {"b": "row sums"}):
        xclp = CrossClientLabelPropagation(
            *(128, 3, 0.9),
            preset="paper",
            hamming="plain",
            threshold=2,
            random_state=0,
            client_names=data.names,
        )
        shown = label_mask(data.labels, 0.2, 0)
        xclp.fit(
            data.features,
            [np.where(m, y, None) for m, y in zip(shown, data.labels, strict=True)],
            drop=drop,
        )
        labels.append([xclp.transduction_[j].tolist() for j in (0, 2)])
    assert labels[0] != labels[1] != labels[2] != labels[0]


def test_a_dropout_of_the_demonstration_must_exist() -> None:
    with pytest.raises(ParameterError, match="cannot drop 'z': the clients are a, b, c"):
        compared(blobs(), **SETTINGS, drop={"z": "hamming"})
    with pytest.raises(ParameterError, match=r"'a' can drop out before setup, .* not 'lunch'"):
        compared(blobs(), **SETTINGS, drop={"a": "lunch"})


def test_a_generator_makes_everything_repeatable() -> None:
    one, two = (compared(blobs(), **SETTINGS, rng=SeededRng(3)) for _ in range(2))
    assert one.cost.bytes_sent == two.cost.bytes_sent
    assert replace(one, cost=two.cost) == two


def test_progress_is_reported() -> None:
    steps = []
    compared(blobs(), **SETTINGS, progress=lambda report: steps.append(report.step))
    assert "hamming" in steps


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labelled": 1.0}, "labelled must leave some row to predict, got 1.0 of 35 rows"),
        ({"labelled": 0.0}, r"in \(0, 1\], got 0.0"),
        ({"labelled": float("nan")}, r"in \(0, 1\], got nan"),
        ({"seed": -1}, "-1"),
        ({"k": 35}, "k = 35, rows = 35"),
        ({"n_bits": 0}, "n_bits must be between 1 and 32768, got 0"),
    ],
)
def test_bad_settings(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        compared(blobs(), **SETTINGS | change)


def test_the_summary_is_the_mean_over_runs() -> None:
    runs = [compared(blobs(seed=s), **SETTINGS | {"seed": s}) for s in range(3)]
    result = summary(runs)
    assert json.loads(json.dumps(result)) == result
    assert list(result) == [
        *("accuracy", "balanced_accuracy", "identical_labels"),
        *("contributors", "dropouts", "contradictions", "cost"),
    ]
    for which, name in (("overall", "accuracy"), ("balanced", "balanced_accuracy")):
        assert result[name] == {
            m: pytest.approx(np.mean([getattr(r.accuracy[m], which) for r in runs]))
            for m in METHODS
        }
    assert result["identical_labels"] is True
    assert result["cost"] == runs[0].cost.to_dict()
    assert summary([runs[0], replace(runs[1], identical=False)])["identical_labels"] is False


def test_the_reference_is_computed_without_the_protocol() -> None:
    """The plain labels come from `pooled`, not from what the estimator did."""
    assert demo.pooled.__module__ == "xclp_lp.propagation"
