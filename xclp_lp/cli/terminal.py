"""What people see in the terminal, and the files that commands write besides: JSON and reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport.driver import Progress
from xclp_crypto.transport.meter import Cost
from xclp_crypto.whole_files import why_not_writable
from xclp_lp.files.results import write_json_file, write_or_keep
from xclp_lp.forecast import FAST, Forecast
from xclp_lp.wording import duration, shown, size

if TYPE_CHECKING:
    from xclp_lp.study.report import Report

console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


def say(*lines: str, style: str | None = None) -> None:
    """Print lines as they are: names of files and clients may look like markup."""
    for line in lines:
        console.print(line, style=style, highlight=False, markup=False, emoji=False, soft_wrap=True)


def note(*lines: str) -> None:
    """Print lines that are beside the result."""
    say(*lines, style="dim")


def complain(message: object) -> None:
    """Print one line of errors, whatever the libraries underneath put into their messages."""
    line = " ".join(str(message).splitlines())
    errors.print("xclp:", "".join(c if c.isprintable() else "\ufffd" for c in line))


def remind(cautions: Sequence[str]) -> None:
    """Repeat, after the results, what looked wrong before them."""
    for caution in cautions:
        complain(f"as said before the run, {shown(caution, 120)}")


def parsed_drop(options: Sequence[str] | None) -> dict[str, str]:
    """Return client and step of each option ``--drop``.

    Raises:
        ParameterError: an option has no colon, or a client occurs twice.
    """
    parsed = {}
    for option in options or ():
        client, colon, step = option.partition(":")
        if not colon:
            raise ParameterError(f"--drop must be CLIENT:STEP, got {option!r}")
        if client in parsed:
            raise ParameterError(f"--drop {option}: {client!r} drops out only once")
        parsed[client] = step
    return parsed


def require_writable(file: Path | None, option: str = "--json") -> None:
    """Refuse a file that cannot be written; None stands for no file.

    Raises:
        ParameterError: it is a folder, in a folder that is not there or not writable, or, as
            ``--json``, might be an input.
    """
    if file is None:
        return
    if file.is_dir():
        raise ParameterError(f"{option} must be the name of a file; {file} is a folder")
    if not file.parent.is_dir():
        raise ParameterError(f"{option} {file}: there is no folder {file.parent}")
    if reason := why_not_writable(file.parent, [file.name]):
        raise ParameterError(f"{option} {file}: {reason}")
    if option == "--json" and file.suffix.lower() != ".json":  # so that no input is overwritten
        raise ParameterError(f"{option} must end in .json, got {file}")


def write_json(file: Path | None, content: dict[str, Any]) -> None:
    """Write a file that is either complete or not there, and say so; None stands for no file.

    Raises:
        StorageError: it cannot be written there; names the folder where it is instead.
    """
    if file is not None:
        name = file.name
        write_or_keep(file.parent, lambda folder: write_json_file(folder / name, content))
        say(f"written to {file}")


def require_report(file: Path | None, folder: Path | None) -> None:
    """Refuse places of a report that cannot be written, and reports that cannot be made.

    Raises:
        ParameterError: what is wrong with ``--report`` or ``--png``, or what is not installed.
    """
    if file is None and folder is None:
        return
    require_writable(file, "--report")
    if file is not None and file.suffix.lower() not in (".html", ".htm"):
        # The name says what is in it, and no input of a run has such a name.
        raise ParameterError(f"--report {file}: the name of a report ends in .html")
    if folder is not None:
        existing = folder if folder.exists() else folder.parent
        if folder.exists() and not folder.is_dir():
            raise ParameterError(f"--png must be the name of a folder; {folder} is a file")
        if not existing.is_dir():
            raise ParameterError(f"--png {folder}: there is no folder {existing}")
        if reason := why_not_writable(existing):
            raise ParameterError(f"--png {folder}: {reason}")
    os.environ["MPLBACKEND"] = "agg"  # a notebook's, which commands inherit, may not be installed
    import xclp_lp.study.report  # noqa: F401  # says what to install, if anything


def write_report(make: Callable[[Any], Report], file: Path | None, folder: Path | None) -> None:
    """Make a report, write it and say so, where one was asked for.

    Args:
        make: takes `xclp_lp.study.report`, which is loaded only where it is needed.
        file: of the report, if any.
        folder: of its pictures, if any.
    """
    places = [place for place in (file, folder) if place is not None]
    if places:
        from xclp_lp.study import report

        with console.status("drawing"):
            make(report).write(file, folder)
        say(*(f"written to {place}" for place in places))


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
            self._status.update(str(progress))
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
