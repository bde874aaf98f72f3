"""Labels of any type to class indices and back; who is unlabelled is always explicit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xclp_crypto.errors import DataError, ParameterError

UNLABELLED = -1
"""Class index of a row without a label."""


def marked_values(y: ArrayLike, client: str) -> tuple[list[Any], NDArray[np.bool_]]:
    """Return the labels of one client as Python values, and which rows have one.

    A row is unlabelled where its label is masked, None, NaN, NaT or pandas' NA, or the *number* −1.
    The string ``"-1"`` is a label like any other.

    Args:
        y: (n_j,) labels; a NumPy masked array hides its masked entries.
        client: name for errors.

    Raises:
        DataError: not one-dimensional.
    """
    array = y if isinstance(y, np.ndarray) else _as_objects(y)
    if array.ndim != 1:
        raise DataError(
            f"client {client!r}: labels must be one-dimensional, got shape {array.shape}"
        )
    hidden = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else None
    values = np.ma.getdata(array).tolist()
    labelled = np.array([not _is_missing(v) for v in values], dtype=bool)
    return values, labelled if hidden is None else labelled & ~hidden


def _as_objects(y: ArrayLike) -> NDArray[Any]:
    """Keep every value of a list or series as it is: NumPy would turn [1, 'a'] into strings."""
    if not isinstance(y, Sequence) and hasattr(y, "to_numpy"):
        return np.asarray(y.to_numpy())
    items = list(y) if isinstance(y, Sequence) else np.asarray(y).tolist()
    array = np.empty(len(items), dtype=object)
    array[:] = [v.item() if isinstance(v, np.generic) else v for v in items]
    return array


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, bool | np.bool_ | str | bytes):
        return False
    return bool(value != value or value == UNLABELLED)  # NaN differs from itself


def class_values(
    labels: Sequence[tuple[list[Any], NDArray[np.bool_]]],
    classes: Sequence[Any] | None,
    clients: Sequence[str],
) -> tuple[Any, ...]:
    """Return the sorted classes: those given, or those that occur.

    Raises:
        DataError: no client has a label, labels of several types, or a label that is none of
            `classes`; names client and row.
        ParameterError: `classes` is empty or repeats a class.
    """
    if classes is not None:
        given = tuple(np.asarray(classes).tolist())
        if not given or len(set(given)) != len(given):
            raise ParameterError(f"classes must be distinct and at least one, got {given!r}")
        if any(_is_missing(c) for c in given):
            raise ParameterError(
                "classes must not contain a marker of unlabelled rows (-1, None, NaN), "
                f"got {given!r}"
            )
    known = None if classes is None else set(given)
    seen: dict[Any, tuple[str, int]] = {}
    for client, (values, labelled) in zip(clients, labels, strict=True):
        for row in np.flatnonzero(labelled).tolist():
            value = values[row]
            if not isinstance(value, bool | int | float | str):
                raise DataError(
                    f"client {client!r}, row {row}: a label of type {type(value).__name__}; "
                    "labels are integers, strings, booleans or floats"
                )
            if known is not None and value not in known:
                raise DataError(
                    f"client {client!r}, row {row}: label {value!r} is none of the classes "
                    f"{given!r}"
                )
            seen.setdefault(value, (client, row))
    if not seen:
        raise DataError(
            "no client has a label; mark unlabelled rows with -1 (integers), None or a mask, and "
            "leave at least one row labelled"
        )
    if known is not None:
        return given
    kinds = {type(value) for value in seen}
    if len(kinds - {int, float}) + bool(kinds & {int, float}) > 1:
        places = {type(v).__name__: place for v, place in seen.items()}
        raise DataError(
            "labels are of several types: "
            + ", ".join(f"{kind} (client {c!r}, row {r})" for kind, (c, r) in places.items())
        )
    return tuple(sorted(seen))


def encode(
    values: list[Any], labelled: NDArray[np.bool_], classes: Sequence[Any]
) -> NDArray[np.int64]:
    """Return the class index of every row, `UNLABELLED` where there is no label."""
    index = {value: i for i, value in enumerate(classes)}
    return np.array(
        [index[v] if has else UNLABELLED for v, has in zip(values, labelled, strict=True)],
        dtype=np.int64,
    )


def decode(codes: NDArray[np.int64], classes: Sequence[Any]) -> NDArray[Any]:
    """Return labels in the type of the classes; rows without one are −1 (integers) or None.

    Class indices become an integer, string, boolean or float array where every row has a label;
    otherwise integers keep their type with −1 and other types become an object array.
    """
    known = np.array(classes)
    missing = codes == UNLABELLED
    if known.dtype.kind == "i" and UNLABELLED not in classes:
        return np.where(missing, UNLABELLED, known[np.where(missing, 0, codes)])
    if not missing.any():
        return known[codes]
    result = np.array([None] * len(codes), dtype=object)
    result[~missing] = known[codes[~missing]].tolist()
    return result


def one_hot(codes: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Return the zero-or-one-hot matrix Y of the paper, (n_j, C)."""
    y = np.zeros((len(codes), n_classes))
    rows = np.flatnonzero(codes != UNLABELLED)
    y[rows, codes[rows]] = 1.0
    return y
