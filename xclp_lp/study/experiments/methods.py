"""XCLP and what it is compared with: each takes vectors and labels, and gives labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_lp.graph import cosine_graph
from xclp_lp.labels import weighted_one_hot
from xclp_lp.lsh import projection_seed
from xclp_lp.parameters import Arguments
from xclp_lp.plan import Plan
from xclp_lp.predictions import Prediction, predict, with_prior
from xclp_lp.propagation import per_client, propagate
from xclp_lp.session import hash_rows
from xclp_lp.study.experiments.fedavg import train
from xclp_lp.study.experiments.task import Task
from xclp_lp.study.views import RunRecord


def arguments(seed: int = 0, **given: Any) -> Arguments:
    """Return the arguments of label propagation in an experiment.

    Args:
        seed: of the projection and of training.
        given: others, by name; by default the preset is the paper's, with 3 neighbours, and
            distances are in the clear.

    Raises:
        ParameterError: one is out of range. A session would refuse it too, but only after other
            methods have run.
    """
    defaults: dict[str, Any] = {"preset": "paper", "k": 3, "hamming": "plain"}
    return Arguments(random_state=seed, **defaults | given)


@dataclass(frozen=True)
class Labelling:
    """Labels of all rows.

    Attributes:
        labels: per client, shape (n_j,), class indices or −1.
        confidence: per client, shape (n_j,), float64, ω in [0, 1]; None where a method has none.
        record: of a run of the protocol.
    """

    labels: list[NDArray[np.int64]]
    confidence: list[NDArray[np.float64]] | None = None
    record: RunRecord | None = None


def run_xclp(task: Task, chosen: Arguments) -> Labelling:
    """Run Algorithm 1 with every party in this process."""
    arguments = replace(chosen, classes=range(task.n_classes))
    result = Plan.of(arguments, task.features, task.class_ids, names=task.names).run()
    predictions = result.predictions.values()
    return Labelling(
        [p.class_ids for p in predictions],
        [p.confidence for p in predictions],
        RunRecord.of(result),
    )


def run_per_client(task: Task, chosen: Arguments) -> Labelling:
    """Propagate labels within each client alone, on the same hashes."""
    seed = projection_seed(chosen.random_state) or b""
    predictions = per_client(
        [hash_rows(seed, x, chosen.n_bits, chosen.projection)[0] for x in task.features],
        [weighted_one_hot([y], task.n_classes, chosen.class_weight)[0] for y in task.class_ids],
        alpha=chosen.alpha,
        **chosen.neighbours,
    )
    return _shown(predictions, task, chosen)


def run_pooled(task: Task, chosen: Arguments) -> Labelling:
    """Propagate labels over the pooled vectors with exact cosines: the ceiling.

    Exact cosines have no `ties` to speak of; no point is its own neighbour.
    """
    graph = cosine_graph(np.concatenate(task.features), chosen.k, gamma=chosen.gamma)
    Y = np.concatenate(weighted_one_hot(task.class_ids, task.n_classes, chosen.class_weight))
    whole = predict(propagate(graph, Y, chosen.alpha))
    parts = (_by_client(v, task) for v in (whole.class_ids, whole.confidence, whole.distribution))
    return _shown([Prediction(*part) for part in zip(*parts, strict=True)], task, chosen)


def _shown(predictions: Sequence[Prediction], task: Task, chosen: Arguments) -> Labelling:
    shown = [
        chosen.shown(with_prior(p, chosen.setting, y), y)
        for p, y in zip(predictions, task.class_ids, strict=True)
    ]
    return Labelling([p.class_ids for p in shown], confidence=[p.confidence for p in shown])


def run_label_spreading(task: Task, chosen: Arguments) -> Labelling:
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
        kernel="knn", n_neighbors=chosen.k + 1, alpha=chosen.alpha, max_iter=1000
    )
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        # Points that no label reaches are divided by 0, and it warns instead of iterating on.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(unit, np.concatenate(task.class_ids))
    return Labelling(_by_client(model.transduction_.astype(np.int64), task))


def run_fedavg(task: Task, chosen: Arguments, *, rectified: bool) -> Labelling:
    """Train a network with FederatedAveraging on the labelled rows.

    Args:
        task: what is to be labelled.
        chosen: of which only the seed counts.
        rectified: whether its hidden layer has 128 ReLUs, or is linear.
    """
    seed = chosen.random_state or 0
    network = train(task.features, task.class_ids, task.n_classes, rectified=rectified, seed=seed)
    return Labelling([network.predict(x) for x in task.features])


def _by_client(rows: NDArray[Any], task: Task) -> list[NDArray[Any]]:
    return np.split(rows, np.cumsum([len(y) for y in task.class_ids])[:-1])


METHODS: dict[str, Callable[[Task, Arguments], Labelling]] = {
    "per-client": run_per_client,
    "xclp": run_xclp,
    "pooled": run_pooled,
    "label-spreading": run_label_spreading,
    "fedavg-linear": partial(run_fedavg, rectified=False),
    "fedavg-mlp": partial(run_fedavg, rectified=True),
}
"""Every method by name."""

TRAINED = ("fedavg-linear", "fedavg-mlp")
"""Methods whose model comes from all clients even where graphs are built in groups of them."""
