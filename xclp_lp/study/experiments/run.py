"""Running an experiment: every trial with every method, and the numbers as a plain dict."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto import __version__
from xclp_crypto.errors import ParameterError
from xclp_lp.labels import UNLABELLED
from xclp_lp.parameters import Arguments
from xclp_lp.study.data import Federation, load
from xclp_lp.study.experiments.config import METRICS, Experiment
from xclp_lp.study.experiments.features import EXTRACTORS
from xclp_lp.study.experiments.forms import FORMS, Groups, Trial, TrialSource, rows_to_score
from xclp_lp.study.experiments.methods import METHODS, TRAINED, Labelling
from xclp_lp.study.experiments.task import Task
from xclp_lp.study.scores import Accuracy, Scores
from xclp_lp.study.views import RunRecord

OnRun = Callable[[int, dict[str, Any], str], None]
"""Takes the seed, the row of the table, and the method that runs next."""


@dataclass(frozen=True)
class Details:
    """What a result has no room for, of one seed and row of the table.

    Attributes:
        setting: the row.
        scores: labels of the scored rows by every method.
        record: of the run of the protocol, if it is among the methods.
    """

    setting: dict[str, Any]
    scores: Scores
    record: RunRecord | None


def run_experiment(
    experiment: Experiment,
    report: OnRun | None = None,
    keep: Callable[[Details], None] | None = None,
) -> dict[str, Any]:
    """Run an experiment.

    Args:
        experiment: what to run.
        report: called before each run of a method.
        keep: called after all methods have run, for each seed and row of the table.

    Returns:
        ``experiment`` (all its fields), ``data`` (source, licence, sizes), ``runs`` (one entry per
        seed, row and method: both metrics, seconds, bytes of a protocol run, and a SHA-256 of all
        predicted labels, which says whether two runs agree), ``table`` (mean and standard
        deviation over the seeds, ddof = 1) and the ``software``.

    Raises:
        ParameterError: a parameter is out of range.
        DataError: the data are not what they should be.
    """
    federation = load(experiment.dataset, **experiment.data)
    form = FORMS[experiment.form]
    methods = [m for m in experiment.methods if form.alone or m != "per-client"]
    if not methods:
        raise ParameterError(
            f"in the form {experiment.form!r} a client alone has no label, so per-client is left "
            "out; add another method"
        )
    runs: list[dict[str, Any]] = []
    for seed in experiment.seeds:
        test = rows_to_score(federation, experiment.test_share, seed)
        source = TrialSource(federation, test, seed, experiment.group_size)
        for trial in form.trials(source, experiment.values):
            own, details = _run_trial(federation, trial, experiment, methods, seed, report)
            runs += own
            if keep is not None:
                keep(details)
    return {
        "experiment": {k: v for k, v in asdict(experiment).items() if k != "data"}
        | {"data": {k: v for k, v in experiment.data.items() if k != "path"}},
        "data": {
            "source": federation.source,
            "licence": federation.licence,
            "clients": len(federation.names),
            "rows": sum(map(len, federation.labels)),
            "features": int(federation.features[0].shape[1]),
            "classes": [*federation.classes],
        },
        "runs": runs,
        "table": table_of(runs),
        "software": software(),
    }


def software() -> dict[str, str]:
    """Return the versions of what numbers may depend on."""
    return {"xclp": __version__, "python": platform.python_version(), "numpy": np.__version__}


def _run_trial(
    federation: Federation,
    trial: Trial,
    experiment: Experiment,
    methods: list[str],
    seed: int,
    report: OnRun | None,
) -> tuple[list[dict[str, Any]], Details]:
    classes = federation.classes
    truth, class_ids, features, scored = [], [], [], []
    for x, own, kept, labelled, test in zip(
        federation.features,
        federation.class_ids,
        trial.kept,
        trial.labelled,
        trial.scored,
        strict=True,
    ):
        truth.append(own[kept])
        class_ids.append(np.where(labelled & ~test, own, UNLABELLED)[kept])
        features.append(x[kept])
        scored.append(test[kept])
    if not any(s.any() for s in scored):
        raise ParameterError(f"no row is left to be scored at {trial.setting}")
    task = Task(features, class_ids, len(classes), federation.names, seed, experiment.dataset)
    task = replace(task, features=EXTRACTORS[experiment.extractor](task))
    runs = []
    answers: dict[str, Labelling] = {}
    for method in methods:
        if report is not None:
            report(seed, trial.setting, method)
        start = time.perf_counter()
        groups = (tuple(range(len(class_ids))),) if method in TRAINED else trial.groups
        answer = answers[method] = _run_groups(method, task, groups, experiment.arguments(seed))
        runs.append(
            {
                "seed": seed,
                "setting": trial.setting,
                "method": method,
                **metrics_of(answer.labels, truth, scored),
                "rows": int(sum(map(len, class_ids))),
                "labelled": int(sum((c != UNLABELLED).sum() for c in class_ids)),
                "scored": int(sum(s.sum() for s in scored)),
                "seconds": round(time.perf_counter() - start, 3),
                "bytes": None if answer.record is None else answer.record.cost.total_bytes,
                "labels_sha256": hashlib.sha256(
                    np.concatenate(answer.labels).astype("<i8").tobytes()
                ).hexdigest(),
            }
        )
    return runs, Details(
        trial.setting,
        _scores(federation, truth, scored, answers),
        answers["xclp"].record if "xclp" in answers else None,
    )


def _scores(
    federation: Federation,
    truth: list[NDArray[np.int64]],
    scored: list[NDArray[np.bool_]],
    answers: dict[str, Labelling],
) -> Scores:
    def joined(values: list[NDArray[Any]] | None) -> Any:
        return None if values is None else np.concatenate(values)[np.concatenate(scored)]

    xclp = answers.get("xclp", Labelling([]))
    return Scores(
        clients=federation.names,
        classes=tuple(map(str, federation.classes)),
        owner=joined([np.full(len(y), j) for j, y in enumerate(truth)]),
        truth=joined(truth),
        predicted={method: joined(answer.labels) for method, answer in answers.items()},
        confidence=joined(xclp.confidence),
    )


def _run_groups(method: str, task: Task, groups: Groups, chosen: Arguments) -> Labelling:
    """Run a method on each group of clients."""
    parts = []
    for group in groups:
        part = replace(
            task,
            features=[task.features[j] for j in group],
            class_ids=[task.class_ids[j] for j in group],
            names=None if task.names is None else tuple(task.names[j] for j in group),
        )
        parts.append(METHODS[method](part, chosen))

    def by_client(values: list[Any]) -> list[Any]:
        """Return what the groups' clients have, one group after the other, by client."""
        found = dict(zip((j for group in groups for j in group), values, strict=True))
        return [found[j] for j in range(len(task.class_ids))]

    labels = by_client([y for part in parts for y in part.labels])
    records = [part.record for part in parts if part.record is not None]
    if not records:
        return Labelling(labels)
    return Labelling(
        labels,
        by_client([v for part in parts for v in part.confidence or ()]),
        RunRecord.together(records),
    )


def metrics_of(
    labels: list[NDArray[np.int64]], truth: list[NDArray[np.int64]], scored: list[NDArray[np.bool_]]
) -> dict[str, float]:
    """Return both metrics; a row that no label reaches counts as wrong."""
    at = np.concatenate(scored)
    found = Accuracy.of(np.concatenate(labels)[at], np.concatenate(truth)[at])
    return {
        "accuracy": round(found.overall, 6),
        "balanced_accuracy": round(found.balanced, 6),
    }


def table_of(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and standard deviation over the seeds by row and method, in order of `runs`."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for run in runs:
        # What a row is called, not how many rows a seed happens to draw for it.
        key = (*(f"{k}={v}" for k, v in run["setting"].items() if k != "n"), run["method"])
        groups.setdefault(key, []).append(run)
    return [
        {
            "setting": members[0]["setting"],
            "method": members[0]["method"],
            **{
                metric: {
                    "mean": round(float(np.mean([m[metric] for m in members])), 6),
                    "std": round(float(np.std([m[metric] for m in members], ddof=1)), 6)
                    if len(members) > 1
                    else 0.0,
                }
                for metric in METRICS
            },
        }
        for members in groups.values()
    ]
