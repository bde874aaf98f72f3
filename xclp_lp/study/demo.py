"""The demonstration: label a real data set across clients and compare with the alternatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import ParameterError
from xclp_crypto.rng import Rng
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.meter import Cost
from xclp_lp.accuracy import Validation
from xclp_lp.dropouts import checked_drop
from xclp_lp.labelling import Participation, spread
from xclp_lp.labels import UNLABELLED, weighted_one_hot
from xclp_lp.parameters import Arguments, Settings
from xclp_lp.plan import Plan, Result
from xclp_lp.predictions import with_prior
from xclp_lp.propagation import per_client, pooled
from xclp_lp.scaling import Scaling, in_graph, scaled_by_one
from xclp_lp.session import hash_rows
from xclp_lp.study.data import Federation, label_mask
from xclp_lp.study.scores import Accuracy, Scores
from xclp_lp.study.views import RunRecord

METHODS = ("per_client", "xclp", "plain")
"""Each client alone; the secure run; label propagation over the pooled data, nothing encrypted."""


@dataclass(frozen=True)
class Comparison:
    """Accuracies on the unlabelled rows of clients that stayed, and what the secure run cost.

    Attributes:
        accuracy: by method, see `METHODS`. ``plain`` has the points and labels that the secure run
            had: without those of clients that dropped out, as far as they were not counted.
        identical: whether the secure and the plain labels agree in every row of these clients;
            None with privacy of labels, which are true ones in the plain run only.
        rows: number of rows of all clients.
        labelled: number of labelled rows of all clients.
        counted: number of labels that were counted in the secure run.
        predicted: number of rows that accuracies are over.
        participation: whose labels were counted and who dropped out.
        validation: what the secure run estimated of itself; None if it did not.
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
    participation: Participation
    validation: Validation | None
    cost: Cost
    scores: Scores = field(compare=False, repr=False)
    record: RunRecord = field(compare=False, repr=False)


def plan_demo(
    federation: Federation,
    *,
    labelled: float,
    seed: int,
    drop: Mapping[str, str] | None = None,
    **settings: Any,
) -> Plan:
    """Hide most labels, and plan the secure run that recovers them.

    Args:
        federation: the data with all true labels.
        labelled: fraction of each client's rows whose label is kept, in (0, 1]; test rows
            keep none.
        seed: ≥ 0, chooses the labelled rows and the projection, for all three ways alike.
        drop: clients that will drop out, and the step before which they do.
        settings: fields of `Settings`, for all three ways alike; but only in the secure run does
            each client randomise its labels, where `privacy` says so.

    Raises:
        ParameterError: no row is left to predict, `drop` names no client or step, or as from
            `CrossClientLabelPropagation.plan`.
    """
    dropouts = checked_drop(drop, federation.names)
    shown = label_mask(federation.labels, labelled, seed, federation.test)
    stay = [mask for mask, c in zip(shown, federation.names, strict=True) if c not in dropouts]
    if all(mask.all() for mask in stay):
        raise ParameterError(
            f"labelled must leave some row to predict, got {labelled} of {sum(map(len, stay))} rows"
        )
    return Plan.of(
        Arguments(**vars(Settings(**settings)), classes=federation.classes, random_state=seed),
        federation.features,
        [np.ma.masked_array(y, ~m) for m, y in zip(shown, federation.labels, strict=True)],
        names=federation.names,
    )


