import asyncio
import socket
import ssl
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress

import network_runs as runs
import protocol_runs
import pytest
from durable_runs import KEY, Blob, accusing, seedless
from network_runs import CODEC, SERVER, Federation, Patient, Relay, Wire, hello, written

from xclp_crypto.errors import (
    AddressInUse,
    CertificateRefused,
    DataError,
    FaultyPeer,
    FaultyPeerOrServer,
    LogError,
    LogRolledBack,
    OtherParameters,
    ParameterError,
    ProtocolError,
    Stalled,
    TooFewParties,
    Unreachable,
    VersionMismatch,
    WrongServer,
)
from xclp_crypto.params import Agreement
from xclp_crypto.testing import blamed, run
from xclp_crypto.transport import network
from xclp_crypto.transport.failures import Accusations, Code, Failure, Reason
from xclp_crypto.transport.log import Log, NoLog
from xclp_crypto.transport.network import Limits, party
from xclp_crypto.transport.network.client import ClientParty
from xclp_crypto.transport.network.frames import (
    PIECE_BYTES,
    Ack,
    Beat,
    Bye,
    Codec,
    Data,
    DroppedOut,
    End,
    Ready,
    Refused,
    Resume,
    Welcome,
    told,
)
from xclp_crypto.transport.network.party import Clock, Connection
from xclp_crypto.transport.network.server import ServerParty
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.wire import encode


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return runs.authority(tmp_path_factory.mktemp("tls") / "certs", ["a", "b", "c", "d"])


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """Certificates of another authority, and of another host."""
    return runs.authority(tmp_path_factory.mktemp("tls") / "certs", ["a", "b"], ["example.org"])


@pytest.fixture
def clock(monkeypatch):
    clock = runs.Clock()
    monkeypatch.setattr(Clock, "__call__", lambda _: clock())
    return clock


# Runs


@pytest.mark.parametrize("protocol", ["sum", "shade"])
def test_protocols_give_what_the_simulation_gives(tls, protocol):
    make = {
        "sum": protocol_runs.secure_sum({c: [1, 2, 3] for c in "abc"}, fraction_bits=0),
        "shade": protocol_runs.hamming("shade", {c: [[0, 1, 1, 0]] for c in "abc"}),
    }[protocol]
    federation = Federation(seedless(make), tls).serve()
    for name in "abc":
        federation.join(name)
    found = federation.results()
    expected = run(make)
    assert not [e for e in found.values() if isinstance(e, Exception)]
    if protocol == "sum":
        assert found[SERVER].total.tolist() == [3, 6, 9]
    else:
        assert found[SERVER].matrix.tolist() == expected.results[SERVER].matrix.tolist()
    costs = [role.cost for role in federation.durable.values()]
    assert sum(c.total_bytes for c in costs) == expected.cost.total_bytes
    assert max(c.rounds for c in costs) == expected.cost.rounds


def exchange(sizes):
    """Clients a and b send each other, and the server, messages of these sizes."""

    def role(me, peers):
        async def talk(io, rng):
            for n in sizes:
                await io.send(peers, Blob(me.encode() * n))
            for n in sizes:
                for peer in peers:
                    assert (await io.recv(Blob, peer, n=n)).data == peer[:1].encode() * n
            return "done"

        return talk

    everybody = ("a", "b", SERVER)
    return {me: role(me[:1], tuple(p for p in everybody if p != me)) for me in everybody}


def test_large_messages_pass_in_pieces(tls, monkeypatch):
    limits = Patient(window=100_000)
    found = runs.run(exchange([0, 1, 1_000_000, 300_000, 5]), tls, limits=limits)
    assert set(found.values()) == {"done"}, found


class Breaking(Relay):
    """A relay that breaks each connection after so many bytes."""

    def __init__(self, port, bytes_before):
        self.limits = deque(bytes_before)
        self.breaks = 0
        super().__init__(port)

    def shared(self):
        return [self.limits.popleft() if self.limits else 1 << 40]

    def copy(self, source, sink, left):
        try:
            while data := source.recv(1 << 14):
                sink.sendall(data[: left[0]])
                left[0] -= len(data)
                if left[0] <= 0:
                    self.breaks += 1
                    break
            for sock in (source, sink):
                sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


def test_connections_that_break_again_and_again_lose_nothing(tls):
    federation = Federation(exchange([10, 200_000, 50_000]), tls).serve()
    relay = Breaking(federation.port, [6000, 60_000, 3000, 20_000, 150_000, 9000, 40_000])
    for name in "ab":
        federation.join(name, port=relay.port)
    found = federation.results()
    relay.close()
    assert set(found.values()) == {"done"}, found
    assert relay.breaks >= 5


def test_a_message_longer_than_others_take_is_refused_by_its_sender(tls):
    found = runs.run(exchange([10, 5000]), tls, limits=runs.Patient(max_message=4000, join=3.0))
    for name, error in found.items():  # both clients send it, and so does the server
        assert "max_message" in str(error), name
        assert not blamed(error), name


@contextmanager
def unconnected(name, role, limits=runs.LIMITS, fed=(), log=None):
    """A server, or the client a, that was fed something and has no connection."""
    peers = [peer for peer in ("a", "b", SERVER) if peer != name]
    durable = DurableRole(name, role, log or NoLog(), peers=peers)
    durable.run()
    for sender in fed:
        durable.feed(sender, fed[sender])
    if name == SERVER:
        made = ServerParty(durable, peers, runs.AGREEMENT, limits)
    else:
        made = ClientParty(durable, ("a", "b"), SERVER, runs.AGREEMENT, limits)
    yield made
    made.close()
    durable.close()


