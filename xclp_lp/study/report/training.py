"""The report of `xclp ssl`: what the methods reach, and how their training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xclp_lp.study.experiments.config import METRICS
from xclp_lp.study.experiments.document import cell, ssl_name
from xclp_lp.study.experiments.rounds import Course, History, Holdings, courses, some_rounds
from xclp_lp.study.report import page, pictures
from xclp_lp.study.report.page import PageTable, Report, Section
from xclp_lp.wording import count

MOST_ROUNDS = 100
"""Rounds that curves and their tables have; of more, evenly many."""

MOST_SEEDS = 5
"""Seeds whose clients' rows are listed."""

TABLES = ("partition", "training", "parameters", "data")
"""Fields of a study that are tables themselves, but for the options of methods."""


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
    metric = experiment["metric"]
    names = {entry["method"]: ssl_name(entry["method"]) for entry in result["table"]}
    parameters = {k: v for k, v in experiment.items() if k not in (*TABLES, "options")}
    for table in TABLES:
        parameters |= {f"{table}: {k}": v for k, v in experiment[table].items()}
    for kind, own in (*experiment["options"].items(), ("software", result["software"])):
        parameters |= {f"{kind}: {k}": v for k, v in own.items()}
    return Report(
        title=f"Federated training: {experiment['dataset']}",
        text=[
            f"Data: {data['source']}. Licence: {data['licence']}.",
            f"{count(data['clients'], 'client')}, {data['clients_with_labels']:,} with labels; "
            f"{data['labels']:,} of {count(data['client_rows'], 'row')} labelled; "
            f"{count(len(data['classes']), 'class', 'classes')}; network {experiment['network']}; "
            f"{count(len(experiment['seeds']), 'seed')}.",
            f"{page.words_of(metric)} in % on {count(data['test_rows'], 'test row')}:",
        ],
        facts={
            names[entry["method"]]: cell(result, entry[metric]["mean"], entry[metric]["std"])
            for entry in result["table"]
        },
        sections=[
            _methods(result, names),
            _course(
                "Validation accuracy",
                f"Share of right classes on {count(data['validation_rows'], 'row')} that no client "
                "has. They choose the network that is tested, so their best is a little too good.",
                courses(histories, "validation_accuracy"),
                names,
            ),
            _course(
                "Loss",
                "Mean of the loss that the clients minimise. It is another one for each method, "
                "and rows weigh as much as their labels are trusted: compare rounds, not methods.",
                courses(histories, "loss"),
                names,
                share=False,
            ),
            _course(
                "Accuracy of pseudo-labels",
                "Of the labels given to unlabelled rows of the clients of a round, the share that "
                "is right. No method sees it.",
                courses(histories, "pseudo_accuracy"),
                names,
            ),
            _clients(holdings),
            page.parameters_section(parameters),
        ],
    )


def _percent(values: Sequence[float]) -> str:
    """Write the mean of shares in percent, with the deviation of several."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
    return _written(float(np.mean(values)), spread) if values else "–"


def _written(mean: float, deviation: float, share: bool = True) -> str:
    """Write a mean, and its standard deviation where there is one."""
    parts = [mean] if np.isnan(deviation) else [mean, deviation]
    return " ± ".join(f"{100 * part:.1f}" if share else f"{part:.3f}" for part in parts)


def _methods(result: Mapping[str, Any], names: Mapping[str, str]) -> Section:
    """What each method reaches."""
    metric = result["experiment"]["metric"]
    metrics = sorted(METRICS, key=lambda m: m != metric)  # the study's own first
    runs = {m: [r for r in result["runs"] if r["method"] == m] for m in names}
    rows = []
    for entry in result["table"]:
        own = runs[entry["method"]]
        rows.append(
            (
                names[entry["method"]],
                *(cell(result, entry[m]["mean"], entry[m]["std"]) for m in metrics),
                _percent([r["last_accuracy"] for r in own]),
                _percent([r["validation_accuracy"] for r in own]),
                ", ".join(f"{r['best_round'] + 1}" for r in own),
                _percent([r["pseudo_accuracy"] for r in own if r["pseudo_accuracy"] is not None]),
                f"{np.mean([r['seconds'] for r in own]):,.0f}",
            )
        )
    spread, deviation = page.over_seeds(len(result["experiment"]["seeds"]))
    about = (
        f"{spread} The network of each run that is best on the validation rows is tested, once; "
        "the accuracy at the end is that of its last network. Methods with labels from pooled "
        "features put all features into one place, which the others do not."
    )
    head = (
        *("method", *(m.replace("_", " ") for m in metrics), "accuracy at the end"),
        *("validation, best", "after rounds, by seed", "pseudo-labels, last", "seconds per run"),
    )
    caption = f"Test rows, validation rows and pseudo-labels: right in %, {deviation}"
    reached = {m: [r[metric] for r in own] for m, own in runs.items()}
    drawn = pictures.by_method(reached, names, page.words_of(metric))
    return Section(page.words_of(metric), [about], [drawn], [PageTable(caption, head, rows)])


def _course(
    title: str,
    about: str,
    found: Mapping[str, Course],
    names: Mapping[str, str],
    share: bool = True,
) -> Section:
    """How a metric went, as curves and as a table."""
    text = [about]
    if without := [name for method, name in names.items() if method not in found]:
        text.append(f"Not measured with: {'; '.join(without)}.")
    if not found:
        return Section(title, text)
    rounds = some_rounds(found, MOST_ROUNDS)
    measured = {int(turn) for course in found.values() for turn in course.rounds}
    if len(rounds) < len(measured):
        text.append(f"{len(rounds):,} of {len(measured):,} measured rounds are shown.")
    cells = {
        (method, turn): _written(mean, deviation, share)
        for method, own in found.items()
        for turn, mean, deviation in zip(own.rounds, own.mean, own.deviation, strict=True)
    }
    table = PageTable(
        f"{title}{' in %' * share} by round, counted from 1",
        ("rounds", *(names[m] for m in found)),
        [(turn, *(cells.get((m, turn), "–") for m in found)) for turn in rounds],
        folded=True,
    )
    drawn = pictures.over_rounds(found, names, title, rounds, share=share)
    return Section(title, text, [drawn], [table])


def _clients(holdings: Sequence[Holdings]) -> Section:
    """How many rows and labels each client has."""
    first, listed, m = holdings[0], holdings[:MOST_SEEDS], len(holdings[0].labelled)
    head = [f"{what}, seed {own.seed}" for own in listed for what in ("labels", "rows")]
    numbers = [n for own in listed for n in (own.labelled, own.labelled + own.unlabelled)]
    caption = "Labels and rows by client and seed"
    rows = [(j, *cells) for j, cells in enumerate(zip(*numbers, strict=True))]
    return Section(
        "Rows and labels by client",
        [
            f"Who has what depends on the seed. The picture is of seed {first.seed}.",
            *page.first_of(MOST_SEEDS, len(holdings), "seeds"),
            *page.first_of(page.MOST_CLIENTS, m, "clients"),
        ],
        [pictures.rows_by_client(first)],
        [PageTable(caption, ("client", *head), rows[: page.MOST_CLIENTS])],
    )
