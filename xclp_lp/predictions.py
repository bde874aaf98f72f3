"""From scores to labels: which class a row gets, and how sure that is (Algorithm 1, ŷ and ω)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.secret import Secret
from xclp_lp.accuracy import Setting, Unvalidated, Validation
from xclp_lp.dropouts import Dropout
from xclp_lp.kept import Kept
from xclp_lp.labels import UNLABELLED, class_weights
from xclp_lp.messages import Geometry

RESOLUTION = 2.0**-30
"""Scores and differences of scores up to this count as zero."""
RELATIVE_RESOLUTION = 2.0**-20
"""Differences of scores up to this fraction of the larger one count as zero.

A private run rounds columns of S to float32, a fraction of 2^-24, and sums them in fixed point, an
error of p·2^-41. Both are far below the resolutions, so scores that are equal in a pooled run are
tied in a private one as well, and so are zeros. Labels can differ only where a score, or a
difference of two, lies within these errors of a resolution itself.
"""
PRIOR_ROWS = 5
"""Rows of equally many of every class that a client's own classes are counted with, as a prior."""


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Secret):
    """Labels for n points out of C classes: all that a client learns for itself in a session.

    Attributes:
        class_ids: shape (n,), int64: class index in 0..C-1, or -1 where no label reaches the point.
        confidence: shape (n,), float64, in [0, 1]: 1 − entropy/log C; 0 without a label.
        distribution: shape (n, C), float64: rows sum to 1; uniform without a label.
        geometry: what the graph of all rows looks like, as the server of a session says.
        validation: how right the labels probably are, of all clients together; None where it was
            not measured.
        unvalidated: why it was not, where it should have been.
        kept: what gives labels to rows that come later, if the client has had a whole session.
        dropouts: clients of the session whose points or labels are missing from the scores.
    """

    class_ids: NDArray[np.int64]
    confidence: NDArray[np.float64]
    distribution: NDArray[np.float64]
    geometry: Geometry | None = None
    validation: Validation | None = None
    unvalidated: Unvalidated | None = None
    kept: Kept | None = None
    dropouts: tuple[Dropout, ...] = ()

    @classmethod
    def none(cls, rows: int, n_classes: int) -> Prediction:
        """Return what stands for rows that no label reached."""
        return cls(
            np.full(rows, UNLABELLED, dtype=np.int64),
            np.zeros(rows),
            np.full((rows, n_classes), 1 / n_classes),
        )


def weighed(
    scores: NDArray[np.float64],
    totals: NDArray[np.int64] | None,
    setting: Setting,
    own: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return scores, weighed by the labels of each class and by a client's own classes.

    Args:
        scores: (n, C), S·Y with labels that weigh 1.
        totals: (C,) or (n, C), labels by class of all clients; None without class weights.
        setting: which weights and prior.
        own: (C,) or (n, C), labels by class of the client whose rows they are. As a prior, each of
            its n_j labels is a random one of its rows: (n_jc + 5/C)/(n_j + 5).
    """
    if totals is not None and setting.class_weight != "none":
        scores = scores * class_weights(totals, setting.class_weight)
    if setting.client_prior == "own":
        n_classes = scores.shape[1]
        counts = own + PRIOR_ROWS / n_classes
        scores = scores * (counts / counts.sum(axis=-1, keepdims=True))
    return scores


def with_prior(
    prediction: Prediction, setting: Setting, class_ids: NDArray[np.int64]
) -> Prediction:
    """Return the prediction that `weighed` makes with the client's prior, from one without.

    Args:
        prediction: of the n_j rows of a client.
        setting: says whether there is a prior.
        class_ids: (n_j,), classes of its labelled rows, −1 elsewhere.
    """
    if setting.client_prior == "none":
        return prediction
    n_classes = prediction.distribution.shape[1]
    own = np.bincount(class_ids[class_ids != UNLABELLED], minlength=n_classes)
    reached = prediction.class_ids != UNLABELLED
    prior = Setting(setting.alpha, "none", "own")
    return predict(weighed(prediction.distribution * reached[:, None], None, prior, own))


def predict(Z: ArrayLike) -> Prediction:
    """Turn scores into labels, confidences and class distributions.

    Scores up to RESOLUTION count as zero. Classes within RESOLUTION of a row's maximum, or within
    a fraction RELATIVE_RESOLUTION of it, are tied, and the lowest of them wins.

    Args:
        Z: shape (n, C) with C ≥ 1, finite and ≥ 0 (up to -RESOLUTION: noise of an encoding).

    Returns:
        The prediction for each row.

    Raises:
        ParameterError: Z is not a matrix with at least one column.
        DataError: a score is negative or not finite (names row and class).

    Source: Algorithm 1, lines "ŷ" and "ω".
    """
    scores = np.array(Z, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] < 1:
        raise ParameterError(f"Z has shape {scores.shape}; (n, C) with C >= 1 is needed")
    bad = ~(np.isfinite(scores) & (scores >= -RESOLUTION))
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"score {scores[row, column]} in row {row}, class {column}; scores are finite and >= 0"
        )
    n_classes = scores.shape[1]
    scores[scores <= RESOLUTION] = 0.0
    best = scores.max(axis=1, keepdims=True)
    reached = best[:, 0] > 0
    tied = scores >= best - np.maximum(RESOLUTION, RELATIVE_RESOLUTION * best)
    class_ids = np.where(reached, np.argmax(tied, axis=1), UNLABELLED).astype(np.int64)

    # Dividing by the maximum first keeps sums of huge scores finite.
    distribution = np.divide(scores, best, out=np.ones_like(scores), where=best > 0)
    distribution /= distribution.sum(axis=1, keepdims=True)
    confidence = np.ones(len(scores))
    if n_classes > 1:
        confidence -= entr(distribution).sum(axis=1) / np.log(n_classes)
    confidence = np.where(reached, confidence.clip(0.0, 1.0), 0.0)
    return Prediction(class_ids, confidence, distribution)


def reset_labelled(prediction: Prediction, class_ids: NDArray[np.int64]) -> Prediction:
    """Give labelled rows their own labels back, with confidence 1, as the paper's code does.

    Args:
        prediction: of all rows of a client.
        class_ids: shape (n,), class indices; −1 leaves a row as it is.
    """
    labelled = class_ids != UNLABELLED
    own = np.eye(prediction.distribution.shape[1])[class_ids]
    return replace(
        prediction,
        class_ids=np.where(labelled, class_ids, prediction.class_ids),
        confidence=np.where(labelled, 1.0, prediction.confidence),
        distribution=np.where(labelled[:, None], own, prediction.distribution),
    )


def calibrated(prediction: Prediction) -> Prediction:
    """Say as confidences how probably labels are right, where that was measured."""
    if prediction.validation is None:
        return prediction
    confidence = prediction.validation.calibrated(prediction.confidence)
    return replace(prediction, confidence=confidence)


def abstaining(prediction: Prediction, least: float) -> Prediction:
    """Take labels away whose confidence is below the least one."""
    unsure = prediction.confidence < least
    return replace(prediction, class_ids=np.where(unsure, UNLABELLED, prediction.class_ids))


def relative_confidence(prediction: Prediction) -> Prediction:
    """Divide confidences by the largest of the client's own, as the paper's code does over all."""
    largest = prediction.confidence.max(initial=0.0)
    confidence = prediction.confidence / largest if largest > 0 else prediction.confidence
    return replace(prediction, confidence=confidence)
