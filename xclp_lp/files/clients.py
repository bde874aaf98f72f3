"""A client's section of a file, and reading the files that it names."""

from __future__ import annotations

import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.files.schema import NO_SCHEMA, feature_names
from xclp_lp.files.tables import (
    TABLES,
    CsvFormat,
    Expected,
    Source,
    read_file,
)
from xclp_lp.files.toml import beside, shown_key
from xclp_lp.labels import UNLABELLED
from xclp_lp.session import ClientData
from xclp_lp.validation import Text, Validated, meaning
from xclp_lp.wording import count, listing

Folder = Annotated[str, Meta(min_length=1, title="the name of a folder")]
"""Where results go, relative to the file that says so."""


@dataclass(frozen=True)
class DataSection(Validated):
    """Where the data of one client are: files, relative to the one that names them."""

    features: Annotated[
        Text | None,
        Meta(description="name the file with the features: .npy, .npz, .csv, .parquet or .xlsx"),
    ] = None
    new_features: Text | None = None
    features_array: Text | None = None
    feature_columns: Annotated[tuple[str, ...] | None, Meta(title="a list of names")] = None
    labels: Text | None = None
    labels_array: Text | None = None
    label_column: Text | None = None
    id_column: Text | None = None
    csv: CsvFormat | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features is None and self.new_features is None:
            raise ParameterError(f"features is missing; {meaning(DataSection, 'features')}")

    @property
    def rows(self) -> str:
        """Return the file with the features.

        Raises:
            ParameterError: there is none, but new rows.
        """
        if self.features is None:
            raise ParameterError(
                "features is missing: with new_features alone a client can only get labels for "
                f"rows that come later; {meaning(DataSection, 'features')}"
            )
        return self.features

    @property
    def has_labels(self) -> bool:
        """Return whether it says where the labels are."""
        return (self.labels, self.labels_array, self.label_column) != (None, None, None)


@dataclass(frozen=True)
class ClientSection(DataSection):
    """A section [clients.NAME] of a federation file."""

    truth_column: Text | None = None
    group: Text | None = None


DEVICES = (
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{port}{i}" for port in ("com", "lpt") for i in range(10)),
)
"""What Windows takes for a device and not for a file, whatever comes after a dot."""


@dataclass(frozen=True)
class LoadedClient:
    """One client's rows as read from its files.

    Attributes:
        name: the name of its section.
        features: (n_j, d).
        labels: (n_j,).
        ids: (n_j,) what a person calls the rows: a column, or the row number from 0.
        columns: names of the features, if they come from a table.
        files: what was read.
        group: the group that it is in, if groups are named.
        id_column: the column that holds the ids, if one does.
        label_place: what of which file holds the labels, for errors, if any does.
        truth: (n_j,) true labels, None where they are not known, if a column holds them; they are
            for scoring only.
    """

    name: str
    features: NDArray[Any]
    labels: list[Any] | NDArray[Any]
    ids: list[Any]
    columns: tuple[str, ...] | None = None
    files: tuple[Path, ...] = ()
    group: str | None = None
    id_column: str | None = None
    label_place: str | None = None
    truth: list[Any] | None = None

    @property
    def row_names(self) -> list[str] | None:
        """Return what messages call the rows: ids, or numbers from 1 of rows of a table.

        None for arrays, whose rows have indices from 0.
        """
        if self.columns is None:
            return None
        return row_names(None if self.id_column is None else self.ids, len(self.ids))

    def by_name(self) -> LoadedClient:
        """Return it with its features in the order of their names, if they have some."""
        if self.columns is None:
            return self
        columns = tuple(sorted(self.columns))
        order = [self.columns.index(name) for name in columns]
        return replace(self, columns=columns, features=self.features[:, order])


def row_names(ids: Sequence[Any] | None, rows: int) -> list[str]:
    """Return what messages call the rows of a table: by their ids, or by numbers from 1."""
    if ids is None:
        return [str(i + 1) for i in range(rows)]
    return [repr(str(row_id).strip()) for row_id in ids]


def rows_line(path: Path, shape: tuple[int, ...], columns: Sequence[str] | None) -> str:
    """Say how many rows and features were read, and what these are called."""
    rows, features = shape
    called = f": {listing(columns)}" if columns else ""
    return f"{path}: {count(rows, 'row')}, {count(features, 'feature')}{called}"


def labels_line(labels: Mapping[Any, int], rows: int) -> str:
    """Say how many labels of each class were read."""
    each = ", ".join(f"{label!r} {number:,}" for label, number in labels.items())
    line = f"{sum(labels.values()):,} of {count(rows, 'row')} labelled"
    return line + f": {each}" * bool(each)


