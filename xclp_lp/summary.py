"""What people see in the terminal: progress, and tables of costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from xclp_crypto.privacy import RandomizedResponse
from xclp_crypto.protocols.hamming import HammingBackend, get_backend
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.meter import Cost
from xclp_lp.forecast import MEASURED, OPERATION_SECONDS, Forecast
from xclp_lp.labels import UNLABELLED
from xclp_lp.session import Departure
from xclp_lp.wording import count, listing

if TYPE_CHECKING:  # these load scikit-learn
    from xclp_lp.cli.bench import SumPlan
    from xclp_lp.estimator import CrossClientLabelPropagation, Plan

LONG = 600.0
"""Seconds from which another back end is suggested."""


class StepReporter:
    """Shows which party computes what: a live line in a terminal, a line per step elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._steps: set[str] = set()
        self._status = console.status("starting")

    @contextmanager
    def showing(self) -> Iterator[StepReporter]:
        """Show progress inside the block."""
        if self._console.is_terminal:
            with self._status:
                yield self
        else:
            yield self

    def __call__(self, progress: Progress) -> None:
        """Take one report of a driver."""
        if self._console.is_terminal:
            share = f", {progress.done / progress.total:.0%}" if progress.total else ""
            self._status.update(f"{progress.step}: {progress.party}, {progress.activity}{share}")
        elif progress.step not in self._steps:
            self._console.print(f"  {progress.step} …", style="dim")
        self._steps.add(progress.step)


