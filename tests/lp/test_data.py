from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.lsh import hash_bits, projection
from xclp_lp.predictions import Prediction
from xclp_lp.propagation import per_client, pooled
from xclp_lp.study import data
from xclp_lp.study.data import Federation, label_mask, load, watch
from xclp_lp.study.data.windows import (
    BAND_EDGES,
    CHANNELS,
    GROUPS,
    RATE,
    WINDOW,
    client_features,
    cut_windows,
    feature_groups,
)

# Windows


@pytest.mark.parametrize(("length", "expected"), [(0, 0), (127, 0), (128, 1), (300, 2), (384, 3)])
def test_windows_follow_each_other_without_overlap(length: int, expected: int) -> None:
    recording = np.arange(length * 6, dtype=float).reshape(length, 6)
    windows = cut_windows(recording)
    assert windows.shape == (expected, WINDOW, 6)
    assert (windows.reshape(-1, 6) == recording[: expected * WINDOW]).all()


@pytest.mark.parametrize("shape", [(300,), (300, 5), (1, 300, 6)])
def test_recordings_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="recording has shape"):
        cut_windows(np.zeros(shape))
    with pytest.raises(DataError, match="windows have shape"):
        feature_groups(np.zeros(shape))


def sine(frequency: float, amplitude: float = 1.0, offset: float = 0.0) -> NDArray[np.float64]:
    t = np.arange(WINDOW) / RATE
    signal: NDArray[np.float64] = offset + amplitude * np.sin(2 * np.pi * frequency * t + 0.3)
    return np.repeat(signal[None, :, None], 6, axis=2)


def axes(groups: dict[str, NDArray[np.float64]], name: str) -> NDArray[np.float64]:
    """A group's values of the first window, one column per channel, of the six axes only."""
    values: NDArray[np.float64] = groups[name][0].reshape(-1, len(CHANNELS))
    return values[:, :6]


@pytest.mark.parametrize("bins", [1, 2, 5, 17, 40, 60])
def test_features_of_a_sine(bins: int) -> None:
    frequency = bins * RATE / WINDOW
    groups = feature_groups(sine(frequency, amplitude=2.0, offset=0.5))
    np.testing.assert_allclose(axes(groups, "frequency"), frequency)
    np.testing.assert_allclose(axes(groups, "mean"), 0.5, atol=1e-12)
    np.testing.assert_allclose(axes(groups, "deviation"), np.sqrt(2 / np.sqrt(2)), rtol=1e-9)
    band = np.searchsorted(BAND_EDGES, frequency, side="right") - 1
    assert (axes(groups, "bands").argmax(axis=0) == band).all()
    assert (axes(groups, "entropy") < 0.25).all()
    np.testing.assert_allclose(axes(groups, "crossings"), 2 * bins / WINDOW, atol=2 / WINDOW)
    np.testing.assert_allclose(groups["correlation"], 1)
    quantiles = axes(groups, "quantiles")
    assert (np.diff(quantiles, axis=0) >= 0).all()
    assert quantiles.min() >= -1.5
    assert quantiles.max() <= 2.5


def test_jerk_is_the_derivative_per_second() -> None:
    frequency = RATE / WINDOW
    groups = feature_groups(sine(frequency))
    np.testing.assert_allclose(
        axes(groups, "jerk") ** 2, 2 * np.pi * frequency / np.sqrt(2), rtol=0.01
    )


def test_noise_has_a_flat_spectrum_and_uncorrelated_axes() -> None:
    groups = feature_groups(np.random.default_rng(0).standard_normal((200, WINDOW, 6)))
    assert (groups["entropy"] > 0.75).all()
    assert np.abs(groups["correlation"].mean(axis=0)).max() < 0.05


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1e6])
def test_constant_windows_have_finite_features(value: float) -> None:
    windows = np.full((3, WINDOW, 6), value)
    for name, group in feature_groups(windows).items():
        assert np.isfinite(group).all(), name
    assert (client_features(windows) == 0).all()


def test_client_features_are_standardised_by_the_client_alone() -> None:
    windows = np.random.default_rng(1).standard_normal((40, WINDOW, 6)) * [1, 2, 3, 4, 5, 6]
    features = client_features(windows)
    assert features.shape == (40, 183)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-12)
    described = feature_groups(windows)
    widths = [described[name].shape[1] for name in GROUPS]
    for group in np.split(features, np.cumsum(widths)[:-1], axis=1):
        np.testing.assert_allclose((group**2).mean(axis=0).sum(), 1)
    near = client_features(windows, ["mean", "log jerk"], limit=1.5) * np.sqrt(8)
    free = client_features(windows, ["mean", "log jerk"]) * np.sqrt(8)
    np.testing.assert_allclose(near, free.clip(-1.5, 1.5))
    assert near.shape == (40, 16)
    assert (near != free).any()
    assert client_features(windows[:1]).tolist() == [[0] * 183]
    assert client_features(windows[:0]).shape == (0, 183)


