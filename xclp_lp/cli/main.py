"""The command line: ``xclp`` and one of ``demo run plan experiment ssl tables bench``.

Those of several machines are in `xclp_lp.cli.network`.

Exit codes: see `EXIT_CODES`; bad input is said in one line.
"""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast, get_args

import typer
from rich.console import Console
from rich.table import Table

from xclp_crypto import __version__
from xclp_crypto.errors import (
    DataError,
    LogError,
    NetworkError,
    ParameterError,
    StorageError,
    XclpError,
)
from xclp_crypto.front import client_names
from xclp_crypto.params import MAX_HASH_BITS
from xclp_crypto.privacy import RandomizedResponse
from xclp_crypto.protocols.hamming import BACKENDS, get_backend
from xclp_crypto.transport.driver import Progress
from xclp_lp.cli import network as network_cli
from xclp_lp.cli.bench import bench_hamming, bench_propagation, bench_sum, plan_sum
from xclp_lp.estimator import Plan, require_room
from xclp_lp.files.federation import load_federation
from xclp_lp.files.results import (
    file_lines,
    label_lines,
    require_writable,
    why_not_writable,
    write_results,
)
from xclp_lp.files.whole import write_whole
from xclp_lp.forecast import Shape, forecast
from xclp_lp.parameters import ClassWeight, Parameters
from xclp_lp.session import STEPS
from xclp_lp.solvers import Solver
from xclp_lp.study.data import LOADERS, load
from xclp_lp.study.demo import Comparison, compare, summary
from xclp_lp.study.experiments.config import read_experiment
from xclp_lp.study.experiments.document import markdown, sections, with_tables
from xclp_lp.study.experiments.run import Details, run_experiment
from xclp_lp.study.scores import Scores, scores_of
from xclp_lp.summary import (
    StepReporter,
    cost_table,
    departure_lines,
    duration,
    estimate_line,
    forecast_tables,
    plan_lines,
    size,
    sum_line,
)
from xclp_lp.wording import count

if TYPE_CHECKING:
    from xclp_lp.study.report import Report

EXIT_CODES = (
    "Exit codes: 0 done; 1 a party failed or too few were left, a result differs from that of the "
    "plain computation, or the output broke off; 2 an option, the input or a place for results "
    "cannot be used; 130 interrupted."
)

JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Also write the result to this file.")
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        help="Also write a report with pictures to this file, which needs no network to be read.",
    ),
]
PngFolder = Annotated[
    Path | None,
    typer.Option(
        "--png", metavar="FOLDER", help="Also write the pictures of the report to this folder."
    ),
]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # it would take [clients.NAME] for markup
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure this machine.")
app.add_typer(bench_app, name="bench")
network_cli.register(app)
console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


AGREEMENT = {
    True: "Secure and plain labels are [green]identical[/].",
    False: "Secure and plain labels are [red]DIFFERENT[/].",
    None: "The secure labels come from randomised ones, the others from the true ones.",
}
"""What is said of whether the labels of the demonstration are identical."""

NO_RANDOM_STATE = (
    "random_state is not set: every run draws another projection, so unsure labels may differ from "
    "run to run, and between back ends"
)

DropOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CLIENT:STEP",
        help=f"Let this client vanish before a step ({', '.join(STEPS)}). May be repeated.",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"xclp {__version__}", highlight=False)
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Label data jointly without showing it."""


@app.command(epilog=EXIT_CODES)
def demo(
    dataset: Annotated[
        str,
        typer.Option(
            help="watch: wrist sensors of 10 people doing 7 physiotherapy exercises; digits: "
            "scikit-learn's handwritten digits, spread over 10 clients; hapt: waist sensors of 30 "
            "people, labels from their first recordings; fashion, vowel: docs/do/experiments.md."
        ),
    ] = "watch",
    labelled: Annotated[
        float, typer.Option(help="Fraction of each client's rows that is labelled.")
    ] = 0.05,
    k: Annotated[int, typer.Option("-k", "--k", help="Neighbours per point.")] = 3,
    alpha: Annotated[float, typer.Option(help="How far labels travel, between 0 and 1.")] = 0.99,
    bits: Annotated[int, typer.Option(min=1, max=MAX_HASH_BITS, help="Bits of each hash.")] = 4096,
    hamming: Annotated[
        str, typer.Option(help=f"How distances are computed: {', '.join(BACKENDS)}.")
    ] = "rlwe",
    seed: Annotated[
        int, typer.Option(help="Chooses the labelled rows and the projection; keys stay random.")
    ] = 0,
    class_weight: Annotated[
        str | None,
        typer.Option(help="balanced: weigh each label by 1/(labels of its class)."),
    ] = None,
    imbalance: Annotated[
        float,
        typer.Option(help="Thin the classes, the first one not and the last one so many times."),
    ] = 1.0,
    drop: DropOption = None,
    threshold: Annotated[
        int | None,
        typer.Option(help="Fewest clients to go on with; by default 2, in the sums a majority."),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Randomise the labels of the secure run, for this privacy of each."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Use only so many rows of each client, for the slow back ends."),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="Average over this many seeds, from --seed on.")
    ] = 1,
    json_file: JsonFile = None,
    report_file: ReportFile = None,
    png: PngFolder = None,
) -> None:
    """Label real data across clients, and compare with each client alone and with pooled data."""
    if dataset not in LOADERS:
        raise ParameterError(f"--dataset must be one of {', '.join(LOADERS)}, got {dataset!r}")
    _require_writable(json_file)
    _require_report(report_file, png)
    vanishing = _parsed_drop(drop)
    with console.status(f"reading {dataset}"):
        federation = load(dataset)
    if imbalance != 1:
        federation = federation.imbalanced(imbalance)
    if rows is not None:
        federation = federation.thinned(rows)
    runs: list[Comparison] = []

    def announce(plan: Plan) -> None:
        if not runs:
            console.print(f"[bold]{dataset}[/]: [dim]{federation.source}[/]", soft_wrap=True)
            _print_lines(plan_lines(plan))
        if repeat > 1:
            console.print(f"seed {seed + len(runs)}")

    with StepReporter(console).showing() as progress:
        for i in range(repeat):
            runs.append(
                compare(
                    federation,
                    labelled=labelled,
                    seed=seed + i,
                    n_bits=bits,
                    k=k,
                    alpha=alpha,
                    hamming=hamming,
                    class_weight=cast(ClassWeight, class_weight),
                    threshold=threshold,
                    privacy=None if epsilon is None else RandomizedResponse(epsilon),
                    drop=vanishing,
                    progress=progress,
                    announce=announce,
                )
            )
    result = summary(runs)
    stayed = " of clients that stayed" if runs[0].departures else ""
    table = Table(title=f"Accuracy on the unlabelled rows{stayed}", title_justify="left")
    table.add_column("method")
    table.add_column("who sees what")
    table.add_column("accuracy", justify="right")
    table.add_column("mean of classes", justify="right")
    shown = {
        "per_client": ("each client alone", "nobody anything"),
        "xclp": (f"XCLP, {hamming}", _who_sees(hamming)),
        "plain": ("pooled data, plain", "one party all data"),
    }
    for method, words in shown.items():
        by_row, by_class = result["accuracy"][method], result["balanced_accuracy"][method]
        table.add_row(*words, f"{by_row:.1%}", f"{by_class:.1%}")
    console.print(table)
    _print_lines(departure_lines(runs[0].departures))
    first = runs[0]
    console.print(
        f"{first.labelled:,} of {first.rows:,} rows were labelled. "
        + f"{first.counted:,} labels were counted. " * bool(first.departures)
        + f"Accuracies are over {first.predicted:,} rows. " * bool(first.departures)
        + AGREEMENT[result["identical_labels"]]
    )
    console.print(cost_table(runs[0].cost))
    parameters = {
        "dataset": dataset,
        "labelled": labelled,
        "k": k,
        "alpha": alpha,
        "n_bits": bits,
        "hamming": hamming,
        "class_weight": class_weight,
        "imbalance": imbalance,
        "threshold": threshold,
        "epsilon": epsilon,
        "drop": vanishing,
        "rows_per_client": rows,
        "seeds": list(range(seed, seed + repeat)),
    }
    _save(json_file, result | {"parameters": parameters})

    def report() -> Report:
        from xclp_lp.study.report import demo_report

        return demo_report(
            Scores.together([run.scores for run in runs]),
            first.record,
            source=federation.source,
            parameters=parameters,
        )

    _save_report(report, report_file, png)
    if result["identical_labels"] is False:
        raise typer.Exit(1)


@app.command(epilog=EXIT_CODES)
def run(
    federation: Annotated[
        Path,
        typer.Argument(help="A federation file; examples/quickstart/federation.toml is one."),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the results instead of the file's output. It is relative to where you "
            "are; the file's output, by default results, is relative to the file.",
        ),
    ] = None,
    drop: DropOption = None,
    report_file: ReportFile = None,
    png: PngFolder = None,
) -> None:
    """Label your own data: one section per client in a federation file.

    Each section [clients.NAME] names a file of features (.npy, .npz, .csv or .parquet) and the
    labels: a column of the same file (label_column) or a file of their own (labels). Empty cells,
    and -1 where all labels are integers, mean unlabelled. Columns of tables are matched by name,
    and labels in a table of their own by id_column where both tables have it. A truth_column with
    labels that are only compared with the result gives an accuracy. The section
    [parameters] takes n_bits, k, alpha, hamming, classes, class_weight, threshold and the other
    arguments of CrossClientLabelPropagation, and [parameters.privacy] takes epsilon (each client
    randomises its labels), or epsilon, delta and noise_contributors (noise in the sums).

    Writes NAME.csv for each client that stays (id, label, given label, confidence, probability of
    every class) and cost.json, which also says whose labels were counted. A labelled row may get
    another label; with reset_labelled = true it keeps its own. All parties run in this one process,
    with real encrypted messages: it shows what a federation computes and costs, and is for data
    that this machine may hold.
    """
    if output == "":
        raise ParameterError("--output must be the name of a folder, got ''")
    _require_report(report_file, png)
    vanishing = _parsed_drop(drop)
    with console.status("reading the clients' files"):
        loaded = load_federation(federation)
    if output is not None:
        loaded = replace(loaded, output=Path(output))
    require_writable(loaded, "" if output is None else f"--output {output}: ")
    estimator = loaded.estimator()

    plans: list[Plan] = []
    truths: list[list[list[Any]] | None] = []

    def announce(plan: Plan) -> None:
        plans.append(plan)
        truths.append(loaded.truth(plan, vanishing))
        _print_lines(plan_lines(plan, {c.name: c.columns for c in loaded.clients}))
        if estimator.random_state is None:
            _print_lines([NO_RANDOM_STATE])

    try:
        with StepReporter(console).showing() as progress:
            estimator.fit(
                [c.features for c in loaded.clients],
                [c.labels for c in loaded.clients],
                drop=vanishing,
                progress=progress,
                announce=announce,
                row_names=[c.row_names for c in loaded.clients],
            )
    except KeyboardInterrupt:
        _say("interrupted; nothing was written")
        raise
    written = write_results(loaded, estimator)
    console.print(cost_table(estimator.cost_))
    _print_lines(departure_lines(estimator.departures_))
    _print_lines(label_lines(loaded, estimator))
    (truth,) = truths
    if truth is not None:
        scores = scores_of(estimator, plans[0], truth)
        right, rows = round(scores.accuracy("xclp") * len(scores.truth)), len(scores.truth)
        _print_lines(
            [f"{right:,} of {count(rows, 'unlabelled row')} came out right ({right / rows:.1%})"]
        )
    console.print(
        f"{count(len(written), 'file')} written to {loaded.output}", markup=False, emoji=False
    )
    _print_lines(file_lines(loaded, estimator))

    def report() -> Report:
        from xclp_lp.study.report import run_report

        return run_report(estimator, plans[0], truth)

    _save_report(report, report_file, png)


@app.command()
def experiment(
    form: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="What is varied: labels (labels per client), size (training rows), "
            "leave-one-out (the client without labels), fraction (labelled training rows, the "
            "others kept or not) or groups (fractions in groups of clients).",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the result file.")],
    dataset: Annotated[
        str | None, typer.Option(help=f"Data set: {', '.join(LOADERS)}; or in --config.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file; see docs/do/experiments.md.")
    ] = None,
    path: Annotated[
        str | None, typer.Option(help="Where the data set's files are, if not where it looks.")
    ] = None,
    hamming: Annotated[
        str | None, typer.Option(help=f"How distances are computed: {', '.join(BACKENDS)}.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Run the seeds 0, 1, … so many.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the result file; DATASET-FORM by default.")
    ] = None,
    report_file: ReportFile = None,
    png: PngFolder = None,
) -> None:
    """Measure accuracy on a data set in one of the forms of the paper, beside baselines.

    Writes one JSON file into the folder, with the accuracy of every run, their means and standard
    deviations, and all that is needed to repeat it. `xclp tables` makes tables of such files.
    """
    given: dict[str, Any] = {"form": form}
    if dataset is not None:
        given["dataset"] = dataset
    if path is not None:
        given["data"] = {"path": path}
    if hamming is not None:
        given["parameters"] = {"hamming": hamming}
    if seeds is not None:
        given["seeds"] = list(range(seeds))
    wanted = read_experiment(config, given)
    file = out / f"{_name_of_file(name) or f'{wanted.dataset}-{wanted.form}'}.json"
    _require_writable(file, "--out")
    _require_report(report_file, png)
    details: list[Details] = []
    with console.status("reading the data") as status:

        def progress(seed: int, setting: dict[str, Any], method: str) -> None:
            row = ", ".join(f"{k} {v}" for k, v in setting.items())
            status.update(f"seed {seed}, {row}: {method}")

        result = run_experiment(wanted, progress, details.append)
    _write_json(file, result)
    _print_lines([f"{wanted.dataset}: {result['data']['source']}"])
    console.print(markdown(result), markup=False, emoji=False, highlight=False, soft_wrap=True)
    console.print(f"written to {file}", markup=False, emoji=False)

    def report() -> Report:
        from xclp_lp.study.report import experiment_report

        return experiment_report(result, details)

    _save_report(report, report_file, png)


@app.command()
def ssl(
    config: Annotated[
        Path, typer.Argument(help="A TOML file; see examples/ssl and docs/do/experiments.md.")
    ],
    out: Annotated[
        Path,
        typer.Option(help="Folder for the result file NAME.json and the files of runs, NAME/."),
    ],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the runs that are in the folder.")
    ] = False,
    path: Annotated[
        str | None, typer.Option(help="Where the data set's files are, if not where it looks.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Instead of the file's methods. May be repeated.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Run the seeds 0, 1, … so many.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the result; that of the file by default.")
    ] = None,
    report_file: ReportFile = None,
    png: PngFolder = None,
) -> None:
    """Train networks on clients of which few have labels: the paper's Algorithm 2 and others.

    Writes, for every method and seed, the metrics of each round (CSV) and a checkpoint from which
    --resume goes on, and at the end one JSON file as `xclp experiment` does, for `xclp tables`.
    Needs PyTorch (the extra "ssl"), and uses a GPU where there is one.
    """
    # Imported here because everything else works without PyTorch, which takes seconds to load.
    from xclp_lp.study.ssl.run import read_rounds, run_study
    from xclp_lp.study.ssl.study import read_study

    given: dict[str, Any] = {}
    if path is not None:
        given["data"] = {"path": path}
    if method:
        given["methods"] = method
    if seeds is not None:
        given["seeds"] = list(range(seeds))
    study = read_study(config, given)
    file = out / f"{_name_of_file(name) or config.stem}.json"
    _require_writable(file, "--out")
    _require_report(report_file, png)
    folder = file.with_suffix("")
    folder.mkdir(exist_ok=True)
    with console.status("reading the data") as status:

        def progress(seed: int, method: str, done: int, total: int) -> None:
            status.update(f"seed {seed}, {method}: round {done + 1} of {total}")
            if done == 0 and not console.is_terminal:
                _print_lines([f"seed {seed}, {method}: {count(total, 'round')} …"])

        try:
            result = run_study(study, folder, resume=resume, report=progress)
        except KeyboardInterrupt:
            _say(f"stopped; with --resume it goes on from the last checkpoint in {folder}")
            raise
    _write_json(file, result)
    _print_lines([f"{study.dataset}: {result['data']['source']}"])
    console.print(markdown(result), markup=False, emoji=False, highlight=False, soft_wrap=True)
    console.print(f"written to {file}", markup=False, emoji=False)

    def report() -> Report:
        from xclp_lp.study.report import training_report

        return training_report(result, *read_rounds(study, folder))

    _save_report(report, report_file, png)


@app.command()
def tables(
    folder: Annotated[Path, typer.Argument(help="Folder with result files of experiments.")],
    into: Annotated[
        Path | None,
        typer.Option(help="A Markdown file whose text after the line <!-- tables --> is replaced."),
    ] = None,
) -> None:
    """Print tables of all results of `xclp experiment` and `xclp ssl` in a folder, as Markdown."""
    text = sections(folder)
    if into is None:
        console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)
        return
    _require_writable(into, "--into")
    into.write_text(with_tables(into.read_text(encoding="utf-8"), text), encoding="utf-8")
    console.print(f"written to {into}", markup=False, emoji=False)


@app.command()
def plan(
    context: typer.Context,
    federation: Annotated[
        Path | None, typer.Argument(help="A federation file; or give the sizes by options.")
    ] = None,
    clients: Annotated[int, typer.Option(min=2, help="Without a file: number of clients.")] = 10,
    rows: Annotated[int, typer.Option(min=1, help="Without a file: rows of each client.")] = 200,
    labelled: Annotated[
        float, typer.Option(min=0, max=1, help="Without a file: fraction of labelled rows.")
    ] = 0.1,
    classes: Annotated[int, typer.Option(min=1, help="Without a file: number of classes.")] = 10,
    features: Annotated[int, typer.Option(min=1, help="Without a file: number of features.")] = 64,
    bits: Annotated[
        int, typer.Option(min=1, max=MAX_HASH_BITS, help="Without a file: bits of each hash.")
    ] = 4096,
    k: Annotated[int, typer.Option("-k", "--k", help="Without a file: neighbours.")] = 10,
    hamming: Annotated[
        str, typer.Option(help=f"Without a file: back end, {', '.join(BACKENDS)}.")
    ] = "rlwe",
    json_file: JsonFile = None,
) -> None:
    """Say what a run would cost in rounds, bytes, seconds and memory, and run nothing.

    Takes a few seconds to measure this machine. A run that would not fit into memory is refused,
    with advice. Bytes are exact but for the columns of S, whose zeros do not travel.
    """
    _require_writable(json_file)
    groups: Mapping[str, tuple[str, ...]] = {}
    if federation is not None:
        _require_no_sizes(context)
        with console.status("reading the clients' files"):
            loaded = load_federation(federation)
        estimator = loaded.estimator()
        planned = estimator.plan(
            [c.features for c in loaded.clients],
            [c.labels for c in loaded.clients],
            [c.row_names for c in loaded.clients],
        )
        _print_lines(plan_lines(planned))
        if estimator.draws_groups:
            _say("each run draws other groups; set random_state to plan those that it will have")
        params, work, groups = planned.params, planned.forecast, planned.groups
    else:
        params = Parameters(classes=tuple(range(classes)), n_bits=bits, k=k, hamming=hamming)
        names = client_names(clients, None)
        shape = Shape(
            dict.fromkeys(names, rows), dict.fromkeys(names, round(labelled * rows)), features
        )
        require_room(params, shape)
        if not any(shape.labelled.values()):
            raise ParameterError(
                f"--labelled {labelled:g} of {count(rows, 'row')} is no label: nothing can spread"
            )
        work = partial(forecast, params, [shape])
    with console.status("measuring this machine"):
        found = work()
    chosen = get_backend(params.hamming).name
    for table in forecast_tables(found, chosen):
        console.print(table)
    console.print(
        f"In all {size(found.bytes)} at most in {count(found.rounds, 'round')}, about "
        f"{duration(found.seconds)} and {size(found.memory)} of memory in one process.",
        highlight=False,
    )
    shown = {"groups": {name: list(own) for name, own in groups.items()}} if groups else {}
    _save(json_file, found.to_dict() | {"hamming": chosen} | shown)


def _require_no_sizes(context: typer.Context) -> None:
    """Refuse sizes beside a federation file, which has its own."""
    for name in ("clients", "rows", "labelled", "classes", "features", "bits", "k", "hamming"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ParameterError(
                f"--{name} is for a plan without a file; change it in the federation file"
            )


@bench_app.command("hamming")
def bench_hamming_command(
    backend: Annotated[str, typer.Option(help=f"Back end: {', '.join(BACKENDS)}.")] = "rlwe",
    n: Annotated[int, typer.Option(min=1, help="Rows of the first client.")] = 500,
    m: Annotated[int, typer.Option(min=1, help="Rows of the second client.")] = 500,
    bits: Annotated[int, typer.Option(min=1, max=MAX_HASH_BITS, help="Bits of each row.")] = 4096,
    repeat: Annotated[int, typer.Option(min=1, help="Runs; medians are shown.")] = 3,
    json_file: JsonFile = None,
) -> None:
    """Time distances between two clients, with the plain computation in the same run."""
    _require_writable(json_file)
    if backend in BACKENDS:  # else the run itself refuses
        _print_lines([estimate_line(backend, {"client-0": n, "client-1": m}, bits)])
    with StepReporter(console).showing() as progress:
        result = bench_hamming(backend, n, m, bits, repeat=repeat, progress=progress)
    table = Table(title=f"{backend}, {n} × {m} rows × {bits} bits", title_justify="left")
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_row("seconds, all parties", f"{result['seconds']:.3f}")
    table.add_row("bit comparisons per second", f"{result['bit_comparisons_per_second']:.2e}")
    table.add_row("bytes of all messages", size(result["bytes"]))
    table.add_row("times as long as plain", f"{result['ratio_to_plain']:.1f}")
    table.add_row("peak memory", size(result["peak_rss"]))
    table.add_row("every distance exact", "yes" if result["exact"] else "NO")
    console.print(table)
    _save(json_file, result)
    if not result["exact"]:
        raise typer.Exit(1)


@bench_app.command("propagation")
def bench_propagation_command(
    n: Annotated[int, typer.Option(min=2, help="Points.")] = 2500,
    labelled: Annotated[int, typer.Option(min=1, help="Labelled points.")] = 100,
    bits: Annotated[int, typer.Option(min=1, max=MAX_HASH_BITS, help="Bits of each hash.")] = 4096,
    k: Annotated[int, typer.Option("-k", "--k", help="Neighbours per point.")] = 10,
    alpha: Annotated[float, typer.Option(help="How far labels travel, between 0 and 1.")] = 0.99,
    solver: Annotated[
        str, typer.Option(help=f"How the equations are solved: {', '.join(get_args(Solver))}.")
    ] = "auto",
    from_features: Annotated[
        bool,
        typer.Option(
            "--from-features",
            help="Start from vectors instead of distances, without a matrix of all distances.",
        ),
    ] = False,
    no_dense: Annotated[
        bool, typer.Option("--no-dense", help="Leave out the dense inverse: minutes, 32·n² bytes.")
    ] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Runs; medians are shown.")] = 3,
    json_file: JsonFile = None,
) -> None:
    """Time graph and propagation on clustered vectors, with a dense inverse in the same run."""
    _require_writable(json_file)
    with StepReporter(console).showing() as reporter:
        result = bench_propagation(
            n,
            labelled,
            bits,
            k=k,
            alpha=alpha,
            solver=cast(Solver, solver),  # the run itself refuses others
            from_features=from_features,
            dense=not no_dense,
            repeat=repeat,
            progress=lambda what, done, total: reporter(
                Progress("this machine", "propagation", what, done, total)
            ),
        )
    table = Table(
        title=f"{n:,} points, {labelled:,} labelled, {bits} bits, k = {k}", title_justify="left"
    )
    for heading in ("measure", "scores at once", "columns of labelled points", "dense inverse"):
        table.add_column(heading, justify="left" if heading == "measure" else "right")

    def row(name: str, form: str, *keys: str) -> None:
        values = (result[key] if key else None for key in keys)
        table.add_row(name, *("–" if v is None else format(v, form) for v in values))

    start = "features" if from_features else "distances"
    row(f"seconds, {start} to scores", ".3f", "seconds", "columns_seconds", "dense_seconds")
    row("dense takes times as long", ".1f", "ratio_to_dense", "columns_ratio_to_dense", "")
    row("largest residual", ".1e", "residual", "columns_residual", "")
    row("solver", "", "solver", "columns_solver", "")
    console.print(table)
    console.print(
        f"{size(result['peak_rss'])} of memory at the peak, without the dense inverse; labels "
        + ("identical" if result["identical_labels"] else "DIFFERENT"),
        highlight=False,
    )
    _save(json_file, result)
    if not result["identical_labels"]:
        raise typer.Exit(1)


@bench_app.command("sum")
def bench_sum_command(
    clients: Annotated[int, typer.Option(min=2, help="Number of clients.")] = 10,
    n_values: Annotated[int, typer.Option("--size", min=1, help="Values of each client.")] = (
        1_000_000
    ),
    drop: Annotated[
        int, typer.Option(min=0, help="Clients that vanish when their masks are agreed on.")
    ] = 0,
    bits: Annotated[int, typer.Option(help="Bits of the ring: 32 or 64.")] = 64,
    threshold: Annotated[
        int | None,
        typer.Option(help="Fewest survivors; by default a majority, with --sparse 90%."),
    ] = None,
    sparse: Annotated[
        bool | None,
        typer.Option(
            "--sparse/--complete",
            help="Masks with few other clients or with all; by default few from 101 clients on.",
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs; medians are shown.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the values; keys stay random.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Time a secure sum of integers, with NumPy's sum of the same in the same run."""
    _require_writable(json_file)
    plan = plan_sum(clients, n_values, drop=drop, bits=bits, threshold=threshold, sparse=sparse)
    _print_lines([sum_line(plan)])
    with StepReporter(console).showing() as progress:
        result = bench_sum(
            clients,
            n_values,
            drop=drop,
            bits=bits,
            threshold=threshold,
            sparse=sparse,
            repeat=repeat,
            seed=seed,
            progress=progress,
        )
    title = f"{clients} clients × {n_values:,} values × {bits} bits"
    table = Table(title=title, title_justify="left")
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_row("seconds, all parties", f"{result['seconds']:.3f}")
    table.add_row("clients in the sum", f"{result['survivors']} of {clients}")
    table.add_row("bytes of all messages", size(result["bytes"]))
    table.add_row("bytes that a client sends", size(result["upload_bytes_per_client"]))
    table.add_row("masks of a client per second", size(1e9 * result["mask_gb_per_s"]))
    table.add_row("times as long as plain", f"{result['ratio_to_plain']:.1f}")
    table.add_row("peak memory", size(result["peak_rss"]))
    table.add_row("every sum exact", "yes" if result["exact"] else "NO")
    console.print(table)
    _save(json_file, result)
    if not result["exact"]:
        raise typer.Exit(1)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, style="dim", highlight=False, markup=False, emoji=False, soft_wrap=True)