def size(n_bytes: float) -> str:
    """Write a number of bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.1f} GB"


def duration(seconds: float) -> str:
    """Write the order of a duration for people."""
    if seconds < 1:
        return "a second or less"
    for unit, length, most in (("second", 1, 60), ("minute", 60, 60), ("hour", 3600, 48)):
        if round(seconds / length) < most:
            return count(round(seconds / length), unit)
    days = seconds / 86400
    return count(round(days), "day") if days < 1000 else count(round(days / 365), "year")


def estimate_line(hamming: str | HammingBackend, sizes: Mapping[str, int], n_bits: int) -> str:
    """Say what the distances will cost, before anything is computed."""
    backend = get_backend(hamming)
    estimate = backend.estimate(sizes, n_bits)
    operations = ", ".join(f"{number:.2g} {kind}" for kind, number in estimate.operations.items())
    seconds = sum(
        OPERATION_SECONDS.get(kind, 0.0) * number for kind, number in estimate.operations.items()
    )
    line = (
        f"distances by {backend.name}: {size(estimate.total_bytes)} in "
        f"{count(estimate.rounds, 'round')}, about {size(estimate.simulation_bytes)} of memory, "
        f"{operations}"
    )
    if seconds:
        line += f"; roughly {duration(seconds)} on one core"
    if seconds > LONG:
        line += "; rlwe and masked are much faster"
    return line


def sum_line(plan: SumPlan) -> str:
    """Say what a sum will cost, before anything is computed."""
    graph = plan.graph
    return (
        f"sum over {count(len(graph.clients), 'client')}, each with {count(plan.size, 'value')} "
        f"modulo 2^{plan.codec.modulus.bit_length() - 1} and masks with "
        f"{count(graph.degree, 'other')}: {size(plan.total_bytes)} in "
        f"{count(plan.rounds, 'round')}, about {size(plan.memory)} of memory; "
        f"at least {graph.threshold} must stay, {plan.drop} vanish"
    )


def plan_lines(
    plan: Plan, columns: Mapping[str, Sequence[str] | None] | None = None
) -> Iterator[str]:
    """Say what was understood and what it will cost, before anything is computed.

    Args:
        plan: data and parameters.
        columns: names of the features by client, None where they have none.
    """
    data, classes = plan.data, plan.params.classes
    shapes = [own.vectors.shape for own in data.values()]
    rows = sum(n for n, _ in shapes)
    yield f"{count(len(data), 'client')}, {count(rows, 'row')}, {count(shapes[0][1], 'feature')}"
    clients: dict[tuple[str, ...], list[str]] = {}
    for client, names in (columns or {}).items():
        if names is not None:
            clients.setdefault(tuple(names), []).append(client)
    for names, owners in clients.items():
        whose = "" if len(owners) == len(data) else f" of {listing(owners)}"
        yield f"features{whose}: {listing(names)}"
    yield f"{count(len(classes), 'class', 'classes')}: {listing(classes, 10)}"
    labelled = {c: int((own.codes != UNLABELLED).sum()) for c, own in data.items()}
    without = [client for client, number in labelled.items() if not number]
    line = f"{sum(labelled.values()):,} of {count(rows, 'row')} labelled"
    yield line + f"; clients without labels: {listing(without, 5)}" * bool(without)
    params = plan.params
    if params.class_weight is not None:
        yield "labels weigh 1/(labels of their class), totals that the server does not learn"
    if isinstance(params.privacy, RandomizedResponse):
        yield (
            f"every client randomises its labels, which are {params.privacy.epsilon:g}-"
            "differentially private whoever looks"
        )
    if params.noise is not None:
        asked = params.noise
        yield (
            f"labels are ({asked.epsilon:g}, {asked.delta:g})-differentially private while the "
            f"noise of {count(asked.noise_contributors, 'client')} is unknown to whoever looks"
        )
    if params.threshold is not None:
        yield f"goes on without clients that vanish, down to {params.threshold:,}"
    groups = plan.shapes()
    if len(groups) > 1:
        sizes = [len(own) for own in plan.groups.values()]
        yield (
            f"{len(groups)} groups of {min(sizes)} to {count(max(sizes), 'client')}, each a "
            f"federation of its own: {listing(tuple(plan.groups), 10)}"
        )
        if len(groups) <= 10:
            for name, own in plan.groups.items():
                yield f"{name}: {listing(own, 10)}"
        yield "the largest:"
    largest = max(groups, key=lambda own: own.n)
    yield estimate_line(plan.params.hamming, largest.rows, plan.params.n_bits)


def departure_lines(departures: Sequence[Departure]) -> Iterator[str]:
    """Say who vanished, when, and what that means."""
    for gone in departures:
        yield f"{gone.client} vanished before the end of the step {gone.step!r}: {gone.effect}."


def relabelled_lines(
    given: Sequence[NDArray[np.int64]], got: Sequence[NDArray[np.int64]]
) -> Iterator[str]:
    """Say how many labelled rows got another label than their own, or none.

    Args:
        given: per client, (n_j,) class indices, −1 for rows that had no label.
        got: the same after the run.
    """
    pairs = [(a[a != UNLABELLED], b[a != UNLABELLED]) for a, b in zip(given, got, strict=True)]
    labelled = sum(len(a) for a, _ in pairs)
    lost = sum(int((b == UNLABELLED).sum()) for _, b in pairs)
    changed = sum(int((a != b).sum()) for a, b in pairs) - lost
    what = [f"{changed:,} got another label"] * bool(changed) + [f"{lost:,} got none"] * bool(lost)
    if what:
        yield (
            f"of {count(labelled, 'labelled row')} {' and '.join(what)}; reset_labelled = true "
            "keeps the given ones"
        )


def neglected_lines(
    classes: Sequence[Any],
    given: Sequence[NDArray[np.int64]],
    got: Sequence[NDArray[np.int64]],
    advice: str,
) -> Iterator[str]:
    """Say which classes got less than a quarter of the unlabelled rows that their labels suggest.

    A class can lose nearly all its rows to one that has three times as many labels.

    Args:
        classes: their names.
        given: per client, (n_j,) class indices, −1 for rows that had no label.
        got: the same after the run.
        advice: ends each line.
    """
    before, after = np.concatenate(list(given)), np.concatenate(list(got))
    labels = before[before != UNLABELLED]
    found = after[(before == UNLABELLED) & (after != UNLABELLED)]
    for index, name in enumerate(classes):
        mine, came = int((labels == index).sum()), int((found == index).sum())
        if mine and 4 * came * len(labels) < mine * len(found):
            yield (
                f"{name!r} has {mine:,} of {count(len(labels), 'label')} and came out for {came:,} "
                f"of {count(len(found), 'unlabelled row')}{advice}"
            )


def participation(fitted: CrossClientLabelPropagation) -> dict[str, Any]:
    """Return for a file whose labels were counted, and who vanished, when, with what effect."""
    groups = {name: list(own) for name, own in fitted.groups_.items()}
    return ({"groups": groups} if groups else {}) | {
        "contributors": list(fitted.contributors_),
        "departures": [asdict(gone) | {"effect": gone.effect} for gone in fitted.departures_],
    }


def forecast_tables(found: Forecast, hamming: str) -> Iterator[Table]:
    """Lay out what a run will cost: by step, and the distances by back end."""
    table = Table(
        title="Cost by step: bytes of the client with most, at most; seconds of the server, of the "
        "slowest client and of all parties one after the other; memory of all in one process",
        title_justify="left",
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in (
        *("step", "rounds", "sends", "receives"),
        *("server", "client", "all parties", "memory"),
    ):
        table.add_column(heading, justify="left" if heading == "step" else "right")

    def of_clients(values: Mapping[str, float]) -> float:
        return max((v for party, v in values.items() if party != SERVER), default=0)

    for name, step in found.steps.items():
        table.add_row(
            name,
            str(step.rounds),
            size(of_clients(step.sent)),
            size(of_clients(step.received)),
            f"{step.seconds.get(SERVER, 0.0):.1f} s",
            f"{of_clients(step.seconds):.1f} s",
            f"{sum(step.seconds.values()):.1f} s",
            size(step.memory),
        )
    yield table
    others = Table(
        title="Distances by back end, all parties",
        title_justify="left",
        pad_edge=False,
        collapse_padding=True,
    )
    collusion = "server may\ncollude with"
    for heading in ("back end", collusion, "rounds", "bytes", "seconds", "memory"):
        left = heading in ("back end", collusion)
        others.add_column(heading, justify="left" if left else "right")
    may = {"none": "sees the bits", "non-colluding": "no client", "2pc": "any clients"}
    for name, cost in found.back_ends.items():
        others.add_row(
            f"{name} (chosen)" if name == hamming else name,
            may[cost["trust"]],
            str(cost["rounds"]),
            size(cost["bytes"]),
            f"{cost['seconds']:.1f} s" if name in MEASURED else duration(cost["seconds"]),
            size(cost["memory"]),
        )
    yield others


def cost_table(cost: Cost) -> Table:
    """Lay out the cost by step: seconds, bytes per client and rounds."""
    table = Table(
        title="Cost by step: seconds of the server and of the slowest client, bytes of a client",
        title_justify="left",
    )
    for heading in (
        "step",
        "server",
        "client",
        "sends",
        "receives",
        "rounds",
    ):
        table.add_column(heading, justify="left" if heading == "step" else "right")
    for step in [*cost.steps, None]:
        seconds = cost.seconds_by_party(step)
        clients = [party for party in seconds if party != SERVER]
        sent, received = cost.bytes_by_party(step)
        if step is None:
            table.add_section()
        table.add_row(
            step or "all",
            f"{seconds.get(SERVER, 0.0):.3f} s",
            f"{max((seconds.get(c, 0.0) for c in clients), default=0.0):.3f} s",
            size(max((n for party, n in sent.items() if party != SERVER), default=0)),
            size(max((n for party, n in received.items() if party != SERVER), default=0)),
            str(cost.rounds if step is None else cost.rounds_in(step)),
        )
    return table
