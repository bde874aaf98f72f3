"""What the programs of a federation read: one file of the server, and one of each client.

::

    clients = ["north", "south"]       # the same in all files, in this order
    columns = ["x0", "x1"]             # optional, the same in all: names of the features; or
                                       # [schema], as in a federation file
    identities = "identities.toml"     # the same in all: NAME = "xclp-ed25519:…" of each; or false
    identity = "server.identity"       # unless that is false: this party's own key, 64 hex digits
    mounted_secrets = ["server.key"]   # optional: files with secrets that others may read, because
                                       # the system mounts them so; any other such is refused

    [parameters]                       # the same in all files; classes are needed
    classes = ["cat", "dog"]           # the others are those of a federation file
    k = 3

    [tls]                              # PEM files, relative to this file
    authority = "authority.pem"
    certificate = "server.pem"         # for a client, its common name is the client's name
    key = "server.key"

    [certificates]                     # optional: which certificate a party must show; a client's
    server = "sha256:…"                # program compares the server's and its own, the server those
                                       # of the clients

    [limits]                           # optional, each side for itself: join, grace, deadline,
    grace = 60                         # total (seconds), window, max_message and memory (bytes)

    [server]                           # in the server's file
    listen = "0.0.0.0:7878"
    output = "results"                 # optional: a folder for server-cost.json

    [client]                           # in a client's file
    name = "north"
    server = "labels.example.org:7878"
    output = "results"                 # a folder; by default "results", beside this file
    features = "north.csv"             # and all else that a section [clients.NAME] takes
    new_features = "new.csv"           # optional: rows that come later, for --predict

The server's file names no data, and the server reads none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from xclp_crypto.algebra.domain_tags import domain_tag
from xclp_crypto.errors import DataError, ParameterError
from xclp_crypto.params import Agreement
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.transport.meter import Cost
from xclp_lp import labels
from xclp_lp.files.clients import DataSection, Folder, LoadedClient, load_client
from xclp_lp.files.credentials import (
    pinned_texts,
)
from xclp_lp.files.parties import (
    PartyContent,
    PartyFile,
    parse_address,
    party_of,
    read_party,
    require_client,
)
from xclp_lp.files.results import SERVER_RECORD, require_place, write_result
from xclp_lp.files.schema import NO_SCHEMA, Column, Schema, agreed_schema
from xclp_lp.files.tables import agreed_on, values_of_texts
from xclp_lp.files.toml import beside, read_section
from xclp_lp.lsh import checked_vectors, projection_seed
from xclp_lp.parameters import Parameters, Settings
from xclp_lp.predictions import Prediction
from xclp_lp.session import ClientData
from xclp_lp.summary import present_in, privacy_cautions, two_left_line
from xclp_lp.validation import Text, Validated

SESSIONS = "of all rows: without --predict", "of new rows: --predict"
"""What two kinds of session call themselves, where a program asks for another than the server."""


@dataclass(frozen=True)
class NetworkSettings(Settings):
    """The section [parameters]: the same for all parties, but for how results are shown."""

    classes: Annotated[
        Any, Meta(description="nobody sees the labels of all clients, so list all classes")
    ] = field(kw_only=True)
    random_state: Annotated[int, Meta(ge=0)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "classes", labels.given_classes(self.classes))
        self.params.require_accountant()

    @property
    def params(self) -> Parameters:
        """Return the parameters of the session."""
        return self.parameters(self.classes)

    def require_clients(self, clients: int) -> None:
        """Refuse so many clients; raises as `Parameters.for_session`."""
        self.params.for_session(clients)

    def warnings(
        self, clients: Sequence[str], contributors: Sequence[str] = (), *, identities: bool
    ) -> list[str]:
        """Return what all parties should know of what the session reveals.

        Args:
            clients: names of all clients.
            contributors: those in the sums, once that is known.
            identities: whether the parties check each other's identities.
        """
        before = privacy_cautions(self.params, clients, self.random_state, identities=identities)
        return [*before, *two_left_line(contributors)]

    @property
    def seed(self) -> bytes | None:
        """Return the seed of the projection, if it is fixed."""
        return projection_seed(self.random_state)

    def agreement_with(self, **others: Any) -> Agreement:
        """Return what all programs compare: these parameters, and others."""
        seed = None if self.seed is None else hashlib.sha256(self.seed).digest()
        return Agreement(**self.params.agreement().fields, random_state=seed, **others)


@dataclass(frozen=True)
class ServerSection(Validated):
    """What only the server's file says."""

    listen: Text
    output: Folder | None = None


