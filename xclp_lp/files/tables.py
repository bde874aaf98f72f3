"""Reading one client's features and labels from files: .npy, .npz, .csv and .parquet.

Errors name the client, the file, and the row and column as a person would count them in the file:
rows of a table from 1, the header not counted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.wording import did_you_mean
from xclp_lp.files.damaged import DAMAGED
from xclp_lp.wording import count, listing

SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
_INTEGER = re.compile(r"(0|-?[1-9][0-9]{0,17})(\.0+)?")


@dataclass(frozen=True)
class Table:
    """Named columns of equal length, as read from a .csv or .parquet file."""

    columns: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))


@dataclass(frozen=True)
class Source:
    """What a file of a client holds: a table, one array, or the named arrays of an .npz file.

    Attributes:
        content: of the file.
        client: whose it is, for errors.
        path: of the file, for errors.
    """

    content: Table | NDArray[Any] | dict[str, NDArray[Any]]
    client: str
    path: Path

    @property
    def table(self) -> Table | None:
        """Return the table, if it is one."""
        return self.content if isinstance(self.content, Table) else None

    def error(self, message: str) -> DataError:
        """Return an error that begins with client and file."""
        return DataError(f"client {self.client!r}: {self.path} {message}")

    def column(self, name: str) -> list[Any]:
        """Return one column of a table; raises `DataError` where there is none of this name."""
        columns = {} if self.table is None else self.table.columns
        if name not in columns:
            raise self.error(
                f"has no column {name!r}; its columns are {listing(columns)}"
                f"{did_you_mean(name, columns)}"
            )
        return columns[name]

    def feature_columns(
        self,
        *,
        columns: Sequence[str] | None,
        leave_out: Sequence[str],
        like: tuple[str, Sequence[str]] | None = None,
    ) -> list[str]:
        """Return which columns of a table are features, in their order.

        Args:
            columns: those that the user lists, if any; by default all but `leave_out`.
            leave_out: columns that are not features.
            like: another client and its columns: by default the same ones in the same order.

        Raises:
            DataError: there are none, or others than those of `like`.
        """
        own = [] if self.table is None else self.table.columns
        names = [c for c in own if c not in leave_out] if columns is None else list(columns)
        if not names:
            raise self.error("has no feature columns")
        if columns is not None or like is None:
            return names
        other, expected = like
        missing = [c for c in expected if c not in names]
        extra = [c for c in names if c not in expected]
        if missing or extra:
            differences = [f"missing {listing(missing)}"] * bool(missing)
            differences += [f"extra {listing(extra)}"] * bool(extra)
            raise DataError(
                f"client {self.client!r}: the feature columns of {self.path} are not those of "
                f"client {other!r}: {' and '.join(differences)}; name them alike, list "
                "feature_columns for each client, or mark columns that are not features with "
                "id_column or label_column"
            )
        return list(expected)

    def features(self, *, array: str | None = None, columns: Sequence[str] = ()) -> NDArray[Any]:
        """Return the (n_j, d) features.

        Args:
            array: which array of an .npz file; by default the only one.
            columns: which columns of a table, in this order.

        Raises:
            DataError: a column is missing, or a cell is empty or no finite number.
        """
        if self.table is None:
            return self._array(array, "features_array")
        matrix = np.empty((len(self.table), len(columns)))
        for i, name in enumerate(columns):
            for row, cell in enumerate(self.column(name)):
                matrix[row, i] = self._number(cell, row, name)
        return matrix

    def labels(
        self, *, array: str | None, column: str | None, id_column: str | None = None
    ) -> list[Any] | NDArray[Any]:
        """Return one client's labels; empty cells of a table become None.

        Args:
            array: which array of an .npz file; by default the only one.
            column: which column of a table; by default the only one.
            id_column: a column of a table that holds no labels.

        Raises:
            DataError: it is not clear where the labels are.
        """
        if self.table is None:
            return self._array(array, "labels_array")
        if column is None:
            candidates = [c for c in self.table.columns if c != id_column]
            if len(candidates) != 1:
                raise DataError(
                    f"client {self.client!r}: say which column of {self.path} holds the labels: "
                    f"label_column = one of {listing(candidates)}"
                )
            (column,) = candidates
        return [None if _is_empty(cell) else cell for cell in self.column(column)]

    def rows_by_id(self, ids: Sequence[Any]) -> dict[str, int]:
        """Return the index of each row by its id, which is compared as text.

        Raises:
            DataError: an id is empty or occurs twice; names the rows.
        """
        rows: dict[str, int] = {}
        for row, value in enumerate(ids):
            key = "" if value is None else str(value).strip()
            if not key:
                raise DataError(
                    f"client {self.client!r}: row {row + 1} of {self.path} has no id; rows are "
                    "told apart by id_column, so every row needs one"
                )
            if key in rows:
                raise DataError(
                    f"client {self.client!r}: rows {rows[key] + 1} and {row + 1} of {self.path} "
                    f"have the same id {key!r}; rows are told apart by id_column, so ids must be "
                    "unique"
                )
            rows[key] = row
        return rows

    def _array(self, name: str | None, option: str) -> NDArray[Any]:
        arrays = self.content
        if not isinstance(arrays, dict):
            return np.asarray(arrays)
        if name is None and len(arrays) == 1:
            return next(iter(arrays.values()))
        if name not in arrays:
            raise self.error(
                f"holds the arrays {', '.join(arrays) or '(none)'}; choose one with {option}"
                f"{did_you_mean(name or '', arrays)}"
            )
        return arrays[name]

    def _number(self, cell: Any, row: int, column: str) -> float:
        place = f"client {self.client!r}: row {row + 1}, column {column!r} of {self.path}"
        remedy = "drop the row or the column, or fill it in (impute)"
        if _is_empty(cell):
            raise DataError(f"{place} is empty; {remedy}")
        try:
            if isinstance(cell, str) and "_" in cell:  # Python takes 1_000
                raise ValueError
            number = float(cell)
        except (TypeError, ValueError):
            raise DataError(
                f"{place} is {cell!r}, which is not a number; if the column is not a feature, name "
                "it in id_column or label_column, or list feature_columns"
            ) from None
        if not np.isfinite(number):
            raise DataError(f"{place} is {cell!r}, which is not finite; {remedy}")
        return number


def read_file(path: Path, client: str) -> Source:
    """Read a file by its suffix: a table, one array, or the named arrays of an .npz file.

    Raises:
        DataError: the file is missing, of another kind, or damaged; names client and file.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(
            f"client {client!r}: {path} is none of the kinds that can be read: "
            f"{', '.join(SUFFIXES)}"
        )
    try:
        if not path.stat().st_size:
            raise DataError(f"client {client!r}: {path} is empty")
        match suffix:
            case ".csv":
                return Source(_read_csv(path, client), client, path)
            case ".parquet":
                return Source(_read_parquet(path), client, path)
            case _:
                return Source(_read_numpy(path), client, path)
    except FileNotFoundError:
        raise DataError(f"client {client!r}: there is no file {path}") from None
    except UnicodeDecodeError:
        raise DataError(
            f"client {client!r}: {path} is not encoded in UTF-8; save it as UTF-8"
        ) from None
    except DAMAGED as error:
        if isinstance(error, DataError | ParameterError):
            raise
        raise DataError(f"client {client!r}: {path} cannot be read: {error}") from None


