"""Two programs over a connection: exact, private from each other's own distances, never hanging."""

from __future__ import annotations

import fcntl
import re
import socket
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from network_runs import authority
from page_programs import PORT, pair, program
from protocol_runs import assert_blames
from two_ends import awaited
from two_ends import both_ends as both

from xclp_crypto import Identities, IdentityKey, aio, cross_distances, wire
from xclp_crypto.errors import (
    ParameterError,
    PrivacyWarning,
    ProtocolError,
    Stalled,
    TooFewParties,
    XclpError,
)
from xclp_crypto.primitives.key_agreement import KeyPair
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_crypto.protocols.hamming.interface import DistanceShares
from xclp_crypto.protocols.hamming.plain import PlainBits
from xclp_crypto.protocols.ot import Choices, naor_pinkas
from xclp_crypto.protocols.setup.key_exchange import _signed_hello
from xclp_crypto.protocols.setup.messages import Directory, Hello
from xclp_crypto.protocols.setup.seed_agreement import SeedShare
from xclp_crypto.rng import SeededRng, SystemRng
from xclp_crypto.transport.stream import FRAME, TO_ALL, SocketDriver
from xclp_crypto.transport.tls import make_authority
from xclp_crypto.two_party import solvable_rows

# Small vectors are soon solved for, which is not what most of these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore::xclp_crypto.errors.PrivacyWarning")

DOCS = Path(__file__).parents[2] / "docs"
RNG = np.random.default_rng(0)
MINE, THEIRS = RNG.integers(0, 2, (5, 70)), RNG.integers(0, 2, (3, 70))
LARGE = PlainBits(np.zeros((8, 32768), np.uint8))  # 32 KiB
TWO_PARTY = sorted(b.name for b in BACKENDS.values() if b.trust == "2pc")


def expected(a, b):
    return (a[:, None] != b[None]).sum(axis=2)


def by_asyncio(parties, roles, sock, **options):
    """Run roles over the streams that are made of a socket."""
    return awaited(lambda streams: aio.StreamDriver(streams, parties, **options).run(roles))(sock)


def by_socket(parties, roles, sock, **options):
    return SocketDriver(sock, parties, **options).run(roles)


DOORS = pytest.mark.parametrize(
    "door", [cross_distances, awaited(aio.cross_distances)], ids=["socket", "asyncio"]
)
DRIVERS = pytest.mark.parametrize("drive", [by_socket, by_asyncio], ids=["socket", "asyncio"])


def cross(mine=MINE, theirs=THEIRS, receiver=(), sender=(), **common):
    """Run both ends, which may have options of their own; return results or errors."""
    return both(
        lambda s: cross_distances(mine, s, receives=True, **common, **dict(receiver)),
        lambda s: cross_distances(theirs, s, receives=False, **common, **dict(sender)),
    )


@pytest.mark.parametrize("backend", TWO_PARTY)
def test_two_programs_get_exact_cross_distances(backend):
    mine, theirs = (
        (MINE[:, :20], THEIRS[:, :20]) if backend.startswith("paillier") else (MINE, THEIRS)
    )
    received, sent = cross(mine, theirs, backend=backend)
    assert (received[0] == expected(mine, theirs)).all()
    assert sent[0] is None
    assert received[1].total_bytes > 0


@pytest.mark.parametrize(("rows", "others"), [(0, 3), (3, 0), (1, 1), (200, 130)])
def test_sizes(rows, others):
    a, b = RNG.integers(0, 2, (rows, 33)), RNG.integers(0, 2, (others, 33))
    received, _ = cross(a, b)
    assert received[0].shape == (rows, others)
    assert (received[0] == expected(a, b)).all()


def test_the_sender_does_not_reveal_distances_between_its_own_rows(monkeypatch):
    seen = []
    decode = wire.decode_body

    def spy(kind, data, **dims):
        message = decode(kind, data, **dims)
        if isinstance(message, DistanceShares):
            seen.append(message)
        return message

    monkeypatch.setattr(wire, "decode_body", spy)
    cross()
    assert len(seen) == 2
    assert all(not message.local.any() for message in seen)
    assert expected(THEIRS, THEIRS).any()  # there was something to hide