# Who is given up


async def waits_for_the_server(io, rng):
    await io.recv(Blob, SERVER, n=1)


def gathering(at_least=1):
    async def server(io, rng):
        return sorted(await io.gather(Blob, ("a", "b"), at_least, n=1))

    async def client(io, rng):
        await io.send(SERVER, Blob(b"x"))
        return "sent"

    return {"a": client, "b": client, SERVER: server}


def test_a_client_that_never_comes_is_left_out(tls, clock):
    federation = Federation(gathering(), tls).serve()
    assert federation.join("a").result() == "sent"
    clock.jump()
    assert federation.results() == {SERVER: ["a"], "a": "sent"}


def without_b(tls, clock, server, then):
    """Run a and the server; all limits pass when both have spoken, and b never comes."""
    here = threading.Event()

    async def client(io, rng):
        await io.recv(Blob, SERVER, n=1)
        here.set()
        await then(io)

    async def greets(io, rng):
        await io.send("a", Blob(b"x"))
        await server(io)

    limits = Patient(deadline=1e6)  # a computes nothing, so that it is not given up
    federation = Federation({"a": client, "b": client, SERVER: greets}, tls, limits=limits).serve()
    federation.join("a")
    here.wait()
    clock.ahead = 2 * limits.join
    return federation.results()


def test_too_few_clients_end_the_session_for_all(tls, clock):
    async def client(io):
        await io.send(SERVER, Blob(b"x"))
        await io.recv(Blob, SERVER, n=1)

    found = without_b(tls, clock, lambda io: io.gather(Blob, ("a", "b"), 2, n=1), client)
    assert isinstance(found[SERVER], TooFewParties)
    assert not hasattr(found[SERVER], "__notes__")  # its text says who is missing
    assert "the server ended the session" in str(found["a"])
    assert str(found["a"]).count("without b") == 1


def test_clients_hear_of_a_client_that_is_given_up(tls, clock):
    def client(io):
        return io.recv(Blob, "b", n=1)

    found = without_b(tls, clock, lambda io: io.gather(Blob, ("a",), 0, n=1), client)
    assert isinstance(found["a"], Stalled)
    assert "no Blob from b" in str(found["a"])


def test_nobody_waits_for_a_client_that_declines(tls, caplog, monkeypatch):
    """Also if the server is still greeting it when it says so."""
    caplog.set_level("INFO", "xclp_crypto.transport")
    send = Connection.send

    async def late(connection, frame):
        await asyncio.sleep(0.2 * isinstance(frame, Resume))
        await send(connection, frame)

    monkeypatch.setattr(Connection, "send", late)
    federation = Federation(gathering(), tls, limits=Patient()).serve()
    where = (runs.AGREEMENT, ("localhost", federation.port), tls("b"))
    network.decline(*where, limits=Patient())
    federation.join("a")
    assert federation.results() == {SERVER: ["a"], "a": "sent"}
    found = [(r.message, getattr(r, "client", None)) for r in caplog.records]
    assert ("does not take part", "b") in found
    assert federation.durable[SERVER].reasons == {"b": Reason(Code.DECLINED)}


def test_who_has_declined_is_welcome_before_the_others_have_begun(tls):
    federation = Federation(gathering(2), tls, limits=Patient()).serve()
    network.decline(runs.AGREEMENT, ("localhost", federation.port), tls("b"), limits=Patient())
    assert federation.join("b").result() == "sent"
    federation.join("a")
    assert federation.results() == {SERVER: ["a", "b"], "a": "sent", "b": "sent"}


def test_a_client_that_computes_without_end_is_left_out(tls, clock):
    begun, leave = threading.Event(), threading.Event()

    def computes():
        begun.set()
        leave.wait()

    async def stuck(io, rng):
        await io.recv(Blob, SERVER, n=1)
        await io.compute(computes)
        return "late"

    async def server(io, rng):
        await io.send("b", Blob(b"x"))
        return sorted(await io.gather(Blob, ("a", "b"), 1, n=1))

    roles = gathering() | {"b": stuck, SERVER: server}
    federation = Federation(roles, tls).serve()
    assert federation.join("a").result() == "sent"
    federation.join("b")
    begun.wait()
    while not federation.futures[SERVER].done():  # it waits twice: for a message, and for the end
        clock.jump()
        time.sleep(0.05)
    assert federation.futures[SERVER].result() == ["a"]
    leave.set()
    assert federation.results()["b"] == "late"


@pytest.mark.parametrize(
    ("progress", "turns"),
    [
        (lambda i: written(Data("a", "b", 0, 1, 1 << 20, i, b"x")), 12),  # a byte, to another
        (lambda i: written(Data("a", SERVER, 0, 1, 1 << 20, i, b"x")), 12),
        (lambda i: written(Beat(True, i)), 12),
        (lambda i: written(Beat(True, i), Beat(False, i)), 2),  # it pretends to wait
    ],
)
def test_a_client_that_makes_a_little_progress_for_ever_is_given_up(clock, progress, turns):
    """At `total`, and others that wait for it are not; with nobody at work, at `deadline`."""

    async def role(io, rng):
        await io.gather(Blob, ("a", "b"), n=1)

    async def talk(server):
        wires = [await connected(server, name, name.encode() * 16) for name in "ab"]
        a = server.clients["a"]
        for turn in range(100):
            before = a.moved
            wires[0].reader.feed_data(progress(turn))
            await until(lambda: a.moved > before)  # noqa: B023
            assert not server.expired("a")
            clock.ahead += 90.0
            if server.expired("a"):
                break
        assert turn + 1 == turns
        assert server.expired("b") == (turns == 2)
        assert a.reason.code is (Code.SILENT if turns == 2 else Code.SLOW)

    on_server(role, talk, limits=Patient(deadline=100.0))