def compare(
    federation: Federation,
    plan: Plan,
    *,
    drop: Mapping[str, str] | None = None,
    rng: Rng | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Comparison:
    """Recover labels in three ways, and compare.

    Args:
        federation: the data with all true labels.
        plan: of the secure run, from `plan_demo`.
        drop: the clients of `plan_demo` that drop out.
        rng: source of keys and masks, the operating system's by default.
        progress: called before each computation of the secure run.

    Raises:
        XclpError: as from `Plan.run`.
    """
    names, truth = federation.names, federation.class_ids
    shown = [own.class_ids != UNLABELLED for own in plan.data.values()]
    result = plan.run(progress=progress, drop=drop, rng=rng)
    stay = [j for j, name in enumerate(names) if name not in result.without_result]
    secure = [found.class_ids for found in result.predictions.values()]
    alone, plain = _references(plan, result)

    def hidden(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return what all rows have whose label was hidden, of clients that stayed."""
        return np.concatenate([values[j][~shown[j]] for j in stay])

    scores = Scores(
        clients=names,
        classes=tuple(map(str, federation.classes)),
        owner=hidden([np.full(len(y), j) for j, y in enumerate(truth)]),
        truth=hidden(truth),
        predicted={"per-client": hidden(alone), "xclp": hidden(secure), "pooled": hidden(plain)},
        confidence=hidden([found.confidence for found in result.predictions.values()]),
    )

    counted = result.participation.contributors
    same = all(np.array_equal(secure[j], plain[j]) for j in stay)
    return Comparison(
        accuracy={
            method: Accuracy.of(labels, scores.truth)
            for method, labels in zip(METHODS, scores.predicted.values(), strict=True)
        },
        identical=same if plan.params.privacy is None else None,
        rows=sum(map(len, truth)),
        labelled=int(sum(mask.sum() for mask in shown)),
        counted=int(sum(m.sum() for m, name in zip(shown, names, strict=True) if name in counted)),
        predicted=len(scores.truth),
        participation=result.participation,
        validation=next(iter(result.validations.values()), None),
        cost=result.cost,
        scores=scores,
        record=RunRecord.of(result),
    )


def _references(
    plan: Plan, result: Result
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Return what each client alone would find, and one party with the data of those in the graph.

    Args:
        plan: of the secure run.
        result: of the run; the pooled data have the points and labels of those that took part.

    Returns:
        Per client, (n_j,) class indices; no labels of pooled data for a client without points.
    """
    params, n_classes = plan.params, len(plan.params.classes)
    took_part = result.participation
    vectors = {name: own.vectors for name, own in plan.data.items()}
    given = {name: own.class_ids for name, own in plan.data.items()}

    def hashed(
        scaling: Scaling,
    ) -> tuple[dict[str, NDArray[np.bool_]], dict[str, NDArray[np.uint8]]]:
        """Return by client which rows have a direction, and their bits."""
        rows = {name: in_graph(x, scaling) for name, x in vectors.items()}
        scaled = scaled_by_one(vectors, scaling, took_part.scaled_over)
        return rows, {
            name: hash_rows(plan.seed or b"", x[rows[name]], params.n_bits, params.projection)[0]
            for name, x in scaled.items()
        }

    rows, bits = hashed(params.scaling)
    alone_scaling = replace(params.scaling, scale="client")
    own_rows, own_bits = hashed(alone_scaling) if params.shared_scale else (rows, bits)
    alone = per_client(
        list(own_bits.values()),
        [
            weighted_one_hot([y[own_rows[name]]], n_classes, params.class_weight)[0]
            for name, y in given.items()
        ],
        alpha=params.alpha,
        **params.neighbours,
    )
    present = list(took_part.sizes)
    counted = [
        given[name][rows[name]]
        if name in took_part.contributors
        else np.full(rows[name].sum(), UNLABELLED)
        for name in present
    ]
    together = pooled(
        [bits[name] for name in present],
        weighted_one_hot(counted, n_classes, params.class_weight),
        alpha=params.alpha,
        **params.neighbours | {"k": min(params.k, sum(len(bits[name]) for name in present) - 1)},
    )
    plain = {
        name: replace(
            with_prior(spread(found, rows[name], n_classes), params.setting, given[name]),
            validation=result.predictions[name].validation,
        )
        for name, found in zip(present, together, strict=True)
    }
    return [
        spread(found, own_rows[name], n_classes).class_ids
        for name, found in zip(given, alone, strict=True)
    ], [
        plan.settings.shown(plain[name], own).class_ids
        if name in plain
        else np.full_like(own, UNLABELLED)
        for name, own in given.items()
    ]


def summary(runs: list[Comparison]) -> dict[str, Any]:
    """Return mean accuracies, whether all labels are identical, and the rest of the first run."""

    def mean(which: str) -> dict[str, float]:
        return {m: float(np.mean([getattr(r.accuracy[m], which) for r in runs])) for m in METHODS}

    return {
        "accuracy": mean("overall"),
        "balanced_accuracy": mean("balanced"),
        "identical_labels": (None if runs[0].identical is None else all(r.identical for r in runs)),
        **runs[0].participation.to_dict(),
        "cost": runs[0].cost.to_dict(),
    }
