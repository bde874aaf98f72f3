"""Feature extractors: the function h of the paper, from a client's data to vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from xclp_lp.scaling import Scaling, own_moments, scaled_by_one
from xclp_lp.study.experiments.fedavg import linear_embedding
from xclp_lp.study.experiments.task import Matrices, Task


def identity(task: Task) -> Matrices:
    """Return the features as they are."""
    return tuple(task.features)


def by_client(task: Task) -> Matrices:
    """Standardise each feature over each client's own rows, which needs nothing from others."""
    return tuple(own_moments(x).scaled(x) for x in task.features)


def agreed(task: Task) -> Matrices:
    """Standardise each feature over the rows of all clients, as `scale="shared"` does."""
    features = {str(j): x for j, x in enumerate(task.features)}
    return tuple(scaled_by_one(features, Scaling("shared"), features).values())


def embedded(task: Task) -> Matrices:
    """Apply the first layer of a linear network trained with FederatedAveraging on the labels."""
    first = linear_embedding(task.features, task.class_ids, task.n_classes, seed=task.seed)
    return tuple(x @ first for x in task.features)


Extractor = Callable[[Task], Matrices]


def _of_network(name: str, task: Task) -> Matrices:
    """Apply an extractor of `xclp_lp.study.experiments.neural_features`, which loads PyTorch."""
    from xclp_lp.study.experiments import neural_features

    extractor: Extractor = getattr(neural_features, name)
    return extractor(task)


EXTRACTORS: dict[str, Extractor] = {
    "identity": identity,
    "by-client": by_client,
    "agreed": agreed,
    "linear": embedded,
    "network": partial(_of_network, "trained"),
    "efficientnet": partial(_of_network, "pretrained"),
    "efficientnet-tuned": partial(_of_network, "fine_tuned"),
}
"""Every extractor by name."""
