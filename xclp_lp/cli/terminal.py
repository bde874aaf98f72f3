"""What people see in the terminal: progress, and tables of costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.table import Table

from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.meter import Cost
from xclp_lp.cli.console import console
from xclp_lp.forecast import FAST, Forecast
from xclp_lp.wording import duration, size


class StepReporter:
    """Shows which party computes what: a live line in a terminal, a line per step elsewhere."""

    def __init__(self) -> None:
        self._steps: set[str] = set()
        self._status = console.status("starting")

    @contextmanager
    def showing(self) -> Iterator[StepReporter]:
        """Show progress inside the block."""
        if console.is_terminal:
            with self._status:
                yield self
        else:
            yield self

    def __call__(self, progress: Progress) -> None:
        """Take one report of a driver."""
        if console.is_terminal:
            share = f", {progress.done / progress.total:.0%}" if progress.total else ""
            self._status.update(f"{progress.step}: {progress.party}, {progress.activity}{share}")
        elif progress.step not in self._steps:
            console.print(f"  {progress.step} …", style="dim")
        self._steps.add(progress.step)


def table_of(title: str, *headings: str, left: int = 1, tight: bool = False) -> Table:
    """Return an empty table whose first columns are words and the others numbers.

    Args:
        title: above it.
        headings: of the columns.
        left: how many columns are words.
        tight: whether to save room for many columns.
    """
    table = Table(title=title, title_justify="left", pad_edge=not tight, collapse_padding=tight)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right")
    return table


def forecast_tables(found: Forecast, hamming: str) -> Iterator[Table]:
    """Lay out what a run will cost: by step, and the distances by back end."""
    table = table_of(
        "Cost by step: bytes of the client with most, at most; seconds of the server, of the "
        "slowest client and of all parties one after the other; memory of all in one process",
        *("step", "rounds", "sends", "receives", "server", "client", "all parties", "memory"),
        tight=True,
    )
    for name, step in found.steps.items():
        table.add_row(
            name,
            str(step.rounds),
            size(_most_of_clients(step.bytes_sent)),
            size(_most_of_clients(step.bytes_received)),
            f"{step.seconds.get(SERVER, 0.0):.1f} s",
            f"{_most_of_clients(step.seconds):.1f} s",
            f"{sum(step.seconds.values()):.1f} s",
            size(step.memory),
        )
    yield table
    others = table_of(
        "Distances by back end, all parties",
        *("back end", "server may\ncollude with", "rounds", "bytes", "seconds", "memory"),
        left=2,
        tight=True,
    )
    may = {"none": "sees the bits", "non-colluding": "no client", "2pc": "any clients"}
    for name, cost in found.back_ends.items():
        others.add_row(
            f"{name} (chosen)" if name == hamming else name,
            may[cost["trust"]],
            str(cost["rounds"]),
            size(cost["bytes"]),
            f"{cost['seconds']:.1f} s" if name in FAST else duration(cost["seconds"]),
            size(cost["memory"]),
        )
    yield others


def cost_table(cost: Cost) -> Table:
    """Lay out the cost by step: seconds, bytes per client and rounds."""
    table = table_of(
        "Cost by step: seconds of the server and of the slowest client, bytes of a client",
        *("step", "server", "client", "sends", "receives", "rounds"),
    )
    for step in [*cost.steps, None]:
        seconds = cost.seconds_by_party(step)
        sent, received = cost.bytes_by_party(step)
        if step is None:
            table.add_section()
        table.add_row(
            step or "all",
            f"{seconds.get(SERVER, 0.0):.3f} s",
            f"{_most_of_clients(seconds):.3f} s",
            size(_most_of_clients(sent)),
            size(_most_of_clients(received)),
            str(cost.rounds if step is None else cost.rounds_in(step)),
        )
    return table


def _most_of_clients(values: Mapping[str, float]) -> float:
    return max((value for party, value in values.items() if party != SERVER), default=0)
