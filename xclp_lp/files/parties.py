"""What the files of all parties of a federation say: who takes part, keys, certificates, where."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Annotated, Any

from msgspec import Meta

from xclp_crypto.errors import ParameterError
from xclp_crypto.front import client_names
from xclp_crypto.protocols.setup import Identities
from xclp_crypto.transport.network import Limits
from xclp_crypto.wording import did_you_mean
from xclp_lp.files.clients import require_file_names
from xclp_lp.files.credentials import (
    FileOrFalse,
    TlsSection,
    checked_pins,
    read_identities,
    tls_of,
)
from xclp_lp.files.toml import beside, read_toml
from xclp_lp.validation import Text, Validated

LAST_PORT = 65535


@dataclass(frozen=True)
class PartyContent(Validated):
    """What all parties' files say alike."""

    clients: Annotated[tuple[str, ...], Meta(min_length=1, title="a list of all clients' names")]
    tls: TlsSection
    certificates: Mapping[str, str] = field(default_factory=dict)
    identities: FileOrFalse = None
    identity: Text | None = None
    mounted_secrets: Annotated[tuple[str, ...], Meta(title="a list of files")] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "clients", tuple(client_names(len(self.clients), self.clients)))


@dataclass(frozen=True)
class PartyFile:
    """What is read of the file of a party.

    Attributes:
        path: the file.
        clients: names of all clients.
        tls: certificates.
        limits: how long is waited.
        address: where the server listens, or is reached: host and port.
        identities: this party's own identity key and those that it pins; None where the file says
            that there are none.
        mounted: files with secrets that others may read.
    """

    path: Path
    clients: tuple[str, ...]
    tls: SSLContext
    limits: Limits
    address: tuple[str, int]
    identities: Identities | None
    mounted: tuple[Path, ...]


def read_party(path: Path) -> dict[str, Any]:
    """Read a party's file; raises `ParameterError` if that fails or it is a federation file."""
    given = read_toml(path)
    if isinstance(given.get("clients"), Mapping):
        raise ParameterError(
            f"{path} is a federation file, with the data of all clients: xclp plan checks it and "
            "xclp run runs it; a party of a federation has a file of its own, with [client] or "
            "[server]"
        )
    return given


def require_client(name: str, clients: Sequence[str], path: Path) -> None:
    """Refuse a client's file whose client is none of those in it; raises `ParameterError`."""
    if name not in clients:
        raise ParameterError(
            f"{path}, [client]: name {name!r} is none of the clients "
            f"{', '.join(clients)}{did_you_mean(name, clients)}"
        )


def party_of(
    content: PartyContent, path: Path, me: str, address: tuple[str, int]
) -> dict[str, Any]:
    """Return the fields of `PartyFile`; reads certificates and keys.

    Args:
        content: of the file.
        path: the file.
        me: the party.
        address: host and port.

    Raises:
        ParameterError: one of them cannot be used.
    """
    require_file_names(content.clients, path)
    mounted = [beside(path, file) for file in content.mounted_secrets]
    pins = checked_pins(content.certificates, content.clients, path)
    return {
        "path": path,
        "clients": content.clients,
        "mounted": tuple(mounted),
        "tls": tls_of(content.tls, path, me, mounted, pins),
        "limits": content.limits,
        "address": address,
        "identities": read_identities(
            content.identities, content.identity, path, me, content.clients, mounted
        ),
    }


def parse_address(text: str, where: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; an IPv6 address is in brackets.

    Raises:
        ParameterError: it is something else.
    """
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or not re.fullmatch(r"[0-9]+", port):
        raise ParameterError(f"{where} must be HOST:PORT, got {text!r}")
    if len(port) > 5 or int(port) > LAST_PORT:
        raise ParameterError(f"{where} must have a port in 1 … {LAST_PORT}, got {text!r}")
    return bare, int(port)


def names_of(options: Sequence[str]) -> list[str]:
    """Split names that are separated by commas."""
    return [name.strip() for option in options for name in option.split(",") if name.strip()]
