"""``xclp predict``: labels for rows that come after a run, from what it kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from xclp_crypto.errors import ParameterError
from xclp_lp.cli import terminal
from xclp_lp.cli.keeping import KeyFile, read_key
from xclp_lp.files import results
from xclp_lp.files.later import NewRows, load_new_rows
from xclp_lp.files.toml import beside
from xclp_lp.labels import UNLABELLED
from xclp_lp.summary import outcome_lines, validation_lines
from xclp_lp.wording import count, listing


def predict(
    federation: Annotated[
        Path, typer.Argument(help="The federation file of xclp run --keep, with new_features.")
    ],
    keep: Annotated[
        Path, typer.Option(metavar="FOLDER", help="What xclp run --keep FOLDER has written.")
    ],
    key_file: KeyFile = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the results, relative to where you are, instead of new in the file's "
            "output.",
        ),
    ] = None,
) -> None:
    """Label rows that come after a run, from their distances to its rows; nothing is solved again.

    In the section [clients.NAME] of each client that has new rows, new_features names their file; a
    client without may leave it out. A client that was not in the run has new_features and no
    features. All else stays as it was, but hamming and threshold may change. The new rows must have
    the columns of the run; a column with labels or true labels is not used.

    Writes NAME.csv for each client that has new rows, and cost.json, as xclp run does.
    """
    if output == "":
        raise ParameterError("--output must be the name of a folder, got ''")
    key = read_key(f"--keep {keep}", key_file)
    with terminal.console.status("reading the clients' files"):
        loaded = load_new_rows(federation, keep, key)
    given = loaded.federation
    if output is not None:
        given = replace(given, output=beside(Path("--output"), output))
    results.require_writable(given, "" if output is None else f"--output {output}: ")
    terminal.note(*_lines(loaded))
    predictor = loaded.predictor
    try:
        with terminal.StepReporter().showing() as progress:
            found, cost = predictor.run(loaded.vectors, progress=progress)
    except KeyboardInterrupt:
        terminal.complain("interrupted; nothing was written")
        raise
    unlabelled = {c: np.full(len(own.class_ids), UNLABELLED) for c, own in found.items()}
    tables = {c: (unlabelled[c], own) for c, own in found.items() if len(own.class_ids)}
    written = results.write_tables(given, predictor.params.classes, tables, cost.to_dict())
    terminal.console.print(terminal.cost_table(cost))
    terminal.note(*predictor.cautions(loaded.vectors, loaded.columns))
    terminal.note(*outcome_lines(predictor.params, unlabelled, found))
    for members in predictor.groups.values():
        measured = [v for c in members if (v := predictor.results[c].validation) is not None]
        for validation in measured[:1]:
            shared = replace(validation, own_labels=0, own_right=0)
            terminal.note(*validation_lines(shared, advise=False))
    terminal.say(f"{count(len(written), 'file')} written to {given.output}")


def _lines(loaded: NewRows) -> list[str]:
    """Say what was understood, and what it spares."""
    new, old = sum(map(len, loaded.vectors.values())), loaded.old_rows
    everything = new + old
    lines = [
        f"{count(len(loaded.vectors), 'client')}, {count(new, 'new row')}, "
        f"{count(old, 'row')} of the session",
        f"{new * old:,} distances by {loaded.predictor.params.hamming}; a run of all rows has "
        f"{everything * (everything - 1) // 2:,}",
    ]
    if loaded.newcomers:
        lines.append(
            "not in the session, and told the projection and what scales; their confidences are "
            f"not calibrated as others' are: {listing(loaded.newcomers)}"
        )
    return lines
