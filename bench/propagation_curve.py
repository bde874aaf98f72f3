"""Draws the cost of label propagation over the number of points, and prints it as a table.

python -m pytest bench/bench_propagation.py --benchmark-only --benchmark-json FILE
python bench/propagation_curve.py FILE docs/images/propagation.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

WAYS = {
    "seconds": "scores at once",
    "columns_seconds": "columns of labelled points",
    "dense_seconds": "dense inverse",
}
ALIKE = (10, 4096)  # k and bits of the runs that make one curve


def measured(file: Path) -> list[dict[str, Any]]:
    """Return what `xclp bench propagation` wrote, by the number of points."""
    runs = json.loads(file.read_text("utf-8"))["benchmarks"]
    return sorted((run["extra_info"]["result"] for run in runs), key=lambda run: run["n"])


def drawn(runs: list[dict[str, Any]]) -> Figure:
    """Return seconds and memory over n, on logarithmic axes."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    seconds, memory = figure.subplots(1, 2)
    for key, name in WAYS.items():
        curve = [r for r in runs if r.get(key) and (r["k"], r["bits"]) == ALIKE]
        (line,) = seconds.loglog(
            [r["n"] for r in curve], [r[key] for r in curve], marker="o", label=name
        )
        others = [r for r in runs if r.get(key) and (r["k"], r["bits"]) != ALIKE]
        seconds.loglog(
            [r["n"] for r in others], [r[key] for r in others], "s", mfc="none", c=line.get_color()
        )
    memory.loglog([r["n"] for r in runs], [r["peak_rss"] / 1e9 for r in runs], "o")
    seconds.set_ylabel("seconds from distances to scores")
    memory.set_ylabel("peak memory without the dense way, GB")
    for axes in (seconds, memory):
        axes.set_xlabel("points")
        axes.grid(visible=True, alpha=0.3)
    seconds.legend()
    return figure


def table(runs: list[dict[str, Any]]) -> str:
    """Return the same as Markdown."""
    head = "points|labelled|k|scores|columns|dense|dense / scores|dense / columns|peak memory"
    lines = [head, "|".join("---" for _ in head.split("|"))]
    for run in runs:
        times = [f"{run[k]:.3g} s" if run.get(k) else "–" for k in WAYS]
        ratios = [
            f"{run[k]:.3g}" if run.get(k) else "–"
            for k in ("ratio_to_dense", "columns_ratio_to_dense")
        ]
        sizes = [f"{run['n']:,}", f"{run['labelled']:,}", str(run["k"])]
        lines.append("|".join([*sizes, *times, *ratios, f"{run['peak_rss'] / 1e9:.2f} GB"]))
    return "\n".join("| " + " | ".join(line.split("|")) + " |" for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="from pytest-benchmark")
    parser.add_argument("image", type=Path, help="what to draw, .svg or .png")
    given = parser.parse_args()
    found = measured(given.file)
    mpl.rcParams |= {"svg.hashsalt": "xclp", "svg.fonttype": "none"}
    drawn(found).savefig(given.image, metadata={"Date": None})
    print(table(found))
