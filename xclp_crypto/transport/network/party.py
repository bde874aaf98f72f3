"""What server and client have in common: connections, and how a role is driven."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from xclp_crypto.errors import LogRolledBack, ParameterError, ProtocolError, XclpError
from xclp_crypto.transport.network.frames import (
    HEAD,
    PIECE_BYTES,
    Ack,
    Beat,
    Codec,
    Data,
    Frame,
    Resume,
    head_of,
)
from xclp_crypto.transport.network.limits import Clock, Limits
from xclp_crypto.transport.network.mailboxes import Mailboxes
from xclp_crypto.transport.replay import HIGH_WATER, DurableRole
from xclp_crypto.transport.tls import common_name

FINISH_SECONDS: Final = 2.0
"""How long a connection that is closed waits for the other end."""

BROKEN: Final = (OSError, EOFError, TimeoutError)
"""What a connection that broke raises; `ssl.SSLError` is an `OSError`."""

ROLLED_BACK: Final = (
    "the log was rolled back; give back the newest one, or begin a new session without it"
)

_logger = logging.getLogger(__name__)
R = TypeVar("R")


class Connection:
    """Frames in both directions; closed by whoever finds that it does not work.

    Args:
        reader, writer: from asyncio.
        codec: of the session.
        silence: seconds without a byte after which it counts as broken.
        clock: tells `heard`.

    Attributes:
        heard: when the last frame came; negative before.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        codec: Codec,
        silence: float,
        clock: Clock,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._codec, self._silence, self._clock = codec, silence, clock
        self._turn = asyncio.Lock()
        self._head: tuple[int, int] | None = None  # of a frame whose body is still to be read
        self.heard = -1.0

    async def send(self, frame: Frame) -> None:
        """Send a frame, and wait until the connection takes more.

        Raises:
            OSError, TimeoutError: the connection broke, or takes no more.
            ConnectionResetError: it is closed.
        """
        async with self._turn:
            if self._writer.is_closing():  # asyncio fails in other ways when TLS has ended
                raise ConnectionResetError("the connection is closed")
            for part in self._codec.encode(frame):
                self._writer.write(part)
            async with asyncio.timeout(self._silence):
                await self._writer.drain()

    async def read(self) -> Frame:
        """Return the next frame; a read that is cancelled loses nothing.

        Raises:
            OSError, EOFError, TimeoutError: the connection broke, ended, or was silent.
            VersionMismatch: what came is not a frame.
        """
        if self._head is None:
            async with asyncio.timeout(self._silence):
                self._head = head_of(await self._reader.readexactly(HEAD.size))
        length, kind = self._head
        async with asyncio.timeout(self._silence):
            body = await self._reader.readexactly(length)
        self._head = None
        self.heard = self._clock()
        return self._codec.decode(kind, body)

    @property
    def sending(self) -> bool:
        """Return whether something waits until the other end has read more."""
        return self._turn.locked()

    @property
    def name(self) -> str:
        """Return the common name in the certificate of the other end."""
        return common_name(self._writer.get_extra_info("peercert") or {})

    def close(self) -> None:
        """Close; what was written still leaves."""
        self._writer.close()

    async def hear_out(self) -> None:
        """Read until the other end closes, for a little; else what it has not read may be lost.

        A connection that is closed with something unread takes back what was written last.
        """
        with suppress(*BROKEN):
            async with asyncio.timeout(min(self._silence, FINISH_SECONDS)):
                while await self._reader.read(PIECE_BYTES):
                    pass

    async def finish(self) -> None:
        """Close, and wait a little until what was written has left, or this is cancelled."""
        self._writer.close()
        try:
            with suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(min(self._silence, FINISH_SECONDS)):
                    await self._writer.wait_closed()
        finally:
            self._writer.transport.abort()


