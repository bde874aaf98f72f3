"""``xclp demo``: what the demonstration takes, runs and prints."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xclp_crypto.errors import ParameterError
from xclp_lp.cli import terminal
from xclp_lp.cli.options import Drop, JsonFile, PngFolder, ReportFile, with_settings
from xclp_lp.parameters import Settings
from xclp_lp.study.data import LOADERS, load
from xclp_lp.study.demo import Comparison, compare, plan_demo, summary
from xclp_lp.study.scores import Scores
from xclp_lp.summary import dropout_lines, plan_lines, validation_lines

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
    int | None, typer.Option(help="Use only this many rows of each client, for the slow back ends.")
]


@with_settings()
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
    terminal.require_writable(json_file)
    terminal.require_report(report_file, png)
    parameters = {
        "dataset": dataset,
        "labelled": labelled,
        **{name: value for name, value in vars(settings).items() if name != "privacy"},
        "epsilon": None if settings.privacy is None else settings.privacy.epsilon,
        "imbalance": imbalance,
        "drop": terminal.parsed_drop(drop),
        "rows_per_client": rows,
        "seeds": list(range(seed, seed + repeat)),
    }
    source, runs = _compared(parameters, settings)
    result = summary(runs)
    _show(runs[0], result, str(settings.hamming))
    terminal.write_json(json_file, result | {"parameters": parameters})
    terminal.write_report(
        lambda reports: reports.demo_report(
            Scores.together([run.scores for run in runs]),
            runs[0].record,
            source=source,
            parameters=parameters,
        ),
        report_file,
        png,
    )
    if result["identical_labels"] is False:
        raise typer.Exit(1)


def _compared(parameters: dict[str, Any], settings: Settings) -> tuple[str, list[Comparison]]:
    """Return where the data are from, and the comparison of each seed."""
    dataset, seeds = parameters["dataset"], parameters["seeds"]
    with terminal.console.status(f"reading {dataset}"):
        federation = load(dataset)
    if parameters["imbalance"] != 1:
        federation = federation.imbalanced(parameters["imbalance"])
    if parameters["rows_per_client"] is not None:
        federation = federation.thinned(parameters["rows_per_client"])
    runs: list[Comparison] = []
    with terminal.StepReporter().showing() as progress:
        for seed in seeds:
            plan = plan_demo(
                federation,
                **vars(settings),
                labelled=parameters["labelled"],
                seed=seed,
                drop=parameters["drop"],
            )
            if not runs:
                terminal.console.print(
                    f"[bold]{dataset}[/]: [dim]{federation.source}[/]", soft_wrap=True
                )
                terminal.note(*plan_lines(plan))
            if len(seeds) > 1:
                terminal.console.print(f"seed {seed}")
            runs.append(compare(federation, plan, drop=parameters["drop"], progress=progress))
    return federation.source, runs


def _show(first: Comparison, result: dict[str, Any], hamming: str) -> None:
    """Print the accuracies over all seeds, and what the first run was and cost."""
    stayed = " of clients that stayed" if first.participation.dropouts else ""
    table = terminal.table_of(
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
    terminal.console.print(table)
    terminal.note(*dropout_lines(first.participation.dropouts))
    terminal.console.print(
        f"{first.labelled:,} of {first.rows:,} rows were labelled. "
        + f"{first.counted:,} labels were counted. " * bool(first.participation.dropouts)
        + f"Accuracies are over {first.predicted:,} rows. " * bool(first.participation.dropouts)
        + AGREEMENT[result["identical_labels"]]
    )
    terminal.note(*validation_lines(first.validation))
    terminal.console.print(terminal.cost_table(first.cost))
