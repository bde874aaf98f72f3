"""What the programs of a federation read: one file of the server, and one of each client.

::

    clients = ["north", "south"]       # the same in all files, in this order
    columns = ["x0", "x1"]             # optional, the same in all: names of the features
    identities = "identities.toml"     # optional, the same in all: NAME = "xclp-ed25519:…" of each
    identity = "server.identity"       # with identities: this party's own key, 64 hex digits

    [parameters]                       # the same in all files; classes are needed
    classes = ["cat", "dog"]           # the others are those of a federation file
    k = 3

    [tls]                              # PEM files, relative to this file
    authority = "authority.pem"
    certificate = "server.pem"         # for a client, its common name is the client's name
    key = "server.key"

    [limits]                           # optional, each side for itself: join, grace, deadline
    grace = 60                         # (seconds), window and max_message (bytes)

    [server]                           # in the server's file
    listen = "0.0.0.0:7878"

    [client]                           # in a client's file
    name = "north"
    server = "labels.example.org:7878"
    output = "results"                 # a folder; by default "results", beside this file
    features = "north.csv"             # and all else that a section [clients.NAME] takes

The server's file names no data, and the server reads none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from ssl import SSLContext
from typing import Any

import numpy as np

from xclp_crypto.algebra.labels import label
from xclp_crypto.errors import DataError, DecodeError, ParameterError
from xclp_crypto.front import client_names
from xclp_crypto.params import Agreement
from xclp_crypto.primitives.identity import Identity, IdentityKey
from xclp_crypto.protocols.setup import SERVER, Identities
from xclp_crypto.transport.meter import Cost
from xclp_crypto.transport.network import Limits
from xclp_crypto.transport.tls import tls_context
from xclp_crypto.wording import did_you_mean
from xclp_lp import labels
from xclp_lp.files.clients import DATA_FIELDS, LoadedClient, load_client, require_file_names
from xclp_lp.files.results import require_place, write_result
from xclp_lp.files.tables import integers_if_all
from xclp_lp.files.toml import PARAMETERS, privacy_of, read_toml, require_known, section_of
from xclp_lp.lsh import checked_vectors, projection_seed
from xclp_lp.parameters import Parameters
from xclp_lp.propagation import Prediction
from xclp_lp.session import ClientData

COMMON_FIELDS = (
    "clients",
    "columns",
    "identities",
    "identity",
    "parameters",
    "tls",
    "limits",
)
TLS_FIELDS = ("authority", "certificate", "key")
OWN_PARAMETERS = ("reset_labelled", "relative_confidence")
"""What a client does with its own result; others need not do the same."""

NETWORK_PARAMETERS = tuple(p for p in PARAMETERS if p != "groups")


@dataclass(frozen=True)
class NetworkFile:
    """What the files of server and clients have in common.

    Attributes:
        path: the file.
        clients: names of all clients.
        columns: names of the features, if they are agreed on.
        params: parameters of the session.
        seed: of the projection, if it is fixed.
        tls: certificates.
        limits: how long is waited.
        address: where the server listens, or is reached: host and port.
        identities: this party's own identity key and those that it pins, if the files name any.
    """

    path: Path
    clients: tuple[str, ...]
    columns: tuple[str, ...] | None
    params: Parameters
    seed: bytes | None
    tls: SSLContext
    limits: Limits
    address: tuple[str, int]
    identities: Identities | None

    def agreement(self) -> Agreement:
        """Return what all programs compare before anything else."""
        seed = None if self.seed is None else hashlib.sha256(self.seed).digest()
        pinned = None
        if self.identities is not None:
            pinned = tuple(self.identities.of(p).to_text() for p in (*self.clients, SERVER))
        return Agreement(
            **self.params.agreement().fields,
            clients=self.clients,
            columns=self.columns,
            identities=pinned,
            random_state=seed,
        )


@dataclass(frozen=True)
class ClientFile(NetworkFile):
    """The file of a client.

    Attributes:
        name: of the client.
        output: folder for its results.
        section: what it says of its data, which is not read yet.
        own: what the client does with its result.
    """

    name: str
    output: Path
    section: Mapping[str, Any]
    own: Mapping[str, bool]

    def load(self) -> tuple[LoadedClient, ClientData]:
        """Read the client's data.

        Raises:
            DataError: a file is missing or cannot be used, or has a label that is no class.
        """
        return load_data(self.name, self.section, self.path, self.params, self.columns)

    def binding(self, data: ClientData) -> bytes:
        """Return what a log of this client is bound to: the agreement and its data."""
        return client_binding(self.agreement(), data)

    def require_writable(self) -> None:
        """Refuse a place for the results that cannot take them, before anything is computed.

        Raises:
            ParameterError: says why.
        """
        names = (f"{self.name}.csv", f"{self.name}-cost.json")
        inputs = [self.path.parent / str(self.section.get(f, "")) for f in ("features", "labels")]
        require_place(self.output, names, inputs)

    def write(
        self, loaded: LoadedClient, data: ClientData, prediction: Prediction, cost: Cost
    ) -> list[Path]:
        """Write ``NAME.csv`` and ``NAME-cost.json``; all or nothing.

        Raises:
            StorageError: they cannot be written.
        """
        return write_result(
            self.output, self.name, loaded, data, prediction, cost, self.params.classes, self.own
        )


def load_data(
    name: str,
    section: Mapping[str, Any],
    path: Path,
    params: Parameters,
    columns: tuple[str, ...] | None = None,
) -> tuple[LoadedClient, ClientData]:
    """Read a client's data.

    Args:
        name: of the client.
        section: names its files and what is in them, as a section [client] does.
        path: to which they are relative, and which errors name.
        params: the agreement.
        columns: names of the features, if they are agreed on.

    Raises:
        DataError: a file is missing or cannot be used, or has a label that is no class.
    """
    like = None if columns is None else ("the agreement", columns)
    loaded = load_client(name, section, path, like, "client")
    own = [loaded.labels]
    if any(isinstance(c, int) for c in params.classes):
        own = integers_if_all(own)
    values, labelled = labels.marked_values(own[0], name)
    if labelled.any():
        labels.class_values([(values, labelled)], params.classes, [name], [loaded.row_names])
    try:
        vectors = checked_vectors(loaded.features)
    except DataError as error:
        raise DataError(f"client {name!r}: {error}") from None
    if columns is not None and vectors.shape[1] != len(columns):
        raise DataError(
            f"client {name!r} has {vectors.shape[1]} features, and {len(columns)} columns are "
            "agreed on"
        )
    return loaded, ClientData(vectors, labels.encode(values, labelled, params.classes))


def client_binding(agreement: Agreement, data: ClientData) -> bytes:
    """Return what a log of a client is bound to: the agreement and its data."""
    return label(
        "client binding",
        agreement.encode(),
        str(data.vectors.dtype),
        *data.vectors.shape,
        np.ascontiguousarray(data.vectors).tobytes(),
        data.codes.tobytes(),
    )


def load_server_file(path: Path) -> NetworkFile:
    """Read the server's file; it names no data.

    Raises:
        ParameterError: the file cannot be read, a field is unknown, missing or of a wrong type, or
            a certificate cannot be used.
    """
    content = read_toml(path)
    if "client" in content:
        raise ParameterError(f"{path} is a client's file; start it with xclp join")
    require_known(content, (*COMMON_FIELDS, "server"), f"{path}")
    section = section_of(content, "server", f"{path}")
    require_known(section, ("listen",), f"{path}, [server]")
    common = _common(content, path, section, "listen")
    return NetworkFile(**common, identities=_identities(content, path, SERVER, common["clients"]))


def load_client_file(path: Path) -> ClientFile:
    """Read a client's file, and not its data yet.

    Raises:
        ParameterError: as from `load_server_file`; or the client is none of those named.
    """
    content = read_toml(path)
    if "server" in content:
        raise ParameterError(f"{path} is the server's file; start it with xclp serve")
    require_known(content, (*COMMON_FIELDS, "client"), f"{path}")
    section = section_of(content, "client", f"{path}")
    where = f"{path}, [client]"
    require_known(section, ("name", "server", "output", *DATA_FIELDS), where)
    common = _common(content, path, section, "server")
    name, output = _text(section, "name", where), section.get("output", "results")
    if name not in common["clients"]:
        raise ParameterError(
            f"{where}: name {name!r} is none of the clients {', '.join(common['clients'])}"
            f"{did_you_mean(name, common['clients'])}"
        )
    if not isinstance(output, str) or not output:
        raise ParameterError(f"{where}: output must be the name of a folder, got {output!r}")
    _text(section, "features", where)
    parameters = section_of(content, "parameters", f"{path}")
    return ClientFile(
        **common,
        identities=_identities(content, path, name, common["clients"]),
        name=name,
        output=path.parent / output,
        section={k: v for k, v in section.items() if k in DATA_FIELDS},
        own={k: bool(parameters.get(k)) for k in OWN_PARAMETERS},
    )


def _common(
    content: Mapping[str, Any],
    path: Path,
    section: Mapping[str, Any],
    address: str,
) -> dict[str, Any]:
    """Read what all files have in common; field `address` of `section` is the server's address."""
    server = address == "listen"
    names = content.get("clients")
    if names is None or not _is_names(names):
        raise ParameterError(f"{path}: clients must be a list of all clients' names, got {names!r}")
    clients = client_names(len(names), names)
    require_file_names(clients, path)
    columns = content.get("columns")
    if columns is not None and not _is_names(columns):
        raise ParameterError(f"{path}: columns must be a list of names, got {columns!r}")
    params, seed = parameters_of(section_of(dict(content), "parameters", f"{path}"), path)
    params.require_accountant()
    params.require_resolution(len(clients))
    return {
        "path": path,
        "clients": tuple(clients),
        "columns": None if columns is None else tuple(columns),
        "params": params,
        "seed": seed,
        "tls": _tls(section_of(dict(content), "tls", f"{path}"), path, server=server),
        "limits": _limits(section_of(dict(content), "limits", f"{path}"), path),
        "address": parse_address(
            _text(section, address, f"{path}, [{'server' if server else 'client'}]"),
            f"{path}: {address}",
        ),
    }