def data_lines(loaded: LoadedClient, data: ClientData, classes: Sequence[Any]) -> list[str]:
    """Say what was read of a client.

    Args:
        loaded: as in its files.
        data: as its role takes it.
        classes: labels by class index.
    """
    given = Counter(data.class_ids[data.class_ids != UNLABELLED].tolist())
    return [
        rows_line(loaded.files[0], data.vectors.shape, loaded.columns),
        labels_line({classes[i]: given[i] for i in sorted(given)}, len(data.class_ids)),
    ]


def require_file_names(names: Iterable[str], path: Path) -> None:
    """Refuse names of clients that cannot be names of files, or not beside each other.

    Raises:
        ParameterError: says which name, and why.
    """
    seen: dict[str, str] = {}
    for name in names:
        where = f"{path}, [clients.{shown_key(name)}]"
        folded = unicodedata.normalize("NFC", name).casefold()
        if not name.isprintable() or name.startswith(".") or any(c in name for c in "/\\:"):
            folded = ""
        if not folded or folded.partition(".")[0].rstrip() in DEVICES or folded == "cost":
            raise ParameterError(
                f"{where}: the name becomes the name of a file, so it cannot be {name!r}; choose "
                "another"
            )
        if folded in seen:
            raise ParameterError(
                f"{where}: {seen[folded]!r} and {name!r} become the name of one file where case "
                "does not count; rename one of them"
            )
        seen[folded] = name


def load_client(
    name: str,
    section: DataSection,
    path: Path,
    like: Expected | None,
    title: str | None = None,
    *,
    missing: bool = False,
) -> LoadedClient:
    """Read the files of one client.

    Args:
        name: the client's.
        section: what the file says of it.
        path: that file; others are relative to it.
        like: which feature columns others have.
        title: of the section; ``clients.NAME`` by default.
        missing: whether values may be missing.

    Raises:
        ParameterError: a column is asked for of a file without columns.
        DataError: what a file holds does not fit together, or not to the other client.
    """
    where = f"{path}, [{title or f'clients.{name}'}]"
    try:
        features = section.rows
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None
    source = read_file(beside(path, features), name, section.csv)
    return _loaded(name, section, path, source, like, where, missing)


def load_new(
    name: str,
    section: DataSection,
    path: Path,
    like: Expected | None,
    title: str | None = None,
    *,
    missing: bool = False,
) -> LoadedClient:
    """Read the rows of one client that come later, whatever labels they have.

    Arguments and errors are those of `load_client`; the section has `new_features`.
    """
    source = read_file(beside(path, str(section.new_features)), name, section.csv)
    there = () if source.table is None else source.table.columns
    columns = {
        key: column if column in there else None
        for key in ("label_column", "truth_column")
        if (column := getattr(section, key, None)) is not None
    }
    new = replace(section, features=section.new_features, labels=None, labels_array=None, **columns)
    where = f"{path}, [{title or f'clients.{name}'}]"
    return _loaded(name, new, path, source, like, where, missing)


def _loaded(
    name: str,
    section: DataSection,
    path: Path,
    source: Source,
    like: Expected | None,
    where: str,
    missing: bool,
) -> LoadedClient:
    """Return what a client's file of features holds, and its labels; as `load_client`."""
    columns, ids, truth = None, None, None
    schema = NO_SCHEMA if like is None else like.schema
    if source.table is None:
        _require_no_columns(section, where)
    else:
        columns, ids, truth = special_columns(source, section, like)
    features = source.features(
        array=section.features_array,
        columns=columns or (),
        schema=schema,
        missing=missing,
        row_names=None if ids is None else row_names(ids, len(ids)),
    )
    if columns is not None:
        columns = feature_names(columns, schema)
        if section.feature_columns is None and not schema:
            _warn_of_row_numbers(name, columns, features, section.id_column)
    rows = len(np.atleast_1d(features))
    if not rows:
        warnings.warn(f"client {name!r}: {source.path} has no rows", UserWarning, stacklevel=3)
    of, labels = read_labels(name, section, path, source, ids, features)
    place, column = None, section.label_column
    if section.has_labels:
        place = f"column {column!r} of {of.path}" if column else f"{of.path}"
    return LoadedClient(
        name,
        features,
        labels,
        list(range(rows)) if ids is None else ids,
        None if columns is None else tuple(columns),
        (source.path, of.path),
        section.group if isinstance(section, ClientSection) else None,
        section.id_column,
        place,
        truth,
    )


def read_labels(
    name: str,
    section: DataSection,
    path: Path,
    source: Source,
    ids: list[Any] | None,
    features: NDArray[Any],
) -> tuple[Source, list[Any] | NDArray[Any]]:
    """Read the labels of one client, in the order of its rows.

    Args:
        name: the client's.
        section: what the file says of it.
        path: that file.
        source: the file of its features.
        ids: what its rows are called, if a column says so.
        features: (n_j, d); of other shapes, which are refused later, labels are not joined.

    Returns:
        Where they are from, and (n_j,) labels, None where there is none.

    Raises:
        DataError: they are not there, or do not fit the rows.
    """
    rows = len(np.atleast_1d(features))
    of = source
    if section.labels is not None:
        of = read_file(beside(path, section.labels), name, section.csv)
    labels: list[Any] | NDArray[Any] = [None] * rows
    if section.has_labels:
        labels = of.labels(
            array=section.labels_array, column=section.label_column, id_column=section.id_column
        )
    if section.labels is not None and ids is not None:
        labels = _joined(labels, of, ids, source, str(section.id_column))
    elif section.labels is not None:
        _require_same_order(of, source)
    if features.ndim == 2 and (isinstance(labels, list) or labels.ndim == 1):
        labels = _one_for_each_row(labels, of, rows, source)
    return of, labels


