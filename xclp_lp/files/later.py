"""Reading rows that come later, and what clients kept of the session that they come after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.secret import Secret
from xclp_crypto.transport.log import LogKey
from xclp_crypto.transport.meter import Cost
from xclp_lp.files.clients import DataSection, LoadedClient, load_new
from xclp_lp.files.federation import FederationFile, read_content, require_all_or_no_groups
from xclp_lp.files.kept import KeptFile, read_kept
from xclp_lp.files.network import ClientFile, client_binding, own_vectors, require_output
from xclp_lp.files.tables import Expected, agreed_on
from xclp_lp.files.toml import beside
from xclp_lp.labels import UNLABELLED, given_classes
from xclp_lp.parameters import Parameters
from xclp_lp.plan import checked_groups
from xclp_lp.predictions import Prediction
from xclp_lp.predictor import Predictor
from xclp_lp.session import ClientData
from xclp_lp.wording import count, differences

FOLDER = "new"
"""Where results for new rows go, in the folder of results."""


@dataclass(frozen=True, eq=False, repr=False)
class NewRows(Secret):
    """What a federation file says of rows that come later.

    Attributes:
        federation: its clients with their new rows, of which some may have none.
        predictor: what the clients kept, and how they show what they get.
        vectors: by client, (m_j, d) its new rows.
        newcomers: clients that were not in the session.
        columns: names of the features, if they have some.
    """

    federation: FederationFile
    predictor: Predictor
    vectors: Mapping[str, NDArray[Any]]
    newcomers: tuple[str, ...]
    columns: tuple[str, ...] | None

    @property
    def old_rows(self) -> int:
        """Return the rows of the session."""
        kept = (own.kept for own in self.predictor.results.values())
        return sum(len(own.sums) for own in kept if own is not None)


def load_new_rows(path: Path, folder: Path, key: LogKey) -> NewRows:
    """Read the new rows that a federation file names, and what its clients kept.

    Args:
        path: the federation file.
        folder: where the clients' kept files are.
        key: what these are encrypted under.

    Raises:
        ParameterError: the file cannot be used, a kept file is missing, or is of a session with
            other parameters than the file has, or of another one than another client's.
        LogError: a kept file does not open, or is damaged.
        DataError: a file of new rows is missing or cannot be used, has other columns than the
            session, or there is no new row.
    """
    content = read_content(path)
    sections = content.clients
    kept = {
        name: read_kept(folder, name, key)
        for name, section in sections.items()
        if section.features is not None
    }
    if not kept:
        raise ParameterError(f"{path}: no client has features, so none was in a session")
    first, *_ = kept.values()
    arguments = content.parameters
    classes = first.classes if arguments.classes is None else given_classes(arguments.classes)
    params = arguments.parameters(classes)
    for own in kept.values():
        own.require(params)
    like = agreed_on(None, content.schema)
    if like is None and first.columns is not None:
        like = Expected(first.where, first.columns)
    read = {
        name: read_new(name, section, path, kept.get(name), params, like)
        for name, section in sections.items()
    }
    clients = tuple(client for client, _ in read.values())
    require_all_or_no_groups(clients, arguments.groups, path)
    output = beside(path, content.output) / FOLDER
    federation = FederationFile(clients, arguments, output, path)
    groups = checked_groups(federation.groups, list(sections), arguments.random_state)
    for members in groups.values():
        _require_one_session([kept[c] for c in members if c in kept])
    if not any(len(vectors) for _, vectors in read.values()):
        raise DataError(f"{path}: no client has new rows; name their file in new_features")
    nothing = Prediction.none(0, len(classes))
    results = dict.fromkeys(sections, nothing) | {
        c: replace(nothing, kept=own.kept, validation=own.validation(params))
        for c, own in kept.items()
    }
    return NewRows(
        federation,
        Predictor(params, groups, federation.groups is not None, arguments, results),
        {name: vectors for name, (_, vectors) in read.items()},
        tuple(c for c in sections if c not in kept),
        first.columns,
    )


def _require_one_session(kept: list[KeptFile]) -> None:
    for own in kept[1:]:
        if own.kept.session != kept[0].kept.session:
            raise ParameterError(
                f"{kept[0].where} and that in {own.where.removeprefix('the kept file ')} are of "
                "different sessions; use what all clients kept of the same one"
            )


def read_new(
    name: str,
    section: DataSection,
    path: Path,
    kept: KeptFile | None,
    params: Parameters,
    like: Expected | None,
    title: str | None = None,
) -> tuple[LoadedClient, NDArray[np.floating[Any]]]:
    """Read a client's new rows; a client that was in the session need not have any.

    Args:
        name: of the client.
        section: what a file says of its data.
        path: that file.
        kept: what it kept; None where it was not in the session.
        params: of the session.
        like: the columns that are agreed on, if any are.
        title: see `load_client`.

    Returns:
        The rows as in their file, and as the client's role takes them.

    Raises:
        DataError: the file is missing or cannot be used, or has other columns than the session.
    """
    missing = params.missing != "refuse"
    if kept is not None and section.new_features is None:
        nothing = np.zeros((0, _columns(kept, missing)))
        group = getattr(section, "group", None)
        return LoadedClient(name, nothing, [], [], kept.columns, group=group), nothing
    if kept is not None and kept.columns is not None and not (like and like.schema):
        like = Expected(kept.where, kept.columns, binding=True)
    loaded = load_new(name, section, path, like, title, missing=missing)
    vectors = own_vectors(loaded.features, name, None, missing=missing)
    if kept is not None:
        told = "" if None in (kept.columns, loaded.columns) else _difference(loaded, kept)
        if not told and vectors.shape[1] != _columns(kept, missing):
            features = count(vectors.shape[1], "feature")
            told = f"{features} instead of {_columns(kept, missing)}"
        if told:
            raise DataError(
                f"client {name!r}: {loaded.files[0]} has not the columns of {kept.where}: {told}; "
                "give new rows the columns of the session, in its order where they have no names"
            )
    return loaded, vectors


@dataclass(frozen=True, eq=False, repr=False)
class ClientNewRows(Secret):
    """What a client of a federation has of rows that come later.

    Attributes:
        file: the client's file.
        table: its new rows as read.
        data: the same as its role takes them, without labels.
        kept: what it kept of the session; None where it was not in it.
    """

    file: ClientFile
    table: LoadedClient
    data: ClientData
    kept: KeptFile | None

    @property
    def binding(self) -> bytes:
        """Return what a log of this client is bound to: agreement, new rows, and what it kept."""
        kept = b"" if self.kept is None else self.kept.kept.encode()
        agreement = self.file.agreement(predict=True)
        return domain_tag("kept binding", client_binding(agreement, self.data), kept)

    def write(self, prediction: Prediction, cost: Cost) -> list[Path]:
        """Write ``NAME.csv`` and ``NAME-cost.json``; all or nothing.

        Raises:
            StorageError: they cannot be written.
        """
        return self.file.write(self.table, self.data, prediction, cost, output_of(self.file))


def output_of(file: ClientFile) -> Path:
    """Return the folder for what a client's new rows get."""
    return file.output / FOLDER


