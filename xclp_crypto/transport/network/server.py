"""The server: its role, and the connections of its clients; see the package."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from xclp_crypto import errors
from xclp_crypto.params import Agreement
from xclp_crypto.transport.failures import (
    Accusations,
    Code,
    Failure,
    Reason,
    printable,
    waits_to_end,
)
from xclp_crypto.transport.network import frames, party
from xclp_crypto.transport.network.gate import HANDSHAKE_SECONDS, Gate, listen
from xclp_crypto.transport.network.limits import Limits
from xclp_crypto.transport.network.mailboxes import require_sound
from xclp_crypto.transport.network.party import Connection, Party
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.tls import listen_error

_logger = logging.getLogger(__name__)


@dataclass
class _Presence:
    """What the server knows of one client."""

    since: float
    connection: Connection | None = None
    came: bool = False
    ended: bool = False
    dropped_out: bool = False
    instance: bytes = b""
    incarnation: bytes = b""
    replaced: set[bytes] = field(default_factory=set)  # incarnations, by later ones
    busy: bool = False
    lacks: set[str] = field(default_factory=set)  # for whom it says that it waits
    without: set[str] = field(default_factory=set)  # of whom it was told that nothing comes for it
    progress: int = -1
    moved: float = 0.0
    begun: set[str] = field(default_factory=set)  # to whom it sends a message that is not complete
    sent: dict[str, int] = field(default_factory=dict)  # messages that came whole, by receiver
    held_by: str = ""  # who is to read what came of it, before more is read
    floods: str = ""  # the same, where it sends again, or out of order, what nobody asked for
    next: dict[str, tuple[int, int]] = field(default_factory=dict)  # number and offset, by receiver
    spent: float = 0.0  # seconds in which others may have waited for it
    slow: Reason | None = None  # where these are too many
    counts: dict[str, int] = field(default_factory=dict)  # messages that it says it has, by sender
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    fault: errors.FaultyPeer | None = None
    goodbye: Reason | None = None  # what it said if it ended otherwise than well

    @property
    def reason(self) -> Reason | None:
        """Return why the others go on without it, if they do; None if it has ended well."""
        if self.fault is not None:
            return Reason(Code.FAULTY, printable(self.fault.reason))
        return self.goodbye if self.ended else self.slow or Reason()


class ServerParty(Party):
    """The server: its role, and the connections of its clients."""

    def __init__(
        self, role: DurableRole, clients: Sequence[str], agreement: Agreement, limits: Limits
    ) -> None:
        super().__init__(role, (*clients, role.name), limits, one_connection=False)
        self.agreement = agreement
        now = self.clock()
        # Who has sent something to a server that was rebuilt had come, and may have ended since.
        self.clients = {name: _Presence(now, came=role.fed[name] > 0) for name in clients}
        for at, client in enumerate(self.clients.values()):  # which starts it knew
            known = role.note[16 * at : 16 * (at + 1)]
            client.instance = known if any(known) else b""
        self._looked = now
        self._quiet_from = now  # later by every second in which somebody may have been waited for
        self._patience = limits.deadline  # seconds that it may be quiet
        self.handlers: set[asyncio.Task[None]] = set()
        self._accusations = Accusations(clients)
        self._end: frames.End | None = None

    def expired(self, peer: str) -> bool:
        """See `Party.expired`."""
        self._look()
        client = self.clients[peer]
        if client.ended and client.fault is None:
            return not self.mail.inboxes[peer].complete
        if self._given_up(client):
            return True
        if client.connection is None or client.busy or client.begun or not self._quiet:
            return False
        waiting = self.role.waiting
        return (waiting is None or peer in waiting.missing) and not self._waits_of_clients()

    @property
    def _quiet(self) -> bool:
        """Whether all, this server too, have waited for too long: somebody withholds a message."""
        quiet = self.clock() - max(self._quiet_from, self.waiting_since)
        if quiet <= max(self._patience, 2 * self.limits.beat):  # all have said for whom they wait
            return False
        return self.role.waiting is not None or self.role.ended

    def _waits_of_clients(self) -> dict[str, set[str]]:
        """Return for which others clients wait, and not for this server, that were not told."""
        gone = {name for name, client in self.clients.items() if client.dropped_out}
        waits = {
            name: client.lacks - client.without - gone
            for name, client in self.clients.items()
            if self.me not in client.lacks and not client.ended and not self._given_up(client)
        }
        return {name: lacks for name, lacks in waits.items() if lacks}

    def _given_up(self, client: _Presence) -> bool:
        """Return whether a client is at fault, away or at work for too long."""
        now = self.clock()
        if client.fault is not None or client.slow is not None:
            return True
        if client.connection is None:
            return now - client.since > (self.limits.grace if client.came else self.limits.join)
        if client.held_by or not (client.busy or client.begun):
            return False
        return now - max(client.moved, self.waiting_since) > self.limits.deadline

    def _look(self) -> None:
        """Count the time since the last look for those who are at work or away, if any.

        Whom another keeps waiting by reading slowly is not at work; the other is, unless it has to
        read what nobody asked for.
        """
        now = self.clock()
        passed = now - self._looked
        if passed < self.limits.beat / 8:  # this is asked for each client and each frame
            return
        self._looked = now
        flooded = {client.floods for client in self.clients.values()}
        at_work = [
            client
            for name, client in self.clients.items()
            if not client.ended
            and not self._given_up(client)
            and (
                client.connection is None
                or (client.connection.sending and name not in flooded)
                or client.floods
                or (not client.held_by and (client.busy or client.begun))
            )
        ]
        for client in at_work:
            self._charge(client, passed * client.came)
        self._quiet_from += passed * bool(at_work)

    def _charge(self, client: _Presence, seconds: float) -> None:
        """Count time in which others may have waited for a client; give it up after too much."""
        client.spent += seconds
        if client.spent > self.limits.in_all:
            client.slow = Reason(Code.SLOW, f"took more than {self.limits.in_all:g} seconds in all")

    def _note_piece(self, client: _Presence, frame: frames.Data) -> None:
        """Note how far a client is; a message that came before says nothing new."""
        client.moved = self.clock()
        if frame.offset + len(frame.piece) < frame.size:
            client.begun.add(frame.receiver)
            return
        client.begun.discard(frame.receiver)
        if frame.number < client.sent.get(frame.receiver, 0):
            return
        client.sent[frame.receiver] = frame.number + 1
        self._look()
        if self.role.waiting is not None or self.role.ended:  # others waited for this, if at all
            since = max(self._quiet_from, self.waiting_since)
            self._charge(client, max(0.0, client.moved - since))
        self._quiet_from, self._patience = client.moved, self.limits.deadline

    def connection_to(self, peer: str) -> Connection | None:
        """See `Party.connection_to`."""
        return self.clients[peer].connection

    async def accept(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        known: Callable[[], None],
    ) -> None:
        """Serve one connection until it ends; call `known` when it is that of a client."""
        connection = Connection(reader, writer, self.codec, self.limits.grace, self.clock)
        name = connection.name
        handler = asyncio.current_task()
        if handler is not None:
            self.handlers.add(handler)
            handler.add_done_callback(self.handlers.discard)
        try:
            await self._serve(connection, name, known)
        except party.BROKEN as error:
            _logger.info("disconnected", extra={"client": name, "reason": type(error).__name__})
        except errors.XclpError as error:
            _logger.warning("refused", extra={"client": name, "reason": error.public()})
            with suppress(*party.BROKEN):
                other = isinstance(error, _OtherAgreement)
                here = bytes([frames.OTHER_AGREEMENT]) + self.agreement.encode()
                await connection.send(
                    frames.Refused(here if other else frames.told(Failure.of(error)))
                )
        except asyncio.CancelledError:
            # The program is being stopped. A cancelled handler makes asyncio print a traceback.
            _logger.info("disconnected", extra={"client": name, "reason": "stopped"})
        finally:
            client = self.clients.get(name)
            if client is not None and client.connection is connection:
                client.connection = None
                client.since = max(client.since, connection.heard)
                self.mail.outboxes[name].open = False
            self.wake.set()
            await connection.finish()

    def _begin(self, client: _Presence, name: str, hello: frames.Hello) -> None:
        """Note which start of a client greets, also in the log; refuse one that may not go on.

        Raises:
            FaultyPeer: it was at fault before.
            Unreachable: it has ended its part, so what it seeks is the next session.
            LogError: it has not the log of its role, or another program has it, too.
        """
        if client.fault is not None:
            raise client.fault
        if hello.incarnation in client.replaced:
            raise errors.LogError(
                f"another program takes part as {name} with the same log, and came after this one; "
                "one log is of one program: end one of them, and start no copy of a log",
                public=True,
            )
        if client.instance not in (b"", hello.instance):
            if self.role.fed[name] and client.ended and client.goodbye is None:
                raise errors.Unreachable(
                    f"{name} has already taken part in the session that still runs here, and ended "
                    "well; a next one can begin when the others have",
                    public=True,
                )
            if self.role.fed[name]:
                raise errors.LogError(
                    f"{name} has already taken part in this session with another start of its "
                    "role; start it with its log, or begin a new session",
                    public=True,
                )
            self.mail.inboxes[name].clear()
        if client.incarnation not in (b"", hello.incarnation):
            client.replaced.add(client.incarnation)
        client.incarnation = hello.incarnation
        if client.instance != hello.instance:
            client.instance, client.counts = hello.instance, {}
            # Before anything of the client is in the log: its thread does one thing at a time.
            known = b"".join(c.instance.ljust(16, b"\0") for c in self.clients.values())
            self.later(self.role.keep, known)

    async def _serve(self, connection: Connection, name: str, known: Callable[[], None]) -> None:
        # The server speaks first, so that a client knows early whether its certificate is taken.
        await connection.send(frames.Ready())
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            hello = await connection.read()
        if not isinstance(hello, frames.Hello):
            raise errors.VersionMismatch("what connected does not speak this protocol")
        if name not in self.clients:
            raise errors.CertificateRefused(
                f"a certificate for {name!r}, who is none of the clients "
                f"{', '.join(self.clients)}; the common name of a certificate is the client's name",
                public=True,
            )
        try:
            self.agreement.require_same(hello.agreement, name)
        except errors.FaultyPeer as error:
            raise _OtherAgreement(str(error), public=True) from None
        if hello.dry:
            await connection.send(frames.Welcome(self.role.instance))
            _logger.info("dry run", extra={"client": name})
            return
        known()
        client = self.clients[name]
        self._begin(client, name, hello)
        if client.connection is not None:  # it came back before this end noticed that it was away
            client.connection.close()
            await party.cancel(client.tasks)  # or they would take pieces out of its outbox
        client.connection, client.came = connection, True
        client.dropped_out = client.busy = client.ended = False
        client.lacks = set()
        for other in self.clients.values():  # for it, and it for others, is there again
            other.without.discard(name)
        client.without.clear()
        client.moved = self.clock()
        client.begun.clear()
        awaited = [n for n, c in self.clients.items() if not c.came]
        _logger.info("connected", extra={"client": name, "awaited": awaited})
        await connection.send(frames.Welcome(self.role.instance))
        if self._end is not None:
            await connection.send(self._end)
        await connection.send(self.mail.resume(name))
        for peer, kept in client.counts.items():  # by its own word, so that it notices an older log
            await connection.send(frames.Resume(peer, name, kept))
        for peer, other in self.clients.items():
            if peer != name and other.connection is not None and name in other.counts:
                client.next[peer] = other.counts[name], 0
                await connection.send(frames.Resume(name, peer, other.counts[name]))
            if peer != name and other.dropped_out:
                await connection.send(self._dropped_out(peer))
        client.tasks = tasks = [
            asyncio.create_task(self._read_from(connection, name)),
            asyncio.create_task(self.write_to(connection, [name])),
            asyncio.create_task(self.beat(connection)),
        ]
        try:
            await party.first_of(tasks)
        except party.BROKEN:
            raise
        except errors.LogRolledBack as error:  # of this server
            self.failure = self.failure or error
            self.wake.set()
            raise
        except errors.XclpError as error:
            reason = error.reason if isinstance(error, errors.FaultyPeer) else error.public()
        else:
            return
        client.fault = errors.FaultyPeer(name, reason, public=True)
        raise client.fault

    async def _read_from(self, connection: Connection, name: str) -> None:
        """Handle the frames of a client until it says goodbye."""
        client = self.clients[name]
        resumed: set[str] = set()
        while True:
            frame = await connection.read()
            if isinstance(frame, frames.Bye):
                client.ended = True
                failure = frames.heard(frame.why)
                silent = not self.role.fed[name] and not self.mail.inboxes[name].complete
                event = "does not take part" if silent and not frame.well else "ended"
                code = Code.DECLINED if silent else Code.LEFT
                client.goodbye = None if frame.well else Reason(code, printable(failure.text))
                blames = list(failure.parties)
                _logger.info(event, extra={"client": name, "well": frame.well, "blames": blames})
                came = [other for other, c in self.clients.items() if c.came]
                # It is its log's fault, and nobody's, where this server knows that it is older.
                known = failure.of_log and (self.role.fresh or self.me in failure.parties)
                if not known:
                    self.failure = self._accusations.add(name, failure, came) or self.failure
                self.wake.set()
                return
            if isinstance(frame, frames.Beat):
                client.busy, client.lacks = frame.busy, self.codec.marked(frame.lacks)
                if frame.progress != client.progress:
                    client.progress, client.moved = frame.progress, self.clock()
                continue
            if not isinstance(frame, frames.Data | frames.Ack | frames.Resume):
                raise errors.VersionMismatch(f"a client sends no frames of kind {frame.KIND}")
            if frame.author != name:
                raise errors.FaultyPeer(name, "sends in the name of another client", public=True)
            if isinstance(frame, frames.Data):
                require_sound(frame, self.limits.max_message)
                self._note_piece(client, frame)
            else:
                if isinstance(frame, frames.Resume) and frame.addressee in resumed:
                    raise errors.FaultyPeer(name, "asks again for what is being sent", public=True)
                if isinstance(frame, frames.Resume):
                    resumed.add(frame.addressee)
                elif frame.count <= client.counts.get(frame.addressee, 0):
                    continue  # it has said so
                self._require_true(frame)
                client.counts[frame.addressee] = frame.count
            if frame.addressee == self.me:
                self.take(frame)
            else:
                await self._hand_on(client, frame)

    def _follows(self, client: _Presence, frame: frames.Data) -> bool:
        """Return whether a piece is the next one, or what its receiver asks for; and no crumb."""
        at, end = (frame.number, frame.offset), frame.offset + len(frame.piece)
        whole = end == frame.size
        if client.next.get(frame.receiver, at) != at or not (
            whole or len(frame.piece) == frames.PIECE_BYTES
        ):
            return False
        client.next[frame.receiver] = (frame.number + 1, 0) if whole else (frame.number, end)
        return True

    def _require_true(self, frame: frames.Ack | frames.Resume) -> None:
        """Refuse a count of messages of another client that have not come through here.

        A server that was rebuilt does not know what came before, and lets the other client judge.

        Raises:
            FaultyPeer: there are not so many.
        """
        if frame.sender == self.me or not self.role.fresh:
            return
        sent = self.clients[frame.sender].sent.get(frame.receiver, 0)
        if frame.count > sent:
            raise errors.FaultyPeer(
                frame.receiver,
                f"says that it has {frame.count} messages of {frame.sender}, which has sent {sent}",
                public=True,
            )

    async def _hand_on(
        self, client: _Presence, frame: frames.Data | frames.Ack | frames.Resume
    ) -> None:
        """Hand a frame on; as long as that takes, its addressee keeps the client waiting."""
        receiver = self.clients[frame.addressee]
        if client.slow is not None or receiver.slow is not None:  # nobody goes on with it
            return
        if isinstance(frame, frames.Data):
            if frame.number < receiver.counts.get(frame.sender, 0):  # it would leave that out
                return
            client.floods = "" if self._follows(client, frame) else frame.receiver
            if frame.offset + len(frame.piece) == frame.size:
                receiver.without.discard(frame.sender)
        else:  # the addressee goes on from there
            at = receiver.next.get(frame.receiver, (0, 0))
            asked = isinstance(frame, frames.Resume)
            receiver.next[frame.receiver] = (frame.count, 0) if asked else max(at, (frame.count, 0))
        client.held_by, since = frame.addressee, self.clock()
        try:
            await self.tell(frame.addressee, frame)
        finally:
            client.held_by = client.floods = ""
            client.moved += self.clock() - since

    async def watch(self) -> None:
        """Tell everybody of clients that are given up."""
        while True:
            await asyncio.sleep(self.limits.beat / 2)
            await self._end_waits_of_clients()
            await self.leave_out([name for name in self.clients if self.expired(name)])
            for name, client in self.clients.items():
                client.dropped_out = client.dropped_out and self.expired(name)

    async def _end_waits_of_clients(self) -> None:
        """Tell clients who wait for others in vain, where all wait, to go on without these.

        They may soon wait for others; who only says so does not put the end off for long.
        """
        self._look()
        waits = self._waits_of_clients() if self._quiet else {}
        if waits:
            self._quiet_from = self.clock()
            self._patience = min(self.limits.grace, self.limits.deadline)
        for name, lacks in waits_to_end(waits).items():
            self.clients[name].without.update(lacks)
            for other in sorted(lacks):
                _logger.warning("nothing comes", extra={"client": other, "waits": name})
                await self.tell(name, self._dropped_out(other))

    async def leave_out(self, peers: Sequence[str]) -> None:
        """See `Party.leave_out`: everybody hears of it once, and why."""
        for name in peers:
            client = self.clients[name]
            if client.dropped_out:
                continue
            client.dropped_out = True
            reason = client.reason
            if reason is not None:
                self.later(self.role.note_reason, name, reason)
                if not client.ended:
                    _logger.warning("dropout", extra={"client": name, "reason": reason.text})
            for other in self.clients:
                await self.tell(other, self._dropped_out(name))

    def _dropped_out(self, name: str) -> frames.DroppedOut:
        reason = self.clients[name].reason
        return frames.DroppedOut(name, b"" if reason is None else reason.encode())

    @property
    def _somebody_is_left(self) -> bool:
        return any(not c.ended and not self.expired(n) for n, c in self.clients.items())

    async def linger(self) -> None:
        """Wait until every client has ended or is given up."""
        self.waiting_since = self.clock()
        while self._somebody_is_left:
            if self.failure is not None:
                raise self.failure
            self.wake.clear()
            await self.acknowledge_rest()
            await self.woken()

    async def end(self, error: errors.XclpError | None) -> None:
        """Tell everybody that the session is over; and who was missing, if it failed.

        If it failed, this waits until all have heard of it and said goodbye; for those whose
        connection has broken, or is only being made, `Limits.grace` seconds.
        """
        end = frames.End(False)
        if error is not None:
            said = error.missing if isinstance(error, errors.TooFewParties) else ()
            missing = [c for c in self.clients if self.expired(c) and c not in said]
            without = f"without {', '.join(missing)}" if missing else ""
            more = without and f"; {without}"
            signed = self._accusations.signed
            end = frames.End(True, frames.told(Failure.of(error, self.role.step, more, signed)))
            if without:
                error.add_note(without)
        self._end = end
        for name in self.clients:
            await self.tell(name, end)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.grace):
                while self._somebody_is_left:
                    self.wake.clear()
                    await self.woken()
        for client in self.clients.values():
            if client.connection is not None:
                await client.connection.finish()
        if self.handlers:
            await asyncio.wait(self.handlers, timeout=party.FINISH_SECONDS)


class _OtherAgreement(errors.ProtocolError):
    """A client has other parameters."""


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
    within = limits or Limits()

    async def run() -> Any:
        server = ServerParty(role, clients, agreement, within)
        host, port = address
        try:
            listeners = await listen(host, port)
        except OSError as error:
            raise listen_error(error, f"{host}:{port}") from None
        gate = Gate(tls, server.accept)
        gate.open(listeners)
        port = listeners[0].getsockname()[1]
        _logger.info("listening", extra={"host": host, "port": port})
        if listening is not None:
            listening(port)
        watching = [asyncio.create_task(server.watch()), asyncio.create_task(server.clock.keep())]
        try:
            await server.drive()
            result = role.result()
            await server.linger()
            await server.end(None)
        except errors.XclpError as error:
            await server.end(error)
            raise
        finally:  # after anything else the clients wait: the server may be rebuilt from its log
            await gate.close()
            await party.cancel(watching)
            server.close()
        return result

    return party.run_to_end(run())
