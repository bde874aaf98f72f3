"""``federation.toml``: one section per client, parameters, and where the results go.

::

    output = "results"                 # a folder; by default "results", beside this file

    [parameters]                       # all optional; those of CrossClientLabelPropagation
    n_bits = 4096
    k = 3
    hamming = "rlwe"

    [parameters.privacy]               # optional; differential privacy of the labels
    epsilon = 3.0                      # alone: each client randomises its labels; with `delta` and
                                       # `noise_contributors`: noise in the secure sums

    [clients.north]                    # one section per client
    features = "north.csv"             # .npy, .npz, .csv or .parquet, relative to this file
    label_column = "digit"             # labels in a column; empty cells are unlabelled

    [clients.south]
    group = "coast"                    # optional; each group is a federation of its own
    features = "south.npy"
    labels = "south_labels.npy"        # or in a file of their own; -1 is unlabelled

Tables without `feature_columns` must have the same feature columns, in any order. With `id_column`
in both tables of a client, labels are joined by id; otherwise by position.
"""

from __future__ import annotations

import csv
import json
import tempfile
import tomllib
import unicodedata
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.privacy import LabelPrivacy, RandomizedResponse
from xclp_crypto.wording import did_you_mean
from xclp_lp.files.tables import (
    SUFFIXES,
    Table,
    column_of,
    feature_columns,
    features_of,
    integers_if_all,
    joined_by_id,
    labels_of,
    looks_like_row_numbers,
    read_file,
    rows_by_id,
)
from xclp_lp.labels import UNLABELLED, class_values, codes_of, decode, marked_values
from xclp_lp.summary import neglected_lines, participation, relabelled_lines
from xclp_lp.wording import count, listing

if TYPE_CHECKING:
    from xclp_lp.estimator import CrossClientLabelPropagation, Plan

TOP_FIELDS = ("parameters", "clients", "output")
PARAMETERS = (
    "n_bits",
    "k",
    "alpha",
    "gamma",
    "projection",
    "hamming",
    "include_self",
    "ties",
    "classes",
    "fraction_bits",
    "threshold",
    "class_weight",
    "privacy",
    "reset_labelled",
    "relative_confidence",
    "groups",
    "random_state",
)
PRIVACY_FIELDS = ("epsilon", "delta", "noise_contributors")
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


@dataclass(frozen=True)
class FederationFile:
    """The content of a federation file, with all data read and nothing computed.

    Attributes:
        clients: in the order of the file.
        parameters: keyword arguments for `CrossClientLabelPropagation`.
        output: folder for the results.
        path: the federation file itself.
    """

    clients: tuple[LoadedClient, ...]
    parameters: dict[str, Any]
    output: Path
    path: Path | None = None

    def estimator(self) -> CrossClientLabelPropagation:
        """Return the estimator with this file's parameters."""
        from xclp_lp.estimator import CrossClientLabelPropagation  # scikit-learn: a second

        named = [c.group for c in self.clients if c.group is not None]
        return CrossClientLabelPropagation(
            **self.parameters | ({"groups": named} if named else {}),
            client_names=[c.name for c in self.clients],
        )

    def truth(self, plan: Plan, without: Collection[str] = ()) -> list[list[Any]] | None:
        """Return the true labels of every client, None where they are not known.

        Args:
            plan: what will be run.
            without: clients that will have no result.

        Returns:
            Per client, (n_j,); or None where no client has a `truth_column`.

        Raises:
            DataError: a true label is no class, or none is of a row that can be scored.
        """
        if all(c.truth is None for c in self.clients):
            return None
        found: list[list[Any]] = [
            [None] * len(c.ids) if c.truth is None else c.truth for c in self.clients
        ]
        if any(isinstance(c, int) for c in plan.params.classes):
            found = [list(ys) for ys in integers_if_all(found)]
        names = [c.name for c in self.clients]
        marked = [marked_values(ys, name) for ys, name in zip(found, names, strict=True)]
        if not any(
            (known & (plan.data[name].codes == UNLABELLED)).any()
            for name, (_, known) in zip(names, marked, strict=True)
            if name not in without
        ):
            raise DataError("truth_column says nothing of any row without a label")
        try:
            class_values(marked, plan.params.classes, names, [c.row_names for c in self.clients])
        except DataError as error:
            raise DataError(f"truth_column: {error}") from None
        return found


