"""``federation.toml``: one section per client, parameters, and where the results go.

::

    output = "results"                 # a folder; by default "results", beside this file

    [parameters]                       # all optional; those of CrossClientLabelPropagation
    n_bits = 4096
    k = 3
    hamming = "rlwe"

    [clients.north]                    # one section per client
    features = "north.csv"             # .npy, .npz, .csv or .parquet, relative to this file
    label_column = "digit"             # labels in a column; empty cells are unlabelled

    [clients.south]
    features = "south.npy"
    labels = "south_labels.npy"        # or in a file of their own; -1 is unlabelled
"""

from __future__ import annotations

import csv
import json
import os
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.estimator import CrossClientLabelPropagation
from xclp_lp.tables import Table, column_of, features_of, integers_if_all, labels_of, read_file

PARAMETERS = (
    "n_bits",
    "k",
    "alpha",
    "gamma",
    "hamming",
    "include_self",
    "ties",
    "classes",
    "fraction_bits",
    "random_state",
)
CLIENT_FIELDS = (
    "features",
    "features_array",
    "feature_columns",
    "labels",
    "labels_array",
    "label_column",
    "id_column",
)


@dataclass(frozen=True)
class LoadedClient:
    """One client's rows as read from its files.

    Attributes:
        name: the name of its section.
        features: (n_j, d).
        labels: (n_j,).
        ids: (n_j,) what a person calls the rows: a column, or the row number from 0.
    """

    name: str
    features: NDArray[Any]
    labels: list[Any] | NDArray[Any]
    ids: list[Any]


@dataclass(frozen=True)
class FederationFile:
    """The content of a federation file, with all data read and nothing computed.

    Attributes:
        clients: in the order of the file.
        parameters: keyword arguments for `CrossClientLabelPropagation`.
        output: folder for the results.
    """

    clients: tuple[LoadedClient, ...]
    parameters: dict[str, Any]
    output: Path

    def estimator(self) -> CrossClientLabelPropagation:
        """Return the estimator with this file's parameters."""
        return CrossClientLabelPropagation(
            **self.parameters, client_names=[c.name for c in self.clients]
        )


