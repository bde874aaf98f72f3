"""A client whose frames are false is named, whatever number is; nobody else is, or leaves."""

import sys
from pathlib import Path
from types import MappingProxyType

import network_runs as runs
import protocol_runs
import pytest
from durable_runs import KEY, seedless

sys.path.insert(0, str(Path(__file__).parent))
from deviate import LIES, deviating, lying
from network_runs import SERVER

from xclp_crypto.errors import FaultyPeerOrServer
from xclp_crypto.testing import blamed
from xclp_crypto.transport.failures import Code
from xclp_crypto.transport.log import Log, NoLog
from xclp_crypto.transport.network import client as client_module
from xclp_crypto.transport.network.client import ClientParty
from xclp_crypto.transport.network.frames import Ack, Data, Resume
from xclp_crypto.transport.network.limits import Limits
from xclp_crypto.transport.replay import DurableRole

CLIENTS = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return runs.authority(tmp_path_factory.mktemp("tls") / "certs", CLIENTS)


SUM = protocol_runs.secure_sum({c: [1, 2, 3] for c in CLIENTS}, fraction_bits=0)
LIMITS = Limits(join=20, grace=6, deadline=20)


def run_with(tls, monkeypatch, *lies, logs=MappingProxyType({})):
    """Run a sum in which d sends these frames first; return results, and who knows why it left.

    Those with a log were restarted with it.
    """

    class Liar(ClientParty):
        async def write_to(self, connection, peers):
            if self.me == "d":
                for lie in lies:
                    await connection.send(lie)
            await super().write_to(connection, peers)

    monkeypatch.setattr(client_module, "ClientParty", Liar)
    federation = runs.Federation(
        seedless(SUM),
        tls,
        limits=LIMITS,
        log=lambda name: Log.from_bytes(logs[name], KEY) if name in logs else NoLog(),
    ).serve()
    for name in CLIENTS:
        federation.join(name)
    found = federation.results()
    return found, {name: role.reasons for name, role in federation.durable.items()}


def test_attack_4_damaged_shares_for_two_others_stop_the_session_for_all(tls):
    roles = seedless(lambda: SUM() | {"d": lying(SUM()["d"], {1, 2}, LIES["a byte too many"])})
    with deviating():
        found = runs.run(roles, tls, limits=LIMITS)
    for party in ("a", "b", "c", SERVER):
        assert "d" in blamed(found[party]), found


def newest_log(name):
    """That of a party which was killed as soon as its role waited, in its log's bytes."""
    log = Log.from_bytes(b"", KEY)
    peers = [peer for peer in (*CLIENTS, SERVER) if peer != name]
    role = DurableRole(name, seedless(SUM)[name], log, peers=peers)
    role.run()
    return log.to_bytes()


@pytest.mark.parametrize(("restarted", "victim"), [
    ((SERVER,), "a"),
    ((SERVER, "a"), "a"),
    ((SERVER,), SERVER),
], ids=str)  # fmt: skip
def test_attack_4_counting_messages_that_were_never_sent_to_a_restarted_server_stops_all(
    tls, monkeypatch, restarted, victim
):
    """It does not know what it handed on before, and who has the newest log blames no log alone."""
    logs = {name: newest_log(name) for name in restarted}
    found, _ = run_with(tls, monkeypatch, Ack(victim, "d", 1_000_000), logs=logs)
    for party in ("a", "b", "c", SERVER):
        assert "d" in blamed(found[party]), found
    if victim == "a":
        assert found["a"].parties == ("d",)
        assert found["b"].parties == found["c"].parties == found[SERVER].parties == ("d", "a")


@pytest.mark.parametrize(("lie", "restarted"), [
    (Data("d", "a", 0, (1 << 32) - 1, 4, 0, b"four"), ()),
    (Data("d", SERVER, 0, (1 << 32) - 1, 4, 0, b"four"), ()),
    (Data("d", "a", 0, 1, 1 << 40, 0, b"four"), ()),
    (Data("d", "a", 0, 1, 3, 0, b"four"), ()),
    (Data("d", "a", 0, 1, 3, (1 << 64) - 1, b"four"), ()),
    (Ack(SERVER, "d", 1_000_000), ()),
    (Ack("a", "d", 1_000_000), ()),
    (Resume("b", "d", (1 << 64) - 1), ("b",)),
    (Ack("a", "d", 1_000_000), ("a",)),
    (Resume("a", "d", 0), ()),
], ids=str)  # fmt: skip
def test_attacks_4_and_5_headers_that_cannot_be_leave_their_sender_out(
    tls, monkeypatch, lie, restarted
):
    """Also what a restarted client could take for a word that its log is too old."""
    logs = {name: newest_log(name) for name in restarted}
    found, reasons = run_with(tls, monkeypatch, lie, logs=logs)
    assert found[SERVER].total.tolist() == [3, 6, 9]
    assert found[SERVER].record.dropouts == {"d": "setup"}
    assert [found[c] for c in "abc"] == [("a", "b", "c")] * 3
    for party in ("a", "b", "c", SERVER):
        assert reasons[party]["d"].code is Code.FAULTY, reasons
    assert type(found["d"]) is FaultyPeerOrServer
