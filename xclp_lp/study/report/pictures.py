"""The pictures of a report: drawn once, as SVG for the page and as PNG for everything else.

They are drawn for a light page, which turns their colours where the reader prefers dark. All names
are drawn as they are, never read as mathematics or markup.

Methods are called by their names for people, in the same order and so with the same looks in all
pictures of a report.
"""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from textwrap import fill
from typing import Any

import matplotlib.style
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from xclp_crypto.protocols.setup import SERVER
from xclp_lp.accuracy import Coverage
from xclp_lp.study.experiments.rounds import Course, Holdings
from xclp_lp.study.scores import BINS, Bins
from xclp_lp.study.views import RunRecord
from xclp_lp.wording import count, shown

WIDTH = 4.5
"""Inches of every picture: narrow, so that text keeps its size on a telephone."""

NAMED = 40
"""Most clients that a picture shows by name."""

RING = 24
"""Most clients that are drawn in the picture of the parties."""

Called = tuple[str, Sequence[str]]
"""What all rows or columns of a matrix are, and what each is called."""

LOOKS = cycler(linestyle=["-", "--", ":", "-."]) * (
    cycler(color=["#0b57c9", "#b35300", "#1a7f37", "#7a3fc2", "#7d5a1e", "#bf2f74"])
    + cycler(marker=["o", "s", "D", "^", "v", "P"])
)
"""Looks of methods, no two alike; markers are hollow, so that one does not hide another."""

STYLE: dict[str, Any] = {
    "font.size": 9.5, "font.sans-serif": ["DejaVu Sans", "Verdana"],  # of the same widths
    "text.parse_math": False,
    "axes.prop_cycle": LOOKS, "axes.grid": True, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "grid.alpha": 0.5,
    "axes.titlesize": "medium",
    "lines.markerfacecolor": "none", "lines.markersize": 5, "errorbar.capsize": 2,
    "legend.frameon": False, "legend.fontsize": 8.5, "legend.handlelength": 2.5,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200, "svg.fonttype": "none", "svg.hashsalt": "xclp",
}  # fmt: skip


