"""Labels of any type to class indices and back; who is unlabelled is always explicit."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.wording import listing, rows_called

ClassWeight: TypeAlias = Literal["sqrt", "balanced", "none"]
"""Whether a label weighs 1/√N, 1/N or 1 with N labels of its class over all clients."""

UNLABELLED = -1
"""Class index of a row without a label."""
MISSING_MARKERS = ("", "na", "n/a", "nan", "null", "none", "?", "-", "-1", "<na>")
"""Texts that are classes like any other here, and mean a missing label elsewhere."""


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
    unordered = isinstance(y, str | bytes | Mapping | Set) or sparse.issparse(y)
    if unordered or not (isinstance(y, np.ndarray) or hasattr(y, "__len__")):
        raise DataError(
            f"client {client!r}: labels must be a list or an array, got a value of type "
            f"{type(y).__name__}"
        )
    array = y if isinstance(y, np.ndarray) else _as_objects(y)
    if array.ndim != 1:
        raise DataError(
            f"client {client!r}: labels must be one-dimensional, got shape {array.shape}"
        )
    hidden = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else None
    values = [_plain(v) for v in np.ma.getdata(array).tolist()]
    labelled = np.array([not _is_missing(v) for v in values], dtype=bool)
    return values, labelled if hidden is None else labelled & ~hidden


def _as_objects(y: ArrayLike) -> NDArray[Any]:
    """Keep every value of a list or series as it is: NumPy would turn [1, 'a'] into strings."""
    if not isinstance(y, Sequence) and hasattr(y, "to_numpy"):
        return np.asarray(y.to_numpy())
    items = list(y) if isinstance(y, Sequence) else np.asarray(y).tolist()
    array = np.empty(len(items), dtype=object)
    for i, value in enumerate(items):  # one by one: a list of lists would become a matrix
        array[i] = value
    return array


def _plain(value: Any) -> Any:
    """Turn NumPy's numbers, booleans and strings into Python's."""
    return value.item() if isinstance(value, np.number | np.bool_ | np.str_) else value


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value != value or value == UNLABELLED  # NaN differs from itself


def _kind(value: Any) -> str | None:
    """Return which labels can occur together: True and 1 are equal for Python, but not here."""
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "str"
        case _:
            return None


def given_classes(classes: Any) -> tuple[Any, ...]:
    """Return classes that a user gave, as Python's own values.

    Raises:
        ParameterError: no list, empty, repeats, several types, or a marker of unlabelled rows.
    """
    if isinstance(classes, str | bytes) or not hasattr(classes, "__iter__"):
        raise ParameterError(f"classes must be a list of labels, got {classes!r}")
    given = tuple(_plain(c) for c in classes)
    if any(_is_missing(c) for c in given):
        raise ParameterError(
            f"classes must not contain a marker of unlabelled rows (-1, None, NaN), got {given!r}"
        )
    kinds = {_kind(c) for c in given}
    if None in kinds or len(kinds) > 1:
        raise ParameterError(
            "classes must all be numbers, all strings or all booleans, got "
            + ", ".join(f"{c!r} ({type(c).__name__})" for c in given)
        )
    if not given or len(set(given)) != len(given):
        raise ParameterError(f"classes must be distinct and at least one, got {given!r}")
    return given


def class_values(
    labels: Sequence[tuple[list[Any], NDArray[np.bool_]]],
    classes: Sequence[Any] | None,
    clients: Sequence[str],
    row_names: Sequence[Sequence[str] | None] | None = None,
) -> tuple[Any, ...]:
    """Return the sorted classes: those given, or those that occur.

    Args:
        labels: per client, as from `marked_values`.
        classes: those given, if any.
        clients: names for errors.
        row_names: per client, what errors call its rows, if not by their indices.

    Raises:
        DataError: no client has a label, labels of several types, or a label that is none of
            `classes`; names client and row.
        ParameterError: `classes` is not a list, is empty, repeats a class, has classes of several
            types, or a marker of unlabelled rows.
    """
    given = None if classes is None else given_classes(classes)
    known = None if given is None else {(_kind(c), c) for c in given}
    seen: set[Any] = set()
    places: dict[str, tuple[type, str]] = {}
    floats = False
    row_names = [None] * len(clients) if row_names is None else row_names
    for client, (values, labelled), names in zip(clients, labels, row_names, strict=True):
        for row in np.flatnonzero(labelled).tolist():
            value = values[row]
            kind = _kind(value)
            if kind is None:
                raise DataError(
                    f"client {client!r}, {rows_called([row], names)}: a label of type "
                    f"{type(value).__name__}; labels are integers, strings, booleans or floats"
                )
            if known is not None and (kind, value) not in known:
                raise DataError(
                    f"client {client!r}, {rows_called([row], names)}: label {value!r} is none of "
                    f"the classes {given!r}"
                )
            seen.add(value)
            if kind not in places:
                places[kind] = type(value), f"client {client!r}, {rows_called([row], names)}"
            floats |= isinstance(value, float)
    if not seen:
        raise DataError(
            "no client has a label; mark unlabelled rows with -1 (integers), None or a mask, and "
            "leave at least one row labelled"
        )
    if given is not None:
        return given
    if len(places) > 1:
        raise DataError(
            "labels are of several types: "
            + ", ".join(f"{t.__name__} ({where})" for t, where in places.values())
        )
    # 1 and 1.0 are one class; its type must not depend on which client comes first.
    return tuple(sorted(float(v) if floats else v for v in seen))


def warn_of_odd_classes(
    classes: Sequence[Any],
    labels: Sequence[tuple[list[Any], NDArray[np.bool_]]],
    clients: Sequence[str],
) -> None:
    """Warn of texts that look like a missing label, or like each other; names a client."""

    def warn(odd: Sequence[str], what: str) -> None:
        used = [c for c, (values, _) in zip(clients, labels, strict=True) if odd[0] in values]
        message = f"client {used[0]!r}: the labels {listing(odd)} {what}"
        warnings.warn(message, UserWarning, stacklevel=5)

    texts = [c for c in classes if isinstance(c, str)]
    markers = [c for c in texts if c.strip().casefold() in MISSING_MARKERS]
    if markers:
        warn(
            markers,
            "look like missing ones, but are classes like any other; leave the cell empty (in "
            "Python: None) where a label is missing",
        )
    alike: dict[str, list[str]] = {}
    for text in texts:
        alike.setdefault(re.sub(r"\.0+$", "", text.strip().casefold()), []).append(text)
    for group in alike.values():
        if len(group) > 1:
            warn(
                group,
                "differ only by case, surrounding space or '.0', but are different classes; write "
                "them alike if they are one",
            )


def encode(
    values: list[Any], labelled: NDArray[np.bool_], classes: Sequence[Any]
) -> NDArray[np.int64]:
    """Return the class index of every row, `UNLABELLED` where there is no label."""
    index = {value: i for i, value in enumerate(classes)}
    return np.array(
        [index[v] if has else UNLABELLED for v, has in zip(values, labelled, strict=True)],
        dtype=np.int64,
    )


def decode(class_ids: NDArray[np.int64], classes: Sequence[Any]) -> NDArray[Any]:
    """Return labels in the type of the classes; rows without one are −1 (integers) or None.

    Class indices become an integer, string, boolean or float array where every row has a label;
    otherwise integers keep their type with −1 and other types become an object array.
    """
    known = np.array(classes)
    missing = class_ids == UNLABELLED
    if known.dtype.kind == "i" and UNLABELLED not in classes:
        return np.where(missing, UNLABELLED, known[np.where(missing, 0, class_ids)])
    if not missing.any():
        return known[class_ids]
    result = np.array([None] * len(class_ids), dtype=object)
    result[~missing] = known[class_ids[~missing]].tolist()
    return result


def one_hot(class_ids: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Return the zero-or-one-hot matrix Y of the paper, (n_j, C)."""
    y = np.zeros((len(class_ids), n_classes))
    rows = np.flatnonzero(class_ids != UNLABELLED)
    y[rows, class_ids[rows]] = 1.0
    return y


def class_weights(counts: NDArray[np.int64], kind: ClassWeight) -> NDArray[np.float64]:
    """Return what a label of each class weighs; 0 where there is none.

    Args:
        counts: (C,) N_c, labels of each class over all clients, N in all.
        kind: ``balanced`` for N/(C·N_c), as scikit-learn has it, ``sqrt`` for the square root of
            that, ``none`` for 1.
    """
    weights = np.zeros(len(counts))
    np.divide(counts.sum() / len(counts), counts, out=weights, where=counts > 0)
    return weights ** {"balanced": 1.0, "sqrt": 0.5, "none": 0.0}[kind] * (counts > 0)


def weighted_one_hot(
    class_ids: Sequence[NDArray[np.int64]], n_classes: int, weight: ClassWeight
) -> list[NDArray[np.float64]]:
    """Return the matrices Y of several clients, with the weights of all their labels.

    Args:
        class_ids: per client, (n_j,) class indices; −1 for rows without a label.
        n_classes: C.
        weight: see `class_weights`.
    """
    matrices = [one_hot(own, n_classes) for own in class_ids]
    totals = np.rint(sum(y.sum(axis=0) for y in matrices)).astype(np.int64)
    return [y * class_weights(totals, weight) for y in matrices]
