"""Windows of six-axis inertial recordings and their features, group by group.

Channels are acceleration x, y, z in g and rotation x, y, z in rad/s; the magnitudes of both vectors
are treated as two more. Every client computes all of this from its own recordings alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError

RATE = 50.0
"""Samples per second."""

WINDOW = 128
"""Samples per window: 2.56 s."""

CHANNELS = ("acc x", "acc y", "acc z", "gyro x", "gyro y", "gyro z", "|acc|", "|gyro|")
"""The six recorded channels and the two magnitudes."""

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Quantiles among the features: 0 and 1 are minimum and maximum, and give the range."""

BAND_EDGES = (0.1, 0.6, 1.0, 1.5, 2.5, 4.0, 7.0, 12.0, 25.1)
"""Limits in Hz of the frequency bands, lower limit included; exercises repeat at 0.2 to 1 Hz."""

GROUPS = (
    *("mean", "deviation", "quantiles", "jerk", "crossings"),
    *("bands", "frequency", "entropy", "correlation"),
)
"""The groups of features that `client_features` takes by default: 183 columns."""

_AXES = 6
_PAIRS = np.triu_indices(_AXES, 1)
_STILL = 1e-3  # g or rad/s: below the noise of a sensor that lies still
_TINY = 1e-6  # of the power of sensor noise, so that the logarithm of silence is finite


def cut_windows(recording: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cut one recording into windows that follow each other without overlap; drop the tail.

    Args:
        recording: shape (T, 6), samples at 50 Hz.

    Returns:
        Shape (⌊T/128⌋, 128, 6).

    Raises:
        DataError: the recording has another shape.
    """
    if recording.ndim != 2 or recording.shape[1] != _AXES:
        raise DataError(f"a recording has shape {recording.shape}; (T, {_AXES}) is needed")
    n = len(recording) // WINDOW
    return recording[: n * WINDOW].reshape(n, WINDOW, _AXES)


def feature_groups(windows: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Describe each window in time and frequency.

    Args:
        windows: shape (n, 128, 6), finite.

    Returns:
        Groups in a fixed order, each of shape (n, columns), float64, finite:
        mean (8); deviation (8): √std; quantiles (7·8); jerk (8): √std of the derivative per
        second; log deviation (8) and log jerk (8): the logarithms of what is under those roots;
        crossings (8): share of samples at which the signal crosses its mean; bands (8·8): log10 of
        the energy per band; frequency (8): of the largest spectral component above 0, in Hz;
        entropy (8): of the spectrum, in [0, 1]; correlation (15): between the six axes, 0 where
        one is constant.

    Raises:
        DataError: the windows have another shape.
    """
    if windows.ndim != 3 or windows.shape[1:] != (WINDOW, _AXES):
        raise DataError(f"windows have shape {windows.shape}; (n, {WINDOW}, {_AXES}) is needed")
    half = _AXES // 2
    magnitudes = [np.linalg.norm(windows[:, :, a : a + half], axis=2) for a in (0, half)]
    s = np.concatenate([windows, np.stack(magnitudes, axis=2)], axis=2)
    mean = s.mean(axis=1)
    centred = s - mean[:, None]

    hann = np.hanning(WINDOW)[:, None]
    power = np.abs(np.fft.rfft(centred * hann, axis=1)) ** 2
    frequency = np.fft.rfftfreq(WINDOW, 1 / RATE)
    bands = [
        power[:, (low <= frequency) & (frequency < high)].sum(axis=1)
        for low, high in pairwise(BAND_EDGES)
    ]
    share = power / (power.sum(axis=1, keepdims=True) + _TINY)
    entropy = -(share * np.log(share + np.finfo(np.float64).tiny)).sum(axis=1)

    axes = centred[:, :, :_AXES]
    covariance = np.einsum("nti,ntj->nij", axes, axes)
    norm = np.sqrt(np.einsum("nii->ni", covariance))
    norms = norm[:, :, None] * norm[:, None, :]
    correlation = np.divide(covariance, norms, out=np.zeros_like(norms), where=norms > _TINY)

    std = s.std(axis=1)
    jerk = (np.diff(s, axis=1) * RATE).std(axis=1)
    return {
        "mean": mean,
        "deviation": np.sqrt(std),
        "log deviation": np.log(std + _STILL),
        "quantiles": np.concatenate(np.quantile(s, QUANTILES, axis=1), axis=1),
        "jerk": np.sqrt(jerk),
        "log jerk": np.log(jerk + _STILL * RATE),
        "crossings": np.diff(centred >= 0, axis=1).mean(axis=1),
        "bands": np.log10(np.concatenate(bands, axis=1) + _TINY),
        "frequency": frequency[1:][power[:, 1:].argmax(axis=1)],
        "entropy": entropy / np.log(len(frequency)),
        "correlation": correlation[:, _PAIRS[0], _PAIRS[1]],
    }


def client_features(
    windows: NDArray[np.float64], groups: Sequence[str] = GROUPS, limit: float = np.inf
) -> NDArray[np.float64]:
    """Standardise each feature over one client's windows and give every group the same weight.

    The angle between two vectors says something only when features are centred and of one scale.
    A client can do that with its own windows alone, labelled or not; it also removes what is
    peculiar to the person and the way the watch sits. It supposes that clients do similar mixes of
    activities: one who only ever rests would have rest mapped to the origin.

    Args:
        windows: shape (n, 128, 6): all of one client's windows.
        groups: which of `feature_groups`.
        limit: features further than so many deviations from their mean are put there, so that no
            single feature decides the direction of a vector.

    Returns:
        Shape (n, columns), float64, finite; columns have mean 0 before the limit, and are 0 where
        a feature is constant.

    Raises:
        DataError: the windows have another shape.
    """
    columns = []
    described = feature_groups(windows)
    for group in (described[name] for name in groups):
        if not len(group):
            columns.append(group)
            continue
        centred = group - group.mean(axis=0)
        std = centred.std(axis=0)
        # What is left of a constant column is rounding error, which must not be blown up.
        constant = std <= 1e-12 * np.abs(group).max(axis=0)
        scaled = np.clip(centred / np.where(constant, 1.0, std), -limit, limit)
        columns.append(np.where(constant, 0.0, scaled) / np.sqrt(group.shape[1]))
    return np.concatenate(columns, axis=1)
