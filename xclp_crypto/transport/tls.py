"""TLS between the programs of a federation: both sides show certificates of one authority.

The common name of a client's certificate is the client's name; the server's certificate carries
the host names under which clients reach it, as alternative names: a common name is not a host. Each
says in its extended key usage for which side it is, so that no client passes as the server where an
authority gives certificates to both (RFC 5280, section 4.2.1.12).

`make_authority` makes such certificates for tests and small federations, and identity keys beside
them; larger ones have an authority of their own.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import ipaddress
import json
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from xclp_crypto.errors import (
    AddressInUse,
    CertificateRefused,
    NetworkError,
    ParameterError,
    StorageError,
    Unreachable,
    VersionMismatch,
    WrongServer,
)
from xclp_crypto.primitives.identity import IdentityKey
from xclp_crypto.protocols.setup import SERVER
from xclp_crypto.rng import SystemRng
from xclp_crypto.whole_files import whole_files

NAME_BYTES = 64
"""Of a name in a certificate, at most (RFC 5280)."""
HOST_BYTES = 253
"""Of the name of a host, at most (RFC 1035)."""
_HOST_NAME = re.compile(r"(\*\.)?(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*")
_SHA256 = "sha256:"
_INVALID_PURPOSE = 26  # X509_V_ERR_INVALID_PURPOSE
_NOT_PINNED = 50  # X509_V_ERR_APPLICATION_VERIFICATION
_HOST_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


class _Context(ssl.SSLContext):
    """The context of one side, and which certificates it pins.

    Attributes:
        pins: by name of a party, the fingerprint of its certificate.
    """

    pins: Mapping[str, str] = MappingProxyType({})


class _Checked(ssl.SSLObject):
    """A connection whose other end must show a certificate for its side, and the pinned one."""

    def do_handshake(self) -> None:
        super().do_handshake()
        found = self.getpeercert(binary_form=True)
        if found is None or not _is_for(
            x509.load_der_x509_certificate(found), server=not self.server_side
        ):
            raise _refusal(_INVALID_PURPOSE, "unsuitable certificate purpose")
        pins = self.context.pins if isinstance(self.context, _Context) else {}
        name = common_name(self.getpeercert() or {}) if self.server_side else SERVER
        if pins.get(name, given := fingerprint(found)) != given:
            raise _refusal(_NOT_PINNED, f"that of {name} is {given}, and another one is pinned")


def _refusal(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, message)
    error.verify_code, error.verify_message = code, message
    return error


def fingerprint(certificate: bytes) -> str:
    """Return what a certificate (DER) is pinned by: ``sha256:`` and 64 hexadecimal digits."""
    return f"{_SHA256}{hashlib.sha256(certificate).hexdigest()}"


def fingerprint_of(certificate: Path) -> str:
    """Return the fingerprint of the first certificate of a file, PEM."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    return fingerprint(found.public_bytes(Encoding.DER))


def checked_fingerprint(text: str) -> str:
    """Return a fingerprint as `fingerprint` writes it; OpenSSL has colons and capitals.

    Raises:
        ParameterError: it is none.
    """
    plain = text.strip().lower()
    digits = plain.removeprefix(_SHA256).replace(":", "")
    if not plain.startswith(_SHA256) or not re.fullmatch("[0-9a-f]{64}", digits):
        raise ParameterError(
            f"a certificate is pinned by {_SHA256} and 64 hexadecimal digits, got {text!r}"
        )
    return _SHA256 + digits


