"""A report as a value, and how it becomes one HTML file and a folder of PNGs."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from xclp_crypto import __version__
from xclp_crypto.errors import DataError
from xclp_lp.files.whole import write_whole
from xclp_lp.study.report.pictures import Picture


@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows.

    Attributes:
        caption: what it shows.
        head: of the columns.
        rows: as many cells each.
        folded: whether it is shown on demand only, as any table of more than 25 rows is.
        words: whether the cells are words and not numbers.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    folded: bool = False
    words: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: its heading.
        text: paragraphs.
        pictures: what is drawn; the tables have the same numbers.
        points: a list below them.
        tables: below that.
    """

    title: str
    text: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    points: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


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
    text: tuple[str, ...]
    sections: tuple[Section, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Return the pictures of all sections."""
        return tuple(picture for section in self.sections for picture in section.pictures)

    def html(self) -> str:
        """Return the page: one text with everything in it, which asks no host for anything."""
        page = Environment(
            loader=PackageLoader("xclp_lp.study.report", ""),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
        ).get_template("page.html")
        return page.render(report=self, version=__version__, svg=_base64_svg)

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


def _base64_svg(picture: Picture) -> str:
    return base64.b64encode(picture.svg().encode()).decode()
