"""The report of `xclp ssl`: what the methods reach, and how their training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xclp_lp.study.experiments.config import METRICS
from xclp_lp.study.experiments.document import ssl_name
from xclp_lp.study.experiments.rounds import History, Holdings, courses
from xclp_lp.study.report import page, pictures
from xclp_lp.study.report.page import Report, Section
from xclp_lp.wording import count


def training_report(
    result: Mapping[str, Any], histories: Sequence[History], holdings: Sequence[Holdings]
) -> Report:
    """Make the report of a study of federated training.

    Args:
        result: what `xclp_lp.study.training.run.run_study` returns.
        histories: metrics of the rounds, one for each run.
        holdings: what the clients have, one for each seed.
    """
    experiment, data = result["experiment"], result["data"]
    metric = page.words_of(experiment["metric"])
    names = {entry["method"]: ssl_name(entry["method"]) for entry in result["table"]}

    def course(title: str, about: str, kind: str, *, share: bool = True) -> Section:
        found = {names[method]: own for method, own in courses(histories, kind).items()}
        return page.curves_section(title, [about], found, [*names.values()], "rounds", share=share)

    methods = _methods(result, names)
    return Report(
        title=f"Federated training: {experiment['dataset']}",
        text=[
            f"Data: {data['source']}. Licence: {data['licence']}.",
            f"{count(data['clients'], 'client')}, {data['clients_with_labels']:,} with labels; "
            f"{data['labels']:,} of {count(data['client_rows'], 'row')} labelled; "
            f"{count(len(data['classes']), 'class', 'classes')}; network {experiment['network']}; "
            f"{count(len(experiment['seeds']), 'seed')}.",
            f"{metric} on {count(data['test_rows'], 'test row')}:",
        ],
        facts={str(row[0]): str(row[1]) for row in methods.rows},
        sections=[
            methods,
            course(
                "Validation accuracy",
                f"Share of right classes on {count(data['validation_rows'], 'row')} that no client "
                "has. They choose the network that is tested, so their best is a little too good.",
                "validation_accuracy",
            ),
            course(
                "Loss",
                "Mean of the loss that the clients minimise. It is another one for each method, "
                "and rows weigh as much as their labels are trusted: compare rounds, not methods.",
                "loss",
                share=False,
            ),
            course(
                "Accuracy of pseudo-labels",
                "Of the labels given to unlabelled rows of the clients of a round, the share that "
                "is right. No method sees it.",
                "pseudo_accuracy",
            ),
            _clients(holdings),
            page.parameters_section({**experiment, "software": result["software"]}),
        ],
    )


def _methods(result: Mapping[str, Any], names: Mapping[str, str]) -> Section:
    """What each method reaches."""
    experiment = result["experiment"]
    metrics = sorted(METRICS, key=lambda m: m != experiment["metric"])  # the study's own first
    runs = {m: [r for r in result["runs"] if r["method"] == m] for m in names}
    rows = []
    for method, own in runs.items():
        cells = []
        for kind in (*metrics, "last_accuracy", "validation_accuracy", "pseudo_accuracy"):
            values = [r[kind] for r in own if r[kind] is not None]
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
            cells.append(page.written(float(np.mean(values)), spread) if values else "–")
        turns = ", ".join(f"{r['best_round'] + 1}" for r in own)
        rows.append((names[method], *cells, turns, round(np.mean([r["seconds"] for r in own]))))
    about = (
        f"{page.over_seeds(len(experiment['seeds']))} The network of each run that is best on the "
        "validation rows is tested, once; the accuracy at the end is that of its last network. "
        "Methods with labels from pooled features put all features into one place, which the "
        "others do not."
    )
    head = (
        *("method", *(m.replace("_", " ") for m in metrics), "accuracy at the end"),
        *("validation, best", "pseudo-labels, last", "after rounds, by seed", "seconds per run"),
    )
    found = {m: [r[metrics[0]] for r in own] for m, own in runs.items()}
    reached = {"mean": [float(np.mean(own)) for own in found.values()]} | {
        f"seed {seed}": [own[i] for own in found.values()]
        for i, seed in enumerate(experiment["seeds"])
    }
    title, called = page.words_of(metrics[0]), ("methods", [*names.values()])
    drawn = pictures.shares("accuracy", called, reached, "mean", title)
    return Section(title, [about], drawn, head, rows)


def _clients(holdings: Sequence[Holdings]) -> Section:
    """How many rows and labels each client has."""
    head = [f"{what}, seed {own.seed}" for own in holdings for what in ("labels", "rows")]
    numbers = [n for own in holdings for n in (own.labelled, own.labelled + own.unlabelled)]
    rows = [(j, *cells) for j, cells in enumerate(zip(*numbers, strict=True))]
    return Section(
        "Rows and labels by client",
        [f"Who has what depends on the seed. The picture is of seed {holdings[0].seed}."],
        pictures.rows_by_client(holdings[0]),
        ("client", *head),
        rows,
    )