def _read_numpy(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    with path.open("rb") as file:  # NumPy itself would leave a damaged file open
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            if path.suffix.lower() == ".npz":
                raise ValueError("it holds a single array; rename it to .npy")
            return content
        if path.suffix.lower() == ".npy":
            raise ValueError("it holds named arrays; rename it to .npz")
        arrays: dict[str, NDArray[Any]] = {name: content[name] for name in content.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} in it is not an array")
    return arrays


def _read_csv(path: Path, client: str) -> Table:
    """Read a comma-separated file whose first line names the columns; values stay text."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        for separator, what in ((";", "semicolons"), ("\t", "tabs")):
            if separator in first and "," not in first:
                raise DataError(
                    f"client {client!r}: {path} is separated by {what}; save it separated by "
                    "commas, with decimal points"
                )
        file.seek(0)
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            if not header:
                raise DataError(
                    f"client {client!r}: the first line of {path} is blank; it names the columns"
                )
            if twice := [name for i, name in enumerate(header) if name in header[:i]]:
                raise DataError(
                    f"client {client!r}: the first line of {path} names {twice[0]!r} twice; give "
                    "every column a name of its own"
                )
            rows = []
            blank = 0
            for number, fields in enumerate(reader, start=1):
                # An empty cell of a single column is an empty line.
                row = fields or [""] * (len(header) == 1)
                if len(header) > 1 and len(row) < 2 and not "".join(row).strip():
                    blank = blank or number
                    continue
                if blank:
                    raise DataError(
                        f"client {client!r}: row {blank} of {path} is a blank line before the end; "
                        "delete the line"
                    )
                if len(row) != len(header):
                    raise DataError(
                        f"client {client!r}: row {number} of {path} has "
                        f"{count(len(row), 'field')}; the header has {len(header)}; put values "
                        "that contain a comma in quotes"
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


def looks_like_row_numbers(column: NDArray[Any]) -> bool:
    """Return whether a column of at least three numbers counts up by one from an integer."""
    return len(column) > 2 and bool(np.all(np.diff(column) == 1)) and float(column[0]).is_integer()


def joined_by_id(
    labels: Sequence[Any], label_ids: Sequence[Any], source: Source, ids: Sequence[Any], of: Source
) -> list[Any]:
    """Return the labels of the rows called `ids`; rows without an entry get None.

    Args:
        labels: (m,) one for each entry of `label_ids`.
        label_ids: (m,) ids in the table of labels; compared as text, so that 7 is "7".
        source: the table of labels.
        ids: (n_j,) ids in the table of features.
        of: the table of features.

    Raises:
        DataError: an id is empty or occurs twice, or is not among `ids`.
    """
    rows = of.rows_by_id(ids)
    result: list[Any] = [None] * len(ids)
    for key, entry in source.rows_by_id(label_ids).items():
        if key not in rows:
            raise DataError(
                f"client {source.client!r}: row {entry + 1} of {source.path} has the id {key!r}, "
                f"which no row of {of.path} has; delete it or correct the id"
            )
        result[rows[key]] = labels[entry]
    return result


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def integers_if_all(labels: Sequence[list[Any] | NDArray[Any]]) -> list[list[Any] | NDArray[Any]]:
    """Turn text labels into integers where the texts of *all* clients are integers.

    A .csv file holds text only; this makes ``1`` or ``1.0`` in one file and 1 in another the same
    class. Where an array holds text, text is meant, and all stays as it is.
    """
    if any(isinstance(v, str) for ys in labels if not isinstance(ys, list) for v in ys.flat):
        return list(labels)
    texts = [v for ys in labels if isinstance(ys, list) for v in ys if isinstance(v, str)]
    if not texts or not all(_INTEGER.fullmatch(t.strip()) for t in texts):
        return list(labels)
    return [
        [int(v.partition(".")[0]) if isinstance(v, str) else v for v in ys]
        if isinstance(ys, list)
        else ys
        for ys in labels
    ]
