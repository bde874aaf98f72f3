"""Two programs over streams of asyncio: as over sockets, while the event loop goes on."""

import asyncio
import socket
import threading

import numpy as np
import pytest
from two_ends import awaited, both, both_ends

import xclp_crypto
from xclp_crypto import aio
from xclp_crypto.errors import ParameterError
from xclp_crypto.protocols.setup.seed_agreement import SeedShare
from xclp_crypto.rng import SeededRng

RNG = np.random.default_rng(0)
MINE, THEIRS = RNG.integers(0, 2, (2, 3, 20))
SHARE = SeedShare(bytes(32))


async def streams_of(sock):
    return aio.Streams(*await asyncio.open_connection(sock=sock))


def test_every_function_of_two_programs_can_be_awaited():
    assert [n for n in aio.__all__ if n.startswith("cross")] == [
        n for n in dir(xclp_crypto) if n.startswith("cross")
    ]


@pytest.mark.parametrize(
    ("name", "options"), [("cross_matches", {"at_most": 9}), ("cross_masked_distances", {})]
)
def test_what_is_awaited_gives_and_sends_what_it_does_over_a_socket(name, options):
    mine, theirs = (MINE, THEIRS) if options else ((MINE, MINE), (THEIRS, MINE))

    def run(door):
        ends = [options | {"rng": SeededRng(seed)} for seed in (1, 2)]
        return both(door, mine, theirs, *ends)

    (found, cost), _ = run(getattr(xclp_crypto, name))
    (again, same), sent = run(awaited(getattr(aio, name)))
    assert np.array_equal(found, again)
    assert sent[0] is None
    assert same.bytes_by_link() == cost.bytes_by_link()


def test_the_event_loop_goes_on_while_a_role_computes_and_progress_shows_in_it():
    """The computation ends when something else in the loop has run; both ends are in one loop."""
    shown = []

    async def main():
        loop, go_on = asyncio.get_running_loop(), threading.Event()

        def show(progress):
            shown.append((progress.activity, asyncio.get_running_loop() is loop))
            loop.call_soon(go_on.set)

        def wait_for_the_loop():
            return go_on.wait(20)

        async def first(io):
            assert await io.compute(wait_for_the_loop)
            await io.send("b", SHARE)

        async def second(io):
            return (await io.recv(SeedShare, "a")).value

        ends = [await streams_of(sock) for sock in socket.socketpair()]
        roles = {"a": first}, {"b": second}
        outcomes = await asyncio.gather(
            *(
                aio.StreamDriver(streams, "ab", progress=show).run(role)
                for streams, role in zip(ends, roles, strict=True)
            )
        )
        with pytest.raises(ParameterError, match="was used before; one serves one run"):
            await aio.StreamDriver(ends[0], "ab").run(roles[0])
        for streams in ends:
            streams.writer.close()
            await streams.writer.wait_closed()
        return outcomes[1].raise_errors().results["b"]

    assert asyncio.run(main()) == SHARE.value
    assert shown == [("wait for the loop", True)]


@pytest.mark.parametrize("busy", [False, True])
def test_a_call_that_is_cancelled_ends_and_the_other_program_notices(busy):
    """Whether it waits for the other one, or computes, and would wait then."""
    ours, theirs = socket.socketpair()
    left, computes = threading.Event(), threading.Event()

    def compute():
        computes.set()
        return left.wait(20)

    async def role(io):
        if busy:
            await io.compute(compute)
        await io.recv(SeedShare, "b")

    async def main():
        streams = await streams_of(ours)
        run = asyncio.create_task(aio.StreamDriver(streams, "ab").run({"a": role}))
        await asyncio.sleep(0.05)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        left.set()
        assert await asyncio.to_thread(theirs.recv, 1) == b""
        assert not asyncio.all_tasks() - {asyncio.current_task()}  # nobody reads any more
        streams.writer.close()
        await streams.writer.wait_closed()

    with theirs:
        asyncio.run(main())
    assert computes.is_set() == busy


def test_what_would_wait_for_itself_or_is_none_of_asyncio_is_refused():
    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            streams = await streams_of(ours)
            with pytest.raises(ParameterError, match=r"await the function .* in xclp_crypto\.aio"):
                xclp_crypto.cross_distances(MINE, streams, receives=True)
            with pytest.raises(ParameterError, match="takes Streams"):
                await aio.cross_distances(MINE, theirs, receives=True)
            with pytest.raises(ParameterError, match="a StreamWriter is needed, got StreamReader"):
                aio.Streams(streams.reader, streams.reader)
            streams.writer.close()
            await streams.writer.wait_closed()
        return streams

    streams = asyncio.run(main())
    with pytest.raises(ParameterError, match="in the event loop of their connection"):
        aio.Streams(streams.reader, streams.writer)


def test_a_loop_that_has_ended_ends_the_run_in_another_thread():
    ours, theirs = socket.socketpair()

    async def main():
        streams = await streams_of(ours)
        streams.writer.close()
        await streams.writer.wait_closed()
        return streams

    with theirs, pytest.raises(ParameterError, match="the event loop of these streams has ended"):
        xclp_crypto.cross_distances(MINE, asyncio.run(main()), receives=True)


def test_a_function_that_takes_a_socket_works_while_an_event_loop_is_running():
    async def in_a_cell(sock):
        return xclp_crypto.cross_distances(MINE, sock, receives=True)

    (found, _), _ = both_ends(
        lambda sock: asyncio.run(in_a_cell(sock)),
        lambda sock: xclp_crypto.cross_distances(THEIRS, sock, receives=False),
    )
    assert np.array_equal(found, (MINE[:, None] != THEIRS[None]).sum(axis=2))