@pytest.mark.parametrize("says", ["a", SERVER])
def test_who_withholds_a_message_and_says_that_it_waits_is_given_up_and_nobody_else(clock, says):
    """By a, which waits for it, and then by the server, which a has answered meanwhile."""

    async def role(io, rng):
        await io.gather(Blob, ("a", "b"), 1, n=1)
        await io.recv(Blob, "a", n=1)

    async def waits(server, wire, name, for_whom, progress):
        lacks = CODEC.bits([for_whom])
        wire.reader.feed_data(written(Beat(False, progress, lacks)))
        await until(lambda: server.clients[name].progress == progress)

    async def talk(server):
        wires = {name: await connected(server, name, name.encode() * 16) for name in "ab"}
        await waits(server, wires["a"], "a", "b", 1)
        await waits(server, wires["b"], "b", says, 1)
        watching = asyncio.create_task(server.watch())
        clock.ahead += 101.0
        await until(lambda: wires["a"].got(DroppedOut))
        wires["a"].reader.feed_data(blob(b"x"))
        await waits(server, wires["a"], "a", SERVER, 2)
        driving = asyncio.create_task(server.drive())
        await until(lambda: server.role.fed["a"])
        clock.ahead += 101.0
        await until(lambda: server.role.waiting and server.role.waiting.missing == ("a",))
        wires["a"].reader.feed_data(blob(b"x", 1))
        await driving
        watching.cancel()
        told = {n: wire.sent.count(DroppedOut("a", Reason().encode())) for n, wire in wires.items()}
        assert told == {"a": 0, "b": says == "a"}
        assert server.clients["a"].spent < 90.0
        assert server.role.reasons == {"b": Reason()}

    on_server(role, talk, limits=Patient(deadline=100.0))


@pytest.mark.parametrize("code", [Code.SILENT, Code.SLOW])
def test_who_was_silent_is_waited_for_again_when_it_has_sent_something(code):
    """Of one that took too long, nothing more is handed on."""

    async def main():
        with unconnected("a", waits_for_the_server) as client:
            wire = Wire(SERVER)
            connection = Connection(wire.reader, wire, CODEC, 9.0, client.clock)
            away = DroppedOut("b", Reason(code).encode())
            wire.reader.feed_data(written(away, Data("b", "a", 0, 1, 0, 0, b""), End(False)))
            await client._read_from(connection)
            return [*client.dropouts]

    assert asyncio.run(main()) == ["b"] * (code is Code.SLOW)


@pytest.mark.parametrize("to", ["b", SERVER])
@pytest.mark.parametrize("ended", [False, True])
def test_a_client_that_repeats_a_message_for_ever_keeps_nobody_waiting(clock, to, ended):
    """Also when the server only waits for goodbyes; one new message after another ends, too."""

    async def role(io, rng):
        if not ended:
            await io.gather(Blob, ("a", "b"), n=1)

    async def turns(server, wire, name, number):
        client = server.clients[name]
        for turn in range(100):
            clock.ahead += 90.0
            if server.expired(name):
                return turn, client.reason.code
            before = client.moved
            wire.reader.feed_data(written(Data(name, to, number(turn), 1, 0, 0, b"")))
            await until(lambda: client.moved > before)  # noqa: B023
        return None

    async def talk(server):
        assert server.role.ended is ended
        a, b = [await connected(server, name, name.encode() * 16) for name in "ab"]
        server.waiting_since = server.clock()
        assert await turns(server, a, "a", lambda turn: 0) == (2, Code.SILENT)
        assert server.expired("b")
        if to == SERVER:
            server.waiting_since = server.clock()
            # One turn of 90 seconds may pass before the server looks for the first time.
            assert await turns(server, b, "b", lambda turn: turn) in (
                (11, Code.SLOW),
                (12, Code.SLOW),
            )

    on_server(role, talk, limits=Patient(deadline=100.0))


@pytest.mark.parametrize(
    ("piece", "slow"),
    [
        (Data("a", "b", 1, 1, PIECE_BYTES + 1, 0, bytes(PIECE_BYTES)), "b"),
        (Data("a", "b", 0, 1, 0, 0, b""), "a"),  # again
        (Data("a", "b", 2, 1, 0, 0, b""), "a"),  # leaves one out
        (Data("a", "b", 1, 1, 2, 0, b"x"), "a"),  # a crumb
    ],
)
def test_who_reads_slowly_is_given_up_and_not_who_waits_for_it(clock, piece, slow):
    """What a sends to the third client stays in the way until the server goes on without that.

    Unless b has to read what it has not asked for: then a, who sends that, is given up.
    """

    async def talk(server):
        wires = {name: await connected(server, name, name.encode() * 16) for name in "ab"}
        reads, full, reading = wires["b"], asyncio.Event(), asyncio.Event()
        wires["a"].reader.feed_data(written(Data("a", "b", 0, 1, 0, 0, b"")))
        await until(lambda: reads.got(Data))

        async def drain():
            full.set()
            await reading.wait()

        reads.drain = drain
        wires["a"].reader.feed_data(written(piece))
        await until(lambda: server.clients["a"].held_by and full.is_set())
        (other,) = {"a", "b"} - {slow}
        while not server.expired(slow):
            clock.ahead += 90.0
            assert not server.expired(other)
        assert server.clients[slow].reason.code is Code.SLOW
        assert server.clients[other].spent < 1.0
        reading.set()
        wires["a"].reader.feed_data(written(Data("a", "b", 1, 1, 0, 0, b""), Bye(True)))
        await until(lambda: server.clients["a"].ended)
        assert [frame for frame in reads.sent if isinstance(frame, Data)][1:] == [piece]

    on_server(gathering()[SERVER], talk, limits=Patient(deadline=100.0))


