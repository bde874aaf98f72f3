"""pandas' data frames and series: columns are matched by name, rows by index.

Tables of other libraries that can become a data frame do; what else there is passes through as it
is. Nothing here loads pandas unless it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import DataError
from xclp_lp.labels import UNLABELLED
from xclp_lp.validation import FINITE
from xclp_lp.wording import differences, listing, rows_called

NUMBERS = (int, float, np.integer, np.floating, np.bool_)


def is_frame(x: Any) -> bool:
    """Return whether something is a data frame with named columns and an index."""
    return hasattr(x, "columns") and hasattr(x, "reindex")


def index_of(x: Any) -> Any:
    """Return a data frame's index; None of anything else."""
    return x.index if is_frame(x) else None


def joined_indices(index: Any, more: Any, new: int, client: str) -> Any:
    """Return the index of old rows and of `new` ones after them; None unless all rows have one.

    Raises:
        DataError: new rows have names of old ones, and not only numbers from 0 as names.
    """
    if not new:
        return index
    if index is None or more is None:
        return None
    again = [] if more.tolist() == list(range(new)) else more[more.isin(index)].tolist()
    if again:
        names = [repr(name) for name in again]
        raise DataError(
            f"client {client!r}: {rows_called(range(len(names)), names)} of the index are in the "
            "results already; leave them out, or name them otherwise if they are other rows"
        )
    return index.append(more)


def column_names(Xs: Sequence[Any]) -> tuple[str, ...] | None:
    """Return the columns of the first table that has any, if all are text."""
    tables = (getattr(x, "column_names", getattr(x, "columns", ())) for x in Xs)
    columns = next((tuple(own) for own in tables if len(own)), ())
    return columns if columns and all(isinstance(c, str) for c in columns) else None


def row_names(x: Any) -> list[str] | None:
    """Return what a data frame's index calls its rows; None where that is their number from 0."""
    if not is_frame(x) or x.index.tolist() == list(range(len(x))):
        return None
    return [repr(name) if isinstance(name, str) else str(name) for name in x.index.tolist()]


def with_same_columns(
    Xs: Sequence[ArrayLike], names: Sequence[str], columns: Sequence[str] = ()
) -> list[ArrayLike]:
    """Return the features, tables as data frames, with the columns of all in the first's order.

    Args:
        Xs: per client, a data frame or anything else; empty frames have no columns to compare.
        names: of the clients.
        columns: those that were fitted, in the order to return; if none, the first's.

    Raises:
        DataError: a client's columns are others, or some twice; names client and columns.
    """
    found: list[Any] = [x.to_pandas() if hasattr(x, "to_pandas") else x for x in Xs]
    frames = [j for j, x in enumerate(found) if is_frame(x) and not x.empty]
    arrays = [
        name
        for name, x in zip(names, found, strict=True)
        if not (is_frame(x) or (isinstance(x, list) and not x))
    ]
    whose = "fit had" if columns else repr(names[frames[0]]) if frames else ""
    for j in frames:
        frame = found[j]
        own, expected = list(frame.columns), list(columns or found[frames[0]].columns)
        if len(set(own)) < len(own):
            twice = [c for i, c in enumerate(own) if c in own[:i]]
            raise DataError(f"client {names[j]!r} has the columns {listing(twice)} twice")
        if set(own) != set(expected):
            raise DataError(
                f"client {names[j]!r} has other columns than {whose}: {differences(own, expected)}"
            )
        found[j] = frame[expected]
        if own != expected and arrays:
            raise DataError(
                f"client {arrays[0]!r} has an array, whose columns have no names, and data frames "
                f"have theirs in different orders ({whose}, {names[j]!r}); give all data frames"
            )
    return found


