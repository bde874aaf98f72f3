"""Cells of .csv files that no spreadsheet takes for formulas."""

from __future__ import annotations

import re

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_FINITE = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def masked(text: str) -> str:
    """Return a cell of a .csv file for a text that no spreadsheet takes for a formula.

    A text that begins with = + - @, a tab or the end of a line gets an apostrophe before it, as
    does one that begins with apostrophes and one of these, so that `unmasked` gives it back. The
    text of a number stays.
    """
    return f"'{text}" if _FORMULA.match(text) and not _FINITE.fullmatch(text) else text


def unmasked(cell: str) -> str:
    """Return the text for which `masked` gives this cell; any other cell is its own text."""
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell
