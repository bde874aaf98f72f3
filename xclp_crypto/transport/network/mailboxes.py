"""Which pieces of messages leave, what has arrived, and what is acknowledged; frames in and out.

No clock, socket or thread: `party` carries the frames, and any of them may be lost with a
connection. The sender keeps a message until its receiver has acknowledged it, which that does when
the role has taken it and the log is on the disk. Whoever comes back says what it has (`Resume`),
and gets the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from xclp_crypto.errors import FaultyPeer
from xclp_crypto.params import MAX_DEPTH, MESSAGES, WINDOW
from xclp_crypto.transport.network.frames import (
    PIECE_BYTES,
    Ack,
    Data,
    Resume,
)
from xclp_crypto.transport.replay import Outgoing


class Outbox:
    """Messages to one receiver that it has not acknowledged, and how far they were sent.

    Args:
        sender: this party.
        receiver: the other one.
        window: bytes that may be on the way at most, or one message.
        piece_bytes: bytes of a piece at most.

    Attributes:
        bytes: of the messages in it.
        open: whether there is a connection, and the receiver has said what it has.
    """

    def __init__(
        self, sender: str, receiver: str, window: int, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self._sender, self._receiver = sender, receiver
        self._window, self._piece_bytes = window, piece_bytes
        self._queue: deque[Outgoing] = deque()
        self._known = 0  # messages that were ever put in
        self._at = 0  # of the queue: the message that is being sent
        self._offset = 0
        self._in_flight = 0
        self.bytes = 0
        self.open = False

    def put(self, message: Outgoing) -> None:
        """Take the next message."""
        self._queue.append(message)
        self._known += 1
        self.bytes += len(message.payload)

    def acknowledge(self, count: int) -> None:
        """Forget the first `count` messages.

        Raises:
            FaultyPeer: the receiver says that it has more than there ever were.
        """
        if count > self._known:
            raise FaultyPeer(
                self._receiver,
                f"says that it has {count} messages of {self._sender}, which has sent "
                f"{self._known}",
                public=True,
            )
        while self._queue and self._queue[0].number < count:
            size = len(self._queue.popleft().payload)
            self.bytes -= size
            if self._at:
                self._at -= 1
                self._in_flight -= size
            else:
                self._offset = 0

    def resume(self, count: int) -> None:
        """Send again from message `count` on; raises as `acknowledge` does."""
        self.acknowledge(count)
        self._at = self._offset = self._in_flight = 0
        self.open = True

    def piece(self) -> Data | None:
        """Return the next piece, or None while nothing may leave."""
        if not self.open or self._at >= len(self._queue):
            return None
        message = self._queue[self._at]
        size = len(message.payload)
        if self._at and (self._in_flight + size > self._window or self._at >= MESSAGES):
            return None
        offset = self._offset
        piece = memoryview(message.payload)[offset : offset + self._piece_bytes]
        self._offset += len(piece)
        if self._offset >= size:
            self._at, self._offset = self._at + 1, 0
            self._in_flight += size
        return Data(
            self._sender, self._receiver, message.number, message.depth, size, offset, piece
        )


class Inbox:
    """Messages of one sender that the role has not taken; they grow with what arrives.

    Args:
        taken: how many it has taken before.
        window: bytes of these messages at most, or one message; what `Outbox` keeps to.

    Attributes:
        complete: messages and their depths, in their order; see `take`.
        received: how many are complete, with those that were taken.
        bytes: of the messages, with those of one that is not complete.
    """

    def __init__(self, taken: int, window: int = WINDOW) -> None:
        self.complete: deque[tuple[bytearray, int]] = deque()
        self.received = taken
        self.bytes = 0
        self._window = window
        self._begun = bytearray()
        self._size: int | None = None  # of the message that is not complete

    def clear(self) -> None:
        """Begin with the first message."""
        self.complete.clear()
        self._begun, self._size = bytearray(), None
        self.received = self.bytes = 0

    def take(self) -> tuple[bytearray, int]:
        """Take out the first message, which is there, and its depth."""
        message, depth = self.complete.popleft()
        self.bytes -= len(message)
        return message, depth

    def add(self, data: Data) -> None:
        """Take a piece; one that was there already, or that comes after a gap, is left out.

        Raises:
            FaultyPeer: the sender does not keep to the window.
        """
        if data.number != self.received:
            return
        if data.offset == 0:
            self.bytes -= len(self._begun)
            self._begun, self._size = bytearray(), data.size
            full = self.bytes + data.size > self._window or len(self.complete) >= MESSAGES
            if self.complete and full:
                raise FaultyPeer(data.sender, "sends more than the window lets it", public=True)
        if data.size != self._size or data.offset != len(self._begun):
            return
        if data.offset + len(data.piece) > data.size:
            return
        self._begun += data.piece
        self.bytes += len(data.piece)
        if len(self._begun) == data.size:
            self.complete.append((self._begun, data.depth))
            self._begun, self._size = bytearray(), None
            self.received += 1


def require_sound(data: Data, max_message: int) -> None:
    """Refuse a piece that no honest sender sends.

    Raises:
        FaultyPeer: its message is too long, it lies outside, or its depth is too large.
    """
    wrong = None
    if data.size > max_message:
        wrong = f"sends a message of {data.size} bytes, and at most {max_message} are taken"
    elif data.offset + len(data.piece) > data.size:
        wrong = f"sends a piece outside of its message, which has {data.size} bytes"
    elif data.depth > MAX_DEPTH:
        wrong = f"sends a message at depth {data.depth}, and at most {MAX_DEPTH} is possible"
    if wrong is not None:
        raise FaultyPeer(data.sender, wrong, public=True)


class Mailboxes:
    """An outbox and an inbox for each other party.

    Args:
        me: this party.
        taken: by other party, how many of its messages the role has taken.
        window: see `Outbox`.
        max_message: bytes of a message at most; a longer one is refused before it is read.
        memory: bytes of all messages that wait for the role, at most.
    """

    def __init__(
        self, me: str, taken: Mapping[str, int], *, window: int, max_message: int, memory: int
    ) -> None:
        self._me = me
        self._max_message, self._memory = max_message, memory
        self._acknowledged = dict(taken)
        self.outboxes = {peer: Outbox(me, peer, window) for peer in taken}
        self.inboxes = {peer: Inbox(count) for peer, count in taken.items()}

    def take(self, frame: Data | Ack | Resume) -> None:
        """Take a frame of another party.

        Raises:
            FaultyPeer: a message is not one, or is too long; too much waits for the role; or the
                receiver says that it has more messages than this party ever sent.
        """
        if isinstance(frame, Resume):
            self.outboxes[frame.receiver].resume(frame.count)
        elif isinstance(frame, Ack):
            self.outboxes[frame.receiver].acknowledge(frame.count)
        else:
            require_sound(frame, self._max_message)
            inbox = self.inboxes[frame.sender]
            inbox.add(frame)
            # Who has no more than its share is taken from as long as the others have theirs.
            half = self._memory // 2
            above = inbox.bytes > half // len(self.inboxes)
            if above and sum(box.bytes for box in self.inboxes.values()) > half:
                raise FaultyPeer(
                    frame.sender,
                    f"has {inbox.bytes} bytes wait here, more than its share",
                    public=True,
                )

    def acknowledge(self, taken: Mapping[str, int]) -> list[Ack]:
        """Return what says that so many messages, by sender, were taken; each once."""
        news = {peer: n for peer, n in taken.items() if n > self._acknowledged[peer]}
        self._acknowledged |= news
        return [Ack(peer, self._me, count) for peer, count in news.items()]

    def acknowledge_rest(self) -> list[Ack]:
        """Return the same of all that has come, for a role that has ended; it takes no more."""
        for inbox in self.inboxes.values():
            while inbox.complete:
                inbox.take()
        return self.acknowledge({peer: inbox.received for peer, inbox in self.inboxes.items()})

    def resume(self, peer: str) -> Resume:
        """Return what `peer` hears first on a new connection."""
        return Resume(peer, self._me, self._acknowledged[peer])

    @property
    def waiting(self) -> int:
        """Return the bytes that wait to leave to those that are there."""
        return sum(box.bytes for box in self.outboxes.values() if box.open)