def test_what_its_receiver_has_is_handed_on_only_when_that_asks_for_it():
    """Or whoever repeats it without end takes the time and the line of others."""

    async def talk(server):
        async def passed(name, wire, *frames):
            """Send frames, and wait until the server has read them."""
            client = server.clients[name]
            progress = client.progress + 1
            wire.reader.feed_data(written(*frames, Beat(False, progress)))
            await until(lambda: client.progress == progress)

        a, b = [await connected(server, name, name.encode() * 16) for name in "ab"]
        messages = [Data("a", "b", number, 1, 0, 0, b"") for number in range(2)]
        await passed("a", a, messages[0])
        await passed("b", b, *[Ack("a", "b", 1)] * 3)
        await passed("a", a, *messages[:1] * 3, messages[1])
        assert [frame for frame in a.sent if isinstance(frame, Ack)] == [Ack("a", "b", 1)]
        assert [frame for frame in b.sent if isinstance(frame, Data)] == messages
        b = await connected(server, "b", b"b" * 16)
        await passed("b", b, Resume("a", "b", 1))
        assert server.clients["a"].next == {"b": (1, 0)}
        await passed("a", a, messages[1])
        assert server.clients["a"].next == {"b": (2, 0)}
        assert [frame for frame in b.sent if isinstance(frame, Data)] == messages[1:]

    on_server(gathering()[SERVER], talk)


def test_a_client_does_not_wait_for_ever_for_a_server_that_only_gives_signs_of_life(clock):
    with unconnected("a", waits_for_the_server) as client:
        clock.ahead = 2 * client.limits.in_all + 1
        with pytest.raises(Stalled, match=r"no message from server; waited for 36000 seconds"):
            asyncio.run(client._wait())
        asyncio.run(asyncio.wait_for(client.finish(), 5))


def test_time_in_which_the_server_did_not_run_does_not_count(monkeypatch):
    """Nobody could be heard then; `join` seconds in which it ran do count."""
    now = [1e9]
    monkeypatch.setattr("xclp_crypto.transport.network.limits.monotonic", lambda: now[0])
    limits = Limits()
    with unconnected(SERVER, gathering()[SERVER], limits) as server:
        for _ in range(2):
            now[0] += 100 * limits.join
            assert not server.expired("a")
        for _ in range(int(limits.join / limits.beat) - 3):
            now[0] += limits.beat
            assert not server.expired("a")
        now[0] += 2 * limits.beat  # a busy machine
        assert not server.expired("a")
        for _ in range(3):
            now[0] += limits.beat
            server.clock()
        assert server.expired("a")


def test_a_client_that_is_silent_is_left_out(tls):
    """Its connection stays, and nothing comes: a machine that lost its power."""
    federation = Federation(gathering(), tls, limits=Patient()).serve()
    assert federation.join("a").result() == "sent"
    object.__setattr__(federation.limits, "grace", 1.0)  # the clock of a socket does not jump
    with (
        socket.create_connection(("localhost", federation.port)) as plain,
        tls("b").wrap_socket(plain, server_hostname="localhost") as silent,
    ):
        silent.sendall(written(hello()))
        assert silent.recv(5)
        assert federation.results() == {SERVER: ["a"], "a": "sent"}


def test_what_the_server_fails_with_is_told(tls):
    async def fails(io, rng):
        await io.gather(Blob, ("a", "b"), n=1)
        raise DataError("client 'a' has 5 features, 'b' has 6", public=True)

    async def client(io, rng):
        await io.send(SERVER, Blob(b"x"))
        await io.recv(Blob, SERVER, n=1)

    found = runs.run({"a": client, "b": client, SERVER: fails}, tls)
    for name in "ab":
        assert isinstance(found[name], DataError)
        assert str(found[name]) == (
            "the server ended the session: client 'a' has 5 features, 'b' has 6"
        )


# Logs


