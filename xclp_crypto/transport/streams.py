"""Streams of asyncio as a connection between two programs, for a protocol that runs in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from typing import Any, Final

from xclp_crypto.errors import ParameterError
from xclp_crypto.transport.duplex import CHUNK, USED_BEFORE, Carrier, Duplex

LOOK_SECONDS: Final = 1.0
"""How often a thread that waits for an event loop looks whether that has ended."""


class Streams(Carrier):
    """A connection of asyncio, which `xclp_crypto.aio` takes where others take a socket.

    Make it where its event loop runs: ``Streams(*await asyncio.open_connection(host, port))``.
    Protocols compute in a thread, so the loop runs on meanwhile. One connection serves one run; the
    caller closes the writer.

    Args:
        reader: of the connection.
        writer: of the same.

    Attributes:
        loop: the event loop.
        begun: whether a run uses the connection, or has.

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
        self.reader, self.writer, self.begun = reader, writer, False
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    def duplex(self, timeout: float) -> Duplex:
        """See `Carrier.duplex`."""
        return StreamDuplex(self, timeout)

    def notify(self, function: Callable[[Any], object], argument: Any) -> None:
        """Call a function in the event loop; see `Carrier.notify`."""
        self.loop.call_soon_threadsafe(function, argument)

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
        if self._streams.begun:
            raise ParameterError(USED_BEFORE)
        self._streams.begun = True
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
