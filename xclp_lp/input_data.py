"""What a user of Python gives: arrays, frames and series of all clients, checked."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from xclp_crypto.errors import DataError
from xclp_crypto.secret import Secret
from xclp_lp import labels
from xclp_lp.dataframes import frame_values, index_of, is_frame, labels_by_index, with_same_columns
from xclp_lp.dataframes import row_names as frame_rows
from xclp_lp.lsh import checked_vectors
from xclp_lp.session import ClientData
from xclp_lp.wording import count


def require_lists(**arguments: object) -> None:
    """Refuse what is not a list with one entry per client.

    Raises:
        DataError: names the argument.
    """
    for what, arrays in arguments.items():
        if isinstance(arrays, str | bytes) or not isinstance(arrays, Sequence | np.ndarray):
            raise DataError(
                f"{what} must be a list with one array per client, got a value of type "
                f"{type(arrays).__name__}; make a list of it"
            )


@dataclass(frozen=True, eq=False, repr=False)
class InputData(Secret):
    """What the clients gave, checked.

    Attributes:
        data: each client's vectors and class indices.
        classes: of all, in order.
        indices: by client, the index of its data frame, or None.
        row_names: per client, what errors and warnings call its rows, or None.
    """

    data: dict[str, ClientData]
    classes: tuple[Any, ...]
    indices: dict[str, Any]
    row_names: list[Sequence[str] | None]


def input_data(
    Xs: Sequence[ArrayLike],
    ys: Sequence[ArrayLike | None],
    clients: Sequence[str],
    *,
    classes: Sequence[Any] | None = None,
    missing: bool = False,
    columns: Sequence[str] = (),
    row_names: Sequence[Sequence[str] | None] | None = None,
    earlier: Sequence[Any] | None = None,
) -> InputData:
    """Return the data of all clients.

    Args:
        Xs: one (n_j, d) array or frame per client.
        ys: one (n_j,) array or series of labels per client, or None.
        clients: their names.
        classes: all that there are; by default those that occur.
        missing: whether values may be missing, which become NaN.
        columns: those that data frames must have; by default those of the first.
        row_names: per client, what errors and warnings call its rows, if not by their indices.
        earlier: the classes of rows that these follow, so that none of these needs a label.

    Raises:
        DataError: the data cannot be used; names client, row and column.
    """
    if not len(ys) == len(Xs) == len(clients):
        raise DataError(
            f"{count(len(Xs), 'feature array')} and {count(len(ys), 'label array')}; give one "
            f"of each per client, of which there are {len(clients)}"
        )
    vectors = check_features(Xs, clients, columns, missing=missing)
    indices = {client: index_of(x) for client, x in zip(clients, Xs, strict=True)}
    called = row_names or [None] * len(Xs)
    called = [frame_rows(x) if own is None else own for x, own in zip(Xs, called, strict=True)]
    marked = [
        labels.marked_values(
            np.full(len(x), None) if y is None else labels_by_index(indices[client], y, client),
            client,
        )
        for x, y, client in zip(vectors, ys, clients, strict=True)
    ]
    for client, x, (values, _) in zip(clients, vectors, marked, strict=True):
        if len(values) != len(x):
            raise DataError(
                f"client {client!r}: {count(len(x), 'row')} of features, "
                f"{count(len(values), 'label')}"
            )
    if earlier is not None and not any(labelled.any() for _, labelled in marked):
        found = tuple(earlier)
    else:
        found = labels.class_values(marked, earlier or classes, clients, called)
    if classes is None and earlier is None:
        labels.warn_of_odd_labels(found, marked, clients)
    data = {
        client: ClientData(x, labels.encode(values, labelled, found))
        for client, x, (values, labelled) in zip(clients, vectors, marked, strict=True)
    }
    return InputData(data, found, indices, called)


def check_features(
    Xs: Sequence[ArrayLike],
    names: Sequence[str],
    columns: Sequence[str] = (),
    *,
    missing: bool = False,
) -> list[NDArray[Any]]:
    """Return the clients' vectors as matrices with the same number of columns.

    Args:
        Xs: a client without rows may pass an empty list.
        names: of the clients.
        columns: as for `with_same_columns`.
        missing: whether values may be missing, which become NaN.

    Raises:
        DataError: not a finite real matrix, or another number of features; names the client.
    """
    matrices: list[NDArray[Any] | None] = []
    for x, name in zip(with_same_columns(Xs, names, columns), names, strict=True):
        try:
            array = _as_matrix(x, missing)
            empty = array.size == 0 and (array.ndim < 2 or array.shape == (0, 0))
            matrices.append(None if empty else checked_vectors(array, missing=missing))
        except DataError as error:
            raise DataError(f"client {name!r}: {error}") from None
    known = [(name, m) for name, m in zip(names, matrices, strict=True) if m is not None]
    if not known:
        raise DataError("no client has any rows")
    reference, first = known[0]
    for name, matrix in known:
        if matrix.shape[1] != first.shape[1]:
            raise DataError(
                f"client {name!r} has {matrix.shape[1]} features, {reference!r} has "
                f"{first.shape[1]}; all must have the same"
            )
    return [np.zeros((0, first.shape[1])) if m is None else m for m in matrices]


def _as_matrix(x: Any, missing: bool) -> NDArray[Any]:
    """Turn one client's features into an array; say where that cannot be done."""
    if is_frame(x):
        return frame_values(x, missing=missing)
    if sparse.issparse(x):
        return np.asarray(x.toarray())
    if hasattr(x, "detach"):  # a tensor of PyTorch, which NumPy may not read as it is
        return np.asarray(x.detach().cpu().double())
    if isinstance(x, np.ma.MaskedArray) and np.ma.getmaskarray(x).any():
        place = ", ".join(map(str, np.argwhere(np.ma.getmaskarray(x))[0]))
        raise DataError(f"the features are masked at ({place}); every value must be there")
    try:
        array = np.asarray(x)
    except ValueError:  # a ragged list
        lengths = [len(row) if isinstance(row, Sized) else 0 for row in x]
        odd = next((i for i, n in enumerate(lengths) if n != lengths[0]), None)
        raise DataError(
            "a feature is a list, not a number"
            if odd is None
            else f"row {odd} (counted from 0) has {lengths[odd]} features, row 0 has "
            f"{lengths[0]}; all rows must be equally long"
        ) from None
    except (TypeError, RuntimeError) as error:
        raise DataError(f"the features do not form an array: {error}") from None
    if array.dtype.kind in "OUS" and array.ndim == 2:
        # Beside text, NumPy turns the numbers of a list into text too: look at the list itself.
        for (row, column), value in np.ndenumerate(np.asarray(x, dtype=object)):
            if not isinstance(value, int | float | np.number | np.bool_):
                raise DataError(
                    f"row {row}, column {column} (counted from 0) is {value!r}, which is not a "
                    "number"
                )
    if array.dtype.kind == "O" and array.ndim and array.size:
        convert = "X.astype(float)" if array.ndim > 1 else "numpy.vstack(list(X))"
        raise DataError(f"the features have dtype object; pass numbers, such as {convert}")
    return array
