"""Parties in programs of their own, on machines of their own: one server, and clients that join it.

::

    client                                              server
    TLS 1.3, both show certificates ◀─────────────────▶ its name is an invited client
             ◀────────────── READY: version
    HELLO: version, which start of its role, digests ─▶ the same agreement?
             ◀────────────── WELCOME: which session, or REFUSED: why
    RESUME: how many messages it has, of each peer ───▶ ◀─── RESUME: the same; also of other clients
    DATA: pieces of messages, to anybody ◀────────────▶ its own, or handed on to their receiver
    ACK: how many messages the role has taken ◀───────▶
    BEAT: alive, waiting or computing ◀───────────────▶ GONE: of a client that is given up
    BYE: its role has ended ──────────────────────────▶
             ◀────────────── END: the session is over, or why it failed

    frame:  length (4 bytes) ‖ kind (1) ‖ body
    DATA:   sender (2) ‖ receiver (2) ‖ number (8) ‖ depth (4) ‖ size (8) ‖ offset (8) ‖ piece
    ACK, RESUME:  sender (2) ‖ receiver (2) ‖ how many messages (8)

Between clients everything goes through the server, sealed by `SealedIO`; it hands pieces on and
keeps none. The sender keeps a message until its receiver has acknowledged it, which that does when
the role has taken it and the log is on the disk. So a connection that breaks, and a program that is
killed and rebuilt from its log, lose nothing: whoever comes back says what it has, and gets the
rest. A sender has at most `Limits.window` bytes on the way to one receiver, or one message.

*Deadlines*, on the server's clock: a client is given up that is not connected for `grace` seconds;
of which nothing has come `join` seconds after the start; or that computes for `deadline` seconds
without any progress. A wait of a role ends when all that it lacks are given up, and then goes on
without them or fails, as the role says. Clients hear of it and do the same. Who comes back within
the session gets its messages all the same. Only seconds in which the server ran count (`_Clock`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, TypeVar

from xclp_crypto.errors import (
    CertificateRefused,
    DataError,
    FaultyPeer,
    LogError,
    NetworkError,
    ParameterError,
    ProtocolError,
    ReplayError,
    Unreachable,
    VersionMismatch,
    XclpError,
)
from xclp_crypto.params import Agreement
from xclp_crypto.transport.replay import HIGH_WATER, DurableRole, Outgoing
from xclp_crypto.transport.tls import common_name, connection_error, listen_error

MAGIC: Final = b"XCLP-NET"
VERSION: Final = 1
PIECE_BYTES: Final = 256 << 10
"""Data of one frame at most."""

FINISH_SECONDS: Final = 2.0
"""How long a connection that is closed waits for the other end."""

_HEAD = struct.Struct(">IB")
_HELLO = struct.Struct(">8sHB16s")
_READY = struct.Struct(">8sH")
_WELCOME = struct.Struct(">16s")
_DATA = struct.Struct(">HHQIQQ")
_COUNT = struct.Struct(">HHQ")
_BEAT = struct.Struct(">BQ")
_GONE = struct.Struct(">H")
_MAX_FRAME = PIECE_BYTES + _DATA.size

READY, HELLO, WELCOME, REFUSED, RESUME, ACK, DATA, BEAT, GONE, BYE, END = range(1, 12)

_ERRORS: Final[tuple[type[XclpError], ...]] = (
    ProtocolError,
    DataError,
    ParameterError,
    CertificateRefused,
    VersionMismatch,
    LogError,
)
"""What one program tells another about, by number; anything else is a `ProtocolError`."""

_AGREEMENT_DIFFERS = 255

_logger = logging.getLogger(__name__)
R = TypeVar("R")


@dataclass(frozen=True)
class Limits:
    """How long is waited, and how much is taken; of each party for itself.

    Attributes:
        join: seconds after its start in which the server waits for clients that never came.
        grace: seconds without a connection, or without a sign of life on it, after which a client
            is given up, and a client gives up the server.
        deadline: seconds in which a client that computes must make some progress; longer than its
            longest single computation.
        window: bytes that may be on the way to one receiver.
        max_message: bytes of a message at most; a longer one is refused before it is read.

    Raises:
        ParameterError: a value is not positive.
    """

    join: float = 600.0
    grace: float = 60.0
    deadline: float = 1800.0
    window: int = 64 << 20
    max_message: int = 1 << 31

    def __post_init__(self) -> None:
        for name in ("join", "grace", "deadline", "window", "max_message"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ParameterError(f"{name} must be a positive number, got {value!r}")

    @property
    def beat(self) -> float:
        """Return the seconds between signs of life."""
        return min(5.0, self.grace / 4)


class _Clock:
    """Seconds in which this program ran.

    A gap between two looks that is longer than `gap` seconds counts as `gap`: the program was
    stopped, or its machine was, and heard nobody meanwhile, whoever spoke. On waking, connections
    may be over and deadlines of asyncio passed, but nobody has been away for longer. `keep` looks
    often enough.
    """

    def __init__(self, gap: float) -> None:
        self._gap = gap
        self._seen = monotonic()
        self._ran = 0.0

    def __call__(self) -> float:
        """Return the seconds so far."""
        now = monotonic()
        self._ran += min(now - self._seen, self._gap)
        self._seen = now
        return self._ran

    async def keep(self) -> None:
        """Look at it for ever."""
        while True:
            self()
            await asyncio.sleep(self._gap / 2)


class _Outbox:
    """Messages to one receiver that it has not acknowledged, and how far they were sent."""

    def __init__(self, receiver: str, window: int, changed: asyncio.Event) -> None:
        self.receiver = receiver
        self._window = window
        self._changed = changed
        self._queue: deque[Outgoing] = deque()
        self._known = 0  # messages that were ever put in
        self._at = 0  # of the queue: the message that is being sent
        self._offset = 0
        self._in_flight = 0
        self.bytes = 0
        self.open = False

    def put(self, message: Outgoing) -> None:
        self._queue.append(message)
        self._known += 1
        self.bytes += len(message.payload)
        self._changed.set()

    def acknowledge(self, count: int) -> None:
        """Forget the first `count` messages.

        Raises:
            ReplayError: the receiver has more than there ever were.
        """
        if count > self._known:
            raise ReplayError(
                f"{self.receiver} has {count} messages of this party, which has sent "
                f"{self._known}: its log is missing or older than what it sent; begin a new session"
            )
        while self._queue and self._queue[0].number < count:
            size = len(self._queue.popleft().payload)
            self.bytes -= size
            if self._at:
                self._at -= 1
                self._in_flight -= size
            else:
                self._offset = 0
        self._changed.set()

    def resume(self, count: int) -> None:
        """Send again from message `count` on."""
        self.acknowledge(count)
        self._at = self._offset = self._in_flight = 0
        self.open = True
        self._changed.set()

    def piece(self) -> tuple[Outgoing, int, memoryview] | None:
        """Return the next piece as ``(message, offset, data)``, or None while nothing may leave."""
        if not self.open or self._at >= len(self._queue):
            return None
        message = self._queue[self._at]
        size = len(message.payload)
        if self._at and self._in_flight + size > self._window:
            return None
        offset = self._offset
        data = memoryview(message.payload)[offset : offset + PIECE_BYTES]
        self._offset += len(data)
        if self._offset >= size:
            self._at, self._offset = self._at + 1, 0
            self._in_flight += size
        return message, offset, data


class _Inbox:
    """Messages of one sender that the role has not taken."""

    def __init__(self, taken: int) -> None:
        self.complete: deque[tuple[bytearray, int]] = deque()
        self.received = taken
        self._begun: bytearray | None = None
        self._filled = 0

    def clear(self) -> None:
        """Begin with the first message."""
        self.complete.clear()
        self.received, self._begun = 0, None

    def add(self, number: int, depth: int, size: int, offset: int, piece: memoryview) -> None:
        """Take a piece; one that was there already, or that comes after a gap, is left out."""
        if number != self.received:
            return
        if offset == 0:  # in one place from the start, so that it is in memory once
            self._begun, self._filled = bytearray(size), 0
        message, end = self._begun, offset + len(piece)
        if message is None or offset != self._filled or end > size or size != len(message):
            return
        message[offset:end] = piece
        self._filled = end
        if end == size:
            self._begun = None
            self.received += 1
            self.complete.append((message, depth))


class _Connection:
    """Frames in both directions; closed by whoever finds that it does not work."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        silence: float,
        clock: _Clock,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._silence = silence
        self._clock = clock
        self._turn = asyncio.Lock()
        self._head: tuple[int, int] | None = None  # of a frame whose body is still to be read
        self.heard = -1.0

    async def send(self, kind: int, *parts: bytes | memoryview) -> None:
        """Send a frame, and wait until the connection takes more."""
        async with self._turn:
            if self._writer.is_closing():  # asyncio fails in other ways when TLS is gone
                raise ConnectionResetError("the connection is closed")
            self._writer.write(_HEAD.pack(sum(map(len, parts)), kind))
            for part in parts:
                self._writer.write(part)
            async with asyncio.timeout(self._silence):
                await self._writer.drain()

    async def read(self) -> tuple[int, bytes]:
        """Return the next frame; a read that is cancelled loses nothing.

        Raises:
            OSError, EOFError, TimeoutError: the connection broke, ended, or was silent.
            VersionMismatch: what came is no frame.
        """
        if self._head is None:
            async with asyncio.timeout(self._silence):
                head = await self._reader.readexactly(_HEAD.size)
            length, kind = _HEAD.unpack(head)
            if length > _MAX_FRAME or not READY <= kind <= END:
                raise VersionMismatch(
                    "what answers there sends no frames of this protocol; check address and version"
                )
            self._head = length, kind
        length, kind = self._head
        async with asyncio.timeout(self._silence):
            body = await self._reader.readexactly(length)
        self._head = None
        self.heard = self._clock()
        return kind, body

    @property
    def name(self) -> str:
        """Return the common name in the certificate of the other end."""
        return common_name(self._writer.get_extra_info("peercert") or {})

    def close(self) -> None:
        self._writer.close()

    async def finish(self) -> None:
        """Close, and wait a little until what was written has left."""
        self._writer.close()
        with suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(min(self._silence, FINISH_SECONDS)):
                await self._writer.wait_closed()
        self._writer.transport.abort()


_BROKEN = (OSError, EOFError, TimeoutError)
"""What a connection that broke raises; `ssl.SSLError` is an `OSError`."""


class _Party(ABC):
    """What server and client have in common: the role, its messages, and when to give up.

    Args:
        role: what runs here.
        parties: all parties in the order that all agree on.
        limits: how long is waited.
        one_connection: whether all peers are behind one connection.
    """

    def __init__(
        self,
        role: DurableRole,
        parties: Sequence[str],
        limits: Limits,
        *,
        one_connection: bool,
    ) -> None:
        self.role = role
        self.me = role.name
        self.order = tuple(parties)
        self.peers = tuple(p for p in parties if p != role.name)
        self.limits = limits
        shared = asyncio.Event()
        self.changed = {p: shared if one_connection else asyncio.Event() for p in self.peers}
        self.outboxes = {p: _Outbox(p, limits.window, self.changed[p]) for p in self.peers}
        self.inboxes = {p: _Inbox(role.fed[p]) for p in self.peers}
        self.taken = dict(role.fed)
        self.wake = asyncio.Event()
        self.clock = _Clock(limits.beat)
        self.waiting_since = self.clock()
        self.progress = 0
        self.failure: XclpError | None = None
        self._worker = ThreadPoolExecutor(1, f"role of {role.name}")

    async def in_thread(self, function: Callable[..., R], *arguments: Any) -> R:
        """Run a part of the role beside the event loop, which keeps connections alive."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, function, *arguments)

    @abstractmethod
    def expired(self, peer: str) -> bool:
        """Return whether `peer` is given up."""

    @abstractmethod
    async def acknowledge(self, sender: str, count: int) -> None:
        """Tell `sender` that this role has taken `count` of its messages."""

    def close(self) -> None:
        """End the thread of the role when it has nothing to do."""
        self._worker.shutdown(wait=False)

    async def drive(self) -> None:
        """Run the role to its end.

        Raises:
            XclpError: what the role cannot go on after, such as a full disk; not what it ends in.
        """
        step = ""
        await self._flush()  # what a rebuilt role has sent before
        while not self.role.ended:
            if self.failure is not None:
                raise self.failure
            if self.role.step != step:
                step = self.role.step
                _logger.info("step", extra={"party": self.me, "step": step})
            if self.role.ready:
                await self.in_thread(self.role.advance)
                self.progress += 1
                if self.role.ready:
                    await self._flush()
                    await self._let_leave()
            elif not await self._feed():
                await self._flush()
                await self._wait()
                continue
            self.waiting_since = self.clock()
        await self._flush()

    async def _feed(self) -> bool:
        """Give the role what it waits for and what is here; return whether there was any."""
        waiting = self.role.waiting
        fed = False
        for sender in waiting.missing if waiting is not None else ():
            if self.inboxes[sender].complete and not self.role.ready:
                await self.in_thread(
                    self.role.feed, sender, *self.inboxes[sender].complete.popleft()
                )
                fed = True
        return fed

    async def _wait(self) -> None:
        """Wait for a message; or end the wait of the role, if no more will come."""
        waiting = self.role.waiting
        if waiting is None:
            return
        if all(map(self.expired, waiting.missing)):
            _logger.warning(
                "given up",
                extra={"party": self.me, "step": waiting.step, "without": list(waiting.missing)},
            )
            await self.in_thread(self.role.give_up)
            return
        self.wake.clear()
        if any(self.inboxes[sender].complete for sender in waiting.missing):
            return
        await self.woken()

    async def woken(self) -> None:
        """Wait until something happens, or it is time to look at the clock."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.beat / 2):
                await self.wake.wait()

    async def _flush(self) -> None:
        """Let leave what the role has sent, and acknowledge what it has taken, in this order."""
        for message in await self.in_thread(self.role.outgoing):
            self.outboxes[message.to].put(message)
        for sender, count in self.role.fed.items():
            if count > self.taken[sender]:
                self.taken[sender] = count
                await self.acknowledge(sender, count)

    async def acknowledge_rest(self) -> None:
        """Acknowledge what came for a role that has ended and takes no more."""
        for sender, inbox in self.inboxes.items():
            if inbox.received > self.taken[sender]:
                self.taken[sender] = inbox.received
                await self.acknowledge(sender, inbox.received)

    async def _let_leave(self) -> None:
        """Hold a role that sends much, while that moves; never for ever."""

        def waiting_bytes() -> int:
            return sum(box.bytes for box in self.outboxes.values() if box.open)

        left = waiting_bytes()
        while left > HIGH_WATER:
            await asyncio.sleep(0.05)
            before, left = left, waiting_bytes()
            if left == before:
                for _ in range(20):
                    await asyncio.sleep(0.05)
                    left = waiting_bytes()
                    if left != before:
                        break
                else:
                    return

    async def write_to(self, connection: _Connection, peers: Sequence[str]) -> None:
        """Send what is for these peers, a piece for each in turn, for as long as it works."""
        boxes = [self.outboxes[peer] for peer in peers]
        changed = self.changed[peers[0]]
        me = self.order.index(self.me)
        while True:
            changed.clear()
            moved = False
            for box in boxes:
                next_piece = box.piece()
                if next_piece is not None:
                    message, offset, data = next_piece
                    head = _DATA.pack(
                        me,
                        self.order.index(box.receiver),
                        message.number,
                        message.depth,
                        len(message.payload),
                        offset,
                    )
                    await connection.send(DATA, head, data)
                    moved = True
            if not moved:
                await changed.wait()

    async def beat(self, connection: _Connection) -> None:
        """Send signs of life, for as long as it works."""
        while True:
            waits = self.role.waiting is not None or self.role.ended
            await connection.send(BEAT, _BEAT.pack(not waits, self.progress))
            await asyncio.sleep(self.limits.beat)

    def take_data(self, frame: bytes, sender: str) -> None:
        """Take a piece of a message to this party.

        Raises:
            FaultyPeer: the message is too long.
        """
        _, _, number, depth, size, offset = _DATA.unpack_from(frame)
        if size > self.limits.max_message:
            raise FaultyPeer(
                sender,
                f"sends a message of {size} bytes, and at most {self.limits.max_message} are taken",
            )
        self.inboxes[sender].add(number, depth, size, offset, memoryview(frame)[_DATA.size :])
        self.wake.set()


def _ends_of(frame: bytes, order: Sequence[str]) -> tuple[str, str]:
    """Return sender and receiver of a frame that begins with them.

    Raises:
        VersionMismatch: it is too short or names no party.
    """
    if len(frame) >= 4:
        sender, receiver = struct.unpack_from(">HH", frame)
        if sender < len(order) and receiver < len(order) and sender != receiver:
            return order[sender], order[receiver]
    raise VersionMismatch("a frame names no parties of this session")


def _require_sizes(kind: int, body: bytes) -> None:
    exact = {
        READY: _READY.size,
        WELCOME: _WELCOME.size,
        RESUME: _COUNT.size,
        ACK: _COUNT.size,
        BEAT: _BEAT.size,
        GONE: _GONE.size,
        BYE: 1,
    }
    least = {
        DATA: _DATA.size,
        END: 1 + (body[:1] != b"\0"),  # an error has a code
        REFUSED: 1,
        HELLO: _HELLO.size,
    }
    if len(body) != exact.get(kind, len(body)) or len(body) < least.get(kind, 0):
        raise VersionMismatch(f"a frame of kind {kind} has {len(body)} bytes")


def _told(error: XclpError) -> bytes:
    """Encode an error for the other end."""
    codes = [i for i, kind in enumerate(_ERRORS) if i and isinstance(error, kind)]
    return bytes(codes[:1] or [0]) + str(error).encode()[: PIECE_BYTES - 1]


