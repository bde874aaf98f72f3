"""How right the labels of a federation probably are, before anybody knows the truth.

Every labelled row is scored as if it had no label, see `xclp_lp.leave_one_out`; how many get their
own label back estimates the accuracy on the rows that have none, as far as those are like them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import FaultyPeer, XclpError
from xclp_lp.labels import ClassWeight

ValidationKind: TypeAlias = Literal["none", "leave-one-out", "tune"]
"""What a session measures of itself: nothing, its own settings, or several."""
ClientPrior: TypeAlias = Literal["none", "own"]

BINS = 10
"""Of confidences in [0, 1], equally wide."""
FEWEST = 13
"""Labels of all clients, below which nothing can be said."""
ERRORS: Mapping[int, float] = {FEWEST: 0.15, 26: 0.08, 61: 0.05, 121: 0.035}
"""Root mean square error of an estimated accuracy, from so many labels on: measured, see
docs/understand/evidence.md."""
FEWEST_TO_ADVISE, WORTH_SAYING = 26, 0.05
"""Labels from which on another setting is advised, and by how much it must be better."""


class Setting(NamedTuple):
    """What was compared on one matrix of distances."""

    alpha: float
    class_weight: ClassWeight
    client_prior: ClientPrior

    def __str__(self) -> str:
        """Return it as one would write it."""
        words = f"alpha = {self.alpha:g}, class_weight = {self.class_weight!r}"
        return words + f", client_prior = {self.client_prior!r}" * (self.client_prior != "none")


@dataclass(frozen=True)
class Coverage:
    """What labels are worth from a confidence on.

    Attributes:
        confidence: a `min_confidence` that keeps them.
        share: of all labelled rows, those that keep a label.
        labels, right: how many these are, and how many of them came back.
    """

    confidence: float
    share: float
    labels: int
    right: int

    @property
    def accuracy(self) -> float:
        """Return the share that came back."""
        return self.right / self.labels

    @property
    def error(self) -> float:
        """Return its standard deviation, if each was right by chance and all shares are likely.

        Source: of Beta(right + 1, wrong + 1).
        """
        n, a = self.labels + 2, (self.right + 1) / (self.labels + 2)
        return float(np.sqrt(a * (1 - a) / (n + 1)))


@dataclass(frozen=True)
class Unvalidated:
    """Why labels were not validated, though all agreed on it; they stay what they are.

    Attributes:
        party: whose validation it was: a client, or the server.
        reason: why, for that party.
        blamed: parties of which it says that at least one is at fault.
    """

    party: str
    reason: str
    blamed: tuple[str, ...] = ()

    @classmethod
    def of(cls, party: str, error: XclpError) -> Unvalidated:
        """Return what an error of a party means."""
        return cls(party, str(error), error.parties if isinstance(error, FaultyPeer) else ())

    def __str__(self) -> str:
        """Return it as a warning."""
        return f"how good the labels are cannot be said, validation failed: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Return why, who is blamed, and by whom, for a file."""
        by = [self.party] if self.blamed else []
        return {"reason": self.reason, "blamed": list(self.blamed), "blamed_by": by}


@dataclass(frozen=True, eq=False)
class Validation:
    """What leaving out each labelled row found: sums over all clients, and a client's own part.

    Attributes:
        labels: (C,) int64, labelled rows by class.
        right: by setting, (C,) int64, how many of them got their own label; the setting that was
            used comes first.
        by_confidence: (2, `BINS`) int64: labelled rows by their confidence, and how many of them
            were right, with the setting that was used.
        own_labels, own_right: of this client, over all classes.
    """

    labels: NDArray[np.int64]
    right: Mapping[Setting, NDArray[np.int64]]
    by_confidence: NDArray[np.int64]
    own_labels: int
    own_right: int

    @property
    def used(self) -> Setting:
        """Return the setting whose labels the clients got."""
        return next(iter(self.right))

    @property
    def n_labels(self) -> int:
        """Return the labelled rows of all clients."""
        return int(self.labels.sum())

    @property
    def error(self) -> float | None:
        """Return the root mean square error of an accuracy; None with too few labels to say one."""
        reached = [error for least, error in ERRORS.items() if self.n_labels >= least]
        return reached[-1] if reached else None

    def accuracy(self, setting: Setting | None = None) -> float:
        """Return the estimated accuracy, by default of the setting that was used; NaN if unknown.

        Args:
            setting: one of `right`.
        """
        if self.error is None:
            return float("nan")
        return float(self.right[setting or self.used].sum() / self.n_labels)

    def balanced_accuracy(self, setting: Setting | None = None) -> float:
        """Return the mean over the classes that have a label, as `accuracy`."""
        if self.error is None:
            return float("nan")
        there = self.labels > 0
        return float(np.mean(self.right[setting or self.used][there] / self.labels[there]))

    def to_dict(self) -> dict[str, Any]:
        """Return the estimates as JSON-ready values; None where there are too few labels."""
        known = self.error is not None
        return {
            "labels": self.labels.tolist(),
            "accuracy": self.accuracy() if known else None,
            "balanced_accuracy": self.balanced_accuracy() if known else None,
            "error": self.error,
            "settings": [
                setting._asdict() | {"right": right.tolist()}
                for setting, right in self.right.items()
            ],
        }

    @property
    def best(self) -> Setting:
        """Return the setting with the best accuracy; the first of several."""
        return max(self.right, key=lambda setting: int(self.right[setting].sum()))

    @property
    def advised(self) -> Setting | None:
        """Return a setting that is better by more than chance explains easily, if there is one."""
        if self.n_labels < FEWEST_TO_ADVISE:
            return None
        better = self.accuracy(self.best) - self.accuracy()
        return self.best if better >= WORTH_SAYING else None

    def calibrated(self, confidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how probably labels with these confidences are right.

        A monotone function of the confidence that fits what leaving out found in each of the ten
        bins, where each bin has one further row that is right as often as all rows; linear between
        the bins. With fewer than `FEWEST` labels confidences stay as they are.

        Args:
            confidence: (n,), 1 minus the normalised entropy; 0 stands for no label, and stays.

        Returns:
            (n,) in [0, 1].
        """
        if self.error is None:
            return confidence
        from scipy.optimize import isotonic_regression  # takes long, and only a client needs it

        rows, right = self.by_confidence
        there = rows > 0
        rate = (right + right.sum() / rows.sum())[there] / (rows + 1)[there]
        fitted = isotonic_regression(rate, weights=rows[there]).x
        middles = (np.flatnonzero(there) + 0.5) / BINS
        return np.where(confidence > 0, np.interp(confidence, middles, fitted), 0.0)

    def coverage(self) -> list[Coverage]:
        """Return what leaving out says of labels above a confidence, from all to the surest.

        Returns:
            One entry for each bin of confidences with rows.
        """
        rows, right = (part[::-1].cumsum()[::-1] for part in self.by_confidence)
        there = np.flatnonzero(self.by_confidence[0])
        least = self.calibrated(there / BINS)
        return [
            Coverage(float(c), float(rows[i] / rows[0]), int(rows[i]), int(right[i]))
            for c, i in zip(least, there.tolist(), strict=True)
        ]