def load_federation(path: Path) -> FederationFile:
    """Read a federation file and all files that it names.

    Raises:
        ParameterError: the file is not TOML, or a section or field is unknown or of a wrong type.
        DataError: a client's file is missing or cannot be used.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ParameterError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ParameterError(f"{path}: {error}") from None
    _require_known(content, ("parameters", "clients", "output"), f"{path}")
    parameters = _section(content, "parameters", f"{path}")
    _require_known(parameters, PARAMETERS, f"{path}, [parameters]")
    sections = _section(content, "clients", f"{path}")
    if not sections:
        raise ParameterError(f"{path}: there is no section [clients.NAME]")
    clients = [_load_client(name, section, path) for name, section in sections.items()]
    labels = integers_if_all([c.labels for c in clients])
    output = content.get("output", "results")
    if not isinstance(output, str) or not output:
        raise ParameterError(f"{path}: output must be the name of a folder, got {output!r}")
    return FederationFile(
        clients=tuple(
            LoadedClient(c.name, c.features, ys, c.ids)
            for c, ys in zip(clients, labels, strict=True)
        ),
        parameters=dict(parameters),
        output=path.parent / output,
    )


def _section(content: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    section = content.get(name, {})
    if not isinstance(section, dict):
        raise ParameterError(f"{where}: {name} must be a section, got {section!r}")
    return section


def _require_known(section: dict[str, Any], known: Sequence[str], where: str) -> None:
    for field in section:
        if field not in known:
            raise ParameterError(
                f"{where}: unknown field {field!r}; the fields are {', '.join(known)}"
            )


def _load_client(name: str, section: Any, path: Path) -> LoadedClient:
    where = f"{path}, [clients.{name}]"
    if not isinstance(section, dict):
        raise ParameterError(f"{where} must be a section")
    if not name.isprintable() or name.startswith(".") or any(c in name for c in "/\\:") or not name:
        raise ParameterError(
            f"{where}: the name becomes the name of a file, so it cannot be {name!r}"
        )
    _require_known(section, CLIENT_FIELDS, where)
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
    if label_column is not None and "labels" not in section and not isinstance(source, Table):
        raise ParameterError(f"{where}: label_column needs a .csv or .parquet file")
    if isinstance(source, Table):  # a mistyped column must not become a feature
        for column in (id_column, None if "labels" in section else label_column):
            if column is not None:
                column_of(source, name, features_path, column)
    features = features_of(
        source,
        name,
        features_path,
        array=section.get("features_array"),
        columns=section.get("feature_columns"),
        leave_out=[c for c in (label_column, id_column) if c is not None],
    )
    if "labels" in section:
        labels_path = path.parent / section["labels"]
        label_source = read_file(labels_path, name)
    else:
        labels_path, label_source = features_path, source
    if "labels" in section or label_column or "labels_array" in section:
        labels = labels_of(
            label_source,
            name,
            labels_path,
            array=section.get("labels_array"),
            column=label_column,
        )
    else:
        labels = [None] * len(features)
    ids: list[Any] = list(range(len(features)))
    if id_column is not None:
        if not isinstance(source, Table):
            raise ParameterError(f"{where}: id_column needs a .csv or .parquet file")
        ids = column_of(source, name, features_path, id_column)
    return LoadedClient(name, features, labels, ids)


def require_writable(federation: FederationFile) -> None:
    """Refuse a place for the results that cannot take them, before anything is computed.

    Raises:
        ParameterError: the folder, or one that it lies in, is a file or may not be written; or a
            result would replace a folder.
    """
    folder = federation.output
    reason = None
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir():
        reason = f"{existing} is a file"
    elif not os.access(existing, os.W_OK):
        reason = f"{existing} may not be written"
    for name in (*(f"{c.name}.csv" for c in federation.clients), "cost.json"):
        if (folder / name).is_dir():
            reason = f"{folder / name} is a folder"
    if reason is not None:
        raise ParameterError(f"results cannot be written to {folder}: {reason}")


def write_results(federation: FederationFile, fitted: CrossClientLabelPropagation) -> list[Path]:
    """Write one ``NAME.csv`` per client and ``cost.json``; all or nothing.

    Columns: id, label (empty where there is none), confidence, and the probability of every class.

    Returns:
        The files written.

    Raises:
        ParameterError: see `require_writable`.
        DataError: writing fails.
    """
    require_writable(federation)
    folder = federation.output
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".xclp-", dir=folder.parent) as scratch:
            written = []
            for j, client in enumerate(federation.clients):
                file = Path(scratch) / f"{client.name}.csv"
                _write_predictions(file, client, fitted, j)
                written.append(file)
            cost = Path(scratch) / "cost.json"
            cost.write_text(json.dumps(fitted.cost_.to_dict(), indent=2) + "\n", encoding="utf-8")
            written.append(cost)
            folder.mkdir(exist_ok=True)
            return [file.replace(folder / file.name) for file in written]
    except OSError as error:
        raise DataError(f"results cannot be written to {folder}: {error}") from None


def _write_predictions(
    file: Path, client: LoadedClient, fitted: CrossClientLabelPropagation, j: int
) -> None:
    classes = fitted.classes_.tolist()
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["id", "label", "confidence", *(f"p({c})" for c in classes)])
        for i, row_id in enumerate(client.ids):
            label = fitted.transduction_[j][i]
            missing = label is None or (fitted.classes_.dtype.kind == "i" and label == -1)
            writer.writerow(
                [
                    row_id,
                    "" if missing else label,
                    f"{fitted.confidence_[j][i]:.6f}",
                    *(f"{p:.6f}" for p in fitted.label_distributions_[j][i]),
                ]
            )
