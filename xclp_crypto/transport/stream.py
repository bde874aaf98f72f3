"""Some parties in this process and the others behind one connected socket.

::

    frame:  payload length (4 bytes) ‖ depth (4) ‖ sender (2) ‖ receiver (2) ‖ payload

Parties are numbered in the order that both ends agree on. When parties end in errors, the first
error is told to the other program (`TO_ALL`), as far as others are told of it. The driver is that
of the simulation; when nobody here can move it waits for a frame. It reads whenever it cannot
write, so that two programs that send a lot at once do not block each other, and it does so in one
thread, because a TLS connection must not be used by two. The caller connects the socket, and wraps
it with `ssl` where the network is not trusted: messages are sealed, but without identities key
exchange is not authenticated, and who talks to whom and how much is visible. One connection serves
one run; the caller closes it.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from xclp_crypto.errors import FaultyPeer, ParameterError, ProtocolError, XclpError
from xclp_crypto.params import MAX_DEPTH
from xclp_crypto.transport.driver import Progress, Role
from xclp_crypto.transport.failures import printable
from xclp_crypto.transport.simulate import Outcome, Simulation

FRAME = struct.Struct(">IIHH")
MAX_PAYLOAD = 1 << 30
"""Longest payload of a frame, in bytes; a longer one is refused before it is read."""

TO_ALL = (1 << 16) - 1
"""The receiver of a frame that says why a party ended."""

MAX_REASON = 1 << 10
"""Bytes of that reason."""

CHUNK = 1 << 20  # bytes read or written at a time

_SAME_PARTY = "do both programs run the same party?"

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Duplex:
    """A non-blocking socket that never waits for one direction only.

    Attributes:
        received: bytes that arrived and were not taken yet.
        used: whether anything was ever sent or received.
        ended: why nothing more will arrive: the other end has stopped sending, the connection
            broke, or nothing moved for `timeout` seconds; empty before.
    """

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._socket = sock
        self._timeout = timeout
        self.received = bytearray()
        self.used = False
        self.ended = ""

    def send(self, data: bytes) -> None:
        """Send all of `data`, reading meanwhile; gives up silently when the connection breaks."""
        self.used = True
        view = memoryview(data)
        while view and not self.ended:
            try:
                view = view[self._socket.send(view[:CHUNK]) :]
            except _WOULD_BLOCK:
                if not self._read():
                    self._wait(writing=True)
            except OSError:
                return  # the other end does not read any more; what it sent is still there

    def receive(self) -> bool:
        """Wait until more bytes have arrived; false when none will."""
        while not self.ended:
            if self._read():
                return True
            if not self.ended:
                self._wait(writing=False)
        return False

    def _read(self) -> bool:
        try:
            data = self._socket.recv(CHUNK)
        except _WOULD_BLOCK:
            return False
        except OSError as error:  # a broken connection ends like a closed one
            self.ended = f"the connection broke ({error}), see the other program's error"
            return False
        if not data:
            self.ended = "the other program closed the connection, see its error"
            return False
        self.received += data
        self.used = True
        return True

    def _wait(self, *, writing: bool) -> None:
        ready = select.select([self._socket], [self._socket] if writing else [], [], self._timeout)
        if not any(ready):
            self.ended = f"nothing came from the other program for {self._timeout:g} s"


class SocketDriver(Simulation):
    """Driver for the parties of this process, with one socket to all the others.

    Args:
        sock: a connected stream socket, perhaps wrapped by `ssl`; its own timeout is not used, and
            it is shut down for sending when the parties here have ended.
        parties: all parties, in the order that both ends agree on.
        timeout: seconds in which some byte must move while this end waits, for reading or writing,
            before the parties elsewhere count as dropouts; longer than their longest computation.
        progress: called before each computation.
    """

    def __init__(
        self,
        sock: socket.socket,
        parties: Sequence[str],
        *,
        timeout: float = 60.0,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        super().__init__(progress=progress)
        if not timeout > 0:
            raise ParameterError(f"timeout must be positive, got {timeout}")
        if not isinstance(sock, socket.socket):
            raise ParameterError(f"a connected socket is needed, got {type(sock).__name__}")
        self._socket = sock
        self._connection = _Duplex(sock, timeout)
        self._order = tuple(parties)
        self._frames: deque[tuple[str, str, bytes, int]] = deque()
        self._heard: dict[str, XclpError] = {}

    def run(self, roles: Mapping[str, Role]) -> Outcome:
        """Run the parties of this process, some of all and the server last, to their ends.

        Returns:
            The outcome of the parties here, and what the other program said of an error there.

        Raises:
            ParameterError: a role is none of the parties, or all of them run here.
            FaultyPeer: the other end sent something that is not a frame.
        """
        self._elsewhere = tuple(p for p in self._order if p not in roles)
        if not set(roles) <= set(self._order) or not self._elsewhere:
            raise ParameterError(
                f"{', '.join(roles)} run here, of {', '.join(self._order)}: some, not all, must"
            )
        before = self._socket.gettimeout()
        self._socket.setblocking(False)
        try:
            outcome = super().run(roles)
            for party, error in list(outcome.errors.items())[:1]:
                self._say_why(party, error)
            outcome.errors.update(self._heard)
            return outcome
        finally:
            with suppress(OSError):  # the other end may have ended already
                self._socket.settimeout(before)
                self._socket.shutdown(socket.SHUT_WR)

    def _forward(self, sender: str, receiver: str, payload: bytes, depth: int) -> None:
        header = FRAME.pack(
            len(payload), depth, self._order.index(sender), self._order.index(receiver)
        )
        self._connection.send(header + payload)

    def _say_why(self, party: str, error: XclpError) -> None:
        reason = error.public(self._parties[party].step).encode()[:MAX_REASON]
        header = FRAME.pack(len(reason), 0, self._order.index(party), TO_ALL)
        self._connection.send(header + reason)

    def _wait_for_more(self) -> bool:
        waits = [party.missing for party in self._parties.values() if party.waiting is not None]
        if not waits:
            return False
        ended = {name for name, party in self._parties.items() if party.ended}
        hopeless = any(missing.keys() <= ended for missing in waits)
        while not self._ready and not hopeless:
            self._take_frames()
            if self._frames:
                self._put(*self._frames.popleft())
            elif not self._connection.receive():
                break
        return bool(self._ready) or super()._wait_for_more()

    def _why_missing(self) -> str:
        connection = self._connection
        for error in self._heard.values():
            return str(error)
        if connection.ended and not connection.used:  # both programs waited for the other
            return f"{connection.ended}; {_SAME_PARTY}"
        return connection.ended

    def _take_frames(self) -> None:
        """Move complete frames from the bytes received."""
        received = self._connection.received
        while len(received) >= FRAME.size:
            size, depth, sender, receiver = FRAME.unpack_from(received)
            self._require_frame(size, depth, sender, receiver)
            if len(received) < FRAME.size + size:
                return
            payload = bytes(received[FRAME.size : FRAME.size + size])
            del received[: FRAME.size + size]
            if receiver == TO_ALL:
                text = printable(payload.decode(errors="replace"))
                self._heard[self._order[sender]] = ProtocolError(f"the other program says: {text}")
                continue
            self._frames.append((self._order[sender], self._order[receiver], payload, depth))

    def _require_frame(self, size: int, depth: int, sender: int, receiver: int) -> None:
        error = None
        most = MAX_REASON if receiver == TO_ALL else MAX_PAYLOAD
        if size > most:
            error = f"a frame of {size} bytes; at most {most} are accepted"
        elif depth > MAX_DEPTH:
            error = f"a frame at depth {depth}; at most {MAX_DEPTH} is possible"
        elif sender >= len(self._order) or self._order[sender] not in self._elsewhere:
            error = f"a frame from party number {sender}, which does not run there; {_SAME_PARTY}"
        elif receiver != TO_ALL and (
            receiver >= len(self._order) or self._order[receiver] in self._elsewhere
        ):
            error = f"a frame for party number {receiver}, which does not run here"
        if error is not None:
            raise FaultyPeer(self._elsewhere, error)