@pytest.mark.parametrize("backend", sorted(set(BACKENDS) - set(TWO_PARTY)))
def test_back_ends_that_are_not_private_between_two_programs_are_refused(backend):
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ParameterError, match="not private between two programs"):
        cross_distances(MINE, ours, receives=True, backend=backend)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"theirs": THEIRS[:, :60]}, "n_bits (here 70)"),
        ({"sender": {"backend": "shade-ext"}}, "hamming (here 'rlwe')"),
    ],
)
def test_user_case_both_programs_learn_which_parameters_differ(options, why):
    received, sent = cross(**options)
    assert_blames(received, ("sender",), why)
    assert str(sent) == (
        "sender stalled in step 'setup': no Directory from server, which runs in the other "
        f"program; the other program says: {received}"
    )


def test_user_case_transfers_of_another_sid_are_an_error_in_both_programs():
    """The sender tells that the receiver ended, and why."""

    def transfer(name, sending, receiving):
        def role(io):
            return naor_pinkas(io, sending, receiving, name.encode(), SystemRng())

        return lambda sock: SocketDriver(sock, ["r", "s"]).run({name: role}).raise_errors()

    received, sent = both(
        transfer("r", {}, {"s": Choices(np.zeros(1, bool), 1)}),
        transfer("s", {"r": np.zeros((1, 2, 1), np.uint8)}, {}),
    )
    assert_blames(received, ("s",), "sid")
    assert sent.missing == ("r",)
    assert f"the other program says: {received}" in str(sent)


def test_what_the_other_program_says_is_one_line_of_few_characters():
    def says(text):
        def run(sock):
            sock.sendall(FRAME.pack(len(text), 0, 1, TO_ALL) + text)

        return both(lambda s: cross_distances(MINE, s, receives=True), run)[0]

    assert "the other program says: a\ufffd b [31m)" in str(says(b"a\xff\nb\x1b[31m"))
    assert_blames(says(b"x" * 1025), ("sender",), "a frame of 1025 bytes; at most 1024 are")


def test_two_receivers_or_two_senders_do_not_hang():
    for receives in (True, False):
        results = both(
            lambda s, r=receives: cross_distances(MINE, s, receives=r, timeout=0.5),
            lambda s, r=receives: cross_distances(THEIRS, s, receives=r, timeout=0.5),
        )
        assert all(isinstance(r, ProtocolError) for r in results)
        for told in ("check that the programs run different parties", "in the same order"):
            assert all(told in str(r) for r in results)


@DOORS
def test_a_program_that_hangs_up_is_noticed(door):
    for received in (0, FRAME.size - 1, FRAME.size + 3):

        def hang_up(sock, received=received):
            sock.sendall((FRAME.pack(100, 1, 1, 0) + bytes(100))[:received])

        result, _ = both(lambda s: door(MINE, s, receives=True), hang_up)
        assert isinstance(result, TooFewParties)
        assert "(the other program closed the connection, see its error" in str(result)
        assert ("check that the programs run different parties" in str(result)) == (received == 0)


