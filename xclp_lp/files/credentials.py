"""What a party shows of itself, and pins of others: certificates and identities."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Annotated

from msgspec import Meta

from xclp_crypto.errors import DecodeError, ParameterError
from xclp_crypto.params import Agreement
from xclp_crypto.primitives.identity import Identity, IdentityKey
from xclp_crypto.protocols.setup import SERVER, Identities
from xclp_crypto.transport.tls import (
    checked_fingerprint,
    fingerprint_of,
    require_certificate_of,
    tls_context,
)
from xclp_crypto.wording import did_you_mean
from xclp_lp.files.private import require_private
from xclp_lp.files.toml import beside, read_toml
from xclp_lp.validation import Text, Validated

FileOrFalse = Annotated[str | bool | None, Meta(title="the name of a file, or false")]
WITH_IDENTITIES = (
    "those of the file that identities names; where the other party has identities = false, it "
    "should name that file and its own identity"
)
WITHOUT_IDENTITIES = (
    "none, by identities = false; where the others have some, write instead, before any [section], "
    'identities = "FOLDER/identities.toml" and identity = "FOLDER/NAME.identity", of the folder '
    "that xclp certs made"
)
"""What programs call identities, where one asks for others than the server."""


@dataclass(frozen=True)
class TlsSection(Validated):
    """PEM files."""

    authority: Text
    certificate: Text
    key: Text


def checked_pins(given: Mapping[str, str], clients: Collection[str], where: Path) -> dict[str, str]:
    """Return which certificates are pinned, by party.

    Args:
        given: the section [certificates].
        clients: names of all clients.
        where: the file, for errors.

    Raises:
        ParameterError: a party that there is not, or what is no fingerprint.
    """
    pins = {}
    for name, text in given.items():
        if name not in (*clients, SERVER):
            raise ParameterError(
                f"{where}, [certificates]: {name!r} is none of {', '.join((*clients, SERVER))}"
                f"{did_you_mean(name, (*clients, SERVER))}"
            )
        try:
            pins[name] = checked_fingerprint(text)
        except ParameterError as error:
            raise ParameterError(f"{where}, [certificates]: {name}: {error}") from None
    return pins


def tls_of(
    section: TlsSection,
    path: Path,
    me: str,
    mounted: Collection[Path] = (),
    pins: Mapping[str, str] | None = None,
) -> SSLContext:
    """Read a party's certificates.

    Args:
        section: names the files.
        path: to which they are relative.
        me: the party.
        mounted: see `require_private`.
        pins: from `checked_pins`.

    Raises:
        ParameterError: they cannot be used, are another client's, others may read the key, or the
            party's own is not the pinned one.
    """
    names = (section.authority, section.certificate, section.key)
    authority, certificate, key = (beside(path, name) for name in names)
    context = tls_context(authority, certificate, key, server=me == SERVER, pins=pins)
    require_private(key, mounted)
    if me != SERVER:
        require_certificate_of(certificate, me)
    if pins and pins.get(me, own := fingerprint_of(certificate)) != own:
        raise ParameterError(
            f"{path}, [certificates]: {certificate} is {own}, and another one is pinned for {me}"
        )
    return context


def pinned_texts(identities: Identities | None, clients: Sequence[str]) -> tuple[str, ...]:
    """Return what all programs compare of the identities of the clients and of the server.

    First comes what to do where another party has others, for whoever is told so.
    """
    if identities is None:
        return (WITHOUT_IDENTITIES,)
    texts = (identities.of(party).to_text() for party in (*clients, SERVER))
    return (WITH_IDENTITIES, *texts)


def read_identities(
    identities: str | bool | None,
    identity: str | None,
    path: Path,
    me: str,
    clients: Sequence[str],
    mounted: Collection[Path] = (),
) -> Identities | None:
    """Read the own identity key and those that are pinned; None where the file says ``false``.

    Args:
        identities: file of the public identities, or false.
        identity: file of the own key.
        path: to which they are relative.
        me: the party.
        clients: names of all clients.
        mounted: see `require_private`.

    Raises:
        ParameterError: the file does not say ``false`` and does not name both, they cannot be used
            or do not belong together, or others may read the own key.
    """
    if identities is False and identity is None:
        return None
    if identities is None and identity is None:
        raise ParameterError(
            f"{path}: identities is missing. Without identities a server that swaps keys reads "
            f"everything. xclp certs FOLDER --clients {','.join(clients)} makes them; then write, "
            f'before any [section], identities = "FOLDER/identities.toml" and identity = '
            f'"FOLDER/{me}.identity". To go without, and trust the server not to swap keys, all '
            "parties write identities = false"
        )
    if identities == "" or isinstance(identities, bool):
        given = " with identity" * (identities is False)
        raise ParameterError(
            f"{path}: identities must be the name of a file, or false without identity, got "
            f"{identities!r}{given}"
        )
    if identities is None or identity is None:
        given, other = ("identities", "identity")[:: 1 if identity is None else -1]
        raise ParameterError(
            f"{path}: {given} needs {other} too; identities names the file of everybody's public "
            "identities, and identity that of the own key"
        )
    pins, key = beside(path, identities), beside(path, identity)
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
    require_private(key, mounted)
    try:
        found.bind(Agreement(), me, clients)
    except ParameterError as error:
        raise ParameterError(f"{pins} and {key}: {error}") from None
    return found