def frame_values(frame: Any, *, missing: bool = False) -> NDArray[Any]:
    """Return the numbers of a data frame, (n_j, d); booleans are 0 and 1.

    Args:
        frame: of one client.
        missing: whether cells may be missing, which become NaN.

    Raises:
        DataError: a cell is missing, not a number or not finite; names row and column.
    """
    if all(isinstance(t, np.dtype) and t.kind in "fiu" for t in frame.dtypes):
        values: NDArray[Any] = frame.to_numpy()
    else:
        values = np.empty(frame.shape)
        for column in range(frame.shape[1]):
            values[:, column] = _column_values(frame, column)
    finite = ~np.isinf(values) if missing else np.isfinite(values)
    if not finite.all():
        row, column = np.argwhere(~finite)[0].tolist()
        what = "not finite" if np.isinf(values[row, column]) else "missing"
        raise DataError(
            f"{_place(frame, row, column)} is {what}; drop the row or the column, fill it in, as "
            "scikit-learn's SimpleImputer does, or set missing = 'mean'"
        )
    return values


def _column_values(frame: Any, column: int) -> Any:
    """Return one column's numbers, (n_j,), with NaN for what is missing."""
    own = frame.iloc[:, column]
    if own.dtype.kind in "biuf":
        return own.to_numpy(dtype=np.float64, na_value=np.nan)
    cells = own.tolist()
    for row, cell in enumerate(own.isna().tolist()):
        if cell:
            cells[row] = np.nan
        elif own.dtype == "category" or not isinstance(cells[row], NUMBERS):
            raise DataError(
                f"{_place(frame, row, column)} is {cells[row]!r}, of dtype {own.dtype}, and not a "
                "number; encode the column as numbers, such as by pandas.get_dummies, or drop it"
            )
        elif abs(cells[row]) > FINITE:
            cells[row] = np.inf
    return cells


def _place(frame: Any, row: int, column: int) -> str:
    return f"{rows_called([row], row_names(frame))}, column {frame.columns[column]!r}"


def labels_by_index(index: Any, y: Any, name: str) -> Any:
    """Return labels in the order of a data frame's rows, if both have an index.

    Args:
        index: of a client's features; None if they have none.
        y: its labels; rows that a series has no entry for get NaN: they are unlabelled.
        name: of the client.

    Raises:
        DataError: the series has an entry for a row that the features do not have, or an index that
            differs names a row twice.
    """
    if index is None or not (hasattr(y, "reindex") and y.ndim == 1) or index.equals(y.index):
        return y
    if not (index.is_unique and y.index.is_unique):
        raise DataError(
            f"client {name!r}: features and labels have different indices, and one names a row "
            "twice; give both the same index, or labels without one (y.to_numpy())"
        )
    unknown = y.index.difference(index)
    if len(unknown):
        raise DataError(
            f"client {name!r}: the labels have entries for the rows {listing(list(unknown), 3)}, "
            "which the features do not have; give both the same index, or labels without one "
            "(y.to_numpy())"
        )
    return y.astype(object).reindex(index)


def like_labels(found: NDArray[Any], index: Any, y: Any) -> Any:
    """Return labels that came out as a series, if the features have an index.

    The index is that of the features; dtype and name are those of the labels that were given, where
    the dtype can hold what came out. Where it can hold a missing value, one is where no label
    reaches a row; categories that only others have are appended.

    Args:
        found: (n_j,) labels; −1 or None where no label reaches a row.
        index: of the client's data frame; None if it has none.
        y: the labels that it gave.
    """
    if index is None:
        return found
    from pandas import CategoricalDtype, Series

    series = Series(found, index=index, name=getattr(y, "name", None))
    dtype = getattr(y, "dtype", None)
    if dtype is None:
        return series
    reached = np.array([label not in (None, UNLABELLED) for label in found.tolist()], dtype=bool)
    if isinstance(dtype, CategoricalDtype):
        own = set(dtype.categories)
        new = [c for c in dict.fromkeys(found[reached].tolist()) if c not in own]
        dtype = CategoricalDtype([*dtype.categories, *new], dtype.ordered and not new)
    typed = series.astype(object)
    if not isinstance(dtype, np.dtype) or dtype.kind in "Of":
        typed = typed.where(reached, None)
    try:
        kept = typed.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return series
    known = typed.notna()
    same = kept[known].tolist() == typed[known].tolist() and not kept[~known].notna().any()
    return kept if same else series