class Party(ABC):
    """What server and client have in common: the role, its messages, and when to give up.

    Args:
        role: what runs here.
        parties: all parties in the order that all agree on.
        limits: how long is waited.
        one_connection: whether all peers are behind one connection.
    """

    def __init__(
        self, role: DurableRole, parties: Sequence[str], limits: Limits, *, one_connection: bool
    ) -> None:
        self.role = role
        self.me = role.name
        self.codec = Codec(parties)
        self.peers = tuple(p for p in parties if p != role.name)
        self.limits = limits
        shared = asyncio.Event()
        self.changed = {p: shared if one_connection else asyncio.Event() for p in self.peers}
        taken = {p: role.fed[p] for p in self.peers}
        self.mail = Mailboxes(
            self.me,
            taken,
            window=limits.window,
            max_message=limits.max_message,
            memory=limits.memory,
        )
        self.wake = asyncio.Event()
        self.clock = Clock(limits.beat)
        self.waiting_since = self.clock()
        self.progress = 0
        self.failure: XclpError | None = None
        self._worker = ThreadPoolExecutor(1, f"role of {role.name}")

    async def in_thread(self, function: Callable[..., R], *arguments: Any) -> R:
        """Run a part of the role beside the event loop, which keeps connections alive."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, function, *arguments)

    def later(self, function: Callable[..., object], *arguments: Any) -> None:
        """Let the thread of the role do something when it has nothing else to do."""
        asyncio.get_running_loop().run_in_executor(self._worker, function, *arguments)

    @abstractmethod
    def expired(self, peer: str) -> bool:
        """Return whether `peer` is given up."""

    @abstractmethod
    def connection_to(self, peer: str) -> Connection | None:
        """Return the connection to `peer`, or to whoever hands frames on to it, if there is one."""

    @abstractmethod
    async def leave_out(self, peers: Sequence[str]) -> None:
        """Do what is due before the role goes on without these."""

    async def tell(self, peer: str, frame: Frame) -> None:
        """Send a frame to `peer` if there is a connection."""
        connection = self.connection_to(peer)
        if connection is not None:
            try:
                await connection.send(frame)
            except BROKEN:
                connection.close()

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
            if self.mail.inboxes[sender].complete and not self.role.ready:
                await self.in_thread(self.role.feed, sender, *self.mail.inboxes[sender].take())
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
            await self.leave_out(waiting.missing)
            await self.in_thread(self.role.give_up)
            return
        self.wake.clear()
        here = any(self.mail.inboxes[sender].complete for sender in waiting.missing)
        if here or self.failure is not None:
            return
        await self.woken()

    async def woken(self) -> None:
        """Wait until something happens, or it is time to look at the clock."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.beat / 2):
                await self.wake.wait()

    async def _flush(self) -> None:
        """Let leave what the role has sent, and acknowledge what it has taken, in this order.

        Raises:
            ParameterError: a message is longer than others take.
        """
        for message in await self.in_thread(self.role.outgoing):
            if len(message.payload) > self.limits.max_message:
                raise ParameterError(
                    f"a message of {len(message.payload)} bytes to {message.to} is longer than the "
                    f"{self.limits.max_message} that may be sent; raise max_message",
                    public=True,
                )
            self.mail.outboxes[message.to].put(message)
            self.changed[message.to].set()
        await self._acknowledge(self.mail.acknowledge(self.role.fed))

    async def acknowledge_rest(self) -> None:
        """Acknowledge what came for a role that has ended and takes no more."""
        await self._acknowledge(self.mail.acknowledge_rest())

    async def _acknowledge(self, frames: Iterable[Ack]) -> None:
        for frame in frames:
            await self.tell(frame.addressee, frame)

    async def _let_leave(self) -> None:
        """Hold a role that sends much, while that moves; never forever."""
        left, still = self.mail.waiting, 0
        while left > HIGH_WATER and still <= 20:
            await asyncio.sleep(0.05)
            before, left = left, self.mail.waiting
            still = still + 1 if left == before else 0

    async def write_to(self, connection: Connection, peers: Sequence[str]) -> None:
        """Send what is for these peers, a piece for each in turn, for as long as it works."""
        boxes = [self.mail.outboxes[peer] for peer in peers]
        changed = self.changed[peers[0]]
        while True:
            changed.clear()
            moved = False
            for box in boxes:
                piece = box.piece()
                if piece is not None:
                    await connection.send(piece)
                    moved = True
            if not moved:
                await changed.wait()

    async def beat(self, connection: Connection) -> None:
        """Send signs of life, for as long as it works."""
        while True:
            wait = self.role.waiting
            busy = wait is None and not self.role.ended
            lacks = self.codec.bits(() if wait is None else wait.missing)
            await connection.send(Beat(busy, self.progress, lacks))
            await asyncio.sleep(self.limits.beat)

    def take(self, frame: Data | Ack | Resume) -> None:
        """Take a frame of another party.

        Raises:
            LogRolledBack: this party was rebuilt from a log that lacks messages that it has sent.
            FaultyPeer: as from `Mailboxes.take`.
        """
        if isinstance(frame, Ack | Resume) and not self.role.fresh:
            sent = self.role.sent[frame.receiver]
            if frame.count > sent:
                raise LogRolledBack(
                    f"{frame.receiver} says that it has {frame.count} messages of {self.me}, and "
                    f"its log has {sent}: unless that is false, {ROLLED_BACK}",
                    public=True,
                    parties=(frame.receiver,),
                )
        self.mail.take(frame)
        if isinstance(frame, Data):
            self.wake.set()
        else:
            self.changed[frame.receiver].set()


async def first_of(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until one of the tasks has ended, end the others, and raise what one raised.

    Where several raised, it is the error of the first in `tasks`.

    Raises:
        ProtocolError: in the place of what is no error of this project: whatever bytes can provoke
            is the fault of who sent them.
    """
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(tasks)
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not isinstance(error, (XclpError, *BROKEN)):
            _logger.error("unexpected", exc_info=error)
            raise ProtocolError(f"what was sent ends in {type(error).__name__}", public=True)
        if error is not None:
            raise error


def run_to_end(main: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine in an event loop of its own, also where one is running, as in a notebook.

    There it runs in a thread, and this call waits for it; so the loop that is running waits too.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, main).result()


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """End tasks, and wait until they have ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
