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
`deadline` seconds, all are given up. A wait of a role ends when all that it lacks are given up, and
then goes on without them or fails, as the role says; a client also fails when a wait has lasted two
`total`. Clients hear of it and do the same. Who comes back within
the session gets its messages all the same. Only seconds in which the server ran count (`Clock`). A
client that cannot take part says goodbye instead (`decline`), so that nobody waits for it.
"""

from xclp_crypto.transport.network.client import check, decline, join
from xclp_crypto.transport.network.limits import Limits
from xclp_crypto.transport.network.server import serve

__all__ = ["Limits", "check", "decline", "join", "serve"]


def __dir__() -> list[str]:
    return sorted(__all__)
