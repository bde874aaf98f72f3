"""Reading one client's features and labels from files: arrays and tables.

Errors name the client, the file, and the row and column as a person would count them in the file:
rows of a table from 1, the header not counted.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.wording import did_you_mean
from xclp_lp.files.cells import unmasked
from xclp_lp.files.damaged import DAMAGED
from xclp_lp.files.excel import excel_rows
from xclp_lp.files.schema import BOOLEANS, NO_SCHEMA, NUMBER, Column, Schema
from xclp_lp.labels import UNLABELLED
from xclp_lp.validation import Validated
from xclp_lp.wording import count, differences, listing

MISSING_VALUES = ("na", "n/a", "nan", "null", "<na>")
"""Texts in the place of a feature that is not there."""

SUFFIXES = (".npy", ".npz", ".csv", ".parquet", ".xlsx")
TABLES = ".csv, .parquet or .xlsx"
"""What can have columns, as messages say it."""
_INTEGER = re.compile(r"(0|-?[1-9][0-9]{0,38})(\.0+)?")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
WITH_COMMA = "with a comma between thousands or before decimals"
DECIMAL_ADVICE = (
    'save the file with decimal points, or with semicolons and csv = {delimiter = ";", '
    'decimal = ","}'
)
_SEPARATOR_LINE = re.compile(r'"?sep=.?"?', re.IGNORECASE)
_FRACTION = re.compile(r"[+-]?\d+([.,])\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")


@dataclass(frozen=True)
class CsvFormat(Validated):
    """How a .csv file is written."""

    delimiter: Annotated[
        Literal[",", ";", "\t"], Meta(description="what is between two cells of a line")
    ] = ","
    decimal: Annotated[
        Literal[".", ","], Meta(description="what is between units and tenths of a number")
    ] = "."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delimiter == self.decimal:
            raise ParameterError(
                "delimiter and decimal are both a comma; one character cannot mean both"
            )


@dataclass(frozen=True)
class Table:
    """Named columns of equal length, as read from a file.

    Attributes:
        columns: by name; cells of a .csv file are text.
        decimal: what numbers in text have between units and tenths.
        index: columns that pandas stored a data frame's index in, such as a first one without a
            name; they are not features.
    """

    columns: dict[str, list[Any]]
    decimal: str = "."
    index: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))


@dataclass(frozen=True)
class Expected:
    """Columns that a table should have.

    Attributes:
        whose: they are, for errors.
        columns: in the order in which they are taken.
        binding: whether columns of other names are refused although the user lists them.
        schema: what they hold, if that is said.
    """

    whose: str
    columns: Sequence[str]
    binding: bool = False
    schema: Schema = field(default_factory=dict)


def agreed_on(columns: Sequence[str] | None, schema: Schema) -> Expected | None:
    """Return the columns that every table must have, if they are agreed on."""
    if schema:
        return Expected("the schema", tuple(schema), binding=True, schema=schema)
    return None if columns is None else Expected("the agreement", columns, binding=True)


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
        like: Expected | None = None,
    ) -> list[str]:
        """Return which columns of a table are features, in their order.

        Args:
            columns: those that the user lists, if any; by default all but `leave_out`.
            leave_out: columns that are not features.
            like: the same ones are taken in that order; where the user lists others, which may be
                called in another way at each client, they are taken in the user's order.

        Raises:
            DataError: there are none, or others than those of `like`.
        """
        table = Table({}) if self.table is None else self.table
        own = [c for c in table.columns if c not in (*leave_out, *table.index)]
        names = own if columns is None else list(columns)
        if not names:
            raise self.error("has no feature columns")
        told = "" if like is None else differences(names, like.columns)
        if like is None or (told and columns is not None and not like.binding):
            return names
        if told:
            listed = "" if like.binding else "list feature_columns for each client, "
            raise DataError(
                f"client {self.client!r}: the feature columns of {self.path} are not those of "
                f"{like.whose}: {told}; name them alike, {listed}or mark columns that are not "
                "features with id_column or label_column"
            )
        return list(like.columns)

    def features(
        self,
        *,
        array: str | None = None,
        columns: Sequence[str] = (),
        schema: Schema = NO_SCHEMA,
        missing: bool = False,
        row_names: Sequence[str] | None = None,
    ) -> NDArray[Any]:
        """Return the (n_j, d) features.

        Args:
            array: which array of an .npz file; by default the only one.
            columns: which columns of a table, in this order.
            schema: what they hold, if that is said; by default numbers.
            missing: whether cells may be empty: then they become NaN, and a category none.
            row_names: what errors call the rows of a table; by default their numbers from 1.

        Raises:
            DataError: a column is missing, or a cell is empty, not finite or not what the column
                holds.
        """
        if self.table is None:
            if schema:
                raise self.error(f"is not a table, which a schema needs: {TABLES}")
            return self._array(array, "features_array")
        parts = [np.empty((len(self.table), 0))]
        rows = row_names or [str(i + 1) for i in range(len(self.table))]
        for name in columns:
            held = schema.get(name, NUMBER)
            numbers = [
                np.nan if missing and _is_missing(cell) else self._number(cell, row, name, held)
                for row, cell in zip(rows, self.column(name), strict=True)
            ]
            parts.append(held.features(np.array(numbers)))
        return np.hstack(parts)

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
            candidates = [c for c in self.table.columns if c not in (id_column, *self.table.index)]
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

    @property
    def _decimal(self) -> str:
        return "." if self.table is None else self.table.decimal

    @property
    def _with_comma(self) -> str:
        return " with a decimal comma" * (self._decimal == ",")

    def fault(self, cell: Any, held: Column = NUMBER) -> str:
        """Return why a cell cannot be what its column holds: empty, not a number, …; or ""."""
        if _is_missing(cell):
            return "empty"
        number = held.number(cell, self._decimal)
        if number is None:
            comma = held.kind == "number" and self._decimal == "." and "," in str(cell)
            written = str(cell).strip()
            if comma and (_FRACTION.fullmatch(written) or _THOUSANDS.fullmatch(written)):
                return WITH_COMMA
            return held.refusal
        return "" if np.isfinite(number) else "not finite"

    def _number(self, cell: Any, row: str, column: str, held: Column) -> float:
        number = None if _is_missing(cell) else held.number(cell, self._decimal)
        if number is not None and np.isfinite(number):
            return number
        fault = self.fault(cell, held)
        place = f"client {self.client!r}: row {row}, column {column!r} of {self.path}"
        remedy = "drop the row or the column, or fill it in"
        if fault == "empty":
            written = f" ({cell!r})" * (not _is_empty(cell))
            raise DataError(f'{place} is empty{written}; {remedy}, or set missing = "mean"')
        if fault == "not finite":
            raise DataError(f"{place} is {cell!r}, which is not finite; {remedy}")
        if held.values is not None:
            values = list(map(str, held.values))
            raise DataError(
                f"{place} is {cell!r}, which is {fault}: {listing(values)}"
                f"{did_you_mean(str(cell), values)}"
            )
        if fault == WITH_COMMA:
            if _THOUSANDS.fullmatch(str(cell).strip()):
                raise DataError(
                    f"{place} is {cell!r}, which has a comma: if it is between thousands, save the "
                    f"file without such commas; if it is a decimal comma, {DECIMAL_ADVICE}"
                )
            raise DataError(f"{place} is {cell!r}, which has a decimal comma; {DECIMAL_ADVICE}")
        raise DataError(
            f"{place} is {cell!r}, which is {fault}{self._with_comma}; if the column is not a "
            "feature, name it in id_column or label_column, or list feature_columns; if it holds "
            "categories, say so in a [schema]"
        )


def read_file(path: Path, client: str, form: CsvFormat | None = None) -> Source:
    """Read a file by its suffix: a table, one array, or the named arrays of an .npz file.

    Args:
        path: the file.
        client: whose it is, for errors.
        form: how a .csv file is written; by default that is recognised.

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
                return Source(_read_csv(path, client, form), client, path)
            case ".parquet":
                return Source(_read_parquet(path, client), client, path)
            case ".xlsx":
                return Source(_read_excel(path, client), client, path)
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