def _parsed_drop(options: Sequence[str] | None) -> dict[str, str]:
    """Return client and step of each option."""
    parsed = {}
    for option in options or ():
        client, colon, step = option.partition(":")
        if not colon:
            raise ParameterError(f"--drop must be CLIENT:STEP, got {option!r}")
        if client in parsed:
            raise ParameterError(f"--drop {option}: {client!r} vanishes only once")
        parsed[client] = step
    return parsed


def _who_sees(hamming: str) -> str:
    return "the server bits" if hamming == "plain" else "the server distances"


def _name_of_file(name: str | None) -> str | None:
    if name is not None and (Path(name).name != name or not name):
        raise ParameterError(f"--name must be a name without folders, got {name!r}")
    return name


def _require_writable(file: Path | None, option: str = "--json") -> None:
    """Refuse a file that cannot be written; None stands for no file."""
    if file is None:
        return
    if file.is_dir():
        raise ParameterError(f"{option} must be the name of a file; {file} is a folder")
    if not file.parent.is_dir():
        raise ParameterError(f"{option} {file}: there is no folder {file.parent}")
    if reason := why_not_writable(file.parent):
        raise ParameterError(f"{option} {file}: {reason}")
    if option == "--json" and file.suffix.lower() != ".json":  # so that no input is overwritten
        raise ParameterError(f"{option} must end in .json, got {file}")


