"""The functions of two programs for asyncio: under the same names, awaited, over its streams.

    from xclp_crypto import aio

    streams = aio.Streams(*await asyncio.open_connection("127.0.0.1", 9473))
    distances, cost = await aio.cross_distances(mine, streams, receives=True)
    streams.writer.close()
    await streams.writer.wait_closed()

Arguments, results and errors are those of the function that is awaited, and so are the bytes: the
other program may use a socket. The protocol runs in a thread of its own, so that the event loop
goes on while it computes; `progress` is called in the event loop. A call that is cancelled, also by
`asyncio.timeout`, raises what asyncio raises; its thread ends when it would send or wait next, and
the other program finds the connection closed.

`StreamDriver` runs roles of your own, as `xclp_crypto.transport.stream.SocketDriver` does over a
socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from xclp_crypto import two_party, two_party_similarity
from xclp_crypto.errors import ParameterError
from xclp_crypto.transport.driver import Progress, Role
from xclp_crypto.transport.simulate import Outcome
from xclp_crypto.transport.stream import SocketDriver
from xclp_crypto.transport.streams import Streams

P = ParamSpec("P")
R = TypeVar("R")

__all__ = [
    "StreamDriver",
    "Streams",
    "cross_distances",
    "cross_inner_products",
    "cross_masked_distances",
    "cross_masked_matches",
    "cross_matches",
    "cross_nearest",
    "cross_similarities",
]


async def _beside(streams: Streams, work: Callable[[], R]) -> R:
    """Run what uses these streams in a thread of its own, and wait for it."""
    thread = ThreadPoolExecutor(1)  # shared ones might all wait for parties that wait for a thread
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, work)
    except asyncio.CancelledError:
        streams.cancel()
        raise
    finally:
        thread.shutdown(wait=False)


class StreamDriver:
    """Driver for the parties of this process, with streams to all the others.

    Args:
        streams: to the other program.
        parties: all parties, in the order that both ends agree on.
        timeout: see `xclp_crypto.transport.stream.SocketDriver`.
        progress: called before each computation, in the event loop.

    Raises:
        ParameterError: these are not streams, or the timeout is not positive.
    """

    def __init__(
        self,
        streams: Streams,
        parties: Sequence[str],
        *,
        timeout: float = 60.0,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._streams = _only([streams])
        self._driver = SocketDriver(streams, parties, timeout=timeout, progress=progress)

    async def run(self, roles: Mapping[str, Role]) -> Outcome:
        """Run the parties of this process; see `xclp_crypto.transport.stream.SocketDriver.run`."""
        return await _beside(self._streams, partial(self._driver.run, roles))


def _only(arguments: Sequence[object]) -> Streams:
    """Return the streams among the arguments.

    Raises:
        ParameterError: there are none.
    """
    for argument in arguments:
        if isinstance(argument, Streams):
            return argument
    raise ParameterError(
        "xclp_crypto.aio takes Streams(reader, writer) in the place of a socket, of which "
        "asyncio.open_connection(sock=…) makes them"
    )


def _awaited(door: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    @wraps(door)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        streams = _only([*args, *kwargs.values()])
        return await _beside(streams, partial(door, *args, **kwargs))

    return call


cross_distances = _awaited(two_party.cross_distances)
"""See `xclp_crypto.cross_distances`."""

cross_matches = _awaited(two_party.cross_matches)
"""See `xclp_crypto.cross_matches`."""

cross_nearest = _awaited(two_party.cross_nearest)
"""See `xclp_crypto.cross_nearest`."""

cross_inner_products = _awaited(two_party_similarity.cross_inner_products)
"""See `xclp_crypto.cross_inner_products`."""

cross_similarities = _awaited(two_party_similarity.cross_similarities)
"""See `xclp_crypto.cross_similarities`."""

cross_masked_distances = _awaited(two_party_similarity.cross_masked_distances)
"""See `xclp_crypto.cross_masked_distances`."""

cross_masked_matches = _awaited(two_party_similarity.cross_masked_matches)
"""See `xclp_crypto.cross_masked_matches`."""


def __dir__() -> list[str]:
    return sorted(__all__)
