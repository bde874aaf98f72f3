"""The demonstration: label a real data set across clients and compare with the alternatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_crypto.rng import Rng
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.meter import Cost
from xclp_lp.estimator import CrossClientLabelPropagation
from xclp_lp.labels import UNLABELLED, balanced_weights, decode, encode, one_hot
from xclp_lp.lsh import projection_seed
from xclp_lp.parameters import ClassWeight, Settings
from xclp_lp.plan import Plan, checked_drop
from xclp_lp.propagation import per_client, pooled
from xclp_lp.session import Departure, hash_rows
from xclp_lp.study.data import Federation, label_mask
from xclp_lp.study.scores import Scores
from xclp_lp.study.views import RunRecord
from xclp_lp.summary import participation

METHODS = ("per_client", "xclp", "plain")
"""Each client alone; the secure run; label propagation over the pooled data, nothing encrypted."""


@dataclass(frozen=True)
class Accuracy:
    """How many labels are right on the unlabelled rows.

    Attributes:
        overall: the fraction of the rows.
        balanced: the mean over the classes that occur of the fraction of their rows.
    """

    overall: float
    balanced: float


@dataclass(frozen=True)
class Comparison:
    """Accuracies on the unlabelled rows of clients that stayed, and what the secure run cost.

    Attributes:
        accuracy: by method, see `METHODS`. ``plain`` has the points and labels that the secure run
            had: without those of clients that vanished, as far as they were not counted.
        identical: whether the secure and the plain labels agree in every row of these clients;
            None with privacy of labels, which are true ones in the plain run only.
        rows: number of rows of all clients.
        labelled: number of labelled rows of all clients.
        counted: number of labels that were counted in the secure run.
        predicted: number of rows that accuracies are over.
        participation: whose labels were counted and who vanished, for a file.
        departures: who vanished.
        cost: cost of the secure run.
        scores: the labels of these rows by all three methods, ``per-client``, ``xclp`` and
            ``pooled``, for a report.
        record: of the secure run, for a report.
    """

    accuracy: dict[str, Accuracy]
    identical: bool | None
    rows: int
    labelled: int
    counted: int
    predicted: int
    participation: dict[str, Any]
    departures: tuple[Departure, ...]
    cost: Cost
    scores: Scores = field(compare=False, repr=False)
    record: RunRecord = field(compare=False, repr=False)


def compare(
    federation: Federation,
    *,
    labelled: float,
    seed: int,
    drop: Mapping[str, str] | None = None,
    rng: Rng | None = None,
    progress: Callable[[Progress], None] | None = None,
    announce: Callable[[Plan], None] | None = None,
    **settings: Any,
) -> Comparison:
    """Hide most labels, recover them in three ways, and compare.

    Args:
        federation: the data with all true labels.
        labelled: fraction of each client's rows whose label is kept, in (0, 1]; test rows
            keep none.
        seed: ≥ 0, chooses the labelled rows and the projection, for all three ways alike.
        drop: clients that vanish, and the step before which they do.
        rng: source of keys and masks, the operating system's by default.
        progress: called before each computation of the secure run.
        announce: called when all is checked, before the secure run.
        settings: fields of `Settings`, for all three ways alike; but only in the secure run does
            each client randomise its labels, where `privacy` says so.

    Raises:
        ParameterError: no row is left to predict, or as from `CrossClientLabelPropagation.fit`.
    """
    classes, names = federation.classes, federation.names
    drop = checked_drop(drop, names)
    shown = label_mask(federation.labels, labelled, seed, federation.test)
    stay = [j for j, name in enumerate(names) if name not in drop]
    if not any((~shown[j]).any() for j in stay):
        raise ParameterError(
            f"labelled must leave some row to predict, got {labelled} of "
            f"{sum(len(shown[j]) for j in stay)} rows"
        )
    truth = [encode(y.tolist(), np.ones(len(y), dtype=bool), classes) for y in federation.labels]
    codes = [np.where(mask, y, UNLABELLED) for mask, y in zip(shown, truth, strict=True)]

    chosen = Settings(**settings)
    estimator = CrossClientLabelPropagation(
        **vars(chosen), classes=classes, random_state=seed, client_names=names
    )
    plans: list[Plan] = []

    def checked(plan: Plan) -> None:
        plans.append(plan)
        if announce is not None:
            announce(plan)

    estimator.fit(
        federation.features,
        [decode(c, classes) for c in codes],
        drop=drop,
        rng=rng,
        progress=progress,
        announce=checked,
    )
    secure = [
        encode(y.tolist(), np.array([v is not None and v != -1 for v in y.tolist()]), classes)
        for y in estimator.transduction_
    ]

    plain_seed = projection_seed(seed) or b""
    bits = [
        hash_rows(plain_seed, v, chosen.n_bits, chosen.projection)[0] for v in federation.features
    ]
    onehot = [one_hot(c, len(classes)) for c in codes]
    gone = [d.client for d in estimator.departures_ if not d.in_graph]
    present = [j for j, name in enumerate(names) if name not in gone]
    counted = [onehot[j] * (names[j] in estimator.contributors_) for j in present]
    options: dict[str, Any] = {
        name: getattr(chosen, name) for name in ("alpha", "gamma", "include_self", "ties")
    }
    together = pooled(
        [bits[j] for j in present],
        _weighted(counted, chosen.class_weight),
        k=min(chosen.k, sum(len(bits[j]) for j in present) - 1),
        **options,
    )
    plain = {j: chosen.shown(p, codes[j]).labels for j, p in zip(present, together, strict=True)}
    alone = per_client(
        bits, [_weighted([y], chosen.class_weight)[0] for y in onehot], k=chosen.k, **options
    )

    def hidden(values: Mapping[int, NDArray[Any]] | Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return what all rows have whose label was hidden, of clients that stayed."""
        return np.concatenate([values[j][~shown[j]] for j in stay])

    scores = Scores(
        clients=names,
        classes=tuple(map(str, classes)),
        owner=hidden([np.full(len(y), j) for j, y in enumerate(truth)]),
        truth=hidden(truth),
        predicted={
            "per-client": hidden([p.labels for p in alone]),
            "xclp": hidden(secure),
            "pooled": hidden(plain),
        },
        confidence=hidden(estimator.confidence_),
        probability=hidden([p.max(axis=1, initial=0.0) for p in estimator.label_distributions_]),
    )

    def accuracy(method: str) -> Accuracy:
        right = scores.predicted[method] == scores.truth
        each = [right[scores.truth == c].mean() for c in np.unique(scores.truth)]
        return Accuracy(float(right.mean()), float(np.mean(each)))

    return Comparison(
        accuracy={
            "per_client": accuracy("per-client"),
            "xclp": accuracy("xclp"),
            "plain": accuracy("pooled"),
        },
        identical=(
            all(np.array_equal(secure[j], plain[j]) for j in stay)
            if chosen.privacy is None
            else None
        ),
        rows=sum(map(len, truth)),
        labelled=int(sum(mask.sum() for mask in shown)),
        counted=int(sum(y.sum() for y in counted)),
        predicted=len(scores.truth),
        participation=participation(estimator),
        departures=estimator.departures_,
        cost=estimator.cost_,
        scores=scores,
        record=RunRecord.of(plans[0], estimator),
    )


def _weighted(
    onehot: Sequence[NDArray[np.float64]], class_weight: ClassWeight
) -> list[NDArray[np.float64]]:
    """Weigh labels by their classes over all of these matrices."""
    if class_weight is None:
        return list(onehot)
    weights = balanced_weights(np.rint(sum(y.sum(axis=0) for y in onehot)).astype(np.int64))
    return [y * weights for y in onehot]


def summary(runs: list[Comparison]) -> dict[str, Any]:
    """Return mean accuracies, whether all labels are identical, and the rest of the first run."""

    def mean(which: str) -> dict[str, float]:
        return {m: float(np.mean([getattr(r.accuracy[m], which) for r in runs])) for m in METHODS}

    return {
        "accuracy": mean("overall"),
        "balanced_accuracy": mean("balanced"),
        "identical_labels": (None if runs[0].identical is None else all(r.identical for r in runs)),
        **runs[0].participation,
        "cost": runs[0].cost.to_dict(),
    }