@dataclass(frozen=True)
class ClientSection(DataSection):
    """What only a client's file says."""

    name: Text = field(kw_only=True)
    server: Text = field(kw_only=True)
    output: Folder = "results"


@dataclass(frozen=True)
class _Content(PartyContent):
    """What the files of server and clients say alike."""

    parameters: NetworkSettings = field(kw_only=True)
    columns: Annotated[
        Annotated[tuple[str, ...], Meta(min_length=1)] | None, Meta(title="a list of names")
    ] = None
    schema: Mapping[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is not None and self.schema:
            raise ParameterError("a schema names the columns, so leave out columns = …")
        self.parameters.require_clients(len(self.clients))


@dataclass(frozen=True)
class ServerContent(_Content):
    """All that the server's file says."""

    server: ServerSection = field(kw_only=True)


@dataclass(frozen=True)
class ClientContent(_Content):
    """All that a client's file says."""

    client: ClientSection = field(kw_only=True)


@dataclass(frozen=True)
class NetworkFile(PartyFile):
    """What the files of server and clients of a session have in common.

    Attributes:
        columns: names of the features, if they are agreed on.
        schema: what the columns hold, if that is agreed on.
        settings: parameters of the session, and how a client shows its result.
    """

    columns: tuple[str, ...] | None
    schema: Schema
    settings: NetworkSettings

    @property
    def params(self) -> Parameters:
        """Return the parameters of the session."""
        return self.settings.params

    @property
    def seed(self) -> bytes | None:
        """Return the seed of the projection, if it is fixed."""
        return self.settings.seed

    def warnings(self, contributors: Sequence[str] = ()) -> list[str]:
        """Return `NetworkSettings.warnings` of this federation."""
        identities = self.identities is not None
        return self.settings.warnings(self.clients, contributors, identities=identities)

    def agreement(self, *, predict: bool = False) -> Agreement:
        """Return what all programs compare before anything else.

        Args:
            predict: whether only rows that come later get labels.
        """
        return self.settings.agreement_with(
            clients=self.clients,
            columns=self.columns,
            schema=agreed_schema(self.schema),
            identities=pinned_texts(self.identities, self.clients),
            session=SESSIONS[predict],
        )


@dataclass(frozen=True)
class ServerFile(NetworkFile):
    """The file of the server.

    Attributes:
        output: folder for ``server-cost.json``, if it is written.
    """

    output: Path | None


@dataclass(frozen=True)
class ClientFile(NetworkFile):
    """The file of a client.

    Attributes:
        name: of the client.
        output: folder for its results.
        section: what it says of its data, which is not read yet.
    """

    name: str
    output: Path
    section: DataSection

    def load(self) -> tuple[LoadedClient, ClientData]:
        """Read the client's data.

        Raises:
            DataError: a file is missing or cannot be used, or has a label that is not a class.
        """
        return load_data(self.name, self.section, self.path, self.params, self.columns, self.schema)

    def binding(self, data: ClientData) -> bytes:
        """Return what a log of this client is bound to: the agreement and its data."""
        return client_binding(self.agreement(), data)

    def require_writable(self) -> None:
        """Refuse a place for the results that cannot take them, before anything is computed.

        Raises:
            ParameterError: says why.
        """
        require_output(self.name, self.section, self.path, self.output)

    def write(
        self,
        loaded: LoadedClient,
        data: ClientData,
        prediction: Prediction,
        cost: Cost,
        folder: Path | None = None,
    ) -> list[Path]:
        """Write ``NAME.csv`` and ``NAME-cost.json``; all or nothing.

        Args:
            loaded: the rows, as in their files.
            data: the same, as the client's role takes them.
            prediction: what its role returned.
            cost: what it cost.
            folder: by default that of the file.

        Raises:
            StorageError: they cannot be written.
        """
        return write_result(
            folder or self.output,
            loaded,
            data,
            prediction,
            cost,
            self.params.classes,
            self.settings,
            self.warnings(present_in(self.clients, prediction)),
        )


def require_output(name: str, section: DataSection, path: Path, output: Path) -> None:
    """Refuse a folder that cannot take the results of a client.

    Args:
        name: of the client.
        section: names its files, which results must not replace.
        path: to which they are relative.
        output: the folder.

    Raises:
        ParameterError: says why.
    """
    names = (f"{name}.csv", f"{name}-cost.json")
    files = section.features, section.new_features, section.labels
    inputs = [beside(path, file) for file in files if file]
    require_place(output, names, inputs)


def load_data(
    name: str,
    section: DataSection,
    path: Path,
    params: Parameters,
    columns: tuple[str, ...] | None = None,
    schema: Schema = NO_SCHEMA,
) -> tuple[LoadedClient, ClientData]:
    """Read a client's data.

    Where nobody has agreed on columns, those of a table are in the order of their names, and
    clients with columns of other names cannot take part.

    Args:
        name: of the client.
        section: names its files and what is in them, as a section [client] does.
        path: to which they are relative, and which errors name.
        params: the agreement.
        columns: names of the features, if they are agreed on.
        schema: what the columns hold, if that is agreed on.

    Raises:
        DataError: a file is missing or cannot be used, or has a label that is not a class.
    """
    like, missing = agreed_on(columns, schema), params.missing != "refuse"
    loaded = load_client(name, section, path, like, "client", missing=missing)
    if like is None and section.feature_columns is None:
        loaded = loaded.by_name()
    values, labelled = labels_of_classes(loaded.labels, name, params.classes)
    if labelled.any():
        labels.class_values([(values, labelled)], params.classes, [name], [loaded.row_names])
    vectors = own_vectors(loaded.features, name, columns, missing=missing)
    names = (like is None and loaded.columns) or ()
    return loaded, ClientData(vectors, labels.encode(values, labelled, params.classes), names)


def own_vectors(
    features: NDArray[Any],
    name: str,
    columns: tuple[str, ...] | None,
    *,
    missing: bool = False,
) -> NDArray[np.floating[Any]]:
    """Return a client's features as its role takes them.

    Args:
        features: as read, (n_j, d).
        name: of the client.
        columns: names of the features, if they are agreed on.
        missing: whether values may be NaN.

    Raises:
        DataError: they are no matrix, not finite, or not as many as are agreed on.
    """
    try:
        vectors = checked_vectors(features, missing=missing)
    except DataError as error:
        raise DataError(f"client {name!r}: {error}") from None
    if columns is not None and vectors.shape[1] != len(columns):
        raise DataError(
            f"client {name!r} has {vectors.shape[1]} features, and {len(columns)} columns are "
            "agreed on"
        )
    return vectors


def labels_of_classes(
    given: list[Any] | NDArray[Any], name: str, classes: Sequence[Any]
) -> tuple[list[Any], NDArray[np.bool_]]:
    """Return a client's labels and which there are, numbers where classes are, any of no class.

    Raises:
        DataError: an entry cannot be a label.
    """
    if not any(isinstance(c, str) for c in classes):
        (given,) = values_of_texts([given], classes)
    return labels.marked_values(given, name)


def client_binding(agreement: Agreement, data: ClientData) -> bytes:
    """Return what a log of a client is bound to: the agreement and its data."""
    return domain_tag(
        "client binding",
        agreement.encode(),
        str(data.vectors.dtype),
        *data.vectors.shape,
        np.ascontiguousarray(data.vectors).tobytes(),
        data.class_ids.tobytes(),
        *data.columns,
    )


def load_server_file(path: Path) -> ServerFile:
    """Read the server's file; it names no data.

    Raises:
        ParameterError: the file cannot be read, a field is unknown, missing or of a wrong type, a
            certificate cannot be used, or its folder cannot take what it writes.
    """
    given = read_party(path)
    if "client" in given:
        raise ParameterError(f"{path} is a client's file; start it with xclp join")
    content = read_section(ServerContent, given, path)
    address = parse_address(content.server.listen, f"{path}: listen")
    folder = content.server.output
    output = None if folder is None else beside(path, folder)
    if output is not None:
        require_place(output, [SERVER_RECORD], [path])
    party = party_of(content, path, SERVER, address)
    return ServerFile(**party, **_session(content), output=output)


def client_content(path: Path) -> ClientContent:
    """Read what a client's file says, and none of the files that it names.

    Raises:
        ParameterError: as from `load_server_file`; or the client is none of those named.
    """
    given = read_party(path)
    if "server" in given:
        raise ParameterError(f"{path} is the server's file; start it with xclp serve")
    content = read_section(ClientContent, given, path)
    own = content.client
    require_client(own.name, content.clients, path)
    return content


def load_client_file(path: Path) -> ClientFile:
    """Read a client's file and certificates, and not its data yet.

    Raises:
        ParameterError: as from `client_content`, or a certificate cannot be used.
    """
    content = client_content(path)
    own = content.client
    address = parse_address(own.server, f"{path}: server")
    return ClientFile(
        **party_of(content, path, own.name, address),
        **_session(content),
        name=own.name,
        output=beside(path, own.output),
        section=own,
    )


def _session(content: _Content) -> dict[str, Any]:
    """Return what files of sessions have beside `PartyFile`."""
    return {
        "columns": content.columns,
        "schema": content.schema,
        "settings": content.parameters,
    }
