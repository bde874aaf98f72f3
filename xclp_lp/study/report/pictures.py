"""The pictures of a report: drawn once, as SVG for the page and as PNG for everything else.

Colours in the drawings are those of the light page. The SVG carries a style sheet that replaces
each of them where the reader prefers dark, so that both come from one drawing. All names are drawn
as they are, never read as mathematics or markup.

In all functions, `names` says what to call the methods.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from xclp_crypto.protocols.setup import SERVER
from xclp_lp.study.experiments.rounds import Course, Holdings
from xclp_lp.study.scores import Bin, Scores
from xclp_lp.study.views import RunRecord, View
from xclp_lp.wording import count, shown, size

DARK = {
    (INK := "#24292f"): "#e6edf3",
    (PAPER := "#fefefe"): "#161b22",
    (FAINT := "#8c959f"): "#7d8590",
    (CELL := "#0a58ca"): "#4c8dff",
    (BLUE := "#0b57c9"): "#6aa6ff",
    (ORANGE := "#b35300"): "#ff9e4a",
    (GREEN := "#1a7f37"): "#4ac26b",
    (PURPLE := "#7a3fc2"): "#bc8cff",
    (BROWN := "#7d5a1e"): "#d6a95c",
    (PINK := "#bf2f74"): "#ff7eb6",
}
"""The colour that stands for each colour of the drawings on a dark page."""

METHOD_STYLE = {
    "xclp": (BLUE, "o"),
    "per-client": (ORANGE, "s"),
    "pooled": (GREEN, "D"),
    "label-spreading": (PURPLE, "^"),
    "fedavg-linear": (BROWN, "v"),
    "fedavg-mlp": (PINK, "P"),
}
"""Colour and marker of each method; no two share either."""

LABELLER_STYLE = {name: METHOD_STYLE[name] for name in ("xclp", "per-client", "pooled")} | {
    "network": (PURPLE, "^"),
    "network-once": (PINK, "P"),
    "": (BROWN, "v"),
}
"""Those of a method of federated training by its pseudo-labeller; its strategy has the line."""
STRATEGY_LINES = {"fedavg": "-", "fedprox": "--", "scaffold": ":"}
WHOLE_STYLE = {
    "fedmatch": (INK, "X", "-"),
    "fedsiam": (INK, "*", "--"),
    "fedsem+": (PINK, "h", "-."),
}
"""Those of methods that are not a strategy with a pseudo-labeller."""

WIDTH = 4.5
"""Inches of every picture: narrow, so that text keeps its size on a telephone."""

NAMED = 40
"""Most clients that a picture shows by name."""

RING = 24
"""Most clients that are drawn in the picture of the parties."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9.5, "text.parse_math": False, "text.color": INK,
    "axes.edgecolor": FAINT, "axes.labelcolor": INK, "axes.facecolor": "none",
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlesize": 10, "axes.titlelocation": "left",
    "xtick.color": INK, "ytick.color": INK,
    "grid.color": FAINT, "grid.alpha": 0.35, "grid.linewidth": 0.6,
    "legend.frameon": False, "legend.fontsize": 8.5,
    "legend.handlelength": 1.6, "legend.columnspacing": 1.0,
    "figure.facecolor": PAPER, "savefig.facecolor": PAPER,
    "svg.fonttype": "none", "svg.hashsalt": "xclp",
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
        """Return it as SVG that follows the reader's colour scheme and asks for no other file."""
        text = self._saved("svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        rules = "".join(
            f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
            for light, dark in DARK.items()
            for kind in ("fill", "stroke")
        )
        # Verdana has the widths of the font that the picture was laid out with.
        sheet = (
            "text{font-family:'DejaVu Sans',Verdana,sans-serif!important}"
            f"@media(prefers-color-scheme:dark){{{rules}}}"
        )
        drawing = text.decode().replace("</style>", f"{sheet}</style>", 1)
        return drawing[drawing.index("<svg") :]

    def png(self) -> bytes:
        """Return it as PNG, on light ground."""
        return self._saved("png", dpi=200)

    def _saved(self, form: str, **options: Any) -> bytes:
        file = io.BytesIO()
        with _styled():
            self.figure.savefig(file, format=form, **options)
        return file.getvalue()


def _figure(height: float) -> Figure:
    return Figure(figsize=(WIDTH, height), layout="constrained")


def _axes(height: float, **options: Any) -> tuple[Figure, Axes]:
    figure = _figure(height)
    return figure, figure.add_subplot(**options)


