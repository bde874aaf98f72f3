"""Reports of `xclp run`, `xclp demo` and `xclp experiment`: what they say, and in what order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.protocols.setup import SERVER
from xclp_lp.labels import UNLABELLED
from xclp_lp.plan import Result
from xclp_lp.study.experiments.document import METHOD_NAMES
from xclp_lp.study.experiments.forms import FORMS
from xclp_lp.study.experiments.paper import PAPER
from xclp_lp.study.experiments.rounds import Course
from xclp_lp.study.experiments.run import Details
from xclp_lp.study.report import page, pictures
from xclp_lp.study.report.page import PageTable, Report, Section
from xclp_lp.study.scores import BINS, Bins, Scores, calibration, scores_of
from xclp_lp.study.views import RunRecord, remarks, views
from xclp_lp.summary import dropout_lines, plan_lines
from xclp_lp.wording import count, shown, size

ONE_PROCESS = (
    "This report is the operator's: it was made by one process that ran all parties and has "
    "results of all clients. Give no client what is another's."
)
CONFIDENCE = (
    "Confidence is 1 minus the normalised entropy of a row's class distribution: 0 where all "
    "classes are alike, 1 where one has everything. It puts rows into an order; it is not the "
    "probability that a label is right. Rows that no label reaches have confidence 0."
)


def demo_report(
    scores: Scores, record: RunRecord, *, source: str, parameters: Mapping[str, Any]
) -> Report:
    """Make the report of a demonstration.

    Args:
        scores: of the unlabelled rows, as in `xclp_lp.study.demo.Comparison`, of all seeds.
        record: of the secure run with the first seed.
        source: where the data come from.
        parameters: of the run, for the table at the end.
    """
    names = {
        "per-client": "each client alone",
        "xclp": f"XCLP, {record.backend}",
        "pooled": "pooled data, plain",
    }
    seeds = ", counted once for each seed" * (len(parameters.get("seeds", ())) > 1)
    return Report(
        title=f"Labels for {count(len(record.rows), 'client')}: XCLP on {parameters['dataset']}",
        text=[
            f"Data: {source}.",
            "Most labels were hidden and then predicted in three ways. Accuracies are over the "
            f"{count(len(scores.truth), 'row')} of clients that stayed whose labels were hidden"
            f"{seeds}.",
        ],
        facts={names[m]: f"{scores.accuracy(m):.1%}" for m in names} | _cost_facts(record),
        sections=[
            *_scored(scores, names),
            *_run_sections(record),
            page.parameters_section(parameters),
        ],
    )


def run_report(result: Result, truth: Sequence[ArrayLike] | None = None) -> Report:
    """Make the report of a run.

    Args:
        result: what `Plan.run` returned.
        truth: per client, shape (n_j,), the true labels, where they are known: of classes of the
            estimator; −1, None or NaN for rows where they are not. Rows that were labelled are not
            scored.

    Raises:
        DataError: `truth` is not of these clients, rows and classes.
    """
    plan, record, predictions = result.plan, RunRecord.of(result), result.predictions
    text = list(plan_lines(plan))
    if truth is None:
        new = {c: own.class_ids == UNLABELLED for c, own in plan.data.items()}
        sure = np.concatenate([predictions[c].confidence[rows] for c, rows in new.items()])
        likely = [predictions[c].distribution[rows].max(axis=1) for c, rows in new.items()]
        scored = [_confidence(calibration(sure, np.concatenate(likely)))]
        text.append(
            "The true labels are not known here, so this report cannot say how many labels are "
            "right, for which classes and clients, or whether confidence can be trusted: label a "
            "few more rows by hand, and compare."
        )
    else:
        scored = _scored(scores_of(result, truth), {"xclp": f"XCLP, {record.backend}"})
    bare = sum(int((own.class_ids == UNLABELLED).sum()) for own in predictions.values())
    facts = {
        "clients": f"{len(record.rows):,}",
        "rows": f"{sum(record.rows.values()):,}",
        "labelled before": f"{sum(record.labelled.values()):,}",
        "without any label after": f"{bare:,}",
    }
    return Report(
        title=f"Labels for {count(len(record.rows), 'client')}",
        text=text,
        facts=facts | _cost_facts(record),
        warnings=[ONE_PROCESS],
        sections=[_labels(result), *scored, *_run_sections(record)],
    )


def experiment_report(result: Mapping[str, Any], details: Sequence[Details]) -> Report:
    """Make the report of an experiment.

    Args:
        result: what `xclp_lp.study.experiments.run.run_experiment` returns.
        details: all that it passed to `keep`. Accuracies by client and confusions are of the last
            row of the table over all seeds, or of all clients left out; costs are of the first
            seed in it.
    """
    experiment, data = result["experiment"], result["data"]
    form, seeds = FORMS[experiment["form"]], experiment["seeds"]
    sections = [_accuracy(result)]
    if experiment["form"] in PAPER:
        about = (
            "On other data and features than those above, so the two tables cannot be "
            "compared number by number."
        )
        paper = PageTable(*PAPER[experiment["form"]])
        sections.append(Section("What the paper reports", [about], tables=[paper]))
    last = [d for d in details if _row(d) == _row(details[-1])]
    where = ", ".join(f"{k} {shown(v)}" for k, v in _row(last[0]).items())
    scores = Scores.together([d.scores for d in last])
    names = {m: METHOD_NAMES[m] for m in scores.predicted}
    sections += _scored(scores, names, f"Over all seeds: {where or 'every client left out once'}.")
    if last[0].record is not None:
        sections += _run_sections(last[0].record)
    sections.append(page.parameters_section({**experiment, "software": result["software"]}))
    text = [
        f"Data: {data['source']}. Licence: {data['licence']}.",
        f"{count(data['clients'], 'client')}, {count(data['rows'], 'row')}, "
        f"{count(data['features'], 'feature')}, "
        f"{count(len(data['classes']), 'class', 'classes')}; features: "
        f"{experiment['extractor']}; {count(len(seeds), 'seed')}.",
    ]
    facts = {}
    if "left out" not in last[0].setting:
        text.append(f"{sections[0].title} in % in the last row of the table, {where}:")
        table = sections[0].tables[0]
        facts = dict(zip(table.head[1:], map(str, table.rows[-1][1:]), strict=True))
    return Report(f"{form.title}: {experiment['dataset']}", text, sections, facts)


def _row(details: Details) -> dict[str, Any]:
    """Return what a row of the table is, without the client left out and the number of rows."""
    return {k: v for k, v in details.setting.items() if k not in ("left out", "n")}


def _accuracy(result: Mapping[str, Any]) -> Section:
    """Curves and table of accuracy by what is varied, for every method and other setting."""
    metric, seeds = result["experiment"]["metric"], result["experiment"]["seeds"]
    lines: dict[str, dict[str, tuple[float, float]]] = {}
    for entry in result["table"]:
        varied, *others = (k for k in entry["setting"] if k != "n")
        name = ", ".join(
            [METHOD_NAMES[entry["method"]], *(f"{k} {entry['setting'][k]}" for k in others)]
        )
        value = entry[metric]
        deviation = value["std"] if len(seeds) > 1 else np.nan
        lines.setdefault(name, {})[shown(entry["setting"][varied])] = (value["mean"], deviation)
    settings = [*dict.fromkeys(setting for line in lines.values() for setting in line)]
    found = {
        name: Course(np.array([settings.index(s) for s in line]), *np.array([*line.values()]).T)
        for name, line in lines.items()
    }
    about = (
        f"{page.over_seeds(len(seeds))} Rows that no label reaches count as wrong. Methods named "
        "pooled put all data into one place, which the others do not."
    )
    title = page.words_of(metric)
    return page.curves_section(title, [about], found, [*found], varied, settings=settings)


def _scored(scores: Scores, names: Mapping[str, str], *about: str) -> list[Section]:
    """Accuracy by client, confidence against correctness, and the confusion matrix."""
    leading = "xclp" if "xclp" in names else next(iter(names))
    sections = [_by_client(scores, names, leading), _confusion(scores, leading, names[leading])]
    if scores.confidence is not None and scores.probability is not None:
        right = scores.predicted["xclp"] == scores.truth
        bins = calibration(scores.confidence, scores.probability, right)
        sections.insert(1, _confidence(bins))
    return [replace(own, text=[*about, *own.text]) for own in sections]


def _by_client(scores: Scores, names: Mapping[str, str], leading: str) -> Section:
    rows = scores.rows_by_client()
    values = {m: scores.accuracy_by_client(m) for m in names}
    text = ["Share of rows whose label is right."]
    if "per-client" in values and "xclp" in values:
        gain = values["xclp"] - values["per-client"]
        text.append(
            f"With XCLP {(gain > 0).sum()} of {count(int((rows > 0).sum()), 'client')} get more "
            f"rows right than alone, {(gain < 0).sum()} fewer."
        )
    title = "Accuracy by client"
    cells = [
        (scores.clients[j], rows[j], *(f"{own[j]:.1%}" for own in values.values()))
        for j in np.flatnonzero(rows)
    ]
    drawn = pictures.accuracy_by_client(scores, names, leading)
    table = PageTable(title, ("client", "rows", *names.values()), cells)
    return Section(title, text, [drawn], [table])


def _confidence(bins: Bins) -> Section:
    """How sure labels are and, where it is known, how many of them are right."""
    about = (
        "Bars are the share of labels that is right, where that is known. Where a diamond is above "
        "its bar, the label's probability promises more than is kept; where it is below, less."
    )
    rows: list[list[str | int]] = []
    for i, n in enumerate(bins.rows):
        right = "–" if bins.right is None else bins.right[i]
        likely = f"{bins.probability[i]:.1%}" if n else "–"
        rows.append([f"{i / BINS:.1f} to {(i + 1) / BINS:.1f}", n, right, likely])
    head = ("confidence", "rows", "right", "mean probability")
    table = PageTable("Unlabelled rows by confidence of their labels", head, rows)
    drawn = pictures.confidence(bins)
    return Section("Confidence of the new labels", [CONFIDENCE, about], [drawn], [table])


def _confusion(scores: Scores, method: str, name: str) -> Section:
    counts, columns = scores.confusion(method), [*scores.classes, "no label"]
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    i, j = np.unravel_index(wrong.argmax(), wrong.shape)
    worst = "There is no mistake."
    if wrong[i, j]:
        worst = (
            f"The most frequent mistake: {wrong[i, j]:,} of {counts[i].sum():,} rows of "
            f"{shown(scores.classes[i])!r} come out as {shown(columns[j])!r}."
        )
    about = f"Labels of {name}. Rows are true classes, columns the labels given. {worst}"
    called = ("true class", scores.classes), ("label given", columns)
    return _matrix("confusion", "Which classes are confused", about, counts, *called)


def _labels(result: Result) -> Section:
    """What labels each client gets, and how many it had."""
    classes = result.plan.params.classes
    n = len(classes)
    given = np.array(
        [
            np.bincount(np.where(own.class_ids == UNLABELLED, n, own.class_ids), minlength=n + 1)
            for own in result.predictions.values()
        ]
    )
    about = "How many rows of each client come out with each label; labelled rows are among them."
    rows, columns = (
        ("client", [*result.plan.data]),
        ("label given", [*map(str, classes), "no label"]),
    )
    return _matrix("labels-by-client", "Labels by client", about, given, rows, columns)


def _matrix(
    name: str,
    title: str,
    about: str,
    counts: NDArray[np.int64],
    rows: pictures.Called,
    columns: pictures.Called,
) -> Section:
    """A matrix of counts, drawn and as a table with the sums of its rows."""
    head = (rows[0], "rows", *(shown(column, 20) for column in columns[1]))
    cells = [(row, own.sum(), *own) for row, own in zip(rows[1], counts, strict=True)]
    drawn = pictures.counts(name, about, counts, rows, columns)
    return Section(
        title, [about], [drawn], [PageTable(f"Rows by {rows[0]} and label", head, cells)]
    )


def _cost_facts(record: RunRecord) -> dict[str, str]:
    return {
        "bytes of all messages": size(record.cost.total_bytes),
        "rounds": f"{record.cost.rounds}",
        "seconds of all parties": f"{record.cost.total_seconds:,.1f}",
    }


def _run_sections(record: RunRecord) -> list[Section]:
    sections = [_costs(record), _who(record), _learned(record)]
    if record.dropouts:
        lines = [shown(line, 400) for line in dropout_lines(record.dropouts)]
        sections.append(Section("Who dropped out", lines))
    return sections


def _costs(record: RunRecord) -> Section:
    cost = record.cost

    def points(kind: Mapping[str, float]) -> list[float]:
        """Return the server's, and the least, median and most of the clients."""
        own = [kind.get(client, 0) for client in record.rows]
        return [kind.get(SERVER, 0), *np.quantile(own, (0, 0.5, 1))]

    sent = np.array([points(cost.bytes_by_party(step)[0]) for step in cost.steps])
    seconds = np.array([points(cost.seconds_by_party(step)) for step in cost.steps])
    rows: list[tuple[str | int, ...]] = [
        (step, cost.rounds_in(step), *map(size, sent[i]), *(f"{s:.3f}" for s in seconds[i]))
        for i, step in enumerate(cost.steps)
    ]
    head = ["step", "rounds"]
    for unit in ("sends", "takes"):
        head += [
            f"server {unit}",
            *(f"client {unit}, {which}" for which in ("least", "median", "most")),
        ]
    about = (
        "Bytes are those of encoded, sealed messages. Seconds are those of this machine, on "
        "which the parties ran one after the other; a network would add its own delay in each "
        "round."
    )
    return Section(
        "Bytes and seconds by step",
        [about],
        [pictures.costs(cost.steps, sent, seconds)],
        [PageTable("Bytes sent and seconds taken by step", head, rows)],
    )


