"""The pictures of a report: drawn once, as SVG for the page and as PNG for everything else.

Colours in the drawings are those of the light page. The SVG carries a style sheet that replaces
each of them where the reader prefers dark, so that both come from one drawing. All names are drawn
as they are, never read as mathematics or markup.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from xclp_crypto.protocols.setup import SERVER
from xclp_lp.study.experiments.rounds import Course, Holdings
from xclp_lp.study.scores import Bin, Scores
from xclp_lp.study.views import RunRecord, View
from xclp_lp.wording import count, shown, size

INK, PAPER, FAINT, CELL = "#24292f", "#fefefe", "#8c959f", "#0a58ca"
BLUE, ORANGE, GREEN, PURPLE, BROWN, PINK = (
    *("#0b57c9", "#b35300", "#1a7f37", "#7a3fc2"),
    *("#7d5a1e", "#bf2f74"),
)
DARK = {
    INK: "#e6edf3",
    PAPER: "#161b22",
    FAINT: "#7d8590",
    CELL: "#4c8dff",
    BLUE: "#6aa6ff",
    ORANGE: "#ff9e4a",
    GREEN: "#4ac26b",
    PURPLE: "#bc8cff",
    BROWN: "#d6a95c",
    PINK: "#ff7eb6",
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

LABELLER_STYLE = {
    "": (BROWN, "v"),
    "per-client": (ORANGE, "s"),
    "network": (PURPLE, "^"),
    "network-once": (PINK, "P"),
    "xclp": (BLUE, "o"),
    "pooled": (GREEN, "D"),
}
"""Colour and marker of a method of federated training by its pseudo-labeller; its strategy has the
line."""
STRATEGY_LINES = {"fedavg": "-", "fedprox": "--", "scaffold": ":"}
WHOLE_STYLE = {
    "fedmatch": (INK, "X", "-"),
    "fedsiam": (INK, "*", "--"),
    "fedsem+": (PINK, "h", "-."),
}
"""Those of methods that are no strategy with a pseudo-labeller."""

WIDTH = 4.5
"""Inches of every picture: narrow, so that text keeps its size on a telephone."""

NAMED = 40
"""Most clients that a picture shows by name."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.0,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "none",
    "svg.hashsalt": "xclp",
}


@contextmanager
def _styled() -> Iterator[None]:
    """Draw with this style, whatever the user's own is; names may have letters the font lacks."""
    with matplotlib.style.context(["default", STYLE]), warnings.catch_warnings():
        # The page writes such letters in the reader's fonts, and the table beside has them too.
        warnings.filterwarnings(
            "ignore", message=r"Glyph .* missing from font", category=UserWarning
        )
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


P = ParamSpec("P")


def _drawn(draw: Callable[P, Picture]) -> Callable[P, Picture]:
    @wraps(draw)
    def styled(*args: P.args, **options: P.kwargs) -> Picture:
        with _styled():
            picture = draw(*args, **options)
            # Lay it out once: a second time, nothing is where it was, and files would differ.
            picture.figure.draw_without_rendering()
            picture.figure.set_layout_engine("none")
            return picture

    return styled


def _figure(height: float) -> Figure:
    return Figure(figsize=(WIDTH, height), layout="constrained")


def _percent(axis: Any) -> None:
    axis.set_major_formatter(PercentFormatter(1.0, decimals=0))


