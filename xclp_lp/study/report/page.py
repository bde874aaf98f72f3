"""A report as a value, and how it becomes one HTML file and a folder of PNGs."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from xclp_crypto import __version__
from xclp_crypto.errors import DataError
from xclp_crypto.whole_files import write_whole
from xclp_lp.study.report.pictures import Picture
from xclp_lp.wording import count, shown

MOST_CLIENTS = 1000
"""Clients that tables list; a file for people has no more."""


@dataclass(frozen=True)
class PageTable:
    """A table of a report; its first column names the rows, and is cut to 60 characters.

    Attributes:
        caption: what it shows.
        head: of the columns.
        rows: as many cells each; numbers are written with separators of thousands.
        folded: whether it is shown on demand only, as any table of more than 25 rows is.
        words: whether the cells are words and not numbers.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str | int]]
    folded: bool = False
    words: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: its heading.
        text: paragraphs.
        pictures: what is drawn; the tables have the same numbers.
        tables: below the pictures and points.
        points: a list between them.
    """

    title: str
    text: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[PageTable] = ()
    points: Sequence[str] = ()


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
        return tuple(picture for section in self.sections for picture in section.pictures)

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
        return pages.get_template("page.html").render(report=self, version=__version__)

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


def over_seeds(n: int) -> tuple[str, str]:
    """Return what to say of luck with n seeds: a sentence, and the end of a caption."""
    if n == 1:
        return "One seed, so nothing is said about luck.", "one seed"
    spread = "Means over the seeds; ±, bars or bands are one standard deviation over them."
    return spread, f"mean ± standard deviation over {count(n, 'seed')}"


def words_of(metric: str) -> str:
    """Return what a metric is called at the beginning of a line."""
    return metric.replace("_", " ").capitalize()


def first_of(most: int, number: int, what: str) -> list[str]:
    """Return that a table has the first of so many, where it has not all of them."""
    return [f"The table has the first {most:,} of {number:,} {what}."] * (number > most)


def parameters_section(parameters: Mapping[str, Any]) -> Section:
    """Return the last part of a report: what repeats the run."""

    def listed(value: Any) -> str:
        if value is None or value == {}:
            return "–"
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    caption = "What repeats this run; keys and masks are random every time"
    rows = [(name, shown(listed(value), 200)) for name, value in parameters.items()]
    return Section(
        "Parameters", tables=[PageTable(caption, ("parameter", "value"), rows, words=True)]
    )
