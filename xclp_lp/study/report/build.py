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
from xclp_lp.study.experiments.document import METHOD_NAMES, cell, grid
from xclp_lp.study.experiments.forms import FORMS
from xclp_lp.study.experiments.paper import PAPER
from xclp_lp.study.experiments.run import Details
from xclp_lp.study.report import pictures
from xclp_lp.study.report.page import (
    MOST_CLIENTS,
    PageTable,
    Report,
    Section,
    first_of,
    over_seeds,
    parameters_section,
    words_of,
)  # fmt: skip
from xclp_lp.study.scores import Bin, Scores, calibration, scores_of
from xclp_lp.study.views import RunRecord, remarks, views
from xclp_lp.summary import dropout_lines, plan_lines
from xclp_lp.wording import count, shown, size

MOST_PARTIES = 60
"""Parties of which the table of costs lists every step."""

MOST_CLASSES = 30
"""Classes up to which a confusion matrix is a table; beyond, the most frequent mistakes are one."""

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
            parameters_section(parameters),
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
        sure = np.concatenate(
            [predictions[c].confidence[own.class_ids == UNLABELLED] for c, own in plan.data.items()]
        )
        scored = [_confidence(calibration(sure, sure, sure > 1), known=False)]
        text.append(
            "The true labels are not known here, so this report cannot say how many labels are "
            "right, for which classes and clients, or whether confidence can be trusted: label a "
            "few more rows by hand, and compare."
        )
    else:
        scored = _scored(scores_of(result, truth), {"xclp": f"XCLP, {record.backend}"})
    class_ids = [found.class_ids for found in predictions.values()]
    facts = {
        "clients": f"{len(record.rows):,}",
        "rows": f"{sum(map(len, class_ids)):,}",
        "labelled before": f"{sum(record.labelled.values()):,}",
        "without any label after": f"{sum(int((y == UNLABELLED).sum()) for y in class_ids):,}",
    }
    return Report(
        title=f"Labels for {count(len(record.rows), 'client')}",
        text=text,
        facts=facts | _cost_facts(record),
        warnings=[ONE_PROCESS],
        sections=[
            _given(record, plan.params.classes, class_ids),
            *scored,
            *_run_sections(record),
        ],
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
    metric = words_of(experiment["metric"])
    form = FORMS[experiment["form"]]
    sections = [_accuracy(result, metric)]
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
    sections.append(
        parameters_section(
            {k: v for k, v in experiment.items() if k not in ("parameters", "data")}
            | experiment["parameters"]
            | experiment["data"]
            | {f"version of {k}": v for k, v in result["software"].items()}
        )
    )
    text = [
        f"Data: {data['source']}. Licence: {data['licence']}.",
        f"{count(data['clients'], 'client')}, {count(data['rows'], 'row')}, "
        f"{count(data['features'], 'feature')}, "
        f"{count(len(data['classes']), 'class', 'classes')}; features: "
        f"{experiment['extractor']}; {count(len(experiment['seeds']), 'seed')}.",
    ]
    facts = {}
    if "left out" not in last[0].setting:
        text.append(f"{metric} in % in the last row of the table, {where}:")
        cells = grid(result).rows[-1][1]
        facts = {METHOD_NAMES[m]: cell(result, *value) for m, value in cells.items()}
    return Report(f"{form.title}: {experiment['dataset']}", text, sections, facts)


def _row(details: Details) -> dict[str, Any]:
    """Return what a row of the table is, without the client left out and the number of rows."""
    return {k: v for k, v in details.setting.items() if k not in ("left out", "n")}


def _accuracy(result: Mapping[str, Any], metric: str) -> Section:
    """Curves and table of accuracy by setting and method."""
    table = grid(result)
    varied, *others = table.rows[0][0]
    panels: dict[str, dict[str, list[tuple[str, float, float]]]] = {}
    for setting, cells in table.rows:
        panel = panels.setdefault(", ".join(f"{k} {setting[k]}" for k in others if k != "n"), {})
        for method in table.methods:
            if method in cells:
                point = (shown(setting[varied]), *cells[method])
                panel.setdefault(method, []).append(point)
    suffixes = [f"-{i}" for i in range(1, len(panels) + 1)] if len(panels) > 1 else [""]
    drawn = [
        pictures.curve(f"accuracy{suffix}", panel, lines, METHOD_NAMES, (varied, metric.lower()))
        for suffix, (panel, lines) in zip(suffixes, panels.items(), strict=True)
    ]
    spread, deviation = over_seeds(len(result["experiment"]["seeds"]))
    about = (
        f"{spread} Rows that no label reaches count as wrong. Methods named pooled put all data "
        "into one place, which the others do not."
    )
    rows = [
        (
            *map(shown, setting.values()),
            *(cell(result, *cells[m]) if m in cells else "–" for m in table.methods),
        )
        for setting, cells in table.rows
    ]
    head = (varied, *others, *(METHOD_NAMES[m] for m in table.methods))
    return Section(metric, [about], drawn, [PageTable(f"{metric} in %, {deviation}", head, rows)])


def _scored(scores: Scores, names: Mapping[str, str], *about: str) -> list[Section]:
    """Accuracy by client, confidence against correctness, and the confusion matrix."""
    leading = "xclp" if "xclp" in names else next(iter(names))
    sections = [_by_client(scores, names, leading), _confusion(scores, leading, names[leading])]
    if scores.confidence is not None and scores.probability is not None:
        right = scores.predicted["xclp"] == scores.truth
        bins = calibration(scores.confidence, scores.probability, right)
        sections.insert(1, _confidence(bins, known=True))
    return [replace(own, text=[*about, *own.text]) for own in sections]


def _by_client(scores: Scores, names: Mapping[str, str], leading: str) -> Section:
    rows = scores.rows_by_client()
    values = {m: scores.accuracy_by_client(m) for m in names}
    present = np.flatnonzero(rows)
    text = ["Share of rows whose label is right."]
    if "per-client" in values and "xclp" in values:
        gain = values["xclp"][present] - values["per-client"][present]
        text.append(
            f"With XCLP {int((gain > 0).sum())} of {count(len(present), 'client')} get more rows "
            f"right than alone, {int((gain < 0).sum())} fewer."
        )
    title = "Accuracy by client"
    cells = [
        (scores.clients[j], rows[j], *(f"{own[j]:.1%}" for own in values.values()))
        for j in present[:MOST_CLIENTS]
    ]
    return Section(
        title,
        [*text, *first_of(MOST_CLIENTS, len(present), "clients")],
        [pictures.accuracy_by_client(scores, names, leading)],
        [PageTable(title, ("client", "rows", *names.values()), cells)],
    )


def _confidence(bins: Sequence[Bin], *, known: bool) -> Section:
    """How sure labels are and, where it is known, how many of them are right."""
    title, caption = "Confidence of the new labels", "Unlabelled rows by confidence"
    about = "Whether confident labels are right cannot be said here without the true labels."
    head: tuple[str, ...] = ("confidence", "rows")
    rows: list[tuple[str | int, ...]] = [(f"{b.low:.1f} to {b.high:.1f}", b.rows) for b in bins]
    if known:
        title = "Confidence against correctness"
        caption = "Right labels of XCLP by confidence, and the label's mean probability"
        about = (
            "Where the diamond is above its bar, the probability promises more than is kept; where "
            "it is below, less."
        )
        head = (*head, "right", "share", "prob.")
        rows = [
            (*row, b.right, _share(b.right, b.rows), _share(b.probability * b.rows, b.rows))
            for row, b in zip(rows, bins, strict=True)
        ]
    drawn = pictures.confidence(bins, known=known)
    return Section(title, [CONFIDENCE, about], [drawn], [PageTable(caption, head, rows)])


def _confusion(scores: Scores, method: str, name: str) -> Section:
    counts, n = scores.confusion(method), len(scores.classes)
    columns = [*scores.classes, "no label"]
    if not counts[:, -1].any():
        counts, columns = counts[:, :-1], columns[:-1]
    of_class, labelled, right = counts.sum(axis=1), counts.sum(axis=0), counts.diagonal()
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CLASSES]
    mistakes = [
        (i, j) for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True) if wrong[i, j]
    ]
    worst = "There is no mistake."
    if mistakes:
        i, j = mistakes[0]
        worst = (
            f"The most frequent mistake: {wrong[i, j]:,} of {of_class[i]:,} rows of "
            f"{shown(scores.classes[i])!r} come out as {shown(columns[j])!r}."
        )
    by_class = [
        (c, of_class[i], _share(right[i], of_class[i]), _share(right[i], labelled[i]))
        for i, c in enumerate(scores.classes)
    ]
    rows = [(scores.classes[i], shown(columns[j]), wrong[i, j]) for i, j in mistakes]
    alt = f"Confusion matrix of {count(n, 'class', 'classes')}. {worst}"
    called, titles = (scores.classes, columns), ("true class", "label given")
    return Section(
        "Which classes are confused",
        [f"Labels of {name}. Rows are true classes, columns the labels given. {worst}"],
        [pictures.counts("confusion", alt, counts, called, titles)],
        [
            PageTable("By class", ("class", "rows", "found", "of labels given, right"), by_class),
            _matrix(f"Rows by true class and label, {name}", titles[0], counts, *called)
            if n <= MOST_CLASSES
            else PageTable("The most frequent mistakes", (*titles, "rows"), rows, words=True),
        ],
    )