@_drawn
def accuracy_by_client(scores: Scores, names: Mapping[str, str]) -> Picture:
    """Draw each client's accuracy with every method: by name, or sorted where there are many.

    Args:
        scores: with at least one row.
        names: what to call the methods, in the order in which they are drawn.
    """
    present = np.flatnonzero(scores.rows_by_client())
    by_method = {m: scores.accuracy_by_client(m)[present] for m in names}
    leading = "xclp" if "xclp" in by_method else next(iter(by_method))
    order = np.argsort(by_method[leading], kind="stable")
    few = len(present) <= NAMED
    figure = _figure(1.3 + (0.12 + 0.05 * len(names)) * len(present) if few else 3.4)
    axes = figure.add_subplot()
    places = np.arange(len(present))
    for i, (method, values) in enumerate(by_method.items()):
        colour, marker = METHOD_STYLE[method]
        if few:  # below each other, since pooled and secure labels are often the same
            line = places + 0.66 / len(names) * ((len(names) - 1) / 2 - i)
            axes.plot(values[order], line, marker, color=colour, label=names[method], ms=5)
        else:
            dash, order_of = ("-", 2) if method == leading else ("--", 3)  # both are seen if equal
            axes.plot(
                places + 1,
                np.sort(values),
                dash,
                color=colour,
                label=names[method],
                zorder=order_of,
            )
    if few:
        axes.set_yticks(places, [shown(scores.clients[present[i]], 18) for i in order])
        axes.set_ylim(-0.7, len(present) - 0.3)
        axes.set_xlim(-0.03, 1.03)
        _percent(axes.xaxis)
        axes.grid(axis="both")
        axes.set_xlabel("right labels")
    else:
        axes.set_ylim(-0.03, 1.03)
        _percent(axes.yaxis)
        axes.grid(axis="y")
        axes.set_xlabel("clients, each method's worst first")
        axes.set_ylabel("right labels")
    figure.legend(loc="outside upper left", ncols=2 if len(names) > 1 else 1)
    own = by_method[leading]
    return Picture(
        "accuracy-by-client",
        f"Share of right labels of {len(present)} clients by {len(names)} methods; with "
        f"{names[leading]} from {own.min():.0%} to {own.max():.0%}.",
        figure,
    )


@_drawn
def confidence(bins: Sequence[Bin]) -> Picture:
    """Draw how many labels are right in each range of confidence, and how many rows there are."""
    figure = _figure(3.8)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    used = [b for b in bins if b.rows]
    centres = [(b.low + b.high) / 2 for b in used]
    above.bar(
        centres,
        [b.right / b.rows for b in used],
        width=0.085,
        color=BLUE,
        alpha=0.75,
        label="right labels",
    )
    above.plot(
        centres,
        [b.probability for b in used],
        "D",
        color=ORANGE,
        label="mean probability of the label",
    )
    above.set_ylim(0, 1.05)
    _percent(above.yaxis)
    above.grid(axis="y")
    figure.legend(loc="outside upper left")
    _histogram(below, bins)
    rows = sum(b.rows for b in bins)
    sure = [b for b in used if b.low >= 0.5]
    words = (
        f" Of the {sum(b.rows for b in sure):,} with confidence of at least 0.5, "
        f"{sum(b.right for b in sure) / sum(b.rows for b in sure):.0%} are right."
        if sure
        else ""
    )
    return Picture(
        "confidence", f"Share of right labels of {rows:,} rows by confidence.{words}", figure
    )


@_drawn
def confidence_only(bins: Sequence[Bin]) -> Picture:
    """Draw how many rows there are in each range of confidence."""
    figure = _figure(2.3)
    _histogram(figure.add_subplot(), bins)
    rows = sum(b.rows for b in bins)
    high = sum(b.rows for b in bins if b.low >= 0.5)
    return Picture(
        "confidence",
        f"Number of rows by confidence: {high:,} of {rows:,} have one of at least 0.5.",
        figure,
    )


def _histogram(axes: Axes, bins: Sequence[Bin]) -> None:
    axes.bar([(b.low + b.high) / 2 for b in bins], [b.rows for b in bins], width=0.085, color=FAINT)
    axes.set_xlim(0, 1)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_xlabel("confidence")
    axes.set_ylabel("rows")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


@_drawn
def counts(
    name: str,
    alt: str,
    numbers: NDArray[np.int64],
    rows: Sequence[str],
    columns: Sequence[str],
    titles: tuple[str, str],
) -> Picture:
    """Draw a matrix of counts; a cell is the darker the larger its share of its row.

    Args:
        name: of the file.
        alt: what it shows.
        numbers: shape (rows, columns).
        rows: what the rows are called.
        columns: what the columns are called.
        titles: what rows and columns are.
    """
    n, m = numbers.shape
    written = n <= NAMED and m <= 12
    figure = _figure(1.4 + (0.26 * n if written else 3.4))
    axes = figure.add_subplot()
    share = numbers / np.maximum(numbers.sum(axis=1, keepdims=True), 1)
    cells = np.zeros((n, m, 4))
    cells[..., :3] = to_rgb(CELL)
    cells[..., 3] = 0.6 * share  # never so dark that the ink of the numbers is lost
    if written:
        for (i, j), value in np.ndenumerate(numbers):
            axes.add_patch(
                Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=CELL, alpha=float(cells[i, j, 3]))
            )
            if value:
                axes.text(
                    j,
                    i,
                    f"{value}" if value < 10_000 else f"{value // 1000}k",
                    ha="center",
                    va="center",
                    fontsize=8,
                )
        axes.set_yticks(range(n), [shown(c, 18) for c in rows])
        axes.set_xticks(range(m), [shown(c, 14) for c in columns], rotation=60, ha="right")
        axes.set_xticks(range(m))
    else:
        axes.imshow(cells, aspect="auto", interpolation="nearest")
    axes.set_xlim(-0.5, m - 0.5)
    axes.set_ylim(n - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.set_ylabel(titles[0])
    axes.set_xlabel(titles[1])
    return Picture(name, alt, figure)


@_drawn
def costs(record: RunRecord) -> Picture:
    """Draw bytes sent and seconds by step: of the server, and the range of the clients."""
    steps = record.cost.steps
    figure = _figure(4.2)
    places = np.arange(len(steps))
    above, below = figure.subplots(2, 1, sharey=True)
    sent = [record.cost.bytes_by_party(step)[0] for step in steps]
    seconds = [record.cost.seconds_by_party(step) for step in steps]
    for axes, values, smallest in ((above, sent, 1.0), (below, seconds, 1e-3)):
        clients = np.array([[v.get(c, 0.0) for c in record.rows] for v in values])
        axes.hlines(places, clients.min(axis=1), clients.max(axis=1), color=BLUE, lw=5, alpha=0.4)
        axes.plot(
            np.median(clients, axis=1), places, "o", color=BLUE, label="clients: median and range"
        )
        axes.plot([v.get(SERVER, 0.0) for v in values], places, "s", color=ORANGE, label="server")
        axes.set_xscale("symlog", linthresh=smallest, linscale=0.4)
        axes.set_xlim(left=-smallest / 4)
        axes.set_yticks(places, steps)
        axes.grid(axis="x")
    above.set_ylim(len(steps) - 0.5, -0.5)
    above.xaxis.set_major_locator(FixedLocator([0, *(10.0**e for e in range(1, 13, 2))]))
    above.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value).replace(".0 ", " ")))
    below.xaxis.set_major_locator(FixedLocator([0, *(10.0**e for e in range(-3, 7))]))
    below.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
    above.set_title("bytes sent by a party")
    below.set_title("seconds of a party")
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    most = steps[int(np.argmax([sum(v.values()) for v in sent]))]
    longest = steps[int(np.argmax([sum(v.values()) for v in seconds]))]
    return Picture(
        "cost",
        f"Bytes and seconds by step; most bytes are sent in the step {most}, most seconds are "
        f"spent in {longest}.",
        figure,
    )


RING = 24
"""Most clients that are drawn in the picture of the parties."""


