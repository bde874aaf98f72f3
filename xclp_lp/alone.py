"""What a client would reach with its own rows and labels alone: what taking part has to beat.

Every method is measured on the client's labelled rows, none of which it has seen: they are left out
one by one, or in ten parts where there are more than ten. It has the setting that does best on
these very rows, which is in its favour.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from xclp_lp.accuracy import Setting
from xclp_lp.graph import cosine_graph
from xclp_lp.labels import UNLABELLED
from xclp_lp.leave_one_out import OTHER_ALPHAS, WEIGHTS_AND_PRIORS, OwnLabels, without_own
from xclp_lp.parameters import Parameters
from xclp_lp.predictions import predict
from xclp_lp.propagation import influence
from xclp_lp.scaling import own_moments
from xclp_lp.session import ClientData

FEWEST_OWN = 2
"""Labelled rows, below which nothing can be left out."""
ONE_BY_ONE, PARTS, MOST_ROWS = 10, 10, 500
"""Labelled rows that are left out one by one; parts of more; rows that are looked at."""
STRENGTHS = (0.01, 1.0, 100.0)
"""Inverse strengths of the regularisation of a logistic regression."""

Vectors = NDArray[np.float64]
Labels = NDArray[np.int64]
Learner = Callable[[Vectors, Labels, Vectors], Labels]


def accuracies_alone(data: ClientData, params: Parameters) -> dict[str, float]:
    """Return the accuracy of each method on a client's labelled rows, NaN with fewer than two.

    Args:
        data: of the client.
        params: those of the run: k and γ of its label propagation.
    """
    x = own_moments(data.vectors).scaled(data.vectors)
    labelled = np.flatnonzero(data.class_ids != UNLABELLED)
    if len(labelled) > MOST_ROWS:
        labelled = labelled[np.linspace(0, len(labelled) - 1, MOST_ROWS).astype(np.intp)]
    y = data.class_ids[labelled]
    if len(y) < FEWEST_OWN:
        return dict.fromkeys(("nearest neighbour", "logistic regression", "propagation"), np.nan)
    own = x[labelled]
    logistic = [_unseen(_logistic(strength), own, y) for strength in STRENGTHS]
    return {
        "nearest neighbour": _best([_unseen(_nearest, own, y)], y),
        "logistic regression": _best(logistic, y),
        "propagation": _best(_propagated(x, labelled, y, params), y),
    }


def _best(predicted: Iterable[Labels], y: Labels) -> float:
    return max(float((found == y).mean()) for found in predicted)


def _unseen(learn: Learner, x: Vectors, y: Labels) -> Labels:
    """Return what is predicted for each row by what was learnt without it."""
    parts = len(y) if len(y) <= ONE_BY_ONE else PARTS
    part = np.empty(len(y), dtype=np.intp)
    part[np.argsort(y, kind="stable")] = np.arange(len(y)) % parts  # the classes in equal shares
    found = np.empty_like(y)
    for p in range(parts):
        away = part == p
        rest = y[~away]
        alike = (rest == rest[0]).all()
        found[away] = rest[0] if alike else learn(x[~away], rest, x[away])
    return found


def _nearest(x: Vectors, y: Labels, rows: Vectors) -> Labels:
    # Imported here because it takes long, and few commands need it.
    from sklearn.neighbors import KNeighborsClassifier

    found: Labels = KNeighborsClassifier(1).fit(x, y).predict(rows)
    return found


def _logistic(strength: float) -> Learner:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    def learn(x: Vectors, y: Labels, rows: Vectors) -> Labels:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # more steps change no ranking
            found: Labels = LogisticRegression(C=strength, max_iter=200).fit(x, y).predict(rows)
        return found

    return learn


def _propagated(
    x: Vectors, labelled: NDArray[np.intp], y: Labels, params: Parameters
) -> Iterable[Labels]:
    """Yield what each α and class weight gives, over exact cosines of all own rows."""
    graph = cosine_graph(x, min(params.k, len(x) - 1), gamma=params.gamma)
    onehot = np.eye(len(params.classes))[y]
    totals = onehot.sum(axis=0).astype(np.int64)
    for alpha in OTHER_ALPHAS:
        columns = influence(graph, labelled, alpha)[labelled]
        own = OwnLabels(y, columns @ onehot, np.diagonal(columns))
        for weight, prior in WEIGHTS_AND_PRIORS:
            yield predict(without_own(own, totals, Setting(alpha, weight, prior))).class_ids