def _read_csv(path: Path, client: str, form: CsvFormat | None) -> Table:
    """Read a file whose first line names the columns; values stay text.

    Where nobody says how it is written, semicolons or tabs separate if they are in the first line
    and commas are not, and then a comma in a number is a decimal comma; a warning says so.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        if _SEPARATOR_LINE.fullmatch(first.strip()):
            raise DataError(
                f"client {client!r}: the first line of {path} is {first.strip()!r}, which tells "
                "only a spreadsheet how cells are separated; delete the line"
            )
        delimiter = "," if form is None else form.delimiter
        if form is None and "," not in first:
            delimiter = next((mark for mark in (";", "\t") if mark in first), ",")
        file.seek(0)
        reader = csv.reader(file, strict=True, delimiter=delimiter)
        try:
            header = [unmasked(cell) for cell in next(reader, [])]
            _require_header(header, client, path)
            rows = list(_csv_rows(reader, len(header), f"client {client!r}: row", path, delimiter))
        except csv.Error as error:
            raise DataError(
                f"client {client!r}: line {reader.line_num} of {path}: {error}; "
                f"{_quote_advice(path, reader.line_num)}"
            ) from None
    if form is not None:
        return _table(header, rows, form.decimal)
    if delimiter == ",":
        return _table(header, rows)
    decimal, grouped = _recognised_decimal(rows, client, path)
    warnings.warn(
        f"client {client!r}: {path} is read with {SEPARATORS[delimiter]}s between cells and "
        f"decimal {'commas' if decimal == ',' else 'points'}; to "
        f"silence this, save it with commas between cells, or where a file of the parties names "
        f'it, write csv = {{delimiter = "{delimiter}", decimal = "{decimal}"}}'
        + f"; if {grouped!r} has a comma between thousands, save the file without"
        * bool(grouped),
        UserWarning,
        stacklevel=5,
    )
    return _table(header, rows, decimal)


def _require_header(header: Sequence[str], client: str, path: Path) -> None:
    if not header:
        raise DataError(
            f"client {client!r}: the first line of {path} is blank; it names the columns"
        )
    if twice := [name for i, name in enumerate(header) if name in header[:i]]:
        raise DataError(
            f"client {client!r}: {path} names the column {twice[0]!r} twice; give every column a "
            "name of its own"
        )


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]], decimal: str = ".") -> Table:
    """Return a table; a first column without a name is the index of a data frame."""
    columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    nameless = len(header) > 1 and not header[0].strip()
    return Table(columns, decimal, index=(header[0],) if nameless else ())


def _csv_rows(
    lines: Iterable[list[str]], width: int, row_of: str, path: Path, delimiter: str
) -> Iterator[list[str]]:
    """Yield the rows of a .csv file after its header, without blank lines at its end.

    Raises:
        DataError: a row has another number of fields than the header, or a line is blank.
    """
    blank = 0
    for number, fields in enumerate(lines, start=1):
        row = fields or [""] * (width == 1)  # an empty cell of a single column is an empty line
        if width > 1 and len(row) < 2 and not "".join(row).strip():
            blank = blank or number
            continue
        if blank:
            raise DataError(
                f"{row_of} {blank} of {path} is a blank line before the end; delete the line"
            )
        if len(row) != width:
            advice = f"put values that contain a {SEPARATORS[delimiter]} in quotes"
            if any("\n" in cell for cell in row):
                advice = "a value in quotes goes over several lines; close the quote"
            raise DataError(
                f"{row_of} {number} of {path} has {count(len(row), 'field')}; the header has "
                f"{width}; {advice}"
            )
        yield [unmasked(cell) if cell[:1] == "'" else cell for cell in row]


def _quote_advice(path: Path, last: int) -> str:
    """Say what to do about the quotes in the first lines of a .csv file, which end in an error."""
    opened = 0
    with path.open(newline="", encoding="utf-8-sig") as file:
        for number, line in enumerate(islice(file, last), start=1):
            if line.count('"') % 2:
                opened = 0 if opened else number
    if opened:
        return f"the quote that is opened in line {opened} is not closed"
    return 'put the whole value in quotes, and write a quote in it twice: ""'


def _recognised_decimal(rows: Sequence[Sequence[str]], client: str, path: Path) -> tuple[str, str]:
    """Return what marks decimals, a comma or a point; refuse both in one file.

    Also returns the first number with a comma if each of them could have it between thousands.
    """
    places: dict[str, tuple[int, str]] = {}
    grouped = True
    for number, row in enumerate(rows, start=1):
        for cell in row:
            if match := _FRACTION.fullmatch(cell.strip()):
                places.setdefault(match[1], (number, cell.strip()))
                grouped = grouped and bool(_THOUSANDS.fullmatch(cell.strip()))
    if len(places) == 2:
        where = " and ".join(f"{cell!r} in row {row}" for row, cell in places.values())
        raise DataError(
            f"client {client!r}: {path} has {where}; say which marks decimals, as in "
            'csv = {delimiter = ";", decimal = ","}'
        )
    mark = next(iter(places), ".")
    return mark, places[mark][1] if mark == "," and grouped else ""


def _read_excel(path: Path, client: str) -> Table:
    first, *rows = excel_rows(path, client)
    header = ["" if cell is None else str(cell).strip() for cell in first]
    _require_header(header, client, path)
    for number, row in enumerate(rows, start=1):
        if all(map(_is_empty, row)) and len(header) > 1:
            raise DataError(
                f"client {client!r}: row {number} of {path} is blank before the end; delete it"
            )
    return _table(header, rows)


def _read_parquet(path: Path, client: str) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ParameterError(
            f"{path} needs pyarrow; install it with: pip install 'xclp[parquet]'"
        ) from None
    try:
        _require_header(parquet.read_schema(path).names, client, path)
        table = parquet.read_table(path)
        stored = (table.schema.pandas_metadata or {}).get("index_columns", [])
        return Table(table.to_pydict(), index=tuple(c for c in stored if isinstance(c, str)))
    except ArrowException as error:
        raise OSError(str(error)) from None


def _is_missing(cell: Any) -> bool:
    """Return whether a cell of features is empty, or says that its value is not there."""
    if isinstance(cell, float):
        return bool(np.isnan(cell))
    return _is_empty(cell) or str(cell).strip().casefold() in MISSING_VALUES


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def values_of_texts(
    labels: Sequence[list[Any] | NDArray[Any]], classes: Sequence[Any] = ()
) -> list[list[Any] | NDArray[Any]]:
    """Turn text labels into integers, other numbers or booleans, where *all* clients' texts are.

    A .csv file holds text only; this makes ``1`` or ``1.0`` in one file and 1 in another the same
    class; and ``0.5`` and 0.5, or ``True`` and True, if a client has numbers or booleans, or the
    classes are such. Where an array holds text, text is meant, and all stays as it is.

    Args:
        labels: per client, (n_j,).
        classes: those that are agreed on, if any.
    """
    if any(isinstance(v, str) for ys in labels if not isinstance(ys, list) for v in ys.flat):
        return list(labels)
    texts = {v for ys in labels if isinstance(ys, list) for v in ys if isinstance(v, str)}
    others = (ys.ravel().tolist() if isinstance(ys, np.ndarray) else ys for ys in labels)
    there = (v for ys in (*others, classes) for v in ys if isinstance(v, bool | int | float))
    kinds = {type(v) for v in there if v == v and v != UNLABELLED}
    values: dict[str, Any] = {}
    if all(_INTEGER.fullmatch(t.strip()) for t in texts) or (
        bool not in kinds and kinds and all(_NUMBER.fullmatch(t.strip()) for t in texts)
    ):
        whole = {t: bool(_INTEGER.fullmatch(t.strip())) for t in texts}
        values = {t: int(t.partition(".")[0]) if whole[t] else float(t) for t in texts}
    elif bool in kinds:
        known = {t: BOOLEANS.get(t.strip().casefold()) for t in texts}
        values = {} if None in known.values() else {t: bool(v) for t, v in known.items()}
    return [
        [values.get(v, v) if isinstance(v, str) else v for v in ys] if isinstance(ys, list) else ys
        for ys in labels
    ]