@_drawn
def parties(record: RunRecord, views: Sequence[View]) -> Picture:
    """Draw who sends bytes to whom, and below it what each party learns and does not."""
    sent, received = record.cost.bytes_by_party()
    total = {c: sent.get(c, 0) + received.get(c, 0) for c in record.rows}
    drawn = sorted(sorted(total, key=lambda c: -total[c])[:RING], key=list(total).index)
    links: dict[frozenset[str], int] = {}
    for traffic, number in record.cost.bytes_sent.items():
        link = frozenset((traffic.sender, traffic.receiver))
        links[link] = links.get(link, 0) + number
    lines = [
        (view.party, [line for words in _told(view) for line in textwrap.wrap(words, 56)])
        for view in views
    ]
    line_height, ring_height = 0.165, 3.5
    height = line_height * (0.5 + sum(len(own) + 1.8 for _, own in lines))
    whole = ring_height + height
    figure = Figure(figsize=(WIDTH, whole))
    ring = figure.add_axes((0.01, height / whole, 0.98, ring_height / whole))
    words = figure.add_axes((0.02, 0.0, 0.96, height / whole))
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(drawn)) / len(drawn)
    place = dict(zip(drawn, zip(np.cos(angles), np.sin(angles), strict=True), strict=True))
    place[SERVER] = (0.0, 0.0)
    largest = max(links.values(), default=1)
    for link, number in sorted(links.items(), key=lambda item: SERVER in item[0]):
        if not link <= set(place) or len(link) < 2:
            continue
        (x0, y0), (x1, y1) = (place[party] for party in sorted(link))
        with_server = SERVER in link
        ring.plot(
            (x0, x1),
            (y0, y1),
            color=BLUE if with_server else ORANGE,
            ls="-" if with_server else (0, (3, 2)),
            lw=0.5 + 3.0 * np.log1p(number) / np.log1p(largest) if with_server else 0.8,
            alpha=0.8 if with_server else 0.5,
        )
    for client in drawn:
        x, y = place[client]
        gone = client not in record.contributors
        ring.plot(x, y, "o", ms=11, mec=BLUE, mew=1.6, color=PAPER if gone else BLUE)
        side = "center" if abs(x) < 0.2 else ("left" if x > 0 else "right")
        ring.text(1.1 * x, 1.12 * y, shown(client, 10), ha=side, va="center", fontsize=8.5)
    ring.text(
        *place[SERVER],
        "server",
        ha="center",
        va="center",
        bbox={"boxstyle": "round,pad=0.5", "facecolor": PAPER, "edgecolor": ORANGE, "lw": 2},
    )
    ring.set_xlim(-1.75, 1.75)
    ring.set_ylim(-1.5, 1.3)
    ring.set_aspect("equal")
    ring.axis("off")
    ring.legend(
        handles=[
            Line2D([], [], color=BLUE, lw=2.5, label="with the server"),
            Line2D(
                [], [], color=ORANGE, ls="--", label="between clients, sealed, through the server"
            ),
        ],
        loc="lower center",
        ncols=2,
    )
    words.axis("off")
    words.set_ylim(height / line_height, 0)
    words.set_xlim(0, 1)
    y = 1.0
    for party, own in lines:
        words.text(0.0, y, party, weight="bold", va="center")
        for line in own:
            y += 1
            words.text(0.02, y, line, va="center", fontsize=9.2)
        y += 1.8
    more = f"; {len(drawn)} of them drawn" if len(drawn) < len(total) else ""
    said = " ".join(f"{view.party}: {'; '.join(_told(view))}." for view in views)
    return Picture(
        "parties",
        f"The server exchanges bytes with each of {len(total)} clients{more}, and clients with "
        f"each other through the server. {said}",
        figure,
    )


def _told(view: View) -> tuple[str, ...]:
    return (
        "learns: " + "; ".join(view.learns),
        "does not learn: " + ", ".join(view.not_learned),
    )


