"""Reading one client's features and labels from files: .npy, .npz, .csv and .parquet.

Errors name the client, the file, and the row and column as a person would count them in the file:
rows of a table from 1, the header not counted.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError

SUFFIXES = (".npy", ".npz", ".csv", ".parquet")


@dataclass(frozen=True)
class Table:
    """Named columns of equal length, as read from a .csv or .parquet file."""

    columns: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))


def read_file(path: Path, client: str) -> Table | NDArray[Any] | dict[str, NDArray[Any]]:
    """Read a file by its suffix: a table, one array, or the named arrays of an .npz file.

    Raises:
        DataError: the file is missing, of another kind, or damaged; names client and file.
    """
    if path.suffix not in SUFFIXES:
        raise DataError(
            f"client {client!r}: {path} is none of the kinds that can be read: "
            f"{', '.join(SUFFIXES)}"
        )
    try:
        match path.suffix:
            case ".csv":
                return _read_csv(path, client)
            case ".parquet":
                return _read_parquet(path)
            case _:
                return _read_numpy(path)
    except FileNotFoundError:
        raise DataError(f"client {client!r}: there is no file {path}") from None
    except (OSError, ValueError, EOFError, TokenError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, DataError | ParameterError):
            raise
        raise DataError(f"client {client!r}: {path} cannot be read: {error}") from None


def _read_numpy(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    with path.open("rb") as file:  # NumPy itself would leave a damaged file open
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            if path.suffix == ".npz":
                raise ValueError("it holds a single array; rename it to .npy")
            return content
        if path.suffix == ".npy":
            raise ValueError("it holds named arrays; rename it to .npz")
        arrays: dict[str, NDArray[Any]] = {name: content[name] for name in content.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} in it is no array")
    return arrays


def _read_csv(path: Path, client: str) -> Table:
    """Read a comma-separated file whose first line names the columns; values stay text."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            if not header or len(set(header)) != len(header):
                raise DataError(
                    f"client {client!r}: the first line of {path} must name every column once"
                )
            rows = []
            for number, fields in enumerate(reader, start=1):
                # An empty cell of a single column is an empty line.
                row = fields or [""] * (len(header) == 1)
                if len(row) != len(header):
                    raise DataError(
                        f"client {client!r}: row {number} of {path} has {len(row)} fields; the "
                        f"header has {len(header)}"
                    )
                rows.append(row)
        except csv.Error as error:
            raise DataError(
                f"client {client!r}: line {reader.line_num} of {path}: {error}"
            ) from None
    return Table({name: [row[i] for row in rows] for i, name in enumerate(header)})


def _read_parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ParameterError(
            f"{path} needs pyarrow; install it with: pip install 'xclp[parquet]'"
        ) from None
    try:
        return Table(parquet.read_table(path).to_pydict())
    except ArrowException as error:
        raise OSError(str(error)) from None


def features_of(
    source: Table | NDArray[Any] | dict[str, NDArray[Any]],
    client: str,
    path: Path,
    *,
    array: str | None,
    columns: Sequence[str] | None,
    leave_out: Sequence[str],
) -> NDArray[Any]:
    """Return the (n_j, d) features from what `read_file` gave.

    Args:
        source: the content of the file.
        client: name for errors.
        path: the file, for errors.
        array: which array of an .npz file; by default the only one.
        columns: which columns of a table, in this order; by default all but `leave_out`.
        leave_out: columns of a table that are no features.

    Raises:
        DataError: a column is missing, or a cell is empty or no number.
    """
    if not isinstance(source, Table):
        return _pick_array(source, client, path, array, "features_array")
    names = [c for c in source.columns if c not in leave_out] if columns is None else list(columns)
    if not names:
        raise DataError(f"client {client!r}: {path} has no feature columns")
    matrix = np.empty((len(source), len(names)))
    for i, name in enumerate(names):
        for row, cell in enumerate(column_of(source, client, path, name)):
            matrix[row, i] = _number(cell, client, path, row, name)
    return matrix


def column_of(source: Table, client: str, path: Path, name: str) -> list[Any]:
    """Return one column of a table; raises `DataError` where there is none of this name."""
    if name not in source.columns:
        raise DataError(
            f"client {client!r}: {path} has no column {name!r}; its columns are "
            f"{', '.join(source.columns)}"
        )
    return source.columns[name]


def labels_of(
    source: Table | NDArray[Any] | dict[str, NDArray[Any]],
    client: str,
    path: Path,
    *,
    array: str | None,
    column: str | None,
) -> list[Any] | NDArray[Any]:
    """Return one client's labels; empty cells of a table become None.

    Args:
        source: the content of the file.
        client: name for errors.
        path: the file, for errors.
        array: which array of an .npz file; by default the only one.
        column: which column of a table; by default the only one.

    Raises:
        DataError: it is not clear where the labels are.
    """
    if not isinstance(source, Table):
        return _pick_array(source, client, path, array, "labels_array")
    if column is None:
        if len(source.columns) != 1:
            raise DataError(
                f"client {client!r}: say which column of {path} holds the labels: label_column = "
                f"one of {', '.join(source.columns)}"
            )
        (column,) = source.columns
    return [None if _is_empty(cell) else cell for cell in column_of(source, client, path, column)]


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _pick_array(
    source: NDArray[Any] | dict[str, NDArray[Any]],
    client: str,
    path: Path,
    name: str | None,
    option: str,
) -> NDArray[Any]:
    if not isinstance(source, dict):
        return source
    if name is None and len(source) == 1:
        return next(iter(source.values()))
    if name not in source:
        raise DataError(
            f"client {client!r}: {path} holds the arrays {', '.join(source) or '(none)'}; choose "
            f"one with {option}"
        )
    return source[name]


def _number(cell: Any, client: str, path: Path, row: int, column: str) -> float:
    try:
        if _is_empty(cell) or (isinstance(cell, str) and "_" in cell):  # Python takes 1_000
            raise ValueError
        return float(cell)
    except (TypeError, ValueError):
        what = "is empty" if _is_empty(cell) else f"is {cell!r}, which is no number"
        raise DataError(
            f"client {client!r}: row {row + 1}, column {column!r} of {path} {what}"
        ) from None


def integers_if_all(labels: Sequence[list[Any] | NDArray[Any]]) -> list[list[Any] | NDArray[Any]]:
    """Turn text labels into integers where the texts of *all* clients are integers.

    A .csv file holds text only; this makes ``1`` in one file and 1 in another the same class. Where
    an array holds text, text is meant, and all stays as it is.
    """
    if any(isinstance(v, str) for ys in labels if not isinstance(ys, list) for v in ys.flat):
        return list(labels)
    texts = [v for ys in labels if isinstance(ys, list) for v in ys if isinstance(v, str)]
    if not texts or not all(_is_integer(t) for t in texts):
        return list(labels)
    return [
        [int(v) if isinstance(v, str) else v for v in ys] if isinstance(ys, list) else ys
        for ys in labels
    ]


def _is_integer(text: str) -> bool:
    try:
        return str(int(text)) == text.strip()
    except ValueError:
        return False
