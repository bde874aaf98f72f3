"""Two programs in threads of this process, at the ends of one connection."""

import asyncio
import socket
import threading
from contextlib import suppress

from xclp_crypto import aio
from xclp_crypto.errors import XclpError


def both_ends(receiver, sender):
    """Run both ends, each given its socket, the second in a thread; return results or errors."""
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


def both(door, mine, theirs, receiver, sender):
    """Run both ends of a door; return results or errors.

    `mine` and `theirs` are its arguments before the socket, a tuple if there are several.
    """
    mine, theirs = (x if isinstance(x, tuple) else (x,) for x in (mine, theirs))
    return both_ends(
        lambda sock: door(*mine, sock, receives=True, timeout=20, **receiver),
        lambda sock: door(*theirs, sock, receives=False, timeout=20, **sender),
    )


def awaited(call, **tls):
    """Return what makes streams of a socket, the last argument, and awaits a call with them."""

    def run(*args, **options):
        async def main():
            *others, sock = args
            streams = aio.Streams(*await asyncio.open_connection(sock=sock, **tls))
            try:
                return await call(*others, streams, **options)
            finally:
                streams.writer.close()
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(0.2):
                        await streams.writer.wait_closed()
                streams.writer.transport.abort()
                await asyncio.sleep(0)

        return asyncio.run(main())

    return run