def _heard(body: bytes, who: str) -> XclpError:
    """Decode what `_told` encoded."""
    kind = _ERRORS[body[0]] if body[0] < len(_ERRORS) else ProtocolError
    text = "".join(c if c.isprintable() else " " for c in body[1:].decode(errors="replace"))
    return kind(f"{who}: {text}")


# The server


@dataclass
class _Client:
    """What the server knows of one client."""

    since: float
    connection: _Connection | None = None
    came: bool = False
    ended: bool = False
    gone: bool = False
    instance: bytes = b""
    busy: bool = False
    progress: int = -1
    moved: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class _Server(_Party):
    """The server: its role, and the connections of its clients."""

    def __init__(
        self, role: DurableRole, clients: Sequence[str], agreement: Agreement, limits: Limits
    ) -> None:
        super().__init__(role, (*clients, role.name), limits, one_connection=False)
        self.agreement = agreement
        now = self.clock()
        # Who has sent something to a server that was rebuilt had come, and may have ended since.
        self.clients = {name: _Client(now, came=role.fed[name] > 0) for name in clients}
        self.last_data = now
        self.handlers: set[asyncio.Task[None]] = set()

    def expired(self, peer: str) -> bool:
        """See `_Party.expired`."""
        client, now = self.clients[peer], self.clock()
        if client.ended:
            return not self.inboxes[peer].complete
        if client.connection is None:
            return now - client.since > (self.limits.grace if client.came else self.limits.join)
        moved = max(client.moved, self.waiting_since)
        if client.busy:
            return now - moved > self.limits.deadline
        others = any(c.connection is not None and c.busy for c in self.clients.values())
        return not others and now - max(self.last_data, moved) > self.limits.deadline

    async def acknowledge(self, sender: str, count: int) -> None:
        """See `_Party.acknowledge`."""
        await self._tell(sender, ACK, self._count(sender, self.me, count))

    def _count(self, sender: str, receiver: str, count: int) -> bytes:
        return _COUNT.pack(self.order.index(sender), self.order.index(receiver), count)

    async def _tell(self, name: str, kind: int, *parts: bytes) -> None:
        """Send a frame to a client, if it is connected."""
        connection = self.clients[name].connection
        if connection is not None:
            try:
                await connection.send(kind, *parts)
            except _BROKEN:
                connection.close()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        connection = _Connection(reader, writer, self.limits.grace, self.clock)
        name = connection.name
        handler = asyncio.current_task()
        if handler is not None:
            self.handlers.add(handler)
            handler.add_done_callback(self.handlers.discard)
        try:
            await self._serve(connection, name)
        except _BROKEN as error:
            _logger.info("disconnected", extra={"client": name, "reason": type(error).__name__})
        except XclpError as error:
            _logger.warning("refused", extra={"client": name, "reason": str(error)})
            with suppress(*_BROKEN):
                await connection.send(REFUSED, self._refusal(error))
        except asyncio.CancelledError:
            # The program is being stopped. A cancelled handler makes asyncio print a traceback.
            _logger.info("disconnected", extra={"client": name, "reason": "stopped"})
        finally:
            client = self.clients.get(name)
            if client is not None and client.connection is connection:
                client.connection = None
                client.since = max(client.since, connection.heard)
                self.outboxes[name].open = False
            self.wake.set()
            await connection.finish()

    def _refusal(self, error: XclpError) -> bytes:
        if isinstance(error, _OtherAgreement):
            return bytes([_AGREEMENT_DIFFERS]) + self.agreement.encode()
        return _told(error)

    async def _serve(self, connection: _Connection, name: str) -> None:
        # The server speaks first, so that a client knows early whether its certificate is taken.
        await connection.send(READY, _READY.pack(MAGIC, VERSION))
        kind, body = await connection.read()
        if kind != HELLO or not body.startswith(MAGIC):
            raise VersionMismatch("what connected does not speak this protocol")
        _require_sizes(kind, body)
        _, version, dry, instance = _HELLO.unpack_from(body)
        if version != VERSION:
            raise VersionMismatch(
                f"the server speaks version {VERSION} and the client version {version}; install "
                "the same version of xclp"
            )
        if name not in self.clients:
            raise CertificateRefused(
                f"a certificate for {name!r}, who is none of the clients "
                f"{', '.join(self.clients)}; the common name of a certificate is the client's name"
            )
        try:
            self.agreement.require_same(body[_HELLO.size :], name)
        except FaultyPeer as error:
            raise _OtherAgreement(str(error)) from None
        welcome = _WELCOME.pack(self.role.instance)
        if dry:
            await connection.send(WELCOME, welcome)
            _logger.info("dry run", extra={"client": name})
            return
        client = self.clients[name]
        if client.instance not in (b"", instance):
            if self.role.fed[name]:
                raise LogError(
                    f"{name} has already taken part in this session with another start of its "
                    "role; start it with its log, or begin a new session"
                )
            self.inboxes[name].clear()
        if client.connection is not None:  # it came back before this end noticed that it had gone
            client.connection.close()
            await _cancel(client.tasks)  # or they would take pieces out of its outbox
        client.connection, client.instance, client.came = connection, instance, True
        client.gone = client.busy = False
        client.moved = self.clock()
        client.counts = {}
        _logger.info("connected", extra={"client": name})
        await connection.send(WELCOME, welcome)
        await connection.send(RESUME, self._count(name, self.me, self.role.fed[name]))
        for peer, other in self.clients.items():
            if peer != name and other.connection is not None and name in other.counts:
                await connection.send(RESUME, self._count(name, peer, other.counts[name]))
            if peer != name and other.gone:
                await connection.send(GONE, _GONE.pack(self.order.index(peer)))
        client.tasks = tasks = [
            asyncio.create_task(self._read_from(connection, name)),
            asyncio.create_task(self.write_to(connection, [name])),
            asyncio.create_task(self.beat(connection)),
        ]
        await _first_of(tasks)

    async def _read_from(self, connection: _Connection, name: str) -> None:
        """Handle the frames of a client until it says goodbye."""
        client = self.clients[name]
        while True:
            kind, body = await connection.read()
            _require_sizes(kind, body)
            if kind == BYE:
                client.ended = True
                _logger.info("ended", extra={"client": name, "well": body == b"\1"})
                self.wake.set()
                return
            if kind == BEAT:
                busy, progress = _BEAT.unpack(body)
                client.busy = bool(busy)
                if progress != client.progress:
                    client.progress, client.moved = progress, self.clock()
                continue
            if kind not in (DATA, ACK, RESUME):
                raise VersionMismatch(f"a client sends no frames of kind {kind}")
            sender, receiver = _ends_of(body, self.order)
            if name != (sender if kind == DATA else receiver):
                raise FaultyPeer(name, "sends in the name of another client")
            if kind == DATA:
                self.last_data = client.moved = self.clock()
                if receiver == self.me:
                    self.take_data(body, name)
                else:
                    await self._tell(receiver, DATA, body)
                continue
            count = _COUNT.unpack(body)[2]
            if sender != self.me:
                client.counts[sender] = count
                await self._tell(sender, kind, body)
            elif kind == RESUME:
                self.outboxes[name].resume(count)
            else:
                self.outboxes[name].acknowledge(count)

    async def watch(self) -> None:
        """Tell everybody of clients that are given up."""
        while True:
            await asyncio.sleep(self.limits.beat / 2)
            for name, client in self.clients.items():
                gone = self.expired(name)
                if gone and not client.gone:
                    if not client.ended:
                        _logger.warning("gone", extra={"client": name})
                    for other in self.clients:
                        await self._tell(other, GONE, _GONE.pack(self.order.index(name)))
                client.gone = gone

    async def linger(self) -> None:
        """Wait until every client has ended or is given up."""
        self.waiting_since = self.clock()
        while any(not c.ended and not self.expired(n) for n, c in self.clients.items()):
            self.wake.clear()
            await self.acknowledge_rest()
            await self.woken()

    async def end(self, error: XclpError | None) -> None:
        """Tell everybody that the session is over."""
        told = b"" if error is None else _told(error)
        for name, client in self.clients.items():
            await self._tell(name, END, bytes([error is not None]) + told)
            if client.connection is not None:
                await client.connection.finish()
        if self.handlers:
            await asyncio.wait(self.handlers, timeout=FINISH_SECONDS)