def special_columns(
    source: Source, section: DataSection, like: Expected | None
) -> tuple[list[str], list[Any] | None, list[Any] | None]:
    """Return which columns are features, and what those of ids and true labels hold, if named."""
    ids, truth = None, None
    truth_column = section.truth_column if isinstance(section, ClientSection) else None
    if section.label_column is not None and section.labels is None:
        source.column(section.label_column)  # mistyped, it would be a feature
    if section.id_column is not None:
        ids = source.column(section.id_column)
        source.rows_by_id(ids)  # refuses ids that are empty or not unique
    if truth_column is not None:
        truth = list(source.labels(array=None, column=truth_column))
    special = (section.label_column, section.id_column, truth_column)
    columns = source.feature_columns(
        columns=section.feature_columns, leave_out=[c for c in special if c is not None], like=like
    )
    return columns, ids, truth


def _require_no_columns(section: DataSection, where: str) -> None:
    """Refuse columns of a file of features that is not a table."""
    given = {
        "id_column": section.id_column,
        "truth_column": getattr(section, "truth_column", None),
        "label_column": section.label_column if section.labels is None else None,
    }
    for key, column in given.items():
        if column is not None:
            raise ParameterError(f"{where}: {key} needs a {TABLES} file")


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


def _joined(
    labels: list[Any] | NDArray[Any], of: Source, ids: list[Any], source: Source, id_column: str
) -> list[Any] | NDArray[Any]:
    """Return the labels of a table of their own in the order of the features' ids.

    A column of labels alone is in that order already, and so is an array.
    """
    if of.table is not None and id_column in of.table.columns:
        return joined_by_id(list(labels), of.table.columns[id_column], of, ids, source)
    if of.table is not None and len(of.table.columns) > 1:
        raise of.error(
            f"has no column {id_column!r} to join its labels by; rename the column with the ids, "
            f"or leave only the labels in that file, to be taken in the order of {source.path}"
        )
    if of.table is None:
        return labels
    warnings.warn(
        f"client {of.client!r}: {of.path} has no ids, so its labels are taken in the order of "
        f"{source.path}",
        UserWarning,
        stacklevel=2,
    )
    return labels


def _require_same_order(of: Source, source: Source) -> None:
    """Refuse to join labels by position where a column shows that rows are in another order.

    Raises:
        DataError: names the column that both tables have.
    """
    if of.table is None or source.table is None or of.path == source.path:
        return
    for name, cells in source.table.columns.items():
        own = [str(cell).strip() for cell in cells]
        others = [str(cell).strip() for cell in of.table.columns.get(name, ())]
        if own != others and sorted(own) == sorted(others):
            raise of.error(
                f"has the rows of {source.path} in another order, as the column {name!r} of both "
                f'shows; say id_column = "{name}" to join labels by it, or sort the rows alike'
            )


def _one_for_each_row(
    labels: list[Any] | NDArray[Any], of: Source, rows: int, source: Source
) -> list[Any] | NDArray[Any]:
    """Return labels that are joined by position, without blank lines at the end of their file."""
    if of.table is not None and len(of.table.columns) == 1:
        while len(labels) > rows and labels[-1] is None:
            labels = labels[:-1]
    if len(labels) != rows:
        raise source.error(
            f"has {count(rows, 'row')} and {of.path} has {count(len(labels), 'label')}, which are "
            "joined by position; give one for each row (unlabelled: empty or -1), or put the same "
            "id_column into both tables"
        )
    return labels


def looks_like_row_numbers(column: NDArray[Any]) -> bool:
    """Return whether a column of at least three numbers counts up by one from an integer."""
    return len(column) > 2 and bool(np.all(np.diff(column) == 1)) and float(column[0]).is_integer()


def _warn_of_row_numbers(
    client: str, columns: Sequence[str], features: NDArray[Any], id_column: str | None
) -> None:
    for name, values in zip(columns, features.T, strict=True):
        if looks_like_row_numbers(values):
            remedy = "delete it or list feature_columns"
            if id_column is None:
                remedy = f'say id_column = "{name}"'
            warnings.warn(
                f"client {client!r}: column {name!r} counts up by one from row to row, like a row "
                f"number, and is used as a feature; if it is none, {remedy}",
                UserWarning,
                stacklevel=4,
            )
