"""Bytes in both directions between two programs: over a socket, or over streams of asyncio.

A driver runs in one thread, sends, and waits for more: a `Duplex` never waits for one direction
only, so that two programs that send a lot at once do not block each other. Frames are the business
of `stream`.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from typing import Any, Final

from xclp_crypto.errors import ParameterError

CHUNK: Final = 1 << 20
"""Bytes read or written at a time."""

LOOK_SECONDS: Final = 1.0
"""How often a thread that waits for an event loop looks whether that has ended."""

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Streams:
    """A connection of asyncio, which `xclp_crypto.aio` takes where others take a socket.

    Make it where its event loop runs: ``Streams(*await asyncio.open_connection(host, port))``.
    Protocols compute in a thread, so the loop runs on meanwhile. One connection serves one run; the
    caller closes the writer.

    Args:
        reader: of the connection.
        writer: of the same.

    Attributes:
        loop: the event loop.

    Raises:
        ParameterError: no event loop is running here, or these are not a reader and a writer.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not isinstance(reader, asyncio.StreamReader):
            raise ParameterError(f"a StreamReader is needed, got {type(reader).__name__}")
        if not isinstance(writer, asyncio.StreamWriter):
            raise ParameterError(f"a StreamWriter is needed, got {type(writer).__name__}")
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ParameterError("make Streams in the event loop of their connection") from None
        self.reader, self.writer = reader, writer
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """End the run on this connection when it sends or waits next; called in the event loop."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def wait_for(
        self, work: Callable[[], Coroutine[Any, Any, None]], *, last: bool = False
    ) -> None:
        """Have the event loop do something, and wait for it; called in another thread.

        Args:
            work: what.
            last: also after `cancel` was called.

        Raises:
            CancelledError: `cancel` was called, or the loop has ended.
        """

        async def do() -> None:
            if self._cancelled and not last:
                raise asyncio.CancelledError
            self._task = asyncio.current_task()
            try:
                await work()
            finally:
                self._task = None

        task = do()
        try:
            future = asyncio.run_coroutine_threadsafe(task, self.loop)
        except RuntimeError:  # the loop is closed
            task.close()
            raise CancelledError from None
        while not wait([future], LOOK_SECONDS).done:
            if self.loop.is_closed():
                raise CancelledError
        future.result()


Connected = socket.socket | Streams
"""What two programs may be connected by."""


class Duplex(ABC):
    """One run's use of a connection.

    Args:
        timeout: seconds.

    Attributes:
        received: bytes that arrived and were not taken yet.
        used: whether anything was ever sent or received.
        ended: why nothing more will arrive: the other end has stopped sending, the connection
            broke, or nothing moved for `timeout` seconds; empty before.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self.received = bytearray()
        self.used = False
        self.ended = ""

    @abstractmethod
    def open(self) -> None:
        """Begin a run.

        Raises:
            ParameterError: the connection cannot be used, or not here.
        """

    @abstractmethod
    def close(self) -> None:
        """End a run: nothing more is sent."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send all of `data`, reading meanwhile; gives up silently when the connection breaks."""

    @abstractmethod
    def receive(self) -> bool:
        """Wait until more bytes have arrived; false when none will."""

    def _take(self, data: bytes) -> None:
        """Keep what arrived; nothing says that the other end has stopped sending."""
        if not data:
            self.ended = "the other program closed the connection, see its error"
            return
        self.received += data
        self.used = True

    def _broke(self, error: OSError) -> None:
        self.ended = f"the connection broke ({error}), see the other program's error"

    def _nothing_moved(self) -> None:
        self.ended = f"nothing came from the other program for {self._timeout:g} s"