# Watch


@pytest.fixture(scope="module")
def federation() -> Federation:
    return load("watch")


def test_watch_has_ten_people_and_seven_exercises(federation: Federation) -> None:
    assert federation.names == tuple(f"person-{i:02d}" for i in range(1, 11))
    assert federation.classes == watch.EXERCISES
    assert sum(map(len, federation.features)) == 1833
    for features, labels in zip(federation.features, federation.labels, strict=True):
        assert features.shape == (len(labels), 183)
        assert features.dtype == np.float64
        assert np.isfinite(features).all()
        assert set(labels.tolist()) == set(watch.EXERCISES)


def test_watch_windows_are_whole_pieces_of_single_recordings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every sample says which recording and position it is, so that windows can be traced."""
    original = watch._seglearn_data()
    tagged = []
    for i, recording in enumerate(original["X"]):
        x = np.full((len(recording), 6), float(i))
        x[:, 1] = np.arange(len(recording))
        tagged.append(x)
    seen: list[NDArray[np.float64]] = []

    def record(windows: NDArray[np.float64]) -> NDArray[np.float64]:
        seen.append(windows)
        return windows[:, 0]

    monkeypatch.setattr(watch, "_seglearn_data", lambda: {**original, "X": tagged})
    monkeypatch.setattr(watch, "client_features", record)
    federation = load("watch")
    used: set[tuple[int, int]] = set()
    for person, (windows, labels) in enumerate(zip(seen, federation.labels, strict=True), 1):
        for window, exercise in zip(windows, labels, strict=True):
            recording = int(window[0, 0])
            assert (window[:, 0] == recording).all()
            assert original["subject"][recording] == person
            assert watch.EXERCISES[original["y"][recording]] == exercise
            positions = window[:, 1].astype(int)
            assert (np.diff(positions) == 1).all()
            samples = {(recording, int(p)) for p in positions}
            assert not samples & used
            used |= samples
    assert len(used) == 1833 * WINDOW


def test_mirroring_makes_the_left_wrist_like_the_right() -> None:
    original = watch._seglearn_data()
    plain, mirrored = load("watch"), load("watch", mirror=True)
    side = {s: [x for x, y in zip(original["X"], original["side"], strict=True) if y == s]
            for s in (0, 1)}  # fmt: skip
    left, right = (np.mean([x[:, 0].mean() for x in side[s]]) for s in (0, 1))
    assert left > 0 > right
    for a, b in zip(plain.labels, mirrored.labels, strict=True):
        assert (a == b).all()
    assert all((a != b).any() for a, b in zip(plain.features, mirrored.features, strict=True))


def test_missing_seglearn_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seglearn.datasets", None)
    with pytest.raises(ParameterError, match=r"pip install 'xclp\[demo\]'"):
        load("watch")


def accuracies(federation: Federation, fraction: float, seed: int) -> tuple[float, float]:
    """Share of right predictions on unlabelled windows: within each client, across clients."""
    pi = projection(bytes([seed]) * 32, 4096, federation.features[0].shape[1])
    bits = [hash_bits(v, pi) for v in federation.features]
    masks = label_mask(federation.labels, fraction, seed)
    known = np.asarray(federation.classes)
    truth = [(y[:, None] == known).argmax(axis=1) for y in federation.labels]
    Y = [np.eye(len(known))[t] * m[:, None] for t, m in zip(truth, masks, strict=True)]

    def share(results: list[Prediction]) -> float:
        hits = [(r.class_ids == t)[~m] for r, t, m in zip(results, truth, masks, strict=True)]
        return float(np.concatenate(hits).mean())

    alone = per_client(bits, Y, k=3, alpha=0.99)
    together = pooled(bits, Y, k=3, alpha=0.99)
    return share(alone), share(together)


@pytest.mark.parametrize(("fraction", "target"), [(0.05, 0.69), (0.10, 0.78)])
def test_cooperation_gains_ten_points_on_the_watch(
    federation: Federation, fraction: float, target: float
) -> None:
    runs = [accuracies(federation, fraction, seed) for seed in range(3)]
    alone, together = np.mean(runs, axis=0)
    assert together >= target
    assert together - alone >= 0.10


# Digits


def test_digits_are_dealt_out_once() -> None:
    federation = load("digits")
    assert len(federation.names) == 10
    assert sorted(len(y) for y in federation.labels) == [179] * 3 + [180] * 7
    assert federation.classes == tuple(range(10))
    again = load("digits", n_clients=10, seed=0)
    other = load("digits", seed=1)
    pairs = list(zip(federation.features, again.features, other.features, strict=True))
    assert all((a == b).all() for a, b, _ in pairs)
    assert not all(a.shape == c.shape and (a == c).all() for a, _, c in pairs)
    whole = load("digits", n_clients=1).features[0]
    pooled_rows = np.concatenate(federation.features)
    assert sorted(map(tuple, pooled_rows.tolist())) == sorted(map(tuple, whole.tolist()))
    assert np.abs(pooled_rows).max() == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clients": 0}, "between 1 and 1797, got 0"),
        ({"n_clients": 1798}, "1798"),
        ({"seed": -1}, "seed"),
    ],
)
def test_digits_arguments_out_of_range(options: dict[str, int], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        load("digits", **options)


# Federation, registry, label mask


def test_unknown_data_set() -> None:
    with pytest.raises(ParameterError, match="'mnist'; choose from cifar-10, cifar-100, digits"):
        load("mnist")
    for name in ("cifar-10", "fed-isic2019", "femnist", "mini-imagenet"):
        with pytest.raises(ParameterError, match="give the path"):
            load(name)
    assert list(data.LOADERS) == sorted(data.LOADERS)


PARTS: dict[str, Any] = {
    "names": ("a", "b"),
    "features": (np.zeros((2, 3)), np.zeros((0, 3))),
    "labels": (np.array(["x", "y"]), np.array([], dtype=str)),
    "classes": ("x", "y"),
    "source": "",
    "licence": "",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ("a",)}, "1 names, 2 feature"),
        ({"names": (), "features": (), "labels": ()}, "at least one"),
        ({"names": ("a", "a")}, "not all different"),
        ({"features": (np.zeros((2, 3)), np.zeros((0, 4)))}, "b has features of shape"),
        ({"features": (np.zeros((1, 3)), np.zeros((0, 3)))}, "a has features of shape"),
        ({"features": (np.array([[0, 0, 0], [0, np.nan, 0]]), np.zeros((0, 3)))}, "a .* row 1"),
        ({"labels": (np.array(["x", "z"]), np.array([], dtype=str))}, "a's label .* in row 1"),
    ],
)
def test_contradictory_federations(change: dict[str, Any], message: str) -> None:
    Federation(**PARTS)
    with pytest.raises(DataError, match=message):
        Federation(**{**PARTS, **change})


def test_label_mask_counts_and_is_reproducible() -> None:
    labels = [np.zeros(n) for n in (200, 1, 0, 30)]
    masks = label_mask(labels, 0.05, 3)
    assert [len(m) for m in masks] == [200, 1, 0, 30]
    assert [int(m.sum()) for m in masks] == [10, 1, 0, 2]
    again = label_mask(labels, 0.05, 3)
    assert all((a == b).all() for a, b in zip(masks, again, strict=True))
    assert (label_mask(labels, 0.05, 4)[0] != masks[0]).any()
    assert (label_mask([*labels[:3], np.zeros(99)], 0.05, 3)[0] == masks[0]).all()
    assert all(m.all() for m in label_mask(labels, 1.0, 0))


def test_label_mask_is_uniform() -> None:
    counts = sum(label_mask([np.zeros(20)], 0.25, seed)[0].astype(int) for seed in range(2000))
    # Each place is chosen with probability 1/4: 500 ± 5σ, σ = √(2000·3/16).
    assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 3 / 16)


@pytest.mark.parametrize(("fraction", "seed"), [(0, 0), (1.01, 0), (np.nan, 0), (0.5, -1)])
def test_label_mask_arguments_out_of_range(fraction: float, seed: int) -> None:
    with pytest.raises(ParameterError, match="must be"):
        label_mask([np.zeros(3)], fraction, seed)


def test_imbalanced_classes_are_thinned_by_a_constant_factor() -> None:
    whole = load("digits", n_clients=4)
    thin = whole.imbalanced(64)
    assert thin.names == whole.names
    for v, y, features, labels in zip(
        thin.features, thin.labels, whole.features, whole.labels, strict=True
    ):
        for c in range(10):
            before, after = int((labels == c).sum()), int((y == c).sum())
            assert after == min(before, max(1, round(before / 64 ** (c / 9))))
        rows = [int(np.flatnonzero((features == row).all(axis=1))[0]) for row in v]
        assert rows == sorted(rows)  # in the order that they had
        assert (labels[rows] == y).all()
    assert [len(y) for y in whole.imbalanced(1).labels] == [len(y) for y in whole.labels]


@pytest.mark.parametrize("ratio", [0.9, -1, float("nan"), float("inf")])
def test_an_imbalance_must_be_at_least_one(ratio: float) -> None:
    with pytest.raises(ParameterError, match="imbalance must be at least 1 and finite"):
        load("digits").imbalanced(ratio)
