"""Measures what each back end and each kind of sum costs over n, L and p, for the curves.

    python bench/cost_points.py bench/cost_points.json                      all of it
    python bench/cost_points.py bench/cost_points.json --only values,groups the others are kept

Each curve is measured in a process of its own, from the smallest size on, so that the largest
resident memory so far is that of the last size. Bytes, rounds and memory do not depend on what else
the machine does. Seconds are CPU seconds with one thread, the least of up to three runs, so that
other programs disturb them little; the load at the time is kept beside them. `MOST` says where the
curves of the slow back ends end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from time import process_time
from typing import Any

Point = dict[str, Any]

BACKENDS = ("plain", "masked", "rlwe", "shade-ext", "paillier-packed", "shade", "paillier")
SUMS = ("sum", "recover", "restart")
COLUMNS = 10
"""Of row sums; a value is an entry."""
AGAIN = 1.0
"""CPU seconds of a run below which it is repeated."""
FEWEST_SPARSE = 100
"""Clients from which on sparse sums are measured; with few of them they would be complete."""

SWEEPS: dict[str, dict[str, Any]] = {
    "rows": {"n": (3, 10, 30, 100, 300, 1000), "bits": 1024, "p": 2},
    "bits": {"n": 10, "bits": (64, 256, 1024, 4096), "p": 2},
    "clients": {"n": 10, "bits": 256, "p": (2, 3, 5, 10, 20, 50)},
    "values": {"values": (100, 1000, 10_000, 100_000, 1_000_000), "p": 10},
    "groups": {"values": 10_000, "p": (3, 10, 30, 100, 300)},
    "session": {"n": (20, 50, 100, 200, 500), "bits": 1024, "p": 5},
}
"""What is varied, a tuple, and what stays."""

MOST: dict[tuple[str, str], int] = {
    ("rows", "shade"): 10,
    ("rows", "paillier"): 30,
    ("bits", "shade"): 1024,
    ("bits", "paillier"): 1024,
    ("clients", "shade"): 5,
    ("clients", "paillier"): 5,
    ("clients", "paillier-packed"): 10,
}
"""Where a curve ends that would take longer than the others together."""


def varied(sweep: str) -> tuple[str, tuple[int, ...]]:
    """Return what a sweep varies, and its values."""
    return next((key, value) for key, value in SWEEPS[sweep].items() if isinstance(value, tuple))


def curves(sweep: str) -> Iterator[list[Point]]:
    """Yield the points of each curve, the cheapest first."""
    key, values = varied(sweep)
    for way in {"session": ("masked",), "values": SUMS, "groups": SUMS}.get(sweep, BACKENDS):
        most = MOST.get((sweep, way), values[-1])
        yield [
            SWEEPS[sweep] | {"sweep": sweep, "way": way, "sparse": False, key: value}
            for value in values
            if value <= most
        ]
    if sweep == "groups":
        for way in ("sum", "recover"):
            yield [
                SWEEPS[sweep] | {"sweep": sweep, "way": way, "sparse": True, key: value}
                for value in values
                if value >= FEWEST_SPARSE
            ]


def runner(point: Point) -> Callable[[], Any]:
    """Return what does one run and returns its `Cost`; the inputs exist already."""
    import numpy as np

    from xclp_crypto import secure_hamming, secure_row_sums, secure_sum

    rng = np.random.default_rng(0)
    p, way = point["p"], point["way"]
    if point["sweep"] == "session":
        from xclp_lp import CrossClientLabelPropagation
        from xclp_lp.study.benchmarks import clustered

        vectors, classes = clustered(p * point["n"], 0)
        shown = np.where(np.arange(len(classes)) % 10 == 0, classes, -1)
        Xs, ys = np.split(vectors, p), np.split(shown, p)
        estimator = CrossClientLabelPropagation(
            point["bits"], 10, hamming=way, random_state=0, classes=list(range(10))
        )
        return lambda: estimator.fit(Xs, ys).cost_
    if way in BACKENDS:
        bits = [rng.integers(0, 2, (point["n"], point["bits"]), dtype=np.uint8) for _ in range(p)]
        return lambda: secure_hamming(bits, way)[1]
    values = rng.integers(-1000, 1000, (p, point["values"])).astype(np.float64)
    if way == "sum":
        return lambda: secure_sum(list(values), sparse=point["sparse"]).cost
    rows = point["values"] // COLUMNS
    matrices = list(values.reshape(p, rows, COLUMNS))
    owned = np.array_split(np.arange(rows), p)
    sparse = None if way == "restart" else point["sparse"]
    return lambda: secure_row_sums(matrices, owned, mode=way, sparse=sparse).cost


def measure_here(point: Point) -> Point:
    """Run a point in this process, and return it with what it cost."""
    from xclp_crypto.transport import driver

    driver.perf_counter = process_time  # what parties spend, not how long they wait
    run = runner(point)
    before = rss()
    seconds: list[dict[str, float]] = []
    peak = 0
    while len(seconds) < 3:
        cost = run()
        peak = peak or rss()
        seconds.append(cost.seconds_by_party())
        if cost.total_seconds > AGAIN:
            break
    least = {party: min(s[party] for s in seconds) for party in seconds[0]}
    links: defaultdict[tuple[str, str], int] = defaultdict(int)
    for traffic, size in cost.bytes_sent.items():
        if traffic.step != "setup":
            links[traffic.sender, traffic.receiver] += size
    steps = {
        step: {
            "sends": max(cost.sent_by(c, step) for c in least if c != "server"),
            "receives": max(cost.received_by(c, step) for c in least if c != "server"),
        }
        for step in cost.steps
    }
    return point | {
        "client_seconds": max(s for party, s in least.items() if party != "server"),
        "server_seconds": least["server"],
        "link_bytes": busiest(links),
        "client_bytes": steps,
        "rounds": sum(cost.rounds_in(step) for step in cost.steps if step != "setup"),
        "memory": peak,
        "memory_before": before,
        "measured": f"{date.today()}",
        "load": round(os.getloadavg()[0], 1),
    }


def busiest(links: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Return the bytes of the links with most, both directions together, by kind of link."""
    both: defaultdict[tuple[str, ...], int] = defaultdict(int)
    for ends, size in links.items():
        both[tuple(sorted(ends))] += size
    kinds: dict[str, int] = {}
    for ends, size in both.items():
        kind = "client ↔ server" if "server" in ends else "client ↔ client"
        kinds[kind] = max(size, kinds.get(kind, 0))
    return kinds


