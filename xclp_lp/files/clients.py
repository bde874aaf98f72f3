"""A client's section of a file, and reading the files that it names."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.files.tables import (
    Table,
    column_of,
    feature_columns,
    features_of,
    joined_by_id,
    labels_of,
    looks_like_row_numbers,
    read_file,
    rows_by_id,
)
from xclp_lp.files.toml import require_known
from xclp_lp.wording import count

CLIENT_FIELDS = (
    "features",
    "features_array",
    "feature_columns",
    "labels",
    "labels_array",
    "label_column",
    "id_column",
    "truth_column",
    "group",
)
DATA_FIELDS = tuple(f for f in CLIENT_FIELDS if f not in ("truth_column", "group"))
"""Those that also a client on a machine of its own takes."""

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
        if self.id_column is not None:
            return [repr(str(row_id)) for row_id in self.ids]
        return None if self.columns is None else [str(i + 1) for i in range(len(self.ids))]


def require_file_names(names: Iterable[str], path: Path) -> None:
    """Refuse names of clients that cannot be names of files, or not beside each other.

    Raises:
        ParameterError: says which name, and why.
    """
    seen: dict[str, str] = {}
    for name in names:
        where = f"{path}, [clients.{name}]"
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
    section: Any,
    path: Path,
    like: tuple[str, Sequence[str]] | None,
    title: str | None = None,
) -> LoadedClient:
    """Read the files of one client.

    Args:
        name: the client's.
        section: what the file says of it.
        path: that file; others are relative to it.
        like: another client and its feature columns.
        title: of the section; ``clients.NAME`` by default.

    Raises:
        ParameterError: a field is missing, unknown or of another type.
        DataError: what a file holds does not fit together, or not to the other client.
    """
    where = f"{path}, [{title or f'clients.{name}'}]"
    if not isinstance(section, dict):
        raise ParameterError(f"{where} must be a section")
    require_known(section, CLIENT_FIELDS, where)
    for field, value in section.items():
        if field == "feature_columns":
            if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                raise ParameterError(f"{where}: {field} must be a list of names, got {value!r}")
        elif not isinstance(value, str):
            raise ParameterError(f"{where}: {field} must be text, got {value!r}")
    if "features" not in section:
        raise ParameterError(f"{where}: features is missing; name the file with the features")
    label_column, id_column = section.get("label_column"), section.get("id_column")
    features_path = path.parent / section["features"]
    source = read_file(features_path, name)
    columns, ids, truth = None, None, None
    truth_column = section.get("truth_column")
    if isinstance(source, Table):
        if label_column is not None and "labels" not in section:
            column_of(source, name, features_path, label_column)  # mistyped, it would be a feature
        if id_column is not None:
            ids = column_of(source, name, features_path, id_column)
            rows_by_id(ids, name, features_path)  # refuses ids that are empty or not unique
        if truth_column is not None:
            truth = list(labels_of(source, name, features_path, array=None, column=truth_column))
        columns = feature_columns(
            source,
            name,
            features_path,
            columns=section.get("feature_columns"),
            leave_out=[c for c in (label_column, id_column, truth_column) if c is not None],
            like=like,
        )
    elif id_column is not None:
        raise ParameterError(f"{where}: id_column needs a .csv or .parquet file")
    elif truth_column is not None:
        raise ParameterError(f"{where}: truth_column needs a .csv or .parquet file")
    elif label_column is not None and "labels" not in section:
        raise ParameterError(f"{where}: label_column needs a .csv or .parquet file")
    features = features_of(
        source, name, features_path, array=section.get("features_array"), columns=columns or ()
    )
    if columns is not None and "feature_columns" not in section:
        _warn_of_row_numbers(name, columns, features, id_column)
    if "labels" in section:
        labels_path = path.parent / section["labels"]
        label_source = read_file(labels_path, name)
    else:
        labels_path, label_source = features_path, source
    rows = len(np.atleast_1d(features))
    if not rows:
        warnings.warn(f"client {name!r}: {features_path} has no rows", UserWarning, stacklevel=3)
    labels: list[Any] | NDArray[Any] = [None] * rows
    label_place = None
    if "labels" in section or label_column or "labels_array" in section:
        labels = labels_of(
            label_source,
            name,
            labels_path,
            array=section.get("labels_array"),
            column=label_column,
            id_column=id_column,
        )
        label_place = (
            f"column {label_column!r} of {labels_path}" if label_column else f"{labels_path}"
        )
    table = label_source if "labels" in section and isinstance(label_source, Table) else None
    if table is not None and ids is not None and id_column in table.columns:
        label_ids = table.columns[str(id_column)]
        labels = joined_by_id(list(labels), label_ids, ids, name, labels_path, features_path)
    elif table is not None and ids is not None and len(table.columns) > 1:
        raise DataError(
            f"client {name!r}: {labels_path} has no column {id_column!r} to join its labels by; "
            "rename the column with the ids, or leave only the labels in that file, to be taken in "
            f"the order of {features_path}"
        )
    elif features.ndim == 2 and (isinstance(labels, list) or labels.ndim == 1):
        if isinstance(label_source, Table) and len(label_source.columns) == 1:
            while len(labels) > rows and labels[-1] is None:
                labels = labels[:-1]  # blank lines at the end of the file
        if len(labels) != rows:
            raise DataError(
                f"client {name!r}: {features_path} has {count(rows, 'row')} and {labels_path} has "
                f"{count(len(labels), 'label')}, which are joined by position; give one for each "
                "row (unlabelled: empty or -1), or put the same id_column into both tables"
            )
    return LoadedClient(
        name,
        features,
        labels,
        list(range(rows)) if ids is None else ids,
        None if columns is None else tuple(columns),
        (features_path, labels_path),
        section.get("group"),
        id_column,
        label_place,
        truth,
    )


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