def _shares(axis: Axis, what: str = "") -> None:
    """Write percentages along an axis, with a grid, and what they are of."""
    axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.set_label_text(what)
    axis.grid(True)


def _legend(figure: Figure, columns: int = 2, **options: Any) -> None:
    figure.legend(loc="outside upper left", ncols=columns, **options)


@_styled()
def accuracy_by_client(scores: Scores, names: Mapping[str, str], leading: str) -> Picture:
    """Draw each client's accuracy with every method: by name, or sorted where there are many.

    There must be a row. Methods are drawn in the order of `names`, and clients are sorted by the
    `leading` one.
    """
    present = np.flatnonzero(scores.rows_by_client())
    n, few = len(present), len(present) <= NAMED
    by_method = {m: scores.accuracy_by_client(m)[present] for m in names}
    own = by_method[leading]
    order = np.argsort(own, kind="stable")
    figure, axes = _axes(1.3 + (0.12 + 0.05 * len(names)) * n if few else 3.4)
    for i, (method, values) in enumerate(by_method.items()):
        colour, marker = METHOD_STYLE[method]
        look: dict[str, Any] = {"color": colour, "label": names[method]}
        if few:  # below each other, since pooled and secure labels are often the same
            places = np.arange(n) + 0.66 / len(names) * ((len(names) - 1) / 2 - i)
            axes.plot(values[order], places, marker, ms=5, **look)
        else:
            dash, above = ("-", 2) if method == leading else ("--", 3)  # both are seen if equal
            axes.plot(np.arange(n) + 1, np.sort(values), dash, zorder=above, **look)
    _shares(axes.xaxis if few else axes.yaxis, "right labels")
    if few:
        axes.set_yticks(range(n), [shown(scores.clients[present[i]], 18) for i in order])
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.7, n - 0.3))
        axes.yaxis.grid(True)
    else:
        axes.set(ylim=(-0.03, 1.03), xlabel="clients, each method's worst first")
    _legend(figure, min(len(names), 2))
    return Picture(
        "accuracy-by-client",
        f"Share of right labels of {n} clients by {len(names)} methods; with {names[leading]} from "
        f"{own.min():.0%} to {own.max():.0%}.",
        figure,
    )


@_styled()
def confidence(bins: Sequence[Bin], *, known: bool) -> Picture:
    """Draw how many rows have which confidence and, where it is known, how many are right."""
    rows, sure = sum(b.rows for b in bins), [b for b in bins if b.rows and b.low >= 0.5]
    high = sum(b.rows for b in sure)
    alt = f"Number of rows by confidence: {high:,} of {rows:,} have one of at least 0.5."
    figure = _figure(3.8 if known else 2.3)
    ratios = (3, 1) if known else (1,)
    *above, below = figure.subplots(
        len(ratios), sharex=True, squeeze=False, height_ratios=ratios
    ).flat
    for axes in above:
        used = [b for b in bins if b.rows]
        centres = [(b.low + b.high) / 2 for b in used]
        right, promised = [b.right / b.rows for b in used], [b.probability for b in used]
        axes.bar(centres, right, width=0.085, color=BLUE, alpha=0.75, label="right labels")
        axes.plot(centres, promised, "D", color=ORANGE, label="mean probability of the label")
        axes.set_ylim(0, 1.05)
        _shares(axes.yaxis)
        _legend(figure, 1)
        alt = f"Share of right labels of {rows:,} rows by confidence."
        if sure:
            share = sum(b.right for b in sure) / high
            alt += f" Of the {high:,} with confidence of at least 0.5, {share:.0%} are right."
    centres = [(b.low + b.high) / 2 for b in bins]
    below.bar(centres, [b.rows for b in bins], width=0.085, color=FAINT)
    below.set(xlim=(0, 1), xticks=np.linspace(0, 1, 6), xlabel="confidence", ylabel="rows")
    below.yaxis.set_major_formatter("{x:,.0f}")
    return Picture("confidence", alt, figure)


