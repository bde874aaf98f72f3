"""Some parties in this process and the others behind one connected socket.

::

    frame:  payload length (4 bytes) ‖ depth (4) ‖ sender (2) ‖ receiver (2) ‖ payload

Parties are numbered in the order that both ends agree on. The driver is that of the simulation;
when nobody here can move it waits for a frame. A thread reads the socket all the time, so that two
programs that send a lot at once do not block each other. The caller connects the socket, and wraps
it with `ssl` where the network is not trusted: messages are sealed, but key exchange is not
authenticated, and who talks to whom and how much is visible.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from xclp_crypto.errors import FaultyPeer, ParameterError
from xclp_crypto.transport.simulate import Outcome, Progress, Role, Simulation

FRAME = struct.Struct(">IIHH")
MAX_PAYLOAD = 1 << 31
"""Longest payload of a frame, in bytes; a longer one is refused before it is read."""


class SocketDriver(Simulation):
    """Driver for the parties of this process, with one socket to all the others.

    Args:
        sock: a connected stream socket; closed for sending when the parties here have ended.
        parties: all parties, in the order that both ends agree on.
        timeout: seconds to wait for a frame before the parties elsewhere count as gone.
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
        self._socket = sock
        self._order = tuple(parties)
        self._timeout = timeout
        self._frames: queue.Queue[tuple[str, str, bytes, int] | FaultyPeer | None] = queue.Queue()
        self._sending = True
        self._receiving = True

    def run(self, roles: Mapping[str, Role]) -> Outcome:
        """Run the parties of this process to their ends.

        Args:
            roles: the parties that run here, a subset of all, the server last.

        Raises:
            ParameterError: a role is none of the parties, or all of them run here.
            FaultyPeer: the other end sent something that is no frame.
        """
        self._elsewhere = tuple(p for p in self._order if p not in roles)
        if not set(roles) <= set(self._order) or not self._elsewhere:
            raise ParameterError(
                f"{', '.join(roles)} run here, of {', '.join(self._order)}: some, not all, must"
            )
        reader = threading.Thread(target=self._read_frames, daemon=True)
        reader.start()
        try:
            return super().run(roles)
        finally:
            with suppress(OSError):  # the other end may be gone already
                self._socket.shutdown(socket.SHUT_WR)
            reader.join(timeout=self._timeout)

    def _forward(self, sender: str, receiver: str, payload: bytes, depth: int) -> None:
        if not self._sending:
            return  # as in a simulation, a message to a party that has vanished is lost
        header = FRAME.pack(
            len(payload), depth, self._order.index(sender), self._order.index(receiver)
        )
        try:
            self._socket.sendall(header + payload)
        except OSError:
            self._sending = False

    def _wait_for_more(self) -> bool:
        waits = [party.missing() for party in self._parties.values() if party.waiting is not None]
        if not waits:
            return False
        ended = {name for name, party in self._parties.items() if party.ended}
        hopeless = any(set(missing) <= ended for missing in waits)
        while self._receiving and not self._ready and not hopeless:
            try:
                frame = self._frames.get(timeout=self._timeout)
            except queue.Empty:
                frame = None
            if isinstance(frame, FaultyPeer):
                raise frame
            if frame is None:
                self._receiving = False
            else:
                self._put(*frame)
        return bool(self._ready) or self._give_up_one_wait()

    def _read_frames(self) -> None:
        """Read frames until the other end stops sending; runs in a thread of its own."""
        with suppress(OSError):  # a broken connection ends the frames like a closed one
            while header := self._read_exactly(FRAME.size):
                size, depth, sender, receiver = FRAME.unpack(header)
                error = self._frame_error(size, sender, receiver)
                if error is not None:
                    self._frames.put(FaultyPeer(self._elsewhere, error))
                    return
                payload = self._read_exactly(size)
                if payload is None:
                    break
                self._frames.put((self._order[sender], self._order[receiver], payload, depth))
        self._frames.put(None)

    def _frame_error(self, size: int, sender: int, receiver: int) -> str | None:
        if size > MAX_PAYLOAD:
            return f"a frame of {size} bytes; at most {MAX_PAYLOAD} are accepted"
        if sender >= len(self._order) or self._order[sender] not in self._elsewhere:
            return f"a frame from party number {sender}, which does not run there"
        if receiver >= len(self._order) or self._order[receiver] in self._elsewhere:
            return f"a frame for party number {receiver}, which does not run here"
        return None

    def _read_exactly(self, size: int) -> bytes | None:
        """Return `size` bytes, or None when the other end has stopped sending."""
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                return None
            view = view[count:]
        return bytes(buffer)
