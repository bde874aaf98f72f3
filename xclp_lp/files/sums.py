"""The file of a party of a sum: that of a session, of which nothing but who and where is read.

So one file serves ``xclp serve`` or ``join`` and ``xclp sum``; for sums alone it needs no
[parameters], and a client's section [client] its name and server only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.setup import SERVER
from xclp_lp.files.network import ClientContent, ClientSection, ServerContent, ServerSection
from xclp_lp.files.parties import (
    PartyContent,
    PartyFile,
    parse_address,
    party_of,
    read_party,
    require_client,
)
from xclp_lp.files.toml import keys_of, read_section
from xclp_lp.validation import Text, Validated


@dataclass(frozen=True)
class _Server(Validated):
    listen: Text


@dataclass(frozen=True)
class _Client(Validated):
    name: Text
    server: Text


@dataclass(frozen=True)
class _ServerContent(PartyContent):
    server: _Server = field(kw_only=True)


@dataclass(frozen=True)
class _ClientContent(PartyContent):
    client: _Client = field(kw_only=True)


@dataclass(frozen=True)
class SumClientFile(PartyFile):
    """The file of a client; `name` is the client's."""

    name: str


def load_sum_server(path: Path) -> PartyFile:
    """Read the server's file.

    Raises:
        ParameterError: the file cannot be read, a field is unknown, missing or of a wrong type, or
            a certificate cannot be used.
    """
    given = read_party(path)
    if "client" in given:
        raise ParameterError(f"{path} is a client's file; give it to --join")
    relevant = _without(given, _ServerContent, ServerContent)
    relevant["server"] = _without(given.get("server", {}), _Server, ServerSection)
    content = read_section(_ServerContent, relevant, path)
    address = parse_address(content.server.listen, f"{path}: listen")
    return PartyFile(**party_of(content, path, SERVER, address))


def load_sum_client(path: Path) -> SumClientFile:
    """Read a client's file.

    Raises:
        ParameterError: as from `load_sum_server`; or the client is none of those named.
    """
    given = read_party(path)
    if "server" in given:
        raise ParameterError(f"{path} is the server's file; give it to --serve")
    relevant = _without(given, _ClientContent, ClientContent)
    relevant["client"] = _without(given.get("client", {}), _Client, ClientSection)
    content = read_section(_ClientContent, relevant, path)
    name = content.client.name
    require_client(name, content.clients, path)
    address = parse_address(content.client.server, f"{path}: server")
    return SumClientFile(**party_of(content, path, name, address), name=name)


def _without(given: Any, kind: type[Any], of_sessions: type[Any]) -> Any:
    """Leave out the keys of a section that only sessions have."""
    if not isinstance(given, Mapping):
        return given
    ignored = set(keys_of(of_sessions)) - set(keys_of(kind))
    return {key: value for key, value in given.items() if key not in ignored}