@_styled()
def counts(
    name: str,
    alt: str,
    numbers: NDArray[np.int64],
    called: tuple[Sequence[str], Sequence[str]],
    titles: tuple[str, str],
) -> Picture:
    """Draw a matrix of counts; a cell is the darker the larger its share of its row.

    `called` says what each row and each column is called, and `titles` what rows and columns are.
    """
    n, m = numbers.shape
    written = n <= NAMED and m <= 12
    figure, axes = _axes(1.4 + (0.26 * n if written else 3.4))
    share = numbers / np.maximum(numbers.sum(axis=1, keepdims=True), 1)
    dark = 0.6 * share  # never so dark that the ink of the numbers is lost
    if written:
        for (i, j), value in np.ndenumerate(numbers):
            cell = Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=CELL, alpha=float(dark[i, j]))
            axes.add_patch(cell)
            if value:
                words = f"{value}" if value < 10_000 else f"{value // 1000}k"
                axes.text(j, i, words, ha="center", va="center", fontsize=8)
        axes.set_yticks(range(n), [shown(c, 18) for c in called[0]])
        axes.set_xticks(range(m), [shown(c, 14) for c in called[1]], rotation=60, ha="right")
        axes.set_xticks(range(m))
    else:
        cells = np.dstack([*np.broadcast_arrays(*to_rgb(CELL), dark)])
        axes.imshow(cells, aspect="auto", interpolation="nearest")
    axes.set(xlim=(-0.5, m - 0.5), ylim=(n - 0.5, -0.5), ylabel=titles[0], xlabel=titles[1])
    axes.tick_params(length=0)
    return Picture(name, alt, figure)


@_styled()
def costs(record: RunRecord) -> Picture:
    """Draw bytes sent and seconds by step: of the server, and the range of the clients."""
    steps, clients = record.cost.steps, [*record.rows]
    figure = _figure(4.2)
    places = np.arange(len(steps))
    panels: tuple[Any, ...] = (
        ("bytes sent by a party", [record.cost.bytes_by_party(s)[0] for s in steps], 1.0,
         range(1, 13, 2), lambda x, _: size(x).replace(".0 ", " ")),
        ("seconds of a party", [record.cost.seconds_by_party(s) for s in steps], 1e-3,
         range(-3, 7), lambda x, _: f"{x:g} s"),
    )  # fmt: skip
    most = []
    for axes, (title, values, smallest, powers, written) in zip(
        figure.subplots(2, sharey=True), panels, strict=True
    ):
        own = np.array([[v.get(c, 0.0) for c in clients] for v in values])
        axes.hlines(places, own.min(axis=1), own.max(axis=1), color=BLUE, lw=5, alpha=0.4)
        median, label = np.median(own, axis=1), "clients: median and range"
        axes.plot(median, places, "o", color=BLUE, label=label)
        axes.plot([v.get(SERVER, 0.0) for v in values], places, "s", color=ORANGE, label="server")
        axes.set_xscale("symlog", linthresh=smallest, linscale=0.4)
        axes.set(title=title)
        axes.set_xlim(left=-smallest / 4)
        axes.set_yticks(places, steps)
        axes.grid(axis="x")
        axes.xaxis.set_major_locator(FixedLocator([0, *(10.0**e for e in powers)]))
        axes.xaxis.set_major_formatter(written)
        most.append(steps[int(np.argmax([sum(v.values()) for v in values]))])
    axes.set_ylim(len(steps) - 0.5, -0.5)
    _legend(figure, handles=axes.get_legend_handles_labels()[0])
    return Picture(
        "cost",
        f"Bytes and seconds by step; most bytes are sent in the step {most[0]}, most seconds are "
        f"spent in {most[1]}.",
        figure,
    )


@_styled()
def parties(record: RunRecord, views: Sequence[View]) -> Picture:
    """Draw who sends bytes to whom, and below it what each party learns and does not."""
    sent, received = record.cost.bytes_by_party()
    total = {c: sent.get(c, 0) + received.get(c, 0) for c in record.rows}
    drawn = sorted(sorted(total, key=lambda c: -total[c])[:RING], key=list(total).index)
    told = {
        v.party: (f"learns: {'; '.join(v.learns)}", f"does not learn: {', '.join(v.not_learned)}")
        for v in views
    }
    lines = {p: [x for words in own for x in textwrap.wrap(words, 56)] for p, own in told.items()}
    line_height, ring_height = 0.165, 3.5
    height = line_height * (0.5 + sum(len(own) + 1.8 for own in lines.values()))
    whole = ring_height + height
    figure = Figure(figsize=(WIDTH, whole))
    _ring(figure.add_axes((0.01, height / whole, 0.98, ring_height / whole)), record, drawn)
    words = figure.add_axes((0.02, 0.0, 0.96, height / whole))
    words.axis("off")
    words.set(xlim=(0, 1), ylim=(height / line_height, 0))
    y = 1.0
    for party, own in lines.items():
        words.text(0.0, y, party, weight="bold", va="center")
        for i, line in enumerate(own, 1):
            words.text(0.02, y + i, line, va="center", fontsize=9.2)
        y += len(own) + 1.8
    more = f"; {len(drawn)} of them drawn" * (len(drawn) < len(total))
    said = " ".join(f"{party}: {'; '.join(own)}." for party, own in told.items())
    return Picture(
        "parties",
        f"The server exchanges bytes with each of {len(total)} clients{more}, and clients with "
        f"each other through the server. {said}",
        figure,
    )