def load_client_new_rows(
    file: ClientFile, folder: Path | None, key: LogKey | None
) -> ClientNewRows:
    """Read the new rows that a client's file names, and what it kept.

    Args:
        file: of the client.
        folder: where its kept file is; None for a client that was not in the session.
        key: what that is encrypted under.

    Raises:
        ParameterError: the kept file is missing, or of a session with other parameters; or the
            results could not be written.
        LogError: the kept file does not open, or is damaged.
        DataError: the new rows are missing, cannot be used, or have other columns.
    """
    section, params, kept = file.section, file.params, None
    require_output(file.name, section, file.path, output_of(file))
    if folder is not None and key is not None:
        kept = read_kept(folder, file.name, key)
        kept.require(params)
    like = agreed_on(file.columns, file.schema)
    table, vectors = read_new(file.name, section, file.path, kept, params, like, "client")
    data = ClientData(vectors, np.full(len(vectors), UNLABELLED))
    return ClientNewRows(file, table, data, kept)


def _columns(kept: KeptFile, missing: bool) -> int:
    """Return how many columns the rows of a session had, without indicators."""
    return kept.kept.own.features // (2 if missing else 1)


def _difference(loaded: LoadedClient, kept: KeptFile) -> str:
    """Return how columns differ; nothing if they are the same."""
    own, before = loaded.columns or (), kept.columns or ()
    return differences(own, before) or "another order" * (own != before)
