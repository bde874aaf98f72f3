"""Metrics of federated training, round by round: `xclp ssl` writes them, its report shows them.

Needs no PyTorch.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError

SHOWN = ("validation_accuracy", "loss", "pseudo_accuracy")
"""Metrics of which a report draws curves."""


@dataclass(frozen=True, eq=False)
class History:
    """Metrics of all rounds of one run.

    Attributes:
        method: what was run.
        seed: its seed.
        metrics: for each of `SHOWN`, shape (rounds,), float64, NaN where it was not measured.
    """

    method: str
    seed: int
    metrics: Mapping[str, NDArray[np.float64]]

    @classmethod
    def read(cls, file: Path, method: str, seed: int) -> History:
        """Read the metrics of a run from its CSV file, in which an empty cell was not measured.

        Raises:
            DataError: the file cannot be read or lacks a metric.
        """
        try:
            lines = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
            metrics = {
                name: np.array([float(x[name]) if x[name] != "" else np.nan for x in lines])
                for name in SHOWN
            }
        except (OSError, csv.Error, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{file} has no metrics of rounds: {error!r}") from None
        if not lines:
            raise DataError(f"{file} has no metrics of rounds: it has no line")
        return cls(method, seed, metrics)


@dataclass(frozen=True, eq=False)
class Holdings:
    """What the clients of one seed have.

    Attributes:
        seed: it.
        labelled: shape (clients,), int64, how many rows of each have a label.
        unlabelled: shape (clients,), int64, how many have none.
    """

    seed: int
    labelled: NDArray[np.int64]
    unlabelled: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Course:
    """How a metric of a method went: where it was measured with at least one seed.

    Attributes:
        at: shape (k,), int64, ascending: how many rounds were done, or which setting it was.
        mean: shape (k,), float64, over the seeds with which it was measured.
        deviation: shape (k,), float64, standard deviation over them, NaN where it is only one.
    """

    at: NDArray[np.int64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def only(self, places: Sequence[int]) -> Course:
        """Return the part of it at these places."""
        kept = np.isin(self.at, places)
        return Course(self.at[kept], self.mean[kept], self.deviation[kept])


def courses(histories: Sequence[History], metric: str) -> dict[str, Course]:
    """Return the course of a metric by method, in order; methods without any value have none.

    Args:
        histories: one for each method and seed.
        metric: one of `SHOWN`.
    """
    by_method: dict[str, list[NDArray[np.float64]]] = {}
    for history in histories:
        by_method.setdefault(history.method, []).append(history.metrics[metric])
    found = {}
    for method, runs in by_method.items():
        values = np.full((len(runs), max(map(len, runs))), np.nan)
        for row, run in zip(values, runs, strict=True):
            row[: len(run)] = run
        seeds = (~np.isnan(values)).sum(axis=0)
        if seeds.any():
            deviation = np.full(len(seeds), np.nan)
            deviation[seeds > 1] = np.nanstd(values[:, seeds > 1], axis=0, ddof=1)
            at = np.flatnonzero(seeds)
            found[method] = Course(at + 1, np.nanmean(values[:, at], axis=0), deviation[at])
    return found


def some_rounds(found: Mapping[str, Course], most: int) -> list[int]:
    """Return the places measured; of more than `most`, evenly many, and the last of each method."""
    rounds = sorted({int(turn) for course in found.values() for turn in course.at})
    if len(rounds) <= most:
        return rounds
    chosen = {rounds[i] for i in np.linspace(0, len(rounds) - 1, most).round().astype(int)}
    return sorted(chosen | {int(course.at[-1]) for course in found.values()})