def _ring(axes: Axes, record: RunRecord, drawn: Sequence[str]) -> None:
    """Draw clients around the server, and lines where bytes went."""
    links: dict[frozenset[str], int] = {}
    for traffic, number in record.cost.bytes_sent.items():
        link = frozenset((traffic.sender, traffic.receiver))
        links[link] = links.get(link, 0) + number
    largest = max(links.values(), default=1)
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(drawn)) / len(drawn)
    place = dict(zip(drawn, zip(np.cos(angles), np.sin(angles), strict=True), strict=True))
    place[SERVER] = (0.0, 0.0)
    sealed: dict[str, Any] = {"color": ORANGE, "ls": (0, (3, 2)), "lw": 0.8, "alpha": 0.5}
    for link, number in sorted(links.items(), key=lambda item: SERVER in item[0]):
        if not link <= set(place) or len(link) < 2:
            continue
        look = sealed
        if SERVER in link:
            width = 0.5 + 3.0 * np.log1p(number) / np.log1p(largest)
            look = {"color": BLUE, "ls": "-", "lw": width, "alpha": 0.8}
        axes.plot(*zip(*(place[party] for party in sorted(link)), strict=True), **look)
    for client in drawn:
        x, y = place[client]
        filled = BLUE if client in record.contributors else PAPER
        axes.plot(x, y, "o", ms=11, mec=BLUE, mew=1.6, color=filled)
        side = "center" if abs(x) < 0.2 else ("left" if x > 0 else "right")
        axes.text(1.1 * x, 1.12 * y, shown(client, 10), ha=side, va="center", fontsize=8.5)
    box = {"boxstyle": "round,pad=0.5", "facecolor": PAPER, "edgecolor": ORANGE, "lw": 2}
    axes.text(*place[SERVER], "server", ha="center", va="center", bbox=box)
    axes.set(xlim=(-1.75, 1.75), ylim=(-1.5, 1.3), aspect="equal")
    axes.axis("off")
    axes.plot([], [], color=BLUE, lw=2.5, label="with the server")
    axes.plot([], [], "--", color=ORANGE, label="between clients, sealed, through the server")
    axes.legend(loc="lower center", ncols=2)


@_styled()
def curve(
    name: str,
    title: str,
    lines: Mapping[str, Sequence[tuple[str, float, float]]],
    names: Mapping[str, str],
    labels: tuple[str, str],
) -> Picture:
    """Draw accuracy against what an experiment varies, with error bars.

    `lines` has by method the setting, mean and standard deviation, with the same settings for all;
    `labels` say what is varied, and what is measured.
    """
    settings = [setting for setting, _, _ in next(iter(lines.values()))]
    n, upright = len(settings), len(settings) <= 8 and all(len(s) <= 8 for s in settings)
    figure, axes = _axes(3.6 if upright else 1.5 + 0.28 * n, title=title)
    for i, (method, points) in enumerate(lines.items()):
        colour, marker = METHOD_STYLE[method]
        _, means, spread = zip(*points, strict=True)
        places = np.arange(n) + 0.05 * (i - (len(lines) - 1) / 2)
        look: dict[str, Any] = {"color": colour, "label": names[method], "capsize": 2}
        if upright:
            axes.errorbar(places, means, yerr=spread, fmt=f"{marker}-", **look)
        else:
            axes.errorbar(means, places, xerr=spread, fmt=marker, **look)
    across, along = (axes.xaxis, axes.yaxis) if upright else (axes.yaxis, axes.xaxis)
    across.set_ticks(range(n), [shown(s, 18) for s in settings])
    across.set_label_text(labels[0])
    _shares(along, labels[1])
    if upright:
        axes.set_ylim(0, 1.02)
    else:
        axes.set(xlim=(0, 1.02), ylim=(n - 0.5, -0.5))
    _legend(figure)
    return Picture(
        name,
        f"{labels[1]} by {labels[0]}{': ' * bool(title)}{title}, of {len(lines)} methods in {n} "
        "settings, with standard deviations.",
        figure,
    )