@_drawn
def curve(
    lines: Mapping[str, Sequence[tuple[str, float, float]]],
    names: Mapping[str, str],
    labels: tuple[str, str],
    title: str = "",
    name: str = "accuracy",
) -> Picture:
    """Draw accuracy against what an experiment varies, with error bars.

    Args:
        lines: by method, setting, mean and standard deviation; the same settings for all, in order.
        names: what to call the methods.
        labels: what is varied, and what is measured.
        title: over the picture.
        name: of the file.
    """
    settings = [setting for setting, _, _ in next(iter(lines.values()))]
    long = len(settings) > 8 or any(len(s) > 8 for s in settings)
    figure = _figure(1.5 + 0.28 * len(settings) if long else 3.6)
    axes = figure.add_subplot()
    places = np.arange(len(settings))
    for i, (method, points) in enumerate(lines.items()):
        colour, marker = METHOD_STYLE[method]
        beside = places + 0.05 * (i - (len(lines) - 1) / 2)
        means, spread = [p[1] for p in points], [p[2] for p in points]
        options: dict[str, Any] = {"color": colour, "label": names[method], "capsize": 2}
        if long:
            axes.errorbar(means, beside, xerr=spread, fmt=marker, **options)
        else:
            axes.errorbar(beside, means, yerr=spread, fmt=f"{marker}-", **options)
    across, along = (axes.yaxis, axes.xaxis) if long else (axes.xaxis, axes.yaxis)
    across.set_ticks(places, [shown(s, 18) for s in settings])
    across.set_label_text(labels[0])
    along.set_label_text(labels[1])
    _percent(along)
    axes.grid(axis="x" if long else "y")
    if long:
        axes.set_ylim(len(settings) - 0.5, -0.5)
        axes.set_xlim(0, 1.02)
    else:
        axes.set_ylim(0, 1.02)
    if title:
        axes.set_title(title)
    figure.legend(loc="outside upper left", ncols=2)
    return Picture(
        name,
        f"{labels[1]} by {labels[0]}{': ' + title if title else ''}, of {len(lines)} methods in "
        f"{len(settings)} settings, with standard deviations.",
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


@_drawn
def by_method(
    values: Mapping[str, Sequence[float]], names: Mapping[str, str], measured: str
) -> Picture:
    """Draw what each method reached: every seed, and mean and standard deviation where several.

    Args:
        values: by method, a share for each seed.
        names: what to call the methods.
        measured: what the share is of.
    """
    figure = _figure(1.0 + 0.42 * len(values))
    axes = figure.add_subplot()
    for place, (method, found) in enumerate(values.items()):
        colour, marker, _ = training_style(method)
        axes.plot(found, [place] * len(found), marker, color=colour, alpha=0.4, ms=5, mew=0)
        spread = np.std(found, ddof=1) if len(found) > 1 else None
        axes.errorbar(np.mean(found), place, xerr=spread, fmt=marker, color=colour, capsize=3)
    axes.set_yticks(range(len(values)), [textwrap.fill(names[m], 20) for m in values])
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_xlim(_within_shares(axes.get_xlim()))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    _percent(axes.xaxis)
    axes.set_xlabel(measured)
    axes.grid(axis="x")
    means = ", ".join(f"{names[m]} {np.mean(found):.1%}" for m, found in values.items())
    return Picture("accuracy", f"{measured} by method, mean over the seeds: {means}.", figure)


@_drawn
def over_rounds(
    name: str,
    found: Mapping[str, Course],
    names: Mapping[str, str],
    measured: str,
    rounds: Sequence[int],
    *,
    share: bool,
) -> Picture:
    """Draw how a metric went in training: means, and bands of one standard deviation each way.

    Args:
        name: of the file.
        found: by method, as from `xclp_lp.study.experiments.rounds.courses`; at least one.
        names: what to call the methods.
        measured: what the metric is.
        rounds: those to draw.
        share: whether it is a share, written in percent.
    """
    narrow = max(len(names[m]) for m in found) > 24
    lines = len(found) if narrow else -(-len(found) // 2)
    figure = _figure(3.0 + 0.18 * lines)
    axes = figure.add_subplot()
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
    axes.set_xlabel("rounds")
    axes.set_ylabel(measured)
    if share:
        axes.set_ylim(_within_shares(axes.get_ylim()))
        _percent(axes.yaxis)
    axes.grid(axis="y")
    # Long enough for a dashed line to be seen as one.
    figure.legend(loc="outside upper left", ncols=1 if narrow else 2, handlelength=3.2)
    return Picture(name, f"{measured} by rounds, mean over the seeds: {', '.join(ends)}.", figure)


@_drawn
def rows_by_client(own: Holdings) -> Picture:
    """Draw how many rows each client has, and how many of them have a label."""
    figure = _figure(3.8)
    above, below = figure.subplots(2, 1, sharex=True)
    rows, m = own.labelled + own.unlabelled, len(own.labelled)
    for axes, values, words in ((above, rows, "rows"), (below, own.labelled, "labels")):
        axes.stairs(values, np.arange(m + 1) - 0.5, fill=True, color=BLUE, alpha=0.75)
        axes.set_ylabel(words)
        axes.set_ylim(0, 1.05 * max(int(values.max()), 1))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.grid(axis="y")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    below.set_xlabel("client")
    return Picture(
        "rows-by-client",
        f"Rows and labels of {count(m, 'client')}, seed {own.seed}: {int(rows.min()):,} to "
        f"{int(rows.max()):,} rows; {int((own.labelled > 0).sum()):,} have labels, "
        f"{int(own.labelled.sum()):,} in all.",
        figure,
    )
