"""Bytes in both directions between two programs, over a socket or what else a `Carrier` is.

A driver runs in one thread, sends, and waits for more: a `Duplex` never waits for one direction
only, so that two programs that send a lot at once do not block each other. Frames are the business
of `stream`.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from xclp_crypto.errors import ParameterError

CHUNK: Final = 1 << 20
"""Bytes read or written at a time."""

LONGEST: Final = 10**6
"""Seconds; a timeout above, such as infinity, is none: what waits counts milliseconds."""

USED_BEFORE: Final = "the connection was used before; one serves one run"
_begun: Final[WeakSet[socket.socket]] = WeakSet()  # sockets that a run uses, or has
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Duplex(ABC):
    """One run's use of a connection.

    Args:
        timeout: seconds, above 0.

    Attributes:
        received: bytes that arrived and were not taken yet.
        used: whether anything was ever sent or received.
        ended: why nothing more will arrive: the other end has stopped sending, the connection
            broke, or nothing moved for `timeout` seconds; empty before.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = None if timeout > LONGEST else timeout
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


class Carrier(ABC):
    """A connection that is not a socket, such as `xclp_crypto.aio.Streams`."""

    @abstractmethod
    def duplex(self, timeout: float) -> Duplex:
        """Return one run's use of this connection."""

    @abstractmethod
    def notify(self, function: Callable[[Any], object], argument: Any) -> None:
        """Call a function where the owner of the connection runs."""


Connected = socket.socket | Carrier
"""What two programs may be connected by."""


class SocketDuplex(Duplex):
    """A socket, which does not block during the run."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        super().__init__(timeout)
        self._socket = sock

    def open(self) -> None:
        """See `Duplex.open`."""
        if self._socket.fileno() < 0:
            raise ParameterError("the socket is closed; a connected one is needed")
        if self._socket in _begun:
            raise ParameterError(USED_BEFORE)
        _begun.add(self._socket)
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


def duplex_of(connected: Connected, timeout: float) -> Duplex:
    """Return one run's use of a connection; see `Duplex`.

    Raises:
        ParameterError: it is neither a socket nor a `Carrier`, or the timeout is out of range.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ParameterError(f"timeout must be a positive number of seconds, got {timeout!r}")
    if isinstance(connected, Carrier):
        return connected.duplex(timeout)
    if isinstance(connected, socket.socket):
        return SocketDuplex(connected, timeout)
    raise ParameterError(
        f"a connected socket is needed, or xclp_crypto.aio.Streams, got {type(connected).__name__}"
    )