def _is_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)


def _text(section: Mapping[str, Any], field: str, where: str) -> str:
    value = section.get(field)
    if not isinstance(value, str) or not value:
        raise ParameterError(
            f"{where}: {field} is missing"
            if value is None
            else f"{where}: {field} must be text, got {value!r}"
        )
    return value


def parameters_of(section: dict[str, Any], path: Path) -> tuple[Parameters, bytes | None]:
    """Return the parameters that a section gives, and the seed of the projection if it is fixed.

    Raises:
        ParameterError: one is unknown, missing or of a wrong type; calls the file `path`.
    """
    where = f"{path}, [parameters]"
    require_known(section, NETWORK_PARAMETERS, where)
    if "classes" not in section:
        raise ParameterError(f"{where}: classes is missing; nobody sees the labels of all clients")
    given = {k: v for k, v in section.items() if k not in ("random_state", *OWN_PARAMETERS)}
    for name in OWN_PARAMETERS:
        if not isinstance(section.get(name, False), bool):
            raise ParameterError(f"{where}: {name} must be true or false, got {section[name]!r}")
    if "privacy" in given:
        given["privacy"] = privacy_of(given["privacy"], path)
    try:
        given["classes"] = labels.given_classes(given["classes"])
        return Parameters(**given), projection_seed(section.get("random_state"))
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None