def speak(port, context, sent, words):
    """Send bytes over TLS and read until these words come."""
    with (
        socket.create_connection(("localhost", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        sock.sendall(sent)
        answer = b""
        while words not in answer:
            got = sock.recv(4096)
            assert got, answer
            answer += got


def test_who_comes_when_the_session_was_stopped_is_told_why(tls):
    """Its connection may have been in the making, or have broken before it read the end."""

    async def accuses(io, rng):
        await io.recv(Blob, "a", n=1)
        raise FaultyPeer("a", "is wrong", public=True)

    async def sends(io, rng):
        await io.send(SERVER, Blob(b"x"))
        await io.recv(Blob, SERVER, n=1)

    federation = Federation({"a": sends, "b": sends, SERVER: accuses}, tls).serve()
    assert blamed(federation.join("a").exception(10)) == {"a", SERVER}
    federation.join("b")
    found = federation.results()
    assert blamed(found["b"]) == {"a", SERVER}
    assert blamed(found[SERVER]) == {"a"}


def test_a_signed_accusation_says_who_blames_whom_and_leaves_the_server_out(tls, monkeypatch):
    """Without the signature, as from a server that makes the accusation up, both are named."""
    roles = accusing({"a": "b"}, FaultyPeer)
    found = runs.run(roles, tls)
    for client in "bcd":
        assert type(found[client]) is FaultyPeer
        assert found[client].parties == ("b", "a")
        assert "a has signed that it blames b in step 'sum'" in str(found[client])
    monkeypatch.setattr(Accusations, "signed", ())
    found = runs.run(roles, tls)
    for client in "bcd":
        assert type(found[client]) is FaultyPeerOrServer
        assert found[client].parties == ("b", "a")


def test_a_client_that_lost_its_log_is_refused(tls):
    federation = Federation(gathering(2), tls).serve()
    assert federation.join("a").result() == "sent"
    speak(federation.port, tls("a"), written(hello()), b"already taken part")
    federation.join("b")
    assert federation.results() == {SERVER: ["a", "b"], "a": "sent", "b": "sent"}


def test_a_rebuilt_server_waits_only_for_grace_for_a_client_that_had_come(clock):
    """It may have ended, and removed its log, before the server was killed."""
    with unconnected(SERVER, gathering()[SERVER], fed={"a": encode(Blob(b"x"))}) as server:
        assert not server.expired("a")
        clock.ahead = (runs.LIMITS.grace + runs.LIMITS.join) / 2
        assert server.expired("a")
        assert not server.expired("b")


def test_a_refused_certificate_is_suspected_at_the_first_attempt(tls, strangers, serving, caplog):
    context = strangers("a")
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    federation = Federation(
        gathering() | {"a": waits_for_the_server}, tls, limits=Limits(grace=0.5)
    )
    with caplog.at_level("INFO"), pytest.raises(CertificateRefused, match="refuses this program's"):
        federation.join("a", port=serving.port, tls=context).result()
    federation.pool.shutdown()
    said = [r.reason for r in caplog.records if r.getMessage() == "no connection"]
    assert "it refuses this program's certificate" in said[0]


def test_a_server_that_was_started_anew_is_another_session(tls, clock):
    roles = gathering(0) | {"a": waits_for_the_server}
    federation = Federation(roles, tls).serve()
    role = federation.role("a")
    role.keep(b"another session!")
    with pytest.raises(LogError, match="another session than the one that the server runs"):
        federation.join("a", role=role).result()
    del federation.futures["a"]
    clock.jump()
    assert federation.results() == {SERVER: []}


# Errors at the door


@pytest.fixture(scope="module")
def serving(tls):
    """A server that runs for all of these tests; clients a and b never come."""
    federation = Federation(gathering(0), tls, limits=Patient(join=1e9)).serve()
    yield federation
    for name in "ab":
        federation.join(name)
    assert federation.results() == {SERVER: ["a", "b"], "a": "sent", "b": "sent"}


def check(serving, tls, *, host="localhost", port=None, agreement=runs.AGREEMENT):
    address = (host, port or serving.port)
    return network.check(agreement, address, tls, limits=runs.LIMITS)


def test_a_client_that_fits_is_accepted(serving, tls):
    check(serving, tls("a"))


def test_another_authority_is_refused_on_both_sides(serving, tls, strangers):
    with pytest.raises(
        CertificateRefused, match=r"certificate of localhost:.* is refused: self-signed"
    ):
        check(serving, strangers("a"))
    context = strangers("a")
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(CertificateRefused, match="it refuses this program's certificate"):
        check(serving, context)


def test_a_client_cannot_play_the_server(tls, clock):
    federation = Federation(gathering(), lambda name: tls("b", server=True)).serve()
    with pytest.raises(CertificateRefused, match="unsuitable certificate purpose"):
        check(federation, tls("a"))
    clock.jump()
    assert isinstance(federation.results()[SERVER], TooFewParties)


def test_a_server_of_another_name_is_refused(clock, tmp_path):
    other = runs.authority(tmp_path / "certs", ["a", "b"], ["example.org"])
    federation = Federation(gathering(), other).serve()
    with pytest.raises(WrongServer, match=r"no certificate for 'localhost'; check the address"):
        check(federation, other("a"))
    clock.jump()
    assert isinstance(federation.results()[SERVER], TooFewParties)


def test_who_is_not_invited_is_refused(serving, tls):
    with pytest.raises(CertificateRefused, match="for 'd', who is none of the clients a, b"):
        check(serving, tls("d"))


def test_other_parameters_are_named(serving, tls):
    with pytest.raises(OtherParameters, match=r"all parties must agree on version \(here 2\)"):
        check(serving, tls("a"), agreement=Agreement(version=2))
    with pytest.raises(VersionMismatch, match="other parameters than this program"):
        check(serving, tls("a"), agreement=Agreement(version=1, more=2))


def test_nobody_there(tls):
    with socket.create_server(("localhost", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(Unreachable, match=f"localhost:{port} cannot be reached"):
        check(None, tls("a"), port=port)
    with pytest.raises(Unreachable, match=r"there is no address for 'nowhere.invalid'"):
        check(None, tls("a"), port=port, host="nowhere.invalid")
    federation = Federation({"a": waits_for_the_server}, tls, limits=Limits(grace=0.3))
    with pytest.raises(Unreachable, match=r"no connection to the server for 0.3 seconds"):
        federation.join("a", port=port).result()
    federation.pool.shutdown()


def test_a_port_that_is_in_use(serving, tls):
    taken = Federation(gathering(), tls)
    with pytest.raises(AddressInUse, match=f"cannot listen on localhost:{serving.port}: it is in"):
        taken.serve(serving.port).futures[SERVER].result()
    taken.pool.shutdown()
    taken.durable[SERVER].close()


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (written(hello(version=9)), b"version 1 and the client version 9"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"sends no frames of this protocol"),
        (written(Bye(True)), b"does not speak this protocol"),
    ],
)
def test_the_server_refuses_what_does_not_speak_its_protocol(serving, tls, sent, words):
    speak(serving.port, tls("a"), sent, words)
    check(serving, tls("a"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (written(Ready(version=9)), "version 9"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "sends no frames"),
        (written(End(False)), "does not speak this protocol"),
    ],
)
def test_a_client_refuses_what_does_not_speak_its_protocol(tls, answer, words):
    def speaks(plain):
        with tls(SERVER).wrap_socket(plain, server_side=True) as sock:
            sock.sendall(answer)
            while sock.recv(1000):
                pass

    with one_client_at(speaks) as port, pytest.raises(VersionMismatch, match=words):
        check(None, tls("a"), port=port)


@contextmanager
def one_client_at(talk):
    """Serve one connection in a thread, by `talk`, on the port that this gives."""
    with socket.create_server(("localhost", 0)) as listener:
        thread = threading.Thread(target=lambda: talk(listener.accept()[0]))
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def greeting(context, answer):
    """Return what greets a client, answers its greeting, and reads what comes, if it answered."""

    def talk(plain):
        with context(SERVER).wrap_socket(plain, server_side=True) as sock:
            sock.sendall(written(Ready()))
            sock.recv(1000)
            sock.sendall(answer)
            with suppress(OSError):  # closing at once could break the answer off
                while answer and sock.recv(1000):
                    pass

    return talk


def welcomed(context, *frames):
    """Join a server that greets, sends these frames, and reads what comes; return the error."""
    return welcomed_by(context, written(*frames))


def welcomed_by(context, sent, role=waits_for_the_server, log=NoLog):
    with one_client_at(greeting(context, written(Welcome(bytes(16))) + sent)) as port:
        federation = Federation({"a": role, "b": None}, context, log=lambda name: log())
        error = federation.join("a", port=port).exception()
    federation.pool.shutdown()
    return error


@pytest.mark.parametrize("kind", [Resume, Beat])
def test_what_the_server_said_last_is_heard_when_writing_fails_before_reading(
    tls, monkeypatch, kind
):
    send = Connection.send

    async def fails(connection, frame):
        if isinstance(frame, kind):
            raise ConnectionResetError("the connection is closed")
        await send(connection, frame)

    monkeypatch.setattr(Connection, "send", fails)
    error = welcomed(tls, End(True, told(Failure.of(TooFewParties("setup", 1, 2)))))
    assert type(error) is ProtocolError
    assert "the server ended the session: step 'setup': 1 of" in str(error)


def test_a_read_that_is_cancelled_loses_nothing():
    async def reads():
        reader = asyncio.StreamReader()
        connection = Connection(reader, None, CODEC, 9.0, time.monotonic)
        ack = Ack("a", "b", 1 << 60)
        sent = written(ack)
        for cut in (3, 5, 9):
            reader.feed_data(sent[:cut])
            reading = asyncio.create_task(connection.read())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            reader.feed_data(sent[cut:])
            assert await connection.read() == ack

    asyncio.run(reads())


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (Data(SERVER, "b", 0, 1, 1, 0, b"x"), "the server hands on what is for b"),
        (Ack("b", "a", 1), "the server acknowledges what this party never sends"),
        (Ack("b", SERVER, 1), "the server acknowledges what this party never sends"),
        (hello(), "the server sends no frames of kind 2"),
        (Bye(True), "the server sends no frames of kind 10"),
    ],
)
def test_frames_that_make_no_sense_to_a_client_end_its_session(tls, frame, words):
    error = welcomed(tls, frame)
    assert type(error) is VersionMismatch
    assert words in str(error)


def test_a_server_that_refuses_a_client_in_the_session_is_believed(tls):
    error = welcomed(tls, Refused(told(Failure.of(DataError("not any more", public=True)))))
    assert type(error) is DataError
    assert str(error) == "the server refuses: not any more"


def test_who_is_given_up_and_nobody_here_is_not_missed(tls):
    """A client goes on, until it hears of somebody for whom it waits."""
    unknown = Codec(["a", "x", "y", "z"])  # a longer list than the client has
    answer = b"".join(unknown.encode(DroppedOut("z"))) + written(
        DroppedOut("b"), DroppedOut(SERVER)
    )
    error = welcomed_by(tls, answer)
    assert isinstance(error, Stalled)
    assert "no Blob from server" in str(error)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (written(End(False)), VersionMismatch, "does not greet as this protocol says"),
        (b"", Unreachable, "localhost:.* cannot be reached"),
    ],
)
def test_a_server_that_does_not_welcome(tls, answer, kind, words):
    talk = greeting(tls, answer)
    with one_client_at(talk) as port, pytest.raises(kind, match=words):
        check(None, tls("a"), port=port)


