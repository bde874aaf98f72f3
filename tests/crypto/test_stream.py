"""Two programs over a connection: exact, private from each other's own distances, never hanging."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from xclp_crypto import cross_distances
from xclp_crypto.errors import FaultyPeer, ParameterError, ProtocolError, XclpError
from xclp_crypto.protocols.hamming import BACKENDS
from xclp_crypto.protocols.hamming.interface import DistanceShares
from xclp_crypto.protocols.setup.seed_agreement import SeedShare
from xclp_crypto.rng import SeededRng
from xclp_crypto.transport.stream import FRAME, SocketDriver

DOCS = Path(__file__).parents[2] / "docs"
RNG = np.random.default_rng(0)
MINE, THEIRS = RNG.integers(0, 2, (5, 70)), RNG.integers(0, 2, (3, 70))
TWO_PARTY = sorted(b.name for b in BACKENDS.values() if b.trust == "2pc")


def expected(a, b):
    return (a[:, None] != b[None]).sum(axis=2)


def both(receiver, sender):
    """Run both ends, one in a thread; return their results or errors."""
    ours, theirs = socket.socketpair()
    results = {}

    def run(name, action, sock):
        with sock:
            try:
                results[name] = action(sock)
            except XclpError as error:
                results[name] = error

    thread = threading.Thread(target=run, args=("sender", sender, theirs))
    thread.start()
    run("receiver", receiver, ours)
    thread.join()
    return results["receiver"], results["sender"]


@pytest.mark.parametrize("backend", TWO_PARTY)
def test_two_programs_get_exact_cross_distances(backend):
    mine, theirs = (
        (MINE[:, :20], THEIRS[:, :20]) if backend.startswith("paillier") else (MINE, THEIRS)
    )
    received, sent = both(
        lambda s: cross_distances(mine, s, receives=True, backend=backend),
        lambda s: cross_distances(theirs, s, receives=False, backend=backend),
    )
    assert (received[0] == expected(mine, theirs)).all()
    assert sent[0] is None
    assert received[1].total_bytes > 0


@pytest.mark.parametrize(("rows", "others"), [(0, 3), (3, 0), (1, 1), (200, 130)])
def test_sizes(rows, others):
    a, b = RNG.integers(0, 2, (rows, 33)), RNG.integers(0, 2, (others, 33))
    received, _ = both(
        lambda s: cross_distances(a, s, receives=True),
        lambda s: cross_distances(b, s, receives=False),
    )
    assert received[0].shape == (rows, others)
    assert (received[0] == expected(a, b)).all()


def test_the_sender_does_not_reveal_distances_between_its_own_rows(monkeypatch):
    seen = []
    original = DistanceShares.read.__func__

    def spy(cls, data, **dims):
        message = original(cls, data, **dims)
        seen.append(message)
        return message

    monkeypatch.setattr(DistanceShares, "read", classmethod(spy))
    both(
        lambda s: cross_distances(MINE, s, receives=True),
        lambda s: cross_distances(THEIRS, s, receives=False),
    )
    assert len(seen) == 2
    assert all(not message.local.any() for message in seen)
    assert expected(THEIRS, THEIRS).any()  # there was something to hide


@pytest.mark.parametrize("backend", sorted(set(BACKENDS) - set(TWO_PARTY)))
def test_back_ends_that_are_not_private_between_two_programs_are_refused(backend):
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ParameterError, match="not private between two programs"):
        cross_distances(MINE, ours, receives=True, backend=backend)


def test_other_parameters_are_named():
    received, sent = both(
        lambda s: cross_distances(MINE, s, receives=True),
        lambda s: cross_distances(THEIRS[:, :60], s, receives=False),
    )
    assert isinstance(received, FaultyPeer)
    assert received.parties == ("sender",)
    assert "n_bits" in str(received)
    assert isinstance(sent, ProtocolError)


def test_two_receivers_or_two_senders_do_not_hang():
    for receives in (True, False):
        results = both(
            lambda s, r=receives: cross_distances(MINE, s, receives=r, timeout=5),
            lambda s, r=receives: cross_distances(THEIRS, s, receives=r, timeout=5),
        )
        assert all(isinstance(r, XclpError) for r in results)


def test_a_program_that_hangs_up_is_noticed():
    for received in (0, FRAME.size - 1, FRAME.size + 3):

        def hang_up(sock, received=received):
            sock.sendall((FRAME.pack(100, 1, 1, 0) + bytes(100))[:received])

        result, _ = both(lambda s: cross_distances(MINE, s, receives=True), hang_up)
        assert isinstance(result, ProtocolError)


def test_a_silent_program_is_given_up_after_the_timeout():
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ProtocolError):
        cross_distances(MINE, ours, receives=True, timeout=0.2)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (FRAME.pack((1 << 31) + 1, 0, 1, 0), "at most 2147483648"),
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
    assert isinstance(result, FaultyPeer)
    assert result.parties == ("sender",)
    assert words in str(result)


def test_much_at_once_in_both_directions_does_not_block():
    payload = SeedShare(bytes(32))
    count = 30_000  # well beyond what a socket buffers

    def party(io, me, other):
        async def role():
            for _ in range(count):
                await io.send(other, payload)
            for _ in range(count):
                await io.recv(SeedShare, other)
            return me

        return role()

    def end(me, other):
        return lambda sock: SocketDriver(sock, ("a", "b")).run(
            {me: lambda io: party(io, me, other)}
        )

    first, second = both(end("a", "b"), end("b", "a"))
    assert first.raise_errors().results == {"a": "a"}
    assert second.raise_errors().results == {"b": "b"}


def test_a_driver_must_have_parties_on_both_sides():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for roles in ({"a": None, "b": None}, {"c": None}):
            with pytest.raises(ParameterError, match="some, not all"):
                SocketDriver(ours, ("a", "b")).run(roles)
        with pytest.raises(ParameterError, match="timeout must be positive"):
            SocketDriver(ours, ("a", "b"), timeout=0)


def test_the_same_seed_gives_the_same_bytes():
    costs = [
        both(
            lambda s: cross_distances(MINE, s, receives=True, rng=SeededRng(1)),
            lambda s: cross_distances(THEIRS, s, receives=False, rng=SeededRng(2)),
        )[0][1]
        for _ in range(2)
    ]
    assert costs[0].bytes_by_link() == costs[1].bytes_by_link()


def test_the_example_of_the_documentation_runs_as_two_processes():
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "crypto.md").read_text("utf-8"), re.DOTALL)
    receiver, sender = blocks[:2]
    assert all(len(b.splitlines()) <= 20 for b in (receiver, sender))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    receiver, sender = (b.replace("9473", port) for b in (receiver, sender))
    # the listener exists before it says so, and only then the sender starts
    receiver = receiver.replace("    sock, _ =", "    print('ready', flush=True)\n    sock, _ =")
    server = subprocess.Popen(  # noqa: S603  # the documentation's own example
        [sys.executable, "-c", receiver], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    subprocess.run([sys.executable, "-c", sender], check=True, timeout=60)  # noqa: S603
    printed, _ = server.communicate(timeout=60)
    mine = np.random.default_rng(1).integers(0, 2, (5, 256))
    theirs = np.random.default_rng(2).integers(0, 2, (3, 256))
    assert server.returncode == 0
    assert printed.startswith(str(expected(mine, theirs)))


def test_the_back_end_of_the_documentation_works():
    text = (DOCS / "adding-a-protocol.md").read_text("utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    # in a process of its own, because its messages register their tags for good
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)  # noqa: S603