def _is_for(certificate: x509.Certificate, *, server: bool) -> bool:
    """Return whether a certificate says that it is for this side; OpenSSL takes silence for it."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except (x509.ExtensionNotFound, ValueError):
        return False
    side = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    return side in usage.value


def tls_context(
    authority: Path,
    certificate: Path,
    key: Path,
    *,
    server: bool,
    pins: Mapping[str, str] | None = None,
) -> ssl.SSLContext:
    """Make the context of one side: TLS 1.3, and both sides must show a certificate.

    Args:
        authority: certificates of the authorities that are trusted, PEM.
        certificate: this side's certificate, PEM.
        key: its private key, PEM, without a passphrase.
        server: which side this is.
        pins: by common name of a client, and by ``server``, the `fingerprint` that its certificate
            must have; others need none.

    Raises:
        ParameterError: a file is missing, is no PEM, or the key is not that of the certificate.
    """
    context = _Context(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.hostname_checks_common_name = False
    context.sslobject_class = _Checked
    context.pins = dict(pins or {})
    for file in (authority, certificate, key):
        try:
            file.read_bytes()
        except OSError as error:
            raise ParameterError(f"{file} cannot be read: {error.strerror}") from None
    try:
        context.load_verify_locations(cafile=authority)
    except ssl.SSLError:
        raise ParameterError(f"{authority} holds no certificate in PEM") from None
    try:
        # Without a password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            raise ParameterError(f"{key} is not the key of {certificate}") from None
        raise ParameterError(
            f"{certificate} and {key} must be a certificate and its private key in PEM, the key "
            "without a passphrase"
        ) from None
    return context


def require_certificate_of(certificate: Path, client: str) -> None:
    """Refuse a client's certificate that no server would take for this client's.

    Args:
        certificate: PEM, as `tls_context` has taken it.
        client: its name.

    Raises:
        ParameterError: it is another's, not for a client, or not valid now.
    """
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = [str(n.value) for n in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [client]:
        raise ParameterError(
            f"{certificate} is the certificate of {' and '.join(map(repr, names)) or 'nobody'}, "
            f"and this client is {client!r}; its common name is the client's name"
        )
    if not _is_for(found, server=False):
        raise ParameterError(
            f"{certificate} is not for a client: its extended key usage must name clientAuth; have "
            "one made that does"
        )
    begin, end = found.not_valid_before_utc, found.not_valid_after_utc
    if not begin <= datetime.datetime.now(datetime.UTC) <= end:
        raise ParameterError(
            f"{certificate} is valid from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, and not today; check "
            "the clock, or have a new one made"
        )


def is_trusted(certificate: Path, context: ssl.SSLContext) -> bool:
    """Return whether certificates lead from one party's to an authority that a context trusts.

    Args:
        certificate: PEM, with those between after it, if there are any.
        context: as from `tls_context`.
    """
    current, *between = x509.load_pem_x509_certificates(certificate.read_bytes())
    authorities = context.get_ca_certs(binary_form=True)
    while not any(_has_issued(authority, current) for authority in authorities):
        issuers = [c for c in between if _has_issued(c.public_bytes(Encoding.DER), current)]
        if not issuers:
            return False
        current = issuers[0]
        between.remove(current)
    return True


def _has_issued(issuer: bytes, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(x509.load_der_x509_certificate(issuer))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def reason_of(error: Exception) -> str:
    """Return what OpenSSL says, without file names and numbers of its lines."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error) or type(error).__name__


def connection_error(error: Exception, where: str) -> NetworkError:
    """Turn an error of asyncio with the other end, ``host:port``, into one that says what to do."""
    host = where.rpartition(":")[0]
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _HOST_MISMATCH:
            return WrongServer(
                f"whoever answers at {where} has no certificate for {host!r}; check the address, "
                "or make the server's certificate for this name"
            )
        check = "the authority's file and the date"
        if error.verify_code == _NOT_PINNED:
            check = "by another way whether it has a new one, and pin that"
        return CertificateRefused(
            f"the certificate of {where} is refused: {reason_of(error)}; check {check}"
        )
    if isinstance(error, ssl.SSLError):
        if "ALERT" in (error.reason or ""):
            return CertificateRefused(
                f"{where} refuses this program's certificate: {reason_of(error)}; it must come "
                "from the server's authority and be valid today"
            )
        return VersionMismatch(f"{where} does not speak TLS 1.3: {reason_of(error)}")
    if isinstance(error, socket.gaierror):
        return Unreachable(f"there is no address for {host!r}: {error.strerror}")
    if isinstance(error, TimeoutError):
        return Unreachable(f"{where} does not answer")
    return Unreachable(f"{where} cannot be reached: {getattr(error, 'strerror', None) or error}")


def listen_error(error: OSError, where: str) -> AddressInUse:
    """Turn what asyncio raises for an address to listen on into an error that says it."""
    reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
    return AddressInUse(
        f"cannot listen on {where}: {reason}; choose another port, or end the program that uses it"
    )


def common_name(certificate: dict[str, Any]) -> str:
    """Return the name of a peer from what `ssl` says of its certificate; empty if it has none."""
    for part in certificate.get("subject", ()):
        for kind, value in part:
            if kind == "commonName":
                return str(value)
    return ""


