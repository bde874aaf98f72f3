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
    BEAT: alive, waiting or computing ◀───────────────▶ DROPPED_OUT: a client that is given up
    BYE: its role has ended ──────────────────────────▶
             ◀────────────── END: the session is over, or why it failed

Between clients everything goes through the server, sealed by `SealedIO`; it hands pieces on and
keeps none. The sender keeps a message until its receiver has acknowledged it, which that does when
the role has taken it and the log is on the disk. So a connection that breaks, and a program that is
killed and rebuilt from its log, lose nothing: whoever comes back says what it has, and gets the
rest. A sender has at most `Limits.window` bytes on the way to one receiver, or one message.

*Deadlines*, on the server's clock: a client is given up that is not connected for `grace` seconds;
of which nothing has come `join` seconds after the start; that computes, or sends a message, for
`deadline` seconds without any progress; or that was computing, sending or away for `total` seconds
of the session, whatever progress it made. Where all wait, and no message was completed for
`deadline` seconds, waits for whom withholds one end: first of clients for clients, told by their
BEATs, then the server's. A wait of a role ends when all that it lacks are given up, and then
goes on without them or fails, as the role says; a client also fails when a wait has lasted two
`total`. Clients hear of it and do the same. Who comes back within
the session gets its messages all the same. Only seconds in which the server ran count (`Clock`). A
client that cannot take part says goodbye instead (`decline`), so that nobody waits for it.

Examples:
    >>> import tempfile
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from pathlib import Path
    >>> from xclp_crypto.params import Agreement
    >>> from xclp_crypto.protocols.setup import SERVER, key_exchange_client, key_exchange_server
    >>> from xclp_crypto.transport import network
    >>> from xclp_crypto.transport.log import NoLog
    >>> from xclp_crypto.transport.replay import DurableRole
    >>> from xclp_crypto.transport.tls import make_authority, tls_context
    >>> clients, agreement, certs = ("a", "b", "c"), Agreement(version=1), Path(tempfile.mkdtemp())
    >>> _ = make_authority(certs, clients, ["localhost"])
    >>> def tls(name):
    ...     files = (certs / file for file in ("authority.pem", f"{name}.pem", f"{name}.key"))
    ...     return tls_context(*files, server=name == SERVER)
    >>> def durable(name, role):  # with a log in the place of NoLog, it can be stopped and go on
    ...     others = [party for party in (*clients, SERVER) if party != name]
    ...     return DurableRole(name, role, NoLog(), peers=others)
    >>> async def client(io, rng):
    ...     return (await key_exchange_client(io, clients, agreement, [5], rng)).sizes
    >>> async def server(io, rng):
    ...     return (await key_exchange_server(io, clients, agreement, 1, rng)).clients
    >>> def join(name, port):
    ...     there = ("localhost", port)
    ...     if name == "c":
    ...         return network.decline(agreement, there, tls(name))
    ...     network.check(agreement, there, tls(name))
    ...     return network.join(durable(name, client), clients, SERVER, agreement, there, tls(name))
    >>> with ThreadPoolExecutor() as machines:
    ...     started = lambda port: [machines.submit(join, name, port) for name in clients]
    ...     here = ("localhost", 0)
    ...     network.serve(
    ...         durable(SERVER, server), clients, agreement, here, tls(SERVER), listening=started
    ...     )
    ('a', 'b')
"""

from xclp_crypto.transport.network.client import check, decline, join
from xclp_crypto.transport.network.limits import Limits
from xclp_crypto.transport.network.server import serve

__all__ = ["Limits", "check", "decline", "join", "serve"]


def __dir__() -> list[str]:
    return sorted(__all__)
