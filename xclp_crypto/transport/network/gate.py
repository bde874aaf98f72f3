"""Connections until they have said which client they are: few at a time, and briefly.

A connection that says nothing costs a socket and no buffer. TLS begins with its first byte. Where
too many wait, in all or from one address, the one goes that has waited longest, of the address with
most: so whoever opens thousands keeps nobody else out for longer than a handshake takes. An honest
client that goes with them connects again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from xclp_crypto.transport.network.party import BROKEN, cancel
from xclp_crypto.transport.tls import reason_of

HANDSHAKE_SECONDS: Final = 5.0
"""For the first byte and the handshake; and again for saying which client it is."""

MOST: Final = 128
"""Connections that have not said who they are, at most; each has some 350 kB once TLS begins."""

MOST_OF_ADDRESS: Final = 32
"""The same of one address."""

_BACKLOG: Final = 512
_LINES: Final = 10
_LINES_SECONDS: Final = 60.0

_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

_logger = logging.getLogger(__name__)

Serve = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter, Callable[[], None]], Coroutine[Any, Any, None]
]
"""Serves a connection until it ends, and calls the last argument when it knows who it is."""


async def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of a host; with port 0 on a free one of the first.

    Raises:
        OSError: nobody can listen there.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    refused: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        if port == 0 and listeners:
            break
        try:
            listener = socket.create_server(address, family=family, backlog=_BACKLOG)
        except OSError as error:
            refused = error
            if error.errno in _NOT_HERE:  # such as ::1 where there is no IPv6
                continue
            break
        listener.setblocking(False)
        listeners.append(listener)
    if refused is not None and (not listeners or refused.errno not in _NOT_HERE):
        for listener in listeners:
            listener.close()
        raise refused
    return listeners


@dataclass(frozen=True, slots=True)
class _Waiting:
    address: str
    task: asyncio.Task[None]


class Gate:
    """Lets connections in.

    Args:
        tls: of the server.
        serve: what becomes of a connection after its handshake.
    """

    def __init__(self, tls: ssl.SSLContext, serve: Serve) -> None:
        self._tls, self._serve = tls, serve
        self._waiting: dict[socket.socket, _Waiting] = {}  # the oldest first
        self._accepting: list[asyncio.Task[None]] = []
        self._listeners: list[socket.socket] = []
        self._lines: deque[float] = deque()
        self._left_out = 0

    def open(self, listeners: list[socket.socket]) -> None:
        """Begin to accept connections."""
        self._listeners = listeners
        self._accepting = [asyncio.create_task(self._accept(each)) for each in listeners]

    async def close(self) -> None:
        """Accept none any more, and end those that have not said who they are."""
        await cancel([*self._accepting, *(each.task for each in self._waiting.values())])
        for listener in self._listeners:
            listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, (address, *_) = await loop.sock_accept(listener)
            except OSError as error:  # it is gone already; or there are no descriptors left
                self._note("connection refused", error)
                await asyncio.sleep(0.1)
                continue
            self._make_room(address)
            known = partial(self._known, connection)
            task = asyncio.create_task(self._admit(connection, known))
            self._waiting[connection] = _Waiting(address, task)
            task.add_done_callback(partial(self._ended, connection))

    def _make_room(self, address: str) -> None:
        """End the connection that has waited longest, where too many wait."""
        of_address = Counter(each.address for each in self._waiting.values())
        if of_address[address] < MOST_OF_ADDRESS:
            if len(self._waiting) < MOST:
                return
            ((address, _),) = of_address.most_common(1)
        oldest = next(c for c, each in self._waiting.items() if each.address == address)
        self._waiting.pop(oldest).task.cancel()
        self._note("connection refused", "too many have not said who they are")

    def _known(self, connection: socket.socket) -> None:
        self._waiting.pop(connection, None)

    def _ended(self, connection: socket.socket, _: asyncio.Task[None]) -> None:
        """Close a connection, also one whose task was cancelled before it ran."""
        self._known(connection)
        connection.close()

    async def _admit(self, connection: socket.socket, known: Callable[[], None]) -> None:
        """Shake hands, and serve the connection."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await _readable(connection)
                reader, writer = await self._shake_hands(connection)
        except BROKEN as error:
            self._note("TLS handshake failed", error)
        else:
            await self._serve(reader, writer, known)

    async def _shake_hands(
        self, connection: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._tls,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _note(self, event: str, reason: Exception | str) -> None:
        """Log what somebody unknown does: a few lines a minute, and how many were left out."""
        now = asyncio.get_running_loop().time()
        while self._lines and now - self._lines[0] > _LINES_SECONDS:
            self._lines.popleft()
        if len(self._lines) >= _LINES:
            self._left_out += 1
            return
        self._lines.append(now)
        text = reason if isinstance(reason, str) else reason_of(reason)
        _logger.warning(event, extra={"reason": text, "left_out": self._left_out})
        self._left_out = 0


async def _readable(connection: socket.socket) -> None:
    """Wait until there is something to read, without a buffer for it."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        with suppress(ValueError):  # it is closed
            loop.remove_reader(connection)