def _tls(section: Mapping[str, Any], path: Path, *, server: bool) -> SSLContext:
    where = f"{path}, [tls]"
    require_known(dict(section), TLS_FIELDS, where)
    files = [path.parent / _text(section, field, where) for field in TLS_FIELDS]
    return tls_context(*files, server=server)


def _identities(
    content: Mapping[str, Any], path: Path, me: str, clients: Sequence[str]
) -> Identities | None:
    """Read the own identity key and those that are pinned, if the file names both.

    Raises:
        ParameterError: it names one of the two, or they cannot be used or do not belong together.
    """
    if "identities" not in content and "identity" not in content:
        return None
    for field, other in (("identities", "identity"), ("identity", "identities")):
        if field not in content:
            raise ParameterError(
                f"{path}: {other} needs {field} too; identities names the file of everybody's "
                "public identities, and identity that of the own key"
            )
    pins = path.parent / _text(content, "identities", f"{path}")
    key = path.parent / _text(content, "identity", f"{path}")
    pinned = {}
    for name, text in read_toml(pins).items():
        try:
            pinned[name] = Identity.from_text(text)
        except DecodeError as error:
            raise ParameterError(f"{pins}: {name}: {error}") from None
    try:
        seed = bytes.fromhex(key.read_text(encoding="utf-8"))
        found = Identities(IdentityKey(seed), pinned)
    except OSError as error:
        raise ParameterError(f"{key} cannot be read: {error.strerror}") from None
    except ValueError:
        raise ParameterError(f"{key} holds no identity key, which has 64 hex digits") from None
    try:
        found.bind(Agreement(), me, clients)
    except ParameterError as error:
        raise ParameterError(f"{pins} and {key}: {error}") from None
    return found


def _limits(section: Mapping[str, Any], path: Path) -> Limits:
    where = f"{path}, [limits]"
    require_known(dict(section), [f.name for f in fields(Limits)], where)
    try:
        return Limits(**section)
    except ParameterError as error:
        raise ParameterError(f"{where}: {error}") from None


def parse_address(text: str, where: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; an IPv6 address is in brackets.

    Raises:
        ParameterError: it is something else.
    """
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ParameterError(f"{where} must be HOST:PORT, got {text!r}")
    return bare, int(port)


def names_of(options: Sequence[str]) -> list[str]:
    """Split names that are separated by commas."""
    return [name.strip() for option in options for name in option.split(",") if name.strip()]