def _who(record: RunRecord) -> Section:
    left = {d.client for d in record.dropouts if not d.in_graph}
    present = [c for c in record.rows if c not in left]
    rows, labelled = (sum(own[c] for c in present) for own in (record.rows, record.labelled))
    drawn = pictures.RING
    more = f" The {drawn} clients with most bytes are drawn." * (len(record.rows) > drawn)
    (sent, received), seconds = record.cost.bytes_by_party(), record.cost.seconds_by_party()
    cells = [
        (p, size(sent.get(p, 0)), size(received.get(p, 0)), f"{seconds.get(p, 0):.3f}")
        for p in (SERVER, *record.rows)
    ]
    return Section(
        "Who talks to whom",
        [
            f"In this run the distances were among {count(rows, 'row')} of "
            f"{count(len(present), 'client')}, {labelled:,} of them labelled. The thicker a line, "
            "the more bytes, on a logarithmic scale; an empty circle is a client whose labels were "
            f"not counted.{more}"
        ],
        [pictures.parties(record)],
        [PageTable("Cost by party", ("party", "sends", "receives", "seconds"), cells)],
    )


def _learned(record: RunRecord) -> Section:
    rows = [(v.party, "; ".join(v.learns), ", ".join(v.not_learned)) for v in views(record)]
    title, head = "What each party learns", ("party", "learns", "does not learn")
    return Section(title, remarks(record), tables=[PageTable(title, head, rows, words=True)])
