"""``xclp bench``: what `xclp_lp.study.benchmarks` measures, as tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from xclp_crypto.params import MAX_HASH_BITS
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_crypto.transport.driver import Progress
from xclp_lp.cli import terminal
from xclp_lp.cli.options import Alpha, Bits, JsonFile, Neighbours, Repeat
from xclp_lp.solvers import Solver
from xclp_lp.study.benchmarks import SumBench, bench_hamming, bench_propagation
from xclp_lp.summary import estimate_line
from xclp_lp.wording import count, size


def hamming(
    backend: Annotated[str, typer.Option(help=f"Back end: {', '.join(BACKENDS)}.")] = "rlwe",
    n: Annotated[int, typer.Option(min=1, help="Rows of the first client.")] = 500,
    m: Annotated[int, typer.Option(min=1, help="Rows of the second client.")] = 500,
    bits: Annotated[int, typer.Option(min=1, max=MAX_HASH_BITS, help="Bits of each row.")] = 4096,
    repeat: Repeat = 3,
    json_file: JsonFile = None,
) -> None:
    """Time distances between two clients, with the plain computation in the same run."""
    terminal.require_writable(json_file)
    if backend in BACKENDS:  # else the run itself refuses
        terminal.note(estimate_line(backend, {"client-0": n, "client-1": m}, bits))
    with terminal.StepReporter().showing() as progress:
        result = bench_hamming(backend, n, m, bits, repeat=repeat, progress=progress)
    _show(f"{backend}, {n} × {m} rows × {bits} bits", result)
    _finish(result, json_file, right=result["exact"])


MEASURES: dict[str, Callable[[dict[str, Any]], str]] = {
    "seconds, all parties": lambda found: f"{found['seconds']:.3f}",
    "clients in the sum": lambda found: f"{found['survivors']} of {found['clients']}",
    "bit comparisons per second": lambda found: f"{found['bit_comparisons_per_second']:.2e}",
    "bytes of all messages": lambda found: size(found["bytes"]),
    "bytes that a client sends": lambda found: size(found["upload_bytes_per_client"]),
    "masks of a client per second": lambda found: size(1e9 * found["mask_gb_per_s"]),
    "times as long as plain": lambda found: f"{found['ratio_to_plain']:.1f}",
    "peak memory": lambda found: size(found["peak_rss"]),
    "everything exact": lambda found: "yes" if found["exact"] else "NO",
}
"""What is shown of a measurement, as far as it has it."""


def _show(title: str, result: dict[str, Any]) -> None:
    table = terminal.table_of(title, "measure", "value")
    for name, shown in MEASURES.items():
        with suppress(KeyError):
            table.add_row(name, shown(result))
    terminal.console.print(table)


def _finish(result: dict[str, Any], json_file: Path | None, *, right: bool) -> None:
    terminal.write_json(json_file, result)
    if not right:
        raise typer.Exit(1)


def propagation(
    n: Annotated[int, typer.Option(min=2, help="Points.")] = 2500,
    labelled: Annotated[int, typer.Option(min=1, help="Labelled points.")] = 100,
    bits: Bits = 4096,
    k: Neighbours = 10,
    alpha: Alpha = 0.99,
    solver: Annotated[
        str, typer.Option(help=f"How the equations are solved: {', '.join(get_args(Solver))}.")
    ] = "auto",
    from_features: Annotated[
        bool,
        typer.Option(
            "--from-features",
            help="Start from vectors instead of distances, without a matrix of all distances.",
        ),
    ] = False,
    no_dense: Annotated[
        bool, typer.Option("--no-dense", help="Leave out the dense inverse: minutes, 32·n² bytes.")
    ] = False,
    repeat: Repeat = 3,
    json_file: JsonFile = None,
) -> None:
    """Time graph and propagation on clustered vectors, with a dense inverse in the same run."""
    terminal.require_writable(json_file)
    with terminal.StepReporter().showing() as reporter:
        result = bench_propagation(
            n,
            labelled,
            bits,
            k=k,
            alpha=alpha,
            solver=cast(Solver, solver),  # the run itself refuses others
            from_features=from_features,
            dense=not no_dense,
            repeat=repeat,
            progress=lambda what, done, total: reporter(
                Progress("this machine", "propagation", what, done, total)
            ),
        )
    table = terminal.table_of(
        f"{n:,} points, {labelled:,} labelled, {bits} bits, k = {k}",
        *("measure", "scores at once", "columns of labelled points", "dense inverse"),
    )

    def row(name: str, form: str, *keys: str) -> None:
        values = (result[key] if key else None for key in keys)
        table.add_row(name, *("–" if v is None else format(v, form) for v in values))

    start = "features" if from_features else "distances"
    row(f"seconds, {start} to scores", ".3f", "seconds", "columns_seconds", "dense_seconds")
    row("dense takes times as long", ".1f", "ratio_to_dense", "columns_ratio_to_dense", "")
    row("largest residual", ".1e", "residual", "columns_residual", "")
    row("solver", "", "solver", "columns_solver", "")
    terminal.console.print(table)
    terminal.say(
        f"{size(result['peak_rss'])} of memory at the peak, without the dense inverse; labels "
        + ("identical" if result["identical_labels"] else "DIFFERENT")
    )
    _finish(result, json_file, right=result["identical_labels"])


def sum_(
    clients: Annotated[int, typer.Option(min=2, help="Number of clients.")] = 10,
    n_values: Annotated[int, typer.Option("--size", min=1, help="Values of each client.")] = (
        1_000_000
    ),
    drop: Annotated[
        int, typer.Option(min=0, help="Clients that drop out when their masks are agreed on.")
    ] = 0,
    bits: Annotated[int, typer.Option(help="Bits of the ring: 32 or 64.")] = 64,
    threshold: Annotated[
        int | None, typer.Option(help="Fewest survivors; by default a majority, with --sparse 90%.")
    ] = None,
    sparse: Annotated[
        bool | None,
        typer.Option(
            "--sparse/--complete",
            help="Masks with few other clients or with all; by default few from 101 clients on.",
        ),
    ] = None,
    repeat: Repeat = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the values; keys stay random.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Time a secure sum of integers, with NumPy's sum of the same in the same run."""
    terminal.require_writable(json_file)
    plan = SumBench(clients, n_values, drop, bits, threshold, sparse)
    terminal.note(
        f"sum over {count(clients, 'client')}, each with {count(n_values, 'value')} modulo "
        f"2^{bits} and masks with {count(plan.graph.degree, 'other')}: {size(plan.total_bytes)} in "
        f"{count(plan.rounds, 'round')}, about {size(plan.memory)} of memory; at least "
        f"{plan.graph.threshold} must stay, {drop} drop out"
    )
    with terminal.StepReporter().showing() as progress:
        result = plan.run(repeat, seed, progress)
    _show(f"{clients} clients × {n_values:,} values × {bits} bits", result)
    _finish(result, json_file, right=result["exact"])
