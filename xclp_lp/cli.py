"""The command line: ``xclp demo``, ``run``, ``experiment``, ``tables`` and ``bench``.

Exit codes: 0 done; 1 the secure and the plain labels of the demonstration differ, a party failed,
or the output cannot be written; 2 bad input, which is said in one line.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast, get_args

import typer
from rich.console import Console
from rich.table import Table

from xclp_crypto import __version__
from xclp_crypto.errors import DataError, ParameterError, XclpError
from xclp_crypto.params import MAX_HASH_BITS
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_crypto.transport.simulate import Progress
from xclp_lp.bench import bench_hamming, bench_propagation, bench_sum, plan_sum
from xclp_lp.data import LOADERS, load
from xclp_lp.demo import Comparison, compare, summary
from xclp_lp.estimator import Plan
from xclp_lp.experiments.config import read_experiment
from xclp_lp.experiments.document import markdown, sections, with_tables
from xclp_lp.experiments.run import run_experiment
from xclp_lp.federation_file import load_federation, require_writable, write_results
from xclp_lp.report import (
    StepReporter,
    cost_table,
    departure_lines,
    estimate_line,
    plan_lines,
    size,
    sum_line,
)
from xclp_lp.session import STEPS, ClassWeight
from xclp_lp.solvers import Solver

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # it would take [clients.NAME] for markup
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure this machine.")
app.add_typer(bench_app, name="bench")
console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


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


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Label data jointly without showing it."""


@app.command()
def demo(
    dataset: Annotated[
        str,
        typer.Option(
            help="watch: wrist sensors of 10 people doing 7 physiotherapy exercises; digits: "
            "scikit-learn's handwritten digits, spread over 10 clients; hapt: waist sensors of 30 "
            "people, labels from their first recordings; fashion, vowel: see docs/data.md."
        ),
    ] = "watch",
    labelled: Annotated[
        float, typer.Option(help="Fraction of each client's rows that is labelled.")
    ] = 0.05,
    k: Annotated[int, typer.Option("-k", "--k", help="Neighbours per point.")] = 3,
    alpha: Annotated[float, typer.Option(help="How far labels travel, between 0 and 1.")] = 0.99,
    bits: Annotated[int, typer.Option(help="Bits of each hash.")] = 4096,
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
    rows: Annotated[
        int | None,
        typer.Option(help="Use only so many rows of each client, for the slow back ends."),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="Average over this many seeds, from --seed on.")
    ] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the result to this file.")
    ] = None,
) -> None:
    """Label real data across clients, and compare with each client alone and with pooled data."""
    if dataset not in LOADERS:
        raise ParameterError(f"--dataset must be one of {', '.join(LOADERS)}, got {dataset!r}")
    if json_file is not None:
        _require_writable(json_file)
    vanishing = _parsed_drop(drop)
    with console.status(f"reading {dataset}"):
        federation = load(dataset)
    if imbalance != 1:
        federation = federation.imbalanced(imbalance)
    if rows is not None:
        federation = federation.thinned(rows)
    console.print(f"[bold]{dataset}[/]: [dim]{federation.source}[/]", soft_wrap=True)
    runs: list[Comparison] = []

    def announce(plan: Plan) -> None:
        if not runs:
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
                    drop=vanishing,
                    progress=progress,
                    announce=announce,
                )
            )
    result = summary(runs)
    table = Table(title="Accuracy on the unlabelled rows", title_justify="left")
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
    console.print(
        f"{runs[0].labelled:,} of {runs[0].rows:,} rows were labelled. Secure and plain labels are "
        + ("[green]identical[/]." if result["identical_labels"] else "[red]DIFFERENT[/].")
    )
    console.print(cost_table(runs[0].cost))
    if json_file is not None:
        parameters = {
            "dataset": dataset,
            "labelled": labelled,
            "k": k,
            "alpha": alpha,
            "n_bits": bits,
            "hamming": hamming,
            "class_weight": class_weight,
            "imbalance": imbalance,
            "drop": vanishing,
            "rows_per_client": rows,
            "seeds": list(range(seed, seed + repeat)),
        }
        _write_json(json_file, result | {"parameters": parameters})
        console.print(f"written to {json_file}", markup=False, emoji=False)
    if not result["identical_labels"]:
        raise typer.Exit(1)


@app.command()
def run(
    federation: Annotated[
        Path,
        typer.Argument(help="A federation file; examples/quickstart/federation.toml is one."),
    ],
    output: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder for the results instead of the file's."),
    ] = None,
    drop: DropOption = None,
) -> None:
    """Label your own data: one section per client in a federation file.

    Each section [clients.NAME] names a file of features (.npy, .npz, .csv or .parquet) and the
    labels: a column of the same file (label_column) or a file of their own (labels). Empty cells,
    and -1 where all labels are integers, mean unlabelled. Columns of tables are matched by name,
    and labels in a table of their own by id_column where both tables have it. The section
    [parameters] takes n_bits, k, alpha, hamming, classes, class_weight, threshold and the other
    arguments of CrossClientLabelPropagation, and [parameters.privacy] takes epsilon (each client
    randomises its labels), or epsilon, delta and noise_contributors (noise in the sums).

    Writes NAME.csv for each client (id, label, confidence, probability of every class) and
    cost.json, which also says whose labels were counted. All parties run in this one process, with
    real encrypted messages: it shows what a federation computes and costs, and is for data that
    this machine may hold.
    """
    if output == "":
        raise ParameterError("--output must be the name of a folder, got ''")
    vanishing = _parsed_drop(drop)
    with console.status("reading the clients' files"):
        loaded = load_federation(federation)
    if output is not None:
        loaded = replace(loaded, output=Path(output))
    require_writable(loaded)
    estimator = loaded.estimator()

    def announce(plan: Plan) -> None:
        _print_lines(plan_lines(plan, {c.name: c.columns for c in loaded.clients}))

    with StepReporter(console).showing() as progress:
        estimator.fit(
            [c.features for c in loaded.clients],
            [c.labels for c in loaded.clients],
            drop=vanishing,
            progress=progress,
            announce=announce,
        )
    written = write_results(loaded, estimator)
    console.print(cost_table(estimator.cost_))
    _print_lines(departure_lines(estimator.departures_))
    console.print(f"{len(written)} files written to {loaded.output}", markup=False, emoji=False)


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
        Path | None, typer.Option(help="A TOML file; see docs/experiments.md.")
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
    file = out / f"{name or f'{wanted.dataset}-{wanted.form}'}.json"
    _require_writable(file, "--out")
    with console.status("reading the data") as status:

        def report(seed: int, setting: dict[str, Any], method: str) -> None:
            row = ", ".join(f"{k} {v}" for k, v in setting.items())
            status.update(f"seed {seed}, {row}: {method}")

        result = run_experiment(wanted, report)
    _write_json(file, result)
    _print_lines([f"{wanted.dataset}: {result['data']['source']}"])
    console.print(markdown(result), markup=False, emoji=False, highlight=False, soft_wrap=True)
    console.print(f"written to {file}", markup=False, emoji=False)