def test_a_server_without_tls_is_said(tls):
    def speaks(plain):
        with plain:
            plain.recv(1000)
            plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with one_client_at(speaks) as port, pytest.raises(VersionMismatch, match="does not speak TLS"):
        check(None, tls("a"), port=port)


LIMIT_NAMES = ["join", "grace", "deadline", "total", "window", "max_message", "memory"]


@pytest.mark.parametrize("name", LIMIT_NAMES)
@pytest.mark.parametrize("value", [0, -1, "5", True])
def test_limits(name, value):
    with pytest.raises(ParameterError, match=f"{name} must be a positive number"):
        Limits(**{name: value})
    with pytest.raises(ParameterError, match="window must be at most 67108864"):
        Limits(window=(64 << 20) + 1)
    with pytest.raises(ParameterError, match="total must be at least deadline, 1800 seconds"):
        Limits(total=1799)
    assert Limits(deadline=60).in_all == 600


def test_a_client_cannot_speak_in_anothers_name(tls, clock):
    """It is cut off; nobody else notices."""
    federation = Federation(gathering(0), tls).serve()
    sent = written(hello(), Data("b", SERVER, 0, 1, 1, 0, b"x"))
    speak(federation.port, tls("a"), sent, b"in the name of another client")
    assert federation.join("b").result() == "sent"
    clock.jump()
    assert federation.results() == {SERVER: ["b"], "b": "sent"}


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (written(End(False)), b"a client sends no frames of kind 11"),
        (written(Ack(SERVER, "b", 1)), b"in the name of another client"),
    ],
)
def test_frames_that_make_no_sense_to_the_server_leave_their_sender_out(tls, sent, words):
    federation = Federation(gathering(), tls).serve()
    speak(federation.port, tls("a"), written(hello()) + sent, words)
    speak(federation.port, tls("a"), written(hello()), words)  # and when it comes again
    federation.join("b")
    assert federation.results() == {SERVER: ["b"], "b": "sent"}


