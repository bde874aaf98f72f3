"""Some parties in this process and the others behind one connection.

::

    frame:  payload length (4 bytes) ‖ depth (4) ‖ sender (2) ‖ receiver (2) ‖ payload

Parties are numbered in the order that both ends agree on. When parties end in errors, the first
error is told to the other program (`TO_ALL`), as far as others are told of it. The driver is that
of the simulation; when nobody here can move it waits for a frame. The connection is a socket or
streams of asyncio (`duplex`), used in one thread, because TLS must not be used by two. The caller
makes it, with `ssl` where the network is not trusted: messages are sealed, but without identities
key exchange is not authenticated, and who talks to whom and how much is visible. One connection
serves one run; the caller closes it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from xclp_crypto.errors import FaultyPeer, ParameterError, ProtocolError, XclpError
from xclp_crypto.params import MAX_DEPTH
from xclp_crypto.transport.driver import Progress, Role
from xclp_crypto.transport.duplex import Carrier, Connected, duplex_of
from xclp_crypto.transport.failures import printable
from xclp_crypto.transport.simulate import Outcome, Simulation

FRAME = struct.Struct(">IIHH")
MAX_PAYLOAD = 1 << 30
"""Longest payload of a frame, in bytes; a longer one is refused before it is read."""

TO_ALL = (1 << 16) - 1
"""The receiver of a frame that says why a party ended."""

MAX_REASON = 1 << 10
"""Bytes of that reason."""

_SAME_PARTY = (
    "check that the programs run different parties, not both the same one, and give the names of "
    "all parties in the same order"
)


def _where_it_belongs(
    sock: Connected, progress: Callable[[Progress], None] | None
) -> Callable[[Progress], None] | None:
    """Return what has `progress` called by the owner of the connection, if it is not a socket."""
    if progress is None or not isinstance(sock, Carrier):
        return progress
    return partial(sock.notify, progress)


class SocketDriver(Simulation):
    """Driver for the parties of this process, with one connection to all the others.

    Args:
        sock: a connected stream socket, perhaps wrapped by `ssl`, whose own timeout is not used; or
            streams of asyncio, which `xclp_crypto.aio.StreamDriver` drives. It is shut down for
            sending when the parties here have ended.
        parties: all parties, in the order that both ends agree on.
        timeout: seconds in which some byte must move while this end waits, for reading or writing,
            before the parties elsewhere count as dropouts; longer than their longest computation.
        progress: called before each computation; with streams, in their event loop.

    Raises:
        ParameterError: the connection is neither, or the timeout is not positive.
    """

    _WHERE = "which runs in the other program"

    def __init__(
        self,
        sock: Connected,
        parties: Sequence[str],
        *,
        timeout: float = 60.0,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        super().__init__(progress=_where_it_belongs(sock, progress))
        self._connection = duplex_of(sock, timeout)
        self._order = tuple(parties)
        self._frames: deque[tuple[str, str, bytes, int]] = deque()
        self._heard: dict[str, XclpError] = {}

    def run(self, roles: Mapping[str, Role]) -> Outcome:
        """Run the parties of this process, some of all and the server last, to their ends.

        Returns:
            The outcome of the parties here, and what the other program said of an error there.

        Raises:
            ParameterError: a role is none of the parties, or is not async; all or none of them
                run here; the connection is closed, or was used before.
            FaultyPeer: the other end sent something that is not a frame.
        """
        self._elsewhere = tuple(p for p in self._order if p not in roles)
        unknown = ", ".join(roles.keys() - {*self._order})
        if unknown:
            raise ParameterError(f"{unknown}: not among the parties {', '.join(self._order)}")
        if not (roles and self._elsewhere):
            raise ParameterError(
                f"{', '.join(roles) or 'none'} of the parties {', '.join(self._order)} would run "
                "here; at least one must, and at least one in the other program"
            )
        self._connection.open()
        try:
            outcome = super().run(roles)
            for party, error in list(outcome.errors.items())[:1]:
                self._say_why(party, error)
            outcome.errors.update(self._heard)
            return outcome
        finally:
            self._connection.close()

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
