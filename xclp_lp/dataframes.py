"""pandas' data frames and series: columns are matched by name, rows by index.

What is not from pandas passes through as it is. Nothing here loads pandas unless it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import DataError
from xclp_lp.wording import differences, listing


def is_frame(x: Any) -> bool:
    """Return whether something is a data frame with named columns and an index."""
    return hasattr(x, "columns") and hasattr(x, "reindex")


def with_same_columns(Xs: Sequence[ArrayLike], names: Sequence[str]) -> list[ArrayLike]:
    """Return the features with the columns of all data frames in the order of the first.

    Args:
        Xs: per client, a data frame or anything else; empty frames have no columns to compare.
        names: of the clients.

    Raises:
        DataError: a client's columns are others, or some twice; names client and columns.
    """
    found: list[ArrayLike] = list(Xs)
    frames = [j for j, x in enumerate(Xs) if is_frame(x) and not getattr(x, "empty", False)]
    first: Any = Xs[frames[0]] if frames else None
    for j in frames:
        frame: Any = Xs[j]
        own, expected = list(frame.columns), list(first.columns)
        if len(set(own)) < len(own):
            twice = [c for i, c in enumerate(own) if c in own[:i]]
            raise DataError(f"client {names[j]!r} has the columns {listing(twice)} twice")
        if set(own) != set(expected):
            raise DataError(
                f"client {names[j]!r} has other columns than {names[frames[0]]!r}: "
                f"{differences(own, expected)}"
            )
        found[j] = frame[expected]
        if own != expected and len(frames) < len(Xs):
            array = next(name for name, x in zip(names, Xs, strict=True) if not is_frame(x))
            raise DataError(
                f"client {array!r} has an array, whose columns have no names, and data frames have "
                f"theirs in different orders ({names[frames[0]]!r}, {names[j]!r}); give all data "
                "frames"
            )
    return found


def labels_by_index(x: Any, y: Any, name: str) -> Any:
    """Return labels in the order of a data frame's rows, if both have an index.

    Args:
        x: a client's features.
        y: its labels; rows of `x` that a series has no entry for get NaN: they are unlabelled.
        name: of the client.

    Raises:
        DataError: the series has an entry for a row that `x` does not have, or an index that
            differs names a row twice.
    """
    if not is_frame(x) or not (hasattr(y, "index") and hasattr(y, "reindex")):
        return y
    if x.index.equals(y.index):
        return y
    if not (x.index.is_unique and y.index.is_unique):
        raise DataError(
            f"client {name!r}: features and labels have different indices, and one names a row "
            "twice; give both the same index, or labels without one (y.to_numpy())"
        )
    unknown = y.index.difference(x.index)
    if len(unknown):
        raise DataError(
            f"client {name!r}: the labels have entries for the rows {listing(list(unknown), 3)}, "
            "which the features do not have; give both the same index, or labels without one "
            "(y.to_numpy())"
        )
    return y.astype(object).reindex(x.index)


def like_labels(found: NDArray[Any], x: Any, y: Any) -> Any:
    """Return labels that came out as a series, if the features have an index.

    The index is that of the features; dtype and name are those of the labels that were given, where
    the dtype can hold what came out.

    Args:
        found: (n_j,) labels; −1 or None where no label reaches a row.
        x: the client's features.
        y: the labels that it gave.
    """
    if not is_frame(x):
        return found
    from pandas import Series

    missing = np.array([label is None for label in found.tolist()], dtype=bool)
    series = Series(found, index=x.index, name=getattr(y, "name", None))
    dtype = getattr(y, "dtype", None)
    if dtype is None or (missing.any() and not _holds_missing(dtype)):
        return series
    try:
        return series.astype(dtype)
    except (TypeError, ValueError):
        return series


def _holds_missing(dtype: Any) -> bool:
    """Return whether a dtype is pandas' own, which has a value for what is missing."""
    return not isinstance(dtype, np.dtype) or dtype.kind in "Of"
