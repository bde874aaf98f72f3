"""``xclp tune``: how good several settings are, on one computation of distances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from xclp_lp.accuracy import FEWEST_TO_ADVISE, WORTH_SAYING, Validation
from xclp_lp.alone import accuracies_alone
from xclp_lp.cli import terminal
from xclp_lp.cli.options import JsonFile
from xclp_lp.files.federation import load_federation
from xclp_lp.parameters import Parameters
from xclp_lp.plan import Plan, Result
from xclp_lp.scaling import Scale
from xclp_lp.session import ClientData
from xclp_lp.summary import plan_lines, validation_lines

CHOOSING = (
    "Choose another setting only where it is better by more than the ±: on nine data sets choosing "
    "the best of such a table was no better than the defaults."
)


def tune(
    federation: Annotated[Path, typer.Argument(help="A federation file, as for xclp run.")],
    scales: Annotated[
        bool,
        typer.Option(
            "--scales",
            help="Also run with each client scaling its own features, or with shared scaling where "
            "the file says otherwise: a second computation of distances.",
        ),
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Compare settings without knowing the truth, and write no labels.

    Every labelled row is scored as if it had no label, with several alpha, class weights and
    client_prior, on the distances of one run; and each client is compared with what it would reach
    alone. In a federation validation = "tune" in the files of all parties does the same.
    """
    terminal.require_writable(json_file)
    with terminal.console.status("reading the clients' files"):
        loaded = load_federation(federation)
        planned = loaded.plan()
    plan = replace(planned, params=replace(planned.params, validation="tune"))
    terminal.note(*plan_lines(plan))
    with terminal.StepReporter().showing() as progress:
        result = plan.run(progress=progress)
    for group, found in result.validations.items():
        if plan.grouped:
            terminal.say(f"{group}:")
        terminal.note(*validation_lines(found))
        terminal.console.print(settings_table(found))
    terminal.note(CHOOSING)
    other = _other_scale(plan, result) if scales else {}
    for line in scale_lines(other):
        terminal.say(line)
    with terminal.console.status("each client alone"):
        alone = {name: accuracies_alone(own, plan.params) for name, own in plan.data.items()}
    terminal.console.print(alone_table(_together(result), alone))
    shown = _to_dict(plan, result, alone) | ({"scales": other} if other else {})
    terminal.write_json(json_file, shown)


def _other_scale(plan: Plan, result: Result) -> dict[str, tuple[int, int]]:
    """Run with the other scale, and return labels and how many came back by scale, this one first.

    Over all groups.
    """
    scale: Scale = "client" if plan.params.shared_scale else "shared"
    params = replace(plan.params, scale=scale, validation="leave-one-out")
    with terminal.StepReporter().showing() as progress:
        second = replace(plan, params=params).run(progress=progress)
    found = {plan.params.scale: result, scale: second}
    return {
        name: (
            sum(v.n_labels for v in own.validations.values()),
            sum(int(v.right[v.used].sum()) for v in own.validations.values()),
        )
        for name, own in found.items()
    }


def scale_lines(found: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """Say which of two scales brings more labels back, where there are enough to tell.

    Args:
        found: by scale, labels and how many came back; that of the run first. None, or two.
    """
    if not found:
        return
    (used, (n, before)), (other, (labels, after)) = found.items()
    line = f"scale = {used!r} brings back {before:,} of {n:,} labels, {other!r} {after:,}"
    if labels < FEWEST_TO_ADVISE:
        yield f"{line}: too few labels to tell which is better"
    elif after - before >= WORTH_SAYING * labels:
        yield f"{line}: set scale = {other!r}"
    else:
        yield f"{line}: keep it"


def settings_table(found: Validation) -> Table:
    """Return the settings that were compared, the best first."""
    error = "" if found.error is None else f", each ± {100 * found.error:.3g} points"
    table = terminal.table_of(
        f"Share of {found.n_labels:,} labels that come back when they are left out{error}",
        *("alpha", "class_weight", "client_prior", "of all", "mean of classes", ""),
        left=3,
    )
    for setting in sorted(found.right, key=lambda s: -int(found.right[s].sum())):
        table.add_row(
            *(f"{setting.alpha:g}", setting.class_weight, setting.client_prior),
            f"{found.accuracy(setting):.1%}",
            f"{found.balanced_accuracy(setting):.1%}",
            "of this run" if setting == found.used else "",
        )
    return table


def alone_table(
    together: Mapping[str, tuple[int, int]], alone: Mapping[str, Mapping[str, float]]
) -> Table:
    """Return what each client reaches with the others and alone.

    Args:
        together: by client, its labels, and how many of them came back.
        alone: by client, what `accuracies_alone` returns.
    """
    methods = list(next(iter(alone.values())))
    table = terminal.table_of(
        "Labels of each client that come back, with the others and alone",
        *("client", "labels", "together", *methods),
    )
    for client, (labels, right) in together.items():
        shares = [right / labels if labels else np.nan, *alone[client].values()]
        cells = ("" if np.isnan(share) else f"{share:.0%}" for share in shares)
        table.add_row(client, f"{labels:,}", *cells)
    return table


def show_own(name: str, found: Validation, data: ClientData, params: Parameters) -> None:
    """Print both tables for one client of a federation."""
    terminal.console.print(settings_table(found))
    with terminal.console.status("this client alone"):
        alone = accuracies_alone(data, params)
    together = {name: (found.own_labels, found.own_right)}
    terminal.console.print(alone_table(together, {name: alone}))


def _together(result: Result) -> dict[str, tuple[int, int]]:
    found = {name: own.validation for name, own in result.predictions.items()}
    return {name: (v.own_labels, v.own_right) for name, v in found.items() if v is not None}


def _to_dict(
    plan: Plan, result: Result, alone: Mapping[str, Mapping[str, float]]
) -> dict[str, object]:
    known = {
        name: {method: None if np.isnan(share) else share for method, share in own.items()}
        for name, own in alone.items()
    }
    return {
        "validation": {group: found.to_dict() for group, found in result.validations.items()},
        "alone": known,
        "labels": {name: own for name, (own, _) in _together(result).items()},
        "parameters": {"k": plan.params.k, "gamma": plan.params.gamma},
    }