def rss() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(file: Path, sweeps: list[str]) -> None:
    """Measure the curves of some sweeps, each in a new process; write the file after each."""
    kept: list[Point] = json.loads(file.read_text("utf-8")) if file.exists() else []
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    for sweep in sweeps:
        for curve in curves(sweep):
            print(sweep, curve[0]["way"], f"{len(curve)} points", file=sys.stderr, flush=True)
            done = subprocess.run(  # noqa: S603
                [sys.executable, __file__, "--curve", json.dumps(curve)],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                env=os.environ | threads,
            )
            found = [json.loads(line) for line in done.stdout.splitlines()]
            kept = [q for q in kept if curve_of(q) != curve_of(curve[0])] + found
            lines = ",\n".join(json.dumps(q, ensure_ascii=False) for q in kept)
            file.write_text(f"[\n{lines}\n]\n", "utf-8")


def curve_of(point: Point) -> tuple[str, str, bool]:
    """Return what the points of one curve have in common."""
    return point["sweep"], point["way"], point["sparse"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", help="where the points are, or will be")
    parser.add_argument("--only", default=",".join(SWEEPS), help="sweeps, with commas")
    parser.add_argument("--curve", type=json.loads, help="measure these points in this process")
    given = parser.parse_args()
    if given.curve is not None:
        for point in given.curve:
            print(json.dumps(measure_here(point), ensure_ascii=False), flush=True)
    elif given.file is None or not {*given.only.split(",")} <= {*SWEEPS}:
        parser.error(f"a file is needed, and sweeps are {', '.join(SWEEPS)}")
    else:
        measure(given.file, given.only.split(","))