@app.command()
def tables(
    folder: Annotated[Path, typer.Argument(help="Folder with result files of experiments.")],
    into: Annotated[
        Path | None,
        typer.Option(help="A Markdown file whose text after the line <!-- tables --> is replaced."),
    ] = None,
) -> None:
    """Print tables of all results of `xclp experiment` in a folder, as Markdown."""
    text = sections(folder)
    if into is None:
        console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)
        return
    _require_writable(into, "--into")
    into.write_text(with_tables(into.read_text(encoding="utf-8"), text), encoding="utf-8")
    console.print(f"written to {into}", markup=False, emoji=False)


@bench_app.command("hamming")
def bench_hamming_command(
    backend: Annotated[str, typer.Option(help=f"Back end: {', '.join(BACKENDS)}.")] = "rlwe",
    n: Annotated[int, typer.Option(min=1, help="Rows of the first client.")] = 500,
    m: Annotated[int, typer.Option(min=1, help="Rows of the second client.")] = 500,
    bits: Annotated[int, typer.Option(help="Bits of each row.")] = 4096,
    repeat: Annotated[int, typer.Option(min=1, help="Runs; medians are shown.")] = 3,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the result to this file.")
    ] = None,
) -> None:
    """Time distances between two clients, with the plain computation in the same run."""
    if json_file is not None:
        _require_writable(json_file)
    if backend in BACKENDS and 1 <= bits <= MAX_HASH_BITS:  # else the run itself refuses
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
    if json_file is not None:
        _write_json(json_file, result)
        console.print(f"written to {json_file}", markup=False, emoji=False)
    if not result["exact"]:
        raise typer.Exit(1)


@bench_app.command("propagation")
def bench_propagation_command(
    n: Annotated[int, typer.Option(min=2, help="Points.")] = 2500,
    labelled: Annotated[int, typer.Option(min=1, help="Labelled points.")] = 100,
    bits: Annotated[int, typer.Option(help="Bits of each hash.")] = 4096,
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
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the result to this file.")
    ] = None,
) -> None:
    """Time graph and propagation on clustered vectors, with a dense inverse in the same run."""
    if json_file is not None:
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
    if json_file is not None:
        _write_json(json_file, result)
        console.print(f"written to {json_file}", markup=False, emoji=False)
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
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the result to this file.")
    ] = None,
) -> None:
    """Time a secure sum of integers, with NumPy's sum of the same in the same run."""
    if json_file is not None:
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
    if json_file is not None:
        _write_json(json_file, result)
        console.print(f"written to {json_file}", markup=False, emoji=False)
    if not result["exact"]:
        raise typer.Exit(1)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, style="dim", highlight=False, markup=False, emoji=False, soft_wrap=True)


def _parsed_drop(options: Sequence[str] | None) -> dict[str, str]:
    """Return client and step of each option."""
    parsed = {}
    for option in options or ():
        client, colon, step = option.rpartition(":")
        if not colon:
            raise ParameterError(f"--drop must be CLIENT:STEP, got {option!r}")
        if client in parsed:
            raise ParameterError(f"--drop {option}: {client!r} vanishes only once")
        parsed[client] = step
    return parsed


def _who_sees(hamming: str) -> str:
    return "the server bits" if hamming == "plain" else "the server distances"


def _require_writable(file: Path, option: str = "--json") -> None:
    if not file.parent.is_dir():
        raise ParameterError(f"{option} {file}: there is no folder {file.parent}")
    if file.is_dir() or not os.access(file.parent, os.W_OK):
        raise ParameterError(f"{option} {file}: cannot be written")


def _write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a file that is either complete or not there."""
    with tempfile.TemporaryDirectory(prefix=".xclp-", dir=file.parent) as scratch:
        complete = Path(scratch) / "result.json"
        complete.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        complete.replace(file)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _say(f"warning: {message}")


def _say(message: object) -> None:
    """Print one line, whatever the libraries underneath put into their messages."""
    errors.print("xclp:", " ".join(str(message).splitlines()))


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
    except (ParameterError, DataError) as error:
        _say(error)
        sys.exit(2)
    except XclpError as error:
        _say(error)
        sys.exit(1)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _nothing_more(1)
    except OSError as error:
        with suppress(OSError):
            _say(f"reading or writing failed: {error}")
        _nothing_more(1)
