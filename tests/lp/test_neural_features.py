"""Features of networks: what they depend on, what training adds, and who is refused."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.study.data import load
from xclp_lp.study.data.pictures import Pictures
from xclp_lp.study.experiments import neural_features
from xclp_lp.study.experiments.features import EXTRACTORS
from xclp_lp.study.experiments.task import Task
from xclp_lp.study.training.client import Training

SHORT = Training(rounds=2, sampled=1.0, epochs=1, steps=2, rate=0.1, full_rate=None)


pytestmark = pytest.mark.usefixtures("one_thread")


def digits(rows: int = 40, clients: int = 2, labelled: int = 20) -> Task:
    federation = load("digits", n_clients=clients).thinned(rows)
    class_ids = [
        np.where(np.arange(len(y)) < labelled, y, -1).astype(np.int64) for y in federation.labels
    ]
    return Task(federation.features, class_ids, 10, seed=3, dataset="digits")


def measurements() -> Task:
    rng = np.random.default_rng(0)
    class_ids = [np.tile([0, 1, -1], 5).astype(np.int64) for _ in range(3)]
    x = [rng.standard_normal((15, 4)) + 3 * (c[:, None] == 1) for c in class_ids]
    return Task(x, class_ids, 2, seed=0, dataset="watch")


def within_class(features: NDArray[np.float64], classes: NDArray[Any]) -> float:
    """Mean cosine within classes minus that over all pairs."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosines, same = unit @ unit.T, classes[:, None] == classes
    return float(cosines[same].mean() - cosines.mean())


@pytest.mark.parametrize("last", [False, True])
def test_pixels_are_where_they_belong(last: bool) -> None:
    picture = np.arange(27.0).reshape(3, 3, 3) / 26  # channels, height, width
    row = (picture.transpose(1, 2, 0) if last else picture).reshape(1, -1)
    pixels = Pictures(3, channels_last=last).pixels(row)
    np.testing.assert_allclose(pixels[0], 2 * picture - 1, atol=1e-6)
    assert pixels.dtype == np.float32
    grey = Pictures(1, low=-8, high=8).pixels(np.array([[-8.0, 8.0, 0.0, 4.0]]))
    assert grey.ravel().tolist() == [-1, 1, 0, 0.5]


def test_a_trained_network_brings_classes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    given = digits(200, labelled=150)
    classes = np.concatenate(load("digits", n_clients=2).thinned(200).labels)
    scores = []
    for rounds, rate in ((1, 1e-9), (8, neural_features.FROM_SCRATCH.rate)):
        training = replace(neural_features.FROM_SCRATCH, rounds=rounds, rate=rate)
        monkeypatch.setattr(neural_features, "FROM_SCRATCH", training)
        features = np.concatenate(neural_features.trained(given))
        assert features.shape == (400, 1568)
        scores.append(within_class(features, classes))
    untrained, after = scores
    assert after > 2 * untrained
    assert after > 1.2 * within_class(np.concatenate(given.features), classes)


@pytest.mark.parametrize("name", ["network", "efficientnet-tuned"])
def test_training_depends_on_the_labels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neural_features, "FROM_SCRATCH", SHORT)
    monkeypatch.setattr(neural_features, "FINE_TUNING", SHORT)
    monkeypatch.setattr(neural_features, "SIDE", 32)
    given = digits(6, labelled=3)
    first = EXTRACTORS[name](given)
    for one, other in zip(first, EXTRACTORS[name](given), strict=True):
        assert one.tolist() == other.tolist()
    other_labels = [np.where(c == -1, -1, (c + 1) % 10) for c in given.class_ids]
    changed = EXTRACTORS[name](Task(given.features, other_labels, 10, seed=3, dataset="digits"))
    assert np.abs(changed[0] - first[0]).max() > 1e-4


def test_the_pretrained_network_looks_at_one_picture_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neural_features, "SIDE", 32)
    given = digits(5)
    together = neural_features.pretrained(given)
    assert [x.shape for x in together] == [(5, neural_features.FEATURES)] * 2
    alone = neural_features.pretrained(
        Task([given.features[0][2:3]], [given.class_ids[0][2:3]], 10, seed=99, dataset="digits")
    )
    np.testing.assert_allclose(alone[0][0], together[0][2], atol=1e-4)
    assert np.abs(together[0][0] - together[0][1]).max() > 0.1


def test_measurements_have_a_network_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neural_features, "FROM_SCRATCH", SHORT)
    given = measurements()
    found = neural_features.trained(given)
    assert [x.shape for x in found] == [(15, 128)] * 3
    for scale in (2.0, 0.25):  # lengths do not matter, as to hashes
        scaled = Task(
            [x * scale for x in given.features], given.class_ids, 2, seed=0, dataset="watch"
        )
        np.testing.assert_allclose(neural_features.trained(scaled)[0], found[0], atol=1e-4)
    for name in ("efficientnet", "efficientnet-tuned"):
        with pytest.raises(ParameterError, match="takes pictures, and 'watch' has none; its like"):
            EXTRACTORS[name](given)


def test_a_client_without_rows_gets_features_without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neural_features, "FROM_SCRATCH", SHORT)
    given = measurements()
    features, class_ids = ([*v, v[0][:0]] for v in (given.features, given.class_ids))
    assert neural_features.trained(Task(features, class_ids, 2))[3].shape == (0, 128)


def test_nothing_can_be_trained_without_labels() -> None:
    given = measurements()
    without = [np.full(15, -1, dtype=np.int64)] * 3
    with pytest.raises(DataError, match="no client has a labelled row"):
        neural_features.trained(Task(given.features, without, 2, seed=0, dataset="watch"))


def test_the_pretrained_network_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        return None if name.startswith("efficientnet") else find_spec(name)

    monkeypatch.setattr(neural_features, "find_spec", missing)
    with pytest.raises(ParameterError, match=r"pip install 'xclp\[pictures\]'"):
        neural_features.pretrained(digits(3))