def training_style(method: str) -> tuple[str, str, str]:
    """Return colour, marker and line of a method of federated training; no two share all three."""
    if method in WHOLE_STYLE:
        return WHOLE_STYLE[method]
    strategy, _, labeller = method.partition("+")
    return *LABELLER_STYLE[labeller], STRATEGY_LINES[strategy]


def _within_shares(limits: tuple[float, float]) -> tuple[float, float]:
    """Return the part of an axis where shares can be; bars of deviations can leave it."""
    return max(limits[0], -0.02), min(limits[1], 1.02)


@_styled()
def by_method(
    values: Mapping[str, Sequence[float]], names: Mapping[str, str], measured: str
) -> Picture:
    """Draw what each method reached: every seed, and mean and standard deviation where several.

    `values` has by method a share for each seed, and `measured` says what it is a share of.
    """
    figure, axes = _axes(1.0 + 0.42 * len(values))
    for place, (method, found) in enumerate(values.items()):
        colour, marker, _ = training_style(method)
        axes.plot(found, [place] * len(found), marker, color=colour, alpha=0.4, ms=5, mew=0)
        spread = np.std(found, ddof=1) if len(found) > 1 else None
        axes.errorbar(np.mean(found), place, xerr=spread, fmt=marker, color=colour, capsize=3)
    axes.set_yticks(range(len(values)), [textwrap.fill(names[m], 20) for m in values])
    axes.set(xlim=_within_shares(axes.get_xlim()), ylim=(len(values) - 0.5, -0.5))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    _shares(axes.xaxis, measured)
    means = ", ".join(f"{names[m]} {np.mean(found):.1%}" for m, found in values.items())
    return Picture("accuracy", f"{measured} by method, mean over the seeds: {means}.", figure)


@_styled()
def over_rounds(
    found: Mapping[str, Course],
    names: Mapping[str, str],
    measured: str,
    rounds: Sequence[int],
    *,
    share: bool,
) -> Picture:
    """Draw how a metric went in training: means, and bands of one standard deviation each way.

    `found` has at least one course by method, `measured` says what the metric is, and whether it is
    a `share`, written in percent. Only these `rounds` are drawn.
    """
    columns = 1 if max(len(names[m]) for m in found) > 24 else 2
    figure, axes = _axes(3.0 + 0.18 * -(-len(found) // columns), xlabel="rounds")
    ends = []
    for method, course in found.items():
        colour, marker, line = training_style(method)
        kept = np.isin(course.rounds, rounds)
        x, mean, deviation = course.rounds[kept], course.mean[kept], course.deviation[kept]
        axes.plot(
            x, mean, line, marker=marker, ms=4, markevery=max(1, len(x) // 8), color=colour,
            label=names[method],
        )  # fmt: skip
        axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.15, lw=0)
        last = f"{mean[-1]:.1%}" if share else f"{mean[-1]:.3g}"
        ends.append(f"{names[method]} {last} after {count(int(x[-1]), 'round')}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y")
    axes.set_ylabel(measured)
    if share:
        axes.set_ylim(_within_shares(axes.get_ylim()))
        _shares(axes.yaxis, measured)
    _legend(figure, columns, handlelength=3.2)  # long enough to see that a dashed line is one
    return Picture(
        measured.lower().replace(" ", "-"),
        f"{measured} by rounds, mean over the seeds: {', '.join(ends)}.",
        figure,
    )


@_styled()
def rows_by_client(own: Holdings) -> Picture:
    """Draw how many rows each client has, and how many of them have a label."""
    figure = _figure(3.8)
    rows, m = own.labelled + own.unlabelled, len(own.labelled)
    panels = figure.subplots(2, sharex=True)
    for axes, values, words in zip(panels, (rows, own.labelled), ("rows", "labels"), strict=True):
        axes.stairs(values, np.arange(m + 1) - 0.5, fill=True, color=BLUE, alpha=0.75)
        axes.set(ylabel=words, ylim=(0, 1.05 * max(int(values.max()), 1)))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("client")
    return Picture(
        "rows-by-client",
        f"Rows and labels of {count(m, 'client')}, seed {own.seed}: {int(rows.min()):,} to "
        f"{int(rows.max()):,} rows; {int((own.labelled > 0).sum()):,} have labels, "
        f"{int(own.labelled.sum()):,} in all.",
        figure,
    )