def load_federation(path: Path) -> FederationFile:
    """Read a federation file and all files that it names.

    Raises:
        ParameterError: the file is not TOML, or a section or field is unknown or of a wrong type.
        DataError: a client's file is missing or cannot be used.
    """
    content = read_toml(path)
    require_known(content, TOP_FIELDS, f"{path}")
    parameters = section_of(content, "parameters", f"{path}")
    require_known(parameters, PARAMETERS, f"{path}, [parameters]")
    if "privacy" in parameters:
        parameters = parameters | {"privacy": privacy_of(parameters["privacy"], path)}
    sections = section_of(content, "clients", f"{path}")
    if not sections:
        raise ParameterError(f"{path}: there is no section [clients.NAME]")
    require_file_names(sections, path)
    output = content.get("output", "results")
    if not isinstance(output, str) or not output:
        raise ParameterError(f"{path}: output must be the name of a folder, got {output!r}")
    clients: list[LoadedClient] = []
    like = None
    owners: dict[tuple[Path, str | None], str] = {}
    for name, section in sections.items():
        client = load_client(name, section, path, like)
        data = client.files[0].resolve(), section.get("features_array")
        if data in owners:
            raise ParameterError(
                f"{path}: clients {owners[data]!r} and {name!r} have the same features, "
                f"{client.files[0]}; give each client rows of its own"
            )
        owners[data] = name
        clients.append(client)
        if like is None and client.columns is not None and "feature_columns" not in section:
            like = name, client.columns
    _require_all_or_no_groups(clients, parameters, path)
    _require_labels(clients)
    labels = integers_if_all([c.labels for c in clients])
    return FederationFile(
        clients=tuple(replace(c, labels=ys) for c, ys in zip(clients, labels, strict=True)),
        parameters=dict(parameters),
        output=path.parent / output,
        path=path,
    )


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ParameterError: it cannot be read, or is not TOML.
    """
    if path.suffix.lower() in SUFFIXES:
        raise ParameterError(
            f"{path} is not a federation file (TOML) but data, which such a file names: "
            f'features = "{path.name}"'
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ParameterError(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise ParameterError(f"{path} is not encoded in UTF-8; save it as UTF-8") from None
    except IsADirectoryError:
        raise ParameterError(f"{path} is a folder; name a federation file in it") from None
    except OSError as error:
        raise ParameterError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # no TOML, or thousands of digits or brackets
        quotes = '; text needs quotes, as in hamming = "plain"' * ("Invalid value" in str(error))
        raise ParameterError(f"{path}: {error}{quotes}") from None


def privacy_of(section: Any, path: Path) -> LabelPrivacy | RandomizedResponse:
    """Return the privacy that the section asks for: epsilon alone, or all of its fields.

    Raises:
        ParameterError: a field is missing, unknown or out of range.
    """
    where = f"{path}, [parameters.privacy]"
    if not isinstance(section, dict):
        raise ParameterError(f"{where} must be a section, got {section!r}")
    require_known(section, PRIVACY_FIELDS, where)
    alone = set(section) == {"epsilon"}
    for field in PRIVACY_FIELDS:
        if field not in section and not alone:
            raise ParameterError(f"{where}: {field} is missing")
    try:
        return RandomizedResponse(**section) if alone else LabelPrivacy(**section)
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None


def _require_all_or_no_groups(
    clients: Sequence[LoadedClient], parameters: dict[str, Any], path: Path
) -> None:
    without = [c.name for c in clients if c.group is None]
    if 0 < len(without) < len(clients):
        raise ParameterError(f"{path}, [clients.{without[0]}]: group is missing; others have one")
    groups = parameters.get("groups")
    if groups is not None and not isinstance(groups, int):
        raise ParameterError(
            f"{path}, [parameters]: groups must be a number, got {groups!r}; to name them, give "
            "each client a group"
        )
    if groups is not None and not without:
        raise ParameterError(f"{path}: groups are named by the clients, so leave out groups = …")


def _require_labels(clients: Sequence[LoadedClient]) -> None:
    if any(marked_values(c.labels, c.name)[1].any() for c in clients):
        return
    places = [c.label_place for c in clients if c.label_place is not None]
    if not places:
        raise DataError("no client has a label: name them with label_column or labels")
    shown = ", ".join(places[:3]) + ", …" * (len(places) > 3)
    raise DataError(
        f"no client has a label: {shown} {'is' if len(places) == 1 else 'are'} empty, or -1, in "
        "every row; label some rows of each class"
    )


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


def section_of(content: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    """Return a section of a file, empty where it is not there.

    Raises:
        ParameterError: it is no section.
    """
    section = content.get(name, {})
    if not isinstance(section, dict):
        raise ParameterError(f"{where}: {name} must be a section, got {section!r}")
    return section


def require_known(section: dict[str, Any], known: Sequence[str], where: str) -> None:
    """Refuse fields that a section does not have; they may be mistyped.

    Raises:
        ParameterError: names the field and those that exist.
    """
    for field in section:
        if field not in known:
            raise ParameterError(
                f"{where}: unknown field {field!r}; the fields are {', '.join(known)}"
                f"{did_you_mean(field, known)}"
            )


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


def why_not_writable(folder: Path) -> str | None:
    """Return why nothing can be created in an existing folder; found by trying."""
    try:
        tempfile.TemporaryDirectory(prefix=".xclp-", dir=folder).cleanup()
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"
    return None


def require_writable(federation: FederationFile, option: str = "") -> None:
    """Refuse a place for the results that cannot take them, before anything is computed.

    Args:
        federation: with the place.
        option: what errors begin with: where the place comes from, if not from the file.

    Raises:
        ParameterError: the folder, or one that it lies in, is a file or may not be written; or a
            result would replace a folder or a file that was read.
    """
    folder = federation.output
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    reason = why_not_writable(existing) if existing.is_dir() else f"{existing} is a file"
    inputs = {file for client in federation.clients for file in client.files}
    if federation.path is not None:
        inputs.add(federation.path)
    for name in (*(f"{c.name}.csv" for c in federation.clients), "cost.json"):
        result = folder / name
        if result.is_dir():
            reason = f"{result} is a folder"
        elif result.exists() and any(f.exists() and result.samefile(f) for f in inputs):
            reason = f"{result} is one of the files that were read; choose another folder"
    if reason is not None:
        raise ParameterError(f"{option}results cannot be written to {folder}: {reason}")


def write_results(federation: FederationFile, fitted: CrossClientLabelPropagation) -> list[Path]:
    """Write one ``NAME.csv`` per client that stayed and ``cost.json``; all or nothing.

    For the columns see `write_table`.
    ``cost.json`` also says whose labels were counted, who vanished, and who has no result.

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
        place = folder if folder.exists() else folder.parent
        with tempfile.TemporaryDirectory(prefix=".xclp-", dir=place) as scratch:
            written = []
            without = [gone.client for gone in fitted.departures_]
            for j, client in enumerate(federation.clients):
                if client.name in without:
                    continue
                file = Path(scratch) / f"{client.name}.csv"
                _write_predictions(file, client, fitted, j)
                written.append(file)
            cost = Path(scratch) / "cost.json"
            content = participation(fitted) | {"without_result": without} | fitted.cost_.to_dict()
            cost.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            written.append(cost)
            folder.mkdir(exist_ok=True)
            return [file.replace(folder / file.name) for file in written]
    except OSError as error:
        raise DataError(f"results cannot be written to {folder}: {error}") from None


