"""Reports of `xclp run`, `xclp demo` and `xclp experiment`: what they say, and in what order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.protocols.setup import SERVER
from xclp_lp.estimator import CrossClientLabelPropagation
from xclp_lp.labels import UNLABELLED, codes_of
from xclp_lp.plan import Plan
from xclp_lp.study.experiments.document import METHOD_NAMES, cell, grid
from xclp_lp.study.experiments.forms import FORMS
from xclp_lp.study.experiments.paper import PAPER
from xclp_lp.study.experiments.run import Details
from xclp_lp.study.report import pictures
from xclp_lp.study.report.page import Report, Section, Table
from xclp_lp.study.scores import BINS, Scores, bin_of, calibration, scores_of
from xclp_lp.study.views import RunRecord, remarks, views
from xclp_lp.summary import departure_lines, plan_lines
from xclp_lp.wording import count, shown, size

MOST_CLIENTS = 1000
"""Clients that tables list; a file for people has no more."""

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
    return Report(
        title=f"Labels for {count(len(record.rows), 'client')}: XCLP on {parameters['dataset']}",
        text=(
            f"Data: {source}.",
            "Most labels were hidden and then predicted in three ways. Accuracies are over the "
            f"{count(len(scores.truth), 'row')} of clients that stayed whose labels were hidden"
            f"{', counted once for each seed' * (len(parameters.get('seeds', ())) > 1)}.",
        ),
        facts={names[m]: f"{scores.accuracy(m):.1%}" for m in names} | _cost_facts(record),
        sections=(
            *_scored(scores, names),
            *_run_sections(record),
            parameters_section(parameters),
        ),
    )


def run_report(
    fitted: CrossClientLabelPropagation,
    plan: Plan,
    truth: Sequence[ArrayLike] | None = None,
) -> Report:
    """Make the report of an estimator that has run.

    Args:
        fitted: the estimator.
        plan: what it ran: `fitted.plan(Xs, ys)`, or what `fit` announced.
        truth: per client, shape (n_j,), the true labels, where they are known: of classes of the
            estimator; −1, None or NaN for rows where they are not. Rows that were labelled are not
            scored.

    Raises:
        DataError: `truth` is not of these clients, rows and classes.
    """
    record = RunRecord.of(plan, fitted)
    text = list(plan_lines(plan))
    scored: tuple[Section, ...]
    if truth is None:
        scored = (_given(fitted, plan), _confidences(fitted, plan))
        text.append(
            "The true labels are not known here, so this report cannot say how many labels are "
            "right, for which classes and clients, or whether confidence can be trusted: label a "
            "few more rows by hand, and compare."
        )
    else:
        scores = scores_of(fitted, plan, truth)
        name = f"XCLP, {record.backend}"
        scored = (_given(fitted, plan), *_scored(scores, {"xclp": name}))
    without = [int((y == UNLABELLED).sum()) for y in _codes(fitted)]
    facts = {
        "clients": f"{len(record.rows):,}",
        "rows": f"{sum(map(len, fitted.confidence_)):,}",
        "labelled before": f"{sum(record.labelled.values()):,}",
        "without any label after": f"{sum(without):,}",
    }
    return Report(
        title=f"Labels for {count(len(record.rows), 'client')}",
        text=tuple(text),
        facts=facts | _cost_facts(record),
        warnings=(ONE_PROCESS,),
        sections=(*scored, *_run_sections(record)),
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
    metric = experiment["metric"].replace("_", " ")
    form = FORMS[experiment["form"]]
    sections = [_accuracy(result, metric)]
    if experiment["form"] in PAPER:
        caption, head, rows = PAPER[experiment["form"]]
        sections.append(
            Section(
                "What the paper reports",
                (
                    "On other data and features than those above, so the two tables cannot be "
                    "compared number by number.",
                ),
                tables=(Table(caption, head, rows),),
            )
        )
    last = [d for d in details if _row(d) == _row(details[-1])]
    where = ", ".join(f"{k} {shown(v)}" for k, v in _row(last[0]).items())
    facts = {} if "left out" in last[0].setting else _means(result)
    scores = Scores.together([d.scores for d in last])
    names = {m: METHOD_NAMES[m] for m in scores.predicted}
    sections += _scored(scores, names, f"Over all seeds: {where or 'every client left out once'}.")
    record = last[0].record
    if record is not None:
        sections += _run_sections(record)
    sections.append(
        parameters_section(
            {k: v for k, v in experiment.items() if k not in ("parameters", "data")}
            | experiment["parameters"]
            | experiment["data"]
            | {f"version of {k}": v for k, v in result["software"].items()}
        )
    )
    return Report(
        title=f"{form.title}: {experiment['dataset']}",
        text=(
            f"Data: {data['source']}. Licence: {data['licence']}.",
            f"{count(data['clients'], 'client')}, {count(data['rows'], 'row')}, "
            f"{count(data['features'], 'feature')}, "
            f"{count(len(data['classes']), 'class', 'classes')}; features: "
            f"{experiment['extractor']}; {count(len(experiment['seeds']), 'seed')}.",
            *(
                (f"{metric.capitalize()} in % in the last row of the table, {where}:",)
                if facts
                else ()
            ),
        ),
        facts=facts,
        sections=tuple(sections),
    )


def _means(result: Mapping[str, Any]) -> dict[str, str]:
    """Return mean and standard deviation by method in the last row of the table."""
    cells = grid(result).rows[-1][1]
    return {METHOD_NAMES[m]: cell(result, *value) for m, value in cells.items()}


def _row(details: Details) -> dict[str, Any]:
    """Return what a row of the table is, without the client left out and the number of rows."""
    return {k: v for k, v in details.setting.items() if k not in ("left out", "n")}


def _accuracy(result: Mapping[str, Any], metric: str) -> Section:
    """Curves and table of accuracy by setting and method."""
    table = grid(result)
    panels: dict[str, dict[str, list[tuple[str, float, float]]]] = {}
    for setting, cells in table.rows:
        first, *others = setting.items()
        panel = ", ".join(f"{k} {v}" for k, v in others if k != "n")
        for method in table.methods:
            if method in cells:
                point = (shown(first[1]), *cells[method])
                panels.setdefault(panel, {}).setdefault(method, []).append(point)
    drawn = [
        pictures.curve(
            lines,
            METHOD_NAMES,
            (next(iter(table.rows[0][0])), metric),
            title=panel,
            name="accuracy" if len(panels) == 1 else f"accuracy-{i}",
        )
        for i, (panel, lines) in enumerate(panels.items(), 1)
    ]
    names, seeds = tuple(table.rows[0][0]), len(result["experiment"]["seeds"])
    spread, deviation = "One seed, so nothing is said about luck. ", ", one seed"
    if seeds > 1:
        spread = "Mean over the seeds; error bars and ± are one standard deviation over them. "
        deviation = f", mean ± standard deviation over {count(seeds, 'seed')}"
    return Section(
        f"{metric.capitalize()}",
        (
            f"{spread}Rows that no label reaches count as wrong. Methods named pooled put all data "
            "into one place, which the others do not.",
        ),
        tuple(drawn),
        tables=(
            Table(
                f"{metric.capitalize()} in %{deviation}",
                (*names, *(METHOD_NAMES[m] for m in table.methods)),
                tuple(
                    (
                        *(shown(v) for v in setting.values()),
                        *(cell(result, *cells[m]) if m in cells else "–" for m in table.methods),
                    )
                    for setting, cells in table.rows
                ),
            ),
        ),
    )


def _scored(scores: Scores, names: Mapping[str, str], *about: str) -> tuple[Section, ...]:
    """Accuracy by client, confidence against correctness, and the confusion matrix."""
    best = "xclp" if "xclp" in names else next(iter(names))
    sections = [_by_client(scores, names)]
    if scores.confidence is not None and scores.probability is not None:
        bins = calibration(
            scores.confidence, scores.probability, scores.predicted["xclp"] == scores.truth
        )
        sections.append(
            Section(
                "Confidence against correctness",
                (
                    CONFIDENCE,
                    "Where the diamond is above its bar, the probability promises more than is "
                    "kept; where it is below, less.",
                ),
                (pictures.confidence(bins),),
                tables=(
                    Table(
                        "Right labels of XCLP by confidence, and the label's mean probability",
                        ("confidence", "rows", "right", "share", "prob."),
                        tuple(
                            (
                                f"{b.low:.1f} to {b.high:.1f}",
                                f"{b.rows:,}",
                                f"{b.right:,}",
                                *(
                                    (f"{b.right / b.rows:.1%}", f"{b.probability:.1%}")
                                    if b.rows
                                    else ("–", "–")
                                ),
                            )
                            for b in bins
                        ),
                    ),
                ),
            )
        )
    sections.append(_confusion(scores, best, names[best]))
    return tuple(replace(own, text=(*about, *own.text)) for own in sections)


def _by_client(scores: Scores, names: Mapping[str, str]) -> Section:
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
    if len(present) > MOST_CLIENTS:
        text.append(f"The table has the first {MOST_CLIENTS:,} of {len(present):,} clients.")
    return Section(
        "Accuracy by client",
        tuple(text),
        (pictures.accuracy_by_client(scores, names),),
        tables=(
            Table(
                "Accuracy by client",
                ("client", "rows", *names.values()),
                tuple(
                    (
                        shown(scores.clients[j]),
                        f"{rows[j]:,}",
                        *(f"{values[m][j]:.1%}" for m in names),
                    )
                    for j in present[:MOST_CLIENTS]
                ),
            ),
        ),
    )


def _confusion(scores: Scores, method: str, name: str) -> Section:
    counts = scores.confusion(method)
    columns = [*scores.classes, "no label"]
    if not counts[:, -1].any():
        counts, columns = counts[:, :-1], columns[:-1]
    of_class = counts.sum(axis=1)
    n = len(scores.classes)
    wrong = counts.copy()
    wrong[np.arange(n), np.arange(n)] = 0
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CLASSES]
    mistakes = [
        (int(i), int(j)) for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True)
    ]
    mistakes = [(i, j) for i, j in mistakes if wrong[i, j]]
    matrix = Table(
        f"Rows by true class and label, {name}",
        ("true class", *(shown(c, 20) for c in columns)),
        tuple(
            (shown(c), *(f"{v:,}" for v in row))
            for c, row in zip(scores.classes, counts, strict=True)
        ),
        folded=True,
    )
    labelled = counts[:, :n].sum(axis=0)
    right = counts[np.arange(n), np.arange(n)]

    def share(part: int, whole: int) -> str:
        return f"{part / whole:.1%}" if whole else "–"

    worst = "There is no mistake."
    if mistakes:
        i, j = mistakes[0]
        worst = (
            f"The most frequent mistake: {wrong[i, j]:,} of {of_class[i]:,} rows of "
            f"{shown(scores.classes[i])!r} come out as {shown(columns[j])!r}."
        )
    return Section(
        "Which classes are confused",
        (f"Labels of {name}. Rows are true classes, columns the labels given. {worst}",),
        (
            pictures.counts(
                "confusion",
                f"Confusion matrix of {count(n, 'class', 'classes')}. {worst}",
                counts,
                scores.classes,
                columns,
                ("true class", "label given"),
            ),
        ),
        tables=(
            Table(
                "By class",
                ("class", "rows", "found", "of labels given, right"),
                tuple(
                    (
                        shown(c),
                        f"{of_class[i]:,}",
                        share(right[i], of_class[i]),
                        share(right[i], labelled[i]),
                    )
                    for i, c in enumerate(scores.classes)
                ),
            ),
            matrix
            if n <= MOST_CLASSES
            else Table(
                "The most frequent mistakes",
                ("true class", "label given", "rows"),
                tuple(
                    (shown(scores.classes[i]), shown(columns[j]), f"{wrong[i, j]:,}")
                    for i, j in mistakes
                ),
                words=True,
            ),
        ),
    )


def _codes(fitted: CrossClientLabelPropagation) -> list[NDArray[np.int64]]:
    """Return the labels that each client got, as class indices."""
    return [codes_of(y, "", fitted.classes_.tolist()) for y in fitted.transduction_]


def _given(fitted: CrossClientLabelPropagation, plan: Plan) -> Section:
    """What labels each client has and gets."""
    classes = [str(c) for c in fitted.classes_.tolist()]
    columns = [*classes, "no label"]
    codes = _codes(fitted)
    names = list(plan.data)
    n = len(classes)
    before = [int((own.codes != UNLABELLED).sum()) for own in plan.data.values()]
    after = np.array([np.bincount(np.where(y < 0, n, y), minlength=n + 1) for y in codes])
    some = slice(0, MOST_CLIENTS)
    wide = n <= MOST_CLASSES
    return Section(
        "Labels by client",
        ("How many rows of each client come out with each label; labelled rows are among them.",),
        (
            pictures.counts(
                "labels-by-client",
                f"Rows by client and label, {count(len(names), 'client')}, "
                f"{count(n, 'class', 'classes')}; {int(after[:, n].sum()):,} rows have no label.",
                after,
                names,
                columns,
                ("client", "label given"),
            ),
        ),
        tables=(
            Table(
                "Rows, labels before and labels after",
                ("client", "rows", "labelled before", "without any label after"),
                tuple(
                    (shown(c), f"{len(y):,}", f"{b:,}", f"{int(a[n]):,}")
                    for c, y, b, a in zip(names[some], codes, before, after, strict=False)
                ),
            ),
            *(
                (
                    Table(
                        "Rows by client and label given",
                        ("client", *(shown(c, 20) for c in columns)),
                        tuple(
                            (shown(c), *(f"{v:,}" for v in row))
                            for c, row in zip(names[some], after, strict=False)
                        ),
                        folded=True,
                    ),
                )
                if wide
                else ()
            ),
        ),
    )


def _confidences(fitted: CrossClientLabelPropagation, plan: Plan) -> Section:
    """How sure the labels of unlabelled rows are."""
    values = np.concatenate(
        [
            own[data.codes == UNLABELLED]
            for own, data in zip(fitted.confidence_, plan.data.values(), strict=True)
        ]
    )
    nothing = np.zeros(len(values))
    bins = calibration(values, nothing, nothing > 0)
    rows = np.bincount(bin_of(values), minlength=BINS)
    return Section(
        "Confidence of the new labels",
        (
            CONFIDENCE,
            "Whether confident labels are right cannot be said here without the true labels.",
        ),
        (pictures.confidence_only(bins),),
        tables=(
            Table(
                "Unlabelled rows by confidence",
                ("confidence", "rows"),
                tuple(
                    (f"{b.low:.1f} to {b.high:.1f}", f"{n:,}")
                    for b, n in zip(bins, rows, strict=True)
                ),
            ),
        ),
    )


def _cost_facts(record: RunRecord) -> dict[str, str]:
    return {
        "bytes of all messages": size(record.cost.total_bytes),
        "rounds": f"{record.cost.rounds}",
        "seconds of all parties": f"{record.cost.total_seconds:,.1f}",
    }


def _run_sections(record: RunRecord) -> tuple[Section, ...]:
    return _costs(record), _who(record), *_departed(record)


def _costs(record: RunRecord) -> Section:
    cost = record.cost
    steps = cost.steps
    sent_by, received_by = zip(*(cost.bytes_by_party(s) for s in steps), strict=True)
    seconds = [cost.seconds_by_party(s) for s in steps]
    parties = [SERVER, *record.rows][: MOST_PARTIES + 1]

    def most(values: Mapping[str, float]) -> float:
        return max((v for party, v in values.items() if party != SERVER), default=0)

    cut = (
        f" The table of parties has the server and the first {MOST_PARTIES} clients."
        if len(record.rows) > MOST_PARTIES
        else ""
    )
    return Section(
        "Bytes and seconds by step and party",
        (
            "Bytes are those of encoded, sealed messages. Seconds are those of this machine, on "
            "which the parties ran one after the other; a network would add its own delay in each "
            f"round.{cut}",
        ),
        (pictures.costs(record),),
        tables=(
            Table(
                "Cost by step: the server, and the client with most",
                (
                    *("step", "rounds", "server seconds", "client seconds"),
                    *("server sends", "client sends", "client receives"),
                ),
                tuple(
                    (
                        step,
                        f"{cost.rounds_in(step)}",
                        f"{own.get(SERVER, 0.0):.3f}",
                        f"{most(own):.3f}",
                        size(sent.get(SERVER, 0)),
                        size(most(sent)),
                        size(most(received)),
                    )
                    for step, own, sent, received in zip(
                        steps, seconds, sent_by, received_by, strict=True
                    )
                ),
            ),
            Table(
                "Every party in every step: sent, received, seconds",
                ("party", *steps),
                tuple(
                    (
                        shown(party),
                        *(
                            f"{size(sent.get(party, 0))}, {size(received.get(party, 0))}, "
                            f"{own.get(party, 0.0):.3f} s"
                            for sent, received, own in zip(
                                sent_by, received_by, seconds, strict=True
                            )
                        ),
                    )
                    for party in parties
                ),
                folded=True,
            ),
        ),
    )


def _who(record: RunRecord) -> Section:
    seen = views(record)
    left = {gone.client for gone in record.departures if not gone.in_graph}
    present = [c for c in record.rows if c not in left]
    n, drawn = sum(record.rows[c] for c in present), pictures.RING
    labelled = sum(record.labelled[c] for c in present)
    more = f" The {drawn} clients with most bytes are drawn." * (len(record.rows) > drawn)
    kinds: dict[tuple[str, str, str], list[int]] = {}
    for traffic, number in record.cost.bytes_sent.items():
        ends = [
            party if party == SERVER else "client" for party in (traffic.sender, traffic.receiver)
        ]
        entry = kinds.setdefault((traffic.step, traffic.message, " → ".join(ends)), [0, 0])
        entry[0] += record.cost.messages[traffic]
        entry[1] += number
    return Section(
        "Who talks to whom, and what each party saw",
        (
            f"In this run the distances were among {count(n, 'row')} of "
            f"{count(len(present), 'client')}, {labelled:,} of them "
            "labelled. The thicker a line, the more bytes, on a logarithmic scale; an empty "
            f"circle is a client whose labels were not counted.{more}",
        ),
        (pictures.parties(record, seen),),
        remarks(record),
        (
            Table(
                "What each party learns",
                ("party", "learns", "does not learn"),
                tuple((v.party, "; ".join(v.learns), ", ".join(v.not_learned)) for v in seen),
                words=True,
            ),
            Table(
                "Messages by step and kind",
                ("step", "message", "from and to", "messages", "bytes"),
                tuple(
                    (*kind, f"{messages:,}", size(number))
                    for kind, (messages, number) in kinds.items()
                ),
                folded=True,
            ),
        ),
    )


def _departed(record: RunRecord) -> tuple[Section, ...]:
    if not record.departures:
        return ()
    lines = tuple(shown(line, 400) for line in departure_lines(record.departures))
    return (Section("Who vanished", points=lines),)


def _listed(value: Any) -> str:
    if value is None or value == {}:
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def parameters_section(parameters: Mapping[str, Any]) -> Section:
    """Return the last part of a report: what repeats the run."""
    return Section(
        "Parameters",
        tables=(
            Table(
                "What repeats this run; keys and masks are random every time",
                ("parameter", "value"),
                tuple((shown(k), shown(_listed(v), 200)) for k, v in parameters.items()),
                words=True,
            ),
        ),
    )
