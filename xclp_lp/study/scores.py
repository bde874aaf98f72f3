"""Labels beside the truth, row by row: what accuracies, confusions and calibrations come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import DataError
from xclp_lp.dataframes import labels_by_index
from xclp_lp.labels import UNLABELLED, class_values, encode, marked_values
from xclp_lp.plan import Result
from xclp_lp.wording import count

BINS = 10
"""Bins of equal width into which confidences in [0, 1] are sorted."""


class Accuracy(NamedTuple):
    """How many labels are right.

    Attributes:
        overall: the fraction of the rows.
        balanced: the mean over the classes that occur of the fraction of their rows.
    """

    overall: float
    balanced: float

    @classmethod
    def of(cls, predicted: NDArray[np.int64], truth: NDArray[np.int64]) -> Accuracy:
        """Compare class indices, shape (n,) each; −1, for no label, is wrong."""
        right = predicted == truth
        by_class = [right[truth == c].mean() for c in np.unique(truth)]
        return cls(float(right.mean()), float(np.mean(by_class)))


@dataclass(frozen=True, eq=False)
class Scores:
    """Labels that several methods give to n rows whose classes are known.

    Attributes:
        clients: names of all clients.
        classes: the C classes in order, as text.
        owner: shape (n,), int64, index of the row's client.
        truth: shape (n,), int64, index of its class.
        predicted: by method, shape (n,), int64, class index, or −1 where no label reaches the row.
        confidence: shape (n,), float64, that XCLP has in its label; None where it did not run.
    """

    clients: tuple[str, ...]
    classes: tuple[str, ...]
    owner: NDArray[np.int64]
    truth: NDArray[np.int64]
    predicted: Mapping[str, NDArray[np.int64]]
    confidence: NDArray[np.float64] | None = None

    @classmethod
    def together(cls, parts: Sequence[Scores]) -> Scores:
        """Return the rows of several runs over the same clients, classes and methods."""
        first = parts[0]

        def joined(arrays: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
            return (
                None if arrays[0] is None else np.concatenate([a for a in arrays if a is not None])
            )

        return cls(
            first.clients,
            first.classes,
            np.concatenate([p.owner for p in parts]),
            np.concatenate([p.truth for p in parts]),
            {m: np.concatenate([p.predicted[m] for p in parts]) for m in first.predicted},
            joined([p.confidence for p in parts]),
        )

    def accuracy(self, method: str) -> float:
        """Return the fraction of rows whose label is right."""
        return float((self.predicted[method] == self.truth).mean())

    def accuracy_by_client(self, method: str) -> NDArray[np.float64]:
        """Return the same for each client, NaN for those without a row here; shape (clients,)."""
        right = self.owner[self.predicted[method] == self.truth]
        rows = self.rows_by_client()
        found = np.bincount(right, minlength=len(rows)) / np.maximum(rows, 1)
        return np.where(rows > 0, found, np.nan)

    def rows_by_client(self) -> NDArray[np.int64]:
        """Return how many rows each client has here; shape (clients,)."""
        return np.bincount(self.owner, minlength=len(self.clients)).astype(np.int64)

    def confusion(self, method: str) -> NDArray[np.int64]:
        """Count rows by true class and label; shape (C, C + 1), the last column for no label."""
        counts = np.zeros((len(self.classes), len(self.classes) + 1), dtype=np.int64)
        np.add.at(counts, (self.truth, self.predicted[method]), 1)  # −1, for none, is the last
        return counts


def scores_of(result: Result, truth: Sequence[ArrayLike]) -> Scores:
    """Compare the labels of a run with true ones, on rows that were unlabelled and have a result.

    Args:
        result: of the run.
        truth: per client, shape (n_j,), the true labels; −1, None or NaN where they are not known.
            A series is matched by index with the client's data frame.

    Raises:
        DataError: `truth` is not of these clients, rows and classes, or of no such row.
    """
    plan, classes = result.plan, result.plan.params.classes
    if len(truth) != len(plan.data):
        raise DataError(
            f"truth has labels of {count(len(truth), 'client')}, the run had {len(plan.data)}"
        )
    marked = [
        marked_values(labels_by_index(plan.indices.get(name), y, name), name)
        for y, name in zip(truth, plan.data, strict=True)
    ]
    if any(known.any() for _, known in marked):
        class_values(marked, classes, tuple(plan.data))  # refuses what is not a class
    owner, true, given, confidence = [], [], [], []
    for j, (name, own) in enumerate(plan.data.items()):
        values, known = marked[j]
        if len(values) != len(own.class_ids):
            raise DataError(
                f"client {name!r}: truth has {count(len(values), 'label')} for "
                f"{count(len(own.class_ids), 'row')}"
            )
        rows = known & (own.class_ids == UNLABELLED) & (name not in result.without_result)
        true.append(encode(values, known, classes)[rows])
        found = result.predictions[name]
        given.append(found.class_ids[rows])
        owner.append(np.full(int(rows.sum()), j))
        confidence.append(found.confidence[rows])
    if not sum(map(len, true)):
        raise DataError("truth says nothing of any row that was unlabelled and has a result")
    return Scores(
        tuple(plan.data),
        tuple(map(str, classes)),
        np.concatenate(owner),
        np.concatenate(true),
        {"xclp": np.concatenate(given)},
        np.concatenate(confidence),
    )


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows by confidence, in `BINS` ranges of equal width; all arrays have shape (BINS,).

    Attributes:
        rows: int64, how many rows.
        confidence: float64, their mean confidence; 0 without rows.
        right: int64, how many of their labels are right; None where that is not known.
    """

    rows: NDArray[np.int64]
    confidence: NDArray[np.float64]
    right: NDArray[np.int64] | None


def calibration(confidence: NDArray[np.float64], right: NDArray[np.bool_] | None = None) -> Bins:
    """Sort rows into bins by confidence in [0, 1]; all arrays have shape (n,)."""
    where = np.clip((confidence * BINS).astype(np.int64), 0, BINS - 1)
    rows, total = (np.bincount(where, weights, BINS) for weights in (None, confidence))
    correct = None if right is None else np.bincount(where[right], minlength=BINS)
    return Bins(rows, total / np.maximum(rows, 1), correct)
