"""What people see in the terminal: progress, and tables of costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from xclp_crypto.protocols.hamming import get_backend
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.simulate import Progress


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
            self._status.update(f"{progress.step}: {progress.party}, {progress.activity}")
        elif progress.step not in self._steps:
            self._console.print(f"  {progress.step} …", style="dim")
        self._steps.add(progress.step)


def size(n_bytes: float) -> str:
    """Write a number of bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} GB"


def estimate_line(hamming: str, sizes: Mapping[str, int], n_bits: int) -> str:
    """Say what the distances will cost, before anything is computed."""
    estimate = get_backend(hamming).estimate(sizes, n_bits)
    operations = ", ".join(f"{count:.2g} {kind}" for kind, count in estimate.operations.items())
    return (
        f"distances by {hamming}: {size(estimate.total_bytes)} in {estimate.rounds} "
        f"round{'s' * (estimate.rounds > 1)}, "
        f"about {size(estimate.memory_bytes)} of memory, {operations}"
    )


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
        clients = [party for party in cost.seconds_by_party() if party != SERVER]
        sent = max((cost.sent_by(c, step) for c in clients), default=0)
        received = max((cost.received_by(c, step) for c in clients), default=0)
        if step is None:
            table.add_section()
        table.add_row(
            step or "all",
            f"{seconds.get(SERVER, 0.0):.3f} s",
            f"{max((seconds.get(c, 0.0) for c in clients), default=0.0):.3f} s",
            size(sent),
            size(received),
            str(cost.rounds if step is None else cost.rounds_in(step)),
        )
    return table