def file_lines(federation: FederationFile, fitted: CrossClientLabelPropagation) -> Iterator[str]:
    """Say which clients have no file of this run, and which tables are of an earlier one."""
    without = [gone.client for gone in fitted.departures_]
    if without:
        yield f"no file written for {listing(without)}, without a result"
    read = {file.resolve() for client in federation.clients for file in client.files}
    written = {f"{c.name}.csv" for c in federation.clients if c.name not in without}
    tables = sorted(federation.output.glob("*.csv"))
    old = [t.name for t in tables if t.name not in written and t.resolve() not in read]
    if old:
        yield f"already in {federation.output}, and not of this run: {listing(old)}"


def label_lines(federation: FederationFile, fitted: CrossClientLabelPropagation) -> Iterator[str]:
    """Say how many labelled rows got another label, or none, and which classes hardly came out."""
    away = [gone.client for gone in fitted.departures_]
    stayed = [j for j, client in enumerate(federation.clients) if client.name not in away]
    classes = fitted.classes_.tolist()
    given = [codes_of(federation.clients[j].labels, "", classes) for j in stayed]
    got = [codes_of(fitted.transduction_[j], "", classes) for j in stayed]
    yield from relabelled_lines(given, got)
    advice = "" if fitted.class_weight else '; class_weight = "balanced" may help'
    yield from neglected_lines(classes, given, got, advice)


def _write_predictions(
    file: Path, client: LoadedClient, fitted: CrossClientLabelPropagation, j: int
) -> None:
    write_table(
        file,
        client,
        codes_of(client.labels, client.name, fitted.classes_.tolist()),
        fitted.classes_,
        fitted.transduction_[j],
        fitted.confidence_[j],
        fitted.label_distributions_[j],
    )


def write_table(
    file: Path,
    client: LoadedClient,
    codes: NDArray[np.int64],
    classes: NDArray[Any],
    labels: NDArray[Any],
    confidence: NDArray[np.float64],
    distributions: NDArray[np.float64],
) -> None:
    """Write one client's predictions.

    Columns: id, under the name of the column that it was in if no other has that name; label and
    given label, empty where there is none; confidence; the probability of every class.
    """
    columns = ["label", "given", "confidence", *(f"p({c})" for c in classes.tolist())]
    own = client.id_column
    given = decode(codes, classes.tolist())
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["id" if own is None or own in columns else own, *columns])
        for row_id, *both, sure, row in zip(
            client.ids, labels, given, confidence, distributions, strict=True
        ):
            missing = [y is None or (classes.dtype.kind == "i" and y == UNLABELLED) for y in both]
            shown = ["" if none else y for none, y in zip(missing, both, strict=True)]
            writer.writerow([row_id, *shown, f"{sure:.6f}", *(f"{p:.6f}" for p in row)])