class SocketDuplex(Duplex):
    """A socket, which does not block during the run."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        super().__init__(timeout)
        self._socket = sock

    def open(self) -> None:
        """See `Duplex.open`."""
        if self._socket.fileno() < 0:
            raise ParameterError("the socket is closed; a connected one is needed")
        self._before = self._socket.gettimeout()
        self._socket.setblocking(False)

    def close(self) -> None:
        """See `Duplex.close`."""
        with suppress(OSError):  # the other end may have ended already
            self._socket.settimeout(self._before)
            self._socket.shutdown(socket.SHUT_WR)

    def send(self, data: bytes) -> None:
        """See `Duplex.send`."""
        self.used = True
        view = memoryview(data)
        while view and not self.ended:
            try:
                view = view[self._socket.send(view[:CHUNK]) :]
            except _WOULD_BLOCK:
                if not self._read():
                    self._wait(selectors.EVENT_READ | selectors.EVENT_WRITE)
            except OSError:
                return  # the other end does not read any more; what it sent is still there

    def receive(self) -> bool:
        """See `Duplex.receive`."""
        while not self.ended:
            if self._read():
                return True
            if not self.ended:
                self._wait(selectors.EVENT_READ)
        return False

    def _read(self) -> bool:
        try:
            self._take(self._socket.recv(CHUNK))
        except _WOULD_BLOCK:
            return False
        except OSError as error:  # a broken connection ends like a closed one
            self._broke(error)
        return not self.ended

    def _wait(self, events: int) -> None:
        with selectors.DefaultSelector() as selector:
            try:
                selector.register(self._socket, events)
            except ValueError:  # the caller closed it meanwhile
                self._broke(OSError("the socket is closed"))
                return
            if not selector.select(self._timeout):
                self._nothing_moved()


class StreamDuplex(Duplex):
    """Streams of asyncio, read and written by their event loop while this thread waits."""

    def __init__(self, streams: Streams, timeout: float) -> None:
        super().__init__(timeout)
        self._streams = streams
        self._reading: asyncio.Task[bytes] | None = None

    def open(self) -> None:
        """See `Duplex.open`."""
        with suppress(RuntimeError):
            if asyncio.get_running_loop() is self._streams.loop:
                raise ParameterError(
                    "the event loop of these streams would wait for itself; await the function of "
                    "the same name in xclp_crypto.aio"
                )
        if self._streams.loop.is_closed():
            raise ParameterError("the event loop of these streams has ended")
        self._streams.wait_for(self._open)

    async def _open(self) -> None:
        # What was sent has left, so that a program may end when its role has.
        self._streams.writer.transport.set_write_buffer_limits(high=0)

    def close(self) -> None:
        """See `Duplex.close`."""
        with suppress(CancelledError):
            self._streams.wait_for(self._close, last=True)

    async def _close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        writer = self._streams.writer
        with suppress(OSError):  # the other end may have ended already
            if writer.can_write_eof():
                writer.write_eof()
            else:  # TLS has no half-closed connections
                writer.close()

    def send(self, data: bytes) -> None:
        """See `Duplex.send`."""
        self.used = True
        self._streams.wait_for(lambda: self._send(memoryview(data)))

    async def _send(self, data: memoryview) -> None:
        writer = self._streams.writer
        for at in range(0, len(data), CHUNK):
            if self.ended or writer.is_closing():
                return
            writer.write(data[at : at + CHUNK])
            drain = asyncio.ensure_future(writer.drain())
            try:
                while not (drain.done() or self.ended):
                    await self._moved(drain)
            finally:
                drain.cancel()
            if drain.done() and isinstance(drain.exception(), OSError):
                return  # the other end does not read any more; what it sent is still there

    def receive(self) -> bool:
        """See `Duplex.receive`."""
        if not self.ended:
            self._streams.wait_for(self._moved)
        return not self.ended

    async def _moved(self, *drain: asyncio.Future[None]) -> None:
        """Wait until bytes have arrived, and take them, or until some have left."""
        transport = self._streams.writer.transport
        left = transport.get_write_buffer_size()
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._streams.reader.read(CHUNK))
        reading = self._reading
        waited: set[asyncio.Future[Any]] = {reading, *drain}
        await asyncio.wait(waited, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        if not any(map(asyncio.Future.done, waited)) and transport.get_write_buffer_size() == left:
            self._nothing_moved()
        if reading.done():
            self._reading = None
            try:
                self._take(reading.result())
            except OSError as error:
                self._broke(error)


def duplex_of(connected: Connected, timeout: float) -> Duplex:
    """Return one run's use of a connection.

    Raises:
        ParameterError: it is neither a socket nor `Streams`.
    """
    if isinstance(connected, Streams):
        return StreamDuplex(connected, timeout)
    if isinstance(connected, socket.socket):
        return SocketDuplex(connected, timeout)
    raise ParameterError(
        f"a connected socket is needed, or xclp_crypto.aio.Streams, got {type(connected).__name__}"
    )
