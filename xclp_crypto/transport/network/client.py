"""A client: its role, and its connection to the server; see the package."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from xclp_crypto import errors
from xclp_crypto.params import Agreement
from xclp_crypto.rng import SystemRng
from xclp_crypto.transport.failures import Failure, Reason
from xclp_crypto.transport.network import frames, party
from xclp_crypto.transport.network.limits import Clock, Limits
from xclp_crypto.transport.network.party import Connection, Party
from xclp_crypto.transport.replay import DurableRole
from xclp_crypto.transport.tls import connection_error

_logger = logging.getLogger(__name__)


class _ClosedAtOnce(errors.CertificateRefused):
    """The server said nothing; it may also have been killed at that moment."""


class ClientParty(Party):
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
        self.incarnation = SystemRng().bytes(16)
        self.connection: Connection | None = None
        self.dropouts: dict[str, bytes] = {}  # and the number of the reason's code
        self._reasons: set[tuple[str, bytes]] = set()
        self.awaited = [name for name in clients if name != role.name]
        self.over = False

    def expired(self, peer: str) -> bool:
        """See `Party.expired`."""
        if self.mail.inboxes[peer].complete:
            return False
        return peer in self.dropouts or (self.over and self.failure is None)

    def connection_to(self, peer: str) -> Connection | None:
        """See `Party.connection_to`."""
        return self.connection

    async def leave_out(self, peers: Sequence[str]) -> None:
        """See `Party.leave_out`; it is the server that says so."""

    @property
    def _patient(self) -> bool:
        """Whether to wait on: so long that a server can first give up whom it waits for."""
        return self.clock() - self.waiting_since <= 2 * self.limits.in_all

    async def _wait(self) -> None:
        """See `Party._wait`; raises `Stalled` when a wait has lasted for too long."""
        waiting = self.role.waiting
        if waiting is not None and not self._patient:
            why = f"waited for {2 * self.limits.in_all:g} seconds"
            raise errors.Stalled(self.me, waiting.step, waiting.missing, "message", why)
        await super()._wait()

    async def stay(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        """Keep a connection to the server until the session is over or the server is given up."""
        last, pause = self.clock(), self.limits.beat / 16
        while not self.over:
            try:
                connection = await connect()
                try:
                    await self._use(connection)
                finally:
                    self.connection = None
                    for box in self.mail.outboxes.values():
                        box.open = False
                    last = max(last, connection.heard)
                    await connection.finish()
                pause = self.limits.beat / 16
            except (errors.Unreachable, _ClosedAtOnce, *party.BROKEN) as error:
                reason = str(error) or type(error).__name__
                left = self.limits.grace - (self.clock() - last)
                extra = {"party": self.me, "reason": reason, "seconds_left": max(0, round(left))}
                _logger.info("no connection", extra=extra)
                if left < 0:
                    known = isinstance(error, _ClosedAtOnce)
                    self.failure = (_ClosedAtOnce if known else errors.Unreachable)(
                        f"no connection to the server for {self.limits.grace:g} seconds: {reason}"
                    )
                    break
            except errors.XclpError as error:
                self.failure = error
                break
            if not self.over:
                await asyncio.sleep(pause)
                pause = min(2 * pause, self.limits.beat)

    def left(self, staying: asyncio.Task[None]) -> None:
        """Notice that `stay` has ended, in whatever way."""
        self.over = True
        self.wake.set()

    async def _use(self, connection: Connection) -> None:
        """Greet the server, and exchange frames until the connection ends."""
        session = await greet(
            connection, self.agreement, self.role.instance, self.incarnation, dry=False
        )
        if self.role.note not in (b"", session):
            raise errors.LogError(
                "the log of this client belongs to another session than the one that the server "
                "runs now: the server was started anew; begin a new session without the log"
            )
        if not self.role.note:
            await self.in_thread(self.role.keep, session)
        _logger.info("connected", extra={"party": self.me, "awaited": self.awaited})
        self.connection = connection
        self.dropouts.clear()  # the server says who is one
        try:
            for peer in self.peers:
                await connection.send(self.mail.resume(peer))
            await party.first_of(
                [
                    asyncio.create_task(self._read_from(connection)),
                    asyncio.create_task(self.write_to(connection, self.peers)),
                    asyncio.create_task(self.beat(connection)),
                ]
            )
        except errors.XclpError as error:
            await self._say_goodbye(error)
            raise
        except party.BROKEN:
            # Writing may find the connection closed before what the server said last is read.
            connection.close()
            with suppress(*party.BROKEN):
                async with asyncio.timeout(party.FINISH_SECONDS):
                    await self._read_from(connection)
            if not self.over:
                raise

    async def _read_from(self, connection: Connection) -> None:
        """Handle the frames of the server until it ends the session."""
        while True:
            frame = await connection.read()
            if isinstance(frame, frames.End):
                if frame.failed:
                    raise self._told(frame.why, "the server ended the session")
                self.over = True
                return
            if isinstance(frame, frames.Refused):
                raise self._told(frame.why, "the server refuses")
            if isinstance(frame, frames.DroppedOut):
                if frame.party and frame.party not in self.dropouts:
                    _logger.info("dropout", extra={"party": self.me, "client": frame.party})
                self.dropouts[frame.party] = frame.reason[:1]
                said = frame.party, frame.reason[:1]
                if frame.reason and said not in self._reasons:  # a server may say it for ever
                    self._reasons.add(said)
                    self.later(self.role.note_reason, frame.party, Reason.decode(frame.reason))
                self.awaited = [name for name in self.awaited if name != frame.party]
            elif isinstance(frame, frames.Resume) and frame.author == self.me:
                self._require_whole_log(frame)
            elif isinstance(frame, frames.Data | frames.Ack | frames.Resume):
                if frame.addressee != self.me:
                    raise errors.VersionMismatch(
                        f"the server hands on what is for {frame.addressee}"
                        if isinstance(frame, frames.Data)
                        else "the server acknowledges what this party never sends"
                    )
                self.take(frame)
                if isinstance(frame, frames.Data):
                    self._notice(frame.sender)
                if isinstance(frame, frames.Resume):
                    self.dropouts.pop(frame.receiver, None)
                    if frame.receiver in self.awaited:
                        self.awaited = [name for name in self.awaited if name != frame.receiver]
                        extra = {"party": self.me, "client": frame.receiver}
                        _logger.info("is here", extra={**extra, "awaited": self.awaited})
            elif not isinstance(frame, frames.Beat):
                raise errors.VersionMismatch(f"the server sends no frames of kind {frame.KIND}")
            self.wake.set()

    def _notice(self, sender: str) -> None:
        """Wait again for who was silent, and of whom a message has come."""
        silent = self.dropouts.get(sender) == Reason().encode()
        if silent and self.mail.inboxes[sender].complete:
            del self.dropouts[sender]

    def _require_whole_log(self, last: frames.Resume) -> None:
        """Refuse a log that lacks messages of which this client has said before that it has them.

        Raises:
            LogRolledBack: it does.
            FaultyPeer: there is no older log, so the server made it up.
        """
        has = self.role.fed[last.sender]
        if self.role.ended or last.count <= has:  # a role that has ended keeps no more messages
            return
        said = f"{self.me} has said that it has {last.count} messages of {last.sender}"
        if self.role.fresh:
            raise errors.FaultyPeer(self.server, f"says that {said}, and it has {has}", public=True)
        raise errors.LogRolledBack(
            f"{said}, and its log has {has}: {party.ROLLED_BACK}", public=True
        )

    def _told(self, why: bytes, who: str) -> errors.XclpError:
        return frames.heard(why).heard(who, (self.me, *self.peers), self.role.signer)

    def take(self, frame: frames.Data | frames.Ack | frames.Resume) -> None:
        """See `Party.take`; what others send comes through the server."""
        try:
            super().take(frame)
        except errors.FaultyPeer as error:
            if self.server in error.parties:
                raise
            raise errors.FaultyPeerOrServer(error.parties, error.reason, public=True) from None

    async def _say_goodbye(self, error: errors.XclpError | None) -> None:
        """Tell the server that the role has ended, and whom it blames if it failed.

        This party signs what its own role found, and not what it has heard.
        """
        why = b""
        if error is not None:
            signed = self.role.accusations if error is self.role.failure else ()
            why = frames.told(Failure.of(error, self.role.step, accusations=signed))
        if self.connection is not None:
            with suppress(*party.BROKEN):
                await self.connection.send(frames.Bye(error is None, why))

    async def finish(self) -> None:
        """Wait until what was sent has arrived, and say goodbye."""
        while (
            self.failure is None
            and not self.over
            and self._patient
            and any(
                box.bytes for peer, box in self.mail.outboxes.items() if peer not in self.dropouts
            )
        ):
            self.wake.clear()
            await self.acknowledge_rest()
            await self.woken()
        await self._say_goodbye(self.failure)


async def greet(
    connection: Connection, agreement: Agreement, instance: bytes, incarnation: bytes, *, dry: bool
) -> bytes:
    """Greet the server and return which session it runs; see `frames.Hello`.

    Raises:
        VersionMismatch: it speaks another version, or another protocol.
        OtherParameters: its parameters are others; names the fields.
        XclpError: it refuses for another reason.
    """
    try:
        ready = await connection.read()
    except party.BROKEN:
        # With TLS 1.3 the handshake is over for the client before the server has looked at its
        # certificate, and asyncio closes the connection without sending OpenSSL's alert.
        raise _ClosedAtOnce(
            "the server closed the connection before it said anything: as a rule it refuses this "
            "program's certificate, which must come from the server's authority and be valid "
            "today; the server's log says more"
        ) from None
    if not isinstance(ready, frames.Ready):
        raise errors.VersionMismatch("what answers does not speak this protocol; check the address")
    await connection.send(
        frames.Hello(
            dry=dry, instance=instance, incarnation=incarnation, agreement=agreement.encode()
        )
    )
    answer = await connection.read()
    if isinstance(answer, frames.Refused) and answer.why[0] == frames.OTHER_AGREEMENT:
        if len(answer.why) - 1 != agreement.size:
            raise errors.VersionMismatch(
                "the server compares other parameters than this program; install the same version "
                "of xclp"
            )
        try:
            agreement.require_same(answer.why[1:], "the server")
        except errors.FaultyPeer as error:
            raise errors.OtherParameters(error.reason) from None
    if isinstance(answer, frames.Refused):
        raise frames.heard(answer.why).heard("the server refuses", ())
    if not isinstance(answer, frames.Welcome):
        raise errors.VersionMismatch("the server does not greet as this protocol says")
    return answer.session


async def _connect(
    address: tuple[str, int], tls: ssl.SSLContext, limits: Limits, clock: Clock, codec: frames.Codec
) -> Connection:
    """Connect to the server; raises the `NetworkError` that says why not."""
    host, port = address
    try:
        async with asyncio.timeout(limits.grace):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=tls, server_hostname=host
            )
    except party.BROKEN as error:
        raise connection_error(error, f"{host}:{port}") from None
    return Connection(reader, writer, codec, limits.grace, clock)


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
        OtherParameters: it has other parameters; names the fields.
        XclpError: the role failed, or its log cannot be written.
    """
    within = limits or Limits()

    async def run() -> Any:
        member = ClientParty(role, clients, server, agreement, within)
        keeping = asyncio.create_task(member.clock.keep())
        staying = asyncio.create_task(
            member.stay(lambda: _connect(address, tls, within, member.clock, member.codec))
        )
        staying.add_done_callback(member.left)
        try:
            await member.drive()
            result = role.result()
            await member.finish()
            if staying.done():
                staying.result()
            return result
        except errors.XclpError as error:
            member.failure = member.failure or error
            await member.finish()
            raise member.failure from None
        finally:
            await party.cancel([staying, keeping])
            member.close()

    return party.run_to_end(run())