# Connections without sockets


def on_server(role, talk, log=None, limits=runs.LIMITS):
    """Run `talk(server)` beside a server's role, without a listener; return what it returns."""

    async def main():
        with unconnected(SERVER, role, limits, log=log) as server:
            try:
                return await talk(server)
            finally:
                for handler in server.handlers:
                    handler.cancel()
                if server.handlers:
                    await asyncio.wait(server.handlers)

    return asyncio.run(main())


async def connected(server, name, instance, incarnation=bytes(16)):
    wire = Wire(name)
    asyncio.create_task(server.accept(wire.reader, wire, lambda: None))  # noqa: RUF006 (the server keeps it)
    wire.reader.feed_data(written(hello(instance=instance, incarnation=incarnation)))
    await until(lambda: wire.got(Resume) or wire.aborted)
    return wire


async def until(true):
    while not true():
        await asyncio.sleep(0.001)


def blob(letter, number=0):
    payload = encode(Blob(letter))
    return written(Data("a", SERVER, number, 1, len(payload), 0, payload))


def test_a_client_that_starts_anew_before_the_role_took_anything_begins_again():
    """It comes back before the server noticed that it had gone; the old connection ends."""

    async def role(io, rng):
        await io.recv(Blob, "b", n=1)
        return (await io.recv(Blob, "a", n=1)).data

    async def talk(server):
        first = await connected(server, "a", b"first start of a")
        first.reader.feed_data(blob(b"1"))
        await until(lambda: server.mail.inboxes["a"].received == 1)
        second = await connected(server, "a", b"2nd start of a .")
        assert server.mail.inboxes["a"].received == 0
        await until(lambda: first.aborted)
        assert not second.closed
        assert server.clients["a"].instance == b"2nd start of a ."
        second.reader.feed_data(blob(b"2"))
        await until(lambda: server.mail.inboxes["a"].received == 1)
        server.role.feed("b", encode(Blob(b"x")))
        await server.drive()
        assert second.sent[-1] == Ack("a", SERVER, 1)
        third = await connected(server, "a", b"3rd start of a .")
        assert third.got(Refused)
        assert b"already taken part" in third.data
        assert not second.closed
        return server.role.result()

    assert on_server(role, talk) == b"2"


def test_attack_18_a_rebuilt_server_knows_a_client_that_starts_without_its_log():
    """Also if it was killed before it answered; and it is not the server that is to blame."""

    async def role(io, rng):
        await io.recv(Blob, "a", n=1)
        await io.recv(Blob, "b", n=1)

    async def talk(server):
        first = await connected(server, "a", b"first start of a")
        first.reader.feed_data(blob(b"1"))
        await until(lambda: server.mail.inboxes["a"].received == 1)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await server.drive()
        assert server.role.fed["a"] == 1
        return log.to_bytes()

    async def again(server):
        second = await connected(server, "a", b"2nd start of a .")
        assert second.got(Refused)
        assert b"already taken part in this session with another start of its role" in second.data
        first = await connected(server, "a", b"first start of a")
        assert first.got(Welcome)

    log = Log.from_bytes(b"", KEY)
    kept = on_server(role, talk, log)
    on_server(role, again, Log.from_bytes(kept, KEY))


async def asks_twice(io, rng):
    for _ in range(2):
        await io.send(SERVER, Blob(rng.bytes(1)))
        await io.recv(Blob, SERVER, n=1)


def older_log():
    """That of a client or server which sent one message, and later had more."""
    log = Log.from_bytes(b"", KEY)
    role = DurableRole("a", asks_twice, log, peers=["b", SERVER])
    role.run()
    return log.to_bytes()


@pytest.mark.parametrize(
    ("frame", "words", "liar"),
    [
        (Resume("a", SERVER, 2), "has 2 messages of a, and its log has 1: unless", SERVER),
        (Resume("a", "b", 1), "has 1 messages of a, and its log has 0: unless that", "b"),
        (Resume(SERVER, "a", 1), "a has said that it has 1 messages of server, and its", SERVER),
    ],
)
def test_attack_10_a_client_with_an_older_log_is_told_by_the_others_and_ends(
    tls, frame, words, liar
):
    """Before anything leaves. One that began just now has no older log, so that they lie."""
    old = older_log()
    error = welcomed_by(tls, written(frame), asks_twice, lambda: Log.from_bytes(old, KEY))
    assert type(error) is LogRolledBack
    assert words in str(error)
    assert "the log was rolled back; give back the newest one" in str(error)
    assert error.parties == (() if frame.sender == SERVER else (liar,))
    error = welcomed(tls, frame)
    assert isinstance(error, FaultyPeer)
    assert error.parties == (liar,)


