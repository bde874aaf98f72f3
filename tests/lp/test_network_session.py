"""Federations of real processes over TLS, some of which are killed."""

import os
import re
import signal
import socket
import time

import pytest
from network_processes import (
    CLASSES,
    LIMITS,
    SERVER,
    Death,
    Federation,
    random_kills,
    stop_in_a_wait,
)
from network_runs import Relay

from xclp_crypto.transport.tls import make_authority
from xclp_lp.dropouts import BEFORE_GRAPH
from xclp_lp.summary import NO_IDENTITIES


class Tap(Relay):
    """A relay that records what passes, in both directions."""

    def __init__(self, port):
        self.recorded = []
        super().__init__(port)

    def copy(self, source, sink, _):
        record = bytearray()
        self.recorded.append(record)
        try:
            while data := source.recv(1 << 16):
                record += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network") / "certs"
    make_authority(folder, [f"hospital-{i}" for i in range(4)], ["localhost"])
    return folder


def test_labels_are_those_of_the_simulation_and_nothing_travels_in_the_clear(
    tmp_path, certificates
):
    federation = Federation(tmp_path, certificates=certificates, hamming="rlwe")
    federation.serve()
    tap = Tap(federation.port)
    for name in federation.clients:
        federation.edit(name, f"localhost:{federation.port}", f"localhost:{tap.port}")
        federation.start(name)
    assert set(federation.finish().values()) == {0}, federation.output(SERVER)
    tap.close()
    assert {c: federation.labels(c) for c in federation.clients} == federation.simulated()
    for name, own in zip(federation.clients, federation.ys, strict=True):
        got = federation.labels(name)
        changed = sum(a is not None and a != b for a, b in zip(own, got, strict=True))
        line = f"of 2 labelled rows {changed} got another label"
        assert (line in federation.output(name)) == bool(changed)
    assert not any(federation.state(party).exists() for party in (SERVER, *federation.clients))
    # Both directions of four connections, with the bytes of the metered messages in them.
    traffic = b"".join(map(bytes, tap.recorded))
    assert len(tap.recorded) == 8
    assert len(traffic) > 20_000
    secrets = [x.tobytes()[:16] for x in federation.Xs]
    names = [*CLASSES, *federation.clients, "XCLP-NET", "hospital"]
    for text in [*secrets, *(name.encode() for name in names)]:
        assert text not in traffic
    steps = [e["step"] for e in federation.events("hospital-0") if e["event"] == "step"]
    assert [s for s in steps if s in ("hamming", "row sums")] == ["hamming", "row sums"]
    assert re.search(r"hamming …\n.*row sums …\n", federation.output(SERVER), re.DOTALL)
    events = "".join(federation.events_file(p).read_text() for p in (SERVER, *federation.clients))
    assert "barn owl" not in events


def test_one_killed_during_the_hamming_step_is_left_out(tmp_path, certificates):
    federation = Federation(tmp_path, certificates=certificates, hamming="rlwe", threshold=3)
    federation.edit(SERVER, "[server]", '[server]\noutput = "results"')
    federation.serve()
    for name in federation.clients:
        last = name == federation.clients[-1]
        federation.start(name, death=Death(3, "hamming") if last else None)
    assert federation.exit_code("hospital-3") == -9
    federation.wait_for(SERVER, "disconnected", client="hospital-3")
    federation.hurry(LIMITS["grace"])
    codes = federation.finish()
    assert list(codes.values()) == [0, 0, 0, 0, -9]
    steps = [e["step"] for e in federation.events("hospital-3") if e["event"] == "step"]
    assert steps[-1] == "hamming"
    present = federation.clients[:3]
    assert {c: federation.labels(c) for c in present} == federation.labels_of(present, present)
    assert "hospital-3" in federation.output(SERVER)
    # In which step the server misses it depends on what had left before.
    given_up = [e for e in federation.events(SERVER) if e["event"] == "given up"]
    assert given_up[0]["without"] == ["hospital-3"]
    assert given_up[0]["step"] in BEFORE_GRAPH
    for record in map(federation.record, (*present, SERVER)):
        (missing,) = record["dropouts"]
        assert (missing["client"], missing["reason"]) == ("hospital-3", "silent")
        assert missing["step"] in BEFORE_GRAPH
        assert record["warnings"][0] == NO_IDENTITIES
        assert record["warnings"][1].startswith("random_state fixes the projection")


@pytest.mark.parametrize("hamming", ["masked", "rlwe"])
def test_one_killed_and_started_again_during_the_row_sums_gets_its_labels(
    tmp_path, certificates, hamming
):
    federation = Federation(tmp_path, certificates=certificates, hamming=hamming)
    federation.serve()
    for name in federation.clients:
        last = name == federation.clients[-1]
        federation.start(name, death=Death(3, "row sums") if last else None)
    assert federation.exit_code("hospital-3") == -9
    federation.start("hospital-3")
    assert set(federation.finish().values()) == {0}, federation.output("hospital-3")
    found = {c: federation.labels(c) for c in federation.clients}
    assert federation.explain(found) == 4


def test_a_server_that_is_killed_and_started_again_goes_on(tmp_path, certificates):
    federation = Federation(tmp_path, certificates=certificates, identities=True)
    federation.serve(death=Death(2, "row sums"))
    for name in federation.clients:
        federation.start(name)
    assert federation.exit_code(SERVER) == -9
    federation.serve()
    assert set(federation.finish().values()) == {0}, federation.output(SERVER)
    assert {c: federation.labels(c) for c in federation.clients} == federation.simulated()


def test_a_server_that_was_stopped_gives_nobody_up(tmp_path, certificates):
    """For longer than its own limits, and less long than those of the clients."""
    federation = Federation(tmp_path, certificates=certificates)
    for limit in ("grace", "deadline"):
        federation.edit(SERVER, f"{limit} = {LIMITS[limit]}", f"{limit} = 5.0")
    federation.serve(inside=[stop_in_a_wait])
    for name in federation.clients:
        federation.start(name)
    stopped = federation.wait_until_stopped(SERVER)
    time.sleep(6)
    os.kill(stopped, signal.SIGCONT)
    assert set(federation.finish().values()) == {0}, federation.output(SERVER)
    assert {c: federation.labels(c) for c in federation.clients} == federation.simulated()
    assert not {"dropout", "given up"} & {e["event"] for e in federation.events(SERVER)}


@pytest.mark.parametrize("seed", range(2))
def test_random_kills_and_restarts(tmp_path, certificates, seed):
    assert "have labels" in random_kills(tmp_path, certificates, seed)
