"""``xclp experiment``, ``xclp ssl`` and ``xclp tables``: the lab."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xclp_crypto.errors import ParameterError
from xclp_lp.cli import terminal
from xclp_lp.cli.options import DataPath, DataSet, PngFolder, ReportFile, Seeds, setting
from xclp_lp.study.experiments.config import Experiment, read_described
from xclp_lp.study.experiments.document import markdown, sections, write_tables
from xclp_lp.study.experiments.run import Details, run_experiment
from xclp_lp.wording import count


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
    wanted = read_described(Experiment, config, given)
    file = _result_file(out, name, f"{wanted.dataset}-{wanted.form}")
    terminal.require_report(report_file, png)
    details: list[Details] = []
    with terminal.console.status("reading the data") as status:

        def progress(seed: int, setting: dict[str, Any], method: str) -> None:
            row = ", ".join(f"{k} {v}" for k, v in setting.items())
            status.update(f"seed {seed}, {row}: {method}")

        result = run_experiment(wanted, progress, details.append)
    _finish(file, wanted.dataset, result)
    terminal.write_report(
        lambda reports: reports.experiment_report(result, details), report_file, png
    )


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
    from xclp_lp.study.training.config import Study
    from xclp_lp.study.training.run import read_rounds, run_study

    given = _instead(path, seeds)
    if method:
        given["methods"] = method
    study = read_described(Study, config, given)
    file = _result_file(out, name, config.stem)
    terminal.require_report(report_file, png)
    folder = file.with_suffix("")
    folder.mkdir(exist_ok=True)
    with terminal.console.status("reading the data") as status:

        def progress(seed: int, method: str, done: int, total: int) -> None:
            status.update(f"seed {seed}, {method}: round {done + 1} of {total}")
            if done == 0 and not terminal.console.is_terminal:
                terminal.note(f"seed {seed}, {method}: {count(total, 'round')} …")

        try:
            result = run_study(study, folder, resume=resume, report=progress)
        except KeyboardInterrupt:
            terminal.complain(
                f"stopped; with --resume it goes on from the last checkpoint in {folder}"
            )
            raise
    _finish(file, study.dataset, result)
    terminal.write_report(
        lambda reports: reports.training_report(result, *read_rounds(study, folder)),
        report_file,
        png,
    )


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
    terminal.require_writable(file, "--out")
    return file


def _finish(file: Path, dataset: str, result: dict[str, Any]) -> None:
    """Write a result and print its table."""
    terminal.write_json(file, result)
    terminal.note(f"{dataset}: {result['data']['source']}")
    terminal.say(markdown(result))


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
        terminal.say(text)
        return
    terminal.require_writable(into, "--into")
    write_tables(into, text)
    terminal.say(f"written to {into}")
