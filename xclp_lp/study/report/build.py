"""Reports of `xclp run`, `xclp demo` and `xclp experiment`: what they say, and in what order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from xclp_lp.study.report.page import Report, Section
from xclp_lp.study.scores import BINS, Bins, Scores, calibration, scores_of
from xclp_lp.study.views import RunRecord, remarks, views
from xclp_lp.summary import (
    came_back_lines,
    dropout_lines,
    is_sound,
    plan_lines,
    result_lines,
    result_warnings,
    validation_lines,
)
from xclp_lp.wording import count, shown, size

ONE_PROCESS = (
    "This report is the operator's: it was made by one process that ran all parties and has "
    "results of all clients. Give no client what is another's."
)
CONFIDENCE = (
    "Confidence is the probability that a label is right, as leaving out labels tells it, where "
    "there are enough of them; else 1 minus the normalised entropy of a row's class distribution, "
    "which only puts rows into an order. Rows that no label reaches have confidence 0."
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


def run_report(
    result: Result,
    truth: Sequence[ArrayLike] | None = None,
    columns: Sequence[str] | None = None,
) -> Report:
    """Make the report of a run.

    Args:
        result: what `Plan.run` returned.
        truth: per client, shape (n_j,), the true labels, where they are known: of classes of the
            estimator; −1, None or NaN for rows where they are not. Rows that were labelled are not
            scored.
        columns: names of the features, if they have some.

    Raises:
        DataError: `truth` is not of these clients, rows and classes.
    """
    plan, record, predictions = result.plan, RunRecord.of(result), result.predictions
    text = list(plan_lines(plan))
    if truth is None:
        new = {c: own.class_ids == UNLABELLED for c, own in plan.data.items()}
        sure = np.concatenate([predictions[c].confidence[rows] for c, rows in new.items()])
        scored = [_confidence(calibration(sure))]
        text.append(
            "The true labels are not known here, so this report can only estimate how many labels "
            "are right, and not for which clients: label a few more rows by hand, and compare."
        )
    else:
        scored = _scored(scores_of(result, truth), {"xclp": f"XCLP, {record.backend}"})
    without = sum(int((own.class_ids == UNLABELLED).sum()) for own in predictions.values())
    return Report(
        title=f"Labels for {count(len(record.rows), 'client')}",
        text=text,
        facts={"rows without any label": f"{without:,}"} | _cost_facts(record),
        warnings=[ONE_PROCESS, *result_warnings(result)],
        sections=[
            *_cautions(result, columns),
            *_estimates(result),
            _labels(result),
            *scored,
            *_run_sections(record),
        ],
    )


def _cautions(result: Result, columns: Sequence[str] | None) -> list[Section]:
    """What looks wrong with the features and with the labels that came of them."""
    lines = [*result.plan.cautions(columns), *result_lines(result)]
    return [Section("What to look at first", [shown(line, 400) for line in lines])] if lines else []


def _estimates(result: Result) -> list[Section]:
    """How right the labels of each group probably are, of all rows and of the surest."""
    sections = []
    plan = result.plan
    sound = is_sound(plan.params, result.predictions.values()) and not plan.cautions()
    for number, (group, found) in enumerate(result.validations.items()):
        title = "How good the labels probably are" + f", {group}" * plan.grouped
        lines = [*validation_lines(found, advise=sound), *came_back_lines(result, group)]
        text = [shown(line, 400) for line in lines]
        if found.error is None:
            sections.append(Section(title, text))
            continue
        text.append(
            "With min_confidence only labels at or above it are kept; the first row has all. Bars "
            "are the standard deviation that chance alone makes with so few labels."
        )
        kept = found.coverage()
        rows: list[list[str | int]] = []
        for own in kept:
            share, accuracy = f"{own.share:.0%}", f"{own.accuracy:.0%} ± {own.error:.0%}"
            least = f"{np.floor(own.confidence * 10_000) / 10_000:.4f}"  # which keeps them, typed
            rows.append([least, share, own.labels, own.right, accuracy])
        head = ("min_confidence", "rows kept", "labels", "came back", "estimated accuracy")
        sections.append(
            Section(title, text, pictures.coverage(f"coverage-{number}", kept), head, rows)
        )
    return sections


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
        data_of_paper, head, rows = PAPER[experiment["form"]]
        about = (
            f"{data_of_paper}. These are other data and features than those above, so the two "
            "tables cannot be compared number by number."
        )
        sections.append(Section("What the paper reports", [about], None, head, rows))
    last = [d for d in details if _row(d) == _row(details[-1])]
    where = ", ".join(f"{k} {shown(v)}" for k, v in _row(last[0]).items())
    scores = Scores.together([d.scores for d in last])
    names = {m: METHOD_NAMES[m] for m in scores.predicted}
    sections += _scored(scores, names)
    if last[0].record is not None:
        sections += _run_sections(last[0].record)
    sections.append(page.parameters_section({**experiment, "software": result["software"]}))
    text = [
        f"Data: {data['source']}. Licence: {data['licence']}.",
        f"{count(data['clients'], 'client')}, {count(data['rows'], 'row')}, "
        f"{count(data['features'], 'feature')}, "
        f"{count(len(data['classes']), 'class', 'classes')}; features: "
        f"{experiment['extractor']}; {count(len(seeds), 'seed')}.",
        "What is shown by client and by class is over all seeds, of "
        f"{where or 'all clients left out'}.",
    ]
    facts = {}
    if "left out" not in last[0].setting:
        text.append(f"{sections[0].title} in the last row of the table, {where}:")
        last_row = map(str, sections[0].rows[-1][1:])
        facts = dict(zip(sections[0].head[1:], last_row, strict=True))
    return Report(f"{form.title}: {experiment['dataset']}", text, sections, facts)


def _row(details: Details) -> dict[str, Any]:
    """Return what a row of the table is, without the client left out and the number of rows."""
    return {k: v for k, v in details.setting.items() if k not in ("left out", "n")}


def _accuracy(result: Mapping[str, Any]) -> Section:
    """Curves and table of accuracy by what is varied, for every method and other setting."""
    metric, seeds = result["experiment"]["metric"], result["experiment"]["seeds"]
    lines: dict[str, dict[Any, tuple[float, float]]] = {}
    for entry in result["table"]:
        varied, *others = (k for k in entry["setting"] if k != "n")
        name = METHOD_NAMES[entry["method"]]
        name += "".join(f", {k} {entry['setting'][k]}" for k in others)
        deviation = entry[metric]["std"] if len(seeds) > 1 else np.nan
        own = lines.setdefault(name, {})
        own[entry["setting"][varied]] = (entry[metric]["mean"], deviation)
    settings = list(dict.fromkeys(setting for own in lines.values() for setting in own))
    found = {
        name: Course(np.array([settings.index(s) for s in own]), *np.array([*own.values()]).T)
        for name, own in lines.items()
    }
    about = (
        f"{page.over_seeds(len(seeds))} Rows that no label reaches count as wrong. Methods named "
        "pooled put all data into one place, which the others do not."
    )
    title, words = page.words_of(metric), [shown(setting) for setting in settings]
    return page.curves_section(title, [about], found, [*found], varied, settings=words)


def _scored(scores: Scores, names: Mapping[str, str]) -> list[Section]:
    """Accuracy by client, confidence against correctness, and the confusion matrix."""
    leading = "xclp" if "xclp" in names else next(iter(names))
    sections = [_by_client(scores, names, leading), _confusion(scores, leading, names[leading])]
    if scores.confidence is not None:
        right = scores.predicted["xclp"] == scores.truth
        bins = calibration(scores.confidence, right)
        sections.insert(1, _confidence(bins))
    return sections


def _by_client(scores: Scores, names: Mapping[str, str], leading: str) -> Section:
    rows = scores.rows_by_client()
    present = np.flatnonzero(rows)
    clients = [scores.clients[j] for j in present]
    found = {names[m]: scores.accuracy_by_client(m)[present] for m in names}
    text = ["Share of rows whose label is right."]
    if "per-client" in names and "xclp" in names:
        gain = found[names["xclp"]] - found[names["per-client"]]
        text.append(
            f"With XCLP {(gain > 0).sum()} of {count(len(clients), 'client')} get more rows right "
            f"than alone, {(gain < 0).sum()} fewer."
        )
    cells = [
        (client, n, *(f"{share:.1%}" for share in own))
        for client, n, *own in zip(clients, rows[present], *found.values(), strict=True)
    ]
    called, measured = ("clients", clients), "Right labels"
    drawn = pictures.shares("accuracy-by-client", called, found, names[leading], measured)
    return Section("Accuracy by client", text, drawn, ("client", "rows", *found), cells)


def _confidence(bins: Bins) -> Section:
    """How sure labels are and, where it is known, how many of them are right."""
    about = (
        "Bars are the share of labels that is right, where that is known. Where a diamond is above "
        "its bar, confidence promises more than is kept; where it is below, less."
    )
    rows: list[list[str | int]] = []
    for i, n in enumerate(bins.rows):
        right = "–" if bins.right is None else bins.right[i]
        mean = f"{bins.confidence[i]:.1%}" if n else "–"
        rows.append([f"{i / BINS:.1f} to {(i + 1) / BINS:.1f}", n, right, mean])
    head = ("confidence", "rows", "right", "mean confidence")
    drawn = pictures.confidence(bins)
    return Section("Confidence of the new labels", [CONFIDENCE, about], drawn, head, rows)


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
    about = f"Labels of {name}. Rows are true classes, columns the labels that came out. {worst}"
    title, rows = "Which classes are confused", ("true class", scores.classes)
    return _matrix("confusion", title, about, counts, rows, columns)


def _labels(result: Result) -> Section:
    """What labels each client gets."""
    columns = [*map(str, result.plan.params.classes), "no label"]
    counts = np.zeros((len(result.predictions), len(columns)), dtype=np.int64)
    for own, found in zip(counts, result.predictions.values(), strict=True):
        np.add.at(own, found.class_ids, 1)  # −1, without a label, is the last
    about = "How many rows of each client come out with each label; labelled rows are among them."
    rows = ("client", [*result.predictions])
    return _matrix("labels-by-client", "Labels by client", about, counts, rows, columns)


def _matrix(
    name: str,
    title: str,
    about: str,
    counts: NDArray[np.int64],
    rows: pictures.Called,
    columns: Sequence[str],
) -> Section:
    """A matrix of counts, drawn and as a table with the sums of its rows."""
    head = (rows[0], "rows", *(shown(column, 20) for column in columns))
    cells = [(row, own.sum(), *own) for row, own in zip(rows[1], counts, strict=True)]
    drawn = pictures.counts(name, about, counts, rows, ("label that came out", columns))
    return Section(title, [about], drawn, head, cells)


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
    whose = ("server", "least", "median", "most")
    head = ("step", "rounds", *(f"{who} {does}" for does in ("sends", "takes") for who in whose))
    about = (
        "Bytes sent are those of encoded, sealed messages. Seconds are those of this machine, on "
        "which the parties ran one after the other; a network would add its own delay in each "
        "round. Least, median and most are those of the clients."
    )
    drawn = pictures.costs(cost.steps, sent, seconds)
    return Section("Bytes and seconds by step", [about], drawn, head, rows)


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
    about = (
        f"In this run the distances were among {count(rows, 'row')} of "
        f"{count(len(present), 'client')}, {labelled:,} of them labelled. The thicker a line, the "
        "more bytes, on a logarithmic scale; an empty circle is a client whose labels were not "
        f"counted.{more}"
    )
    head = ("party", "sends", "receives", "seconds")
    return Section("Who talks to whom", [about], pictures.parties(record), head, cells)


def _learned(record: RunRecord) -> Section:
    rows = [(v.party, "; ".join(v.learns), ", ".join(v.not_learned)) for v in views(record)]
    head = ("party", "learns", "does not learn")
    return Section("What each party learns", remarks(record), None, head, rows, words=True)
