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
    features = "north.csv"             # .npy, .npz, .csv, .parquet or .xlsx, beside this file
    label_column = "digit"             # labels in a column; empty cells are unlabelled

    [clients.south]
    group = "coast"                    # optional; each group is a federation of its own
    features = "south.npy"
    labels = "south_labels.npy"        # or in a file of their own; -1 is unlabelled

    [schema]                           # optional: what columns hold, if not all are numbers
    age = {kind = "number"}            # names every feature column, in the order of features
    smoker = {kind = "boolean"}
    stage = {kind = "ordered", values = ["I", "II", "III"]}
    ward = {kind = "categories", values = ["surgery", "medicine"]}

Tables without `feature_columns` must have the same feature columns, in any order. With `id_column`
in both tables of a client, labels are joined by id; otherwise by position.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from xclp_crypto.errors import DataError, ParameterError
from xclp_lp.files.clients import (
    ClientSection,
    Folder,
    LoadedClient,
    load_client,
    require_file_names,
)
from xclp_lp.files.schema import Column
from xclp_lp.files.tables import Expected, agreed_on, values_of_texts
from xclp_lp.files.toml import beside, read_section, read_toml
from xclp_lp.labels import UNLABELLED, class_values, marked_values
from xclp_lp.parameters import Arguments
from xclp_lp.plan import Plan
from xclp_lp.validation import Validated


@dataclass(frozen=True)
class FederationArguments(Arguments):
    """The section [parameters]; groups that have names are named by the clients."""

    groups: Annotated[
        int | None, Meta(title="a number; to name them, give each client a group")
    ] = None


@dataclass(frozen=True)
class Content(Validated):
    """All that a federation file says."""

    parameters: FederationArguments = FederationArguments()
    clients: Mapping[str, ClientSection] = field(default_factory=dict)
    schema: Mapping[str, Column] = field(default_factory=dict)
    output: Folder = "results"


@dataclass(frozen=True)
class FederationFile:
    """The content of a federation file, with all data read and nothing computed.

    Attributes:
        clients: in the order of the file.
        arguments: of `CrossClientLabelPropagation`.
        output: folder for the results.
        path: the federation file itself.
    """

    clients: tuple[LoadedClient, ...]
    arguments: Arguments
    output: Path
    path: Path | None = None

    @property
    def groups(self) -> int | list[str] | None:
        """Return the groups: their number, or the name of each client's."""
        named = [c.group for c in self.clients if c.group is not None]
        found: int | None = self.arguments.groups
        return named or found

    def plan(self) -> Plan:
        """Return what can be run; see `CrossClientLabelPropagation.plan`."""
        return Plan.of(
            Arguments(**self.arguments.keywords() | {"groups": self.groups}),
            [c.features for c in self.clients],
            [c.labels for c in self.clients],
            names=[c.name for c in self.clients],
            row_names=[c.row_names for c in self.clients],
        )

    def truth(self, plan: Plan, without: Collection[str] = ()) -> list[list[Any]] | None:
        """Return the true labels of every client, None where they are not known.

        Args:
            plan: what will be run.
            without: clients that will have no result.

        Returns:
            Per client, (n_j,); or None where no client has a `truth_column`.

        Raises:
            DataError: a true label is not a class, or none is of a row that can be scored.
        """
        if all(c.truth is None for c in self.clients):
            return None
        found: list[list[Any]] = [
            [None] * len(c.ids) if c.truth is None else c.truth for c in self.clients
        ]
        if not any(isinstance(c, str) for c in plan.params.classes):
            found = [list(ys) for ys in values_of_texts(found, plan.params.classes)]
        names = [c.name for c in self.clients]
        marked = [marked_values(ys, name) for ys, name in zip(found, names, strict=True)]
        if not any(
            (known & (plan.data[name].class_ids == UNLABELLED)).any()
            for name, (_, known) in zip(names, marked, strict=True)
            if name not in without
        ):
            raise DataError("truth_column says nothing of any row without a label")
        try:
            class_values(marked, plan.params.classes, names, [c.row_names for c in self.clients])
        except DataError as error:
            raise DataError(f"truth_column: {error}") from None
        return found


def read_content(path: Path) -> Content:
    """Read a federation file, and none of the files that it names.

    Raises:
        ParameterError: the file is not TOML, or a section or field is unknown or of a wrong type.
    """
    content = read_section(Content, read_toml(path), path)
    if not content.clients:
        raise ParameterError(f"{path}: there is no section [clients.NAME]")
    require_file_names(content.clients, path)
    return content


def load_federation(path: Path) -> FederationFile:
    """Read a federation file and all files that it names.

    Raises:
        ParameterError: the file is not TOML, or a section or field is unknown or of a wrong type.
        DataError: a client's file is missing or cannot be used.
    """
    content = read_content(path)
    clients: list[LoadedClient] = []
    like, missing = agreed_on(None, content.schema), content.parameters.missing != "refuse"
    owners: dict[tuple[Path, str | None], str] = {}
    for name, section in content.clients.items():
        client = load_client(name, section, path, like, missing=missing)
        data = client.files[0].resolve(), section.features_array
        if data in owners:
            raise ParameterError(
                f"{path}: clients {owners[data]!r} and {name!r} have the same features, "
                f"{client.files[0]}; give each client rows of its own"
            )
        owners[data] = name
        clients.append(client)
        if like is None and client.columns is not None:
            like = Expected(f"client {name!r}", client.columns)
    require_all_or_no_groups(clients, content.parameters.groups, path)
    _require_labels(clients)
    labels = values_of_texts([c.labels for c in clients])
    return FederationFile(
        clients=tuple(replace(c, labels=ys) for c, ys in zip(clients, labels, strict=True)),
        arguments=content.parameters,
        output=beside(path, content.output),
        path=path,
    )


def require_all_or_no_groups(
    clients: Sequence[LoadedClient], groups: int | None, path: Path
) -> None:
    """Refuse groups of some clients only, or both named and drawn.

    Raises:
        ParameterError: says which.
    """
    without = [c.name for c in clients if c.group is None]
    if 0 < len(without) < len(clients):
        raise ParameterError(f"{path}, [clients.{without[0]}]: group is missing; others have one")
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
