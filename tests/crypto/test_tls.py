"""Certificates and what is wrong with them; connections with them are in `test_network`."""

import datetime
import errno
import os
import shutil
import socket
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from xclp_crypto.errors import (
    CertificateRefused,
    ParameterError,
    StorageError,
    Unreachable,
    VersionMismatch,
    WrongServer,
)
from xclp_crypto.primitives.identity import Identity, IdentityKey
from xclp_crypto.transport import tls
from xclp_crypto.transport.tls import (
    checked_fingerprint,
    common_name,
    connection_error,
    fingerprint_of,
    is_trusted,
    listen_error,
    make_authority,
    reason_of,
    require_certificate_of,
    tls_context,
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls") / "certificates"
    make_authority(folder, ["a", "b"], ["localhost", "127.0.0.1"], days=30)
    return folder


@pytest.fixture
def files(certificates, tmp_path):
    """A client's files, which a test may damage."""
    names = ("authority.pem", "a.pem", "a.key")
    for name in names:
        shutil.copy(certificates / name, tmp_path)
    return [tmp_path / name for name in names]


# Connections in memory


def handshake(server, client, host):
    """Let two contexts meet in memory; return what failed, or None."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    ]
    for _ in range(4):
        for end in tuple(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return error
    assert not ends
    return None


def certified(folder, issuer, name, *extensions):
    """Write the key and the certificate of an authority that looks at the name only."""
    key = tls.ec.generate_private_key(tls.ec.SECP256R1())
    builder = issuer._builder(tls._named(name), key.public_key(), sign=False)
    for extension in extensions:
        builder = builder.add_extension(extension, False)
    files = folder / f"{name}{len(extensions)}.pem", folder / f"{name}{len(extensions)}.key"
    files[0].write_bytes(issuer._signed(builder))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def test_attack_12_a_certificate_without_its_usage_or_host_does_not_pass_as_the_servers(tmp_path):
    issuer, host, authority = tls._Issuer(30), "labels.example.org", tmp_path / "authority.pem"
    authority.write_bytes(issuer.own_certificate())
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    client = tls_context(authority, *certified(tmp_path, issuer, "a", usage), server=False)
    named = x509.SubjectAlternativeName([x509.DNSName(host)])
    for extensions, kind in ([], WrongServer), ([named], CertificateRefused):
        files = certified(tmp_path, issuer, host, *extensions)
        mallory = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        mallory.load_verify_locations(authority)
        mallory.load_cert_chain(*files)
        assert isinstance(connection_error(handshake(mallory, client, host), f"{host}:1"), kind)
        with pytest.raises(ParameterError, match="must name clientAuth"):
            require_certificate_of(files[0], host)


def test_the_server_takes_no_certificate_that_is_not_for_a_client(certificates):
    server, client = (
        [certificates / name for name in ("authority.pem", f"{party}.pem", f"{party}.key")]
        for party in ("server", "a")
    )
    here = tls_context(*server, server=True)
    there = tls_context(*client, server=False)
    assert handshake(here, there, "localhost") is None
    there.load_cert_chain(*server[1:])
    assert "purpose" in reason_of(handshake(here, there, "localhost"))


def test_a_certificate_that_is_not_the_pinned_one_is_refused_on_both_sides(certificates, tmp_path):
    """Of the same authority, with the same name, and of another key."""
    files = {
        party: [certificates / name for name in ("authority.pem", f"{party}.pem", f"{party}.key")]
        for party in ("server", "a", "b")
    }
    own = {party: fingerprint_of(of_party[1]) for party, of_party in files.items()}
    openssl = "sha256:" + ":".join(map("{:02X}".format, bytes.fromhex(own["a"][7:])))
    assert checked_fingerprint(openssl) == own["a"]
    for name, side, other, pins in (
        ("a", "server", "a", {"a": own["b"]}),
        ("server", "a", "server", {"server": own["b"]}),
    ):
        for pinned, refused in (pins, True), (own, False):
            here = tls_context(*files[side], server=side == "server", pins=pinned)
            there = tls_context(*files[other], server=other == "server")
            ends = (here, there) if side == "server" else (there, here)
            error = handshake(*ends, "localhost")
            assert (error is not None) == refused
            if error is not None:
                told = connection_error(error, "localhost:1")
                assert isinstance(told, CertificateRefused)
                assert f"that of {name} is {own[name]}, and another one is pinned" in str(told)


def test_a_client_that_comes_later_has_another_authority_beside_that_of_the_others(
    certificates, tmp_path
):
    make_authority(tmp_path / "late", ["c"], ["localhost"])
    both = tmp_path / "authority.pem"
    files = {"c": [tmp_path / "late" / name for name in ("c.pem", "c.key")]}
    files |= {p: [certificates / f"{p}.{s}" for s in ("pem", "key")] for p in ("server", "a")}
    before = tls_context(certificates / "authority.pem", *files["server"], server=True)
    both.write_bytes(b"".join((f.parent / "authority.pem").read_bytes() for f, _ in files.values()))
    here = tls_context(both, *files["server"], server=True)
    for client, known in (("a", True), ("c", False)):
        there = tls_context(both, *files[client], server=False)
        assert handshake(here, there, "localhost") is None
        assert (handshake(before, there, "localhost") is None) == known
        assert is_trusted(files[client][0], there)
        assert is_trusted(files[client][0], before) == known


# Files


def test_certificates_are_for_their_side_and_secrets_for_their_owner(certificates):
    def certificate(name):
        return x509.load_pem_x509_certificate((certificates / f"{name}.pem").read_bytes())

    authority = certificate("authority")
    for name, purpose in (("server", "serverAuth"), ("a", "clientAuth"), ("b", "clientAuth")):
        found = certificate(name)
        found.verify_directly_issued_by(authority)
        usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert [u._name for u in usage] == [purpose]
        assert (found.not_valid_after_utc - found.not_valid_before_utc).days == 30
        for secret in (f"{name}.key", f"{name}.identity"):
            assert stat.S_IMODE((certificates / secret).stat().st_mode) == 0o600
    hosts = certificate("server").extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert hosts.value.get_values_for_type(x509.DNSName) == ["localhost"]
    assert list(map(str, hosts.value.get_values_for_type(x509.IPAddress))) == ["127.0.0.1"]
    public = dict(
        line.split(" = ") for line in (certificates / "identities.toml").read_text().splitlines()
    )
    assert list(public) == ['"server"', '"a"', '"b"']
    key = IdentityKey(bytes.fromhex((certificates / "a.identity").read_text()))
    assert Identity.from_text(public['"a"'].strip('"')) == key.public


@pytest.mark.parametrize("name", ["", "x" * 65, "本" * 24, "a/b", "a\nb"])
def test_names_that_are_none_of_a_file_are_refused(tmp_path, name):
    with pytest.raises(ParameterError, match="cannot be the name in a certificate"):
        make_authority(tmp_path / "new", ["a", name], ["localhost"])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("clients", [["a", "a"], ["a", "server"], ["authority"]])
def test_names_that_collide_are_refused(tmp_path, clients):
    with pytest.raises(ParameterError, match="different names, and none is 'server'"):
        make_authority(tmp_path / "new", clients, ["localhost"])
    assert not (tmp_path / "new").exists()


HOSTS = {
    "localhost": "localhost",
    "_a-b.example": "_a-b.example",
    "*.example.org": "*.example.org",
    "bücher.example": "xn--bcher-kva.example",
    "::1": "::1",
    "[::1]": "::1",
    "192.0.2.1": "192.0.2.1",
}


def test_hosts_are_names_or_addresses():
    hosts = x509.SubjectAlternativeName([tls._host(host) for host in HOSTS])
    assert [str(host.value) for host in hosts] == list(HOSTS.values())


@pytest.mark.parametrize(
    "host",
    [
        *("", "localhost:7878", "[::1]:7", "https://x.example", "my host", "a..b", "-a.example"),
        *("x" * 64, ".".join(["x" * 60] * 5), "a\nb", "a@b", "[x]"),
    ],
)
def test_what_is_no_host_is_refused(tmp_path, host):
    with pytest.raises(ParameterError, match="is neither the name of a host nor an address"):
        make_authority(tmp_path / "new", ["a"], ["localhost", host])
    assert not (tmp_path / "new").exists()


def test_a_certificate_is_of_its_client_and_of_today(certificates, tmp_path, monkeypatch):
    require_certificate_of(certificates / "a.pem", "a")
    with pytest.raises(ParameterError, match=r"b\.pem is the certificate of 'b', and this client"):
        require_certificate_of(certificates / "b.pem", "a")

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz):
            return super().now(tz) + datetime.timedelta(days=60)

    monkeypatch.setattr(datetime, "datetime", Later)
    with pytest.raises(ParameterError, match=r"a\.pem is valid from .*, and not today"):
        require_certificate_of(certificates / "a.pem", "a")


@pytest.mark.parametrize(("hosts", "days"), [([], 1), (["localhost"], 0)])
def test_certificates_for_no_host_or_no_day_are_refused(tmp_path, hosts, days):
    with pytest.raises(ParameterError, match="at least one host and one day"):
        make_authority(tmp_path / "new", ["a"], hosts, days=days)


def test_nothing_is_overwritten(tmp_path):
    kept = tmp_path / "b.key"
    kept.write_text("precious")
    with pytest.raises(ParameterError, match=r"b\.key is there already; choose another folder"):
        make_authority(tmp_path, ["a", "b"], ["localhost"])
    assert kept.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [kept]


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written: Not a directory"):
        make_authority(tmp_path / "file" / "certificates", ["a"], ["localhost"])


# Contexts


def test_both_sides_must_show_a_certificate_over_tls_1_3(certificates):
    for party, server in (("server", True), ("a", False)):
        names = ("authority.pem", f"{party}.pem", f"{party}.key")
        context = tls_context(*(certificates / name for name in names), server=server)
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert context.check_hostname == (not server)


@pytest.mark.parametrize("number", range(3))
def test_a_file_that_is_missing_is_named(files, number):
    files[number].unlink()
    with pytest.raises(ParameterError, match=f"{files[number].name} cannot be read: No such file"):
        tls_context(*files, server=False)


def test_an_authority_that_is_no_certificate_is_refused(files):
    shutil.copy(files[2], files[0])
    with pytest.raises(ParameterError, match=r"authority\.pem holds no certificate in PEM"):
        tls_context(*files, server=False)


def test_the_key_of_another_is_refused(files, certificates):
    shutil.copy(certificates / "b.key", files[2])
    with pytest.raises(ParameterError, match=r"a\.key is not the key of .*a\.pem"):
        tls_context(*files, server=False)


@pytest.mark.parametrize("what", ["text", "encrypted"])
def test_a_key_that_is_none_or_has_a_passphrase_is_refused_without_asking_for_it(files, what):
    if what == "text":
        files[2].write_text("-----BEGIN nothing")
    else:
        key = serialization.load_pem_private_key(files[2].read_bytes(), None)
        encrypted = serialization.BestAvailableEncryption(b"passphrase")
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encrypted
        )
        files[2].write_bytes(pem)
    with pytest.raises(ParameterError, match="in PEM, the key without a passphrase"):
        tls_context(*files, server=False)


# What went wrong with a connection


def test_the_name_of_a_peer():
    subject = ((("countryName", "IS"),), (("commonName", "north"),))
    assert common_name({"subject": subject}) == "north"
    assert common_name({"subject": subject[:1]}) == ""
    assert common_name({}) == ""


def alert(reason):
    error = ssl.SSLError(1, f"[SSL: {reason}] a line of OpenSSL (_ssl.c:2580)")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
            CertificateRefused,
            "host:1 refuses this program's certificate: tlsv13 alert certificate required;",
        ),
        (alert("WRONG_VERSION_NUMBER"), VersionMismatch, "TLS 1.3: wrong version number"),
        (alert(None), VersionMismatch, "host:1 does not speak TLS 1.3: "),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            Unreachable,
            "there is no address for 'host': Name or service not known",
        ),
        (TimeoutError(), Unreachable, "host:1 does not answer"),
        (
            OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)),
            Unreachable,
            "host:1 cannot be reached: Connection refused",
        ),
        (EOFError("the other end"), Unreachable, "host:1 cannot be reached: the other end"),
    ],
)
def test_each_failure_says_what_to_do(error, kind, words):
    found = connection_error(error, "host:1")
    assert type(found) is kind
    assert words in str(found)


def test_reasons_have_no_lines_of_openssl():
    assert reason_of(alert("NO_SHARED_CIPHER")) == "no shared cipher"
    assert reason_of(EOFError()) == "EOFError"
    assert reason_of(OSError("gone")) == "gone"


def test_an_address_that_is_not_of_this_machine_is_said():
    error = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    assert "on host:1: Cannot assign requested address" in str(listen_error(error, "host:1"))
    error = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    assert "on host:1: it is in use; choose another" in str(listen_error(error, "host:1"))
