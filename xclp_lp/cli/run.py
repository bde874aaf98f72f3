"""``xclp run`` and ``xclp plan``: what a federation file describes, or sizes alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from xclp_crypto.errors import ParameterError
from xclp_crypto.front import client_names
from xclp_crypto.protocols.hamming import get_backend
from xclp_crypto.transport.log import LogKey
from xclp_crypto.transport.network import Limits
from xclp_lp.cli import terminal
from xclp_lp.cli.keeping import Keep, KeyFile, keep_files, kept_key
from xclp_lp.cli.options import Drop, JsonFile, PngFolder, ReportFile, with_settings
from xclp_lp.cli.tune import settings_table
from xclp_lp.dropouts import checked_drop
from xclp_lp.files import results
from xclp_lp.files.federation import FederationFile, load_federation
from xclp_lp.files.kept import sealed
from xclp_lp.files.toml import beside
from xclp_lp.flower.settings import RunSettings
from xclp_lp.forecast import forecast
from xclp_lp.memory import require_room
from xclp_lp.parameters import Settings, Shape
from xclp_lp.plan import Result
from xclp_lp.study.scores import scores_of
from xclp_lp.summary import (
    came_back_lines,
    dropout_lines,
    is_sound,
    plan_lines,
    result_lines,
    validation_lines,
)
from xclp_lp.wording import count, duration, size

NO_RANDOM_STATE = (
    "random_state is not set: every run draws another projection, so unsure labels may differ from "
    "run to run, and between back ends"
)


def run(
    federation: Annotated[
        Path, typer.Argument(help="A federation file; examples/quickstart/federation.toml is one.")
    ],
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the results instead of the file's output. It is relative to where you "
            "are; the file's output, by default results, is relative to the file.",
        ),
    ] = None,
    drop: Drop = None,
    report_file: ReportFile = None,
    png: PngFolder = None,
    keep: Keep = None,
    key_file: KeyFile = None,
) -> None:
    """Label your own data: one section per client in a federation file.

    Each section [clients.NAME] names a file of features (.npy, .npz, .csv, .parquet or .xlsx) and
    the labels: a column of the same file (label_column) or a file of their own (labels). Empty
    cells, and -1 where all labels are integers, mean unlabelled. Columns of tables are matched by
    name, and labels in a table of their own by id_column where both tables have it. A truth_column
    with labels that are only compared with the result gives an accuracy. The section
    [parameters] takes n_bits, k, alpha, hamming, classes, class_weight, threshold and the other
    arguments of CrossClientLabelPropagation, and [parameters.privacy] takes epsilon (each client
    randomises its labels), or epsilon, delta and noise_contributors (noise in the sums).

    Writes NAME.csv for each client that stays (id, label, given label, confidence, share of every
    class in the scores, not calibrated) and cost.json, which also says whose labels were counted. A
    labelled row may get another label; with reset_labelled = true it keeps its own. All parties run
    in this one process, with real encrypted messages: it shows what a federation computes and
    costs, and is for data that this machine may hold.
    """
    if output == "":
        raise ParameterError("--output must be the name of a folder, got ''")
    terminal.require_report(report_file, png)
    dropouts = terminal.parsed_drop(drop)
    loaded = _loaded(federation, output)
    results.require_writable(loaded, "" if output is None else f"--output {output}: ")
    if keep is None and key_file is not None:
        raise ParameterError("--key-file is the key of what --keep names")
    key = kept_key(keep, [c.name for c in loaded.clients], key_file)
    plan = loaded.plan()
    checked_drop(dropouts, plan.data)
    truth = loaded.truth(plan, dropouts)
    terminal.note(*plan_lines(plan, {c.name: c.columns for c in loaded.clients}))
    columns = loaded.clients[0].columns
    cautions = plan.cautions(columns)
    for caution in cautions:
        terminal.complain(caution)
    if plan.seed is None:
        terminal.note(NO_RANDOM_STATE)
    try:
        with terminal.StepReporter().showing() as progress:
            result = plan.run(progress=progress, drop=dropouts)
    except KeyboardInterrupt:
        terminal.complain("interrupted; nothing was written")
        raise
    written = results.write_results(loaded, result)
    if keep is not None and key is not None:
        _keep(keep, loaded, result, key)
    terminal.console.print(terminal.cost_table(result.cost))
    terminal.note(*dropout_lines(result.participation.dropouts), *result_lines(result))
    sound = is_sound(plan.params, result.predictions.values()) and not cautions
    for group, validation in result.validations.items():
        terminal.note(*validation_lines(validation, advise=sound), *came_back_lines(result, group))
        if plan.params.validation == "tune":
            terminal.console.print(settings_table(validation))
    if truth is not None:
        scores = scores_of(result, truth)
        rows = count(len(scores.truth), "unlabelled row")
        right = round(scores.accuracy("xclp") * len(scores.truth))
        terminal.note(f"{right:,} of {rows} came out right ({scores.accuracy('xclp'):.1%})")
    terminal.say(f"{count(len(written), 'file')} written to {loaded.output}")
    terminal.note(*results.file_lines(loaded, result))
    terminal.remind(cautions)
    terminal.write_report(
        lambda reports: reports.run_report(result, truth, columns), report_file, png
    )


def _keep(folder: Path, loaded: FederationFile, result: Result, key: LogKey) -> None:
    """Write what each client that stayed keeps."""
    files = {
        c.name: sealed(c.name, result.plan.params, c.columns, found, key)
        for c in loaded.clients
        if (found := result.predictions[c.name]).kept is not None
    }
    keep_files(folder, files)


def _loaded(federation: Path, output: str | None = None) -> FederationFile:
    with terminal.console.status("reading the clients' files"):
        loaded = load_federation(federation)
    return loaded if output is None else replace(loaded, output=beside(Path("--output"), output))


@with_settings("Without a file: ")
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
    *,
    settings: Settings,
    json_file: JsonFile = None,
) -> None:
    """Say what a run would cost in rounds, bytes, seconds and memory, and run nothing.

    Bytes are exact but for the columns of S, whose zeros do not travel. Seconds are those of one
    core of a server of 2023, right to a factor of two or three. A run that would not fit into
    memory is refused, with advice.
    """
    terminal.require_writable(json_file)
    groups: Mapping[str, tuple[str, ...]] = {}
    if federation is not None:
        _require_no_sizes(context)
        loaded = _loaded(federation)
        planned = loaded.plan()
        terminal.note(*plan_lines(planned))
        for caution in planned.cautions(loaded.clients[0].columns):
            terminal.complain(caution)
        if loaded.arguments.draws_groups:
            terminal.complain(
                "each run draws other groups; set random_state to plan those that it will have"
            )
        params, found, groups = planned.params, planned.forecast(), planned.groups
    else:
        params = settings.parameters(range(classes))
        names = client_names(clients, None)
        shape = Shape(
            dict.fromkeys(names, rows),
            dict.fromkeys(names, round(labelled * rows)),
            params.scaling.width(features),
        )
        require_room(params, shape)
        if not any(shape.labelled.values()):
            raise ParameterError(
                f"--labelled {labelled:g} of {count(rows, 'row')} leaves no label, so nothing can "
                "spread"
            )
        found = forecast(params, [shape])
    chosen = get_backend(params.hamming).name
    for table in terminal.forecast_tables(found, chosen):
        terminal.console.print(table)
    terminal.console.print(
        f"In all {size(found.bytes)} at most in {count(found.rounds, 'round')}, about "
        f"{duration(found.seconds)} and {size(found.memory)} of memory in one process.",
        highlight=False,
    )
    longest, network, flower = found.longest_message, Limits.max_message, RunSettings.max_message
    if longest > min(network, flower):
        terminal.complain(
            f"a client sends a message of {size(longest)}; at most {size(network)} is taken by "
            f"xclp serve, and {size(flower)} over Flower, unless max_message says more in the "
            "files of all parties"
        )
    shown = {"groups": {name: list(own) for name, own in groups.items()}} if groups else {}
    terminal.write_json(json_file, found.to_dict() | {"hamming": chosen} | shown)


def _require_no_sizes(context: typer.Context) -> None:
    """Refuse sizes beside a federation file, which has its own."""
    for name in context.params.keys() - {"federation", "json_file"}:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ParameterError(
                f"--{name.replace('_', '-')} is for a plan without a file; change it in the "
                "federation file"
            )
