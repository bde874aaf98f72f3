"""Whoever connects and does not say who it is: silent, slow, many at a time."""

import socket
import time
from contextlib import ExitStack, suppress

import pytest
from durable_runs import Blob
from network_runs import SERVER, Federation, authority

from xclp_crypto.transport.network import gate


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return authority(tmp_path_factory.mktemp("gate") / "certs", ["a", "b"])


async def client(io, rng):
    await io.send(SERVER, Blob(b"x"))
    return "done"


async def server(io, rng):
    await io.gather(Blob, ("a", "b"), n=1)
    return "done"


@pytest.fixture
def federation(tls):
    """A server that serves until both clients have come and gone."""
    running = Federation({"a": client, "b": client, SERVER: server}, tls).serve()
    yield running
    for name in "ab":
        if name not in running.futures:
            running.join(name)
    assert running.results() == dict.fromkeys(("a", "b", SERVER), "done")


@pytest.fixture
def opened(federation):
    """Opens connections that say nothing, from an address."""
    with ExitStack() as stack:

        def connect(source="127.0.0.1"):
            plain = socket.create_connection(
                ("127.0.0.1", federation.port), source_address=(source, 0)
            )
            return stack.enter_context(plain)

        yield connect


def ended(sock, seconds=10.0):
    """Whether the other end closes a connection within so many seconds."""
    sock.settimeout(seconds)
    with suppress(TimeoutError):
        try:
            return sock.recv(1) == b""
        except ConnectionResetError:
            return True
    return False


def test_attack_8_connections_that_say_nothing_go_when_there_are_too_many_and_clients_come_in(
    federation, opened, monkeypatch, caplog
):
    monkeypatch.setattr(gate, "MOST", 8)
    monkeypatch.setattr(gate, "MOST_OF_ADDRESS", 4)
    silent = [opened() for _ in range(40)]
    assert all(map(ended, silent[:36]))
    others = [opened(f"127.0.0.{n}") for n in (2, 3, 4, 5)]
    assert not any(ended(s, 0.05) for s in (*silent[36:], *others))
    last = opened("127.0.0.6")  # the ninth: the address with most loses one
    assert ended(silent[36])
    assert not any(ended(s, 0.05) for s in (*others, last))
    assert federation.join("a").result() == "done"
    refused = [r for r in caplog.records if r.getMessage() == "connection refused"]
    assert 0 < len(refused) <= 10
    assert refused[-1].reason == "too many have not said who they are"


def test_who_says_nothing_or_half_or_not_who_it_is_goes_after_seconds(
    federation, opened, tls, monkeypatch, caplog
):
    for module in ("gate", "server"):
        monkeypatch.setattr(f"xclp_crypto.transport.network.{module}.HANDSHAKE_SECONDS", 0.3)
    began = []
    shake = gate.Gate._shake_hands

    def counted(self, connection):
        began.append(connection)
        return shake(self, connection)

    monkeypatch.setattr(gate.Gate, "_shake_hands", counted)
    silent, half = opened(), opened()
    half.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a handshake
    assert ended(silent)
    assert ended(half)
    assert len(began) == 1, "TLS begins with the first byte"
    nobody = tls("a").wrap_socket(opened(), server_hostname="localhost")
    assert nobody.recv(100)  # READY; and then nothing is said
    assert ended(nobody)
    nobody.close()
    monkeypatch.undo()


def test_a_handshake_that_fails_is_logged_and_many_are_counted(federation, opened, caplog):
    for _ in range(15):
        with opened() as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert ended(sock) or True
    end = time.monotonic() + 10
    while len(caplog.records) < 10 and time.monotonic() < end:
        time.sleep(0.01)
    lines = [r for r in caplog.records if r.getMessage() == "TLS handshake failed"]
    assert len(lines) == 10
    assert {line.reason for line in lines} <= {"http request", "wrong version number"}