@DOORS
def test_a_connection_that_breaks_is_told_from_one_that_is_closed(door):
    """Whoever closes without reading what has arrived resets a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    ours.sendall(b"unread")
    theirs.recv(1)
    theirs.close()
    with ours, pytest.raises(TooFewParties, match=r"\(the connection broke \(.+\), see the other"):
        door(MINE, ours, receives=True)


@DOORS
def test_a_silent_program_is_given_up_after_the_timeout(door):
    for receives in (True, False):
        ours, theirs = socket.socketpair()
        with ours, theirs, pytest.raises(ProtocolError) as caught:
            door(MINE, ours, receives=receives, timeout=0.2)
        assert "nothing came from the other program for 0.2 s" in str(caught.value)
        # the sender speaks first: a silent one may be a second receiver
        assert ("check that the programs run different parties" in str(caught.value)) == receives


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (FRAME.pack((1 << 30) + 1, 0, 1, 0), "at most 1073741824"),
        (FRAME.pack(4, 0, 0, 0), "which does not run there"),
        (FRAME.pack(4, 0, 9, 0), "which does not run there"),
        (FRAME.pack(4, 0, 1, 1), "which does not run here"),
        (FRAME.pack(4, 0, 1, 9), "which does not run here"),
    ],
)
def test_impossible_frames_are_refused(header, words):
    result, _ = both(
        lambda s: cross_distances(MINE, s, receives=True), lambda s: s.sendall(header + b"abcd")
    )
    assert_blames(result, ("sender",), words)


@DRIVERS
def test_a_program_that_does_not_read_is_given_up(drive):
    """There is more to say than the connection holds, and nobody listens."""

    async def talker(io):
        for _ in range(50):
            await io.send("b", LARGE)
        await io.recv(SeedShare, "b")

    ours, theirs = socket.socketpair()
    with ours, theirs:
        outcome = drive(("a", "b"), {"a": talker}, ours, timeout=0.2)
    assert isinstance(outcome.errors["a"], Stalled)
    assert "nothing came from the other program for 0.2 s" in str(outcome.errors["a"])


def test_rows_that_can_be_solved_for_give_a_warning_and_can_be_refused():
    count = solvable_rows(70)
    assert count == 23
    many = RNG.integers(0, 2, (count, 70))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross(many)
    assert [w.category for w in caught] == [PrivacyWarning]
    assert "can be solved for" in str(caught[0].message)
    received, sent = cross(sender={"at_most_rows": 4})
    assert isinstance(sent, ParameterError)
    assert str(sent) == "the receiver has 5 rows, and the sender says at_most_rows = 4"
    assert f"the other program says: {sent}" in str(received)


def test_limit_as_many_rows_as_bits_reveal_the_others_rows():
    """What the warning is about: distances to unit vectors are the bits."""
    probes = np.vstack([np.zeros((1, 70), dtype=int), np.eye(70, dtype=int)])
    received, _ = cross(probes)
    distances = received[0].astype(int)
    assert ((distances[0] - distances[1:] + 1) // 2 == THEIRS.T).all()


@pytest.mark.parametrize("how", ["socket", "asyncio"])
def test_tls_with_certificates_on_both_sides(how, tmp_path):
    tls = authority(tmp_path / "certs", ["sender"])
    # large enough for both directions to be busy at once
    a, b = RNG.integers(0, 2, (150, 4096)), RNG.integers(0, 2, (140, 4096))

    def receiver(sock):
        with tls("server").wrap_socket(sock, server_side=True) as secure:
            return cross_distances(a, secure, receives=True)

    def sender(sock):
        if how == "asyncio":
            door = awaited(aio.cross_distances, ssl=tls("sender"), server_hostname="localhost")
            return door(b, sock, receives=False)
        with tls("sender").wrap_socket(sock, server_hostname="localhost") as secure:
            return cross_distances(b, secure, receives=False)

    received, _ = both(receiver, sender)
    assert (received[0] == a @ (1 - b).T + (1 - a) @ b.T).all()


@pytest.mark.parametrize("at", [0, 40, 200, 600, 5000])
def test_a_byte_altered_on_the_connection_is_noticed(at):
    """Everything after the first messages is sealed; the first are bound into all keys."""

    class Altering(socket.socket):
        seen = 0

        def send(self, data):
            sent = bytearray(data)
            if self.seen <= at < self.seen + len(sent):
                sent[at - self.seen] ^= 0x40
            count = super().send(sent)
            self.seen += count
            return count

    def sender(sock):
        with Altering(fileno=socket.dup(sock.fileno())) as altering:
            return cross_distances(THEIRS, altering, receives=False, timeout=0.5)

    received, _ = both(lambda s: cross_distances(MINE, s, receives=True, timeout=0.5), sender)
    # the depth in a frame counts rounds only
    assert isinstance(received, XclpError) or (received[0] == expected(MINE, THEIRS)).all()
    if at >= 600:
        assert isinstance(received, XclpError)


KEYS = {name: IdentityKey.generate(SeededRng(9).child(name)) for name in ("receiver", "sender")}
PINNED = {name: key.public for name, key in KEYS.items()}


def pins(name, **others):
    return Identities(KEYS[name], {**PINNED, **others})


def with_pins(receiver, sender):
    return cross(receiver={"identities": receiver}, sender={"identities": sender})


def test_two_programs_that_pin_each_other_get_the_same_distances():
    received, sent = with_pins(pins("receiver"), pins("sender"))
    assert (received[0] == expected(MINE, THEIRS)).all()
    assert sent[0] is None


def test_two_programs_that_pin_other_keys_do_not_get_to_the_distances():
    stranger = IdentityKey(bytes(32))
    received, sent = with_pins(pins("receiver"), pins("sender", receiver=stranger.public))
    assert_blames(received, ("sender",), "must agree on identity of receiver (here")
    assert isinstance(sent, ProtocolError)
    own = Identities(stranger, PINNED)
    received, sent = with_pins(own, pins("sender"))
    assert isinstance(received, ParameterError)
    assert "own key of receiver" in str(received)
    assert isinstance(sent, ProtocolError)
    received, sent = with_pins(Identities(KEYS["receiver"], {}), pins("sender"))
    assert isinstance(received, ParameterError)
    assert "no identity is pinned for 'receiver'" in str(received)
    for held in ((pins("receiver"), None), (None, pins("sender"))):
        assert all(isinstance(r, ProtocolError) for r in with_pins(*held))


def in_the_middle(change, receiver, sender):
    """Run both ends with a program between, which may change the payload of each frame."""

    def forward(source, target):
        """Pass on what `source` sends until it stops or `target` has gone."""
        buffer = bytearray()
        with suppress(OSError):
            while data := source.recv(1 << 16):
                buffer += data
                while len(buffer) >= FRAME.size:
                    size, *rest = FRAME.unpack_from(buffer)
                    if len(buffer) < FRAME.size + size:
                        break
                    payload = change(bytes(buffer[FRAME.size : FRAME.size + size]))
                    del buffer[: FRAME.size + size]
                    target.sendall(FRAME.pack(len(payload), *rest) + payload)
            target.shutdown(socket.SHUT_WR)

    def sender_behind_relay(sock):
        ours, theirs = socket.socketpair()
        relays = [
            threading.Thread(target=forward, args=ends) for ends in ((sock, theirs), (theirs, sock))
        ]
        for relay in relays:
            relay.start()
        try:
            with ours:
                return cross_distances(THEIRS, ours, receives=False, identities=sender)
        finally:
            for relay in relays:
                relay.join()
            theirs.close()

    return both(
        lambda s: cross_distances(MINE, s, receives=True, identities=receiver), sender_behind_relay
    )


SIGNED = {"receiver": pins("receiver"), "sender": pins("sender")}
HELLO, DIRECTORY = (kind.TAG.to_bytes(2, "big") for kind in (Hello, Directory))
MALLORY = KeyPair(bytes([5]) * 32).public.encode()


def test_a_relay_between_two_programs_that_changes_nothing_is_harmless():
    received, _ = in_the_middle(lambda payload: payload, **SIGNED)
    assert (received[0] == expected(MINE, THEIRS)).all()


def test_who_sits_between_and_swaps_the_senders_key_is_noticed_by_the_receiver():
    def change(payload):
        return payload[:2] + MALLORY + payload[34:] if payload[:2] == HELLO else payload

    received, sent = in_the_middle(change, **SIGNED)
    assert_blames(received, ("sender",), "pinned identity")
    assert isinstance(sent, ProtocolError)


@pytest.mark.parametrize(
    ("keys", "server_key", "words"),
    [
        (True, False, "swapped the key of receiver"),
        (False, True, "pinned identity"),
        (True, True, "swapped the key of receiver"),
    ],
)
def test_who_sits_between_and_swaps_the_receivers_keys_is_noticed_by_the_sender(
    keys, server_key, words
):
    def change(payload):
        if payload[:2] != DIRECTORY:
            return payload
        found = wire.decode(Directory, payload, invited=2, numbers=1, signature=64, kem=1184)
        if keys:
            found = replace(found, keys=(MALLORY, found.keys[1]))
        if server_key:
            found = replace(found, server_key=MALLORY)
        return wire.encode(found)

    _, sent = in_the_middle(change, **SIGNED)
    assert_blames(sent, ("server",), words)


def test_limit_without_identities_whoever_answers_gets_the_distances():
    """The sender means to reach another program; nothing tells it that this one is Mallory's."""
    probes = np.vstack([np.zeros((1, 70), dtype=int), np.eye(70, dtype=int)])
    stolen, sent = cross(probes)
    distances = stolen[0].astype(int)
    assert ((distances[0] - distances[1:] + 1) // 2 == THEIRS.T).all()
    assert sent[0] is None


def test_with_identities_a_program_that_answers_in_the_receivers_place_is_noticed():
    """Mallory knows all pins, which are public, and signs everything with a key of its own."""
    key, parties = IdentityKey(bytes(32)), ("receiver", "sender")

    async def server(io):
        hello = await io.recv(Hello, "sender", agreement=64, numbers=1, signature=64, kem=1184)
        own = replace(hello, key=MALLORY)
        signature = key.sign(_signed_hello("receiver", own, parties))
        await io.send(
            "sender",
            Directory(
                MALLORY,
                np.ones(2, bool),
                (MALLORY, hello.key),
                (hello.kem_key,) * 2,
                (hello.commitment,) * 2,
                (hello.verify_key,) * 2,
                np.array([hello.values, hello.values]),
                (signature, hello.signature),
                key.sign(b"the directory"),
            ),
        )

    async def receiver(io):
        return None

    _, sent = both(
        lambda s: SocketDriver(s, (*parties, "server")).run(
            {"receiver": receiver, "server": server}
        ),
        lambda s: cross_distances(THEIRS, s, receives=False, identities=pins("sender")),
    )
    assert_blames(sent, ("server",), "swapped the key of receiver")


def test_a_sockets_own_timeout_does_not_matter():
    def slow(sock):
        sock.settimeout(0.01)
        result = cross_distances(MINE, sock, receives=True)
        assert sock.gettimeout() == 0.01
        return result

    received, _ = both(slow, lambda s: cross_distances(THEIRS, s, receives=False))
    assert (received[0] == expected(MINE, THEIRS)).all()


def test_only_sockets_are_taken_that_are_open():
    with pytest.raises(ParameterError, match=r"a connected socket is needed, or .*, got str"):
        cross_distances(MINE, "127.0.0.1", receives=True)
    closed = socket.socket()
    closed.close()
    with pytest.raises(ParameterError, match="the socket is closed"):
        cross_distances(MINE, closed, receives=True)


def test_a_socket_serves_one_run():
    def twice(sock, rows, receives):
        result = cross_distances(rows, sock, receives=receives)
        with pytest.raises(ParameterError, match="was used before; one serves one run"):
            cross_distances(rows, sock, receives=receives)
        return result

    received, _ = both(lambda s: twice(s, MINE, True), lambda s: twice(s, THEIRS, False))
    assert (received[0] == expected(MINE, THEIRS)).all()


def test_a_socket_of_a_large_number_is_waited_for_without_end():
    """`select` takes no number above 1023, and no infinity."""

    def receiver(sock):
        with socket.socket(fileno=fcntl.fcntl(sock, fcntl.F_DUPFD, 1100)) as large:
            return cross_distances(MINE, large, receives=True, timeout=float("inf"))

    received, _ = both(receiver, lambda s: cross_distances(THEIRS, s, receives=False))
    assert (received[0] == expected(MINE, THEIRS)).all()


def test_a_socket_that_is_closed_meanwhile_is_a_broken_connection():
    ours, theirs = socket.socketpair()

    async def closes(io):
        await io.compute(ours.close)
        await io.recv(SeedShare, "b")

    with theirs, pytest.raises(Stalled, match=r"the connection broke \("):
        SocketDriver(ours, "ab").run({"a": closes}).raise_errors()


@DRIVERS
def test_much_at_once_in_both_directions_does_not_block(drive):
    count = 50  # well beyond what a socket buffers

    def party(io, me, other):
        async def role():
            for _ in range(count):
                await io.send(other, LARGE)
            for _ in range(count):
                await io.recv(PlainBits, other, rows=8, n_bits=32768)
            return me

        return role()

    def end(me, other):
        return lambda sock: drive(("a", "b"), {me: lambda io: party(io, me, other)}, sock)

    first, second = both(end("a", "b"), end("b", "a"))
    assert first.raise_errors().results == {"a": "a"}
    assert second.raise_errors().results == {"b": "b"}


def test_messages_of_the_other_end_are_handed_over_one_by_one():
    order = []

    async def first(io):
        await io.send("s", SeedShare(bytes(32)))

    async def silent(io):
        pass

    async def server(io):
        def take(party, message):
            order.append((party, message.value[0]))

        return await io.gather_each(SeedShare, ["c", "b", "a"], take, 2)

    def elsewhere(sock):
        return SocketDriver(sock, "abcs").run({"a": first, "b": first, "c": silent})

    received, _ = both(lambda sock: SocketDriver(sock, "abcs").run({"s": server}), elsewhere)
    assert received.raise_errors().results == {"s": ("b", "a")}
    assert order == [("a", 0), ("b", 0)]

    async def refuses(io):
        def take(party, message):
            raise ParameterError(f"refused {party}")

        await io.gather_each(SeedShare, ["a", "b", "c"], take)

    received, _ = both(lambda sock: SocketDriver(sock, "abcs").run({"s": refuses}), elsewhere)
    assert str(received.errors["s"]) == "refused a"


def test_a_driver_must_have_parties_on_both_sides():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for roles, why in (
            ({"a": None, "b": None}, "a, b of the parties a, b would run here; at least one must,"),
            ({}, "none of the parties a, b would run here; at least one must"),
            ({"c": None}, "c: not among the parties a, b"),
        ):
            with pytest.raises(ParameterError, match=why):
                SocketDriver(ours, ("a", "b")).run(roles)
        for timeout in (0, float("nan"), None):
            with pytest.raises(ParameterError, match="timeout must be a positive number"):
                SocketDriver(ours, ("a", "b"), timeout=timeout)


def test_the_same_seed_gives_the_same_bytes():
    costs = [
        cross(receiver={"rng": SeededRng(1)}, sender={"rng": SeededRng(2)})[0][1] for _ in range(2)
    ]
    assert costs[0].bytes_by_link() == costs[1].bytes_by_link()


def two_programs(receiver, sender, folder):
    """Run two programs in a folder, by threads, the listening one first; return their errors."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    receiver, sender = (b.replace(PORT, port) for b in (receiver, sender))
    listening = threading.Event()
    receiver = receiver.replace("    sock, _ =", "    listening.set()\n    sock, _ =")
    with chdir(folder), ThreadPoolExecutor() as programs:
        received = programs.submit(exec, receiver, {"listening": listening})
        assert listening.wait(30)
        sent = programs.submit(exec, sender, {})
        return received.exception(), sent.exception()


@pytest.mark.parametrize("page", ["distances", "channels", "transfers"])
def test_the_pairs_of_programs_of_the_documentation_run(page, tmp_path, capsys):
    receiver, sender = pair(page)
    assert all(len(b.splitlines()) <= 25 for b in (receiver, sender))
    make_authority(tmp_path / "certs", ["sender"], ["127.0.0.1"])
    assert two_programs(receiver, sender, tmp_path) == (None, None)
    printed = capsys.readouterr().out
    if page == "transfers":
        assert printed == "[0 3 4 7]\n"
        return
    mine = np.random.default_rng(1).integers(0, 2, (5, 256))
    theirs = np.random.default_rng(2).integers(0, 2, (3, 256))
    assert printed.startswith(str(expected(mine, theirs)))


def test_a_certificate_of_another_authority_is_refused_by_the_example(tmp_path, capsys):
    receiver, sender = pair("channels")
    for folder in ("certs", "others"):
        make_authority(tmp_path / folder, ["sender"], ["127.0.0.1"])
    stranger = sender.replace('certs / "sender', 'Path("others") / "sender')
    error, refused = two_programs(receiver, stranger, tmp_path)
    assert capsys.readouterr().out == ""
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)
    assert "the connection broke" in str(refused)


def test_the_identity_keys_of_the_documentation_work(capsys):
    names = {}
    exec(program("channels"), names)  # noqa: S102  # the documentation's own example
    assert capsys.readouterr().out == names["key"].public.to_text() + "\n"
    assert names["mine"].own.public == names["mine"].of("receiver") == names["key"].public
    assert names["mine"].own.export_private() == names["secret"]


def test_the_back_end_of_the_documentation_works():
    text = (DOCS / "understand" / "design.md").read_text("utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    # in a process of its own, because its messages register their tags for good
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)  # noqa: S603
