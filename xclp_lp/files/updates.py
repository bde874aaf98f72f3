"""Numbers that are summed: read from a file, and written to one of the same kind.

One array (.npy), named arrays (.npz), the columns of a table (.csv, .parquet), or what PyTorch
saved of tensors, such as a state dict (.pt, .pth). Cells of tables are float64 however they are
stored. With an id column each cell stands under its row's id, so that rows of other clients may be
in another order, and a row that one of them lacks is noticed.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.updates import Update
from xclp_crypto.wording import did_you_mean
from xclp_lp.files.cells import masked
from xclp_lp.files.damaged import DAMAGED
from xclp_lp.files.schema import NUMBER
from xclp_lp.files.tables import Source, read_file
from xclp_lp.wording import listing

KINDS: Final = {
    ".npy": "an array",
    ".npz": "named arrays",
    ".csv": "a table",
    ".parquet": "a table",
    ".pt": "tensors",
    ".pth": "tensors",
}
"""What files hold, by suffix."""


def kind_of(path: Path) -> str:
    """Return what a file holds; raises `ParameterError` for a suffix that `KINDS` lacks."""
    suffix = path.suffix.lower()
    if suffix not in KINDS:
        raise ParameterError(f"{path} is none of the kinds that can be summed: {', '.join(KINDS)}")
    return KINDS[suffix]


def read_update(
    path: Path,
    client: str,
    *,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
) -> Update:
    """Read what a client has to sum.

    Args:
        path: the file.
        client: whose it is, for errors.
        columns: which columns of a table, or arrays of an .npz file; by default all.
        id_column: the column of a table that tells its rows apart, and is not summed.

    Returns:
        An array; a mapping of arrays by name, of which a table has one of (n,) float64 for each
        column; with an id column a mapping of cells by id for each column; or what the file of
        PyTorch holds.

    Raises:
        DataError: the file is missing or damaged, or a cell is not a number; names client, file,
            row and column.
        ParameterError: it is of another kind, or something to read it is not installed.
    """
    kind = kind_of(path)
    if id_column is not None and kind != "a table":
        raise ParameterError(f"{path} is not a table, which an id column needs")
    if columns is not None and kind not in ("a table", "named arrays"):
        raise ParameterError(f"{path} has no columns to choose from")
    if kind == "tensors":
        return _read_tensors(path, client)
    source = read_file(path, client)
    if source.table is not None:
        return _columns(source, columns, id_column)
    if not isinstance(source.content, dict):
        return source.content
    arrays = source.content
    if columns is None:
        return arrays
    for name in columns:
        if name not in arrays:
            raise source.error(
                f"has no array {name!r}; its arrays are {listing(arrays)}"
                f"{did_you_mean(name, arrays)}"
            )
    return {name: arrays[name] for name in columns}


def _columns(source: Source, columns: Sequence[str] | None, id_column: str | None) -> Update:
    table = source.table
    own = [] if table is None else [c for c in table.columns if c not in (id_column, *table.index)]
    wanted, advice = columns, ""
    if wanted is None:
        wanted, advice = own, ", or say which columns are summed, and which one has the rows' ids"
    numbers = {name: _numbers(source, name, advice) for name in wanted}
    if not numbers:
        raise source.error("has no columns to sum")
    if id_column is None:
        return numbers
    ids = source.rows_by_id(source.column(id_column))
    return {name: dict(zip(ids, values, strict=True)) for name, values in numbers.items()}


def _numbers(source: Source, column: str, advice: str) -> NDArray[np.float64]:
    decimal = "." if source.table is None else source.table.decimal
    cells = source.column(column)
    for row, cell in enumerate(cells, start=1):
        if fault := source.fault(cell):
            place = f"client {source.client!r}: row {row}, column {column!r} of {source.path} is "
            found = f"{cell!r}: {fault}" if fault != "empty" else "empty; fill it in"
            raise DataError(f"{place}{found}{advice}")
    return np.array([NUMBER.number(cell, decimal) for cell in cells], dtype=np.float64)


def _read_tensors(path: Path, client: str) -> Update:
    try:
        import torch
    except ImportError:
        raise ParameterError(
            f"{path} needs PyTorch; install it with: pip install 'xclp[ssl]'"
        ) from None
    # Only tensors and what contains them are loaded; anything else is refused by this error.
    refused = torch.serialization.pickle.UnpicklingError  # type: ignore[attr-defined]
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError(f"client {client!r}: there is no file {path}") from None
    except (*DAMAGED, refused) as error:
        raise DataError(
            f"client {client!r}: {path} cannot be read: {str(error).splitlines()[0]}"
        ) from None


def write_update(path: Path, update: Update, id_column: str | None = None) -> None:
    """Write an update to a file that `read_update` reads again.

    Args:
        path: the file, of the kind that the update was read from.
        update: as from `read_update`.
        id_column: the name of the column of ids, if the update has ids.

    Raises:
        OSError: it cannot be written.
    """
    match path.suffix.lower():
        case ".npy":
            with path.open("wb") as file:
                np.save(file, update)
        case ".npz":
            with zipfile.ZipFile(path, "w") as archive:  # `np.savez` takes no array named "file"
                for name, array in update.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
        case ".csv":
            columns = _table_of(update, id_column)
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(map(masked, columns))
                cells = ([_cell(value) for value in column] for column in columns.values())
                writer.writerows(zip(*cells, strict=True))
        case ".parquet":
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(pyarrow.table(_table_of(update, id_column)), path)
        case _:
            import torch

            torch.save(update, path)


def _table_of(update: Update, id_column: str | None) -> dict[str, list[Any]]:
    """Return the columns of a table, that of the ids first."""
    if id_column is None:
        return {name: values.tolist() for name, values in update.items()}
    ids = list(next(iter(update.values())))
    return {id_column: ids} | {n: [float(v) for v in rows.values()] for n, rows in update.items()}


def _cell(value: str | float) -> str:
    """Return a cell of a .csv file: whole numbers that are exact without a decimal point."""
    if isinstance(value, str):
        return masked(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1 << 53 else repr(value)
