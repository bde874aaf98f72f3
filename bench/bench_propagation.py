"""The server's half, from distances to scores, beside dense matrices with a float64 inverse.

    make bench BENCH=bench/bench_propagation.py
    python -m pytest bench/bench_propagation.py --benchmark-only -m long

Vectors are clustered as `xclp_lp.study.benchmarks.clustered` says. Each size runs in a process of
its own, so that its peak memory is its own, and checks that all ways give the same labels.
"""

from __future__ import annotations

import json
import subprocess
import sys
from time import perf_counter

import pytest

CASES = {
    1000: (100, 4096, ()),
    2500: (100, 4096, ()),
    4000: (400, 4096, ()),
    8000: (800, 4096, ("--repeat", "1")),
    16000: (1600, 4096, ("--repeat", "1")),
    23247: (18597, 1024, ("-k", "3", "--repeat", "1")),
    100_000: (1000, 1024, ("--from-features", "--repeat", "1")),
}
"""By number of points: how many are labelled, bits, and options."""


@pytest.mark.parametrize(
    "n", [pytest.param(n, marks=[pytest.mark.long] if n > 4000 else []) for n in CASES]
)
@pytest.mark.benchmark(
    group="labels: a process from vectors to scores, the server's half", timer=perf_counter
)
def test_points(benchmark, record, tmp_path, n):
    labelled, bits, options = CASES[n]
    file = tmp_path / "result.json"
    sizes = ("--n", str(n), "--labelled", str(labelled), "--bits", str(bits))
    command = [sys.executable, "-m", "xclp_lp", "bench", "propagation", *sizes, *options]
    benchmark.pedantic(
        lambda: subprocess.run([*command, "--json", str(file)], check=True),  # noqa: S603
        rounds=1,
    )
    result = json.loads(file.read_text("utf-8"))
    assert result["identical_labels"]
    ways = {"scores": "seconds", "columns": "columns_seconds", "dense": "dense_seconds"}
    record(**{way: result[key] for way, key in ways.items() if result[key] is not None})
    benchmark.extra_info["result"] = result