def _write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a file that is either complete or not there."""
    write_whole(file, (json.dumps(content, indent=2) + "\n").encode())


def _require_report(file: Path | None, folder: Path | None) -> None:
    """Refuse places of a report that cannot be written, and reports that cannot be made."""
    if file is None and folder is None:
        return
    _require_writable(file, "--report")
    if file is not None and file.suffix.lower() not in (".html", ".htm"):
        # The name says what is in it, and no input of a run has such a name.
        raise ParameterError(f"--report {file}: the name of a report ends in .html")
    if folder is not None:
        existing = folder if folder.exists() else folder.parent
        if folder.exists() and not folder.is_dir():
            raise ParameterError(f"--png must be the name of a folder; {folder} is a file")
        if not existing.is_dir():
            raise ParameterError(f"--png {folder}: there is no folder {existing}")
        if reason := why_not_writable(existing):
            raise ParameterError(f"--png {folder}: {reason}")
    import xclp_lp.study.report  # noqa: F401  # says what to install, if anything


def _save_report(make: Callable[[], Report], file: Path | None, folder: Path | None) -> None:
    """Make a report, write it and say so, where one was asked for."""
    if file is None and folder is None:
        return
    with console.status("drawing"):
        make().write(file, folder)
    for place in (file, folder):
        if place is not None:
            console.print(f"written to {place}", markup=False, emoji=False)


def _save(file: Path | None, content: dict[str, Any]) -> None:
    """Write the result and say so, where a file was asked for."""
    if file is not None:
        _write_json(file, content)
        console.print(f"written to {file}", markup=False, emoji=False)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _say(f"warning: {message}")


def _say(message: object) -> None:
    """Print one line, whatever the libraries underneath put into their messages."""
    line = " ".join(str(message).splitlines())
    errors.print("xclp:", "".join(c if c.isprintable() else "\ufffd" for c in line))


def _with_notes(error: Exception) -> str:
    """Return what an error says, and what was noted where it passed through."""
    return "; ".join([str(error), *getattr(error, "__notes__", [])])


def _nothing_more(code: int) -> NoReturn:
    """Exit; nothing is written any more, since Python flushes once more on its way out."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def main() -> None:
    """Run the command line; typed errors become one line and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except (ParameterError, DataError, LogError, StorageError) as error:
        _say(_with_notes(error))
        sys.exit(2)
    except NetworkError as error:
        _say(error)
        sys.exit(3)
    except XclpError as error:
        _say(_with_notes(error))
        sys.exit(1)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _nothing_more(1)
    except OSError as error:
        with suppress(OSError):
            _say(f"reading or writing failed: {error}")
        _nothing_more(1)