def check(
    agreement: Agreement,
    address: tuple[str, int],
    tls: ssl.SSLContext,
    *,
    limits: Limits | None = None,
) -> None:
    """Ask a server whether this client, with these parameters, could join it; nothing more.

    Arguments and errors are those of `join`.
    """
    party.run_to_end(_speak(agreement, address, tls, limits or Limits(), dry=True))


def decline(
    agreement: Agreement,
    address: tuple[str, int],
    tls: ssl.SSLContext,
    *,
    limits: Limits | None = None,
) -> None:
    """Tell a server that this client takes no part, so that nobody waits for it.

    If it joins all the same before the others have begun, it is welcome.

    Arguments and errors are those of `join`.
    """
    party.run_to_end(_speak(agreement, address, tls, limits or Limits(), dry=False))


async def _speak(
    agreement: Agreement,
    address: tuple[str, int],
    tls: ssl.SSLContext,
    limits: Limits,
    *,
    dry: bool,
) -> None:
    """Greet the server without a role, and say goodbye unless it is a dry run."""
    connection = await _connect(address, tls, limits, Clock(limits.beat), frames.Codec(()))
    try:
        await greet(connection, agreement, bytes(16), SystemRng().bytes(16), dry=dry)
        if not dry:
            await connection.send(frames.Bye(False))
            await connection.hear_out()
    except party.BROKEN as error:
        raise connection_error(error, f"{address[0]}:{address[1]}") from None
    finally:
        await connection.finish()
