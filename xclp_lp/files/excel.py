"""Reading the one table of an .xlsx file, by openpyxl."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.wording import listing


def excel_rows(path: Path, client: str) -> list[list[Any]]:
    """Return the rows of the only sheet that is not empty, the names of the columns first.

    Formulas are what Excel last computed. Empty rows and columns at the end are left out, and all
    rows are equally long.

    Args:
        path: the file.
        client: whose it is, for errors.

    Raises:
        ParameterError: openpyxl is not installed.
        DataError: no sheet has data, or more than one.
        OSError, KeyError, zipfile.BadZipFile: it is no .xlsx file.
    """
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise ParameterError(
            f"{path} needs openpyxl; install it with: pip install 'xclp[excel]'"
        ) from None
    with path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles and the like, which are not read
        book = load_workbook(file, read_only=True, data_only=True)
        sheets = {sheet.title: _rows(sheet) for sheet in book.worksheets}
    filled = {title: rows for title, rows in sheets.items() if rows}
    if len(filled) != 1:
        which = f"data in {listing(filled)}; leave only one of these sheets"
        raise DataError(f"client {client!r}: {path} has {which if filled else 'no data'}")
    return next(iter(filled.values()))


def _rows(sheet: Any) -> list[list[Any]]:
    """Return the cells of a sheet, None where they are empty."""
    sheet.reset_dimensions()  # what a file says of its size may be wrong
    rows = [list(row) for row in sheet.iter_rows(values_only=True)]
    width = 0
    for row in rows:
        while row and _is_blank(row[-1]):
            row.pop()
        width = max(width, len(row))
    while rows and not rows[-1]:
        rows.pop()
    return [row + [None] * (width - len(row)) for row in rows]


def _is_blank(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())