class _ClosedAtOnce(CertificateRefused):
    """The server said nothing; it may also have been killed at that moment."""


class _OtherAgreement(ProtocolError):
    """A client has other parameters."""


async def _first_of(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until one of the tasks has ended, end the others, and raise what one raised.

    Where several raised, it is the error of the first in `tasks`.
    """
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancel(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def serve(
    role: DurableRole,
    clients: Sequence[str],
    agreement: Agreement,
    address: tuple[str, int],
    tls: ssl.SSLContext,
    *,
    limits: Limits | None = None,
    listening: Callable[[int], None] | None = None,
) -> Any:
    """Run the server's role for clients that join, and return its result.

    Args:
        role: the server's, whose peers are the clients.
        clients: their names, in the order that all parties agree on.
        agreement: what all parties must have in common.
        address: host and port to listen on; port 0 takes a free one.
        tls: from `tls_context`.
        limits: how long is waited.
        listening: called with the port when clients can join.

    Raises:
        AddressInUse: nobody can listen there.
        XclpError: the role failed, or its log cannot be written; the clients are told.
    """
    return asyncio.run(
        _serve(role, clients, agreement, address, tls, limits or Limits(), listening)
    )


async def _serve(
    role: DurableRole,
    clients: Sequence[str],
    agreement: Agreement,
    address: tuple[str, int],
    tls: ssl.SSLContext,
    limits: Limits,
    listening: Callable[[int], None] | None,
) -> Any:
    server = _Server(role, clients, agreement, limits)
    host, port = address
    try:
        listener = await asyncio.start_server(
            server.accept, host, port, ssl=tls, ssl_handshake_timeout=min(30.0, limits.grace)
        )
    except OSError as error:
        raise listen_error(error, f"{host}:{port}") from None
    port = listener.sockets[0].getsockname()[1]
    _logger.info("listening", extra={"host": host, "port": port})
    if listening is not None:
        listening(port)
    watching = [asyncio.create_task(server.watch()), asyncio.create_task(server.clock.keep())]
    try:
        await server.drive()
        result = role.result()
        await server.linger()
        await server.end(None)
    except XclpError as error:
        await server.end(error)
        raise
    finally:  # after anything else the clients wait: the server may be rebuilt from its log
        listener.close()
        await _cancel(watching)
        server.close()
    return result


# The client


class _ClientParty(_Party):
    """A client: its role, and its connection to the server."""

    def __init__(
        self,
        role: DurableRole,
        clients: Sequence[str],
        server: str,
        agreement: Agreement,
        limits: Limits,
    ) -> None:
        super().__init__(role, (*clients, server), limits, one_connection=True)
        self.server = server
        self.agreement = agreement
        self.connection: _Connection | None = None
        self.gone: set[str] = set()
        self.over = False

    def expired(self, peer: str) -> bool:
        """See `_Party.expired`."""
        if self.inboxes[peer].complete:
            return False
        return peer in self.gone or (self.over and self.failure is None)

    async def acknowledge(self, sender: str, count: int) -> None:
        """See `_Party.acknowledge`."""
        if self.connection is not None:
            frame = _COUNT.pack(self.order.index(sender), self.order.index(self.me), count)
            try:
                await self.connection.send(ACK, frame)
            except _BROKEN:
                self.connection.close()

    async def stay(self, connect: Callable[[], Awaitable[_Connection]]) -> None:
        """Keep a connection to the server until the session is over or the server is given up."""
        last, pause = self.clock(), self.limits.beat / 16
        while not self.over:
            try:
                connection = await connect()
                try:
                    await self._use(connection)
                finally:
                    self.connection = None
                    for box in self.outboxes.values():
                        box.open = False
                    last = max(last, connection.heard)
                    await connection.finish()
                pause = self.limits.beat / 16
            except (Unreachable, _ClosedAtOnce, *_BROKEN) as error:
                reason = str(error) or type(error).__name__
                left = self.limits.grace - (self.clock() - last)
                extra = {"party": self.me, "reason": reason, "seconds_left": max(0, round(left))}
                _logger.info("no connection", extra=extra)
                if left < 0:
                    kind = type(error) if isinstance(error, NetworkError) else Unreachable
                    self.failure = kind(
                        f"no connection to the server for {self.limits.grace:g} seconds: {reason}"
                    )
                    break
            except XclpError as error:
                self.failure = error
                break
            if not self.over:
                await asyncio.sleep(pause)
                pause = min(2 * pause, self.limits.beat)
        self.over = True
        self.wake.set()

    def left(self, staying: asyncio.Task[None]) -> None:
        """Notice that `stay` has ended, in whatever way."""
        self.over = True
        self.wake.set()

    async def _use(self, connection: _Connection) -> None:
        """Greet the server, and exchange frames until the connection ends."""
        session = await greet(connection, self.agreement, self.role.instance, dry=False)
        if self.role.note not in (b"", session):
            raise LogError(
                "the log of this client belongs to another session than the one that the server "
                "runs now: the server was started anew; begin a new session without the log"
            )
        if not self.role.note:
            await self.in_thread(self.role.keep, session)
        _logger.info("connected", extra={"party": self.me})
        self.connection = connection
        try:
            for peer in self.peers:
                frame = _COUNT.pack(
                    self.order.index(peer), self.order.index(self.me), self.role.fed[peer]
                )
                await connection.send(RESUME, frame)
            await _first_of(
                [
                    asyncio.create_task(self._read_from(connection)),
                    asyncio.create_task(self.write_to(connection, self.peers)),
                    asyncio.create_task(self.beat(connection)),
                ]
            )
        except _BROKEN:
            # Writing may find the connection closed before what the server said last is read.
            connection.close()
            with suppress(*_BROKEN):
                async with asyncio.timeout(FINISH_SECONDS):
                    await self._read_from(connection)
            if not self.over:
                raise

    async def _read_from(self, connection: _Connection) -> None:
        """Handle the frames of the server until it ends the session."""
        while True:
            kind, body = await connection.read()
            _require_sizes(kind, body)
            if kind == END:
                if body[0]:
                    raise _heard(body[1:], "the server ended the session")
                self.over = True
                return
            if kind == REFUSED:
                raise _heard(body, "the server refuses")
            if kind == GONE:
                index = _GONE.unpack(body)[0]
                if index < len(self.order):
                    self.gone.add(self.order[index])
            elif kind == DATA:
                sender, receiver = _ends_of(body, self.order)
                if receiver != self.me:
                    raise VersionMismatch(f"the server hands on what is for {receiver}")
                self.take_data(body, sender)
            elif kind in (ACK, RESUME):
                _, receiver = _ends_of(body, self.order)
                if receiver == self.me:
                    raise VersionMismatch("the server acknowledges what this party never sends")
                count = _COUNT.unpack(body)[2]
                if kind == RESUME:
                    self.gone.discard(receiver)
                    self.outboxes[receiver].resume(count)
                else:
                    self.outboxes[receiver].acknowledge(count)
            elif kind != BEAT:
                raise VersionMismatch(f"the server sends no frames of kind {kind}")
            self.wake.set()

    async def finish(self) -> None:
        """Wait until what was sent has arrived, and say goodbye."""
        while (
            self.failure is None
            and not self.over
            and any(box.bytes for peer, box in self.outboxes.items() if peer not in self.gone)
        ):
            self.wake.clear()
            await self.acknowledge_rest()
            await self.woken()
        if self.connection is not None:
            with suppress(*_BROKEN):
                await self.connection.send(BYE, bytes([self.failure is None]))


async def greet(
    connection: _Connection, agreement: Agreement, instance: bytes, *, dry: bool
) -> bytes:
    """Greet the server and return which session it runs.

    Raises:
        VersionMismatch: it speaks another version, or another protocol.
        ParameterError: its parameters are others; names the fields.
        XclpError: it refuses for another reason.
    """
    try:
        kind, body = await connection.read()
    except _BROKEN:
        # With TLS 1.3 the handshake is over for the client before the server has looked at its
        # certificate, and asyncio closes the connection without sending OpenSSL's alert.
        raise _ClosedAtOnce(
            "the server closed the connection before it said anything: as a rule it refuses this "
            "program's certificate, which must come from the server's authority and be valid "
            "today; the server's log says more"
        ) from None
    if kind != READY or not body.startswith(MAGIC):
        raise VersionMismatch("what answers does not speak this protocol; check the address")
    _require_sizes(kind, body)
    version = _READY.unpack(body)[1]
    if version != VERSION:
        raise VersionMismatch(
            f"the server speaks version {version} and this program version {VERSION}; install the "
            "same version of xclp"
        )
    hello = _HELLO.pack(MAGIC, VERSION, dry, instance)
    await connection.send(HELLO, hello, agreement.encode())
    kind, body = await connection.read()
    _require_sizes(kind, body)
    if kind == REFUSED and body[0] == _AGREEMENT_DIFFERS:
        if len(body) - 1 != agreement.size:
            raise VersionMismatch(
                "the server compares other parameters than this program; install the same version "
                "of xclp"
            )
        try:
            agreement.require_same(body[1:], "the server")
        except FaultyPeer as error:
            raise ParameterError(error.reason) from None
    if kind == REFUSED:
        raise _heard(body, "the server refuses")
    if kind != WELCOME:
        raise VersionMismatch("the server does not greet as this protocol says")
    return body


async def _connect(
    address: tuple[str, int], tls: ssl.SSLContext, limits: Limits, clock: _Clock
) -> _Connection:
    """Connect to the server.

    Raises:
        NetworkError: says why not.
    """
    host, port = address
    try:
        async with asyncio.timeout(limits.grace):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=tls, server_hostname=host
            )
    except _BROKEN as error:
        raise connection_error(error, f"{host}:{port}") from None
    return _Connection(reader, writer, limits.grace, clock)


def join(
    role: DurableRole,
    clients: Sequence[str],
    server: str,
    agreement: Agreement,
    address: tuple[str, int],
    tls: ssl.SSLContext,
    *,
    limits: Limits | None = None,
) -> Any:
    """Run a client's role with a server that `serve` runs, and return its result.

    Args:
        role: this client's, whose peers are the other clients and the server.
        clients: names of all clients, in the order that all parties agree on.
        server: name of the server.
        agreement: what all parties must have in common.
        address: host and port of the server.
        tls: from `tls_context`.
        limits: how long is waited.

    Raises:
        NetworkError: the server cannot be reached, or is the wrong one.
        ParameterError: it has other parameters; names the fields.
        XclpError: the role failed, or its log cannot be written.
    """
    return asyncio.run(_join(role, clients, server, agreement, address, tls, limits or Limits()))


async def _join(
    role: DurableRole,
    clients: Sequence[str],
    server: str,
    agreement: Agreement,
    address: tuple[str, int],
    tls: ssl.SSLContext,
    limits: Limits,
) -> Any:
    party = _ClientParty(role, clients, server, agreement, limits)
    keeping = asyncio.create_task(party.clock.keep())
    staying = asyncio.create_task(party.stay(lambda: _connect(address, tls, limits, party.clock)))
    staying.add_done_callback(party.left)
    try:
        await party.drive()
        result = role.result()
        await party.finish()
        if staying.done():
            staying.result()
        return result
    except XclpError as error:
        party.failure = party.failure or error
        await party.finish()
        raise party.failure from None
    finally:
        await _cancel([staying, keeping])
        party.close()


def check(
    agreement: Agreement,
    address: tuple[str, int],
    tls: ssl.SSLContext,
    *,
    limits: Limits | None = None,
) -> None:
    """Ask a server whether this client, with these parameters, could join it; nothing more.

    Args and errors: as for `join`.
    """

    async def ask() -> None:
        within = limits or Limits()
        connection = await _connect(address, tls, within, _Clock(within.beat))
        try:
            await greet(connection, agreement, bytes(16), dry=True)
        except _BROKEN as error:
            raise connection_error(error, f"{address[0]}:{address[1]}") from None
        finally:
            await connection.finish()

    asyncio.run(ask())