def _share(part: float, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _matrix(
    caption: str, corner: str, counts: NDArray[Any], rows: Sequence[str], columns: Sequence[str]
) -> PageTable:
    cells = [(name, *own) for name, own in zip(rows, counts, strict=True)]
    return PageTable(caption, (corner, *(shown(c, 20) for c in columns)), cells, folded=True)


def _given(
    record: RunRecord, classes: Sequence[Any], class_ids: Sequence[NDArray[np.int64]]
) -> Section:
    """What labels each client has and gets."""
    names, columns, n = list(record.rows), [*map(str, classes), "no label"], len(classes)
    after = np.array([np.bincount(np.where(y < 0, n, y), minlength=n + 1) for y in class_ids])
    listed = names[:MOST_CLIENTS]
    before = [
        (name, len(y), record.labelled[name], own[n])
        for name, y, own in zip(listed, class_ids, after, strict=False)
    ]
    titles = ("client", "label given")
    head = ("client", "rows", "labelled before", "without any label after")
    tables = [PageTable("Rows, labels before and labels after", head, before)]
    if n <= MOST_CLASSES:
        caption = "Rows by client and label given"
        tables.append(_matrix(caption, titles[0], after[:MOST_CLIENTS], listed, columns))
    alt = (
        f"Rows by client and label, {count(len(names), 'client')}, "
        f"{count(n, 'class', 'classes')}; {int(after[:, n].sum()):,} rows have no label."
    )
    return Section(
        "Labels by client",
        ["How many rows of each client come out with each label; labelled rows are among them."],
        [pictures.counts("labels-by-client", alt, after, (names, columns), titles)],
        tables,
    )


def _cost_facts(record: RunRecord) -> dict[str, str]:
    return {
        "bytes of all messages": size(record.cost.total_bytes),
        "rounds": f"{record.cost.rounds}",
        "seconds of all parties": f"{record.cost.total_seconds:,.1f}",
    }


def _run_sections(record: RunRecord) -> list[Section]:
    sections = [_costs(record), _who(record)]
    if record.dropouts:
        lines = [shown(line, 400) for line in dropout_lines(record.dropouts)]
        sections.append(Section("Who dropped out", points=lines))
    return sections


def _costs(record: RunRecord) -> Section:
    cost = record.cost
    by_step = {s: (*cost.bytes_by_party(s), cost.seconds_by_party(s)) for s in cost.steps}

    def most(values: Mapping[str, float]) -> float:
        return max((v for party, v in values.items() if party != SERVER), default=0)

    steps = [
        (
            *(step, cost.rounds_in(step), f"{own.get(SERVER, 0.0):.3f}", f"{most(own):.3f}"),
            *(size(sent.get(SERVER, 0)), size(most(sent)), size(most(received))),
        )
        for step, (sent, received, own) in by_step.items()
    ]
    parties = [
        (
            party,
            *(
                f"{size(sent.get(party, 0))}, {size(received.get(party, 0))}, "
                f"{own.get(party, 0.0):.3f} s"
                for sent, received, own in by_step.values()
            ),
        )
        for party in [SERVER, *record.rows][: MOST_PARTIES + 1]
    ]
    cut = f" The table of parties has the server and the first {MOST_PARTIES} clients."
    every = "Every party in every step: sent, received, seconds"
    about = (
        "Bytes are those of encoded, sealed messages. Seconds are those of this machine, on "
        "which the parties ran one after the other; a network would add its own delay in each "
        f"round.{cut * (len(record.rows) > MOST_PARTIES)}"
    )
    head = (
        *("step", "rounds", "server seconds", "client seconds"),
        *("server sends", "client sends", "client receives"),
    )
    return Section(
        "Bytes and seconds by step and party",
        [about],
        [pictures.costs(record)],
        [
            PageTable("Cost by step: the server, and the client with most", head, steps),
            PageTable(every, ("party", *by_step), parties, folded=True),
        ],
    )


def _who(record: RunRecord) -> Section:
    seen = views(record)
    left = {d.client for d in record.dropouts if not d.in_graph}
    present = [c for c in record.rows if c not in left]
    rows, labelled = (sum(own[c] for c in present) for own in (record.rows, record.labelled))
    drawn = pictures.RING
    more = f" The {drawn} clients with most bytes are drawn." * (len(record.rows) > drawn)
    kinds: dict[tuple[str, ...], list[int]] = {}
    for traffic, number in record.cost.bytes_sent.items():
        ends = (p if p == SERVER else "client" for p in (traffic.sender, traffic.receiver))
        entry = kinds.setdefault((traffic.step, traffic.message, " → ".join(ends)), [0, 0])
        entry[0] += record.cost.messages[traffic]
        entry[1] += number
    return Section(
        "Who talks to whom, and what each party saw",
        [
            f"In this run the distances were among {count(rows, 'row')} of "
            f"{count(len(present), 'client')}, {labelled:,} of them labelled. The thicker a line, "
            "the more bytes, on a logarithmic scale; an empty circle is a client whose labels were "
            f"not counted.{more}"
        ],
        [pictures.parties(record, seen)],
        [
            PageTable(
                "What each party learns",
                ("party", "learns", "does not learn"),
                [(v.party, "; ".join(v.learns), ", ".join(v.not_learned)) for v in seen],
                words=True,
            ),
            PageTable(
                "Messages by step and kind",
                ("step", "message", "from and to", "messages", "bytes"),
                [(*kind, number, size(total)) for kind, (number, total) in kinds.items()],
                folded=True,
            ),
        ],
        points=remarks(record),
    )
