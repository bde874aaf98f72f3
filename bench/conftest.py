"""What benchmarks say: seconds, bytes, rounds and messages, in one table at the end and as JSON.

A benchmark gives what a run cost to `record`. Its group is ``family: what and how much of it``, and
the table has the families in the order of `FAMILIES`. Seconds are medians of the timer of
``--benchmark-timer``, by default a clock; all parties run in one process. The JSON of
``--benchmark-json`` has the same numbers, what the machine is, but not its name, and versions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.utils import load_timer

from xclp_crypto.transport.meter import Cost

FAMILIES = (
    *("setup", "identities", "messages", "transfers", "triples", "distances", "boolean circuits"),
    *("sums", "means", "noise", "Paillier", "labels"),
)
PACKAGES = ("xclp", "numpy", "scipy", "gmpy2", "cryptography", "rbcl", "phe", "pytest-benchmark")
HEADS = ("benchmark", "seconds", "bytes", "rounds", "messages", "per second", "bytes each", "also")
BENCHMARKS = pytest.StashKey[list[dict[str, Any]]]()


@pytest.fixture
def record(benchmark: Any) -> Callable[..., None]:
    """Return what notes the cost of a run, how many items it made, and other numbers."""

    def note(cost: Cost | None = None, *, items: int | None = None, **also: float) -> None:
        if cost is not None:
            benchmark.extra_info |= {"bytes": cost.total_bytes, "rounds": cost.rounds}
            benchmark.extra_info["messages"] = cost.total_messages
        benchmark.extra_info |= ({} if items is None else {"items": items}) | also

    return note


@pytest.fixture
def beside(benchmark: Any, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return what times a function, and another one before each of its rounds.

    So their ratio holds when the machine's speed drifts. Returns the function's result, and the
    median of its seconds, or another average, over that of the other's.
    """
    timer = load_timer(request.config.getoption("benchmark_timer")).target

    def run(
        other: Callable[[], Any],
        function: Callable[..., Any],
        *args: Any,
        rounds: int,
        average: Callable[[list[float]], Any] = np.median,
    ) -> tuple[Any, float]:
        others: list[float] = []

        def before() -> tuple[tuple[Any, ...], dict[str, Any]]:
            started = timer()
            other()
            others.append(timer() - started)
            return args, {}

        found = benchmark.pedantic(function, setup=before, rounds=rounds)
        return found, float(average(benchmark.stats.stats.data) / average(others))

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse benchmarks without a family before anything runs."""
    for item in items:
        marker = item.get_closest_marker("benchmark")
        if marker and family(marker.kwargs.get("group")) not in FAMILIES:
            raise pytest.UsageError(f"{item.nodeid}: its group names none of {FAMILIES}")


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Say what the machine and the libraries are, but not the machine's name."""
    del machine_info["node"]
    machine_info |= circumstances() | {"packages": {name: version(name) for name in PACKAGES}}


def circumstances() -> dict[str, Any]:
    """Return what times depend on beside the processor."""
    threads = os.environ.get("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS"))
    return {"cores": os.cpu_count(), "load": os.getloadavg()[0], "threads": threads}


@pytest.hookimpl(wrapper=True)
def pytest_benchmark_group_stats(
    config: pytest.Config, benchmarks: list[dict[str, Any]]
) -> Iterator[None]:
    """Keep what was measured now for the table."""
    config.stash[BENCHMARKS] = [found for found in benchmarks if found["path"] is None]
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table after those of pytest-benchmark."""
    if found := config.stash.get(BENCHMARKS, []):
        timer, now = config.getoption("benchmark_timer"), circumstances()
        of = f"{now['cores']} cores, threads: {now['threads']}, load {now['load']:.1f}"
        terminalreporter.section(f"medians of {timer} ({of})")
        for line in table(found):
            terminalreporter.write_line(line)


def table(benchmarks: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, with a row for each group and each benchmark in it."""
    rows = [HEADS, ("---", *["---:"] * (len(HEADS) - 2), "---")]
    ordered = sorted(benchmarks, key=lambda b: (FAMILIES.index(family(b["group"])), b["group"]))
    for group, members in groupby(ordered, key=lambda b: b["group"]):
        rows.append((f"**{group}**", *[""] * (len(HEADS) - 1)))
        rows += map(cells, members)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *numbers, last in rows:
        middle = (cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True))
        yield f"| {' | '.join([first.ljust(widths[0]), *middle, last])} |"


def family(group: str | None) -> str:
    return (group or "").partition(":")[0]


def cells(benchmark: dict[str, Any]) -> tuple[str, ...]:
    """Return a benchmark's row."""
    also, seconds = dict(benchmark["extra_info"]), benchmark["median"]
    size, rounds, messages, items = (
        also.pop(key, None) for key in ("bytes", "rounds", "messages", "items")
    )
    name, _, case = benchmark["name"].removeprefix("test_").removesuffix("]").partition("[")
    return (
        name.replace("_", " ") + (case and f": {case}"),
        next(
            f"{seconds / unit:.3g} {name}"
            for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs"))
            if seconds >= unit or unit == 1e-6
        ),
        "–" if size is None else f"{size:,}",
        "–" if rounds is None else f"{rounds:,}",
        "–" if messages is None else f"{messages:,}",
        "" if items is None else f"{items / seconds:.3g}",
        "" if items is None or size is None else f"{size / items:.2f}",
        ", ".join(
            f"{key.replace('_', ' ')} {value:.3g}"
            for key, value in also.items()
            if isinstance(value, int | float)
        ),
    )