def test_attack_10_a_server_with_an_older_log_ends_and_blames_no_client():
    async def role(io, rng):
        await io.send("a", Blob(rng.bytes(1)))
        await io.recv(Blob, "b", n=1)

    async def first(server):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await server.drive()
        wire = await connected(server, "a", b"a start of a ...")
        b = await connected(server, "b", b"a start of b ...")
        b.reader.feed_data(written(*(Data("b", "a", n, 1, 0, 0, b"") for n in range(3))))
        await until(lambda: server.clients["b"].sent == {"a": 3})
        wire.reader.feed_data(written(Resume("b", "a", 3)))
        await until(lambda: server.clients["a"].counts)
        again = await connected(server, "a", b"a start of a ...")
        await until(lambda: Resume("b", "a", 3) in again.sent)  # what a says that it has
        return log.to_bytes()

    async def restored(server):
        wire = await connected(server, "a", b"a start of a ...")
        wire.reader.feed_data(written(Resume(SERVER, "a", 2)))
        await until(lambda: server.failure is not None)
        with pytest.raises(LogRolledBack, match="a says that it has 2 messages of server, and its"):
            await server.drive()
        assert server.clients["a"].fault is None

    log = Log.from_bytes(b"", KEY)
    kept = on_server(role, first, log)
    on_server(role, restored, Log.from_bytes(kept, KEY))


def test_attack_17_of_two_programs_with_one_log_the_earlier_one_is_told_and_ends():
    """They would take the place of each other for ever; the connection of the later one stays."""

    async def role(io, rng):
        await io.recv(Blob, "a", n=1)

    async def talk(server):
        log = b"the start of a ."
        first = await connected(server, "a", log, b"first program . ")
        again = await connected(server, "a", log, b"first program . ")
        await until(lambda: first.aborted)
        second = await connected(server, "a", log, b"second program .")
        await until(lambda: again.aborted)
        late = await connected(server, "a", log, b"first program . ")
        assert late.got(Refused)
        assert b"another program takes part as a with the same log" in late.data
        assert not second.closed

    on_server(role, talk)


def test_what_comes_for_a_role_that_has_ended_is_acknowledged():
    """Or its sender would wait for it until it gives up."""

    async def role(io, rng):
        await io.recv(Blob, "a", n=1)

    async def talk(server):
        wire = await connected(server, "a", b"a start of a ...")
        wire.reader.feed_data(blob(b"1") + blob(b"2", 1))
        await until(lambda: server.mail.inboxes["a"].received == 2)
        await server.drive()
        assert server.role.ended
        for _ in range(2):  # once
            await server.acknowledge_rest()
        return [frame.count for frame in wire.sent if isinstance(frame, Ack)]

    assert on_server(role, talk) == [1, 2]


def test_whatever_bytes_can_provoke_is_the_fault_of_who_sent_them(tls, monkeypatch, caplog):
    def breaks(self, kind, body):
        if kind == Beat.KIND:
            raise ZeroDivisionError
        return decode(self, kind, body)

    decode = Codec.decode
    monkeypatch.setattr(Codec, "decode", breaks)
    federation = Federation(gathering(0), tls).serve()
    sent = written(hello(), Beat(True, 1))
    speak(federation.port, tls("a"), sent, b"what was sent ends in ZeroDivisionError")
    assert "unexpected" in caplog.messages
    monkeypatch.undo()
    federation.join("b")
    assert federation.results() == {SERVER: ["b"], "b": "sent"}


def test_a_program_that_is_stopped_says_so_of_its_connections(caplog):
    async def talk(server):
        wire = await connected(server, "a", b"a start of a ...")
        (handler,) = server.handlers
        handler.cancel()
        await handler
        assert wire.aborted
        assert server.clients["a"].connection is None

    with caplog.at_level("INFO"):
        on_server(waits_for_b, talk)
    (record,) = [r for r in caplog.records if r.getMessage() == "disconnected"]
    assert (record.client, record.reason) == ("a", "stopped")


async def waits_for_b(io, rng):
    await io.recv(Blob, "b", n=1)


def test_a_connection_that_breaks_while_a_message_is_acknowledged_is_closed():
    """The message is acknowledged on the next one, as having been taken."""

    async def main():
        wire = Wire(SERVER)
        wire.closed = True
        with unconnected("a", waits_for_the_server) as client:
            client.connection = Connection(wire.reader, wire, CODEC, 1.0, client.clock)
            await client.tell(SERVER, Ack(SERVER, "a", 1))
        return wire

    wire = asyncio.run(main())
    assert wire.data == b""
    assert wire.reader.at_eof()


@pytest.mark.parametrize(
    ("left", "waits"),
    [([10], 0), ([11, 10], 1), ([20, 15, 12, 4], 3), ([20, 20, 20, 15, 9], 4), ([20] * 30, 21)],
)
def test_a_role_that_sends_much_is_held_while_it_moves_and_never_for_ever(monkeypatch, left, waits):
    """`left` are the bytes that wait, at the beginning and after each pause."""
    monkeypatch.setattr(party, "HIGH_WATER", 10)
    paused = 0

    async def main():
        with unconnected("a", waits_for_the_server) as client:
            client.mail.outboxes["b"].bytes = 1000  # not connected, so that nobody holds it
            box = client.mail.outboxes[SERVER]
            box.open, box.bytes = True, left[0]

            async def sleep(seconds):
                nonlocal paused
                paused += 1
                box.bytes = left[paused]

            with monkeypatch.context() as patch:
                patch.setattr(party.asyncio, "sleep", sleep)
                await client._let_leave()

    asyncio.run(main())
    assert paused == waits
