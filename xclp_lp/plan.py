"""A run whose data and parameters are checked, and of which nothing is computed yet."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.params import MIN_CLIENTS
from xclp_crypto.wording import did_you_mean
from xclp_lp import labels
from xclp_lp.forecast import Forecast, forecast
from xclp_lp.lsh import checked_vectors, zero_rows
from xclp_lp.memory import require_room
from xclp_lp.parameters import Parameters, Shape
from xclp_lp.session import STEPS, ClientData
from xclp_lp.wording import count, rows_called


@dataclass(frozen=True)
class Plan:
    """A run whose data and parameters are checked, and of which nothing is computed yet.

    Attributes:
        params: what all parties have in common, the classes among it.
        data: each client's vectors and class indices.
        groups: clients by group, each a federation of its own; one group where none are asked for.
    """

    params: Parameters
    data: Mapping[str, ClientData]
    groups: Mapping[str, tuple[str, ...]]

    @property
    def sizes(self) -> dict[str, int]:
        """Return how many rows of each client take part: those that are not all zero."""
        return {c: int((~zero_rows(own.vectors)).sum()) for c, own in self.data.items()}

    @property
    def labelled(self) -> dict[str, int]:
        """Return how many of these rows are labelled."""
        return {
            c: int((own.codes[~zero_rows(own.vectors)] != labels.UNLABELLED).sum())
            for c, own in self.data.items()
        }

    @property
    def features(self) -> int:
        """Return d."""
        return int(next(iter(self.data.values())).vectors.shape[1])

    def shapes(self) -> list[Shape]:
        """Return the public sizes of every group."""
        found = []
        for clients in self.groups.values():
            codes = {c: self.data[c].codes[~zero_rows(self.data[c].vectors)] for c in clients}
            rows = {c: len(own) for c, own in codes.items()}
            labelled = {c: int((own != labels.UNLABELLED).sum()) for c, own in codes.items()}
            found.append(Shape(rows, labelled, self.features))
        return found

    def forecast(self) -> Forecast:
        """Predict what the run will cost."""
        return forecast(self.params, self.shapes())


def checked_groups(
    groups: int | Sequence[str] | None, names: Sequence[str], random_state: int | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the clients of each group, in their order; one group of all for None.

    Args:
        groups: a number of groups, of equal sizes up to one client, or the group of each client.
        names: of the clients.
        random_state: fixes random groups.

    Raises:
        ParameterError: names the group that has too few clients, or what is wrong.
    """
    if groups is None:
        return {"all": tuple(names)}
    if isinstance(groups, int | np.integer) and not isinstance(groups, bool):
        most = max(len(names) // MIN_CLIENTS, 1)
        if not 1 <= groups <= most:
            raise ParameterError(
                f"groups must be in 1 … {most}, so that each of {count(len(names), 'client')} has "
                f"company, got {groups}"
            )
        order = np.random.default_rng(random_state).permutation(len(names))
        of_client = [""] * len(names)
        for number, part in enumerate(np.array_split(order, int(groups))):
            for client in part:
                of_client[client] = f"group-{number}"
    elif isinstance(groups, str) or not isinstance(groups, Sequence | np.ndarray):
        raise ParameterError(f"groups must be a number, or a name for each client, got {groups!r}")
    else:
        of_client = []
        for group, name in zip(groups, names, strict=False):
            if isinstance(group, bool) or not isinstance(group, str | int | np.integer):
                raise ParameterError(f"the group of client {name!r} must be a name, got {group!r}")
            if not str(group).strip():
                raise ParameterError(f"the group of client {name!r} has no name")
            of_client.append(str(group).strip())
        if len(groups) != len(names):
            raise ParameterError(
                f"groups has {count(len(groups), 'name')} for {count(len(names), 'client')}"
            )
    found: dict[str, tuple[str, ...]] = {}
    for name, group in zip(names, of_client, strict=True):
        found[group] = (*found.get(group, ()), name)
    for group, own in found.items():
        if len(own) < MIN_CLIENTS:
            raise ParameterError(
                f"group {group!r} has only the client {own[0]!r}; each needs {MIN_CLIENTS} or more"
            )
    return found


def checked_drop(drop: Mapping[str, str] | None, names: Sequence[str]) -> dict[str, str]:
    """Return `drop` as a dictionary, empty for None; refuse unknown clients and steps.

    Raises:
        ParameterError: names the client or the step.
    """
    if drop is None:
        return {}
    if not isinstance(drop, Mapping):
        raise ParameterError(
            "drop must be a mapping from clients to steps, such as "
            f"{{{names[-1]!r}: 'row sums'}}, got {drop!r}"
        )
    for name, step in drop.items():
        if name not in names:
            raise ParameterError(
                f"cannot drop {name!r}: the clients are {', '.join(names)}"
                f"{did_you_mean(str(name), names)}"
            )
        if step not in STEPS:
            raise ParameterError(
                f"{name!r} can vanish before {', '.join(STEPS)}, not {step!r}"
                f"{did_you_mean(str(step), STEPS)}"
            )
    return dict(drop)


def check_features(Xs: Sequence[ArrayLike], names: Sequence[str]) -> list[NDArray[Any]]:
    """Return the clients' vectors as matrices with the same number of columns.

    A client without rows may pass an empty list.

    Raises:
        DataError: not a finite real matrix, or another number of features; names the client.
    """
    matrices: list[NDArray[Any] | None] = []
    for x, name in zip(Xs, names, strict=True):
        try:
            array = _as_matrix(x)
            matrices.append(None if array.size == 0 and array.ndim < 2 else checked_vectors(array))
        except DataError as error:
            raise DataError(f"client {name!r}: {error}") from None
    _require_same_columns(Xs, names)
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


def _require_same_columns(Xs: Sequence[ArrayLike], names: Sequence[str]) -> None:
    """Refuse data frames whose columns differ in name or order; arrays have no names.

    Raises:
        DataError: names the client.
    """
    frames = [
        (name, list(x.columns))
        for name, x in zip(names, Xs, strict=True)
        if hasattr(x, "columns") and not getattr(x, "empty", False)
    ]
    for name, columns in frames[1:]:
        if columns != frames[0][1]:
            raise DataError(
                f"client {name!r} has the columns {columns}, {frames[0][0]!r} has {frames[0][1]}; "
                "give all data frames the same columns in the same order"
            )


def _as_matrix(x: ArrayLike) -> NDArray[Any]:
    """Turn one client's features into an array; say where that cannot be done."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.getmaskarray(x).any():
        place = ", ".join(map(str, np.argwhere(np.ma.getmaskarray(x))[0]))
        raise DataError(f"the features are masked at ({place}); every value must be there")
    if sparse.issparse(x):
        raise DataError("the features are a sparse matrix; pass X.toarray()")
    try:
        array = np.asarray(x)
    except ValueError:  # a ragged list
        lengths = [len(row) if isinstance(row, Sized) else 0 for row in cast(Sequence[Any], x)]
        odd = next((i for i, n in enumerate(lengths) if n != lengths[0]), None)
        raise DataError(
            "a feature is a list, not a number"
            if odd is None
            else f"row {odd} (counted from 0) has {lengths[odd]} features, row 0 has "
            f"{lengths[0]}; all rows must be equally long"
        ) from None
    if array.dtype.kind in "OUS" and array.ndim == 2:
        # Beside text, NumPy turns the numbers of a list into text too: look at the list itself.
        for (row, column), value in np.ndenumerate(np.asarray(x, dtype=object)):
            if not isinstance(value, int | float | np.number | np.bool_):
                raise DataError(
                    f"row {row}, column {column} (counted from 0) is {value!r}, which is no number"
                )
    if array.dtype.kind == "O" and array.ndim and array.size:
        convert = "X.astype(float)" if array.ndim > 1 else "numpy.vstack(list(X))"
        raise DataError(f"the features have dtype object; pass numbers, such as {convert}")
    return array


def require_usable(plan: Plan, row_names: Sequence[Sequence[str] | None] | None) -> None:
    """Check over all clients of each group what the server would refuse, and warn of zero rows.

    Raises:
        ParameterError: too few clients or rows, too little memory, or no dp-accounting.
        DataError: no label can spread; names the group.
    """
    for j, (name, own) in enumerate(plan.data.items()):
        zero = np.flatnonzero(zero_rows(own.vectors)).tolist()
        if zero:
            called = rows_called(zero, None if row_names is None else row_names[j])
            what = "is all zero, so it has no direction; it is left out and gets"
            if len(zero) > 1:
                what = "are all zero, so they have no direction; they are left out and get"
            warnings.warn(
                f"client {name!r}: {called} {what} no label",
                UserWarning,
                stacklevel=4,
            )
    plan.params.require_accountant()
    for group, shape in zip(plan.groups, plan.shapes(), strict=True):
        try:
            require_room(plan.params, shape)
        except (ParameterError, DataError) as error:
            if len(plan.groups) == 1:
                raise
            raise type(error)(f"group {group!r}: {error}") from None
        if not any(shape.labelled.values()):
            if len(plan.groups) == 1:
                raise DataError("every labelled row is all zero, so no label can spread")
            raise DataError(f"group {group!r}: no client has a label, so no label can spread")