@contextmanager
def _styled() -> Iterator[None]:
    """Draw with this style, whatever the user's own is; names may have letters the font lacks."""
    with matplotlib.style.context(["default", STYLE]), warnings.catch_warnings():
        # The page writes such letters in the reader's fonts, and the table beside has them too.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        yield


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes:
        name: of its file, without ending.
        alt: what it shows, for those who do not see it.
        figure: the drawing.
    """

    name: str
    alt: str
    figure: Figure

    def __post_init__(self) -> None:
        # Lay it out once: a second time, nothing is where it was, and files would differ.
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")

    def svg(self) -> str:
        """Return it as SVG without a ground, which asks for no other file."""
        unsaid = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        text = self._saved("svg", transparent=True, metadata=unsaid).decode()
        return text[text.index("<svg") :]

    def png(self) -> bytes:
        """Return it as PNG, on light ground."""
        return self._saved("png")

    def _saved(self, form: str, **options: Any) -> bytes:
        file = io.BytesIO()
        with _styled():
            self.figure.savefig(file, format=form, **options)
        return file.getvalue()


def _axes(height: float, **options: Any) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height))
    return figure, figure.add_subplot(**options)


def _shares(axes: Axes, along: str) -> None:
    """Write percentages along "x" or "y", which bars of deviations do not widen."""
    axis = axes.xaxis if along == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(PercentFormatter(1.0))
    axes.set(**{f"{along}lim": np.clip(axis.get_view_interval(), -0.02, 1.02)})


@_styled()
def shares(
    name: str,
    rows: Called,
    found: Mapping[str, Sequence[float] | NDArray[np.float64]],
    leading: str,
    measured: str,
) -> Picture:
    """Draw shares of each row side by side, by name where there are not too many rows.

    `found` has by what is marked alike, such as a method, the shares of all rows, which are sorted
    by the `leading` one; `measured` says what they are shares of.
    """
    n, few = len(rows[1]), len(rows[1]) <= NAMED
    own = np.asarray(found[leading])
    order = np.argsort(own, kind="stable")
    figure, axes = _axes(1.3 + 0.32 * n if few else 4, ylabel=rows[0], xlabel=measured)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.7, n - 0.3))
    sizes = np.linspace(7, 4, len(found)) * (1 if few else 0.5)
    for marked, look, marker_size in zip(found, LOOKS(), sizes, strict=False):
        look |= {"linestyle": "", "markersize": marker_size, "rasterized": not few}
        axes.plot(np.asarray(found[marked])[order], range(n), label=marked, **look)
    _shares(axes, "x")
    if few:
        names = [shown(rows[1][i]) for i in order]
        axes.set_yticks(range(n), [fill(x, 18, max_lines=2, placeholder="…") for x in names])
    figure.legend(loc="outside upper left", ncols=2)
    return Picture(
        name,
        f"{measured} of {n} {rows[0]}; {leading} from {own.min():.0%} to {own.max():.0%}.",
        figure,
    )


@_styled()
def confidence(bins: Bins) -> Picture:
    """Draw how many rows have which confidence, and how many of their labels are right.

    The last is not drawn where it is not known.
    """
    figure = Figure(figsize=(WIDTH, 3.8))
    above, below = figure.subplots(2, sharex=True, height_ratios=(2, 1))
    centres, used = (np.arange(BINS) + 0.5) / BINS, bins.rows > 0
    if bins.right is not None:
        right = bins.right / np.maximum(bins.rows, 1)
        above.bar(centres, right, 0.085, alpha=0.75, label="right labels")
    means = bins.confidence[used]
    above.plot(centres[used], means, "D", color="C1", markerfacecolor="C1", label="mean confidence")
    above.set_ylim(0, 1.05)
    _shares(above, "y")
    below.bar(centres, bins.rows, 0.085, color="grey")
    below.set(xlim=(0, 1), xlabel="confidence", ylabel="rows")
    below.yaxis.set_major_formatter("{x:,.0f}")
    figure.legend(loc="outside upper left", ncols=2)
    sure = f"{bins.rows[BINS // 2 :].sum():,} of {bins.rows.sum():,}"
    return Picture("confidence", f"Rows by confidence: {sure} have one of at least 0.5.", figure)


@_styled()
def coverage(name: str, found: Sequence[Coverage]) -> Picture:
    """Draw how many labels are right if only the surest are kept, and how far that may be off."""
    figure, axes = _axes(3.2, xlabel="rows that keep a label", ylabel="estimated accuracy")
    shares, right = [own.share for own in found], [own.accuracy for own in found]
    up = [min(own.error, 1 - own.accuracy) for own in found]
    bars = [[own.error for own in found], up]
    axes.errorbar(shares, right, yerr=bars, marker="o", capsize=3)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.05))
    _shares(axes, "x")
    _shares(axes, "y")
    last = found[-1]
    return Picture(
        name,
        f"Estimated accuracy {right[0]:.0%} over all rows, and {last.accuracy:.0%} over the "
        f"{last.share:.0%} that are surest.",
        figure,
    )


@_styled()
def counts(
    name: str, alt: str, numbers: NDArray[np.int64], rows: Called, columns: Called
) -> Picture:
    """Draw a matrix of counts; a cell is the darker the larger its share of its row."""
    n, m = numbers.shape
    written = n <= NAMED and m <= 12
    figure, axes = _axes(1.4 + (0.26 * n if written else 3.4), ylabel=rows[0], xlabel=columns[0])
    share = numbers / np.maximum(numbers.sum(axis=1, keepdims=True), 1)
    # Never so dark that the ink of the numbers is lost.
    axes.imshow(share, "Blues", aspect="auto", interpolation="nearest", vmin=0, vmax=1.7)
    axes.grid(visible=False)
    if written:
        for (i, j), value in np.ndenumerate(numbers):
            words = f"{value}" if value < 10_000 else f"{value // 1000}k"
            axes.text(j, i, words if value else "", ha="center", va="center", fontsize=8)
        axes.set_yticks(range(n), [shown(c, 18) for c in rows[1]])
        axes.set_xticks(range(m), [shown(c, 14) for c in columns[1]], rotation=60, ha="right")
    return Picture(name, alt, figure)


@_styled()
def costs(steps: Sequence[str], sent: NDArray[Any], seconds: NDArray[Any]) -> Picture:
    """Draw bytes sent and seconds by step: of the server, and the range of the clients.

    Both arrays have shape (steps, 4): of the server, and least, median and most of the clients.
    What is 0 has no mark.
    """
    figure = Figure(figsize=(WIDTH, 4.2))
    panels, places = figure.subplots(2, sharey=True), np.arange(len(steps))
    for axes, values, title, unit in zip(
        panels, (sent, seconds), ("bytes sent by a party", "seconds of a party"), "Bs", strict=True
    ):
        server, least, middle, most = values.T
        bars = (middle - least, most - middle)
        axes.errorbar(middle, places, xerr=bars, fmt="o", label="clients: median and range")
        axes.plot(server, places, "s", label="server")
        axes.set(xscale="log", title=title)
        low, high = np.log10(axes.get_xlim())  # at least two powers of ten, which have the ticks
        axes.set_xlim(10 ** np.floor(low), 10 ** np.ceil(high))
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
        axes.xaxis.set_major_formatter(EngFormatter(unit))
        axes.minorticks_off()
        axes.set_yticks(places, steps)
    axes.set_ylim(len(steps) - 0.5, -0.5)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    largest, longest = (steps[values.max(axis=1).argmax()] for values in (sent, seconds))
    return Picture(
        "cost",
        f"Bytes and seconds by step; a party sends most bytes in the step {largest}, and computes "
        f"longest in {longest}.",
        figure,
    )


@_styled()
def parties(record: RunRecord) -> Picture:
    """Draw the clients around the server, and lines where bytes went."""
    links: Counter[frozenset[str]] = Counter()
    for traffic, number in record.cost.bytes_sent.items():
        links[frozenset((traffic.sender, traffic.receiver))] += number
    total = {client: links[frozenset((client, SERVER))] for client in record.rows}
    most = sorted(total.values(), reverse=True)[:RING]
    drawn = [client for client, own in total.items() if own >= most[-1]][:RING]
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(drawn)) / len(drawn)
    place = dict(zip(drawn, zip(np.cos(angles), np.sin(angles), strict=True), strict=True))
    figure, axes = _axes(3.8, aspect="equal", xlim=(-1.75, 1.75), ylim=(-1.2, 1.2))
    axes.axis("off")
    axes.set_title("solid: with the server\ndashed: between clients, sealed, through the server")
    for pair in combinations(drawn, 2):
        if frozenset(pair) in links:
            x, y = zip(*(place[client] for client in pair), strict=True)
            axes.plot(x, y, "--", color="C1", lw=0.8, alpha=0.5)
    for client, (x, y) in place.items():
        width = 3.5 * np.log1p(total[client]) / np.log1p(most[0])
        filled = "C0" if client in record.contributors else "white"
        axes.plot((0, x), (0, y), "-", color="C0", lw=width)
        axes.plot(x, y, "o", color="C0", markersize=11, markerfacecolor=filled)
        side = "center" if abs(x) < 0.2 else ("left" if x > 0 else "right")
        axes.text(1.1 * x, 1.12 * y, shown(client, 10), ha=side, va="center", fontsize=8.5)
    box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": "C1", "lw": 2}
    axes.text(0, 0, "server", ha="center", va="center", bbox=box)
    more = f"; {len(drawn)} of them drawn" * (len(drawn) < len(total))
    return Picture(
        "parties",
        f"The server exchanges bytes with each of {len(total)} clients{more}, and clients with "
        "each other through the server.",
        figure,
    )


@_styled()
def curves(
    title: str,
    found: Mapping[str, Course],
    names: Sequence[str],
    along: str,
    *,
    settings: Sequence[str] = (),
    share: bool = True,
) -> Picture:
    """Draw means along rounds or settings, with bars of one standard deviation each way.

    `found` has at least one course by the name of its line, one of `names`; `settings` has the
    words for places of the courses that are not rounds. A `share` is written in percent.
    """
    columns = 1 if max(map(len, found)) > 24 else 2
    figure, axes = _axes(3.2 + 0.18 * -(-len(found) // columns), xlabel=along, ylabel=title)
    ends, looks = [], dict(zip(names, LOOKS(), strict=False))
    for line, course in found.items():
        every = max(1, len(course.at) // 8)
        axes.errorbar(
            course.at, course.mean, course.deviation,
            label=line, markevery=every, errorevery=every, **looks[line],
        )  # fmt: skip
        last = f"{course.mean[-1]:.1%}" if share else f"{course.mean[-1]:.3g}"
        ends.append(f"{line} {last}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if settings:
        thin = range(0, len(settings), -(-len(settings) // NAMED))
        axes.set_xticks(thin, [shown(settings[i], 18) for i in thin])
        axes.tick_params(axis="x", labelrotation=90 * (max(map(len, settings)) > 8))
    if share:
        _shares(axes, "y")
    figure.legend(loc="outside upper left", ncols=columns)
    return Picture(
        title.lower().replace(" ", "-"),
        f"{title} by {along}, mean over the seeds; at the end: {', '.join(ends)}.",
        figure,
    )


@_styled()
def rows_by_client(own: Holdings) -> Picture:
    """Draw how many rows each client has, and how many of them have a label."""
    figure = Figure(figsize=(WIDTH, 3.8))
    rows, m = own.labelled + own.unlabelled, len(own.labelled)
    above, below = figure.subplots(2, sharex=True)
    for axes, values in ((above, rows), (below, own.labelled)):
        axes.stairs(values, np.arange(m + 1) - 0.5, fill=True)
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter("{x:,.0f}")
    above.set(ylabel="rows")
    below.set(ylabel="labels", xlabel="client")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    return Picture(
        "rows-by-client",
        f"Rows and labels of {count(m, 'client')}, seed {own.seed}: {int(rows.min()):,} to "
        f"{int(rows.max()):,} rows; {int((own.labelled > 0).sum()):,} have labels, "
        f"{int(own.labelled.sum()):,} in all.",
        figure,
    )
