"""``xclp experiment``, ``xclp ssl`` and ``xclp tables``: the lab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xclp_crypto.errors import ParameterError
from xclp_crypto.whole_files import write_whole
from xclp_lp.cli.console import (
    complain,
    console,
    note,
    require_report,
    require_writable,
    say,
    write_json,
    write_report,
)
from xclp_lp.cli.options import (
    DataPath,
    DataSet,
    PngFolder,
    ReportFile,
    Seeds,
    setting,
)
from xclp_lp.study.experiments.config import read_experiment
from xclp_lp.study.experiments.document import markdown, sections, with_tables
from xclp_lp.study.experiments.run import Details, run_experiment
from xclp_lp.wording import count

if TYPE_CHECKING:
    from xclp_lp.study.report import Report

<<<<<<< HEAD
AGREEMENT = {
    True: "Secure and plain labels are [green]identical[/].",
    False: "Secure and plain labels are [red]DIFFERENT[/].",
    None: "The secure labels come from randomised ones, the others from the true ones.",
}
"""What is said of whether the labels of the demonstration are identical."""

Labelled = Annotated[float, typer.Option(help="Fraction of each client's rows that is labelled.")]
Thinned = Annotated[
    float,
    typer.Option(help="Thin the classes: the first stays whole, the last is divided by this."),
]
FewRows = Annotated[
    int | None,
    typer.Option(help="Use only this many rows of each client, for the slow back ends."),
]


@with_settings(k=3)
def demo(
    dataset: Annotated[
        str,
        typer.Option(
            help="watch: wrist sensors of 10 people doing 7 physiotherapy exercises; digits: "
            "scikit-learn's handwritten digits, spread over 10 clients; hapt: waist sensors of 30 "
            "people, labels from their first recordings; fashion, vowel: docs/do/experiments.md."
        ),
    ] = "watch",
    labelled: Labelled = 0.05,
    seed: Annotated[
        int, typer.Option(help="Chooses the labelled rows and the projection; keys stay random.")
    ] = 0,
    imbalance: Thinned = 1.0,
    drop: Drop = None,
    rows: FewRows = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="Average over this many seeds, from --seed on.")
    ] = 1,
    json_file: JsonFile = None,
    report_file: ReportFile = None,
    png: PngFolder = None,
    *,
    settings: Settings,
) -> None:
    """Label real data across clients, and compare with each client alone and with pooled data."""
    if dataset not in LOADERS:
        raise ParameterError(f"--dataset must be one of {', '.join(LOADERS)}, got {dataset!r}")
    require_writable(json_file)
    require_report(report_file, png)
    parameters = {
        "dataset": dataset,
        "labelled": labelled,
        **{name: value for name, value in vars(settings).items() if name != "privacy"},
        "epsilon": None if settings.privacy is None else settings.privacy.epsilon,
        "imbalance": imbalance,
        "drop": parsed_drop(drop),
        "rows_per_client": rows,
        "seeds": list(range(seed, seed + repeat)),
    }
    source, runs = _compared(parameters, settings)
    result = summary(runs)
    _show(runs[0], result, str(settings.hamming))
    write_json(json_file, result | {"parameters": parameters})

    def report() -> Report:
        from xclp_lp.study.report import demo_report

        return demo_report(
            Scores.together([run.scores for run in runs]),
            runs[0].record,
            source=source,
            parameters=parameters,
        )

    write_report(report, report_file, png)
    if result["identical_labels"] is False:
        raise typer.Exit(1)


def _compared(parameters: dict[str, Any], settings: Settings) -> tuple[str, list[Comparison]]:
    """Return where the data are from, and the comparison of each seed."""
    dataset, seeds = parameters["dataset"], parameters["seeds"]
    with console.status(f"reading {dataset}"):
        federation = load(dataset)
    if parameters["imbalance"] != 1:
        federation = federation.imbalanced(parameters["imbalance"])
    if parameters["rows_per_client"] is not None:
        federation = federation.thinned(parameters["rows_per_client"])
    runs: list[Comparison] = []
    with StepReporter().showing() as progress:
        for seed in seeds:
            plan = plan_demo(
                federation,
                **vars(settings),
                labelled=parameters["labelled"],
                seed=seed,
                drop=parameters["drop"],
            )
            if not runs:
                console.print(f"[bold]{dataset}[/]: [dim]{federation.source}[/]", soft_wrap=True)
                note(*plan_lines(plan))
            if len(seeds) > 1:
                console.print(f"seed {seed}")
            runs.append(compare(federation, plan, drop=parameters["drop"], progress=progress))
    return federation.source, runs


def _show(first: Comparison, result: dict[str, Any], hamming: str) -> None:
    """Print the accuracies over all seeds, and what the first run was and cost."""
    stayed = " of clients that stayed" if first.participation.dropouts else ""
    table = table_of(
        f"Accuracy on the unlabelled rows{stayed}",
        *("method", "who sees what", "accuracy", "mean of classes"),
        left=2,
    )
    seen = "the server bits" if hamming == "plain" else "the server distances"
    shown = {
        "per_client": ("each client alone", "nobody anything"),
        "xclp": (f"XCLP, {hamming}", seen),
        "plain": ("pooled data, plain", "one party all data"),
    }
    for method, words in shown.items():
        by_row, by_class = result["accuracy"][method], result["balanced_accuracy"][method]
        table.add_row(*words, f"{by_row:.1%}", f"{by_class:.1%}")
    console.print(table)
    note(*dropout_lines(first.participation.dropouts))
    console.print(
        f"{first.labelled:,} of {first.rows:,} rows were labelled. "
        + f"{first.counted:,} labels were counted. " * bool(first.participation.dropouts)
        + f"Accuracies are over {first.predicted:,} rows. " * bool(first.participation.dropouts)
        + AGREEMENT[result["identical_labels"]]
    )
    console.print(cost_table(first.cost))

=======
>>>>>>> 5b44936 (Give the demonstration a file of its own on the command line)

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
    dataset: DataSet = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file; see docs/do/experiments.md.")
    ] = None,
    path: DataPath = None,
    hamming: Annotated[str | None, setting("hamming")] = None,
    seeds: Seeds = None,
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
    given = _instead(path, seeds) | {"form": form}
    if dataset is not None:
        given["dataset"] = dataset
    if hamming is not None:
        given["parameters"] = {"hamming": hamming}
    wanted = read_experiment(config, given)
    file = _result_file(out, name, f"{wanted.dataset}-{wanted.form}")
    require_report(report_file, png)
    details: list[Details] = []
    with console.status("reading the data") as status:

        def progress(seed: int, setting: dict[str, Any], method: str) -> None:
            row = ", ".join(f"{k} {v}" for k, v in setting.items())
            status.update(f"seed {seed}, {row}: {method}")

        result = run_experiment(wanted, progress, details.append)
    _finish(file, wanted.dataset, result)

    def report() -> Report:
        from xclp_lp.study.report import experiment_report

        return experiment_report(result, details)

    write_report(report, report_file, png)


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
    path: DataPath = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Instead of the file's methods. May be repeated.")
    ] = None,
    seeds: Seeds = None,
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

    given = _instead(path, seeds)
    if method:
        given["methods"] = method
    study = read_study(config, given)
    file = _result_file(out, name, config.stem)
    require_report(report_file, png)
    folder = file.with_suffix("")
    folder.mkdir(exist_ok=True)
    with console.status("reading the data") as status:

        def progress(seed: int, method: str, done: int, total: int) -> None:
            status.update(f"seed {seed}, {method}: round {done + 1} of {total}")
            if done == 0 and not console.is_terminal:
                note(f"seed {seed}, {method}: {count(total, 'round')} …")

        try:
            result = run_study(study, folder, resume=resume, report=progress)
        except KeyboardInterrupt:
            complain(f"stopped; with --resume it goes on from the last checkpoint in {folder}")
            raise
    _finish(file, study.dataset, result)

    def report() -> Report:
        from xclp_lp.study.report import training_report

        return training_report(result, *read_rounds(study, folder))

    write_report(report, report_file, png)


def _instead(path: str | None, seeds: int | None) -> dict[str, Any]:
    """Return what options say instead of the file of an experiment or a study."""
    given: dict[str, Any] = {}
    if path is not None:
        given["data"] = {"path": path}
    if seeds is not None:
        given["seeds"] = list(range(seeds))
    return given


def _result_file(folder: Path, name: str | None, default: str) -> Path:
    """Return where the result goes, and refuse places that cannot be written."""
    if name is not None and (Path(name).name != name or not name):
        raise ParameterError(f"--name must be a name without folders, got {name!r}")
    file = folder / f"{name or default}.json"
    require_writable(file, "--out")
    return file


def _finish(file: Path, dataset: str, result: dict[str, Any]) -> None:
    """Write a result and print its table."""
    write_json(file, result)
    note(f"{dataset}: {result['data']['source']}")
    say(markdown(result))


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
        say(text)
        return
    require_writable(into, "--into")
    write_whole(into, with_tables(into.read_text(encoding="utf-8"), text).encode())
    say(f"written to {into}")
