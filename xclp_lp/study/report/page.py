"""A report as a value, and how it becomes one HTML file and a folder of PNGs."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from xclp_crypto import __version__
from xclp_crypto.errors import DataError
from xclp_crypto.whole_files import write_whole
from xclp_lp.study.experiments.rounds import Course, some_rounds
from xclp_lp.study.report import pictures
from xclp_lp.study.report.pictures import Picture
from xclp_lp.wording import shown

MOST_CELLS, MOST_ROWS = 30_000, 1000
"""Cells and rows of the longest table; a file for people has no more."""

MOST_POINTS = 100
"""Rounds or settings that curves and their tables have; of more, evenly many."""


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: its heading.
        text: paragraphs.
        picture: what is drawn; the table has the same numbers.
        head: of the columns of the table below it.
        rows: of the table, which ends early if it is long; the first cell names the row, and
            numbers are written with separators of thousands.
        words: whether the cells are words and not numbers.
    """

    title: str
    text: Sequence[str]
    picture: Picture | None = None
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str | int]] = ()
    words: bool = False


@dataclass(frozen=True)
class Report:
    """A report for people. All its texts are untrusted: names of clients and classes are in them.

    Attributes:
        title: of the page.
        text: paragraphs at its beginning.
        sections: its parts.
        facts: the few numbers that matter most.
        warnings: what whoever has the file must know first.
    """

    title: str
    text: Sequence[str]
    sections: Sequence[Section]
    facts: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Return the pictures of all sections."""
        return tuple(own.picture for own in self.sections if own.picture is not None)

    def html(self) -> str:
        """Return the page: one text with everything in it, which asks no host for anything."""
        pages = Environment(
            loader=PackageLoader("xclp_lp.study.report", ""),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
        )
        pages.filters["written"] = lambda cell: cell if isinstance(cell, str) else f"{cell:,}"
        pages.filters["shown"] = shown
        pages.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()
        return pages.get_template("page.html").render(
            report=self, version=__version__, most_cells=MOST_CELLS, most_rows=MOST_ROWS
        )

    def write(self, html: Path | None = None, png: Path | None = None) -> list[Path]:
        """Write the page, and the pictures as PNG; each file is complete or not there.

        Args:
            html: the file.
            png: the folder, made if its parent exists; files in it with names of pictures are
                replaced.

        Returns:
            The files written.

        Raises:
            DataError: writing fails.
        """
        written = []
        try:
            if html is not None:
                written.append(write_whole(html, self.html().encode("utf-8", "replace")))
            if png is not None:
                png.mkdir(exist_ok=True)
                for picture in self.pictures:
                    written.append(write_whole(png / f"{picture.name}.png", picture.png()))
        except OSError as error:
            raise DataError(f"the report cannot be written: {error}") from None
        return written


def over_seeds(n: int) -> str:
    """Return what to say of luck with n seeds."""
    if n == 1:
        return "One seed, so nothing is said about luck."
    return f"Means over {n} seeds; ± and bars are one standard deviation over them."


def words_of(metric: str) -> str:
    """Return what a metric is called at the beginning of a line."""
    return metric.replace("_", " ").capitalize()


def written(mean: float, deviation: float, share: bool = True) -> str:
    """Write a mean, a share in percent, and its standard deviation if that is a number."""
    parts = [mean] if np.isnan(deviation) else [mean, deviation]
    if share:
        return " ± ".join(f"{100 * part:.1f}" for part in parts) + "%"
    return " ± ".join(f"{part:.3f}" for part in parts)


def curves_section(
    title: str,
    text: Sequence[str],
    found: Mapping[str, Course],
    names: Sequence[str],
    along: str,
    *,
    settings: Sequence[str] = (),
    share: bool = True,
) -> Section:
    """Return how something went as curves and as a table; arguments as of `pictures.curves`."""
    if without := [name for name in names if name not in found]:
        text = [*text, f"Not measured with: {'; '.join(without)}."]
    if not found:
        return Section(title, text)
    places = some_rounds(found, MOST_POINTS)
    measured = len({int(place) for course in found.values() for place in course.at})
    if len(places) < measured:
        text = [*text, f"{len(places):,} of {measured:,} measured {along} are shown."]
    cells = {
        (name, place): written(mean, deviation, share)
        for name, own in found.items()
        for place, mean, deviation in zip(own.at, own.mean, own.deviation, strict=True)
    }
    rows = [
        (settings[place] if settings else place, *(cells.get((m, place), "–") for m in found))
        for place in places
    ]
    drawn = {name: course.only(places) for name, course in found.items()}
    picture = pictures.curves(title, drawn, names, along, settings=settings, share=share)
    return Section(title, text, picture, (along, *found), rows)


def parameters_section(parameters: Mapping[str, Any]) -> Section:
    """Return the last part of a report: what repeats the run, as JSON."""
    rows = [
        (name, shown(json.dumps(value, ensure_ascii=False, default=str), 1000))
        for name, value in parameters.items()
    ]
    about = "What repeats this run; keys and masks are random every time."
    return Section("Parameters", [about], None, ("parameter", "value"), rows, words=True)
