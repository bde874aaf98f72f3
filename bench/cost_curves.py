"""Draws what each back end and each kind of sum costs over n, L and p, on logarithmic axes.

    python bench/cost_curves.py bench/cost_points.json docs/images

The points are those of bench/cost_points.py. Bytes and rounds of distances are drawn beyond them,
as dotted lines, from `estimate`, which tests equate with what is metered.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from cost_points import BACKENDS, SUMS, SWEEPS, Point, busiest, varied
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from xclp_crypto.protocols.hamming import estimate, get_backend

COLOURS = dict(
    zip((*BACKENDS, *SUMS), ["C7", *(f"C{i}" for i in (0, 2, 1, 4, 3, 5, 0, 2, 1))], strict=True)
)
MARKERS = dict(zip((*BACKENDS, *SUMS), "xosDv^PosD", strict=True))
AXES = {
    "rows": "rows of each client, n",
    "bits": "bits, L",
    "clients": "clients, p",
    "values": "values of each client",
    "groups": "clients, p",
    "session": "rows of each client, n",
}
NAMES = {"sum": "sum", "recover": "row sums, recover", "restart": "row sums, restart"}


def title(sweep: str) -> str:
    """Say what stays the same in a sweep."""
    fixed = {k: v for k, v in SWEEPS[sweep].items() if not isinstance(v, tuple)}
    words = {"n": "{} rows each", "bits": "L = {}", "p": "{} clients", "values": "{:,} values each"}
    return ", ".join(words[key].format(value) for key, value in fixed.items())


def most_of_a_link(links: Mapping[str, int]) -> int:
    return max(links.values())


def estimates(sweep: str, way: str) -> tuple[list[int], list[int], list[int]]:
    """Return the values of a sweep, and for each the bytes of the busiest link and the rounds."""
    key, values = varied(sweep)
    found = []
    for value in values:
        sizes = SWEEPS[sweep] | {key: value}
        clients = {f"client-{i}": sizes["n"] for i in range(sizes["p"])}
        cost = estimate(get_backend(way), clients, sizes["bits"])
        found.append((value, most_of_a_link(busiest(cost.bytes_per_link)), cost.rounds))
    x, size, rounds = zip(*found, strict=True)
    return list(x), list(size), list(rounds)


Panel = tuple[str, Callable[[Point], float]]
SECONDS: list[Panel] = [
    ("CPU seconds of a client", lambda q: q["client_seconds"]),
    ("CPU seconds of the server", lambda q: q["server_seconds"]),
]
TRAFFIC: list[Panel] = [
    ("MB on the busiest link", lambda q: most_of_a_link(q["link_bytes"]) / 1e6),
    ("rounds", lambda q: q["rounds"]),
]
MEMORY: Panel = ("peak memory of the process, GB", lambda q: q["memory"] / 1e9)


def finish(ax: Axes, sweep: str) -> None:
    """Mark the measured values on the horizontal axis, and powers of ten or a few on the other."""
    _, values = varied(sweep)
    ax.set_xticks(values, [f"{value:,}" for value in values])
    ax.xaxis.set_minor_locator(NullLocator())
    low, high = ax.get_ylim()
    if high < 30 * low:  # where powers of ten are one or none
        ticks = np.outer(10.0 ** np.arange(-9, 9), (1, 2, 3, 5, 7)).ravel()
        ax.set_yticks(ticks[(low <= ticks) & (ticks <= high)])
    ax.yaxis.set_major_formatter(
        FuncFormatter(lambda y, _: f"{y:,.0f}" if y >= 1 else f"{y:.9f}".rstrip("0"))
    )
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(AXES[sweep] if ax.get_subplotspec().is_last_row() else "")
    ax.grid(visible=True, alpha=0.3)


def grid(points: Sequence[Point], sweeps: Sequence[str], ways: Sequence[str]) -> Figure:
    """Return a column of panels for each sweep, on logarithmic axes."""
    panels = [*SECONDS, *TRAFFIC, MEMORY]
    size = (4 * len(sweeps) + 0.6, 2.6 * len(panels) + 1)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(panels), len(sweeps), sharex="col", sharey="row")
    for column, sweep in enumerate(sweeps):
        key, _ = varied(sweep)
        for row, (name, of) in enumerate(panels):
            ax = axes[row, column]
            for way in ways:
                for sparse in (False, True):
                    mine = [
                        q
                        for q in points
                        if (q["sweep"], q["way"], q["sparse"]) == (sweep, way, sparse)
                    ]
                    style = {"c": COLOURS[way], "marker": MARKERS[way], "ms": 5}
                    style |= {"ls": "--", "mfc": "none"} if sparse else {}
                    label = NAMES.get(way, way) + (", sparse" if sparse else "")
                    if mine:
                        x, y = [q[key] for q in mine], [of(q) for q in mine]
                        ax.loglog(x, y, label=label, **style)
                if way in BACKENDS and (name, of) in TRAFFIC:
                    x, size, rounds = estimates(sweep, way)
                    beyond = rounds if name == "rounds" else [s / 1e6 for s in size]
                    ax.loglog(x, beyond, ":", c=COLOURS[way])
            if name == MEMORY[0]:
                least = min(q["memory_before"] for q in points if q["sweep"] == sweep)
                ax.axhline(least / 1e9, c="black", lw=0.8, ls=":")
            finish(ax, sweep)
            ax.set_ylabel(name if column == 0 else "")
        axes[0, column].set_title(title(sweep), fontsize="medium")
    handles = {}
    for ax in axes.flat:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4)
    return figure


CIPHERTEXT = 2 * 3072 // 8
CLASSES = 10


def formulas(points: Sequence[Point]) -> Figure:
    """Return the counts of the paper's section 4.3, in bytes, and what was metered beside them.

    An integer of Z_L has log2 L bits, a ciphertext 768 bytes, an entry of S four and a score eight.
    """
    figure = Figure(figsize=(13, 5.4), layout="constrained")
    pair, shares, session = figure.subplots(1, 3)
    _, n = varied("rows")
    L = SWEEPS["rows"]["bits"]
    integer = (L - 1).bit_length() / 8
    for ax, counted in (
        (
            pair,
            {
                "§4.3, transfers: n·n·L integers": [r * r * L * integer for r in n],
                "§4.3, encryption: n·L + n·n ciphertexts": [
                    (r * L + r * r) * CIPHERTEXT for r in n
                ],
            },
        ),
        (shares, {"§4.3: n·n integers": [r * r * integer for r in n]}),
    ):
        for style, (label, size) in zip(("--", ":"), counted.items(), strict=False):
            ax.loglog(n, [s / 1e6 for s in size], style, c="black", label=label)
    for way in BACKENDS:
        mine = [q for q in points if (q["sweep"], q["way"]) == ("rows", way)]
        for ax, kind in ((pair, "client ↔ client"), (shares, "client ↔ server")):
            size = [q["link_bytes"].get(kind, 0) / 1e6 for q in mine]
            if any(size):
                style = {"c": COLOURS[way], "marker": MARKERS[way], "ms": 5, "lw": 1}
                ax.loglog([q["n"] for q in mine], size, label=way, **style)
    _, n = varied("session")
    p = SWEEPS["session"]["p"]
    mine = [q for q in points if q["sweep"] == "session"]
    for colour, label, counted, step, way in (
        (
            "C0",
            "columns of S received",
            [p * r * r // 10 * 4 for r in n],
            "propagation",
            "receives",
        ),
        ("C1", "scores sent", [p * r * CLASSES * 8 for r in n], "row sums", "sends"),
        ("C2", "scores received", [r * CLASSES * 8 for r in n], "row sums", "receives"),
    ):
        session.loglog(n, [s / 1e6 for s in counted], "--", c=colour, label=f"§4.3: {label}")
        size = [q["client_bytes"][step][way] / 1e6 for q in mine]
        session.loglog([q["n"] for q in mine], size, "o", c=colour, label=label)
    pair.set_title(f"between two clients, L = {L}", fontsize="medium")
    shares.set_title("between a client and the server, the same runs", fontsize="medium")
    session.set_title(f"a client after the distances, {title('session')}", fontsize="medium")
    for ax, sweep in ((pair, "rows"), (shares, "rows"), (session, "session")):
        finish(ax, sweep)
        ax.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    pair.set_ylabel("MB")
    return figure


def draw(file: Path, folder: Path) -> None:
    """Draw all figures from the points of a file."""
    points = json.loads(file.read_text("utf-8"))
    mpl.rcParams |= {"svg.hashsalt": "xclp", "svg.fonttype": "none"}
    for name, figure in {
        "distances": grid(points, ("rows", "bits", "clients"), BACKENDS),
        "sums": grid(points, ("values", "groups"), SUMS),
        "paper": formulas(points),
    }.items():
        figure.savefig(folder / f"costs-{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="from bench/cost_points.py")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    given = parser.parse_args()
    draw(given.file, given.folder)