def make_authority(
    folder: Path, clients: Sequence[str], hosts: Sequence[str], *, days: int = 365
) -> list[Path]:
    """Make an authority, and certificates and identity keys of a server and its clients.

    Writes ``authority.pem``; ``NAME.pem``, ``NAME.key`` and ``NAME.identity`` (an `IdentityKey` as
    64 hexadecimal digits) for the server and each client; and ``identities.toml``, with the public
    `Identity` of each. The authority's own key is thrown away, so nobody can make more.

    Args:
        folder: where to write; made if it is not there.
        clients: their names.
        hosts: names and addresses under which clients reach the server.
        days: how long they are valid.

    Returns:
        The files.

    Raises:
        ParameterError: a name or a host that cannot be one, or files that are there already.
        StorageError: a file cannot be written.
    """
    for name in clients:
        if not name.isprintable() or "/" in name or not 0 < len(name.encode()) <= NAME_BYTES:
            raise ParameterError(
                f"{name!r} cannot be the name in a certificate and of a file: that has no '/' and "
                f"at most {NAME_BYTES} bytes in UTF-8"
            )
    if len(set(clients)) < len(clients) or {SERVER, "authority"} & set(clients):
        raise ParameterError("clients have different names, and none is 'server' or 'authority'")
    if not hosts or days < 1:
        raise ParameterError("give at least one host and one day")
    names = [_host(host) for host in hosts]
    issuer = _Issuer(days)
    files = {"authority.pem": issuer.own_certificate()}
    identities = {}
    for name in (SERVER, *clients):
        identity = IdentityKey.generate(SystemRng())
        identities[name] = identity.public.to_text()
        files[f"{name}.identity"] = f"{identity.export_private().hex()}\n".encode()
        key = ec.generate_private_key(ec.SECP256R1())
        files[f"{name}.pem"] = issuer.certificate(name, key, names if name == SERVER else ())
        files[f"{name}.key"] = key.private_bytes(
            Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    # Names are printable, so the strings of JSON are strings of TOML.
    files["identities.toml"] = "".join(
        f"{json.dumps(name, ensure_ascii=False)} = {json.dumps(text)}\n"
        for name, text in identities.items()
    ).encode()
    for name in files:
        if (folder / name).exists():
            raise ParameterError(f"{folder / name} is there already; choose another folder")
    try:
        with whole_files(folder) as scratch:
            for name, content in files.items():
                (scratch / name).write_bytes(content)
                (scratch / name).chmod(0o600 if name.endswith((".key", ".identity")) else 0o644)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror}") from None
    return [folder / name for name in files]


class _Issuer:
    """Signs certificates that are valid for so many days, with a key that is nowhere else."""

    def __init__(self, days: int) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("xclp federation")
        self._start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
        self._end = self._start + datetime.timedelta(days=days)

    def own_certificate(self) -> bytes:
        """Return the certificate of the authority, PEM."""
        builder = self._builder(self._name, self._key.public_key(), sign=True)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        return self._signed(builder)

    def certificate(
        self, name: str, key: ec.EllipticCurvePrivateKey, hosts: Sequence[x509.GeneralName]
    ) -> bytes:
        """Return a certificate, PEM: of a server with these hosts, or without any of a client."""
        builder = self._builder(_named(name), key.public_key(), sign=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH
        if hosts:
            purpose = ExtendedKeyUsageOID.SERVER_AUTH
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), False)
        return self._signed(builder.add_extension(x509.ExtendedKeyUsage([purpose]), False))

    def _builder(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, sign: bool
    ) -> x509.CertificateBuilder:
        """Begin a certificate of a key that may sign certificates, or else messages."""
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        usage = x509.KeyUsage(
            digital_signature=not sign,
            key_cert_sign=sign,
            crl_sign=sign,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._start)
            .not_valid_after(self._end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
            .add_extension(issuer, False)
            .add_extension(usage, True)
        )

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(name: str) -> x509.GeneralName:
    """Return a host as a certificate has it: an address, or a name in ASCII.

    Raises:
        ParameterError: it is neither; a URL or a port may be in it.
    """
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    try:
        return x509.IPAddress(ipaddress.ip_address(bare))
    except ValueError:
        pass
    try:
        ascii_name = name.encode("idna").decode()
    except UnicodeError:  # an empty or a long part among others
        ascii_name = ""
    if not _HOST_NAME.fullmatch(ascii_name) or len(ascii_name) > HOST_BYTES:
        raise ParameterError(
            f"{name!r} is neither the name of a host nor an address; give it alone, without scheme "
            "and port, as in labels.example.org, 192.0.2.1 or ::1"
        )
    return x509.DNSName(ascii_name)
