"""XCLP and what it is compared with: each takes vectors and labels, and gives labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_lp.estimator import CrossClientLabelPropagation
from xclp_lp.graph import cosine_graph
from xclp_lp.labels import balanced_weights, one_hot
from xclp_lp.lsh import Projection, projection_seed
from xclp_lp.parameters import ClassWeight, Parameters
from xclp_lp.plan import Plan
from xclp_lp.propagation import per_client, predict, propagate
from xclp_lp.session import hash_rows
from xclp_lp.study.experiments.fedavg import train
from xclp_lp.study.views import RunRecord


@dataclass(frozen=True)
class Choices:
    """Parameters of label propagation.

    Attributes:
        n_bits: L.
        k: neighbours per point.
        alpha: α in (0, 1).
        gamma: exponent γ of the similarity.
        projection: ``random`` or ``tight-frame``.
        class_weight: ``balanced`` or None.
        hamming: back end of the distances.
        seed: of the projection and of training.
    """

    n_bits: int = 4096
    k: int = 3
    alpha: float = 0.99
    gamma: float = 1.0
    projection: Projection = "random"
    class_weight: ClassWeight = None
    hamming: str = "plain"
    seed: int = 0

    def __post_init__(self) -> None:
        # A session would refuse them too, but only after other methods have run.
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "seed"}
        Parameters(classes=(0,), **own)


@dataclass(frozen=True)
class Task:
    """Vectors and labels of several clients.

    Attributes:
        features: per client, shape (n_j, d).
        codes: per client, shape (n_j,), class indices or −1.
        n_classes: C.
        names: one per client; ``client-0`` and so on by default.
    """

    features: tuple[NDArray[np.float64], ...]
    codes: tuple[NDArray[np.int64], ...]
    n_classes: int
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Answer:
    """Labels of all rows.

    Attributes:
        labels: per client, shape (n_j,), class indices or −1.
        confidence: per client, shape (n_j,), float64, ω in [0, 1]; None where a method has none.
        probability: per client, shape (n_j,), float64, of the label, for a run of the protocol.
        record: of a run of the protocol.
    """

    labels: list[NDArray[np.int64]]
    confidence: list[NDArray[np.float64]] | None = None
    probability: list[NDArray[np.float64]] | None = None
    record: RunRecord | None = None


def run_xclp(task: Task, choices: Choices) -> Answer:
    """Run Algorithm 1 with every party in this process."""
    estimator = CrossClientLabelPropagation(
        choices.n_bits,
        choices.k,
        choices.alpha,
        gamma=choices.gamma,
        projection=choices.projection,
        hamming=choices.hamming,
        class_weight=choices.class_weight,
        classes=range(task.n_classes),
        random_state=choices.seed,
        client_names=task.names,
    )
    plans: list[Plan] = []
    estimator.fit(task.features, task.codes, announce=plans.append)
    return Answer(
        [y.astype(np.int64) for y in estimator.transduction_],
        estimator.confidence_,
        [p.max(axis=1, initial=0.0) for p in estimator.label_distributions_],
        RunRecord.of(plans[0], estimator),
    )


def run_per_client(task: Task, choices: Choices) -> Answer:
    """Propagate labels within each client alone, on the same hashes."""
    seed = projection_seed(choices.seed) or b""
    predictions = per_client(
        [hash_rows(seed, x, choices.n_bits, choices.projection)[0] for x in task.features],
        [_weighted([y], choices, task.n_classes)[0] for y in task.codes],
        k=choices.k,
        alpha=choices.alpha,
        gamma=choices.gamma,
    )
    return Answer([p.labels for p in predictions], confidence=[p.confidence for p in predictions])


def run_pooled(task: Task, choices: Choices) -> Answer:
    """Propagate labels over the pooled vectors with exact cosines: the ceiling."""
    graph = cosine_graph(np.concatenate(task.features), choices.k, gamma=choices.gamma)
    Y = np.concatenate(_weighted(task.codes, choices, task.n_classes))
    prediction = predict(propagate(graph, Y, choices.alpha))
    return Answer(
        _by_client(prediction.labels, task), confidence=_by_client(prediction.confidence, task)
    )


def run_label_spreading(task: Task, choices: Choices) -> Answer:
    """Run scikit-learn's LabelSpreading on the pooled vectors, scaled to length 1.

    Neighbours on the sphere are those by angle, but all have weight 1. No `gamma`, `class_weight`.
    """
    # Imported here because it takes a second to load.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.semi_supervised import LabelSpreading

    x = np.concatenate(task.features)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    unit = np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)
    model = LabelSpreading(
        kernel="knn", n_neighbors=choices.k + 1, alpha=choices.alpha, max_iter=1000
    )
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        # Points that no label reaches are divided by 0, and it warns instead of iterating on.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(unit, np.concatenate(task.codes))
    return Answer(_by_client(model.transduction_.astype(np.int64), task))


def run_fedavg_linear(task: Task, choices: Choices) -> Answer:
    """Train a linear network with FederatedAveraging on the labelled rows."""
    return _run_fedavg(task, choices, rectified=False)


def run_fedavg_mlp(task: Task, choices: Choices) -> Answer:
    """Train a network with one hidden layer of 128 ReLUs with FederatedAveraging."""
    return _run_fedavg(task, choices, rectified=True)


def _run_fedavg(task: Task, choices: Choices, *, rectified: bool) -> Answer:
    network = train(
        task.features, task.codes, task.n_classes, rectified=rectified, seed=choices.seed
    )
    return Answer([network.predict(x) for x in task.features])


def _weighted(
    codes: Sequence[NDArray[np.int64]], choices: Choices, n_classes: int
) -> list[NDArray[np.float64]]:
    onehot = [one_hot(y, n_classes) for y in codes]
    if choices.class_weight is None:
        return onehot
    totals = np.sum([y.sum(axis=0) for y in onehot], axis=0)
    weights = balanced_weights(np.rint(totals).astype(np.int64))
    return [y * weights for y in onehot]


def _by_client(rows: NDArray[Any], task: Task) -> list[NDArray[Any]]:
    return np.split(rows, np.cumsum([len(y) for y in task.codes])[:-1])


METHODS: dict[str, Callable[[Task, Choices], Answer]] = {
    "per-client": run_per_client,
    "xclp": run_xclp,
    "pooled": run_pooled,
    "label-spreading": run_label_spreading,
    "fedavg-linear": run_fedavg_linear,
    "fedavg-mlp": run_fedavg_mlp,
}
"""Every method by name."""

TRAINED = ("fedavg-linear", "fedavg-mlp")
"""Methods whose model comes from all clients even where graphs are built in groups of them."""
